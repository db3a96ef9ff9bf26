"""Interoperability tests with third-party clients and servers. Run by `scripts/clients`."""

import asyncio
import contextlib
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from concurrent import futures

import cheroot.wsgi
import grpc
import h2.config
import h2.connection
import h2.events
import trustme
import websockets
from aiohttp import web
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

ADDRESS = f"127.88.{os.getpid() % 250}.{os.getpid() // 250 % 250 + 1}"
HTTP, HTTPS, ADMIN = f"{ADDRESS}:8080", f"{ADDRESS}:8443", f"{ADDRESS}:15000"
# Source address of connections to any address in 127.0.0.0/8.
CLIENT_ADDRESS = "127.0.0.1"
# Source address of the load balancers, whose connections begin with a PROXY protocol header.
BALANCER = "127.0.0.77"
LARGE = 8 << 20
MESSAGES = [("grpc.max_receive_message_length", 2 * LARGE), ("grpc.max_send_message_length", 2 * LARGE)]

# ---------------------------------------------------------------- servers


class Service(grpc.GenericRpcHandler):
    """A gRPC service with raw bytes as messages. The keys of KINDS are its methods."""

    KINDS = {
        "Say": grpc.unary_unary_rpc_method_handler,
        "Fail": grpc.unary_unary_rpc_method_handler,
        "Sleep": grpc.unary_unary_rpc_method_handler,
        "Who": grpc.unary_unary_rpc_method_handler,
        "Count": grpc.unary_stream_rpc_method_handler,
        "Break": grpc.unary_stream_rpc_method_handler,
        "Sum": grpc.stream_unary_rpc_method_handler,
        "Echo": grpc.stream_stream_rpc_method_handler,
    }

    def __init__(self, name):
        self.name = name
        self.ended = threading.Event()

    def service(self, details):
        kind = self.KINDS.get(details.method.rsplit("/", 1)[1])
        return kind(getattr(self, details.method.rsplit("/", 1)[1])) if kind else None

    def Say(self, message, context):
        sent = dict(context.invocation_metadata())
        context.send_initial_metadata((("x-first", sent.get("x-asked", "")), ("x-raw-bin", sent.get("x-raw-bin", b""))))
        context.set_trailing_metadata((("x-last", "end"), ("x-last-bin", b"\0\xff\n")))
        return message

    def Fail(self, message, context):
        context.set_trailing_metadata((("x-why", "because"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now: 100 % – ü")

    def Sleep(self, message, context):
        context.add_callback(self.ended.set)
        left = context.time_remaining()
        if left is None or left > 60:
            context.abort(grpc.StatusCode.INTERNAL, "no deadline was received")
        self.ended.wait(30)
        return b"late"

    def Who(self, message, context):
        return self.name.encode()

    def Count(self, message, context):
        for number in range(int(message)):
            yield str(number).encode()

    def Break(self, message, context):
        yield b"one"
        context.abort(grpc.StatusCode.DATA_LOSS, "after one")

    def Sum(self, messages, context):
        return str(sum(len(message) for message in messages)).encode()

    def Echo(self, messages, context):
        yield from messages


def grpc_server(service):
    server = grpc.server(futures.ThreadPoolExecutor(64), options=MESSAGES)
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


class WebSockets:
    """A WebSocket server, and the event loop for clients, on a separate thread."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.port = self.run(self.start())

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, 30), self.loop).result()

    async def start(self):
        async def echo(socket):
            async for message in socket:
                if message == "close":
                    await socket.close(4001, "as requested")
                    return
                await socket.send(message)

        def choose(_, offered):
            return "echo.v1" if "echo.v1" in offered else None

        server = await serve(echo, "127.0.0.1", 0, max_size=None, select_subprotocol=choose)
        return server.sockets[0].getsockname()[1]


class Origins:
    """HTTP/1 origins that record their requests: method, path, and headers as an application sees them."""

    def __init__(self, loop):
        self.requests = {"aiohttp": [], "cheroot": []}
        self.ports = {"aiohttp": loop.run(self.aiohttp()), "cheroot": self.cheroot()}

    async def aiohttp(self):
        async def record(request):
            await request.read()
            self.requests["aiohttp"].append((request.method, request.path, [(name.upper().replace("-", "_"), value) for name, value in request.headers.items()]))
            return web.Response(text="recorded")

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", record)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return site._server.sockets[0].getsockname()[1]

    def cheroot(self):
        def record(environment, start_response):
            environment["wsgi.input"].read()
            headers = [(name.removeprefix("HTTP_"), value) for name, value in environment.items() if name.startswith("HTTP_")]
            self.requests["cheroot"].append((environment["REQUEST_METHOD"], environment["PATH_INFO"], headers))
            start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "8")])
            return [b"recorded"]

        server = cheroot.wsgi.Server(("127.0.0.1", 0), record)
        server.prepare()
        threading.Thread(target=server.serve, daemon=True).start()
        return server.bind_addr[1]

    def drain(self, name):
        """Returns the requests since the last call, without Host and the headers that frame the message."""
        recorded, self.requests[name][:] = list(self.requests[name]), []
        excluded = ("HOST", "CONTENT_LENGTH", "TRANSFER_ENCODING")
        requests = []
        for method, path, headers in recorded:
            rest = [(name, value) for name, value in headers if name not in excluded]
            equal(sorted(dict(rest).items()), sorted(rest))
            requests.append((method, path, dict(rest)))
        return requests


# -------------------------------------------------------------- Pointsman


def manifests(certificate, ports):
    import base64

    encoded = {name: base64.b64encode(text).decode() for name, text in certificate.items()}
    text = f"""
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: pointsman}}
spec: {{controllerName: pointsman.io/controller}}
---
apiVersion: v1
kind: Secret
metadata: {{name: certificate, namespace: default}}
type: kubernetes.io/tls
data: {{tls.crt: {encoded["crt"]}, tls.key: {encoded["key"]}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge, namespace: default}}
spec:
  gatewayClassName: pointsman
  listeners:
  - {{name: http, port: 8080, protocol: HTTP}}
  - {{name: https, port: 8443, protocol: HTTPS, tls: {{certificateRefs: [{{name: certificate}}]}}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {{name: calls, namespace: default}}
spec:
  parentRefs: [{{name: edge}}]
  hostnames: [calls.test]
  rules:
  - matches: [{{method: {{service: demo.Second}}}}, {{method: {{service: demo.First, method: Who}}, headers: [{{name: x-second, value: "yes"}}]}}]
    backendRefs: [{{name: second, port: 80}}]
  - matches: [{{method: {{service: demo.First}}}}]
    backendRefs: [{{name: first, port: 80}}]
  - matches: [{{method: {{service: demo.Nobody}}}}]
    backendRefs: [{{name: nobody, port: 80}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: slow, namespace: default}}
spec:
  parentRefs: [{{name: edge}}]
  hostnames: [slow.test]
  rules: [{{timeouts: {{request: 300ms}}, backendRefs: [{{name: first, port: 80}}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web, namespace: default}}
spec:
  parentRefs: [{{name: edge}}]
  hostnames: [web.test]
  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]
"""
    for origin in ["aiohttp", "cheroot"]:
        text += f"""---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {origin}, namespace: default}}
spec:
  parentRefs: [{{name: edge}}]
  hostnames: [{origin}.test]
  rules:
  - filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: X-User, value: guest}}], remove: [X-Gone]}}}}]
    backendRefs: [{{name: {origin}, port: 80}}]
