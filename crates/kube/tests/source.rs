//! The cluster as a source. `scripts/test-kubernetes` runs these tests; they need an API server with the Gateway API's experimental CRDs.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Cluster, eventually};
use kube::Client;
use kube::api::DeleteParams;
use kube::client::Body;
use pointsman_resources::Kind;
use serde_json::json;

/// A CustomResourceDefinition that validates nothing.
fn definition() -> serde_json::Value {
    json!({"spec": {
        "group": "kuma.io", "scope": "Namespaced",
        "names": {"kind": "MeshHTTPRoute", "plural": "meshhttproutes", "singular": "meshhttproute"},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
    }})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn objects_are_known_from_their_creation_to_their_deletion() {
    let cluster = Cluster::new("objects").await;
    cluster.gateway("before").await;
    let controller = cluster.controller().await;
    let (before, later) = (
        cluster.key(Kind::Gateway, "before"),
        cluster.key(Kind::Gateway, "later"),
    );
    eventually("it is listed", async || controller.knows(&before)).await;
    assert!(controller.cluster().source().pending_watches().is_empty());
    cluster.gateway("later").await;
    eventually("it is new", async || controller.knows(&later)).await;
    cluster.delete("Gateway", "before").await;
    eventually("it is deleted", async || !controller.knows(&before)).await;
    assert!(controller.knows(&later));
    cluster.clean_up().await;
}

// "An object that cannot be deserialized is reported on its own and stalls nothing." "Missing CRDs are … picked up when they appear."
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn kinds_appear_and_disappear_and_an_invalid_object_affects_no_other() {
    let cluster = Cluster::new("kinds").await;
    let name = "meshhttproutes.kuma.io";
    let definitions = cluster.api("CustomResourceDefinition");
    let _ = definitions.delete(name, &DeleteParams::default()).await;
    eventually("it is not served", async || {
        definitions
            .get_opt(name)
            .await
            .expect("an answer")
            .is_none()
    })
    .await;
    let controller = cluster.controller().await;
    eventually("everything is listed", async || {
        controller.cluster().source().pending_watches().is_empty()
    })
    .await;
    cluster
        .apply("CustomResourceDefinition", name, definition())
        .await;
    let api = controller.cluster().source().api();
    eventually("it is served", async || {
        api.borrow().resources.contains_key(&Kind::MeshHTTPRoute)
    })
    .await;
    let broken = json!({"spec": {"to": 5}});
    cluster.apply("MeshHTTPRoute", "broken", broken).await;
    let valid = json!({"spec": {"targetRef": {"kind": "Mesh"}, "to": []}});
    cluster.apply("MeshHTTPRoute", "valid", valid.clone()).await;
    let key = |name| cluster.key(Kind::MeshHTTPRoute, name);
    eventually("the valid one is in effect", async || {
        controller.knows(&key("valid"))
    })
    .await;
    let findings = || {
        let snapshot = controller.snapshots.latest();
        let findings = snapshot.findings.findings.iter();
        findings.map(ToString::to_string).collect::<Vec<_>>()
    };
    let is_reported = || findings().iter().any(|finding| finding.contains("broken"));
    eventually("the broken one is reported", async || is_reported()).await;
    assert!(!controller.knows(&key("broken")));
    cluster.apply("MeshHTTPRoute", "broken", valid).await;
    eventually("it was repaired", async || controller.knows(&key("broken"))).await;
    assert!(!is_reported(), "{:?}", findings());
    cluster.delete("CustomResourceDefinition", name).await;
    eventually("its objects are gone", async || {
        !controller.knows(&key("valid")) && !controller.knows(&key("broken"))
    })
    .await;
    cluster.clean_up().await;
}

// "Relist and disconnect lose no state and rewrite no status."
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_lost_connection_loses_no_state_and_writes_nothing() {
    let cluster = Cluster::new("connection").await;
    let link = common::link::Link::start().await;
    cluster.gateway("edge").await;
    for name in ["kept", "deleted"] {
        cluster.route(name, "edge").await;
    }
    let controller = cluster
        .controller_with(link.client(), cluster.settings())
        .await;
    let accepted = async |name: &str| {
        let route = cluster.get("HTTPRoute", name).await;
        common::parent(&route, &cluster.controller_name).is_some()
    };
    eventually("statuses are written", async || {
        accepted("kept").await && accepted("deleted").await
    })
    .await;
    let key = |name| cluster.key(Kind::HTTPRoute, name);
    eventually("nothing is left to write", async || {
        controller.has_written_all()
    })
    .await;
    let version = cluster.get("HTTPRoute", "kept").await["metadata"]["resourceVersion"].clone();
    link.cut();
    cluster.delete("HTTPRoute", "deleted").await;
    cluster.route("new", "edge").await;
    let snapshot = controller.snapshots.latest().version;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(controller.snapshots.latest().version, snapshot);
    assert!(controller.knows(&key("deleted")), "nobody said it is gone");
    let errors = link.refused();
    assert!(errors > 0, "it tries again");
    link.restore();
    eventually("the new route has a status", async || accepted("new").await).await;
    eventually("the deleted one is gone", async || {
        !controller.knows(&key("deleted"))
    })
    .await;
    let now = cluster.get("HTTPRoute", "kept").await["metadata"]["resourceVersion"].clone();
    assert_eq!(now, version, "its status was not written again");
    cluster.clean_up().await;
}

// "watched namespaces (`--watch-namespace`, with namespaced Roles instead of ClusterRoles) are settings"
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_role_in_a_namespace_is_sufficient_to_serve_it() {
    let (cluster, other) = (Cluster::new("role").await, Cluster::new("foreign").await);
    let rules = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "patch"]}]});
    cluster.apply("Role", "pointsman", rules).await;
    let subject =
        json!({"kind": "ServiceAccount", "name": "pointsman", "namespace": cluster.namespace});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pointsman"});
    let binding = json!({"roleRef": role, "subjects": [subject]});
    cluster.apply("RoleBinding", "pointsman", binding).await;
    let mut config = kube::Config::infer().await.expect("KUBECONFIG");
    let account = format!("system:serviceaccount:{}:pointsman", cluster.namespace);
    config.auth_info.impersonate = Some(account);
    let client = kube::Client::try_from(config).expect("a client");
    let settings = pointsman_kube::Settings {
        controller: pointsman_binding::Controller {
            name: cluster.controller_name.as_str().into(),
            class: Some(cluster.namespace.as_str().into()),
            generates_proxies: false,
            check_limit: Default::default(),
        },
        watch_namespaces: vec![cluster.namespace.clone()],
        ..cluster.settings()
    };
    let controller = cluster.controller_with(client, settings).await;
    for one in [&cluster, &other] {
        one.gateway("edge").await;
        one.route("r", "edge").await;
    }
    eventually("the route is served", async || {
        let route = cluster.get("HTTPRoute", "r").await;
        common::parent(&route, &cluster.controller_name).is_some()
    })
    .await;
    assert!(controller.cluster().source().pending_watches().is_empty());
    assert!(!controller.knows(&other.key(Kind::HTTPRoute, "r")));
    drop(controller);
    cluster.clean_up().await;
    other.clean_up().await;
}

