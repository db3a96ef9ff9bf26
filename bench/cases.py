"""The benchmark cases. Rate cases are measured in many short windows; each of the others has its own method."""

import json
import math
import re
import socket
import statistics
import subprocess
import threading
import time

from contestants import PlainHyper, Pointsman, host_of, path_of
from machine import LOAD_CORE, Window, load, pinned, resident_kib

ROUTES = 5000
IDLE = 3000
# Endpoint changes per second, and the number of Services that they cycle through.
CHURN_RATE = 200
CHURNED = 100


class Rate:
    """A case that measures work per time. `run` returns the amount of work in `unit` / `scale`, and latencies in microseconds by percentile."""

    def __init__(self, name, title, unit, run, scale=1.0):
        self.name, self.title, self.unit, self.run, self.scale = name, title, unit, run, scale


def wrk(path="/", port=8080, connections=64, scheme="http", close=False):
    def run(contestant, seconds, tools):
        command = ["wrk", "-t1", f"-c{connections}", f"-d{math.ceil(seconds)}s", "--latency", "-H", "Host: bench.example"]
        command += ["-H", "Connection: close"] if close else []
        text = load([*command, f"{scheme}://{contestant.address}:{port}{path}"], 60)
        if re.search(r"Non-2xx|Socket errors: connect [1-9]", text):
            raise RuntimeError(text)
        latency = {}
        for percent, value, unit in re.findall(r"(50|99)%\s+([\d.]+)(us|ms|s)\b", text):
            latency[percent] = float(value) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]
        return int(re.search(r"(\d+) requests in", text)[1]), latency
    return run


def h2load(port):
    def run(contestant, seconds, tools):
        text = load(["h2load", "-t1", "-c8", "-m32", "-D", f"{round(seconds * 1000)}ms", "-H", ":authority: bench.example",
                     f"http://{contestant.address}:{port}/"], 60)
        done = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", text)
        if not done or int(done[1]) == 0 or int(done[3]) + int(done[4]):
            raise RuntimeError(text)
        return int(done[1]), {}
    return run


def own(mode, port, connections):
    def run(contestant, seconds, tools):
        output = json.loads(load([tools / "load", mode, f"{contestant.address}:{port}", connections, seconds], 60))
        if not output["count"]:
            raise RuntimeError(f"{contestant.name}: {mode} completed no operation")
        return output["count"], {}
    return run


MB = 1e-6
RATES = [
    Rate("http1", "HTTP/1.1 keep-alive, 64 connections", "requests", wrk()),
    Rate("latency", "HTTP/1.1, one connection", "requests", wrk(connections=1)),
    Rate("http2", "HTTP/2 (8 × 32) to HTTP/1.1", "requests", h2load(8082)),
    Rate("http2-http2", "HTTP/2 (8 × 32) to HTTP/2", "requests", h2load(8083)),
    Rate("download", "1 MiB down", "MB", wrk("/1m", connections=8), (1 << 20) * MB),
    Rate("upload", "1 MiB up", "MB", own("upload", 8080, 8), (1 << 20) * MB),
    Rate("tcp-down", "TCP bulk down", "MB", own("tcp-down", 9000, 4), MB),
    Rate("tcp-up", "TCP bulk up", "MB", own("tcp-up", 9001, 4), MB),
    Rate("tcp-short", "TCP, short connections", "connections", own("tcp-short", 9002, 16)),
    Rate("tcp-messages", "TCP, small messages, 64 connections", "messages", own("tcp-messages", 9002, 64)),
    Rate("connections", "HTTP/1.1, a connection per request", "requests", own("connections", 8080, 16)),
    Rate("handshakes", "TLS 1.3 full handshakes", "handshakes", own("handshakes", 8443, 8)),
    Rate("tls", "TLS keep-alive, 64 connections", "requests", wrk(port=8443, scheme="https")),
]


def rates(cases, contestants, windows, seconds, tools, backend, log):
    """Measures all cases in windows that alternate between contestants. Returns {case: {contestant: [{rate, per_cpu, latency, disturbed}]}}."""
    results = {case.name: {one.name: [] for one in contestants} for case in cases}
    for case in cases:
        for number in range(windows + 1):
            for one in contestants:
                try:
                    with Window(one.process.pid, backend) as window:
                        work, latency = case.run(one, seconds, tools)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    log(f"{case.name}: {one.name}: {error}")
                    continue
                # The first window is a warm-up.
                if number:
                    results[case.name][one.name].append({
                        "rate": work * case.scale / window.seconds,
                        "per_cpu": work * case.scale / max(window.cpu, 1e-9),
                        "latency": latency,
                        "disturbed": window.disturbed(),
                    })
        log(f"{case.title}: done")
    return results


def settled_kib(pid):
    """Returns the resident memory once it has not shrunk for two seconds, because memory that a proxy frees some time after a request does not belong to an idle connection."""
    least, since = resident_kib(pid), time.monotonic()
    end = since + 15
    while time.monotonic() < min(since + 2, end):
        time.sleep(0.2)
        now = resident_kib(pid)
        if now < least * 0.995:
            least, since = now, time.monotonic()
    return resident_kib(pid)