"""
    for name, (port, protocol) in ports.items():
        text += f"""---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec: {{clusterIP: None, ports: [{{name: main, port: 80, appProtocol: {protocol}}}]}}
"""
        if port:
            text += f"""---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: default, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: main, port: {port}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
"""
    return text


def start(folder, text):
    (folder / "manifests.yaml").write_text(text)
    command = [os.environ["POINTSMAN"], "run", "-f", str(folder / "manifests.yaml"), "--address", ADDRESS, "--admin", ADMIN, "--proxy-protocol", f"{BALANCER}/32"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    for _ in range(500):
        try:
            if urllib.request.urlopen(f"http://{ADMIN}/readyz").status == 200:
                return process
        except OSError:
            time.sleep(0.02)
    raise SystemExit("pointsman is not ready")


# ------------------------------------------------------------------ tests

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def equal(actual, expected):
    assert actual == expected, f"expected {expected!r}, got {actual!r}"


def fails(call, code, details=None):
    try:
        call()
    except grpc.RpcError as error:
        equal(error.code(), code)
        if details is not None:
            equal(error.details(), details)
        return error
    raise AssertionError(f"expected {code}, got a response")


class Fixtures:
    """Servers, channels and certificates shared by the tests."""

    def __init__(self, authority):
        root = authority.cert_pem.bytes()
        names = lambda name: MESSAGES + [("grpc.default_authority", name)]
        self.plain = grpc.insecure_channel(HTTP, names("calls.test"))
        self.slow = grpc.insecure_channel(HTTP, names("slow.test"))
        secure = grpc.ssl_channel_credentials(root)
        self.secure = grpc.secure_channel(HTTPS, secure, MESSAGES + [("grpc.ssl_target_name_override", "calls.test")])
        self.tls = ssl.create_default_context(cadata=root.decode())
        self.first, self.second = Service("first"), Service("second")

    def channels(self):
        return [self.plain, self.secure]


@test
def unary_calls_carry_metadata_in_both_directions(fixtures):
    for channel in fixtures.channels():
        say = channel.unary_unary("/demo.First/Say")
        answer, call = say.with_call(b"hello", metadata=(("x-asked", "this"), ("x-raw-bin", b"\0\1\xfe")), timeout=10)
        equal(answer, b"hello")
        first, last = dict(call.initial_metadata()), dict(call.trailing_metadata())
        equal((first["x-first"], first["x-raw-bin"]), ("this", b"\0\1\xfe"))
        equal((last["x-last"], last["x-last-bin"]), ("end", b"\0\xff\n"))
        equal(call.code(), grpc.StatusCode.OK)
        equal(say(b"", timeout=10), b"")


@test
def an_error_keeps_its_status_message_and_trailers(fixtures):
    for channel in fixtures.channels():
        call = channel.unary_unary("/demo.First/Fail")
        error = fails(lambda: call(b"", timeout=10), grpc.StatusCode.FAILED_PRECONDITION, "not now: 100 % – ü")
        equal(dict(error.trailing_metadata())["x-why"], "because")
    broken = fixtures.plain.unary_stream("/demo.First/Break")(b"", timeout=10)
    equal(next(broken), b"one")
    fails(lambda: next(broken), grpc.StatusCode.DATA_LOSS, "after one")


@test
def server_streaming_calls(fixtures):
    for channel in fixtures.channels():
        count = channel.unary_stream("/demo.First/Count")
        equal([int(one) for one in count(b"2000", timeout=30)], list(range(2000)))
        equal(list(count(b"0", timeout=10)), [])


@test
def client_streaming_calls(fixtures):
    for channel in fixtures.channels():
        sums = channel.stream_unary("/demo.First/Sum")
        equal(sums((b"x" * (number % 7) for number in range(2000)), timeout=30), str(sum(n % 7 for n in range(2000))).encode())
        equal(sums(iter(()), timeout=10), b"0")


@test
def messages_of_bidirectional_streams_are_not_delayed(fixtures):
    for channel in fixtures.channels():
        turn, sent = threading.Semaphore(1), []

        def ask():
            for number in range(100):
                # Sends a message only after the response to the previous one, so that a delayed message blocks the stream.
                turn.acquire()
                sent.append(number)
                yield str(number).encode()

        for number, answer in enumerate(channel.stream_stream("/demo.First/Echo")(ask(), timeout=30)):
            equal(answer, str(number).encode())
            equal(len(sent), number + 1)
            turn.release()
        equal(len(sent), 100)


@test
def large_messages(fixtures):
    large = os.urandom(LARGE)
    for channel in fixtures.channels():
        equal(channel.unary_unary("/demo.First/Say")(large, timeout=60), large)
        echo = channel.stream_stream("/demo.First/Echo")
        equal([len(one) for one in echo(iter([large, large]), timeout=60)], [LARGE, LARGE])


@test
def compressed_messages(fixtures):
    text = b"again and again " * 10000
    equal(fixtures.plain.unary_unary("/demo.First/Say")(text, compression=grpc.Compression.Gzip, timeout=10), text)


@test
def a_deadline_is_propagated_and_ends_the_call(fixtures):
    fixtures.first.ended.clear()
    call = fixtures.plain.unary_unary("/demo.First/Sleep")
    fails(lambda: call(b"", timeout=0.3), grpc.StatusCode.DEADLINE_EXCEEDED)
    assert fixtures.first.ended.wait(10), "the call did not end at the server"


@test
def cancellation_is_propagated_to_the_server(fixtures):
    fixtures.first.ended.clear()
    call = fixtures.plain.unary_unary("/demo.First/Sleep").future(b"", timeout=30)
    time.sleep(0.2)
    call.cancel()
    assert fixtures.first.ended.wait(10), "the call did not end at the server"


@test
def the_timeout_of_a_rule_is_reported_as_deadline_exceeded(fixtures):
    fixtures.first.ended.clear()
    call = fixtures.slow.unary_unary("/demo.First/Sleep")
    fails(lambda: call(b"", timeout=20), grpc.StatusCode.DEADLINE_EXCEEDED)


@test
def methods_and_headers_select_the_backend(fixtures):
    for channel in fixtures.channels():
        equal(channel.unary_unary("/demo.First/Who")(b"", timeout=10), b"first")
        equal(channel.unary_unary("/demo.Second/Who")(b"", timeout=10), b"second")
        equal(channel.unary_unary("/demo.First/Who")(b"", metadata=(("x-second", "yes"),), timeout=10), b"second")


@test
def unmatched_calls_are_unimplemented_and_backends_without_endpoints_unavailable(fixtures):
    for channel in fixtures.channels():
        fails(lambda: channel.unary_unary("/demo.Third/Who")(b"", timeout=10), grpc.StatusCode.UNIMPLEMENTED)
        fails(lambda: channel.unary_unary("/demo.First/Unknown")(b"", timeout=10), grpc.StatusCode.UNIMPLEMENTED)
        fails(lambda: channel.unary_unary("/demo.Nobody/Who")(b"", timeout=10), grpc.StatusCode.UNAVAILABLE)


@test
def many_concurrent_calls_on_one_connection(fixtures):
    for channel in fixtures.channels():
        say = channel.unary_unary("/demo.First/Say")
        calls = [say.future(str(number).encode(), timeout=60) for number in range(1000)]
        equal([int(call.result()) for call in calls], list(range(1000)))


@test
def small_messages_to_a_slow_reader(fixtures):
    count = fixtures.plain.unary_stream("/demo.First/Count")(b"100000", timeout=120)
    first = next(count)
    time.sleep(1)
    equal((int(first), sum(1 for _ in count)), (0, 99999))


def websocket(fixtures, scheme, **more):
    port = {"ws": 8080, "wss": 8443}[scheme]
    tls = {"ssl": fixtures.tls} if scheme == "wss" else {}
    return connect(f"{scheme}://web.test:{port}/talk?x=y", host=ADDRESS, port=port, max_size=None, **tls, **more)


@test
def websockets_carry_text_bytes_and_large_messages(fixtures):
    async def talk(scheme):
        async with websocket(fixtures, scheme) as socket:
            for message in ["hello", "ü" * 70000, b"\0\xff", os.urandom(3 << 20), ""]:
                await socket.send(message)
                equal(await socket.recv(), message)
            await (await socket.ping())

    for scheme in ["ws", "wss"]:
        fixtures.websockets.run(talk(scheme))


@test
def websockets_negotiate_a_subprotocol_and_report_close_reasons(fixtures):
    async def talk():
        async with websocket(fixtures, "ws", subprotocols=["echo.v1"], compression=None) as socket:
            equal(socket.subprotocol, "echo.v1")
            await socket.send("close")
            try:
                await socket.recv()
            except websockets.ConnectionClosed as closed:
                equal((closed.rcvd.code, closed.rcvd.reason), (4001, "as requested"))
            else:
                raise AssertionError("not closed")

    fixtures.websockets.run(talk())


@test
def many_concurrent_websockets(fixtures):
    async def talk(number):
        async with websocket(fixtures, "ws") as socket:
            for _ in range(20):
                await socket.send(str(number))
                equal(await socket.recv(), str(number))

    async def all():
        await asyncio.gather(*(talk(number) for number in range(50)))

    fixtures.websockets.run(all())


def over_http1(host, head, body):
    """Sends a raw HTTP/1 request and reads the response."""
    with socket.create_connection((ADDRESS, 8080), timeout=10) as connection:
        connection.sendall(f"{head}\r\nHost: {host}\r\n".encode() + body)
        response = b""
        while b"recorded" not in response:
            chunk = connection.recv(65536)
            assert chunk, f"incomplete response: {response!r}"
            response += chunk
        equal(response.split(b" ")[1], b"200")


def over_http2(host, path, headers, trailers):
    """Sends an HTTP/2 request with a body and optional trailers, and reads the response."""
    names = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", host)]
    client = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False))
    client.initiate_connection()
    client.send_headers(1, names + headers)
    client.send_data(1, b"body", end_stream=not trailers)
    if trailers:
        client.send_headers(1, trailers, end_stream=True)
    with socket.create_connection((ADDRESS, 8080), timeout=10) as connection:
        connection.sendall(client.data_to_send())
        while True:
            for event in client.receive_data(connection.recv(65536)):
                if isinstance(event, h2.events.ResponseReceived):
                    equal(dict(event.headers)[b":status"], b"200")
                    return


def without_added_headers(requests):
    """Checks and removes the headers that Pointsman adds."""
    for _, _, headers in requests:
        equal((headers.pop("X_FORWARDED_FOR"), headers.pop("X_FORWARDED_PROTO")), (CLIENT_ADDRESS, "http"))
        assert headers.pop("X_FORWARDED_HOST").endswith(".test")
        equal(len(headers.pop("X_REQUEST_ID")), 32)
    return requests


@test
def origins_do_not_read_request_trailers_as_requests_or_headers(fixtures):
    # cheroot, which does not read trailers, would take the first one as a request line; aiohttp would add them to the next request's headers.
    trailers = [("1", "/shut/smuggled HTTP/1.1"), ("X-User", "admin"), ("X-Forwarded-For", "6.6.6.6")]
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers)
    chunked = f"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n{lines}\r\n".encode()
    for origin in fixtures.origins.ports:
        host = f"{origin}.test"
        for number in range(5):
            over_http1(host, f"POST /{number} HTTP/1.1", chunked)
            over_http1(host, f"GET /{number} HTTP/1.1", b"\r\n")
            over_http2(host, f"/{number}", [], [(name.lower(), value) for name, value in trailers])
        expected = [(method, f"/{number}", {"X_USER": "guest"}) for number in range(5) for method in ["POST", "GET", "POST"]]
        equal(without_added_headers(fixtures.origins.drain(origin)), expected)


@test
def names_with_underscores_do_not_replace_headers_that_are_set_or_removed(fixtures):
    names = ["X_User", "x_gone", "X_Forwarded_For", "X_Forwarded-Proto", "x_forwarded_host", "X_Request_Id", "Transfer_Encoding", "Content_Length"]
    for origin in fixtures.origins.ports:
        host = f"{origin}.test"
        lines = "".join(f"{name}: chunked\r\n" for name in names) + "Content-Length: 4\r\n\r\nbody"
        over_http1(host, "POST /1 HTTP/1.1", lines.encode())
        over_http2(host, "/2", [(name.lower(), "chunked") for name in names], [])
        equal(without_added_headers(fixtures.origins.drain(origin)), [("POST", "/1", {"X_USER": "guest"}), ("POST", "/2", {"X_USER": "guest"})])


def curl(fixtures, *arguments, **more):
    command = ["curl", "-sS", "--max-time", "20", "--cacert", str(fixtures.root)]
    for name in ["calls.test:8080", "calls.test:8443", "none.test:8080", "none.test:8443"]:
        command += ["--resolve", f"{name}:{ADDRESS}"]
    command += arguments
    return subprocess.run(command, capture_output=True, check=True, **more).stdout


@test
def curl_supports_all_http_versions(fixtures):
    for options, version in [
        (["--http1.0"], "1.1"),
        (["--http1.1"], "1.1"),
        (["--http2"], "1.1"),
        (["--http2-prior-knowledge"], "2"),
    ]:
        output = curl(fixtures, *options, "-o", "/dev/null", "-w", "%{http_code} %{http_version}", "http://none.test:8080/")
        equal(output.decode(), f"404 {version}")
    for options, version in [(["--http1.1"], "1.1"), (["--http2"], "2")]:
        output = curl(fixtures, *options, "-o", "/dev/null", "-w", "%{http_code} %{http_version}", "https://none.test:8443/")
        equal(output.decode(), f"404 {version}")


@test
def curl_calls_a_grpc_method(fixtures):
    call = ["-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", "@-"]
    for option, url in [("--http2-prior-knowledge", "http://calls.test:8080"), ("--http2", "https://calls.test:8443")]:
        output = curl(fixtures, option, *call, url + "/demo.First/Say", input=b"\0\0\0\0\5hello")
        equal(output, b"\0\0\0\0\5hello")


HAPROXY = f"""
defaults
  mode tcp
  timeout connect 5s
  timeout client 20s
  timeout server 20s
