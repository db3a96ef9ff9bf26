//! MeshSettings, with which operators control the mesh, and the earlier GEP-1426 as `binding: Strict`.

mod common;

use common::{Bound, accepted, condition, conditions, doc, document, key, message, puts};
use pointsman_binding::Change;

const WORLD: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {mesh-consumer: "yes"}}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web-v2, namespace: shop}, spec: {clusterIP: 10.0.0.2, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: other, namespace: team}, spec: {clusterIP: 10.0.0.3, ports: [{port: 80}]}}
"#;

fn settings(name: &str, spec: &str) -> String {
    document("pointsman.io/v1alpha1", "MeshSettings", name, spec)
}

fn x_mesh(name: &str, spec: &str) -> String {
    document("gateway.networking.x-k8s.io/v1alpha1", "XMesh", name, spec)
}

/// A route to a Service in `shop`, with backends in its own namespace.
fn route(kind: &str, name: &str, parent: &str, backends: &[&str]) -> String {
    let backends: Vec<String> = backends
        .iter()
        .map(|name| format!("{{name: {name}, port: 80}}"))
        .collect();
    let rules = match backends.is_empty() {
        true => String::new(),
        false => format!(", rules: [{{backendRefs: [{}]}}]", backends.join(", ")),
    };
    doc(
        kind,
        name,
        &format!(
            "{{parentRefs: [{{group: '', kind: Service, namespace: shop, name: {parent}}}]{rules}}}"
        ),
    )
}

fn world(documents: &str) -> Bound {
    Bound::of(&format!("{WORLD}{documents}"))
}

const ROUTES: [&str; 3] = ["HTTPRoute shop/p", "HTTPRoute team/c", "HTTPRoute lab/c"];

fn routes() -> String {
    ROUTES
        .iter()
        .map(|name| route("HTTPRoute", &name[10..], "web", &[]))
        .collect()
}

// "SHOULD allow control by the cluster operator (mesh administrator) to grant permission for whether xRoute resources in a given
// namespace are allowed to configure mesh traffic routing." DESIGN: reason `NotAllowedByMesh`, and it changes no traffic.
#[test]
fn a_selector_that_is_missing_is_warned_about() {
    let spec = "{allowedRoutes: {consumers: {namespaces: {from: Selector}}}}";
    let bound = Bound::of(&settings("default", spec));
    let warnings = bound.warnings();
    let warnings: Vec<(&str, &str)> = warnings
        .iter()
        .map(|warning| (&*warning.field, &*warning.message))
        .collect();
    assert_eq!(
        warnings,
        [(
            "spec.allowedRoutes.consumers.namespaces",
            "from is Selector, but there is no selector, so no route is allowed"
        )]
    );
}

#[test]
fn the_operator_limits_the_namespaces_of_routes() {
    const YES: &str = "True/Accepted";
    const NO: &str = "False/NotAllowedByMesh";
    let selector =
        "{namespaces: {from: Selector, selector: {matchLabels: {mesh-consumer: 'yes'}}}}";
    for (allowed, expected) in [
        (String::new(), [YES, YES, YES]),
        (
            "producers: {namespaces: {from: All}}".to_owned(),
            [YES, YES, YES],
        ),
        (
            "producers: {namespaces: {from: None}}".to_owned(),
            [NO, YES, YES],
        ),
        (format!("producers: {selector}"), [NO, YES, YES]),
        (
            "consumers: {namespaces: {from: All}}".to_owned(),
            [YES, YES, YES],
        ),
        (
            "consumers: {namespaces: {from: None}}".to_owned(),
            [YES, NO, NO],
        ),
        (format!("consumers: {selector}"), [YES, YES, NO]),
        (
            "producers: {namespaces: {from: None}}, consumers: {namespaces: {from: None}}"
                .to_owned(),
            [NO, NO, NO],
        ),
    ] {
        let settings = settings("default", &format!("{{allowedRoutes: {{{allowed}}}}}"));
        let bound = world(&format!("{settings}{}", routes()));
        let found = ROUTES.map(|name| accepted(&bound, name));
        assert_eq!(found, expected, "{allowed}");
        let attached_routes = bound.attached_routes().len();
        assert_eq!(
            attached_routes,
            expected.iter().filter(|e| **e == YES).count(),
            "{allowed}"
        );
        for name in ROUTES.iter().filter(|name| accepted(&bound, name) == NO) {
            let message = message(&bound, name, "Accepted");
            assert!(
                message.starts_with("MeshSettings: allowedRoutes."),
                "{message}"
            );
        }
    }
}

