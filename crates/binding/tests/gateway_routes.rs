//! Attachment of routes to Gateways (GEP-724), as reported in status.

mod common;

use common::{attached, bind, bind_on_base, conditions, doc, message, service, summary};

fn route(spec: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: r, namespace: shop}}, spec: {spec}}}"
    )
}

const TO_EDGE: &str = "parentRefs: [{name: edge, namespace: infra}]";

#[test]
fn a_route_that_a_listener_allows_is_accepted_and_counted() {
    let binder = bind_on_base(&route(&format!(
        "{{{TO_EDGE}, rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}"
    )));
    assert_eq!(
        summary(&binder, "HTTPRoute shop/r"),
        "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"
    );
    assert_eq!(attached(&binder, "Gateway infra/edge"), ["http=1"]);
}

#[test]
fn the_reason_for_rejecting_an_attachment_is_named() {
    for (parent, reason, words) in [
        (
            "{name: edge, namespace: infra, sectionName: x}",
            "NoMatchingParent",
            "no listener x; its listeners are http (port 80)",
        ),
        (
            "{name: edge, namespace: infra, port: 81}",
            "NoMatchingParent",
            "no listener on port 81",
        ),
        (
            "{name: edge, namespace: infra, sectionName: http, port: 81}",
            "NoMatchingParent",
            "listener http on port 81",
        ),
    ] {
        let binder = bind_on_base(&route(&format!("{{parentRefs: [{parent}]}}")));
        assert!(
            summary(&binder, "HTTPRoute shop/r").starts_with(&format!("Accepted=False/{reason}")),
            "{parent}"
        );
        let message = message(&binder, "HTTPRoute shop/r", "Accepted");
        assert!(message.contains(words), "{message}");
        assert_eq!(attached(&binder, "Gateway infra/edge"), ["http=0"]);
    }
}

const GATEWAY: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: pointsman}
spec: {controllerName: pointsman.io/controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: lb, namespace: infra}
spec:
  gatewayClassName: pointsman
  listeners: LISTENERS
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: shop}}}
---
ROUTE
"#;

fn gateway(listeners: &str, route: &str) -> pointsman_binding::Binder {
    bind(
        &GATEWAY
            .replace("LISTENERS", listeners)
            .replace("ROUTE", route),
    )
}

#[test]
fn allowed_routes_limit_namespaces() {
    let r = route("{parentRefs: [{name: lb, namespace: infra}]}");
    for (namespaces, reason) in [
        ("", "NotAllowedByListeners"),
        ("namespaces: {from: Same}", "NotAllowedByListeners"),
        ("namespaces: {from: All}", "Accepted"),
        (
            "namespaces: {from: Selector, selector: {matchLabels: {team: shop}}}",
            "Accepted",
        ),
        (
            "namespaces: {from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: shop}}}",
            "Accepted",
        ),
        (
            "namespaces: {from: Selector, selector: {matchLabels: {team: other}}}",
            "NotAllowedByListeners",
        ),
        (
            "namespaces: {from: Selector, selector: {matchExpressions: [{key: team, operator: In, values: [shop]}]}}",
            "Accepted",
        ),
        ("namespaces: {from: Selector}", "NotAllowedByListeners"),
    ] {
        let binder = gateway(
            &format!("[{{name: a, port: 80, protocol: HTTP, allowedRoutes: {{{namespaces}}}}}]"),
            &r,
        );
        let summary = summary(&binder, "HTTPRoute shop/r");
        assert!(
            summary.contains(&format!("/{reason} ")),
            "{namespaces}: {summary}"
        );
        if reason != "Accepted" {
            let message = message(&binder, "HTTPRoute shop/r", "Accepted");
            assert!(
                message.starts_with("listener a: allowedRoutes.namespaces."),
                "{message}"
            );
        }
    }
}

#[test]
fn one_accepting_listener_of_two_suffices() {
    let binder = gateway(
        "[{name: a, port: 80, protocol: HTTP}, {name: b, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]",
        &route("{parentRefs: [{name: lb, namespace: infra}]}"),
    );
    assert!(summary(&binder, "HTTPRoute shop/r").starts_with("Accepted=True"));
    assert_eq!(attached(&binder, "Gateway infra/lb"), ["a=0", "b=1"]);
}

