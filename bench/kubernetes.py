"""A client of the Kubernetes API, and the processes of Pods on this machine."""

import base64
import http.client
import json
import os
import select
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

from machine import cpu_seconds

GATEWAY_API = "gateway.networking.k8s.io/v1"
PLURALS = {
    "ClusterRoleBinding": "clusterrolebindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Deployment": "deployments",
    "EndpointSlice": "endpointslices",
    "Gateway": "gateways",
    "GatewayClass": "gatewayclasses",
    "HTTPRoute": "httproutes",
    "Lease": "leases",
    "Namespace": "namespaces",
    "Pod": "pods",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}
VERSIONS = {"Gateway": GATEWAY_API, "GatewayClass": GATEWAY_API, "HTTPRoute": GATEWAY_API, "Deployment": "apps/v1", "EndpointSlice": "discovery.k8s.io/v1",
            "Lease": "coordination.k8s.io/v1", "CustomResourceDefinition": "apiextensions.k8s.io/v1", "ClusterRoleBinding": "rbac.authorization.k8s.io/v1"}
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class ApiError(RuntimeError):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def path_of(kind, namespace=None, name=None, subresource=None, version=None):
    version = version or VERSIONS.get(kind, "v1")
    parts = ["/apis" if "/" in version else "/api", version]
    parts += ["namespaces", namespace] if namespace else []
    parts += [part for part in (PLURALS[kind], name, subresource) if part]
    return "/".join(parts)


def wait_until(what, holds, seconds, pause=0.1):
    """Waits until `holds` returns something true, and returns it."""
    end = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(pause)
    return value


