"""What the machine says: processor time, memory, tools."""

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
    """Each tool that is not here, with how to get it."""
    return [f"{tool}: {how}" for tool, how in TOOLS.items() if not shutil.which(tool)]


def pinned(core, command):
    return ["taskset", "-c", core, *map(str, command)]


def tree(pid):
    """A process and all below it."""
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
    """Processor time of a process and all below it. Threads that have ended are counted by /proc/PID/stat only, in steps of 10 ms."""
    total = 0.0
    for one in tree(pid):
        try:
            tasks = [int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{one}/task").iterdir()]
            total += sum(tasks) / 1e9
        except (OSError, IndexError, ValueError):
            continue
    return total


def resident_kib(pid):
    """Resident memory of a process and all below it; what they share is counted once."""
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
    """Processor time of the whole machine."""
    fields = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]))
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def children_seconds():
    """Processor time of all programs that were run and have ended."""
    times = os.times()
    return times.children_user + times.children_system


def load(command, timeout):
    """Runs a load generator on its core and gives what it printed."""
    done = subprocess.run(pinned(LOAD_CORE, command), capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Window:
    """Measures a proxy while something is done to it, and what else ran meanwhile."""

    def __init__(self, proxy, backend):
        self.proxy, self.backend = proxy, backend

    def __enter__(self):
        self.at = time.monotonic()
        self.busy, self.children = busy_seconds(), children_seconds()
        self.own, self.behind = cpu_seconds(self.proxy), cpu_seconds(self.backend)
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.at
        self.cpu = cpu_seconds(self.proxy) - self.own
        ours = self.cpu + cpu_seconds(self.backend) - self.behind + children_seconds() - self.children
        self.others = max(0.0, busy_seconds() - self.busy - ours)

    def disturbed(self):
        """Whether something else took more than a tenth of a core."""
        return self.others > 0.1 * self.seconds