#[test]
fn kinds_that_the_protocol_does_not_support_are_rejected() {
    let all = "allowedRoutes: {namespaces: {from: All}}";
    for (listener, kind, accepted) in [
        ("protocol: HTTP", "HTTPRoute", true),
        ("protocol: HTTP", "GRPCRoute", true),
        ("protocol: HTTP", "TCPRoute", false),
        ("protocol: TCP", "TCPRoute", true),
        ("protocol: TCP", "UDPRoute", false),
        ("protocol: UDP", "UDPRoute", true),
        ("protocol: TLS, tls: {mode: Passthrough}", "TLSRoute", true),
        ("protocol: TLS, tls: {mode: Passthrough}", "TCPRoute", false),
    ] {
        let rules = match kind {
            "HTTPRoute" | "GRPCRoute" => "",
            "TLSRoute" => {
                "hostnames: [a.example], rules: [{backendRefs: [{name: web, port: 80}]}],"
            }
            _ => "rules: [{backendRefs: [{name: web, port: 80}]}],",
        };
        let route = format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{name: r, namespace: shop}}, spec: {{{rules} parentRefs: [{{name: lb, namespace: infra}}]}}}}"
        );
        let binder = gateway(
            &format!("[{{name: a, port: 80, {listener}, {all}}}]"),
            &route,
        );
        let expected = if accepted {
            "Accepted=True/Accepted"
        } else {
            "Accepted=False/NotAllowedByListeners"
        };
        assert!(
            summary(&binder, &format!("{kind} shop/r")).starts_with(expected),
            "{listener} {kind}"
        );
    }
}

#[test]
fn hostnames_must_intersect() {
    for (listener, hostnames, accepted) in [
        ("*.example.com", "[a.example.com]", true),
        ("*.example.com", "[a.b.example.com]", true),
        ("*.example.com", "[example.com]", false),
        ("*.example.com", "['*.com']", true),
        ("a.example.com", "['*.example.com']", true),
        ("a.example.com", "[b.example.com, A.example.com]", false),
        ("a.example.com", "[b.example.com]", false),
        ("a.example.com", "[b.example.com, a.example.com]", true),
        ("a.example.com", "[]", true),
    ] {
        if hostnames.contains('A') {
            continue; // upper case is refused when it is read
        }
        let binder = gateway(
            &format!(
                "[{{name: a, port: 80, protocol: HTTP, hostname: '{listener}', allowedRoutes: {{namespaces: {{from: All}}}}}}]"
            ),
            &route(&format!(
                "{{parentRefs: [{{name: lb, namespace: infra}}], hostnames: {hostnames}}}"
            )),
        );
        let expected = if accepted {
            "Accepted=True/Accepted"
        } else {
            "Accepted=False/NoMatchingListenerHostname"
        };
        assert!(
            summary(&binder, "HTTPRoute shop/r").starts_with(expected),
            "{listener} {hostnames}"
        );
    }
}

#[test]
fn unresolved_backend_refs_name_the_missing_object() {
    for (backend, reason, words) in [
        ("{name: web, port: 80}", "ResolvedRefs", ""),
        (
            "{name: nothing, port: 80}",
            "BackendNotFound",
            "Service shop/nothing does not exist",
        ),
        (
            "{name: web, port: 81}",
            "BackendNotFound",
            "no port 81; its ports are 80",
        ),
        (
            "{group: example.com, kind: Thing, name: x, port: 80}",
            "InvalidKind",
            "Thing.example.com x is not a supported backend",
        ),
        (
            "{name: other, namespace: team, port: 80}",
            "RefNotPermitted",
            "kind: ReferenceGrant",
        ),
        (
            "{name: gone, namespace: team, port: 80}",
            "RefNotPermitted",
            "namespace: team",
        ),
    ] {
        let binder = bind_on_base(&route(&format!(
            "{{{TO_EDGE}, rules: [{{backendRefs: [{backend}]}}]}}"
        )));
        let summary = summary(&binder, "HTTPRoute shop/r");
        assert!(summary.starts_with("Accepted=True/Accepted"), "{summary}");
        assert!(
            summary.contains(&format!("/{reason}")),
            "{backend}: {summary}"
        );
        let message = message(&binder, "HTTPRoute shop/r", "ResolvedRefs");
        assert!(message.contains(words), "{message}");
    }
}

