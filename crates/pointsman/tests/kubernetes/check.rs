//! `check` and `explain` on the objects of a cluster, and the controller's statuses compared with those of `check -f`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{BINARY, Lab, backend, eventually, kubectl, parent, try_kubectl};

fn pointsman(arguments: &[&str]) -> Output {
    let output = Command::new(BINARY).args(arguments).output();
    output.expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the objects that `check -o json` prints.
fn checked(arguments: &[&str]) -> Vec<Value> {
    let output = pointsman(arguments);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let stderr = text(&output.stderr);
        panic!("{arguments:?}: {error}: {stderr}")
    });
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Returns the parts of an object's status that depend on configuration and belong to a controller: all except times, generations and the state of proxies.
fn comparable(object: &Value, controller: &str) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for field in ["lastTransitionTime", "observedGeneration", "addresses"] {
                    fields.remove(field);
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => {
                let of_proxies = ["Programmed", "pointsman.io/InEffect"];
                items.retain(|item| {
                    let kind = item["type"].as_str().unwrap_or_default();
                    !of_proxies.contains(&kind)
                });
                items.iter_mut().for_each(strip);
            }
            _ => {}
        }
    }
    let mut status = object["status"].clone();
    for list in ["parents", "ancestors"] {
        if let Some(entries) = status[list].as_array_mut() {
            entries.retain(|entry| entry["controllerName"] == controller);
        }
        // A missing list equals an empty one.
        if status[list].as_array().is_none_or(Vec::is_empty)
            && let Some(status) = status.as_object_mut()
        {
            status.remove(list);
        }
    }
    strip(&mut status);
    status
}

/// Adapts an example to a shared cluster: its own namespaces and classes, and addresses that the API server accepts.
struct Adapter<'l> {
    lab: &'l Lab,
    prefix: String,
}

impl Adapter<'_> {
    fn namespace(&self, name: &str) -> String {
        match name {
            // Kuma's policies have a meaning of their own there.
            "kuma-system" => name.to_owned(),
            name => format!("{}-{name}", self.prefix),
        }
    }

    fn adapt(&self, object: &mut Value) {
        self.replace(object);
        match object["kind"].as_str() {
            Some("Namespace") => {
                let name = self.namespace(object["metadata"]["name"].as_str().unwrap_or_default());
                object["metadata"]["name"] = json!(name);
            }
            Some("GatewayClass") => object["metadata"]["name"] = json!(self.prefix),
            Some("Service") => {
                if let Some(spec) = object["spec"].as_object_mut()
                    && spec.get("clusterIP") != Some(&json!("None"))
                {
                    spec.remove("clusterIP");
                    spec.remove("clusterIPs");
                }
            }
            // Nothing runs it, so its address stays as it is.
            Some("Pod") => {
                object["spec"] = json!({"schedulerName": "example.com/none", "containers": [{"name": "app", "image": "example.com/none"}]});
            }
            _ => {}
        }
    }

    fn replace(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), &*value) {
                        ("namespace", Value::String(namespace)) => {
                            *value = json!(self.namespace(namespace));
                        }
                        ("gatewayClassName", _) => *value = json!(self.prefix),
                        ("controllerName", _) => *value = json!(self.lab.controller_name),
                        _ => self.replace(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            Value::String(text) => {
                if let Ok(ip) = text.parse::<Ipv4Addr>()
                    && ip.is_loopback()
                {
                    let [_, _, c, d] = ip.octets();
                    *text = Ipv4Addr::new(198, 18, c, d).to_string();
                }
                // Kuma's name of a Service: NAME_NAMESPACE_svc_PORT.
                let parts: Vec<&str> = text.split('_').collect();
                if let [name, namespace, "svc", rest @ ..] = &parts[..] {
                    let namespace = self.namespace(namespace);
                    let parts = [&[*name, &namespace, "svc"], rest].concat();
                    *text = parts.join("_");
                }
            }
            _ => {}
        }
    }
}

/// Reads the objects of a folder.
fn objects(folder: &Path) -> Vec<Value> {
    let path = folder.to_str().expect("UTF-8");
    let arguments = [
        "annotate",
        "--local",
        "-R",
        "-o",
        "json",
        "-f",
        path,
        "example.com/test=1",
    ];
    let printed = kubectl(&arguments, "");
    let objects = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    objects.map(|object| object.expect("it is JSON")).collect()
}

fn name(object: &Value) -> String {
    let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!(
        "{} {}/{}",
        part(&object["kind"]),
        part(&metadata["namespace"]),
        part(&metadata["name"])
    )
}

