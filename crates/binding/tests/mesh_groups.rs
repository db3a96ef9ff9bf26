//! Producer, consumer and Gateway routes, and the clients to which they apply (GEP-1426, "Namespace boundaries" and "Multiple routes for a
//! Service").

mod common;

use common::{Bound, MESH_SERVICES, conditions, doc};

const WEB_80: &str = "{group: '', kind: Service, name: web, port: 80}";

fn mesh(documents: &str) -> Bound {
    Bound::of(&format!("{MESH_SERVICES}{documents}"))
}

// "A route is a producer route when the parentRef refers to a service in the same namespace. This route SHOULD apply to all
// incoming requests to the service, including from clients in other namespaces."
// "A route is a consumer route when the parentRef refers to a service in another namespace. … scoped only [to] the same namespace."
#[test]
fn a_producer_route_applies_to_everyone_and_a_consumer_route_to_its_namespace() {
    let parent = "parentRefs: [{group: '', kind: Service, namespace: shop, name: web, port: 80}]";
    let routes: String = ["shop/producer", "team/consumer", "lab/consumer"]
        .iter()
        .map(|name| doc("HTTPRoute", name, &format!("{{{parent}}}")))
        .collect();
    let bound = mesh(&routes);
    assert_eq!(
        bound.attached_routes(),
        [
            "shop/web:80 everyone HTTPRoute shop/producer",
            "shop/web:80 lab HTTPRoute lab/consumer",
            "shop/web:80 team HTTPRoute team/consumer"
        ]
    );
}

// "The merging of routes occurs only within groups of the same type of routes (Gateway bound, producer, or consumer)."
// "Multiple routes of the same type are valid, and merge according to the route-specific merging semantics."
#[test]
fn routes_of_one_kind_and_group_merge() {
    let rule = |path: &str| {
        format!("{{parentRefs: [{WEB_80}], rules: [{{matches: [{{path: {{value: {path}}}}}]}}]}}")
    };
    let bound = mesh(&format!(
        "{}{}",
        doc("HTTPRoute", "shop/a", &rule("/a")),
        doc("HTTPRoute", "shop/b", &rule("/b"))
    ));
    assert_eq!(bound.frontend_names(), ["shop/web:80 everyone"]);
    assert_eq!(
        bound.attached_routes(),
        [
            "shop/web:80 everyone HTTPRoute shop/a",
            "shop/web:80 everyone HTTPRoute shop/b"
        ]
    );
}

const GATEWAY: &str = "\n---\n{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: pointsman}, spec: {controllerName: pointsman.io/controller}}\n---\n{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: shop}, spec: {gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}}";

// "SHOULD NOT require reconfiguring existing xRoute resources for North/South Gateway configuration."
#[test]
fn one_route_attaches_to_a_gateway_and_a_service_by_the_rules_of_each() {
    let spec = format!(
        "{{parentRefs: [{{name: edge}}, {WEB_80}], hostnames: [shop.example], rules: [{{}}, {{matches: [{{path: {{value: /x}}}}], backendRefs: [{{namespace: team, name: other, port: 80}}]}}]}}"
    );
    let bound = mesh(&format!("{GATEWAY}{}", doc("HTTPRoute", "shop/r", &spec)));
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        [
            "shop/edge http #0: 500 NoBackendRefs",
            "shop/edge http #1: 500 RefNotPermitted=1",
            "shop/web:80 everyone #0: shop/web:80=1",
            "shop/web:80 everyone #1: team/other:80=1"
        ]
    );
    assert_eq!(
        conditions(&bound, "HTTPRoute shop/r"),
        [
            "parent Gateway edge: Accepted=True/Accepted",
            "parent Gateway edge: ResolvedRefs=False/RefNotPermitted",
            "parent Service web port 80: Accepted=True/Accepted",
            "parent Service web port 80: ResolvedRefs=True/ResolvedRefs"
        ]
    );
    let hostnames: Vec<usize> = bound
        .attachments
        .values()
        .map(|route| route.hostnames.len())
        .collect();
    assert_eq!(hostnames, [1, 0]);
}

// "Consider a cluster with routes for a Service in both a Gateway, consumer namespace, and producer namespace": three groups.
#[test]
fn gateway_consumer_and_producer_routes_are_three_groups() {
    let gateway = doc(
        "HTTPRoute",
        "shop/north",
        "{parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
    );
    let producer = doc(
        "HTTPRoute",
        "shop/producer",
        &format!("{{parentRefs: [{WEB_80}]}}"),
    );
    let consumer = doc(
        "HTTPRoute",
        "team/consumer",
        "{parentRefs: [{group: '', kind: Service, namespace: shop, name: web, port: 80}]}",
    );
    let bound = mesh(&format!("{GATEWAY}{gateway}{producer}{consumer}"));
    assert_eq!(
        bound.attached_routes(),
        [
            "shop/edge http HTTPRoute shop/north",
            "shop/web:80 everyone HTTPRoute shop/producer",
            "shop/web:80 team HTTPRoute team/consumer"
        ]
    );
}
