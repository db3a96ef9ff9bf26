"""A control plane that reads a folder, real proxies, and simulated ones."""

import http.client
import json
import os
import socket
import subprocess
import time
from pathlib import Path

XDS, ADMIN, PROXY_ADMIN = "127.0.91.250:15010", "127.0.91.250:15001", "127.0.91.250:15000"
# Routes per file: editing one route means reading its file again.
PER_FILE = 100
SERVICES = 100
API = "gateway.networking.k8s.io/v1"


def address_of(gateway):
    return f"127.0.91.{gateway + 1}"


def write(path, items):
    """Replaces a file atomically, as editors do."""
    temporary = path.parent.parent / f".{path.name}.new"
    temporary.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    temporary.rename(path)


def route(name, gateway, rule):
    parent = {"name": f"edge-{gateway}"}
    return {"apiVersion": API, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "bench"}, "spec": {"parentRefs": [parent], "rules": [rule]}}


def weighted_route(number, gateways, weight=90):
    """A route that splits its traffic between two Services."""
    first, second = number % SERVICES, (number + 1) % SERVICES
    return route(f"route-{number:06}", number % gateways, {
        "matches": [{"path": {"type": "PathPrefix", "value": f"/route-{number:06}"}}],
        "backendRefs": [{"name": f"service-{first}", "port": 80, "weight": weight}, {"name": f"service-{second}", "port": 80, "weight": 100 - weight}],
    })


def probe_route(version):
    """A route whose redirect shows which version is in effect. It needs no backend."""
    redirect = {"type": "RequestRedirect", "requestRedirect": {"path": {"type": "ReplaceFullPath", "replaceFullPath": f"/version-{version}"}}}
    return route("probe", 0, {"matches": [{"path": {"type": "PathPrefix", "value": "/probe"}}], "filters": [redirect]})


def base(gateways):
    items = [{"apiVersion": API, "kind": "GatewayClass", "metadata": {"name": "pointsman"}, "spec": {"controllerName": "pointsman.io/controller"}}]
    for gateway in range(gateways):
        listener = {"name": "http", "port": 8080, "protocol": "HTTP"}
        items.append({"apiVersion": API, "kind": "Gateway", "metadata": {"name": f"edge-{gateway}", "namespace": "bench"},
                      "spec": {"gatewayClassName": "pointsman", "addresses": [{"type": "IPAddress", "value": address_of(gateway)}], "listeners": [listener]}})
    for number in range(SERVICES):
        name = f"service-{number}"
        items.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "bench"},
                      "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}})
        items.append({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                      "metadata": {"name": name, "namespace": "bench", "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
                      "ports": [{"name": "http", "port": 7001}], "endpoints": [{"addresses": [f"127.0.92.{number % 250 + 1}"]}]})
    return items


class Manifests:
    """A folder of manifests: routes in files of a hundred, and the probe in a file of its own."""

    def __init__(self, folder, routes, gateways=1):
        self.path, self.gateways = folder / "manifests", gateways
        self.path.mkdir()
        write(self.path / "base.json", base(gateways))
        for start in range(0, routes, PER_FILE):
            items = [weighted_route(number, gateways) for number in range(start, min(start + PER_FILE, routes))]
            write(self.path / f"routes-{start:06}.json", items)
        self.probe(0)

    def probe(self, version):
        write(self.path / "probe.json", [probe_route(version)])

    def weight(self, value):
        write(self.path / "weighted.json", [weighted_route(999_999, 1, value)])


class Process:
    """A process whose output goes to a file."""

    def __init__(self, command, log, **options):
        self.log = log
        with open(log, "w") as output:
            options.setdefault("stdout", output)
            self.process = subprocess.Popen(list(map(str, command)), stderr=output, **options)
        self.pid = self.process.pid

    def check(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.process.args[:2]} has exited: {self.log.read_text()[-2000:]}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def cpu(self):
        """Processor time of all threads, in seconds."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory(self, field="VmRSS"):
        """Resident memory in MiB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"/proc/{self.pid}/status has no {field}")