/// Creates an object, and returns it as the API server stores it.
fn create(object: &Value) -> Value {
    let arguments = ["create", "-o", "json", "-f", "-"];
    let created = kubectl(&arguments, &object.to_string());
    let mut created: Value = serde_json::from_str(&created).expect("it is JSON");
    if let Some(metadata) = created["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    created
        .as_object_mut()
        .map(|object| object.remove("status"));
    if object["kind"] == "Pod" {
        report_address(object);
        created["status"] = object["status"].clone();
    }
    created
}

/// Writes the address of a Pod into its status, as a kubelet does.
fn report_address(pod: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, namespace) = (
        text(&pod["metadata"]["name"]),
        text(&pod["metadata"]["namespace"]),
    );
    let patch = json!({"status": {"podIP": pod["status"]["podIP"], "podIPs": [{"ip": pod["status"]["podIP"]}]}});
    let arguments = ["patch", "pod", &name, "-n", &namespace, "--type=merge"];
    let patch = ["--subresource=status", "-p", &patch.to_string()];
    kubectl(&[&arguments[..], &patch[..]].concat(), "");
}

/// Objects of an example, deleted at the end.
struct Example(Vec<Value>);

impl Drop for Example {
    fn drop(&mut self) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": self.0});
        let arguments = ["delete", "--wait=false", "--ignore-not-found", "-f", "-"];
        let _ = try_kubectl(&arguments, &list.to_string());
    }
}

impl Example {
    /// Creates the objects of a folder, and their namespaces.
    fn create(folder: &Path, adapter: &Adapter<'_>) -> Example {
        let mut objects = objects(folder);
        objects.iter_mut().for_each(|object| adapter.adapt(object));
        let mut example = Example(Vec::new());
        let namespaces = objects
            .iter()
            .filter_map(|object| object["metadata"]["namespace"].as_str());
        let namespaces: std::collections::BTreeSet<String> =
            namespaces.map(str::to_owned).collect();
        let is_declared = |name: &str| {
            let mut objects = objects.iter();
            objects
                .any(|object| object["kind"] == "Namespace" && object["metadata"]["name"] == name)
        };
        let implied = namespaces.iter().filter(|name| !is_declared(name)).map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        let implied: Vec<Value> = implied.collect();
        objects.sort_by_key(|object| object["kind"] != "Namespace");
        for object in implied.iter().chain(&objects) {
            example.0.push(create(object));
        }
        example
    }
}

// "for every folder in `examples/`, the statuses on the cluster equal what `check` prints for the same files"
#[test]
#[ignore = "needs a cluster"]
fn statuses_on_the_cluster_equal_what_check_prints_for_the_same_objects() {
    let lab = Lab::new("examples");
    let mut controller = lab.controller_without_class("one");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut folders: Vec<_> = std::fs::read_dir(&examples)
        .expect("examples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir() && !is_universal(path))
        .collect();
    folders.sort();
    assert!(folders.len() >= 12, "{folders:?}");
    let mut compared = 0;
    for (number, folder) in folders.iter().enumerate() {
        let adapter = Adapter {
            lab: &lab,
            prefix: format!("{}-{number}", lab.namespace),
        };
        let example = Example::create(folder, &adapter);
        let file = lab.path(&format!("{}.json", folder_name(folder)));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": example.0});
        std::fs::write(&file, list.to_string()).expect("written");
        let own = ["--controller-name", &lab.controller_name, "-o", "json"];
        let path = file.to_str().expect("UTF-8");
        let routable = ["--endpoint-addresses", "routable"];
        let printed = checked(&[&["check", "-f", path], &own[..], &routable[..]].concat());
        assert!(!printed.is_empty(), "{}", folder.display());
        for object in &printed {
            let expected = comparable(object, &lab.controller_name);
            let what = format!("{} has the status {expected}", name(object));
            eventually(&what, || {
                let current = current(object)?;
                (comparable(&current, &lab.controller_name) == expected).then_some(())
            });
            compared += 1;
        }
        // The same from the cluster itself.
        let in_cluster = checked(&[&["check", "-A"], &own[..]].concat());
        let in_cluster: BTreeMap<String, Value> = in_cluster
            .iter()
            .map(|object| (name(object), comparable(object, &lab.controller_name)))
            .collect();
        for object in &printed {
            let expected = comparable(object, &lab.controller_name);
            assert_eq!(
                in_cluster.get(&name(object)),
                Some(&expected),
                "{}",
                name(object)
            );
        }
    }
    assert!(compared > 20, "{compared}");
    controller.stop();
}

/// Reports whether a folder has universal documents of Kuma. They are no Kubernetes objects, so an API server can't store them.
fn is_universal(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let texts = entries.map(|entry| std::fs::read_to_string(entry.expect("an entry").path()));
    let mut documents = texts.map(|text| text.expect("it is text"));
    documents.any(|text| text.lines().any(|line| line.starts_with("type: ")))
}

fn folder_name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .expect("UTF-8")
}