listen version-1
  bind {ADDRESS}:9001
  server edge {HTTP} source {BALANCER} send-proxy
listen version-2
  bind {ADDRESS}:9002
  server edge {HTTP} source {BALANCER} send-proxy-v2 check check-send-proxy inter 100ms
listen tls
  bind {ADDRESS}:9003
  server edge {HTTPS} source {BALANCER} send-proxy-v2 proxy-v2-options unique-id,crc32c
"""

NGINX = f"""
daemon off;
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
error_log stderr error;
pid nginx.pid;
events {{}}
stream {{
  proxy_bind {BALANCER};
  proxy_protocol on;
  server {{ listen {ADDRESS}:9001; proxy_pass {HTTP}; }}
  server {{ listen {ADDRESS}:9003; proxy_pass {HTTPS}; }}
}}
"""


@contextlib.contextmanager
def load_balancer(name, configuration):
    """Runs a load balancer and waits until it listens."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "configuration"
        file.write_text(configuration)
        arguments = {"haproxy": ["-db", "-f", str(file)], "nginx": ["-p", folder, "-c", str(file)]}[name]
        process = subprocess.Popen([shutil.which(name), *arguments], stderr=subprocess.DEVNULL)
        try:
            for _ in range(500):
                with contextlib.suppress(OSError):
                    socket.create_connection((ADDRESS, 9001), timeout=1).close()
                    break
                time.sleep(0.02)
            yield
        finally:
            process.terminate()
            process.wait()


