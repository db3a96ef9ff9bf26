//! Statuses on a cluster. `scripts/test-kubernetes` runs these tests.

mod common;

use common::{Cluster, eventually, parent};
use kube::api::{Patch, PatchParams};
use pointsman_kube::{LeaseName, Settings};
use serde_json::{Value, json};

fn condition<'a>(owner: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = owner["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// An entry of another controller, as the conformance suite seeds it.
fn foreign() -> Value {
    json!({
        "controllerName": "gateway.networking.k8s.io/stale-controller",
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "unmanaged-gateway"},
        "conditions": [{"type": "Accepted", "status": "True", "reason": "Seeded", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-31T12:00:00Z"}],
    })
}

async fn patch_status(cluster: &Cluster, kind: &str, name: &str, status: Value) {
    let (api, patch) = (cluster.api(kind), Patch::Merge(json!({ "status": status })));
    let patched = api
        .patch_status(name, &PatchParams::default(), &patch)
        .await;
    drop(patched.expect("it is valid"));
}

// "Status: own entries only, by read-modify-write"; "pruned when a parent is gone"
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn own_entries_follow_the_spec_and_those_of_others_stay() {
    let cluster = Cluster::new("entries").await;
    let controller = cluster.controller().await;
    cluster.gateway("edge").await;
    cluster.route("r", "edge").await;
    let own = &cluster.controller_name;
    let generation = async |wanted: i64| {
        let route = cluster.get("HTTPRoute", "r").await;
        let accepted = parent(&route, own).and_then(|parent| condition(parent, "Accepted"));
        accepted.is_some_and(|accepted| accepted["observedGeneration"] == wanted)
    };
    eventually("the route has a status", async || generation(1).await).await;
    let route = cluster.get("HTTPRoute", "r").await;
    let mut parents = route["status"]["parents"]
        .as_array()
        .cloned()
        .expect("parents");
    parents.push(foreign());
    patch_status(&cluster, "HTTPRoute", "r", json!({ "parents": parents })).await;
    let stale = json!({"type": "conformance.gateway.networking.k8s.io/StaleCondition", "status": "True", "reason": "Seeded",
        "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-31T12:00:00Z"});
    let gateway = cluster.get("Gateway", "edge").await;
    let mut conditions = gateway["status"]["conditions"]
        .as_array()
        .cloned()
        .expect("conditions");
    conditions.push(stale.clone());
    patch_status(
        &cluster,
        "Gateway",
        "edge",
        json!({ "conditions": conditions }),
    )
    .await;
    let spec = json!({"parentRefs": [{"name": "edge"}], "hostnames": ["other.example.com"], "rules": [{}]});
    cluster
        .apply("HTTPRoute", "r", json!({ "spec": spec }))
        .await;
    eventually("the edit is observed", async || generation(2).await).await;
    let route = cluster.get("HTTPRoute", "r").await;
    let stranger = parent(&route, "gateway.networking.k8s.io/stale-controller");
    assert_eq!(stranger, Some(&foreign()), "equal in every field");
    let gateway = cluster.get("Gateway", "edge").await;
    assert_eq!(
        condition(
            &gateway["status"],
            "conformance.gateway.networking.k8s.io/StaleCondition"
        ),
        Some(&stale)
    );
    cluster.delete("Gateway", "edge").await;
    eventually("the entry is pruned", async || {
        parent(&cluster.get("HTTPRoute", "r").await, own).is_none()
    })
    .await;
    let route = cluster.get("HTTPRoute", "r").await;
    assert_eq!(route["status"]["parents"], json!([foreign()]));
    drop(controller);
    cluster.clean_up().await;
}

// "A thousand routes applied at once cost N writes, not N²."
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn many_routes_are_written_once_each() {
    const ROUTES: usize = 300;
    let cluster = Cluster::new("many").await;
    let controller = cluster.controller().await;
    cluster.gateway("edge").await;
    let attached = async || {
        let gateway = cluster.get("Gateway", "edge").await;
        gateway["status"]["listeners"][0]["attachedRoutes"].as_u64()
    };
    eventually("the Gateway has a status", async || {
        attached().await == Some(0)
    })
    .await;
    let before = controller.cluster().metrics().status_writes();
    let names: Vec<String> = (0..ROUTES).map(|number| format!("r{number}")).collect();
    for some in names.chunks(30) {
        let created = some.iter().map(|name| cluster.route(name, "edge"));
        futures::future::join_all(created).await;
    }
    eventually("all are attached", async || {
        attached().await == Some(ROUTES as u64)
    })
    .await;
    let own = &cluster.controller_name;
    for name in &names {
        eventually("it has a status", async || {
            parent(&cluster.get("HTTPRoute", name).await, own).is_some()
        })
        .await;
    }
    eventually("nothing is left to write", async || {
        controller.has_written_all()
    })
    .await;
    let writes = controller.cluster().metrics().status_writes() - before;
    // Each route is written once, the Gateway at intervals.
    let most = ROUTES as u64 + ROUTES as u64 / 3;
    assert!((ROUTES as u64..most).contains(&writes), "{writes} writes");
    assert!(!controller.metrics_page().contains("failed\"} 1"));
    cluster.clean_up().await;
}

// "Leader election by Lease; followers … take over within seconds"
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_follower_writes_nothing_until_it_leads() {
    let cluster = Cluster::new("follower").await;
    let settings = |instance: &str| Settings {
        lease: Some(LeaseName {
            namespace: cluster.namespace.clone(),
            name: "pointsman".to_owned(),
        }),
        instance: instance.into(),
        ..cluster.settings()
    };
    let start = |instance| cluster.controller_with(cluster.client.clone(), settings(instance));
    let leader = start("first").await;
    eventually("it leads", async || leader.cluster().is_leader()).await;
    let follower = start("second").await;
    cluster.gateway("edge").await;
    cluster.route("before", "edge").await;
    let own = &cluster.controller_name;
    let is_written = async |name: &str| {
        let route = cluster.get("HTTPRoute", name).await;
        parent(&route, own).is_some()
    };
    eventually("the leader writes", async || is_written("before").await).await;
    let key = |name| cluster.key(pointsman_resources::Kind::HTTPRoute, name);
    eventually("the follower knows", async || {
        follower.knows(&key("before"))
    })
    .await;
    assert!(!follower.cluster().is_leader());
    let metrics = follower.metrics_page();
    assert!(
        metrics.contains("pointsman_kubernetes_status_queue 0\n"),
        "it has nothing to write"
    );
    let reconciled = "pointsman_kubernetes_reconcile_seconds_count ";
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix(reconciled));
    assert_ne!(count, Some("0"), "it applies changes");
    leader.stop().await;
    cluster.route("after", "edge").await;
    eventually("the follower takes over", async || {
        is_written("after").await
    })
    .await;
    assert!(follower.cluster().is_leader());
    let writes = follower.cluster().metrics().status_writes();
    // The new route, and the Gateway that counts it.
    assert!((1..=2).contains(&writes), "{writes} writes");
    cluster.clean_up().await;
}

