//! Kuma on Kubernetes: Services and Pods, namespaces and roles, and routes of the Gateway API for the same calls.

use pointsman_resources::{Kind, ObjectKey};
use pointsman_routing::explain::{Explanation, Query};

use crate::{World, fate, policies};

/// Namespaces `kuma-demo` with `backend` (v1 and v2) and `web`, and `team` with a client, all in the mesh.
const CLUSTER: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: kuma-demo, labels: {kuma.io/sidecar-injection: enabled}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {kuma.io/sidecar-injection: enabled}}}
---
{apiVersion: v1, kind: Service, metadata: {name: backend, namespace: kuma-demo}, spec: {selector: {app: backend}, ports: [{name: http, port: 3001, appProtocol: http}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: backend-1, namespace: kuma-demo, labels: {app: backend, version: "1.0"}}, status: {podIP: 10.1.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: backend-2, namespace: kuma-demo, labels: {app: backend, version: "2.0"}}, status: {podIP: 10.1.0.2}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: kuma-demo, labels: {app: web}}, status: {podIP: 10.1.0.3}}
---
{apiVersion: v1, kind: Pod, metadata: {name: client-1, namespace: team, labels: {app: client}}, status: {podIP: 10.2.0.1}}
"#;

fn world(yaml: &str) -> World {
    World::of(&format!("{CLUSTER}\n---\n{yaml}"))
}

fn from(world: &World, namespace: &str, pod: &str, url: &str) -> Explanation {
    let mut query = Query::new(url).expect("a URL");
    query.dataplane = Some(ObjectKey::new(Kind::Pod, namespace, pod));
    world.ask(&query)
}

fn policy(namespace: &str, name: &str, target: &str, to: &str, version: &str) -> String {
    format!(
        "\n---\n{{apiVersion: kuma.io/v1alpha1, kind: MeshHTTPRoute, metadata: {{name: {name}, namespace: {namespace}, labels: {{kuma.io/mesh: default}}}}, spec: {{{target}to: [{{targetRef: {to}, rules: [{{matches: [{{path: {{type: PathPrefix, value: /}}}}], default: {{backendRefs: [{{kind: MeshServiceSubset, name: backend_kuma-demo_svc_3001, tags: {{version: \"{version}\"}}}}]}}}}]}}]}}}}"
    )
}

const URL: &str = "http://backend.kuma-demo:3001/";
const BACKEND: &str = "{kind: MeshService, name: backend}";
const V1: &str = "backend_kuma-demo_svc_3001[version=1.0] 100";
const V2: &str = "backend_kuma-demo_svc_3001[version=2.0] 100";

/// "producer route: same namespace as the service, affects all clients".
#[test]
fn a_producers_policy_is_for_all_clients() {
    let world = world(&policy("kuma-demo", "producer", "", BACKEND, "2.0"));
    for (namespace, pod) in [("kuma-demo", "web-1"), ("team", "client-1")] {
        let found = from(&world, namespace, pod, URL);
        assert_eq!(fate(&found), V2);
        assert_eq!(found.backends[0].endpoints, ["10.1.0.2:3001"]);
    }
    let by_name = from(
        &world,
        "kuma-demo",
        "web-1",
        "http://backend_kuma-demo_svc_3001.mesh/",
    );
    assert_eq!(fate(&by_name), V2);
}

/// "`consumer` policies apply only to dataplanes of the policy's namespace", and come before the producer's.
#[test]
fn a_consumer_policy_applies_to_its_own_namespace_and_is_stronger() {
    let to = "{kind: MeshService, name: backend, namespace: kuma-demo}";
    let world = world(&format!(
        "{}{}",
        policy("kuma-demo", "a", "", BACKEND, "2.0"),
        policy("team", "z", "", to, "1.0")
    ));
    assert_eq!(fate(&from(&world, "team", "client-1", URL)), V1);
    assert_eq!(fate(&from(&world, "kuma-demo", "web-1", URL)), V2);
}

/// "system < producer"; and a destination by the older name.
#[test]
fn a_policy_of_the_system_namespace_is_weakest() {
    let legacy = "{kind: MeshService, name: backend_kuma-demo_svc_3001}";
    let system = policy("kuma-system", "a", "", legacy, "1.0");
    let alone = world(&system);
    assert_eq!(fate(&from(&alone, "team", "client-1", URL)), V1);
    let both = world(&format!(
        "{system}{}",
        policy("kuma-demo", "z", "", BACKEND, "2.0")
    ));
    let found = from(&both, "team", "client-1", URL);
    assert_eq!(fate(&found), V2);
    assert_eq!(policies(&found), ["kuma-demo/z"]);
}