/// A client to which every request is forbidden while the flag is set, as by an API server that is starting.
fn forbidden_while(client: Client, flag: Arc<AtomicBool>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, flag) = (client.clone(), flag.clone());
        async move {
            if !flag.load(Ordering::Relaxed) {
                return client.send(request).await;
            }
            let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "not yet"});
            let response = http::Response::builder().status(403);
            let response = response.body(Body::from(status.to_string().into_bytes()));
            Ok(response.expect("it is valid"))
        }
    });
    Client::new(service, namespace)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn objects_that_were_listed_stay_when_the_permission_is_lost_for_a_while() {
    let cluster = Cluster::new("forbidden").await;
    let link = common::link::Link::start().await;
    let flag: Arc<AtomicBool> = Arc::default();
    let settings = pointsman_kube::Settings {
        controller: pointsman_binding::Controller {
            class: Some(cluster.namespace.as_str().into()),
            ..cluster.settings().controller
        },
        watch_namespaces: vec![cluster.namespace.clone()],
        ..cluster.settings()
    };
    let client = forbidden_while(link.client(), flag.clone());
    let controller = cluster.controller_with(client, settings).await;
    let key =
        pointsman_resources::ObjectKey::new(Kind::GatewayClass, "", cluster.namespace.clone());
    // An object that is assumed has no UID.
    let is_listed = || {
        let snapshot = controller.snapshots.latest();
        let mut entries = snapshot.entries.iter();
        let entry = entries.find_map(|((_, known), entry)| (*known == key).then_some(entry));
        entry.is_some_and(|entry| entry.document.object()["metadata"]["uid"].is_string())
    };
    eventually("it is listed", async || is_listed()).await;
    flag.store(true, Ordering::Relaxed);
    link.cut();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    link.restore();
    tokio::time::sleep(std::time::Duration::from_secs(8)).await;
    assert!(is_listed());
    flag.store(false, Ordering::Relaxed);
    cluster.gateway("edge").await;
    let gateway = cluster.key(Kind::Gateway, "edge");
    eventually("the watches recover", async || controller.knows(&gateway)).await;
    assert!(is_listed());
    drop(controller);
    cluster.clean_up().await;
}