#[test]
fn added_and_removed_settings_take_effect() {
    let mut bound = world(&routes());
    bound.apply(puts(&settings(
        "default",
        "{allowedRoutes: {consumers: {namespaces: {from: None}}}}",
    )));
    assert_eq!(
        accepted(&bound, "HTTPRoute team/c"),
        "False/NotAllowedByMesh"
    );
    bound.apply([Change::Delete(key("MeshSettings default"))]);
    assert_eq!(accepted(&bound, "HTTPRoute team/c"), "True/Accepted");
    bound.apply(puts(
        "{apiVersion: v1, kind: Namespace, metadata: {name: lab, labels: {mesh-consumer: 'yes'}}}",
    ));
    bound.apply(puts(&settings("default", "{allowedRoutes: {consumers: {namespaces: {from: Selector, selector: {matchLabels: {mesh-consumer: 'yes'}}}}}}")));
    assert_eq!(accepted(&bound, "HTTPRoute lab/c"), "True/Accepted");
    bound.apply(puts(
        "{apiVersion: v1, kind: Namespace, metadata: {name: lab}}",
    ));
    assert_eq!(
        accepted(&bound, "HTTPRoute lab/c"),
        "False/NotAllowedByMesh"
    );
}

// DESIGN: MeshSettings are referenced by XMesh.spec.parametersRef, or named `default`.
#[test]
fn a_mesh_references_its_settings() {
    let none = "{allowedRoutes: {producers: {namespaces: {from: None}}}}";
    let ours = |reference: &str| format!("{{controllerName: pointsman.io/controller{reference}}}");
    let named = ours(", parametersRef: {group: pointsman.io, kind: MeshSettings, name: closed}");
    for (documents, mesh, producer) in [
        (
            x_mesh("m", &named) + &settings("closed", none),
            "True/Accepted",
            "False/NotAllowedByMesh",
        ),
        (
            x_mesh("m", &named) + &settings("closed", none) + &settings("default", "{}"),
            "True/Accepted",
            "False/NotAllowedByMesh",
        ),
        (
            x_mesh("m", &named) + &settings("default", "{}"),
            "False/InvalidParameters",
            "True/Accepted",
        ),
        (
            x_mesh("m", &named) + &settings("default", none),
            "False/InvalidParameters",
            "False/NotAllowedByMesh",
        ),
        (
            x_mesh("m", &ours("")) + &settings("default", none),
            "True/Accepted",
            "False/NotAllowedByMesh",
        ),
        (
            x_mesh("m", &ours("")) + &settings("closed", none),
            "True/Accepted",
            "True/Accepted",
        ),
        (
            x_mesh(
                "m",
                &ours(", parametersRef: {group: example.com, kind: Config, name: closed}"),
            ) + &settings("default", none),
            "False/InvalidParameters",
            "False/NotAllowedByMesh",
        ),
        (
            x_mesh(
                "m",
                "{controllerName: example.com/other, parametersRef: {group: pointsman.io, kind: MeshSettings, name: closed}}",
            ) + &settings("closed", none),
            "not set",
            "True/Accepted",
        ),
    ] {
        let bound = world(&format!("{documents}{}", routes()));
        assert_eq!(accepted(&bound, "XMesh m"), mesh, "{documents}");
        assert_eq!(
            accepted(&bound, "HTTPRoute shop/p"),
            producer,
            "{documents}"
        );
    }
}

// DESIGN: cross-namespace backendRefs are allowed without ReferenceGrant; `referenceGrants: Required` requires one.
#[test]
fn the_operator_may_require_grants() {
    let r = doc(
        "HTTPRoute",
        "shop/r",
        "{parentRefs: [{group: '', kind: Service, name: web}], rules: [{backendRefs: [{namespace: team, name: other, port: 80}]}]}",
    );
    let grant = doc(
        "ReferenceGrant",
        "team/g",
        "{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}], to: [{group: '', kind: Service}]}",
    );
    for (documents, resolved) in [
        (
            settings("default", "{referenceGrants: Ignored}"),
            "True/ResolvedRefs",
        ),
        (
            settings("default", "{referenceGrants: Required}"),
            "False/RefNotPermitted",
        ),
        (
            settings("default", "{referenceGrants: Required}") + &grant,
            "True/ResolvedRefs",
        ),
    ] {
        let bound = world(&format!("{documents}{r}"));
        assert_eq!(accepted(&bound, "HTTPRoute shop/r"), "True/Accepted");
        assert_eq!(
            condition(&bound, "HTTPRoute shop/r", "ResolvedRefs"),
            resolved
        );
        let to = if resolved.starts_with("True") {
            "team/other:80=1"
        } else {
            "500 RefNotPermitted=1"
        };
        assert_eq!(
            bound.destinations("HTTPRoute shop/r"),
            [format!("shop/web:80 everyone #0: {to}")]
        );
    }
}

