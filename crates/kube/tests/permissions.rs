//! The permissions of a controller, compared with the requests that it makes. `scripts/test-kubernetes` runs this test.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::recorder::{Permission, Recorder};
use common::{Cluster, Controller, eventually};
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use pointsman_kube::gateways::{InfrastructureSettings, object_name};
use pointsman_kube::identity::authority::{
    AuthoritySettings, Rotation, SECRET_NAME, service_names,
};
use pointsman_kube::identity::tokens::Reviewer;
use pointsman_kube::lease::LEASE_NAME;
use pointsman_kube::permissions::{self, Scope};
use pointsman_kube::{LeaseName, Settings};
use pointsman_resources::Name;
use serde_json::{Value, json};

/// Authorities are rotated within seconds, which updates their Secret.
const ROTATION: Rotation = Rotation {
    lifetime: 120,
    renew: 119,
    distribute: 2,
    serving: 60,
};

/// Scope of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Installation {
    /// All namespaces are watched.
    Cluster,
    /// Only the namespace of the test is watched.
    Namespace,
}

impl Installation {
    /// Returns the permissions that are granted in the whole cluster, and those in the namespace of the test.
    fn scopes(self) -> [&'static [Scope]; 2] {
        match self {
            Installation::Cluster => [
                &[Scope::Cluster, Scope::Unrestricted, Scope::Watched],
                &[Scope::Own],
            ],
            Installation::Namespace => [&[Scope::Cluster], &[Scope::Own, Scope::Watched]],
        }
    }
}

fn settings(cluster: &Cluster, installation: Installation) -> Settings {
    let mut settings = cluster.settings();
    settings.controller.generates_proxies = true;
    if installation == Installation::Namespace {
        settings.controller.class = Some(cluster.namespace.as_str().into());
        settings.watch_namespaces = vec![cluster.namespace.clone()];
    }
    Settings {
        lease: Some(LeaseName {
            namespace: cluster.namespace.clone(),
            name: LEASE_NAME.to_owned(),
        }),
        authority: Some(AuthoritySettings {
            namespace: cluster.namespace.clone(),
            secret: SECRET_NAME.to_owned(),
            names: service_names("controller", &cluster.namespace),
            rotation: ROTATION,
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
    }
}

/// An object outside the table of `common`, deleted at the end of the test.
struct Objects {
    client: Client,
    created: Vec<(Api<DynamicObject>, String)>,
}

impl Objects {
    /// Creates an object. It is cluster-scoped if it has no namespace.
    async fn create(&mut self, object: Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&object["apiVersion"]);
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let gvk = GroupVersionKind::gvk(group, version, &text(&object["kind"]));
        let (resource, client) = (ApiResource::from_gvk(&gvk), self.client.clone());
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let name = text(&object["metadata"]["name"]);
        let created: DynamicObject = serde_json::from_value(object).expect("an object");
        let created = api.create(&Default::default(), &created).await;
        created.unwrap_or_else(|error| panic!("{} {name}: {error}", gvk.kind));
        self.created.push((api, name));
    }

    async fn delete(self) {
        for (api, name) in self.created.iter().rev() {
            let _ = api.delete(name, &DeleteParams::default()).await;
        }
    }
}

/// Grants a ServiceAccount the permissions of an installation, and returns its user name.
async fn grant(cluster: &Cluster, objects: &mut Objects, installation: Installation) -> String {
    let rules = |scopes: &[Scope]| {
        let scopes = scopes.iter().copied();
        json!(scopes.flat_map(permissions::with_scope).collect::<Vec<_>>())
    };
    let (namespace, api_version) = (&cluster.namespace, "rbac.authorization.k8s.io/v1");
    let [everywhere, own] = installation.scopes().map(rules);
    for (prefix, metadata, rules) in [
        ("Cluster", json!({"name": namespace}), everywhere),
        (
            "",
            json!({"name": "controller", "namespace": namespace}),
            own,
        ),
    ] {
        let kind = format!("{prefix}Role");
        let binding = json!({
            "apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": "controller", "namespace": namespace}],
        });
        let role =
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules});
        objects.create(role).await;
        objects.create(binding).await;
    }
    format!("system:serviceaccount:{namespace}:controller")
}

