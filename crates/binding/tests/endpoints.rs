//! Endpoints of a Service's port by readiness, and their protocol.

mod common;

use common::{Bound, bind_on_base, condition, doc, service};
use pointsman_binding::bound::{BackendProtocol, Endpoints};

fn world(service_spec: &str, slices: &str) -> Bound {
    let gateway = doc(
        "GatewayClass",
        "ours",
        "{controllerName: pointsman.io/controller}",
    ) + &doc(
        "Gateway",
        "shop/g",
        "{gatewayClassName: ours, listeners: [{name: a, port: 80, protocol: HTTP}]}",
    );
    let route = doc(
        "HTTPRoute",
        "shop/r",
        "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: s, port: 80}]}]}",
    );
    Bound::of(&(gateway + &route + &service("shop/s", service_spec) + slices))
}

fn slice(name: &str, ports: &str, endpoints: &str) -> String {
    let kind = if endpoints.contains("::") {
        "IPv6"
    } else {
        "IPv4"
    };
    format!(
        "\n---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: {kind}, metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: s}}}}, ports: [{ports}], endpoints: [{endpoints}]}}"
    )
}

fn found(bound: &Bound) -> Vec<String> {
    let endpoints = bound.endpoints.values().next().expect("a backend");
    let Endpoints::Addresses(list) = &**endpoints else {
        panic!("not addresses")
    };
    list.iter()
        .map(|e| {
            format!(
                "{}{}",
                e.address,
                if e.terminating { " leaving" } else { "" }
            )
        })
        .collect()
}

#[test]
fn terminating_endpoints_are_used_only_without_ready_ones() {
    for (conditions, used) in [
        ("", Some("")),
        (", conditions: {}", Some("")),
        (", conditions: {ready: true}", Some("")),
        (", conditions: {ready: false}", None),
        (", conditions: {ready: false, serving: true}", None),
        (
            ", conditions: {ready: false, serving: true, terminating: true}",
            Some(" leaving"),
        ),
        (
            ", conditions: {ready: false, serving: false, terminating: true}",
            None,
        ),
        // EndpointConditions, serving: "A nil value should be interpreted as "true"."
        (
            ", conditions: {ready: false, terminating: true}",
            Some(" leaving"),
        ),
        // terminating: "A nil value should be interpreted as "false"."
        (", conditions: {ready: false, serving: true}", None),
        // ready: "this can be overridden in some cases, such as when the associated Service has set the publishNotReadyAddresses flag".
        (
            ", conditions: {ready: true, serving: false, terminating: true}",
            Some(""),
        ),
    ] {
        let bound = world(
            "{ports: [{port: 80}]}",
            &slice(
                "a",
                "{port: 8080}",
                &format!("{{addresses: [10.1.0.1]{conditions}}}"),
            ),
        );
        let expected: Vec<String> = used
            .iter()
            .map(|how| format!("10.1.0.1:8080{how}"))
            .collect();
        assert_eq!(found(&bound), expected, "{conditions}");
    }
}

#[test]
fn endpoint_slices_are_joined_by_port_name() {
    let slices = slice(
        "a",
        "{name: web, port: 8080}, {name: admin, port: 9090}",
        "{addresses: [10.1.0.2]}, {addresses: [10.1.0.1]}",
    ) + &slice(
        "b",
        "{name: web, port: 8081}",
        "{addresses: [10.1.0.3]}, {addresses: [10.1.0.1]}",
    ) + &slice(
        "c",
        "{name: web, port: 8080}",
        "{addresses: ['fd00::1']}, {addresses: ['fd00::1']}",
    );
    let bound = world(
        "{ports: [{name: admin, port: 81}, {name: web, port: 80}]}",
        &slices,
    );
    assert_eq!(
        found(&bound),
        [
            "10.1.0.1:8080",
            "10.1.0.1:8081",
            "10.1.0.2:8080",
            "10.1.0.3:8081",
            "[fd00::1]:8080"
        ]
    );
}

