"""Chaos on a cluster: the API server is cut off, and controllers and proxies are killed in turn, under constant load.

Each event is followed by an edit of the route `canary`, whose backend then exists or does not: it shows how soon a change reaches the proxies and the status. All requests of the load use new connections. A failed
request counts as lost, unless a proxy was killed and the request
- had begun before, so it may have been on the killed process ("in flight"), or
- began before kube-proxy could know: until the Pod is not among the ready endpoints of the Gateway's Service, and one second for kube-proxy's own interval. It also has to fail without a response."""

import subprocess
import threading
import time

from installations import ROUTES, Pointsman, route, target
from kubernetes import Container, Watch, wait_until
from traffic import Load, Probe

KUBE_PROXY_SECONDS = 1
CUT_SECONDS = 20
STARTUP_SECONDS = 20
TABLE = "bench_cut"
HOST, PATH = "canary.example", "/canary"


def cut(pid, address, verdict):
    """Makes an address unreachable for a process's network namespace, in both directions."""
    rules = f"""table inet {TABLE} {{
        chain output {{ type filter hook output priority 0; ip daddr {address} {verdict}; }}
        chain input {{ type filter hook input priority 0; ip saddr {address} drop; }}
    }}"""
    subprocess.run(["nsenter", "--target", str(pid), "--net", "nft", "-f", "-"], input=rules, text=True, check=True)


def heal(pid):
    subprocess.run(["nsenter", "--target", str(pid), "--net", "nft", "delete", "table", "inet", TABLE], check=True)


class Canary:
    """A route whose backend exists or does not."""

    def __init__(self, api, installation):
        self.api, self.installation, self.works = api, installation, True
        self.api.create(self.manifest())
        self.wait()

    def manifest(self):
        item = route("canary", [self.installation.gateway_name], HOST, PATH, [(0, 1)])
        if not self.works:
            item["spec"]["rules"][0]["backendRefs"][0]["name"] = "missing"
        return item

    def flip(self):
        """Makes it work, or stop to work. Returns the time."""
        self.works = not self.works
        at = time.monotonic()
        self.api.patch("HTTPRoute", ROUTES, "canary", {"spec": {"rules": self.manifest()["spec"]["rules"]}})
        return at

    def has_status(self):
        item = self.api.get("HTTPRoute", ROUTES, "canary")
        conditions = [one for parent in item.get("status", {}).get("parents", []) for one in parent["conditions"] if one["type"] == "ResolvedRefs"]
        expected, generation = "True" if self.works else "False", item["metadata"]["generation"]
        return any(one["status"] == expected and one["observedGeneration"] == generation for one in conditions)

    def is_served(self):
        probe = Probe(self.installation.address)
        status = probe.status(HOST, PATH)
        probe.close()
        return status == (200 if self.works else 500)

    def wait(self, since=None):
        """Waits until traffic and status are correct; returns the seconds of both since a time."""
        times = {}
        def look(key, holds):
            wait_until(f"{key} of the route canary", holds, 120, 0.02)
            times[key] = time.monotonic() - (since or 0)
        threads = [threading.Thread(target=look, args=one) for one in (("traffic", self.is_served), ("status", self.has_status))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {key: times.get(key) for key in ("traffic", "status")}


class Chaos:
    def __init__(self, bench, installation):
        self.api, self.installation = bench.api, installation
        self.canary = Canary(bench.api, installation)
        self.slices = Watch(bench.api, "EndpointSlice", ROUTES, f"kubernetes.io/service-name={installation.gateway_name}-{installation.class_name}")
        self.kubernetes = bench.api.get("Service", "default", "kubernetes")["spec"]["clusterIP"]

    def cut_api_server(self, verdict):
        """Both replicas of the controller lose the API server; a route is edited meanwhile."""
        pids = [Container(pod).pid for pod in self.installation.controller_pods()]
        begun = time.monotonic()
        for pid in pids:
            cut(pid, self.kubernetes, verdict)
        time.sleep(CUT_SECONDS / 2)
        self.canary.flip()
        time.sleep(CUT_SECONDS / 2)
        for pid in pids:
            heal(pid)
        return {"begun": begun} | self.canary.wait(time.monotonic())

    def kill_controller(self, number, forced):
        """Kills the leader (0) or the other replica (1)."""
        pod = self.installation.controller_pods()[number]
        begun = time.monotonic()
        self.kill(pod, forced)
        row = {"begun": begun} | self.canary.wait(self.canary.flip())
        self.api.wait_ready(self.installation.namespace, self.installation.controllers, 2)
        return row

    def kill_proxy(self, forced):
        pod = self.api.wait_ready(ROUTES, self.installation.proxies, 2)[0]
        begun = time.monotonic()
        self.kill(pod, forced)
        row = {"begun": begun, "killed": pod["status"]["podIP"]} | self.canary.wait(self.canary.flip())
        wait_until("the killed proxy is not ready", lambda: self.unready_since(row) is not None, 30)
        self.api.wait_ready(ROUTES, self.installation.proxies, 2)
        return row

    def kill(self, pod, forced):
        if forced:
            self.api.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0)
        else:
            Container(pod).kill()

    def unready_since(self, row):
        """Time at which the killed proxy was no longer a ready endpoint."""
        for at, _, item in list(self.slices.events):
            ready = {address for one in item.get("endpoints") or [] if one["conditions"].get("ready") for address in one["addresses"]}
            if at >= row["begun"] and row["killed"] not in ready:
                return at
        return None

    def count(self, row, requests):
        """Counts the requests of an event."""
        requests = [one for one in requests if row["begun"] <= one["ended"] and one["begun"] < row["end"]]
        failed = [one for one in requests if one["status"] != 200]
        row |= {"requests": len(requests), "in_flight": 0, "unknowing": 0, "lost": 0}
        if "killed" in row:
            knows = self.unready_since(row) + KUBE_PROXY_SECONDS
            row["known_seconds"] = knows - row["begun"]
        for one in failed:
            if "killed" not in row or one["status"] or one["begun"] >= knows:
                row["lost"] += 1
            else:
                row["in_flight" if one["begun"] < row["begun"] else "unknowing"] += 1
        row["errors"] = sorted({str(one["status"] or one["error"]) for one in failed})