/// Objects of every kind whose status is written.
fn reported(cluster: &Cluster) -> Vec<Value> {
    let namespace = &cluster.namespace;
    let object = |api_version: &str, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "one", "namespace": namespace}, "spec": spec});
    let of_cluster = |api_version: &str, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": namespace}, "spec": spec});
    let (standard, experimental) = (
        "gateway.networking.k8s.io/v1",
        "gateway.networking.x-k8s.io/v1alpha1",
    );
    let kuma = "kuma.io/v1alpha1";
    let parents = json!([{"name": "edge"}]);
    // There is no such Service, so that there is something to report as an Event.
    let missing = json!([{"backendRefs": [{"name": "missing", "port": 80}]}]);
    let backend =
        json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "one"});
    let backends = json!([{"backendRefs": [{"name": "one", "port": 80}, backend]}]);
    let service = json!([{"group": "", "kind": "Service", "name": "one"}]);
    let gateway = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let mut all = vec![
        object("v1", "Service", json!({"ports": [{"port": 80}]})),
        object(
            standard,
            "ListenerSet",
            json!({"parentRef": {"name": "edge"}, "listeners": [{"name": "more", "port": 8080, "protocol": "HTTP"}]}),
        ),
        object(
            standard,
            "HTTPRoute",
            json!({"parentRefs": parents, "rules": backends}),
        ),
        object(
            standard,
            "BackendTLSPolicy",
            json!({"targetRefs": service, "validation": {"hostname": "one.example", "wellKnownCACertificates": "System"}}),
        ),
        object(
            experimental,
            "XBackend",
            json!({"type": "ExternalHostname", "externalHostname": {"hostname": "one.example"}, "port": {"number": 443}, "protocol": "HTTP"}),
        ),
        object(
            experimental,
            "XBackendTrafficPolicy",
            json!({"targetRefs": service, "retryConstraint": {"budget": {"percent": 20, "interval": "10s"}}}),
        ),
        object(
            experimental,
            "XTelemetryPolicy",
            json!({"targetRefs": [gateway], "tracing": {"mode": "Disabled"}}),
        ),
        of_cluster(
            experimental,
            "XMesh",
            json!({"controllerName": cluster.controller_name}),
        ),
        of_cluster(
            kuma,
            "MeshGateway",
            json!({"selectors": [{"match": {"kuma.io/service": "one"}}], "conf": {"listeners": [{"port": 80, "protocol": "HTTP"}]}}),
        ),
        object(
            kuma,
            "MeshExternalService",
            json!({"match": {"type": "HostnameGenerator", "port": 80, "protocol": "http"}, "endpoints": [{"address": "one.example", "port": 80}]}),
        ),
        object(
            kuma,
            "MeshHTTPRoute",
            json!({"targetRef": {"kind": "Mesh"}, "to": []}),
        ),
        object(
            kuma,
            "MeshTCPRoute",
            json!({"targetRef": {"kind": "Mesh"}, "to": [{"targetRef": {"kind": "MeshService", "name": "one"}, "rules": []}]}),
        ),
        object(
            kuma,
            "MeshGatewayHTTPRoute",
            json!({"targetRef": {"kind": "MeshGateway", "name": "one"}, "rules": []}),
        ),
    ];
    for kind in ["GRPCRoute", "TCPRoute", "UDPRoute"] {
        all.push(object(
            standard,
            kind,
            json!({"parentRefs": parents, "rules": missing}),
        ));
    }
    let names = json!(["one.example"]);
    all.push(object(
        standard,
        "TLSRoute",
        json!({"parentRefs": parents, "hostnames": names, "rules": missing}),
    ));
    all
}

/// Has every kind of generated object created, changed and deleted.
async fn generate(cluster: &Cluster) {
    let name = Name::new(cluster.namespace.clone(), "edge");
    let name = object_name(&name, &cluster.namespace);
    let exists = async |kind: &str| {
        let found = cluster.api(kind).get_opt(&name).await;
        found.expect("an answer").is_some()
    };
    for (spec, wanted, unwanted) in [
        (
            json!({"autoscaling": {"maxReplicas": 3}}),
            &[
                "Deployment",
                "PodDisruptionBudget",
                "HorizontalPodAutoscaler",
            ][..],
            &["DaemonSet"][..],
        ),
        (
            json!({"workload": "DaemonSet"}),
            &["DaemonSet"],
            &[
                "Deployment",
                "PodDisruptionBudget",
                "HorizontalPodAutoscaler",
            ],
        ),
        (json!({}), &["Deployment"], &["DaemonSet"]),
    ] {
        cluster
            .apply("GatewayParameters", "own", json!({ "spec": spec }))
            .await;
        for (kinds, is_wanted) in [(wanted, true), (unwanted, false)] {
            for kind in kinds {
                let what = format!("{kind}: {is_wanted}");
                eventually(&what, async || exists(kind).await == is_wanted).await;
            }
        }
    }
    // The Gateway becomes another controller's, so garbage collection leaves its objects to this one.
    apply_gateway(cluster, "other").await;
    for kind in ["ServiceAccount", "ConfigMap", "Deployment", "Service"] {
        eventually(&format!("{kind} is gone"), async || !exists(kind).await).await;
    }
}

/// Returns the resources that the API server serves, with their groups.
async fn served(client: &Client) -> BTreeSet<(String, String)> {
    let core = client.list_core_api_versions_aggregated().await;
    let groups = client.list_api_groups_aggregated().await;
    let groups = core
        .expect("an answer")
        .items
        .into_iter()
        .chain(groups.expect("an answer").items);
    let mut all = BTreeSet::new();
    for group in groups {
        let name = group.metadata.and_then(|metadata| metadata.name);
        let name = name.unwrap_or_default();
        for resource in group
            .versions
            .into_iter()
            .flat_map(|version| version.resources)
        {
            all.insert((name.clone(), resource.resource.unwrap_or_default()));
        }
    }
    all
}