#[test]
fn app_protocol_determines_the_backends_protocol() {
    for (app, port_tls) in [
        ("", Some(BackendProtocol::Unspecified)),
        (", appProtocol: http", Some(BackendProtocol::Http1)),
        // No policy defines trust anchors.
        (", appProtocol: HTTPS", None),
        (
            ", appProtocol: kubernetes.io/h2c",
            Some(BackendProtocol::Http2),
        ),
        (
            ", appProtocol: kubernetes.io/ws",
            Some(BackendProtocol::WebSocket),
        ),
        (", appProtocol: grpc", Some(BackendProtocol::Grpc)),
        (", appProtocol: mysql", None),
    ] {
        let bound = world(&format!("{{ports: [{{port: 80{app}}}]}}"), "");
        let protocol = bound.backends.values().next().map(|b| b.protocol);
        assert_eq!(protocol, port_tls, "{app}");
        let resolved = if port_tls.is_some() {
            "True/ResolvedRefs"
        } else {
            "False/UnsupportedProtocol"
        };
        assert_eq!(
            condition(&bound, "HTTPRoute shop/r", "ResolvedRefs"),
            resolved,
            "{app}"
        );
    }
}

#[test]
fn a_backend_is_removed_with_its_last_user() {
    let mut bound = world("{ports: [{port: 80}]}", "");
    assert_eq!(bound.backends.len(), 1);
    bound.apply(common::puts(&doc(
        "HTTPRoute",
        "shop/r",
        "{parentRefs: [{name: g}]}",
    )));
    assert!(bound.backends.is_empty());
}

#[test]
fn weights_that_are_all_zero_cause_a_warning() {
    let binder = bind_on_base(&doc(
        "HTTPRoute",
        "shop/r",
        "{parentRefs: [{name: edge, namespace: infra}], rules: [{backendRefs: [{name: web, port: 80, weight: 0}]}]}",
    ));
    assert!(
        binder
            .warnings()
            .iter()
            .any(|w| w.field == "spec.rules[0].backendRefs" && w.message.contains("503"))
    );
}

fn hints(bound: &Bound) -> Vec<String> {
    let endpoints = bound.endpoints.values().next().expect("a backend");
    let Endpoints::Addresses(list) = &**endpoints else {
        panic!("not addresses")
    };
    let hints = list.iter().map(|endpoint| match &endpoint.hints {
        None => "none".to_owned(),
        Some(hints) => format!("{}/{}", hints.nodes.join(","), hints.zones.join(",")),
    });
    hints.collect()
}

#[test]
fn hints_of_endpoints_are_kept() {
    // EndpointHints: "forZones indicates the zone(s) this endpoint should be consumed by when using topology aware routing."
    let slices = slice(
        "a",
        "{port: 8080}",
        "{addresses: [10.1.0.1], zone: a, hints: {forZones: [{name: b}, {name: a}]}}, {addresses: [10.1.0.2], hints: {forNodes: [{name: one}]}}, {addresses: [10.1.0.3], zone: a, nodeName: one}",
    );
    let bound = world("{ports: [{port: 80}]}", &slices);
    assert_eq!(hints(&bound), ["/a,b", "one/", "none"]);
}

#[test]
fn traffic_distribution_gives_endpoints_the_hints_that_a_cluster_would() {
    let slices = slice(
        "a",
        "{port: 8080}",
        "{addresses: [10.1.0.1], zone: a, nodeName: one}, {addresses: [10.1.0.2], zone: a, hints: {forZones: [{name: b}]}}, {addresses: [10.1.0.3]}",
    );
    for (distribution, expected) in [
        // "Indicates a preference for routing traffic to endpoints that are in the same zone as the client."
        ("PreferSameZone", ["/a", "/b", "none"]),
        ("PreferClose", ["/a", "/b", "none"]),
        // "Indicates a preference for routing traffic to endpoints that are on the same node as the client."
        ("PreferSameNode", ["one/a", "/b", "none"]),
    ] {
        let spec = format!("{{ports: [{{port: 80}}], trafficDistribution: {distribution}}}");
        assert_eq!(hints(&world(&spec, &slices)), expected, "{distribution}");
    }
}

#[test]
fn endpoints_of_both_address_families_are_used() {
    let slices = slice("v4", "{port: 8080}", "{addresses: [10.1.0.1]}")
        + &slice("v6", "{port: 8080}", "{addresses: ['fd00::1']}");
    let spec = "{clusterIPs: [10.96.0.1, 'fd00:96::1'], ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}";
    let bound = world(spec, &slices);
    assert_eq!(found(&bound), ["10.1.0.1:8080", "[fd00::1]:8080"]);
}