/// Returns an object as it is now.
fn current(object: &Value) -> Option<Value> {
    let (group, version) = object["apiVersion"]
        .as_str()?
        .split_once('/')
        .unwrap_or_default();
    let kind = format!("{}.{version}.{group}", object["kind"].as_str()?);
    let metadata = &object["metadata"];
    let mut arguments = vec!["get", &kind, metadata["name"].as_str()?, "-o", "json"];
    if let Some(namespace) = metadata["namespace"].as_str() {
        arguments.extend(["-n", namespace]);
    }
    serde_json::from_str(&try_kubectl(&arguments, "").ok()?).ok()
}

#[test]
#[ignore = "needs a cluster"]
fn check_and_explain_read_the_cluster_as_a_plugin_of_kubectl() {
    let lab = Lab::new("plugin");
    lab.gateway("edge", 80);
    lab.service("hello", backend("hello"));
    lab.route("hello", "edge", "hello.example");
    lab.route("missing", "edge", "missing.example");
    // Found by kubectl under this name in PATH.
    std::os::unix::fs::symlink(BINARY, lab.path("kubectl-pointsman")).expect("a link");
    let folder = lab.path("kubectl-pointsman");
    let folder = folder.parent().and_then(Path::to_str).expect("UTF-8");
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let plugin = |arguments: &[&str]| {
        let command = Command::new("kubectl")
            .arg("pointsman")
            .args(arguments)
            .env("PATH", &path)
            .output();
        command.expect("kubectl is installed")
    };
    let own = [
        "--controller-name",
        &lab.controller_name,
        "-n",
        &lab.namespace,
    ];
    let output = plugin(&[&["check"], &own[..]].concat());
    let printed = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{printed}{}",
        text(&output.stderr)
    );
    for expected in [
        "BackendNotFound",
        &format!("HTTPRoute {}/hello", lab.namespace),
    ] {
        assert!(printed.contains(expected), "{expected} in {printed}");
    }
    assert!(
        !printed.contains("kube-system"),
        "other namespaces: {printed}"
    );
    let url = "http://hello.example/";
    let gateway = format!("{}/edge", lab.namespace);
    let output = plugin(&[&["explain", url, "--gateway", &gateway], &own[..]].concat());
    let printed = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{printed}{}",
        text(&output.stderr)
    );
    assert!(printed.contains("hello"), "{printed}");
    let help = text(&plugin(&["check", "--help"]).stdout);
    assert!(help.contains("Usage: kubectl pointsman check"), "{help}");
    // Nothing was written.
    let route = lab.get("httproute", "hello");
    assert!(parent(&route, &lab.controller_name).is_none());
}

#[test]
#[ignore = "needs a cluster"]
fn kinds_that_may_not_be_listed_are_named() {
    let lab = Lab::new("forbidden");
    lab.gateway("edge", 80);
    lab.service("hello", backend("hello"));
    lab.route("hello", "edge", "hello.example");
    lab.apply(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}, rules: [
  {apiGroups: [gateway.networking.k8s.io], resources: [gateways, httproutes], verbs: [list]},
  {apiGroups: ['', discovery.k8s.io], resources: [services, endpointslices], verbs: [list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: reader},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}, subjects: [{kind: ServiceAccount, name: reader}]}
",
    );
    let token = kubectl(&["create", "token", "reader", "-n", &lab.namespace], "");
    let mut config: Value = serde_json::from_str(&kubectl(
        &["config", "view", "--minify", "--raw", "-o", "json"],
        "",
    ))
    .expect("it is JSON");
    config["users"][0]["user"] = json!({"token": token});
    config["contexts"][0]["context"]["namespace"] = json!(lab.namespace);
    let file = lab.path("kubeconfig");
    std::fs::write(&file, config.to_string()).expect("written");
    let kubeconfig = file.to_str().expect("UTF-8");
    let own = [
        "--controller-name",
        &lab.controller_name,
        "--gateway-class",
        &lab.namespace,
    ];
    let output = pointsman(&[&["check", "--kubeconfig", kubeconfig], &own[..]].concat());
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    for expected in [
        format!(
            "httproutes.gateway.networking.k8s.io may be listed in namespace {} only",
            lab.namespace
        ),
        "secrets may not be listed: references to them are reported as unresolved".to_owned(),
    ] {
        assert!(errors.contains(&expected), "{expected} in {errors}");
    }
    let route = printed
        .split(&format!("HTTPRoute {}/hello", lab.namespace))
        .nth(1);
    let route = route.unwrap_or_else(|| panic!("the route is reported: {printed}"));
    assert!(route.contains("Accepted         True"), "{printed}");
}
