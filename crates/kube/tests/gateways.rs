//! Objects that are generated for Gateways. `scripts/test-kubernetes` runs these tests. No image is pulled, so no proxy becomes ready.

mod common;

use std::time::Duration;

use common::{Cluster, Controller, eventually};
use kube::api::{Patch, PatchParams, PostParams};
use pointsman_kube::Settings;
use pointsman_kube::gateways::{InfrastructureSettings, object_name};
use pointsman_kube::identity::authority::{AuthoritySettings, Rotation, service_names};
use pointsman_resources::Name;
use serde_json::{Value, json};

const LABEL: &str = "gateway.networking.k8s.io/gateway-name";

async fn start(cluster: &Cluster) -> Controller {
    let mut settings = cluster.settings();
    settings.controller.generates_proxies = true;
    let settings = Settings {
        // Other tests' namespaces are not touched.
        watch_namespaces: vec![cluster.namespace.clone()],
        authority: Some(AuthoritySettings {
            namespace: cluster.namespace.clone(),
            secret: "authority".to_owned(),
            names: service_names("controller", &cluster.namespace),
            rotation: Rotation::default(),
        }),
        infrastructure: Some(InfrastructureSettings {
            image: "example.com/none:1".to_owned(),
            pull_policy: "Never".to_owned(),
            control_plane: "https://controller:15010".to_owned(),
            probes: [0, 0, 0, 0].into(),
            controller_name: cluster.controller_name.clone(),
            endpoint_flags: Vec::new(),
            // No Pod becomes ready.
            replacement_deadline: Duration::from_secs(3),
        }),
        ..settings
    };
    cluster
        .controller_with(cluster.client.clone(), settings)
        .await
}

fn name_of(cluster: &Cluster, gateway: &str) -> String {
    let name = Name::new(cluster.namespace.clone(), gateway);
    object_name(&name, &cluster.namespace)
}

async fn find(cluster: &Cluster, kind: &str, name: &str) -> Option<Value> {
    let found = cluster.api(kind).get_opt(name).await.expect("an answer")?;
    (found.metadata.deletion_timestamp.is_none())
        .then(|| serde_json::to_value(found).expect("it is JSON"))
}

async fn wait_for(cluster: &Cluster, kind: &str, name: &str) -> Value {
    let what = format!("{kind} {name} exists");
    eventually(&what, async || find(cluster, kind, name).await.is_some()).await;
    find(cluster, kind, name).await.expect("it exists")
}

async fn patch(cluster: &Cluster, kind: &str, name: &str, patch: Value) {
    let (api, patch) = (cluster.api(kind), Patch::Merge(patch));
    let patched = api.patch(name, &PatchParams::default(), &patch).await;
    drop(patched.unwrap_or_else(|error| panic!("{kind} {name}: {error}")));
}

async fn programmed(cluster: &Cluster, gateway: &str) -> (String, String) {
    let gateway = cluster.get("Gateway", gateway).await;
    let conditions = gateway["status"]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    let found = conditions.find(|one| one["type"] == "Programmed");
    let text = |field: &str| {
        let found = found.as_ref().and_then(|one| one[field].as_str());
        found.unwrap_or_default().to_owned()
    };
    (text("reason"), text("message"))
}