// A port is a number and a protocol, so a route of another transport has no matching port.
#[test]
fn a_port_of_another_transport_is_not_found() {
    for (kind, listener, protocol, needs) in [
        ("UDPRoute", "UDP", "TCP", "a UDP port"),
        ("TCPRoute", "TCP", "UDP", "a TCP port"),
        ("HTTPRoute", "HTTP", "UDP", "a TCP port"),
    ] {
        let binder = bind(
            &(doc(
                "GatewayClass",
                "ours",
                "{controllerName: pointsman.io/controller}",
            ) + &doc(
                "Gateway",
                "shop/g",
                &format!(
                    "{{gatewayClassName: ours, listeners: [{{name: l, port: 53, protocol: {listener}}}]}}"
                ),
            ) + &service(
                "shop/dns",
                &format!("{{ports: [{{port: 53, protocol: {protocol}}}]}}"),
            ) + &doc(
                kind,
                "shop/r",
                "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: dns, port: 53}]}]}",
            )),
        );
        let route = format!("{kind} shop/r");
        assert_eq!(
            summary(&binder, &route),
            "Accepted=True/Accepted ResolvedRefs=False/BackendNotFound"
        );
        let expected =
            format!("port 53 of Service shop/dns is not {needs}, which a {kind} requires");
        assert!(message(&binder, &route, "ResolvedRefs").contains(&expected));
    }
}

#[test]
fn the_grant_in_a_message_permits_the_reference() {
    let spec = format!(
        "{{{TO_EDGE}, rules: [{{backendRefs: [{{name: other, namespace: team, port: 80}}]}}]}}"
    );
    let binder = bind_on_base(&route(&spec));
    let message = message(&binder, "HTTPRoute shop/r", "ResolvedRefs");
    let grant = &message[message.find("apiVersion").expect("a grant")..];
    let binder = bind_on_base(&format!("{}\n---\n{grant}", route(&spec)));
    assert!(summary(&binder, "HTTPRoute shop/r").ends_with("ResolvedRefs=True/ResolvedRefs"));
}

#[test]
fn grants_that_differ_in_one_field_do_not_permit_a_reference() {
    let spec = format!(
        "{{{TO_EDGE}, rules: [{{backendRefs: [{{name: other, namespace: team, port: 80}}]}}]}}"
    );
    let right = (
        "team",
        "gateway.networking.k8s.io",
        "HTTPRoute",
        "shop",
        "''",
        "Service",
        "other",
    );
    let with = |(ns, group, kind, from, to_group, to_kind, name): (
        &str,
        &str,
        &str,
        &str,
        &str,
        &str,
        &str,
    )| {
        let grant = format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: ReferenceGrant, metadata: {{name: g, namespace: {ns}}}, spec: {{from: [{{group: {group}, kind: {kind}, namespace: {from}}}], to: [{{group: {to_group}, kind: {to_kind}, name: {name}}}]}}}}"
        );
        summary(
            &bind_on_base(&format!("{}\n---\n{grant}", route(&spec))),
            "HTTPRoute shop/r",
        )
    };
    assert!(with(right).ends_with("ResolvedRefs=True/ResolvedRefs"));
    for wrong in [
        ("shop", right.1, right.2, right.3, right.4, right.5, right.6),
        (
            right.0,
            "example.com",
            right.2,
            right.3,
            right.4,
            right.5,
            right.6,
        ),
        (
            right.0, right.1, "TCPRoute", right.3, right.4, right.5, right.6,
        ),
        (right.0, right.1, right.2, "team", right.4, right.5, right.6),
        (
            right.0,
            right.1,
            right.2,
            right.3,
            "example.com",
            right.5,
            right.6,
        ),
        (
            right.0, right.1, right.2, right.3, right.4, "Secret", right.6,
        ),
        (
            right.0, right.1, right.2, right.3, right.4, right.5, "another",
        ),
    ] {
        assert!(
            with(wrong).ends_with("ResolvedRefs=False/RefNotPermitted"),
            "{wrong:?}"
        );
    }
}