#[test]
fn pods_are_selected_by_their_labels_and_services() {
    let subset = "targetRef: {kind: MeshSubset, tags: {app: web}}, ";
    let world = world(&policy("kuma-demo", "r", subset, BACKEND, "2.0"));
    assert_eq!(fate(&from(&world, "kuma-demo", "web-1", URL)), V2);
    let other = from(&world, "team", "client-1", URL);
    assert!(
        fate(&other).starts_with("NoFrontend"),
        "no policy is for it"
    );
}

#[test]
fn destinations_are_found_by_labels_and_sections() {
    let labels = "{kind: MeshService, labels: {kuma.io/display-name: backend, k8s.kuma.io/namespace: kuma-demo}, sectionName: http}";
    let found = world(&policy("kuma-system", "r", "", labels, "2.0"));
    assert_eq!(fate(&from(&found, "team", "client-1", URL)), V2);
    let section = "{kind: MeshService, name: backend, sectionName: grpc}";
    let found = world(&policy("kuma-demo", "r", "", section, "2.0"));
    assert!(fate(&from(&found, "team", "client-1", URL)).starts_with("NoFrontend"));
}

/// MADR 045's own example, on a gateway that a MeshGatewayInstance serves.
#[test]
fn a_mesh_gateway_instance_serves_its_mesh_gateway() {
    let world = world(
        r#"
{apiVersion: kuma.io/v1alpha1, kind: MeshGateway, metadata: {name: edge-gateway}, mesh: default, spec: {selectors: [{match: {kuma.io/service: edge-gateway_kuma-demo_svc}}], conf: {listeners: [{port: 80, protocol: HTTP, hostname: example.com}]}}}
---
{apiVersion: kuma.io/v1alpha1, kind: MeshGatewayInstance, metadata: {name: edge-gateway, namespace: kuma-demo, labels: {kuma.io/mesh: default}}, spec: {replicas: 1, serviceType: ClusterIP}}
---
{apiVersion: kuma.io/v1alpha1, kind: MeshHTTPRoute, metadata: {name: edge-routes, namespace: team}, spec: {targetRef: {kind: MeshGateway, name: edge-gateway}, to: [{targetRef: {kind: Mesh}, hostnames: [example.com], rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshService, name: backend_kuma-demo_svc_3001}]}}]}]}}"#,
    );
    let mut query = Query::new("http://example.com/").expect("a URL");
    query.gateway = Some((pointsman_resources::Name::new("", "edge-gateway"), None));
    let found = world.ask(&query);
    assert_eq!(fate(&found), "backend_kuma-demo_svc_3001 100");
    // A MeshGateway has no namespace.
    let listener = "listener 80/example.com of MeshGateway edge-gateway on port 80";
    assert!(found.why.starts_with(listener), "{}", found.why);
    assert_eq!(
        found.backends[0].endpoints,
        ["10.1.0.1:3001", "10.1.0.2:3001"]
    );
    let said = world.conditions(Kind::MeshGateway, "/edge-gateway");
    assert!(
        said[0].contains("served by MeshGatewayInstance kuma-demo/edge-gateway"),
        "{said:?}"
    );
}

/// "Kuma policy, consumer route and producer route for the same traffic | in this order; a loser keeps Accepted and gets
/// `pointsman.io/Overridden`=True naming the winner".
#[test]
fn a_policy_overrides_routes_of_the_gateway_api() {
    let route = "\n---\n{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: gamma, namespace: kuma-demo}, spec: {parentRefs: [{group: '', kind: Service, name: backend, port: 3001}], rules: [{backendRefs: [{name: backend, port: 3001}]}]}}";
    let without = world(route);
    let said = without.conditions(Kind::HTTPRoute, "kuma-demo/gamma");
    assert!(!said.iter().any(|c| c.contains("Overridden")), "{said:?}");
    let world = world(&format!(
        "{route}{}",
        policy("kuma-demo", "producer", "", BACKEND, "2.0")
    ));
    let said = world.conditions(Kind::HTTPRoute, "kuma-demo/gamma");
    assert!(said[0].starts_with("Accepted=true"), "{said:?}");
    let told = said.iter().any(|c| {
        c.starts_with("pointsman.io/Overridden=true/KumaPolicy: MeshHTTPRoute kuma-demo/producer takes precedence for calls from")
            && c.contains("Pod team/client-1")
    });
    assert!(told, "{said:?}");
    assert_eq!(fate(&from(&world, "team", "client-1", URL)), V2);
}