fn strict(routes: &[String]) -> Bound {
    world(&format!(
        "{}{}",
        settings("default", "{binding: Strict}"),
        routes.concat()
    ))
}

const YES: &str = "True/Accepted";
const CONFLICT: &str = "False/ParentRefConflict";

// "A Service may only be specified as a parentRef of an HTTPRoute if it is: NOT already specified as a parentRef of another
// HTTPRoute [in the same namespace]." DESIGN: the younger one gets ParentRefConflict.
#[test]
fn strict_allows_one_route_of_a_kind_per_service_and_namespace() {
    let bound = strict(&[
        route("HTTPRoute", "shop/old", "web", &["web-v2"]),
        route("HTTPRoute", "shop/young", "web", &["web-v2"]),
        route("HTTPRoute", "team/consumer", "web", &["other"]),
        route("HTTPRoute", "team/second", "web", &["other"]),
    ]);
    let found = ["shop/old", "shop/young", "team/consumer", "team/second"]
        .map(|name| accepted(&bound, &format!("HTTPRoute {name}")));
    assert_eq!(found, [YES, CONFLICT, YES, CONFLICT]);
    let message = message(&bound, "HTTPRoute shop/young", "Accepted");
    assert_eq!(
        message,
        "Service shop/web is already the parent of HTTPRoute shop/old, which is older"
    );
    assert_eq!(
        bound.attached_routes(),
        [
            "shop/web:80 everyone HTTPRoute shop/old",
            "shop/web:80 team HTTPRoute team/consumer"
        ]
    );
}

#[test]
fn strict_compares_ages_by_timestamp_and_then_name() {
    let aged = |name: &str, at: &str| {
        route("HTTPRoute", name, "web", &["web-v2"]).replace(
            "metadata: {",
            &format!("metadata: {{creationTimestamp: '{at}', "),
        )
    };
    let bound = strict(&[
        aged("shop/a", "2024-01-02T00:00:00Z"),
        aged("shop/c", "2024-01-01T00:00:00Z"),
        aged("shop/b", "2024-01-01T00:00:00Z"),
        route("HTTPRoute", "shop/ageless", "web", &["web-v2"]),
    ]);
    let found =
        ["a", "b", "c", "ageless"].map(|name| accepted(&bound, &format!("HTTPRoute shop/{name}")));
    assert_eq!(found, [CONFLICT, YES, CONFLICT, CONFLICT]);
}

#[test]
fn strict_allows_other_kinds_and_services() {
    let bound = strict(&[
        route("HTTPRoute", "shop/h", "web", &[]),
        route("HTTPRoute", "shop/h2", "web-v2", &[]),
    ]);
    assert_eq!(accepted(&bound, "HTTPRoute shop/h"), YES);
    assert_eq!(accepted(&bound, "HTTPRoute shop/h2"), YES);
    // Different kinds on one port conflict as without Strict.
    let bound = strict(&[
        route("TCPRoute", "shop/t", "web", &["web-v2"]),
        route("HTTPRoute", "shop/h", "web", &["web-v2"]),
    ]);
    assert_eq!(accepted(&bound, "TCPRoute shop/t"), "False/Conflicted");
    assert_eq!(accepted(&bound, "HTTPRoute shop/h"), YES);
}

// "NOT already specified as a backendRef of any other HTTPRoute with a Service parentRef."
#[test]
fn strict_forbids_a_backend_to_become_a_parent() {
    let bound = strict(&[
        route("HTTPRoute", "shop/first", "web", &["web-v2"]),
        route("HTTPRoute", "shop/second", "web-v2", &[]),
    ]);
    assert_eq!(accepted(&bound, "HTTPRoute shop/first"), YES);
    assert_eq!(accepted(&bound, "HTTPRoute shop/second"), CONFLICT);
    let message = message(&bound, "HTTPRoute shop/second", "Accepted");
    assert_eq!(
        message,
        "Service shop/web-v2 is already a backend of HTTPRoute shop/first, which is older"
    );
}

// DESIGN: "nor the other way round: the younger route of the two gets ParentRefConflict".
#[test]
fn strict_forbids_a_parent_to_become_a_backend() {
    let bound = strict(&[
        route("HTTPRoute", "shop/first", "web-v2", &[]),
        route("HTTPRoute", "shop/second", "web", &["web-v2"]),
    ]);
    assert_eq!(accepted(&bound, "HTTPRoute shop/first"), YES);
    assert_eq!(accepted(&bound, "HTTPRoute shop/second"), CONFLICT);
    let message = message(&bound, "HTTPRoute shop/second", "Accepted");
    assert_eq!(
        message,
        "the backend Service shop/web-v2 is already the parent of HTTPRoute shop/first, which is older"
    );
}