/// Returns the permissions for resources that are served, with some scopes.
fn cells(scopes: &[Scope], served: &BTreeSet<(String, String)>) -> BTreeSet<Permission> {
    let mut all = BTreeSet::new();
    for permission in scopes.iter().copied().flat_map(permissions::with_scope) {
        for group in permission.api_groups {
            for resource in permission.resources {
                let kind = resource.split('/').next().unwrap_or_default();
                if !served.contains(&((*group).to_owned(), kind.to_owned())) {
                    continue;
                }
                let cells = permission.verbs.iter();
                all.extend(cells.map(|verb| {
                    (
                        (*group).to_owned(),
                        (*resource).to_owned(),
                        (*verb).to_owned(),
                    )
                }));
            }
        }
    }
    all
}

async fn start(cluster: &Cluster, client: &Client, installation: Installation) -> Controller {
    let controller = cluster
        .controller_with(client.clone(), settings(cluster, installation))
        .await;
    eventually("everything is listed", async || {
        controller.cluster().source().pending_watches().is_empty()
    })
    .await;
    controller
}

/// Applies the Gateway that everything is attached to, with a class.
async fn apply_gateway(cluster: &Cluster, class: &str) {
    let parameters = json!({"group": "pointsman.io", "kind": "GatewayParameters", "name": "own"});
    let spec = json!({"gatewayClassName": class, "infrastructure": {"parametersRef": parameters}, "allowedListeners": {"namespaces": {"from": "Same"}},
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}, {"name": "tcp", "port": 81, "protocol": "TCP"}, {"name": "udp", "port": 82, "protocol": "UDP"},
            {"name": "tls", "port": 83, "protocol": "TLS", "tls": {"mode": "Passthrough"}}]});
    cluster
        .apply("Gateway", "edge", json!({ "spec": spec }))
        .await;
}

// "RBAC lists exactly what is used"
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_controller_makes_the_requests_that_it_has_permission_for_and_no_others() {
    compare("permissions", Installation::Cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn so_does_a_controller_of_a_namespace() {
    compare("permissions-own", Installation::Namespace).await;
}

async fn compare(test: &str, installation: Installation) {
    let cluster = Cluster::new(test).await;
    let mut objects = Objects {
        client: cluster.client.clone(),
        created: Vec::new(),
    };
    let mut config = Config::infer().await.expect("KUBECONFIG names a cluster");
    config.auth_info.impersonate = Some(grant(&cluster, &mut objects, installation).await);
    let recorder: Arc<Recorder> = Arc::default();
    let client = recorder.client(config);
    let served = served(&cluster.client).await;
    for kind in ["clustertrustbundles", "serviceimports", "meshes"] {
        if !served.iter().any(|(_, resource)| resource == kind) {
            tracing::warn!("{kind} are not served: their permissions are not compared");
        }
    }

    apply_gateway(&cluster, &cluster.namespace).await;
    for object in reported(&cluster) {
        objects.create(object).await;
    }
    let first = start(&cluster, &client, installation).await;
    generate(&cluster).await;
    // Tokens of proxies.
    let verified = Reviewer::new(client.clone()).verify("unknown").await;
    assert!(verified.is_err());
    // The Service is gone before its deletion has been answered.
    let last = ["", "services", "delete"].map(str::to_owned).into();
    eventually("the deletion is answered", async || {
        recorder.used().contains(&last)
    })
    .await;
    first.stop().await;
    // Another replica reports the same problems.
    apply_gateway(&cluster, &cluster.namespace).await;
    let second = start(&cluster, &client, installation).await;
    let mut granted = cells(&installation.scopes().concat(), &served);
    if installation == Installation::Namespace {
        // Kuma's policies have no status without their Mesh, which is cluster-scoped.
        granted.retain(|(group, _, verb)| {
            group != "kuma.io" || ["list", "watch"].contains(&verb.as_str())
        });
    }
    eventually("every permission is used", async || {
        let unused = &granted - &recorder.used();
        if !unused.is_empty() {
            tracing::info!("not used yet: {unused:?}");
        }
        unused.is_empty()
    })
    .await;
    second.stop().await;
    // A controller of a namespace tries to watch cluster-scoped kinds, because it may be permitted to.
    let optional = match installation {
        Installation::Cluster => BTreeSet::new(),
        Installation::Namespace => cells(&[Scope::Unrestricted], &served),
    };
    let is_optional = |permission: &Option<Permission>| {
        permission.as_ref().is_some_and(|permission| {
            optional.contains(permission) && ["list", "watch"].contains(&&*permission.2)
        })
    };
    let mut denied = recorder.denied();
    denied.retain(|(permission, _)| !is_optional(permission));
    assert_eq!(denied, BTreeSet::new());
    objects.delete().await;
    cluster.clean_up().await;
}
