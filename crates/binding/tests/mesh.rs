//! The mesh by the current GEP-1426, sentence by sentence, and by the decisions in DESIGN: parents, ports and backends.

mod common;

use common::{
    Bound, MESH_SERVICES, accepted, condition, conditions, doc, document, message, service, slice,
    summary,
};

const WEB: &str = "{group: '', kind: Service, name: web}";
const WEB_80: &str = "{group: '', kind: Service, name: web, port: 80}";

fn mesh(documents: &str) -> Bound {
    Bound::of(&format!("{MESH_SERVICES}{documents}"))
}

/// A route `shop/r` with one parent.
fn to(parent: &str) -> String {
    doc(
        "HTTPRoute",
        "shop/r",
        &format!(
            "{{parentRefs: [{parent}], rules: [{{backendRefs: [{{name: web-v2, port: 80}}]}}]}}"
        ),
    )
}

// "MUST allow xRoute traffic rules to be configurable for a mesh service by the application owner/producer."
// "MUST set a status field on xRoute to show if the routing configuration has been applied to the mesh."
#[test]
fn a_route_attached_to_a_service_is_accepted() {
    let bound = mesh(&to(WEB_80));
    assert_eq!(
        conditions(&bound, "HTTPRoute shop/r"),
        [
            "parent Service web port 80: Accepted=True/Accepted",
            "parent Service web port 80: ResolvedRefs=True/ResolvedRefs"
        ]
    );
    assert_eq!(
        bound.attached_routes(),
        ["shop/web:80 everyone HTTPRoute shop/r"]
    );
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        ["shop/web:80 everyone #0: shop/web-v2:80=1"]
    );
}

// The example of "API": 90 % to the default endpoints of the parent itself, 10 % to another Service.
#[test]
fn a_parent_may_be_its_own_backend() {
    let split = "[{name: web, port: 80, weight: 90}, {name: web-v2, port: 80, weight: 10}]";
    let bound = mesh(&doc(
        "HTTPRoute",
        "shop/r",
        &format!("{{parentRefs: [{WEB_80}], rules: [{{backendRefs: {split}}}]}}"),
    ));
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        ["shop/web:80 everyone #0: shop/web:80=90 shop/web-v2:80=10"]
    );
}

// "If port is set, the implementation MUST associate the route only with that port."
// "If port is not set, the implementation MUST associate the route with all ports defined in the Service."
// sectionName on a Service is the name of a port; with both, both must match.
#[test]
fn a_reference_selects_ports_by_number_or_name_or_all() {
    for (parent, expected) in [
        (WEB, vec![80, 8080]),
        (WEB_80, vec![80]),
        (
            "{group: '', kind: Service, name: web, sectionName: admin}",
            vec![8080],
        ),
        (
            "{group: '', kind: Service, name: web, sectionName: http, port: 80}",
            vec![80],
        ),
    ] {
        let bound = mesh(&to(parent));
        let expected: Vec<String> = expected
            .iter()
            .map(|port| format!("shop/web:{port} everyone HTTPRoute shop/r"))
            .collect();
        assert_eq!(bound.attached_routes(), expected, "{parent}");
    }
}

// DESIGN: a parent Service that doesn't exist, or lacks the port: Accepted=False, `NoMatchingParent`.
#[test]
fn a_missing_service_or_port_is_reported_as_no_matching_parent() {
    for (parent, words) in [
        (
            "{group: '', kind: Service, name: nothing}",
            "Service shop/nothing does not exist",
        ),
        (
            "{group: '', kind: Service, name: web, port: 81}",
            "has no TCP port 81; its ports are 80 (http, TCP), 8080 (admin, TCP)",
        ),
        (
            "{group: '', kind: Service, name: web, sectionName: metrics}",
            "no TCP port named metrics",
        ),
        (
            "{group: '', kind: Service, name: web, sectionName: admin, port: 80}",
            "no TCP port 80 named admin",
        ),
        (
            "{group: multicluster.x-k8s.io, kind: ServiceImport, name: web}",
            "ServiceImport shop/web does not exist",
        ),
    ] {
        let bound = mesh(&to(parent));
        assert_eq!(
            accepted(&bound, "HTTPRoute shop/r"),
            "False/NoMatchingParent",
            "{parent}"
        );
        let message = message(&bound, "HTTPRoute shop/r", "Accepted");
        assert!(message.contains(words), "{message}");
        assert!(bound.attached_routes().is_empty() && bound.frontend_names().is_empty());
    }
}

