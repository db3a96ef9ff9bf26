"""Measures processor time and memory, and finds the required tools."""

import os
import shutil
import subprocess
import time
from pathlib import Path

PROXY_CORE, LOAD_CORE = "0", "1"

TOOLS = {
    "wrk": "apt install wrk",
    "h2load": "apt install nghttp2-client",
    "openssl": "apt install openssl",
    "taskset": "apt install util-linux",
}


def missing_tools():
    """Returns the tools that are not installed, with the command that installs each."""
    return [f"{tool}: {how}" for tool, how in TOOLS.items() if not shutil.which(tool)]


def pinned(core, command):
    return ["taskset", "-c", core, *map(str, command)]


def tree(pid):
    """Returns the ids of a process and all of its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += parents.get(one, [])
    return found


def cpu_seconds(pid):
    """Returns the processor time of the running threads of a process and all of its descendants. Only /proc/PID/stat, with a resolution of 10 ms, would include
    threads that have ended."""
    total = 0.0
    for one in tree(pid):
        try:
            tasks = [int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{one}/task").iterdir()]
            total += sum(tasks) / 1e9
        except (OSError, IndexError, ValueError):
            continue
    return total


def resident_kib(pid):
    """Returns the resident memory of a process and all of its descendants. Shared pages are counted once."""
    total = 0
    for one in tree(pid):
        try:
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except OSError:
            continue
    return total


def busy_seconds():
    """Returns the processor time used on the whole machine since boot."""
    fields = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]))
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def children_seconds():
    """Returns the processor time of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def load(command, timeout):
    """Runs a load generator on its core and returns its output."""
    done = subprocess.run(pinned(LOAD_CORE, command), capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Window:
    """Measures the processor time of a proxy in the body of a `with` statement, and that of unrelated processes."""

    def __init__(self, proxy, backend):
        self.proxy, self.backend = proxy, backend

    def __enter__(self):
        self.at = time.monotonic()
        self.busy, self.children = busy_seconds(), children_seconds()
        self.proxy_cpu, self.backend_cpu = cpu_seconds(self.proxy), cpu_seconds(self.backend)
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.at
        self.cpu = cpu_seconds(self.proxy) - self.proxy_cpu
        ours = self.cpu + cpu_seconds(self.backend) - self.backend_cpu + children_seconds() - self.children
        self.others = max(0.0, busy_seconds() - self.busy - ours)

    def disturbed(self):
        """Returns whether unrelated processes used more than a tenth of a core."""
        return self.others > 0.1 * self.seconds
