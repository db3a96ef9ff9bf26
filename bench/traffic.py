"""A probe that shows when a route is in effect, and constant load that records every request.

As a program: `traffic.py ADDRESS RATE new|both` reads lines with a Host header and a path from standard input until an empty line, then sends requests until standard input is closed, and prints a JSON line
for each."""

import asyncio
import itertools
import json
import socket
import subprocess
import sys
import time

TIMEOUT = 5
KEPT_CONNECTIONS = 8


class Probe:
    """Sends requests over one connection, which is opened again when it is closed."""

    def __init__(self, address, port=80):
        self.address, self.stream = (address, port), None

    def status(self, host, path):
        """Returns the status code, or 0 without a response."""
        try:
            if not self.stream:
                self.stream = socket.create_connection(self.address, TIMEOUT)
                self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            head, body = b"", b""
            while b"\r\n\r\n" not in head:
                head += self.receive()
            head, _, body = head.partition(b"\r\n\r\n")
            missing = content_length(head) - len(body)
            while missing > 0:
                missing -= len(self.receive())
            if b"connection: close" in head.lower():
                self.close()
            return int(head.split(b" ", 2)[1])
        except OSError:
            self.close()
            return 0

    def receive(self):
        part = self.stream.recv(65536)
        if not part:
            raise ConnectionResetError("closed by the proxy")
        return part

    def close(self):
        if self.stream:
            self.stream.close()
        self.stream = None


def content_length(head):
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


class Load:
    """Constant load from a process of its own. Requests use new connections, or in turn new and kept ones."""

    def __init__(self, address, rate, targets, connections="both"):
        command = [sys.executable, __file__, address, str(rate), connections]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write("".join(f"{host} {path}\n" for host, path in targets) + "\n")
        self.process.stdin.flush()

    def stop(self):
        """Returns the requests: `begun` and `ended` in the time of time.monotonic(), `status` (0 without a response) and `error`."""
        output, _ = self.process.communicate()
        return [json.loads(line) for line in output.splitlines()]

    def kill(self):
        self.process.kill()
        self.process.wait()


class Generator:
    """Opens connections and sends requests at a rate, without waiting for responses."""

    def __init__(self, address, rate, kept):
        self.address, self.rate, self.kept = address, rate, kept
        self.idle, self.records = [], []

    async def run(self, targets, stopped):
        tasks, begun = set(), time.monotonic()
        for number in itertools.count():
            await asyncio.sleep(begun + number / self.rate - time.monotonic())
            if stopped.is_set():
                break
            kept = self.kept and number % 2 == 0
            task = asyncio.create_task(self.request(targets[number * 7919 % len(targets)], kept))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    async def request(self, target, kept):
        record = {"begun": time.monotonic(), "status": 0, "error": ""}
        try:
            record["status"] = await asyncio.wait_for(self.exchange(target, kept), TIMEOUT)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.TimeoutError, ValueError) as error:
            record["error"] = f"{type(error).__name__}: {error}"
        record["ended"] = time.monotonic()
        self.records.append(record)

    async def exchange(self, target, kept):
        connection = self.idle.pop() if kept and self.idle else await asyncio.open_connection(self.address, 80)
        reader, writer = connection
        returned = False
        try:
            writer.write("GET {1} HTTP/1.1\r\nHost: {0}\r\n{2}\r\n".format(*target, "" if kept else "Connection: close\r\n").encode())
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(content_length(head))
            if kept and len(self.idle) < KEPT_CONNECTIONS and b"connection: close" not in head.lower():
                self.idle.append(connection)
                returned = True
            return int(head.split(b" ", 2)[1])
        finally:
            if not returned:
                writer.close()


async def generate(address, rate, connections, targets):
    generator, stopped = Generator(address, rate, connections == "both"), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, stopped.set)
    await generator.run(targets, stopped)
    for record in generator.records:
        print(json.dumps(record))


def main():
    targets = []
    # Unbuffered, so that the end of standard input is seen by the loop.
    while line := sys.stdin.readline().strip():
        targets.append(line.split())
    asyncio.run(generate(sys.argv[1], float(sys.argv[2]), sys.argv[3], targets))


if __name__ == "__main__":
    main()
