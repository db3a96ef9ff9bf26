"""The controllers to compare on a cluster, and what they share: Services, Pods and routes in one namespace. Everything is removed afterwards."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from kubernetes import GATEWAY_API, Container, wait_until
from traffic import Probe

ROUTES = "bench-routes"
HOSTS, SERVICES, GROUPS, REPLICAS = 50, 100, 10, 2
BACKEND_PORT = 3000


def host_of(number):
    return f"host-{number % HOSTS:02}.example"


def target(number):
    """Host and path of a route."""
    return host_of(number), f"/route-{number:05}"


def route(name, gateways, host, path, backends):
    """A route. `backends` are numbers of Services with weights."""
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": path}}],
            "backendRefs": [{"name": f"service-{number % SERVICES}", "port": 80, "weight": weight} for number, weight in backends]}
    return {"apiVersion": GATEWAY_API, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": ROUTES},
            "spec": {"parentRefs": [{"name": gateway} for gateway in gateways], "hostnames": [host], "rules": [rule]}}


def numbered_route(number, gateways, weight=90):
    """A route that splits its traffic between two Services."""
    return route(f"route-{number:05}", gateways, *target(number), [(number, weight), (number + 1, 100 - weight)])


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def gateway_class(name, controller):
    return {"apiVersion": GATEWAY_API, "kind": "GatewayClass", "metadata": {"name": name}, "spec": {"controllerName": controller}}


def gateway(name, class_name):
    return {"apiVersion": GATEWAY_API, "kind": "Gateway", "metadata": {"name": name, "namespace": ROUTES},
            "spec": {"gatewayClassName": class_name, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}}


def echo(group, image):
    """Pods that answer requests. They keep serving for some seconds when they are deleted, as Pods behind any load balancer have to."""
    labels = {"app": "echo", "group": str(group)}
    container = {"name": "echo", "image": image, "imagePullPolicy": "IfNotPresent", "ports": [{"containerPort": BACKEND_PORT}],
                 "env": [{"name": "HTTP_PORT", "value": str(BACKEND_PORT)}, {"name": "POD_NAME", "value": "echo"}, {"name": "NAMESPACE", "value": ROUTES}],
                 "readinessProbe": {"httpGet": {"path": "/", "port": BACKEND_PORT}, "periodSeconds": 1},
                 "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"echo-{group}", "namespace": ROUTES},
            "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}}


def service(number):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"service-{number}", "namespace": ROUTES},
            "spec": {"selector": {"group": str(number % GROUPS)}, "ports": [{"port": 80, "targetPort": BACKEND_PORT}]}}


class Workloads:
    """Namespace with a hundred Services over ten groups of Pods, and the routes."""

    def __init__(self, api, image):
        self.api, self.image, self.count = api, image, 0

    def __enter__(self):
        self.api.apply(namespace(ROUTES))
        for group in range(GROUPS):
            self.api.apply(echo(group, self.image))
        for number in range(SERVICES):
            self.api.apply(service(number))
        self.api.wait_ready(ROUTES, "app=echo", GROUPS * REPLICAS, 300)
        return self

    def __exit__(self, *_):
        self.api.delete_all("HTTPRoute", ROUTES)
        self.api.delete("Namespace", None, ROUTES)
        wait_until("all namespaces are deleted", lambda: not any(self.api.exists("Namespace", None, name) for name in NAMESPACES), 120, 1)

    def add_routes(self, count, gateways):
        """Creates routes until there are so many."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: self.api.create(numbered_route(number, gateways)), range(self.count, count)))
        self.count = count

    def remove_routes(self):
        self.api.delete_all("HTTPRoute", ROUTES)
        wait_until("all routes are deleted", lambda: not self.api.list("HTTPRoute", ROUTES), 120, 1)
        self.count = 0


class Installation:
    """A controller with a GatewayClass and a Gateway of its own."""

    name = gateway_name = class_name = controller = ""

    def __init__(self, api, options):
        self.api, self.options = api, options

    def __enter__(self):
        try:
            self.install()
            self.api.apply(gateway(self.gateway_name, self.class_name))
            self.address = wait_until(f"{self.name} reports an address", self.find_address, 120)
            self.wait_serving()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def find_address(self):
        addresses = self.api.get("Gateway", ROUTES, self.gateway_name).get("status", {}).get("addresses") or []
        return addresses[0]["value"] if addresses else None

    def wait_serving(self):
        """Waits until a request without a route is answered."""
        wait_until(f"{self.name} answers", lambda: Probe(self.address).status("none.example", "/"), 60)

    def settle(self, seconds=300):
        """Waits until no status has been written for three seconds. Returns False if they are still being written."""
        end = time.monotonic() + seconds
        before = self.api.status_writes()
        while time.monotonic() < end:
            time.sleep(3)
            now = self.api.status_writes()
            if now == before:
                return True
            before = now
        return False