#[test]
fn routes_follow_added_and_removed_ports() {
    let mut bound = mesh(&to(WEB));
    bound.apply(common::puts(&service(
        "shop/web",
        "{clusterIP: 10.0.0.1, ports: [{name: http, port: 80}, {name: grpc, port: 9090}]}",
    )));
    assert_eq!(
        bound.frontend_names(),
        ["shop/web:80 everyone", "shop/web:9090 everyone"]
    );
}

// "Implementations SHOULD support the default ClusterIP Service type as a parentRef, with or without selectors."
// "Headless Services SHOULD NOT be supported as a parentRef."
// "type: NodePort or type: LoadBalancer MAY be allowed as parentRefs or backendRefs."
// "type: ExternalName SHOULD NOT be allowed as parentRefs or backendRefs."
// DESIGN: headless or ExternalName: Accepted=False, `UnsupportedValue`, naming the type.
#[test]
fn services_with_a_virtual_address_can_be_parents() {
    let ports = "ports: [{port: 80}]";
    for (spec, refused) in [
        (
            "type: ClusterIP, clusterIP: 10.0.0.9, selector: {app: x}",
            "",
        ),
        ("clusterIP: 10.0.0.9", ""),
        ("selector: {app: x}", ""),
        ("type: NodePort, clusterIP: 10.0.0.9", ""),
        ("type: LoadBalancer, clusterIP: 10.0.0.9", ""),
        ("clusterIP: None", "headless"),
        (
            "type: ExternalName, externalName: example.com",
            "ExternalName",
        ),
    ] {
        let service = service("shop/s", &format!("{{{spec}, {ports}}}"));
        let bound = mesh(&format!(
            "{service}{}",
            to("{group: '', kind: Service, name: s}")
        ));
        let expected = match refused {
            "" => "True/Accepted",
            _ => "False/UnsupportedValue",
        };
        assert_eq!(accepted(&bound, "HTTPRoute shop/r"), expected, "{spec}");
        let message = message(&bound, "HTTPRoute shop/r", "Accepted");
        assert!(message.contains(refused), "{message}");
        assert_eq!(bound.frontend_names().is_empty(), !refused.is_empty());
    }
}

// "type: ExternalName SHOULD NOT be allowed as … backendRefs"; NodePort and LoadBalancer MAY. A headless Service has endpoints,
// which is all that a backend needs ("consistent with expectations for North/South Gateway API implementations").
#[test]
fn services_with_endpoints_can_be_backends() {
    for (spec, resolved) in [
        ("type: NodePort", "True/ResolvedRefs"),
        ("type: LoadBalancer", "True/ResolvedRefs"),
        ("clusterIP: None", "True/ResolvedRefs"),
        ("selector: {app: x}", "True/ResolvedRefs"),
        (
            "type: ExternalName, externalName: example.com",
            "False/InvalidKind",
        ),
    ] {
        let service = service("shop/s", &format!("{{{spec}, ports: [{{port: 80}}]}}"));
        let route = doc(
            "HTTPRoute",
            "shop/r",
            &format!(
                "{{parentRefs: [{WEB_80}], rules: [{{backendRefs: [{{name: s, port: 80}}]}}]}}"
            ),
        );
        let bound = mesh(&format!("{service}{route}"));
        assert_eq!(accepted(&bound, "HTTPRoute shop/r"), "True/Accepted");
        assert_eq!(
            condition(&bound, "HTTPRoute shop/r", "ResolvedRefs"),
            resolved,
            "{spec}"
        );
        let to = match resolved {
            "True/ResolvedRefs" => "shop/s:80=1",
            _ => "500 InvalidKind=1",
        };
        assert_eq!(
            bound.destinations("HTTPRoute shop/r"),
            [format!("shop/web:80 everyone #0: {to}")]
        );
    }
}