// "gateway-api#5115: status is fought over by two controllers"
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn two_installations_share_a_route_and_writes_stop() {
    let one = Cluster::new("one").await;
    let two = Cluster::new("two").await;
    let (first, second) = (one.controller().await, two.controller().await);
    one.gateway("edge").await;
    two.gateway("edge").await;
    let spec = json!({"parentRefs": [{"name": "edge"}, {"name": "edge", "namespace": two.namespace}], "rules": [{}]});
    one.apply("HTTPRoute", "shared", json!({ "spec": spec }))
        .await;
    let route = async || one.get("HTTPRoute", "shared").await;
    eventually("both have an entry", async || {
        let route = route().await;
        parent(&route, &one.controller_name).is_some()
            && parent(&route, &two.controller_name).is_some()
    })
    .await;
    eventually("nothing is left to write", async || {
        first.has_written_all() && second.has_written_all()
    })
    .await;
    let version = route().await["metadata"]["resourceVersion"].clone();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(route().await["metadata"]["resourceVersion"], version);
    assert_eq!(
        route().await["status"]["parents"].as_array().map(Vec::len),
        Some(2)
    );
    one.clean_up().await;
    two.clean_up().await;
}

/// Events on an object, as reason and count.
async fn events(cluster: &Cluster, name: &str) -> Vec<(String, i64)> {
    let events = cluster.api("Event").list(&Default::default()).await;
    let events = events.expect("they are listed").items.into_iter();
    let events = events.map(|event| event.data);
    let mut found: Vec<(String, i64)> = events
        .filter(|event| event["regarding"]["name"] == name)
        .map(|event| {
            let reason = event["reason"].as_str().unwrap_or_default();
            (
                reason.to_owned(),
                event["series"]["count"].as_i64().unwrap_or(1),
            )
        })
        .collect();
    found.sort();
    found
}

// "Events on objects for what a person should see, deduplicated."
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_problem_is_reported_as_an_event_once() {
    let cluster = Cluster::new("events").await;
    let controller = cluster.controller().await;
    cluster.gateway("edge").await;
    let spec = |backend: &str| json!({"spec": {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": backend, "port": 80}]}]}});
    cluster.apply("HTTPRoute", "r", spec("missing")).await;
    let reported = async |wanted: &[(&str, i64)]| {
        let found = events(&cluster, "r").await;
        found
            .iter()
            .map(|(reason, count)| (&**reason, *count))
            .eq(wanted.iter().copied())
    };
    eventually("it is reported", async || {
        reported(&[("BackendNotFound", 1)]).await
    })
    .await;
    // Another replica takes over and finds the same problem.
    drop(controller);
    let controller = cluster.controller().await;
    eventually("it is counted", async || {
        reported(&[("BackendNotFound", 2)]).await
    })
    .await;
    cluster.apply("HTTPRoute", "r", spec("absent")).await;
    eventually("another backend is missing", async || {
        reported(&[("BackendNotFound", 1), ("BackendNotFound", 2)]).await
    })
    .await;
    drop(controller);
    cluster.clean_up().await;
}