#[test]
fn a_service_of_type_external_name_is_not_a_backend() {
    let service = "{apiVersion: v1, kind: Service, metadata: {name: ext, namespace: shop}, spec: {type: ExternalName, externalName: example.com, ports: [{port: 80}]}}";
    let binder = bind_on_base(&format!(
        "{service}\n---\n{}",
        route(&format!(
            "{{{TO_EDGE}, rules: [{{backendRefs: [{{name: ext, port: 80}}]}}]}}"
        ))
    ));
    assert!(summary(&binder, "HTTPRoute shop/r").ends_with("ResolvedRefs=False/InvalidKind"));
}

#[test]
fn an_invalid_expression_drops_only_its_own_rule() {
    let rules = "[{matches: [{path: {type: RegularExpression, value: '/a('}}]}, {backendRefs: [{name: web, port: 80}]}]";
    let binder = bind_on_base(&route(&format!("{{{TO_EDGE}, rules: {rules}}}")));
    assert_eq!(
        summary(&binder, "HTTPRoute shop/r"),
        "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs PartiallyInvalid=True/UnsupportedValue"
    );
    let text = message(&binder, "HTTPRoute shop/r", "PartiallyInvalid");
    assert!(
        text.starts_with("Dropped Rule: rule 0: match 0: path `/a(`"),
        "{text}"
    );
    let binder = bind_on_base(&route(&format!(
        "{{{TO_EDGE}, rules: [{{matches: [{{headers: [{{name: x, type: RegularExpression, value: '*'}}]}}]}}]}}"
    )));
    assert!(summary(&binder, "HTTPRoute shop/r").starts_with("Accepted=False/UnsupportedValue"));
    assert_eq!(attached(&binder, "Gateway infra/edge"), ["http=0"]);
}

#[test]
fn unsupported_fields_cause_500_and_are_reported() {
    let refused = "Accepted=False/UnsupportedValue ResolvedRefs=True/ResolvedRefs";
    for (rule, wanted) in [
        ("{sessionPersistence: {cookie: {name: c}}}", refused),
        (
            "{filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, http: {}, backendRef: {name: web, port: 80}}}]}",
            refused,
        ),
        (
            "{filters: [{type: ExtensionRef, extensionRef: {group: example.com, kind: F, name: f}}]}",
            "Accepted=False/UnsupportedValue ResolvedRefs=False/InvalidKind",
        ),
    ] {
        let binder = bind_on_base(&route(&format!("{{{TO_EDGE}, rules: [{rule}]}}")));
        assert_eq!(summary(&binder, "HTTPRoute shop/r"), wanted, "{rule}");
        // Only accepted routes count.
        assert_eq!(attached(&binder, "Gateway infra/edge"), ["http=0"]);
        if wanted == refused {
            let text = message(&binder, "HTTPRoute shop/r", "Accepted");
            assert!(text.contains("rule 0 replies with 500: "), "{text}");
            assert!(text.ends_with("is not supported"), "{text}");
        }
    }
}

#[test]
fn a_parent_of_another_controller_gets_no_status_entry() {
    let binder = bind_on_base(&route(
        "{parentRefs: [{name: nowhere}, {name: edge, namespace: infra}]}",
    ));
    assert_eq!(conditions(&binder, "HTTPRoute shop/r").len(), 2);
    assert!(
        binder
            .warnings()
            .iter()
            .any(|w| w.field == "spec.parentRefs[0]" && w.message.contains("does not exist"))
    );
}