@test
def load_balancers_state_their_clients_addresses(fixtures):
    client, request = "127.0.0.55", b"GET /1 HTTP/1.1\r\nHost: aiohttp.test\r\nConnection: close\r\n\r\n"
    ports = {"haproxy": [9001, 9002, 9003], "nginx": [9001, 9003]}
    for name, configuration in [("haproxy", HAPROXY), ("nginx", NGINX)]:
        if not shutil.which(name):
            print(f"skipped: {name} is not installed")
            continue
        with load_balancer(name, configuration):
            for port in ports[name]:
                connection = socket.create_connection((ADDRESS, port), timeout=10, source_address=(client, 0))
                if port == 9003:
                    connection = fixtures.tls.wrap_socket(connection, server_hostname="web.test")
                with connection:
                    connection.sendall(request)
                    response = b""
                    while chunk := connection.recv(65536):
                        response += chunk
                assert response.startswith(b"HTTP/1.1 200"), f"{name} {port}: {response!r}"
            # Health checks of HAProxy are LOCAL commands.
            time.sleep(0.5)
        addresses = [headers["X_FORWARDED_FOR"] for _, _, headers in fixtures.origins.drain("aiohttp")]
        equal(addresses, [client] * len(ports[name]))
    metrics = urllib.request.urlopen(f"http://{ADMIN}/metrics").read().decode()
    assert 'reason="ProxyProtocol"' not in metrics, metrics
    # Without a header, a load balancer is disconnected.
    with socket.create_connection((ADDRESS, 8080), timeout=10, source_address=(BALANCER, 0)) as connection:
        connection.sendall(request)
        with contextlib.suppress(ConnectionResetError):
            equal(connection.recv(65536), b"")


