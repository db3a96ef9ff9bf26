//! A controller in the process of the test, on the cluster of `KUBECONFIG`. Each test has its own namespace and controller name.

#![allow(dead_code, reason = "no test uses everything")]

pub mod link;
pub mod recorder;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use pointsman_binding::Controller as Identity;
use pointsman_control::{Inbox, Reconciler, Snapshots};
use pointsman_kube::Settings;
use pointsman_resources::ObjectKey;
use serde_json::{Value, json};

/// A namespace on the cluster, with its own GatewayClass.
pub struct Cluster {
    pub client: Client,
    pub namespace: String,
    pub controller_name: String,
    resources: Vec<ApiResource>,
}

/// Resources that tests create.
const RESOURCES: [(&str, &str, &str, &str); 19] = [
    ("", "v1", "Namespace", "namespaces"),
    ("", "v1", "Service", "services"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "Secret", "secrets"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "DaemonSet", "daemonsets"),
    (
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
    ),
    (
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
    ),
    (
        "pointsman.io",
        "v1alpha1",
        "GatewayParameters",
        "gatewayparameters",
    ),
    (
        "gateway.networking.k8s.io",
        "v1",
        "GatewayClass",
        "gatewayclasses",
    ),
    ("gateway.networking.k8s.io", "v1", "Gateway", "gateways"),
    ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
    ("kuma.io", "v1alpha1", "MeshHTTPRoute", "meshhttproutes"),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    ),
    ("events.k8s.io", "v1", "Event", "events"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        "rolebindings",
    ),
];

impl Cluster {
    /// Creates the namespace and the GatewayClass.
    pub async fn new(test: &str) -> Self {
        let config = Config::infer().await.expect("KUBECONFIG names a cluster");
        Cluster::with_config(test, config).await
    }