// "A Service MAY still be listed as a backendRef on the same HTTPRoute where it is specified as a parentRef."
#[test]
fn strict_allows_a_routes_own_parent_as_its_backend() {
    let bound = strict(&[route("HTTPRoute", "shop/r", "web", &["web", "web-v2"])]);
    assert_eq!(accepted(&bound, "HTTPRoute shop/r"), YES);
}

// "… of any other HTTPRoute with a Service parentRef": a route with only Gateway parents does not count.
#[test]
fn strict_ignores_routes_with_only_gateway_parents() {
    let gateway = doc(
        "GatewayClass",
        "pointsman",
        "{controllerName: pointsman.io/controller}",
    ) + &doc(
        "Gateway",
        "shop/edge",
        "{gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}",
    );
    let north = doc(
        "HTTPRoute",
        "shop/north",
        "{parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
    );
    let bound = strict(&[
        gateway,
        north,
        route("HTTPRoute", "shop/r", "web", &["web-v2"]),
    ]);
    assert_eq!(accepted(&bound, "HTTPRoute shop/r"), YES);
    assert_eq!(accepted(&bound, "HTTPRoute shop/north"), YES);
}

// "SHOULD only be allowed to direct traffic to backendRefs within the same namespace … ResolvedRefs … False and reason
// RefNotPermitted"; "500 status codes MUST be returned for requests that would match that route rule." A grant does not help.
#[test]
fn strict_limits_backends_to_the_routes_namespace() {
    let r = doc(
        "HTTPRoute",
        "shop/r",
        "{parentRefs: [{group: '', kind: Service, name: web}], rules: [{backendRefs: [{namespace: team, name: other, port: 80}]}]}",
    );
    let grant = doc(
        "ReferenceGrant",
        "team/g",
        "{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}], to: [{group: '', kind: Service}]}",
    );
    let bound = strict(&[r, grant]);
    assert_eq!(
        conditions(&bound, "HTTPRoute shop/r"),
        [
            "parent Service shop/web: Accepted=True/Accepted".replace("shop/", ""),
            "parent Service web: ResolvedRefs=False/RefNotPermitted".to_owned()
        ]
    );
    assert_eq!(
        bound.destinations("HTTPRoute shop/r"),
        ["shop/web:80 everyone #0: 500 RefNotPermitted=1"]
    );
}

// "… is intended to allow an HTTPRoute configuring mesh traffic rules to additionally specify a Gateway parentRef."
#[test]
fn strict_allows_an_additional_gateway_parent() {
    let gateway = doc(
        "GatewayClass",
        "pointsman",
        "{controllerName: pointsman.io/controller}",
    ) + &doc(
        "Gateway",
        "shop/edge",
        "{gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}",
    );
    let both = doc(
        "HTTPRoute",
        "shop/r",
        "{parentRefs: [{name: edge}, {group: '', kind: Service, name: web}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
    );
    let bound = strict(&[gateway, both]);
    assert_eq!(
        bound.attached_routes(),
        [
            "shop/edge http HTTPRoute shop/r",
            "shop/web:80 everyone HTTPRoute shop/r"
        ]
    );
}

// The conflict concerns only the mesh parent: the route stays attached to its Gateway.
#[test]
fn strict_conflicts_do_not_affect_gateway_parents() {
    let gateway = doc(
        "GatewayClass",
        "pointsman",
        "{controllerName: pointsman.io/controller}",
    ) + &doc(
        "Gateway",
        "shop/edge",
        "{gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}",
    );
    let both = doc(
        "HTTPRoute",
        "shop/young",
        "{parentRefs: [{name: edge}, {group: '', kind: Service, name: web}], rules: [{backendRefs: [{name: web-v2, port: 80}]}]}",
    );
    let bound = strict(&[gateway, route("HTTPRoute", "shop/old", "web", &[]), both]);
    assert_eq!(
        conditions(&bound, "HTTPRoute shop/young"),
        [
            "parent Gateway edge: Accepted=True/Accepted",
            "parent Gateway edge: ResolvedRefs=True/ResolvedRefs",
            "parent Service web: Accepted=False/ParentRefConflict",
            "parent Service web: ResolvedRefs=True/ResolvedRefs"
        ]
    );
}

#[test]
fn strict_accepts_the_younger_route_when_the_older_is_removed() {
    let mut bound = strict(&[
        route("HTTPRoute", "shop/first", "web-v2", &[]),
        route("HTTPRoute", "shop/second", "web", &["web-v2"]),
    ]);
    bound.apply([Change::Delete(key("HTTPRoute shop/first"))]);
    assert_eq!(accepted(&bound, "HTTPRoute shop/second"), YES);
    bound.apply(puts(&settings("default", "{binding: Merge}")));
    assert_eq!(accepted(&bound, "HTTPRoute shop/second"), YES);
}