# ------------------------------------------------------------------- main


def main():
    authority = trustme.CA()
    issued = authority.issue_cert("calls.test", "web.test", "none.test")
    certificate = {
        "crt": b"".join(one.bytes() for one in issued.cert_chain_pems),
        "key": issued.private_key_pem.bytes(),
    }
    fixtures = Fixtures(authority)
    first, first_port = grpc_server(fixtures.first)
    second, second_port = grpc_server(fixtures.second)
    fixtures.websockets = WebSockets()
    fixtures.origins = Origins(fixtures.websockets)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        fixtures.root = folder / "root.pem"
        authority.cert_pem.write_to_path(str(fixtures.root))
        h2c = "kubernetes.io/h2c"
        ports = {"first": (first_port, h2c), "second": (second_port, h2c), "nobody": (None, h2c), "web": (fixtures.websockets.port, "kubernetes.io/ws")}
        ports.update({name: (port, "http") for name, port in fixtures.origins.ports.items()})
        pointsman = start(folder, manifests(certificate, ports))
        try:
            for one in TESTS:
                name = one.__name__.replace("_", " ")
                try:
                    one(fixtures)
                    print(f"ok     {name}", flush=True)
                except Exception:
                    failed.append(name)
                    print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        finally:
            for channel in [fixtures.plain, fixtures.slow, fixtures.secure]:
                channel.close()
            pointsman.terminate()
            pointsman.wait()
    print(f"{len(TESTS) - len(failed)} of {len(TESTS)} tests passed")
    os._exit(1 if failed else 0)


main()