EVENTS = {
    "API server unreachable for 20 s (packets dropped)": lambda chaos: chaos.cut_api_server("drop"),
    "API server unreachable for 20 s (connections reset)": lambda chaos: chaos.cut_api_server("meta l4proto tcp reject with tcp reset"),
    "controller leader, kill -9": lambda chaos: chaos.kill_controller(0, False),
    "controller leader, Pod deleted by force": lambda chaos: chaos.kill_controller(0, True),
    "controller follower, kill -9": lambda chaos: chaos.kill_controller(1, False),
    "controller follower, Pod deleted by force": lambda chaos: chaos.kill_controller(1, True),
    "one of two proxies, kill -9": lambda chaos: chaos.kill_proxy(False),
    "one of two proxies, Pod deleted by force": lambda chaos: chaos.kill_proxy(True),
}


def run(bench, log):
    rows, count = {}, bench.options.chaos_routes
    with Pointsman(bench.api, bench.options) as installation:
        bench.workloads.add_routes(count, [installation.gateway_name])
        chaos = Chaos(bench, installation)
        # Until then, a controller that has just started expects proxies to connect, and writes the statuses of all routes when none has.
        time.sleep(STARTUP_SECONDS)
        installation.settle()
        load = Load(installation.address, bench.options.rate, [target(number) for number in range(count)], "new")
        try:
            time.sleep(2)
            for name, event in EVENTS.items():
                writes = bench.api.status_writes()
                rows[name] = event(chaos)
                time.sleep(5)
                rows[name] |= {"end": time.monotonic(), "writes": bench.api.status_writes() - writes}
                log(f"{name}: {rows[name]}")
                time.sleep(5)
            requests = load.stop()
        except BaseException:
            load.kill()
            raise
        for name, row in rows.items():
            chaos.count(row, requests)
            log(f"{name}: {row}")
        chaos.slices.close()
        bench.workloads.remove_routes()
    return rows