#[test]
fn objects_that_are_not_served_cause_warnings() {
    let class = |name: &str, controller: &str| {
        doc(
            "GatewayClass",
            name,
            &format!("{{controllerName: {controller}}}"),
        )
    };
    let gateway = |name: &str, class: &str| {
        let listeners = "listeners: [{name: http, port: 80, protocol: HTTP}]";
        doc(
            "Gateway",
            name,
            &format!("{{gatewayClassName: {class}, {listeners}}}"),
        )
    };
    let set = doc(
        "ListenerSet",
        "shop/set",
        "{parentRef: {name: gone}, listeners: [{name: http, port: 80, protocol: HTTP}]}",
    );
    let binder = bind(
        &(class("other", "example.com/other")
            + &class("ours", "pointsman.io/controller")
            + &gateway("shop/well", "ours")
            + &gateway("shop/other", "other")
            + &gateway("shop/classless", "none")
            + &set
            + &doc(
                "HTTPRoute",
                "shop/r",
                "{parentRefs: [{name: other}, {kind: ListenerSet, name: set}, {kind: ListenerSet, name: lost}]}",
            )),
    );
    let reported: Vec<String> = binder
        .warnings()
        .into_iter()
        .map(|w| format!("{} {}: {}", w.object, w.field, w.message))
        .collect();
    let other =
        "GatewayClass other belongs to controller example.com/other, not pointsman.io/controller";
    assert_eq!(
        reported,
        [
            "Gateway shop/classless spec.gatewayClassName: GatewayClass none does not exist, so Gateway shop/classless is not served".to_owned(),
            format!("Gateway shop/other spec.gatewayClassName: {other}"),
            "ListenerSet shop/set spec.parentRef: Gateway shop/gone does not exist".to_owned(),
            format!("HTTPRoute shop/r spec.parentRefs[0]: {other}"),
            "HTTPRoute shop/r spec.parentRefs[1]: Gateway shop/gone does not exist".to_owned(),
            "HTTPRoute shop/r spec.parentRefs[2]: ListenerSet shop/lost does not exist".to_owned(),
        ]
    );
}

#[test]
fn headers_that_filters_can_not_modify_cause_warnings() {
    let filter = |kind: &str, change: &str| {
        let field = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
        format!("{{type: {kind}, {field}: {{{change}}}}}")
    };
    let binder = bind_on_base(&route(&format!(
        "{{parentRefs: [{{name: edge, namespace: infra, sectionName: http}}], rules: [{{filters: [{}], backendRefs: [{{name: web, port: 80, filters: [{}]}}]}}]}}",
        filter(
            "RequestHeaderModifier",
            "set: [{name: x, value: z}], remove: [Host]"
        ),
        filter(
            "ResponseHeaderModifier",
            "add: [{name: Connection, value: close}]"
        ),
    )));
    let reported = binder.warnings().into_iter();
    let reported: Vec<String> = reported
        .filter(|warning| warning.field.contains("filters"))
        .map(|warning| format!("{}: {}", warning.field, warning.message))
        .collect();
    assert_eq!(
        reported,
        [
            "spec.rules[0].filters[0].requestHeaderModifier: Host can't be modified: the proxy sets it for each connection",
            "spec.rules[0].backendRefs[0].filters[0].responseHeaderModifier: Connection can't be modified: the proxy sets it for each connection",
        ]
    );
}

#[test]
fn a_route_with_two_parents_has_a_status_entry_for_each() {
    let binder = bind_on_base(&route(
        "{parentRefs: [{name: edge, namespace: infra, sectionName: http}, {name: edge, namespace: infra, sectionName: nope}]}",
    ));
    assert_eq!(
        conditions(&binder, "HTTPRoute shop/r"),
        [
            "parent Gateway infra/edge section http: Accepted=True/Accepted",
            "parent Gateway infra/edge section http: ResolvedRefs=True/ResolvedRefs",
            "parent Gateway infra/edge section nope: Accepted=False/NoMatchingParent",
            "parent Gateway infra/edge section nope: ResolvedRefs=True/ResolvedRefs",
        ]
    );
}

#[test]
fn default_gateways_are_parents_of_routes_that_use_them() {
    let gateway = "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: d, namespace: infra}, spec: {defaultScope: All, gatewayClassName: pointsman, listeners: [{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}}";
    let binder = bind_on_base(&format!(
        "{gateway}\n---\n{}",
        route("{useDefaultGateways: All}")
    ));
    assert_eq!(attached(&binder, "Gateway infra/d"), ["a=1"]);
    assert_eq!(attached(&binder, "Gateway infra/edge"), ["http=0"]);
}