// "Service without selectors": a pure routing construct; traffic resolves to a backendRef with endpoints.
#[test]
fn a_service_without_endpoints_is_only_a_frontend() {
    let front = service("shop/front", "{clusterIP: 10.0.0.8, ports: [{port: 80}]}");
    let route = to("{group: '', kind: Service, name: front}");
    let bound = mesh(&format!(
        "{front}{route}{}",
        slice("shop/web-v2", "http", 8080, "10.1.0.1")
    ));
    assert_eq!(
        summary(&bound, "HTTPRoute shop/r"),
        "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"
    );
    assert_eq!(bound.addresses("shop/web-v2", 80), ["10.1.0.1:8080"]);
    assert!(bound.warnings().is_empty());
}

// "ServiceImport" is in extended conformance: its ClusterSetIP is the frontend. "Headless ServiceImport is out of scope."
#[test]
fn a_service_import_is_a_parent_and_a_backend_like_a_service() {
    let import = |kind: &str| {
        document(
            "multicluster.x-k8s.io/v1beta1",
            "ServiceImport",
            "shop/far",
            &format!(
                "{{type: {kind}, ports: [{{name: http, port: 80, protocol: TCP}}, {{name: b, port: 81, protocol: TCP}}]}}"
            ),
        )
    };
    let far = "{group: multicluster.x-k8s.io, kind: ServiceImport, name: far, sectionName: http}";
    let route = doc(
        "HTTPRoute",
        "shop/r",
        &format!(
            "{{parentRefs: [{far}], rules: [{{}}, {{matches: [{{path: {{value: /near}}}}], backendRefs: [{{group: multicluster.x-k8s.io, kind: ServiceImport, name: far, port: 81}}, {{name: web, port: 80}}]}}]}}"
        ),
    );
    let bound = mesh(&format!("{}{route}", import("ClusterSetIP")));
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        [
            "shop/far:80 everyone #0: shop/far:80=1",
            "shop/far:80 everyone #1: shop/far:81=1 shop/web:80=1"
        ]
    );
    let bound = mesh(&format!("{}{route}", import("Headless")));
    assert_eq!(
        accepted(&bound, "HTTPRoute shop/r"),
        "False/UnsupportedValue"
    );
    assert!(message(&bound, "HTTPRoute shop/r", "Accepted").contains("headless"));
}

// DESIGN: `""` and `core` both accepted; so is the defaulted group, with a warning.
#[test]
fn the_core_group_may_be_written_in_three_ways() {
    for (parent, warns) in [
        ("{group: '', kind: Service, name: web, port: 80}", false),
        ("{group: core, kind: Service, name: web, port: 80}", false),
        ("{kind: Service, name: web, port: 80}", true),
    ] {
        let bound = mesh(&format!(
            "{}{}",
            to(parent),
            slice("shop/web-v2", "http", 1, "10.1.0.1")
        ));
        assert_eq!(
            accepted(&bound, "HTTPRoute shop/r"),
            "True/Accepted",
            "{parent}"
        );
        let warnings = bound.warnings();
        assert_eq!(!warnings.is_empty(), warns, "{parent}: {warnings:?}");
        assert!(
            warnings
                .iter()
                .all(|w| w.field == "spec.parentRefs[0]"
                    && w.message.contains("write `group: \"\"`"))
        );
    }
}

// "Meshes MAY support other implementation-specific resources as parentRefs": Pointsman supports none, and reports no status for others.
#[test]
fn a_parent_of_another_kind_gets_a_warning_and_no_status_entry() {
    let bound = mesh(&to(
        "{group: networking.k8s.io, kind: IPAddress, name: 10.0.0.1}",
    ));
    assert!(conditions(&bound, "HTTPRoute shop/r").is_empty());
    assert!(
        bound
            .warnings()
            .iter()
            .any(|w| w.message.contains("not a supported kind of parent"))
    );
}