def memory(contestants, tools, log):
    """Measures resident MiB after the first requests, and KiB per idle connection that has carried one request."""
    results = {}
    for one in contestants:
        row = {}
        for kind, port in (("http1", 8080), ("http2", 8082), ("tls", 8443)):
            # Restarts for each kind, because memory freed by earlier connections would be reused.
            one.stop()
            one.start()
            for _ in range(20):
                fetch(one)
            before = settled_kib(one.process.pid)
            row["idle"] = before / 1024
            holder = subprocess.Popen(pinned(LOAD_CORE, [tools / "load", f"idle-{kind}", f"{one.address}:{port}", IDLE]),
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            opened = holder.stdout.readline().strip() == "open"
            row[kind] = (settled_kib(one.process.pid) - before) / IDLE if opened else None
            holder.stdin.close()
            holder.wait()
        results[one.name] = row
        log(f"memory: {one.name}: {row}")
    return results


def many(contestants, seconds, windows, tools, backend, log):
    """Measures throughput per CPU-second and resident MiB with a single route and with 5,000 routes, for requests to the last route."""
    results = {}
    for one in contestants:
        if isinstance(one, PlainHyper):
            continue
        row = {}
        single = wrk(path_of(ROUTES - 1))
        for kind, settings in (("one", {}), ("paths", {"routes": ROUTES}), ("hosts", {"hosts": ROUTES})):
            one.stop()
            one.start(**settings)
            fetch(one, path_of(ROUTES - 1), host_of(ROUTES - 1))
            row[f"{kind}-memory"] = resident_kib(one.process.pid) / 1024
            run = single if kind != "hosts" else wrk_host(host_of(ROUTES - 1))
            measured = []
            for _ in range(max(3, windows // 2)):
                with Window(one.process.pid, backend) as window:
                    work, _ = run(one, seconds, tools)
                measured.append(work / window.cpu)
            row[kind] = statistics.median(measured)
        one.stop()
        one.start()
        results[one.name] = row
        log(f"many routes: {one.name}: {row}")
    return results


def wrk_host(host):
    def run(contestant, seconds, tools):
        text = load(["wrk", "-t1", "-c64", f"-d{math.ceil(seconds)}s", "-H", f"Host: {host}", f"http://{contestant.address}:8080/"], 60)
        return int(re.search(r"(\d+) requests in", text)[1]), {}
    return run


def fetch(contestant, path="/", host="bench.example"):
    """Sends a request over a new connection and returns the status."""
    with socket.create_connection((contestant.address, 8080), 10) as stream:
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return int(stream.recv(4096).split(b" ")[1])


def propagation(contestants, repetitions, log):
    """Measures the time from a configuration change until a request is routed by it, in milliseconds: medians at 0, 1,000 and 5,000 routes."""
    results = {}
    for one in contestants:
        if isinstance(one, PlainHyper):
            continue
        row = {}
        for routes in (0, 1000, 5000):
            one.stop()
            one.start(routes=routes, catch_all=False)
            times = []
            for number in range(repetitions):
                route = 10000 + number
                if fetch(one, path_of(route)) != 404:
                    raise RuntimeError(f"{one.name}: {path_of(route)} already exists")
                text = f"GET {path_of(route)} HTTP/1.1\r\nHost: bench.example\r\nConnection: close\r\n\r\n"
                started = time.perf_counter()
                one.add_route(route)
                while True:
                    try:
                        with socket.create_connection((one.address, 8080), 10) as stream:
                            stream.sendall(text.encode())
                            if b" 200 " in stream.recv(64):
                                break
                    except OSError:
                        pass
                    if time.perf_counter() - started > 30:
                        raise RuntimeError(f"{one.name}: a new route is not in effect after 30 s")
                times.append((time.perf_counter() - started) * 1000)
                # HAProxy ignores signals while it reloads.
                time.sleep(0.5)
            row[routes] = statistics.median(times)
        one.stop()
        one.start()
        results[one.name] = row
        log(f"propagation: {one.name}: {row}")
    return results


class Churn(threading.Thread):
    """Changes endpoints at a fixed rate until stopped. In a folder that is not watched, it causes the same load without changing the configuration."""

    def __init__(self, contestant, folder, rate, services):
        super().__init__(daemon=True)
        self.contestant, self.folder, self.rate, self.services = contestant, folder, rate, services
        self.stopped, self.done = threading.Event(), 0

    def run(self):
        started = time.perf_counter()
        while not self.stopped.is_set():
            self.contestant.churn(self.done % self.services, self.done // self.services % 2 == 0, self.folder)
            self.done += 1
            time.sleep(max(0, started + self.done / self.rate - time.perf_counter()))

    def stop(self):
        self.stopped.set()
        self.join()


def churn(contestants, windows, seconds, tools, backend, log):
    """Measures throughput with 5,000 routes while endpoints change 200 times per second, relative to the throughput without changes. Pointsman only, because
    the other proxies receive endpoints in other ways."""
    results = {}
    for one in contestants:
        if not isinstance(one, Pointsman):
            continue
        one.stop()
        one.start(routes=ROUTES)
        unwatched = one.folder / "unwatched"
        unwatched.mkdir()
        one.add_churned(CHURNED)
        while fetch(one, path_of(20000 + CHURNED - 1)) != 200:
            time.sleep(0.05)
        run = wrk(path_of(ROUTES - 1))
        measured = {"quiet": [], "churn": []}
        for number in range(2 * windows + 2):
            kind, folder = ("quiet", unwatched) if number % 2 else ("churn", one.folder / "manifests")
            changes = Churn(one, folder, CHURN_RATE, CHURNED)
            changes.start()
            with Window(one.process.pid, backend) as window:
                work, _ = run(one, seconds, tools)
            changes.stop()
            # The first window of each kind is a warm-up.
            if number > 1:
                measured[kind].append((work / window.seconds, work / window.cpu, changes.done / window.seconds))
        median = lambda kind, at: statistics.median(row[at] for row in measured[kind])
        row = {
            "requests": median("churn", 0) / median("quiet", 0),
            "requests-per-cpu": median("churn", 1) / median("quiet", 1),
            "changes-per-second": median("churn", 2),
        }
        one.stop()
        one.start()
        results[one.name] = row
        log(f"endpoint churn: {one.name}: {row}")
    return results