def ask(address, path):
    """Returns the status and body of an admin page, or None if no server answers."""
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request("GET", path, headers={"Host": "localhost"})
        response = connection.getresponse()
        return response.status, response.read()
    except OSError:
        return None
    finally:
        connection.close()


def wait_until(what, holds, seconds, process=None, pause=0.002):
    end = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        if process:
            process.check()
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(pause)


def is_ready(address):
    return (ask(address, "/readyz") or (0,))[0] == 200


class Controller(Process):
    def __init__(self, binary, folder, manifests, seconds=300):
        super().__init__([binary, "controller", "-f", manifests.path, "--xds", XDS, "--admin", ADMIN], folder / "controller.log")
        started = time.monotonic()
        wait_until("the controller is ready", lambda: is_ready(ADMIN), seconds, self, 0.01)
        self.start_seconds = time.monotonic() - started

    def proxies(self):
        return json.loads(ask(ADMIN, "/proxies")[1])["proxies"]

    def bytes_sent(self):
        return sum(proxy["bytesSent"] for proxy in self.proxies())

    def wait_in_sync(self, count, seconds):
        """Waits until `count` proxies are connected and none lags."""
        def in_sync():
            proxies = self.proxies()
            return len(proxies) == count and all(proxy["lagSeconds"] is None for proxy in proxies)
        wait_until(f"{count} proxies are in sync", in_sync, seconds, self, 0.1)

    def settle(self):
        """Waits until it has been idle for a while."""
        while True:
            before = self.cpu()
            time.sleep(0.5)
            if self.cpu() - before < 0.015:
                return


class Proxy(Process):
    def __init__(self, binary, folder, gateways=()):
        command = [binary, "proxy", "--control-plane", f"http://{XDS}", "--name", "probed", "--workers", "1", "--admin", PROXY_ADMIN]
        for gateway in gateways:
            command += ["--gateway", f"bench/edge-{gateway}"]
        started = time.monotonic()
        super().__init__(command, folder / "proxy.log")
        wait_until("the proxy is ready", lambda: is_ready(PROXY_ADMIN), 60, self)
        self.start_seconds = time.monotonic() - started


class Probe:
    """Sends requests over one connection until a response shows the expected version."""

    REQUEST = b"GET /probe HTTP/1.1\r\nHost: bench.example\r\n\r\n"

    def __init__(self):
        self.stream = socket.create_connection((address_of(0), 8080), 10)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def version(self):
        self.stream.sendall(self.REQUEST)
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.stream.recv(4096)
            if not part:
                raise RuntimeError("the proxy has closed the connection")
            head += part
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"location":
                return int(value.rpartition(b"/version-")[2])
        return None

    def wait(self, version, seconds=30):
        end = time.perf_counter() + seconds
        while self.version() != version:
            if time.perf_counter() > end:
                raise RuntimeError(f"version {version} is not in effect after {seconds} s")


class Simulation(Process):
    """Simulated proxies; see src/bin/simulate-proxies.rs."""

    def __init__(self, binary, folder, count, gateways=None, cold=False):
        command = [binary, XDS, count] + (["--gateways", gateways] if gateways else []) + (["--cold"] if cold else [])
        super().__init__(command, folder / "simulation.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.read("started")

    def read(self, key):
        while True:
            line = self.process.stdout.readline()
            if not line:
                self.process.wait()
                self.check()
            message = json.loads(line)
            if key in message:
                return message

    def send(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def arm(self, count):
        """Starts counting the proxies that apply a commit."""
        self.send(f"await {count}")
        self.read("armed")

    def applied(self):
        """Waits until the number of proxies given to `arm` have applied it. Returns the times of the first and last, in nanoseconds since the Unix epoch."""
        message = self.read("applied")
        return message["first"], message["last"]