/// "Role computation: … none => `consumer`". If the label decided, anyone with permission to write policies in one namespace could affect the traffic of all.
#[test]
fn a_label_assigns_no_role() {
    let to = "{kind: MeshService, name: backend, namespace: kuma-demo}";
    for role in ["system", "producer", "workload-owner"] {
        let policy = policy("team", "mine", "", to, "2.0").replace(
            "kuma.io/mesh: default}",
            &format!("kuma.io/mesh: default, kuma.io/policy-role: {role}}}"),
        );
        let world = world(&policy);
        assert_eq!(fate(&from(&world, "team", "client-1", URL)), V2, "{role}");
        let other = from(&world, "kuma-demo", "web-1", URL);
        assert!(other.rule.is_none(), "{role}");
    }
}

/// "`kuma.io/protocol` (from `appProtocol`, else annotation `<port>.service.kuma.io/protocol`, else `tcp`)".
#[test]
fn an_annotation_may_set_the_protocol() {
    let cluster = CLUSTER
        .replace(", appProtocol: http", "")
        .replace("metadata: {name: backend, namespace: kuma-demo}", "metadata: {name: backend, namespace: kuma-demo, annotations: {3001.service.kuma.io/protocol: http}}");
    let world = World::of(&format!(
        "{cluster}{}",
        policy("kuma-demo", "producer", "", BACKEND, "2.0")
    ));
    assert_eq!(fate(&from(&world, "kuma-demo", "web-1", URL)), V2);
}

/// A policy without rules has no effect, which is reported: routes of the Gateway API still apply.
#[test]
fn a_policy_without_rules_overrides_nothing() {
    let route = "\n---\n{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: gw, namespace: kuma-demo}, spec: {parentRefs: [{group: '', kind: Service, name: backend}], rules: [{backendRefs: [{name: backend, port: 3001}]}]}}";
    for rules in ["", ", rules: []"] {
        let policy = format!(
            "\n---\n{{apiVersion: kuma.io/v1alpha1, kind: MeshHTTPRoute, metadata: {{name: c, namespace: kuma-demo}}, spec: {{to: [{{targetRef: {{kind: MeshService, name: backend}}{rules}}}]}}}}"
        );
        let world = world(&format!("{route}{policy}"));
        let key = ObjectKey::new(Kind::HTTPRoute, "kuma-demo", "gw");
        let said = world.binder.status(&key).expect("a status").conditions();
        assert!(
            said.iter()
                .all(|(_, c)| c.kind != "pointsman.io/Overridden"),
            "{said:?}"
        );
        let warnings = world.binder.warnings();
        assert!(
            warnings
                .iter()
                .any(|w| w.message == "there are no rules, so this item has no effect"),
            "{warnings:?}"
        );
    }
}

/// A Pod is found even if no policy applies to it.
#[test]
fn a_pod_without_policies_is_a_proxy_too() {
    let world = world("{apiVersion: v1, kind: Namespace, metadata: {name: other}}");
    let found = world.binder.named_proxies("team/client-1");
    assert_eq!(found, [ObjectKey::new(Kind::Pod, "team", "client-1")]);
    assert_eq!(world.binder.named_proxies("other/client-1"), []);
}

/// A Service on Kubernetes is not a service of a universal document with the same name.
#[test]
fn a_namespace_in_a_target_is_one_of_kubernetes() {
    let universal = "\n---\n{type: Dataplane, mesh: default, name: u, networking: {address: 10.7.0.1, inbound: [{port: 80, tags: {kuma.io/service: backend, kuma.io/protocol: http}}]}}\n---\n{type: Dataplane, mesh: default, name: web, networking: {address: 10.7.0.2, inbound: [{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 10001, tags: {kuma.io/service: backend}}]}}";
    let to = "{kind: MeshService, name: backend, namespace: kuma-demo}";
    let world = world(&format!(
        "{universal}{}",
        policy("kuma-system", "p", "", to, "2.0")
    ));
    let mut query = Query::new("http://127.0.0.1:10001/").expect("a URL");
    query.dataplane = Some(ObjectKey::new(Kind::Dataplane, "mesh:default", "web"));
    assert!(world.ask(&query).rule.is_none());
    assert_eq!(fate(&from(&world, "team", "client-1", URL)), V2);
}

/// A policy that was copied into the system namespace belongs to the namespace that it came from: there it is a producer's, or a consumer's.
#[test]
fn a_policy_synced_into_the_system_namespace_belongs_to_its_own() {
    let synced = |name: &str, namespace: &str, to: &str| {
        policy("kuma-system", name, "", to, "2.0").replace(
            "kuma.io/mesh: default}",
            &format!(
                "kuma.io/mesh: default, k8s.kuma.io/namespace: {namespace}, kuma.io/origin: zone}}"
            ),
        )
    };
    // A producer policy: its destination is in that namespace, and it applies to all clients.
    let bound = world(&synced("producer-x8f2", "kuma-demo", BACKEND));
    for (namespace, pod) in [("kuma-demo", "web-1"), ("team", "client-1")] {
        assert_eq!(fate(&from(&bound, namespace, pod, URL)), V2);
    }
    // A consumer policy applies only to the clients of its namespace.
    let to = "{kind: MeshService, name: backend, namespace: kuma-demo}";
    let bound = world(&synced("consumer-x8f2", "team", to));
    assert_eq!(fate(&from(&bound, "team", "client-1", URL)), V2);
    assert!(from(&bound, "kuma-demo", "web-1", URL).rule.is_none());
    // In other namespaces the label is ignored.
    let forged =
        synced("forged", "kuma-demo", to).replace("namespace: kuma-system", "namespace: team");
    let bound = world(&forged);
    assert_eq!(fate(&from(&bound, "team", "client-1", URL)), V2);
    assert!(from(&bound, "kuma-demo", "web-1", URL).rule.is_none());
}