// "Routes of either type can send traffic to backendRefs in any namespace. Unlike Gateway bound routes, this is allowed without a
// ReferenceGrant."
#[test]
fn backends_may_be_in_any_namespace_without_a_grant() {
    let spec = format!(
        "{{parentRefs: [{WEB_80}], rules: [{{backendRefs: [{{namespace: team, name: other, port: 80}}]}}]}}"
    );
    let bound = mesh(&doc("HTTPRoute", "shop/r", &spec));
    assert_eq!(
        condition(&bound, "HTTPRoute shop/r", "ResolvedRefs"),
        "True/ResolvedRefs"
    );
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        ["shop/web:80 everyone #0: team/other:80=1"]
    );
}

// "When sent to a Service backend …, it would not [utilize a Route]. Similarly, if we have multiple "levels" of Routes defined,
// only the first will be used": a backend is endpoints, never another route.
#[test]
fn a_route_to_a_routed_service_goes_to_its_endpoints() {
    let first = to(WEB_80);
    let second = doc(
        "HTTPRoute",
        "shop/second",
        "{parentRefs: [{group: '', kind: Service, name: web-v2}], rules: [{backendRefs: [{name: web, port: 8080}]}]}",
    );
    let bound = mesh(&format!(
        "{first}{second}{}",
        slice("shop/web-v2", "http", 9, "10.1.0.1")
    ));
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        ["shop/web:80 everyone #0: shop/web-v2:80=1"]
    );
    assert_eq!(bound.addresses("shop/web-v2", 80), ["10.1.0.1:9"]);
}

// "If no backendRefs are specified, implementations should direct traffic to the default endpoints of the parentRef service. The
// behavior should be exactly the same as if the parentRef service was explicitly defined as the only backendRef."
#[test]
fn omitted_backends_default_to_each_port_of_the_parent() {
    let bound = mesh(&format!(
        "{}{}{}",
        doc(
            "HTTPRoute",
            "shop/r",
            &format!("{{parentRefs: [{WEB}], rules: [{{matches: [{{path: {{value: /bar}}}}]}}]}}")
        ),
        slice("shop/web", "http", 3000, "10.1.0.1"),
        slice("shop/web", "admin", 3001, "10.1.0.1"),
    ));
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        [
            "shop/web:80 everyone #0: shop/web:80=1",
            "shop/web:8080 everyone #0: shop/web:8080=1"
        ]
    );
    assert_eq!(bound.addresses("shop/web", 80), ["10.1.0.1:3000"]);
    assert_eq!(bound.addresses("shop/web", 8080), ["10.1.0.1:3001"]);
}

// "If the parentRef does not have any endpoints, implementations MUST return an HTTP 503": the backend exists, without endpoints.
#[test]
fn omitted_backends_of_a_service_without_endpoints_resolve_to_an_empty_backend() {
    let bound = mesh(&doc(
        "HTTPRoute",
        "shop/r",
        &format!("{{parentRefs: [{WEB_80}]}}"),
    ));
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        ["shop/web:80 everyone #0: shop/web:80=1"]
    );
    assert!(bound.addresses("shop/web", 80).is_empty());
    let warnings = bound.warnings();
    assert!(
        warnings.iter().any(|w| w.message.contains("gets 503")),
        "{warnings:?}"
    );
}

// A redirect needs no backend, so its backends do not default to the parent.
#[test]
fn a_redirect_without_backends_redirects() {
    let spec = format!(
        "{{parentRefs: [{WEB_80}], rules: [{{filters: [{{type: RequestRedirect, requestRedirect: {{scheme: https}}}}]}}]}}"
    );
    let bound = mesh(&doc("HTTPRoute", "shop/r", &spec));
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        ["shop/web:80 everyone #0: "]
    );
}

// "GAMMA implementations SHOULD NOT infer any functionality from the hostnames field on xRoutes." DESIGN: ignored, and the
// Accepted message says so.
#[test]
fn hostnames_are_ignored_and_reported() {
    let spec = format!("{{parentRefs: [{WEB_80}], hostnames: [shop.example]}}");
    let bound = mesh(&doc("HTTPRoute", "shop/r", &spec));
    assert_eq!(accepted(&bound, "HTTPRoute shop/r"), "True/Accepted");
    assert!(
        message(&bound, "HTTPRoute shop/r", "Accepted")
            .contains("hostnames are ignored in the mesh")
    );
    let route = bound.attachments.values().next().expect("an attachment");
    assert!(route.hostnames.is_empty());
}