class Pointsman(Installation):
    """Two replicas of the controller and two proxies, as `pointsman install` and a Gateway without parameters give."""

    name, gateway_name, class_name, controller = "Pointsman", "edge", "bench-pointsman", "bench.pointsman.io/controller"
    namespace = "bench-pointsman"
    controllers = "app.kubernetes.io/component=controller"
    proxies = "gateway.networking.k8s.io/gateway-name=edge"

    def kubectl(self, verb, manifests, *flags):
        subprocess.run(["kubectl", verb, *flags, "-f", "-"], input=manifests, stdout=subprocess.DEVNULL, check=True)

    def manifests(self):
        # The CustomResourceDefinitions may be those of another installation, which stays.
        self.keeps_crds = self.api.exists("CustomResourceDefinition", None, "gatewayparameters.pointsman.io")
        command = [self.options.binary, "install", "--image", self.options.image, "--namespace", self.namespace, "--controller-name", self.controller,
                   "--gateway-class", self.class_name]
        return subprocess.run(command + ["--skip-crds"] * self.keeps_crds, stdout=subprocess.PIPE, check=True).stdout

    def install(self):
        self.installed = self.manifests()
        self.kubectl("apply", self.installed, "--server-side")
        self.api.wait_ready(self.namespace, self.controllers, 2)

    def wait_serving(self):
        self.api.wait_ready(ROUTES, self.proxies, 2)
        super().wait_serving()

    def remove(self):
        self.api.delete("Gateway", ROUTES, self.gateway_name)
        if hasattr(self, "installed"):
            self.kubectl("delete", self.installed, "--ignore-not-found")

    def leader(self):
        return self.api.get("Lease", self.namespace, "pointsman-controller")["spec"].get("holderIdentity")

    def controller_pods(self):
        """Returns the leader's Pod and that of the other replica."""
        leader = wait_until("a controller holds the Lease", self.leader, 30)
        pods = sorted(self.api.ready_pods(self.namespace, self.controllers), key=lambda pod: pod["metadata"]["name"] != leader)
        return pods

    def processes(self):
        pods = self.controller_pods()
        found = {"controller": Container(pods[0]), "follower": Container(pods[1])}
        proxies = self.api.ready_pods(ROUTES, self.proxies)
        return found | {f"proxy {number}": Container(pod) for number, pod in enumerate(proxies, 1)}


class Traefik(Installation):
    """One process, which is controller and proxy."""

    name, gateway_name, class_name, controller = "Traefik", "traefik", "bench-traefik", "traefik.io/gateway-controller"
    namespace = "bench-traefik"
    labels = {"app": "traefik"}

    def objects(self):
        meta = {"name": "traefik", "namespace": self.namespace}
        arguments = ["--entrypoints.web.address=:80", "--providers.kubernetesgateway=true", "--global.checknewversion=false", "--global.sendanonymoususage=false",
                     f"--providers.kubernetesgateway.statusaddress.service.namespace={self.namespace}", "--providers.kubernetesgateway.statusaddress.service.name=traefik"]
        container = {"name": "traefik", "image": self.options.traefik, "imagePullPolicy": "IfNotPresent", "args": arguments, "ports": [{"containerPort": 80}],
                     "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1}}
        yield namespace(self.namespace)
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        yield {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": self.namespace},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
               "subjects": [{"kind": "ServiceAccount"} | meta]}
        yield {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"type": "LoadBalancer", "selector": self.labels, "ports": [{"port": 80}]}}
        yield gateway_class(self.class_name, self.controller)
        yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
               "spec": {"selector": {"matchLabels": self.labels}, "template": {"metadata": {"labels": self.labels},
                                                                              "spec": {"serviceAccountName": "traefik", "containers": [container]}}}}

    def install(self):
        for item in self.objects():
            self.api.apply(item)
        self.api.wait_ready(self.namespace, "app=traefik", 1)

    def remove(self):
        self.api.delete("Gateway", ROUTES, self.gateway_name)
        self.api.delete("GatewayClass", None, self.class_name)
        self.api.delete("ClusterRoleBinding", None, self.namespace)
        self.api.delete("Namespace", None, self.namespace)

    def processes(self):
        return {"process": Container(self.api.ready_pods(self.namespace, "app=traefik")[0])}


NAMESPACES = (ROUTES, Pointsman.namespace, Traefik.namespace)
INSTALLATIONS = {one.name: one for one in (Pointsman, Traefik)}


def check(api):
    """Returns what the cluster lacks, or None."""
    if not api.exists("CustomResourceDefinition", None, "httproutes.gateway.networking.k8s.io"):
        return "the cluster does not have the Gateway API's CustomResourceDefinitions"
    for name in NAMESPACES:
        if api.exists("Namespace", None, name):
            return f"namespace {name} exists, perhaps from a run that was killed: kubectl delete namespace {name}"
    return None