/// A Service may refer to its target port by name; each Pod defines the number.
#[test]
fn named_target_ports_are_those_of_the_pods() {
    let cluster = CLUSTER
        .replace("port: 3001, appProtocol", "port: 3001, targetPort: web, appProtocol")
        .replace(
            "version: \"1.0\"}}, status",
            "version: \"1.0\"}}, spec: {containers: [{name: a, ports: [{containerPort: 9000}, {name: web, containerPort: 8080}]}]}, status",
        )
        .replace(
            "version: \"2.0\"}}, status",
            "version: \"2.0\"}}, spec: {initContainers: [{name: s, restartPolicy: Always, ports: [{name: web, containerPort: 8081}]}, {name: i, ports: [{name: web, containerPort: 1}]}], containers: [{name: a, ports: [{name: web, containerPort: 53, protocol: UDP}]}]}, status",
        );
    let policy = policy("kuma-demo", "producer", "", BACKEND, "2.0").replace(
        "{kind: MeshServiceSubset, name: backend_kuma-demo_svc_3001, tags: {version: \"2.0\"}}",
        "{kind: MeshService, name: backend, port: 3001}",
    );
    let world = World::of(&format!("{cluster}{policy}"));
    let found = from(&world, "kuma-demo", "web-1", URL);
    assert_eq!(
        found.backends[0].endpoints,
        ["10.1.0.1:8080", "10.1.0.2:8081"]
    );
}

/// Kuma generates Dataplanes from Pods. Manifests of an application have Pods alone, and a MeshService selects them as it would select their Dataplanes.
#[test]
fn a_mesh_service_selects_pods_that_have_no_dataplane() {
    let named = CLUSTER.replace(
        "version: \"1.0\"}}, status",
        "version: \"1.0\"}}, spec: {containers: [{name: a, ports: [{name: web, containerPort: 8080}]}]}, status",
    );
    let of = |selector: &str, port: &str| {
        let service = format!(
            "\n---\n{{apiVersion: kuma.io/v1alpha1, kind: MeshService, metadata: {{name: backend, namespace: kuma-demo, labels: {{kuma.io/mesh: default}}}}, spec: {{selector: {selector}, ports: [{{port: 80, targetPort: {port}, appProtocol: http}}]}}}}"
        );
        let policy = policy("kuma-demo", "own", "", BACKEND, "1.0").replace(
            "{kind: MeshServiceSubset, name: backend_kuma-demo_svc_3001, tags: {version: \"1.0\"}}",
            "{kind: MeshService, name: backend, port: 80}",
        );
        let world = World::of(&format!("{named}{service}{policy}"));
        let found = from(&world, "kuma-demo", "web-1", URL);
        let warnings = world.binder.warnings();
        let is_warned = warnings
            .iter()
            .any(|warning| warning.message.contains("no ready inbound backs port 80"));
        (found.backends[0].endpoints.clone(), is_warned)
    };
    let both = ["10.1.0.1:3001", "10.1.0.2:3001"];
    for (selector, port, expected) in [
        ("{dataplaneTags: {app: backend}}", "3001", &both[..]),
        (
            "{dataplaneTags: {kuma.io/service: backend_kuma-demo_svc_3001}}",
            "3001",
            &both,
        ),
        (
            "{dataplaneTags: {version: \"2.0\", k8s.kuma.io/namespace: kuma-demo}}",
            "3001",
            &both[1..],
        ),
        (
            "{dataplaneLabels: {matchLabels: {version: \"1.0\"}}}",
            "3001",
            &both[..1],
        ),
        ("{dataplaneRef: {name: backend-2}}", "3001", &both[1..]),
        ("{dataplaneTags: {app: backend}}", "web", &["10.1.0.1:8080"]),
        ("{dataplaneTags: {app: nobody}}", "3001", &[]),
    ] {
        let (endpoints, is_warned) = of(selector, port);
        assert_eq!(endpoints, expected, "{selector}");
        assert_eq!(is_warned, expected.is_empty(), "{selector}");
    }
}