// From bugs of other implementations: the status of a removed parentRef is pruned, and a removed route leaves nothing behind.
#[test]
fn status_entries_of_removed_parents_are_removed() {
    let mut bound = mesh(&doc(
        "HTTPRoute",
        "shop/r",
        &format!("{{parentRefs: [{WEB_80}, {{group: '', kind: Service, name: web-v2}}]}}"),
    ));
    assert_eq!(conditions(&bound, "HTTPRoute shop/r").len(), 4);
    bound.apply(common::puts(&to(WEB_80)));
    assert_eq!(conditions(&bound, "HTTPRoute shop/r").len(), 2);
    assert_eq!(bound.frontend_names(), ["shop/web:80 everyone"]);
    bound.apply([pointsman_binding::Change::Delete(common::key(
        "HTTPRoute shop/r",
    ))]);
    assert!(
        bound.frontend_names().is_empty()
            && bound.attachments.is_empty()
            && bound.backends.is_empty()
    );
    assert!(conditions(&bound, "HTTPRoute shop/r").is_empty());
}

// From bugs of other implementations: after an invalid edit the old route is not served as if it were valid; a rule with only unresolved backends replies with
// 500 instead of forwarding to the parent; an unsupported filter, also on a backendRef, causes a condition and 500.
#[test]
fn rules_that_can_not_be_served_reply_with_an_error_and_are_reported() {
    let mut bound = mesh(&to(WEB_80));
    let (served, unserved) = ("Accepted=True/Accepted", "Accepted=False/UnsupportedValue");
    for (rule, accepted, verdict_end, goes) in [
        (
            "{backendRefs: [{name: nothing, port: 80}]}",
            served,
            "ResolvedRefs=False/BackendNotFound",
            "500 BackendNotFound=1",
        ),
        (
            "{backendRefs: [{name: web, port: 99}]}",
            served,
            "ResolvedRefs=False/BackendNotFound",
            "500 BackendNotFound=1",
        ),
        (
            "{filters: [{type: ExtensionRef, extensionRef: {group: x.io, kind: F, name: f}}]}",
            unserved,
            "ResolvedRefs=False/InvalidKind",
            "500 InvalidKind",
        ),
        (
            "{backendRefs: [{name: web, port: 80, filters: [{type: ExtensionRef, extensionRef: {group: x.io, kind: F, name: f}}]}]}",
            unserved,
            "ResolvedRefs=False/InvalidKind",
            "500 InvalidKind=1",
        ),
    ] {
        bound.apply(common::puts(&doc(
            "HTTPRoute",
            "shop/r",
            &format!("{{parentRefs: [{WEB_80}], rules: [{rule}]}}"),
        )));
        let summary = summary(&bound, "HTTPRoute shop/r");
        assert!(
            summary.starts_with(accepted) && summary.ends_with(verdict_end),
            "{rule}: {summary}"
        );
        assert_eq!(
            bound.destinations("HTTPRoute shop/r"),
            [format!("shop/web:80 everyone #0: {goes}")]
        );
    }
}

// From bugs of other implementations: a GRPCRoute with only a header match, or an empty match, works.
#[test]
fn a_grpc_route_needs_no_method_to_match() {
    let spec = format!(
        "{{parentRefs: [{WEB_80}], rules: [{{matches: [{{headers: [{{name: x, value: z}}]}}, {{}}]}}, {{}}]}}"
    );
    let bound = mesh(&doc("GRPCRoute", "shop/r", &spec));
    assert_eq!(accepted(&bound, "GRPCRoute shop/r"), "True/Accepted");
    let route = bound.attachments.values().next().expect("an attachment");
    let matches: Vec<usize> = route.rules.iter().map(|rule| rule.matches.len()).collect();
    assert_eq!(matches, [2, 1]);
}
