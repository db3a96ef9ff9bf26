"""The tables and the page of `bench/cluster`."""

import textwrap

ROUTES = ("0", "1000", "5000")
MIB_CONTROLLER, MIB_PROXY, PROBE_MS = 120, 60, 10


def is_complete(results):
    """Returns whether results are those of a run without options."""
    scale = results.get("scale", {})
    return set(results) == {"scale", "chaos", "coexistence"} and set(scale) == {"Pointsman", "Traefik"} and all(set(rows) == set(ROUTES) for rows in scale.values())


def table(head, lines):
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def tables(results):
    """Returns all tables as Markdown."""
    parts = []
    scale = {name: dict(sorted(rows.items(), key=lambda row: int(row[0]))) for name, rows in sorted(results.get("scale", {}).items())}
    if scale:
        if "Pointsman" in scale:
            parts += ["## Targets", table(["", "measured", "target", "met"], [[*row[:3], "yes" if row[3] else "no"] for row in targets(scale["Pointsman"])])]
        parts += ["## Scale", table(["", *scale, *(["ratio"] if len(scale) > 1 else [])], list(scale_rows(scale)))]
    if chaos := results.get("chaos"):
        parts += ["## Chaos", table(["", "change in effect", "status correct", "status writes", "requests", "in flight", "failed before endpoint removal", "lost"], list(chaos_rows(chaos)))]
    if row := results.get("coexistence"):
        parts += ["## Coexistence", table(["", "measured", "target", "met"], list(coexistence_rows(row)))]
    return "\n\n".join(parts)


def number(count):
    return f"{int(count):,} routes"


def targets(rows):
    """Targets of Pointsman: what, measured, target, and whether it is met."""
    probes = {count: row["probe_p50"] for count, row in rows.items()}
    for count, row in rows.items():
        yield (f"one more route, {number(count)}", f"p50 {row['probe_p50']:.1f} ms, p99 {row['probe_p99']:.1f} ms; API server response {row['answer_p50']:.1f} ms", f"p50 < {PROBE_MS} ms", row["probe_p50"] < PROBE_MS)
    first, last = list(probes)[0], list(probes)[-1]
    yield f"ratio of p50 at {number(last)} and at {first}", f"{probes[last] / probes[first]:.2f}", "flat: < 1.5", probes[last] < 1.5 * probes[first]
    for count, row in rows.items():
        if churn := row.get("churn"):
            memory = churn["memory"]
            proxy = max(value for role, value in memory.items() if role.startswith("proxy"))
            yield f"controller, {number(count)}, under churn", f"{memory['controller']:.0f} MiB", f"< {MIB_CONTROLLER} MiB", memory["controller"] < MIB_CONTROLLER
            yield f"proxy, {number(count)}, under churn", f"{proxy:.0f} MiB", f"< {MIB_PROXY} MiB", proxy < MIB_PROXY
            yield f"status writes per new route, {number(count)}", f"{row['writes_per_route']:.3f}", "1", abs(row["writes_per_route"] - 1) <= 0.01
            writes = churn["status_writes"] / churn["edits"]
            yield f"status writes per edited route, {number(count)}", f"{writes:.2f}", "1", abs(writes - 1) <= 0.01
            yield f"requests lost under churn, {number(count)}", f"{churn['lost']} of {churn['requests']:,}", "0", churn["lost"] == 0


def scale_rows(scale):
    counts = [count for count in next(iter(scale.values()))]
    for count in counts:
        found = {name: rows.get(count, {}) for name, rows in scale.items()}
        def line(what, get, show, note=lambda row: ""):
            values = [get(row) if row else None for row in found.values()]
            cells = [(show(value) if isinstance(value, (int, float)) else str(value or "–")) + (note(row) if row else "") for value, row in zip(values, found.values())]
            if len(values) > 1:
                numeric = all(isinstance(value, (int, float)) for value in values) and values[0]
                cells.append(f"{values[1] / values[0]:,.1f}" if numeric else "–")
            return [f"{what}, {number(count)}", *cells]
        yield line("one more route to its first response, p50", lambda row: row["probe_p50"], lambda value: f"{value:,.1f} ms")
        yield line("one more route to its first response, p99", lambda row: row["probe_p99"], lambda value: f"{value:,.1f} ms")
        yield line("– of this, until the API server has responded, p50", lambda row: row["answer_p50"], lambda value: f"{value:,.1f} ms")
        if count == "0":
            continue
        yield line("routes applied one by one", lambda row: row["applied_seconds"], lambda value: f"{value:,.1f} s", added)
        yield line("until attachedRoutes is correct", attached, lambda value: f"{value:,.1f} s", added)
        yield line("until every route has its status", with_status, lambda value: f"{value:,.1f} s", added)
        yield line("status writes per new route", lambda row: row["writes_per_route"], lambda value: f"{value:.3f}")
        yield line("writes of the Gateway's status meanwhile", lambda row: row["gateway_writes"], lambda value: f"{value:,}")
        yield line("status writes per edited route", lambda row: row["churn"]["status_writes"] / row["churn"]["edits"], lambda value: f"{value:.2f}")
        yield line("memory, controller", lambda row: memory(row, "controller"), lambda value: f"{value:,.0f} MiB")
        yield line("memory, proxy", lambda row: memory(row, "proxy 1"), lambda value: f"{value:,.0f} MiB")
        yield line("memory, controller and proxy", lambda row: total(row["churn"]["memory"]), lambda value: f"{value:,.0f} MiB")
        yield line("CPU under churn, controller", lambda row: row["churn"]["cpu"].get("controller"), lambda value: f"{value:.1f} %")
        yield line("CPU under churn, proxy", lambda row: row["churn"]["cpu"].get("proxy 1"), lambda value: f"{value:.1f} %")
        yield line("CPU under churn, controller and proxy", lambda row: total(row["churn"]["cpu"]), lambda value: f"{value:.1f} %")
        yield line("requests lost under churn", lambda row: f"{row['churn']['lost']} of {row['churn']['requests']:,}", str)