class Api:
    """The API server of the current kubeconfig. Each thread has a connection of its own."""

    def __init__(self):
        command = ["kubectl", "config", "view", "--raw", "--minify", "--flatten", "-o", "json"]
        view = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        cluster, user = view["clusters"][0]["cluster"], view["users"][0]["user"]
        self.server = urllib.parse.urlsplit(cluster["server"])
        self.tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        self.headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile() as file:
                file.write(base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"]))
                file.flush()
                self.tls.load_cert_chain(file.name)
        self.local = threading.local()

    def connect(self, timeout=60):
        return http.client.HTTPSConnection(self.server.hostname, self.server.port or 443, context=self.tls, timeout=timeout)

    def connection(self):
        if not getattr(self.local, "connection", None):
            self.local.connection = self.connect()
        return self.local.connection

    def send(self, method, path, body=None, content_type="application/json"):
        """Sends a request on this thread's connection, without waiting for the response."""
        data = None if body is None else json.dumps(body)
        self.connection().request(method, path, data, self.headers | ({"Content-Type": content_type} if data else {}))

    def receive(self):
        """Returns the body of the response."""
        response = self.connection().getresponse()
        data = response.read()
        if response.status >= 300:
            raise ApiError(response.status, f"{response.status}: {data[:500].decode(errors='replace')}")
        return data

    def has_response(self):
        """Returns whether a response has begun to arrive."""
        return bool(select.select([self.connection().sock], [], [], 0)[0])

    def raw(self, method, path, body=None, content_type="application/json"):
        for attempt in (1, 2):
            try:
                self.send(method, path, body, content_type)
                return self.receive()
            except (OSError, http.client.HTTPException):
                self.local.connection = None
                if attempt == 2:
                    raise

    def request(self, *arguments):
        return json.loads(self.raw(*arguments))

    def get(self, kind, namespace, name):
        return self.request("GET", path_of(kind, namespace, name))

    def exists(self, kind, namespace, name):
        try:
            return bool(self.get(kind, namespace, name))
        except ApiError as error:
            if error.code != 404:
                raise
            return False

    def list(self, kind, namespace=None, selector=""):
        query = f"?labelSelector={urllib.parse.quote(selector)}" if selector else ""
        return self.request("GET", path_of(kind, namespace) + query)["items"]

    def create(self, item):
        meta = item["metadata"]
        return self.request("POST", path_of(item["kind"], meta.get("namespace")), item)

    def apply(self, item):
        """Applies an object on the server's side."""
        meta = item["metadata"]
        path = path_of(item["kind"], meta.get("namespace"), meta["name"], version=item["apiVersion"])
        return self.request("PATCH", path + "?fieldManager=bench&force=true", item, APPLY)

    def patch(self, kind, namespace, name, patch):
        return self.request("PATCH", path_of(kind, namespace, name), patch, MERGE)

    def delete(self, kind, namespace, name, grace=None):
        body = {"kind": "DeleteOptions", "apiVersion": "v1"} | ({} if grace is None else {"gracePeriodSeconds": grace})
        try:
            self.raw("DELETE", path_of(kind, namespace, name), body)
        except ApiError as error:
            if error.code != 404:
                raise

    def delete_all(self, kind, namespace):
        self.raw("DELETE", path_of(kind, namespace))

    def ready_pods(self, namespace, selector):
        def is_ready(pod):
            conditions = pod["status"].get("conditions", [])
            ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
            return ready and "deletionTimestamp" not in pod["metadata"]
        return [pod for pod in self.list("Pod", namespace, selector) if is_ready(pod)]

    def wait_ready(self, namespace, selector, count, seconds=120):
        """Waits for Pods, and returns them."""
        def found():
            pods = self.ready_pods(namespace, selector)
            return pods if len(pods) == count else None
        return wait_until(f"{count} Pods {selector} in {namespace} are ready", found, seconds, 0.2)

    def status_requests(self, resource="httproutes"):
        """Requests that write the status of a resource, by status code, as counted by the API server."""
        counts = {}
        for line in self.raw("GET", "/metrics").decode().splitlines():
            if line.startswith("apiserver_request_total{") and f'resource="{resource}"' in line and 'subresource="status"' in line:
                code, value = line.partition('code="')[2].partition('"')[0], float(line.rpartition(" ")[2])
                if 'verb="GET"' not in line:
                    counts[code] = counts.get(code, 0) + int(value)
        return counts

    def status_writes(self):
        return self.status_requests().get("200", 0)


class Watch:
    """Events of a kind in a namespace, with the time of their arrival. They are read by a thread of its own."""

    def __init__(self, api, kind, namespace, selector=""):
        listed = api.request("GET", path_of(kind, namespace) + (f"?labelSelector={urllib.parse.quote(selector)}" if selector else ""))
        self.items = {item["metadata"]["name"]: item for item in listed["items"]}
        self.events, self.changed = [], threading.Condition()
        query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"], "labelSelector": selector}
        self.connection = api.connect(timeout=None)
        self.connection.request("GET", path_of(kind, namespace) + "?" + urllib.parse.urlencode(query), headers=api.headers)
        self.response = self.connection.getresponse()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for line in self.response:
                event, at = json.loads(line), time.monotonic()
                with self.changed:
                    self.events.append((at, event["type"], event["object"]))
                    self.items[event["object"]["metadata"]["name"]] = event["object"]
                    self.changed.notify_all()
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            return

    def wait(self, what, holds, seconds):
        """Waits until `holds` is true of the objects by name; returns the time of the event."""
        end = time.monotonic() + seconds
        with self.changed:
            while not holds(self.items):
                if not self.changed.wait(end - time.monotonic()) and time.monotonic() > end:
                    raise TimeoutError(f"not within {seconds} s: {what}")
            return self.events[-1][0] if self.events else time.monotonic()

    def close(self):
        try:
            self.connection.sock and self.connection.sock.shutdown(2)
        except OSError:
            pass


def processes_of(pod):
    """Returns the ids of the processes of a Pod, without the one that holds its namespaces. They are found by their cgroup, so the Pod has to run on this machine."""
    uid = pod["metadata"]["uid"]
    names, found = (uid, uid.replace("-", "_")), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text, comm = (entry / "cgroup").read_text(), (entry / "comm").read_text().strip()
            except OSError:
                continue
            if any(name in text for name in names) and comm != "pause":
                found.append(int(entry.name))
    return sorted(found)


class Container:
    """The single process of a Pod with one container."""

    def __init__(self, pod):
        self.pod, self.name = pod, pod["metadata"]["name"]
        self.ip = pod["status"].get("podIP")
        pids = wait_until(f"a process of Pod {self.name} on this machine", lambda: processes_of(pod), 10)
        self.pid = pids[0]

    def cpu(self):
        return cpu_seconds(self.pid)

    def memory(self, field="VmRSS"):
        """Resident memory in MiB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"/proc/{self.pid}/status has no {field}")

    def kill(self):
        os.kill(self.pid, 9)
