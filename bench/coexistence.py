"""Coexistence: Pointsman and Traefik serve the same routes, with a class and a Gateway each."""

import time

from installations import ROUTES, Pointsman, Traefik, numbered_route, target
from kubernetes import Watch, wait_until
from scale import has_status
from traffic import Probe

QUIET_SECONDS = 20


def entries(item, controller):
    """A controller's entries in the status of a route."""
    return [one for one in item.get("status", {}).get("parents", []) if one["controllerName"] == controller]


def writer(item):
    """Returns the class of the controller that has written the status last. The list of parents has one owner, because it is replaced as a whole."""
    owners = [one["manager"] for one in item["metadata"].get("managedFields", []) if "f:parents" in one.get("fieldsV1", {}).get("f:status", {})]
    return Pointsman if any(owner.startswith("pointsman") for owner in owners) else Traefik


def interferences(events, before):
    """Returns the number of writes that changed entries of the other controller."""
    found, last = 0, dict(before)
    for _, _, item in events:
        name = item["metadata"]["name"]
        previous, last[name] = last.get(name), item
        other = Traefik if writer(item) is Pointsman else Pointsman
        found += bool(previous) and entries(previous, other.controller) != entries(item, other.controller)
    return found


def run(bench, log):
    api, count = bench.api, bench.options.coexistence_routes
    with Pointsman(api, bench.options) as pointsman, Traefik(api, bench.options) as traefik:
        both = (pointsman, traefik)
        bench.workloads.add_routes(count, [one.gateway_name for one in both])
        def complete():
            items = api.list("HTTPRoute", ROUTES)
            return len(items) == count and all(has_status(item, one.controller) for item in items for one in both)
        wait_until("both have written the status of all routes", complete, bench.options.patience, 1)
        pointsman.settle()
        watch = Watch(api, "HTTPRoute", ROUTES)
        gateways = Watch(api, "Gateway", ROUTES)
        time.sleep(QUIET_SECONDS)
        row = {"routes": count, "idle_writes": len(watch.events), "idle_gateway_writes": len(gateways.events)}
        gateways.close()
        log(f"coexistence: {row}")
        before, edits = dict(watch.items), min(10, count)
        for number in range(edits):
            rules = numbered_route(number, [], 50)["spec"]["rules"]
            api.patch("HTTPRoute", ROUTES, f"route-{number:05}", {"spec": {"rules": rules}})
            time.sleep(1)
        wait_until("both have written the status of the edited routes", complete, bench.options.patience, 1)
        pointsman.settle()
        row |= {"edits": edits, "writes": len(watch.events) - row["idle_writes"] - edits, "interferences": interferences(watch.events, before)}
        row["serve"] = all(Probe(one.address).status(*target(number)) == 200 for one in both for number in range(count))
        watch.close()
        log(f"coexistence: {row}")
        bench.workloads.remove_routes()
    return row