    pub async fn with_config(test: &str, config: Config) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter("pointsman=debug,info")
            .with_test_writer()
            .try_init();
        let client = Client::try_from(config).expect("a client");
        let namespace = format!("pointsman-{test}-{}", std::process::id());
        let resources = RESOURCES.map(|(group, version, kind, plural)| {
            let gvk = GroupVersionKind::gvk(group, version, kind);
            ApiResource::from_gvk_with_plural(&gvk, plural)
        });
        let cluster = Cluster {
            client,
            controller_name: format!("example.com/{namespace}"),
            namespace,
            resources: resources.to_vec(),
        };
        cluster
            .apply("Namespace", &cluster.namespace, json!({}))
            .await;
        let class = json!({"spec": {"controllerName": cluster.controller_name}});
        cluster
            .apply("GatewayClass", &cluster.namespace, class)
            .await;
        cluster
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = self.resources.iter().find(|one| one.kind == kind);
        let resource = resource.expect("a kind that tests create");
        match kind {
            "Namespace" | "GatewayClass" | "CustomResourceDefinition" => {
                Api::all_with(self.client.clone(), resource)
            }
            _ => Api::namespaced_with(self.client.clone(), &self.namespace, resource),
        }
    }

    /// Creates or changes an object.
    pub async fn apply(&self, kind: &str, name: &str, mut object: Value) {
        let resource = self.resources.iter().find(|one| one.kind == kind);
        object["apiVersion"] = json!(resource.expect("a kind that tests create").api_version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        let params = PatchParams::apply("test").force();
        let (api, patch) = (self.api(kind), Patch::Apply(&object));
        let applied = api.patch(name, &params, &patch).await;
        applied.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        let deleted = self.api(kind).delete(name, &DeleteParams::default()).await;
        drop(deleted.unwrap_or_else(|error| panic!("{kind} {name}: {error}")));
    }

    pub async fn get(&self, kind: &str, name: &str) -> Value {
        let object = self.api(kind).get(name).await;
        let object = object.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
        serde_json::to_value(object).expect("it is JSON")
    }

    pub async fn gateway(&self, name: &str) {
        let spec = json!({"gatewayClassName": self.namespace, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]});
        self.apply("Gateway", name, json!({ "spec": spec })).await;
    }

    pub async fn route(&self, name: &str, gateway: &str) {
        let spec = json!({"parentRefs": [{"name": gateway}], "hostnames": [format!("{name}.example.com")], "rules": [{}]});
        self.apply("HTTPRoute", name, json!({ "spec": spec })).await;
    }

    /// The key of an object in the test's namespace.
    pub fn key(&self, kind: pointsman_resources::Kind, name: &str) -> ObjectKey {
        ObjectKey::new(kind, self.namespace.clone(), name)
    }

    /// Deletes the objects that the test has created.
    pub async fn clean_up(self) {
        self.delete("GatewayClass", &self.namespace).await;
        self.delete("Namespace", &self.namespace).await;
    }

    pub fn settings(&self) -> Settings {
        Settings {
            controller: Identity {
                name: self.controller_name.as_str().into(),
                class: None,
                generates_proxies: false,
                check_limit: Default::default(),
            },
            watch_namespaces: Vec::new(),
            lease: None,
            instance: "test".into(),
            owner: None,
            address: None,
            authority: None,
            infrastructure: None,
        }
    }

    /// Starts a controller that leads.
    pub async fn controller(&self) -> Controller {
        self.controller_with(self.client.clone(), self.settings())
            .await
    }

    pub async fn controller_with(&self, client: Client, settings: Settings) -> Controller {
        let (inbox, snapshots): (Arc<Inbox>, Arc<Snapshots>) = Default::default();
        let started = pointsman_kube::Cluster::start(client, &settings, inbox.clone()).await;
        let (cluster, sinks) = started.expect("the API server answers");
        let mut reconciler = Reconciler::new(Vec::new(), snapshots.clone());
        let metrics = cluster.metrics().clone();
        reconciler = reconciler.with_timing(move |took| metrics.record_reconcile(took));
        reconciler = reconciler.with_controller(settings.controller);
        if let Some(sink) = cluster.infrastructure_sink() {
            reconciler = reconciler.with_sink(Box::new(sink));
        }
        for sink in sinks {
            reconciler = reconciler.with_status_sink(sink);
        }
        let updates = inbox.clone();
        let thread = std::thread::spawn(move || reconciler.run(&updates));
        Controller {
            snapshots,
            cluster: Some(cluster),
            inbox,
            thread: Some(thread),
        }
    }
}

/// A controller that ends with the test.
pub struct Controller {
    pub snapshots: Arc<Snapshots>,
    cluster: Option<pointsman_kube::Cluster>,
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl Controller {
    /// Returns whether there is an object that may have a status.
    pub fn knows(&self, key: &ObjectKey) -> bool {
        let snapshot = self.snapshots.latest();
        snapshot.entries.keys().any(|(_, known)| known == key)
    }

    pub fn cluster(&self) -> &pointsman_kube::Cluster {
        self.cluster.as_ref().expect("it runs")
    }

    /// Returns the metrics as Prometheus reads them.
    pub fn metrics_page(&self) -> String {
        let mut page = pointsman_control::Exposition::default();
        self.cluster().metrics().add_to(&mut page);
        page.finish()
    }

    /// Returns whether every known status is written.
    pub fn has_written_all(&self) -> bool {
        self.metrics_page().contains("status_queue 0")
    }

    /// Shuts down gracefully.
    pub async fn stop(mut self) {
        self.cluster.take().expect("it runs").stop().await;
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until a condition holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    for _ in 0..1200 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}: not within two minutes");
}

/// The entry of a controller in a route's status.
pub fn parent<'a>(object: &'a Value, controller: &str) -> Option<&'a Value> {
    let parents = object["status"]["parents"].as_array()?;
    parents
        .iter()
        .find(|parent| parent["controllerName"] == controller)
}