const KINDS: [&str; 5] = [
    "ServiceAccount",
    "ConfigMap",
    "Deployment",
    "Service",
    "PodDisruptionBudget",
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_gateway_gets_its_objects_and_they_are_repaired() {
    let cluster = Cluster::new("generated").await;
    let _controller = start(&cluster).await;
    cluster.gateway("edge").await;
    let name = name_of(&cluster, "edge");
    for kind in KINDS {
        let object = wait_for(&cluster, kind, &name).await;
        assert_eq!(object["metadata"]["labels"][LABEL], "edge", "{kind}");
        assert_eq!(object["metadata"]["ownerReferences"][0]["name"], "edge");
    }
    let authority = cluster.get("ConfigMap", &name).await;
    let bundle = authority["data"]["ca.crt"].as_str().unwrap_or_default();
    assert!(bundle.starts_with("-----BEGIN CERTIFICATE-----"));
    eventually("the status says that no proxy is ready", async || {
        programmed(&cluster, "edge").await.0 == "Pending"
            || programmed(&cluster, "edge").await.0 == "AddressNotAssigned"
    })
    .await;
    // Changes by others are reverted.
    patch(
        &cluster,
        "Deployment",
        &name,
        json!({"spec": {"replicas": 7}}),
    )
    .await;
    eventually("the number of proxies is restored", async || {
        cluster.get("Deployment", &name).await["spec"]["replicas"] == 2
    })
    .await;
    let without_label = json!({"metadata": {"labels": {LABEL: null}}});
    patch(&cluster, "Service", &name, without_label).await;
    eventually("the label is restored", async || {
        cluster.get("Service", &name).await["metadata"]["labels"][LABEL] == "edge"
    })
    .await;
    let uid = cluster.get("ServiceAccount", &name).await["metadata"]["uid"].clone();
    cluster.delete("ServiceAccount", &name).await;
    eventually("the account is created again", async || {
        let found = find(&cluster, "ServiceAccount", &name).await;
        found.is_some_and(|found| found["metadata"]["uid"] != uid)
    })
    .await;
    // Labels that others add stay.
    patch(
        &cluster,
        "Service",
        &name,
        json!({"metadata": {"labels": {"other": "x"}}}),
    )
    .await;
    let spec = json!({"gatewayClassName": cluster.namespace, "infrastructure": {"labels": {"team": "a"}},
        "listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}]});
    cluster
        .apply("Gateway", "edge", json!({ "spec": spec }))
        .await;
    eventually("the Service follows the listeners", async || {
        let service = cluster.get("Service", &name).await;
        let labels = &service["metadata"]["labels"];
        let ports = service["spec"]["ports"].as_array().map(Vec::len);
        service["spec"]["ports"][0]["port"] == 8080
            && ports == Some(1)
            && labels["team"] == "a"
            && labels["other"] == "x"
    })
    .await;
    // They are deleted with the Gateway.
    cluster.delete("Gateway", "edge").await;
    for kind in KINDS {
        eventually(&format!("{kind} is gone"), async || {
            find(&cluster, kind, &name).await.is_none()
        })
        .await;
    }
    cluster.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn objects_that_parameters_no_longer_request_are_removed() {
    let cluster = Cluster::new("scaling").await;
    let _controller = start(&cluster).await;
    let parameters = async |spec: Value| {
        cluster
            .apply("GatewayParameters", "own", json!({ "spec": spec }))
            .await;
    };
    parameters(json!({"autoscaling": {"maxReplicas": 4}, "service": {"type": "ClusterIP"}})).await;
    let reference = json!({"group": "pointsman.io", "kind": "GatewayParameters", "name": "own"});
    let spec = json!({"gatewayClassName": cluster.namespace, "infrastructure": {"parametersRef": reference},
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]});
    cluster
        .apply("Gateway", "edge", json!({ "spec": spec }))
        .await;
    let name = name_of(&cluster, "edge");
    let autoscaler = wait_for(&cluster, "HorizontalPodAutoscaler", &name).await;
    assert_eq!(autoscaler["spec"]["maxReplicas"], 4);
    let service = wait_for(&cluster, "Service", &name).await;
    assert_eq!(service["spec"]["type"], "ClusterIP");
    eventually("the Gateway has the cluster IP", async || {
        let gateway = cluster.get("Gateway", "edge").await;
        let address = &gateway["status"]["addresses"][0]["value"];
        *address == service["spec"]["clusterIP"]
    })
    .await;
    parameters(json!({"workload": "DaemonSet", "service": {"type": "ClusterIP"}})).await;
    wait_for(&cluster, "DaemonSet", &name).await;
    // The Deployment serves until the DaemonSet does.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(find(&cluster, "Deployment", &name).await.is_some());
    for kind in [
        "HorizontalPodAutoscaler",
        "Deployment",
        "PodDisruptionBudget",
    ] {
        eventually(&format!("{kind} is removed"), async || {
            find(&cluster, kind, &name).await.is_none()
        })
        .await;
    }
    cluster.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn autoscaling_starts_with_the_current_number_of_proxies() {
    let cluster = Cluster::new("handover").await;
    let _controller = start(&cluster).await;
    let parameters = async |spec: Value| {
        cluster
            .apply("GatewayParameters", "own", json!({ "spec": spec }))
            .await;
    };
    parameters(json!({"replicas": 5})).await;
    let reference = json!({"group": "pointsman.io", "kind": "GatewayParameters", "name": "own"});
    let spec = json!({"gatewayClassName": cluster.namespace, "infrastructure": {"parametersRef": reference},
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]});
    cluster
        .apply("Gateway", "edge", json!({ "spec": spec }))
        .await;
    let name = name_of(&cluster, "edge");
    wait_for(&cluster, "Deployment", &name).await;
    let replicas = async || cluster.get("Deployment", &name).await["spec"]["replicas"].clone();
    assert_eq!(replicas().await, 5);
    parameters(json!({"autoscaling": {"maxReplicas": 8}})).await;
    wait_for(&cluster, "HorizontalPodAutoscaler", &name).await;
    assert_eq!(replicas().await, 5);
    // The autoscaler's changes are not reverted.
    patch(
        &cluster,
        "Deployment",
        &name,
        json!({"spec": {"replicas": 7}}),
    )
    .await;
    patch(
        &cluster,
        "Service",
        &name,
        json!({"metadata": {"labels": {LABEL: null}}}),
    )
    .await;
    eventually("the label is restored", async || {
        cluster.get("Service", &name).await["metadata"]["labels"][LABEL] == "edge"
    })
    .await;
    assert_eq!(replicas().await, 7);
    parameters(json!({"replicas": 3})).await;
    eventually("the number is fixed again", async || replicas().await == 3).await;
    cluster.clean_up().await;
}

// "Its garbage collection removes what a Gateway owns", and nothing else.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn an_object_without_the_gateway_as_its_owner_is_not_deleted() {
    let cluster = Cluster::new("labelled").await;
    let _controller = start(&cluster).await;
    cluster.gateway("edge").await;
    let name = name_of(&cluster, "edge");
    let service = wait_for(&cluster, "Service", &name).await;
    let metadata = json!({"labels": service["metadata"]["labels"], "annotations": service["metadata"]["annotations"]});
    let copy = json!({"metadata": metadata, "spec": {"ports": [{"port": 80}]}});
    cluster.apply("Service", "copy", copy).await;
    cluster.delete("Gateway", "edge").await;
    eventually("the Service is gone", async || {
        find(&cluster, "Service", &name).await.is_none()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(find(&cluster, "Service", "copy").await.is_some());
    cluster.clean_up().await;
}

// "a namespace with the restricted Pod Security Standard enforced admits … all generated proxies"
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn the_restricted_pod_security_standard_admits_proxies() {
    let cluster = Cluster::new("restricted").await;
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let enforced = json!({"metadata": {"labels": labels}});
    cluster
        .apply("Namespace", &cluster.namespace, enforced)
        .await;
    let _controller = start(&cluster).await;
    let admit = async |spec: &Value| {
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec});
        let pod = serde_json::from_value(pod).expect("a Pod");
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        cluster.api("Pod").create(&params, &pod).await
    };
    let reference = json!({"group": "pointsman.io", "kind": "GatewayParameters", "name": "own"});
    // Ports below 1024 need no privilege.
    let spec = json!({"gatewayClassName": cluster.namespace, "infrastructure": {"parametersRef": reference},
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]});
    let proxy =
        json!({"accessLog": "JSON", "trustedProxies": ["10.0.0.0/8"], "minTLSVersion": "1.3"});
    for workload in ["Deployment", "DaemonSet"] {
        let parameters = json!({"spec": {"workload": workload, "proxy": proxy}});
        cluster.apply("GatewayParameters", "own", parameters).await;
        cluster
            .apply("Gateway", "edge", json!({ "spec": spec }))
            .await;
        let generated = wait_for(&cluster, workload, &name_of(&cluster, "edge")).await;
        let mut pod = generated["spec"]["template"]["spec"].clone();
        admit(&pod).await.expect("the Pod is admitted");
        pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        let denied = admit(&pod).await.expect_err("the standard is enforced");
        assert!(denied.to_string().contains("PodSecurity"), "{denied}");
    }
    cluster.clean_up().await;
}

// "never touches an object that it does not own"
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_service_of_another_owner_is_reported_and_not_changed() {
    let cluster = Cluster::new("foreign").await;
    let name = name_of(&cluster, "edge");
    let foreign = json!({"spec": {"ports": [{"port": 1234}], "selector": {"app": "other"}}});
    cluster.apply("Service", &name, foreign).await;
    let before = cluster.get("Service", &name).await;
    let _controller = start(&cluster).await;
    cluster.gateway("edge").await;
    let expected = format!("Service {name} exists and does not belong to this Gateway");
    eventually("the Gateway says so", async || {
        let (reason, message) = programmed(&cluster, "edge").await;
        reason == "NoResources" && message.contains(&expected)
    })
    .await;
    let after = cluster.get("Service", &name).await;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&after), version(&before));
    eventually("an Event says so", async || {
        let events = cluster.api("Event").list(&Default::default()).await;
        let events = events.expect("a list").items;
        events.iter().any(|event| {
            let note = event.data["note"].as_str().unwrap_or_default();
            note.contains(&expected)
        })
    })
    .await;
    cluster.delete("Service", &name).await;
    eventually("its own Service takes the place", async || {
        let service = find(&cluster, "Service", &name).await;
        service.is_some_and(|service| service["metadata"]["labels"][LABEL] == "edge")
    })
    .await;
    cluster.clean_up().await;
}

// GatewayNameMaximumLength
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn the_longest_names_of_gateways_are_served() {
    let cluster = Cluster::new("names").await;
    let _controller = start(&cluster).await;
    let longest = "g".repeat(253);
    let similar = format!("{}h", "g".repeat(252));
    for gateway in [&longest, &similar] {
        cluster.gateway(gateway).await;
        let name = name_of(&cluster, gateway);
        for kind in KINDS {
            let object = wait_for(&cluster, kind, &name).await;
            let owner = &object["metadata"]["ownerReferences"][0]["name"];
            assert_eq!(owner, gateway, "{kind}");
        }
    }
    cluster.clean_up().await;
}
