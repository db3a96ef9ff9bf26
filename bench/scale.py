"""Scale: routes applied at once, one more route, and changes under load, on a cluster."""

import statistics
import time

from installations import INSTALLATIONS, ROUTES, GROUPS, host_of, numbered_route, route, target
from kubernetes import Watch, path_of
from traffic import Load, Probe

INTERVAL = 0.001
PROBES_TIMEOUT = 60


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def run(bench, name, log):
    """Measures one installation at growing numbers of routes. Returns a row per number."""
    rows, options = {}, bench.options
    with INSTALLATIONS[name](bench.api, options) as installation:
        for count in options.routes:
            row = rows[str(count)] = {}
            if count:
                row |= apply_routes(bench, installation, count)
                log(f"{name}: {count} routes applied: {row}")
            row |= probe_routes(bench, installation, count)
            log(f"{name}: {count} routes, one more: {row}")
            row["memory"] = {role: process.memory() for role, process in installation.processes().items()}
            if count:
                row["churn"] = churn(bench, installation, count)
                log(f"{name}: {count} routes under churn: {row['churn']}")
        bench.workloads.remove_routes()
    return rows


def attached(items, gateway):
    listeners = items.get(gateway, {}).get("status", {}).get("listeners") or [{}]
    return listeners[0].get("attachedRoutes", 0)


def has_status(item, controller):
    """Returns whether a controller has accepted the current generation of a route."""
    parents = [one for one in item.get("status", {}).get("parents", []) if one["controllerName"] == controller]
    conditions = [one for parent in parents for one in parent["conditions"] if one["type"] == "Accepted"]
    return any(one["status"] == "True" and one.get("observedGeneration") == item["metadata"]["generation"] for one in conditions)


def apply_routes(bench, installation, count):
    """Creates routes, and waits until the Gateway counts them and all have a status."""
    api, patience, added = bench.api, bench.options.patience, count - bench.workloads.count
    writes, gateway_writes = api.status_writes(), api.status_requests("gateways").get("200", 0)
    watch, begun = Watch(api, "Gateway", ROUTES), time.monotonic()
    bench.workloads.add_routes(count, [installation.gateway_name])
    row = {"added": added, "applied_seconds": time.monotonic() - begun}
    try:
        name = installation.gateway_name
        row["attached_seconds"] = watch.wait(f"{count} attached routes", lambda items: attached(items, name) == count, patience) - begun
    except TimeoutError:
        row["attached_seconds"], row["attached"] = None, attached(watch.items, name)
    watch.close()
    def missing():
        return sum(not has_status(item, installation.controller) for item in api.list("HTTPRoute", ROUTES))
    while (left := missing()) and time.monotonic() - begun < patience:
        time.sleep(0.5)
    row["status_seconds"], row["without_status"] = time.monotonic() - begun, left
    installation.settle(patience)
    row["writes_per_route"] = (api.status_writes() - writes) / added
    row["gateway_writes"] = api.status_requests("gateways").get("200", 0) - gateway_writes
    return row


def probe_routes(bench, installation, count):
    """Times from sending one more route to the API server until the first request that it answers, with a request every millisecond."""
    api, probe, effects, answers = bench.api, Probe(installation.address), [], []
    for number in range(bench.options.repetitions + 2):
        path = f"/probe-{number:03}"
        item = route(f"probe-{number:03}", [installation.gateway_name], host_of(number), path, [(number, 1)])
        if probe.status(host_of(number), path) not in (0, 404):
            raise RuntimeError(f"{path} is answered before its route exists")
        api.get("Namespace", None, ROUTES)  # The connection is open.
        begun = due = time.perf_counter()
        api.send("POST", path_of("HTTPRoute", ROUTES), item)
        answered = None
        while probe.status(host_of(number), path) != 200:
            if answered is None and api.has_response():
                answered = time.perf_counter()
            if time.perf_counter() - begun > PROBES_TIMEOUT:
                raise RuntimeError(f"{installation.name}: {path} is not in effect after {PROBES_TIMEOUT} s")
            due = max(due + INTERVAL, time.perf_counter())
            time.sleep(max(0, due - time.perf_counter()))
        effects.append((time.perf_counter() - begun) * 1000)
        api.receive()
        answers.append(((answered or time.perf_counter()) - begun) * 1000)
        time.sleep(bench.options.pause)
    # The first ones are for warming up.
    effects, answers = effects[2:], answers[2:]
    for number in range(bench.options.repetitions + 2):
        api.delete("HTTPRoute", ROUTES, f"probe-{number:03}")
    installation.settle()
    return {"probe_p50": statistics.median(effects), "probe_p99": percentile(effects, 0.99), "probe_max": max(effects), "answer_p50": statistics.median(answers)}


class Churn:
    """Edits one route per second and replaces one Pod every two, in turn among the groups of Pods."""

    def __init__(self, bench, installation, count):
        self.bench, self.installation, self.count = bench, installation, count
        self.edits = self.replaced = 0

    def run(self, seconds):
        begun = time.monotonic()
        for second in range(seconds):
            time.sleep(max(0, begun + second - time.monotonic()))
            self.edit(second)
            if second % 2 == 0:
                self.replace(second // 2)
        time.sleep(max(0, begun + seconds - time.monotonic()))

    def edit(self, second):
        number = second * 37 % self.count
        # Another weight than before, and than with another number of routes: an edit without a change would write nothing.
        weight = 1 + (second + self.count // 100) % 80
        rules = numbered_route(number, [], weight)["spec"]["rules"]
        self.bench.api.patch("HTTPRoute", ROUTES, f"route-{number:05}", {"spec": {"rules": rules}})
        self.edits += 1

    def replace(self, turn):
        pods = self.bench.api.ready_pods(ROUTES, f"app=echo,group={turn % GROUPS}")
        # A group without another ready Pod would lose its requests with any proxy.
        if len(pods) > 1:
            oldest = min(pods, key=lambda pod: pod["status"]["startTime"])
            self.bench.api.delete("Pod", ROUTES, oldest["metadata"]["name"])
            self.replaced += 1


def churn(bench, installation, count):
    """CPU time, memory, lost requests and status writes while routes and Pods change."""
    installation.settle()
    processes, seconds = installation.processes(), bench.options.seconds
    load = Load(installation.address, bench.options.rate, [target(number) for number in range(0, count, max(1, count // 500))])
    try:
        time.sleep(3)
        changes, writes = Churn(bench, installation, count), bench.api.status_requests()
        cpu = {role: process.cpu() for role, process in processes.items()}
        begun = time.monotonic()
        changes.run(seconds)
        elapsed = time.monotonic() - begun
        row = {"cpu": {role: (process.cpu() - cpu[role]) / elapsed * 100 for role, process in processes.items()},
               "memory": {role: process.memory() for role, process in processes.items()}}
        installation.settle(60)
        after = bench.api.status_requests()
        requests = load.stop()
    except BaseException:
        load.kill()
        raise
    lost = [one for one in requests if one["status"] != 200]
    return row | {"edits": changes.edits, "replaced": changes.replaced, "status_writes": after.get("200", 0) - writes.get("200", 0),
                  "status_conflicts": after.get("409", 0) - writes.get("409", 0), "requests": len(requests), "lost": len(lost),
                  "errors": sorted({str(one["status"] or one["error"]) for one in lost})}