def added(row):
    return f" for {row['added']:,} new"


def attached(row):
    return row["attached_seconds"] or f"{row['attached']:,} after {row['status_seconds']:.0f} s"


def with_status(row):
    return f"{row['without_status']:,} missing after {row['status_seconds']:.0f} s" if row["without_status"] else row["status_seconds"]


def memory(row, role):
    return row["churn"]["memory"].get(role)


def total(values):
    """Of a controller and one proxy, or of the single process that is both."""
    return values["process"] if "process" in values else values["controller"] + values["proxy 1"]


def chaos_rows(rows):
    for what, row in rows.items():
        yield [what, f"{row['traffic']:.2f} s", f"{row['status']:.2f} s", str(row["writes"]), f"{row['requests']:,}", str(row["in_flight"]), str(row["unknowing"]), str(row["lost"])]


def coexistence_rows(row):
    def line(what, value, target, met):
        return [what, str(value), target, "yes" if met else "no"]
    yield line(f"writes to {row['routes']} routes in 20 s without a change", row["idle_writes"], "0", row["idle_writes"] == 0)
    yield line("writes to both Gateways in 20 s without a change", row["idle_gateway_writes"], "0", row["idle_gateway_writes"] == 0)
    yield line(f"writes after {row['edits']} edited routes, by both", row["writes"], f"{2 * row['edits']}", row["writes"] <= 2 * row["edits"])
    yield line("writes that changed entries of the other controller", row["interferences"], "0", row["interferences"] == 0)
    yield line("both serve all routes", "yes" if row["serve"] else "no", "yes", row["serve"])


PAGE = """# Scale on Kubernetes

Generated by `bench/cluster`: Pointsman as `pointsman install` installs it (two replicas of the controller) with one
Gateway (two proxies), and Traefik with its defaults (one process, which is controller and proxy). Except for
coexistence, each is measured while the other is not installed. Routes are spread over 50 hostnames, and each splits its
traffic between two of a hundred Services, which have twenty Pods.

{machine}

{tables}

## Methods

- One more route: the time from sending the request to the API server to the first response with status 200, with a
  request every millisecond on one connection through the Gateway's address. No other route matches these requests. The
  time includes the API server's own, which the table shows too; a route may be in effect before the API server has
  responded. 20 routes, with pauses of at least 1.5 s.
- Applied routes: created by eight connections in parallel. Status writes are counted by the API server
  (`apiserver_request_total`). Pointsman writes at most 200 statuses per second.
- The condition `pointsman.io/InEffect` costs no write of its own: a change that all proxies acknowledge within a second
  is written once, with the other conditions of the route.
- Churn: for a minute, one route is edited per second and one Pod is deleted every two seconds, under 200 requests per
  second, half of them on new connections. CPU is in percent of a core. Memory is resident memory at the end of it.
- Ratio: Traefik's value divided by Pointsman's.
- Chaos: 500 routes, 200 requests per second, all on new connections. After each event, a route is edited so that its
  backend is missing, or exists again. "Change in effect" and "status correct" are the times until responses and its
  status show it; for an unreachable API server, from when it is reachable again. A failed request is lost, unless a
  proxy was killed and the request either had begun before (in flight), or failed without a response and began before
  the removal of the endpoint: until the Pod is no longer a ready endpoint of the Gateway's Service, and one second more
  for kube-proxy.
- Coexistence: each route has two parents, a Gateway of Pointsman and one of Traefik. The writer of a status is known
  from `managedFields`.
"""


def page(machine, note, text):
    """Returns the page. `machine` describes the machine, and `note` is a sentence about the run, or empty."""
    paragraph = f"{machine}. The API server, etcd, the kubelet, all Pods and the load share this machine. {note}".strip()
    return PAGE.format(machine=textwrap.fill(paragraph, 120, break_on_hyphens=False), tables=text)
