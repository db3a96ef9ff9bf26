//! Gateways and their listeners: protocols, kinds, conflicts, addresses, counts.

mod common;

use std::sync::Arc;

use common::certificates::fresh_secret;
use common::{
    Bound, attached, bind, condition, conditions, doc, key, listener, message, own_conditions,
    puts, service, supported,
};
use pointsman_binding::status::StatusBody;
use pointsman_binding::{Change, ServedApi};
use pointsman_resources::{Kind, Resource};

const OURS: &str = "{controllerName: pointsman.io/controller}";

/// A Gateway `infra/g` of a managed class, with additional fields.
fn gateway(fields: &str) -> String {
    doc("GatewayClass", "ours", OURS)
        + &doc(
            "Gateway",
            "infra/g",
            &format!("{{gatewayClassName: ours, {fields}}}"),
        )
}

fn with_listeners(listeners: &str) -> Bound {
    Bound::of(&gateway(&format!("listeners: [{listeners}]")))
}

const G: &str = "Gateway infra/g";
const GOOD: [&str; 3] = [
    "Accepted=True/Accepted",
    "ResolvedRefs=True/ResolvedRefs",
    "Programmed=True/Programmed",
];

#[test]
fn a_class_is_managed_by_its_controller_name() {
    let binder = bind(
        &(doc("GatewayClass", "ours", OURS)
            + &doc(
                "GatewayClass",
                "theirs",
                "{controllerName: example.com/other}",
            )),
    );
    assert_eq!(
        conditions(&binder, "GatewayClass ours"),
        [
            "Accepted=True/Accepted",
            "SupportedVersion=True/SupportedVersion"
        ]
    );
    assert!(conditions(&binder, "GatewayClass theirs").is_empty());
    let status = binder.status(&key("GatewayClass ours")).expect("a status");
    let StatusBody::Class { features, .. } = &status.body else {
        panic!("not a class")
    };
    assert!(features.is_sorted() && features.contains(&"HTTPRoute"));
}

// "Missing CRDs are reported in … GatewayClass status"
#[test]
fn kinds_that_a_cluster_does_not_serve_are_reported_and_not_advertised() {
    let mut bound = Bound::of(&doc("GatewayClass", "ours", OURS));
    let mut status = |missing: &[Kind], version: Option<&str>| {
        let api = ServedApi {
            missing: missing.to_vec(),
            bundle_version: version.map(Into::into),
        };
        bound.apply([Change::ServedApi(Arc::new(api))]);
        let status = bound.binder.status(&key("GatewayClass ours")).cloned();
        let StatusBody::Class {
            conditions,
            features,
        } = &status.expect("a status").body
        else {
            panic!("not a class")
        };
        let condition = conditions.iter().find(|one| one.kind == "SupportedVersion");
        let condition = condition.expect("a condition").clone();
        (
            condition.is_true(),
            condition.message.to_string(),
            features.clone(),
        )
    };
    let (supported, message, features) =
        status(&[Kind::TLSRoute, Kind::MeshService], Some("v1.7.0"));
    assert!(supported);
    assert_eq!(message, "the API server does not serve TLSRoute");
    assert!(
        !features
            .iter()
            .any(|feature| feature.starts_with("TLSRoute"))
    );
    assert!(features.contains(&"HTTPRoute"));
    let (supported, message, _) = status(&[], Some("v1.8.0-rc.1"));
    assert!(!supported && message.contains("v1.8.0-rc.1"), "{message}");
    for known in [Some("v1.0.0"), Some("main"), None] {
        let (supported, message, features) = status(&[], known);
        assert_eq!((supported, &*message), (true, ""), "{known:?}");
        assert!(features.contains(&"TLSRoute"));
    }
}

#[test]
fn a_gateway_of_another_class_has_no_status() {
    let theirs = doc(
        "GatewayClass",
        "ours",
        "{controllerName: example.com/other}",
    );
    let mut bound = Bound::of(&gateway("listeners: [{name: a, port: 80, protocol: HTTP}]"));
    assert_eq!(bound.frontend_names(), ["infra/g a"]);
    bound.apply(puts(&theirs));
    assert!(conditions(&bound, G).is_empty() && bound.frontend_names().is_empty());
}

#[test]
fn parameters_are_rejected() {
    let class = doc(
        "GatewayClass",
        "ours",
        "{controllerName: pointsman.io/controller, parametersRef: {group: x.io, kind: P, name: p}}",
    );
    let gateway = doc(
        "Gateway",
        "infra/g",
        "{gatewayClassName: ours, listeners: [{name: a, port: 80, protocol: HTTP}]}",
    );
    let bound = Bound::of(&(class + &gateway));
    assert_eq!(
        condition(&bound, "GatewayClass ours", "Accepted"),
        "False/InvalidParameters"
    );
    assert_eq!(condition(&bound, G, "Accepted"), "False/InvalidParameters");
    let bound = Bound::of(&self::gateway(
        "infrastructure: {parametersRef: {group: x.io, kind: P, name: p}}, listeners: [{name: a, port: 80, protocol: HTTP}]",
    ));
    assert_eq!(
        own_conditions(&bound, G)[..2],
        [
            "Accepted=False/InvalidParameters",
            "Programmed=False/Invalid"
        ]
    );
    assert_eq!(
        listener(&bound, G, "a"),
        [
            "Accepted=True/Accepted",
            "ResolvedRefs=True/ResolvedRefs",
            "Programmed=False/Invalid"
        ]
    );
    assert!(bound.frontend_names().is_empty());
}

#[test]
fn the_protocol_determines_the_supported_kinds() {
    for (fields, kinds) in [
        ("protocol: HTTP", "HTTPRoute,GRPCRoute"),
        (
            "protocol: HTTPS, tls: {certificateRefs: [{name: c}]}",
            "HTTPRoute,GRPCRoute",
        ),
        ("protocol: TLS, tls: {mode: Passthrough}", "TLSRoute"),
        (
            "protocol: TLS, tls: {certificateRefs: [{name: c}]}",
            "TLSRoute,TCPRoute",
        ),
        ("protocol: TCP", "TCPRoute"),
        ("protocol: UDP", "UDPRoute"),
        (
            "protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}]}",
            "HTTPRoute",
        ),
        (
            "protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}, {kind: HTTPRoute}]}",
            "GRPCRoute,HTTPRoute",
        ),
    ] {
        let bound = with_listeners(&format!("{{name: a, port: 80, {fields}}}"));
        assert_eq!(supported(&bound, G), [format!("a={kinds}")], "{fields}");
        assert_eq!(listener(&bound, G, "a")[0], "Accepted=True/Accepted");
    }
}

// "Listener Accepted=False/UnsupportedProtocol, supportedKinds empty; Gateway Accepted=False/ListenersNotValid, or
// True/ListenersNotValid when another listener is fine."
#[test]
fn a_listener_of_an_unknown_protocol_is_rejected_alone() {
    let bad = "{name: bad, port: 1111, protocol: INVALID}";
    let bound = with_listeners(bad);
    assert_eq!(
        own_conditions(&bound, G)[..2],
        [
            "Accepted=False/ListenersNotValid",
            "Programmed=False/Invalid"
        ]
    );
    assert_eq!(
        listener(&bound, G, "bad"),
        [
            "Accepted=False/UnsupportedProtocol",
            "ResolvedRefs=True/ResolvedRefs",
            "Programmed=False/Invalid"
        ]
    );
    assert_eq!(supported(&bound, G), ["bad="]);
    let bound = with_listeners(&format!("{bad}, {{name: good, port: 80, protocol: HTTP}}"));
    assert_eq!(
        own_conditions(&bound, G)[..2],
        [
            "Accepted=True/ListenersNotValid",
            "Programmed=True/Programmed"
        ]
    );
    assert_eq!(listener(&bound, G, "good"), GOOD);
    assert_eq!(bound.frontend_names(), ["infra/g good"]);
}

// "supportedKinds MUST represent the kinds supported … invalid ones MUST NOT appear, ResolvedRefs=False/InvalidRouteKinds."
#[test]
fn unsupported_kinds_are_named() {
    for (kinds, left, serves) in [
        ("[{kind: InvalidRoute}]", "", false),
        ("[{kind: TCPRoute}]", "", false),
        ("[{group: example.com, kind: HTTPRoute}]", "", false),
        (
            "[{kind: InvalidRoute}, {kind: HTTPRoute}]",
            "HTTPRoute",
            true,
        ),
        (
            "[{kind: HTTPRoute}, {kind: InvalidRoute}]",
            "HTTPRoute",
            true,
        ),
    ] {
        let bound = with_listeners(&format!(
            "{{name: a, port: 80, protocol: HTTP, allowedRoutes: {{kinds: {kinds}}}}}"
        ));
        assert_eq!(supported(&bound, G), [format!("a={left}")], "{kinds}");
        assert_eq!(
            listener(&bound, G, "a")[..2],
            [
                "Accepted=True/Accepted",
                "ResolvedRefs=False/InvalidRouteKinds"
            ]
        );
        assert_eq!(
            condition(&bound, G, "ResolvedRefs"),
            "False/ListenersNotResolved"
        );
        assert_eq!(!bound.frontend_names().is_empty(), serves, "{kinds}");
    }
}

// "Indistinct listeners inside one Gateway must all lose."
#[test]
fn conflicting_listeners_of_one_gateway_are_all_rejected() {
    let tls = "tls: {mode: Passthrough}";
    for (a, b, clash) in [
        (
            "port: 80, protocol: HTTP, hostname: a.example",
            "port: 80, protocol: HTTP, hostname: b.example",
            None,
        ),
        (
            "port: 80, protocol: HTTP, hostname: a.example",
            "port: 80, protocol: HTTP",
            None,
        ),
        (
            "port: 80, protocol: HTTP, hostname: a.example",
            "port: 80, protocol: HTTP, hostname: '*.example'",
            None,
        ),
        ("port: 80, protocol: HTTP", "port: 81, protocol: TCP", None),
        ("port: 80, protocol: TCP", "port: 80, protocol: UDP", None),
        ("port: 80, protocol: HTTP", "port: 80, protocol: UDP", None),
        (
            "port: 80, protocol: HTTP",
            "port: 80, protocol: TCP",
            Some("ProtocolConflict"),
        ),
        (
            "port: 80, protocol: HTTP, hostname: a.example",
            &format!("port: 80, protocol: TLS, hostname: b.example, {tls}"),
            Some("ProtocolConflict"),
        ),
        (
            &format!("port: 80, protocol: TLS, {tls}"),
            "port: 80, protocol: TCP",
            Some("ProtocolConflict"),
        ),
        (
            &format!("port: 80, protocol: TLS, hostname: a.example, {tls}"),
            "port: 80, protocol: HTTPS, hostname: a.example, tls: {certificateRefs: [{name: c}]}",
            Some("HostnameConflict"),
        ),
        (
            &format!("port: 80, protocol: TLS, hostname: a.example, {tls}"),
            "port: 80, protocol: HTTPS, hostname: b.example, tls: {certificateRefs: [{name: c}]}",
            None,
        ),
        // Terminate and Passthrough on one port, by hostname.
        (
            &format!("port: 80, protocol: TLS, hostname: a.example, {tls}"),
            "port: 80, protocol: TLS, hostname: b.example, tls: {certificateRefs: [{name: c}]}",
            None,
        ),
    ] {
        let listeners =
            format!("{{name: a, {a}}}, {{name: b, {b}}}, {{name: other, port: 9, protocol: HTTP}}");
        let gateway = gateway(&format!("listeners: [{listeners}]"));
        let bound = Bound::of(&(gateway + &fresh_secret("infra/c")));
        for name in ["a", "b"] {
            let conditions = listener(&bound, G, name);
            match clash {
                None => assert!(
                    conditions[0] == "Accepted=True/Accepted"
                        && !conditions.iter().any(|l| l.starts_with("Conflicted")),
                    "{a} {b}: {conditions:?}"
                ),
                Some(reason) => assert_eq!(
                    conditions
                        .iter()
                        .filter(|l| !l.starts_with("ResolvedRefs"))
                        .cloned()
                        .collect::<Vec<_>>(),
                    [
                        format!("Accepted=False/{reason}"),
                        format!("Programmed=False/{reason}"),
                        format!("Conflicted=True/{reason}")
                    ],
                    "{a} {b}"
                ),
            }
        }
        assert_eq!(listener(&bound, G, "other"), GOOD);
        let expected = if clash.is_some() {
            "True/ListenersNotValid"
        } else {
            "True/Accepted"
        };
        assert_eq!(condition(&bound, G, "Accepted"), expected);
    }
}

/// Returns reasons and messages of the Conflicted conditions of a Gateway's listeners.
fn conflicts(bound: &Bound) -> Vec<(&'static str, String)> {
    let status = bound.status(&key(G)).expect("a status");
    let conditions = status.conditions().into_iter();
    let conflicts = conditions.filter(|(_, c)| c.kind == "Conflicted");
    conflicts
        .map(|(_, c)| (c.reason, c.message.to_string()))
        .collect()
}

#[test]
fn messages_about_conflicting_listeners_of_one_gateway_say_that_neither_gets_the_port() {
    let tls = "hostname: a.example, tls: {certificateRefs: [{name: c}]}";
    for (a, b, reason, messages) in [
        (
            "protocol: HTTP",
            "protocol: TCP",
            "ProtocolConflict",
            [
                "listeners a (HTTP) and b (TCP) can't share port 80, so neither gets it",
                "listeners b (TCP) and a (HTTP) can't share port 80, so neither gets it",
            ],
        ),
        (
            &format!("protocol: HTTPS, {tls}"),
            &format!("protocol: TLS, {tls}"),
            "HostnameConflict",
            [
                "listeners a and b both request hostname a.example on port 80, so neither gets it",
                "listeners b and a both request hostname a.example on port 80, so neither gets it",
            ],
        ),
    ] {
        let bound = with_listeners(&format!(
            "{{name: a, port: 80, {a}}}, {{name: b, port: 80, {b}}}"
        ));
        let expected = messages.map(|message| (reason, message.to_owned()));
        assert_eq!(conflicts(&bound), expected);
    }
}

// The API server rejects a Gateway with two such listeners, but not every source of objects validates.
#[test]
fn two_tcp_or_udp_listeners_on_one_port_conflict_as_listeners() {
    for protocol in ["TCP", "UDP"] {
        let mut objects = common::read(&gateway(&format!(
            "listeners: [{{name: a, port: 80, protocol: {protocol}}}, {{name: b, port: 81, protocol: {protocol}}}]"
        )));
        for object in &mut objects {
            if let Resource::Gateway(gateway) = object {
                std::sync::Arc::make_mut(gateway).spec.listeners[1].port = 80;
            }
        }
        let mut bound = Bound::default();
        bound.apply(objects.into_iter().map(Change::Put));
        let message = |a, b| {
            format!("listeners {a} and {b} both request {protocol} port 80, so neither gets it")
        };
        let expected = [message("a", "b"), message("b", "a")];
        let expected = expected.map(|message| ("ListenerConflict", message));
        assert_eq!(conflicts(&bound), expected);
        assert!(bound.frontend_names().is_empty());
    }
}

#[test]
fn addresses_are_ip_addresses() {
    for (addresses, accepted, programmed, given) in [
        (
            "[{type: IPAddress, value: 127.0.0.1}]",
            "True/Accepted",
            "True/Programmed",
            1,
        ),
        (
            "[{value: 127.0.0.1}, {value: '::1'}]",
            "True/Accepted",
            "True/Programmed",
            2,
        ),
        ("[{type: IPAddress}]", "True/Accepted", "True/Programmed", 0),
        (
            "[{type: test/fake-invalid-type, value: x}, {value: 127.0.0.1}]",
            "False/UnsupportedAddress",
            "False/Invalid",
            0,
        ),
        (
            "[{type: Hostname, value: bogus.example.com}, {value: 127.0.0.1}]",
            "True/Accepted",
            "False/AddressNotUsable",
            1,
        ),
        (
            "[{type: Hostname, value: bogus.example.com}, {type: Hostname}]",
            "True/Accepted",
            "False/AddressNotUsable",
            0,
        ),
        (
            "[{value: 127.0.0.1, routability: Cluster}]",
            "False/UnsupportedAddress",
            "False/Invalid",
            0,
        ),
    ] {
        let bound = Bound::of(&gateway(&format!(
            "addresses: {addresses}, listeners: [{{name: a, port: 80, protocol: HTTP}}]"
        )));
        assert_eq!(condition(&bound, G, "Accepted"), accepted, "{addresses}");
        assert_eq!(
            condition(&bound, G, "Programmed"),
            programmed,
            "{addresses}"
        );
        let status = bound.status(&key(G)).expect("a status");
        let StatusBody::Gateway {
            addresses: found, ..
        } = &status.body
        else {
            panic!("not a Gateway")
        };
        assert_eq!(found.len(), given, "{addresses}");
        // An unusable address does not take down the others. Any address may be assigned later.
        let serves = given > 0 || programmed == "True/Programmed";
        assert_eq!(bound.frontend_names().is_empty(), !serves, "{addresses}");
    }
}

// Listener Programmed=False/Pending: "it is valid, but not yet configured in the data plane".
#[test]
fn a_valid_listener_without_an_address_is_pending() {
    let listeners = "listeners: [{name: a, port: 80, protocol: HTTP}, {name: bad, port: 81, protocol: INVALID}]";
    for (addresses, a, bad) in [
        (
            "[{type: Hostname, value: bogus.example.com}]",
            "Programmed=False/Pending",
            "Programmed=False/Invalid",
        ),
        (
            "[{type: Hostname, value: bogus.example.com}, {value: 127.0.0.1}]",
            "Programmed=True/Programmed",
            "Programmed=False/Invalid",
        ),
        (
            "[{type: test/fake-invalid-type, value: x}]",
            "Programmed=False/Invalid",
            "Programmed=False/Invalid",
        ),
    ] {
        let bound = Bound::of(&gateway(&format!("addresses: {addresses}, {listeners}")));
        assert_eq!(listener(&bound, G, "a")[2], a, "{addresses}");
        assert_eq!(listener(&bound, G, "bad")[2], bad, "{addresses}");
    }
}

// Unsupported fields are rejected, never ignored.
#[test]
fn unsupported_fields_of_listeners_are_rejected() {
    for (fields, words) in [
        (
            "protocol: HTTP, filters: {requests: [{type: ExtensionRef, extensionRef: {group: x.io, kind: F, name: f}}]}",
            "filters on listeners are not supported",
        ),
        (
            "protocol: HTTPS, tls: {certificateRefs: [{name: c}], options: {example.com/x: z}}",
            "option",
        ),
    ] {
        let bound = with_listeners(&format!("{{name: a, port: 80, {fields}}}"));
        assert_eq!(
            listener(&bound, G, "a")[0],
            "Accepted=False/UnsupportedValue",
            "{fields}"
        );
        let found = bound
            .status(&key(G))
            .expect("a status")
            .conditions()
            .iter()
            .any(|(place, c)| place == "listener a" && c.message.contains(words));
        assert!(found, "{fields}");
    }
}

#[test]
fn a_tcp_route_attaches_to_a_listener_that_terminates_tls() {
    let terminate = "tls: {certificateRefs: [{name: c}]}";
    let hostname = format!("hostname: db.example, {terminate}");
    for (fields, summary, attached_routes) in [
        (terminate, "True/Accepted", "a=1"),
        (&hostname, "True/Accepted", "a=1"),
        (
            "tls: {mode: Passthrough}",
            "False/NotAllowedByListeners",
            "a=0",
        ),
    ] {
        let listener = format!("{{name: a, port: 443, protocol: TLS, {fields}}}");
        let bound = Bound::of(
            &(gateway(&format!("listeners: [{listener}]"))
                + &fresh_secret("infra/c")
                + &service("infra/web", "{ports: [{port: 80}]}")
                + &route(
                    "TCPRoute",
                    "infra/r",
                    "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
                )),
        );
        assert_eq!(condition(&bound, "TCPRoute infra/r", "Accepted"), summary);
        assert_eq!(attached(&bound, G), [attached_routes]);
    }
}

#[test]
fn a_selector_of_namespaces_that_is_missing_or_invalid_is_warned_about_at_the_gateway() {
    for (selector, why) in [
        (
            "from: Selector",
            "from is Selector, but there is no selector",
        ),
        (
            "from: Selector, selector: {matchExpressions: [{key: a, operator: Is, values: [b]}]}",
            "selector is invalid: unsupported operator `Is` on label `a`; supported operators: In, NotIn, Exists, DoesNotExist",
        ),
        (
            "from: Selector, selector: {matchExpressions: [{key: a, operator: In}]}",
            "selector is invalid: values are required for operator In on label `a`",
        ),
        ("from: Selector, selector: {}", ""),
        ("from: All", ""),
    ] {
        let listener = format!(
            "{{name: a, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {{{selector}}}}}}}"
        );
        let set = doc(
            "ListenerSet",
            "infra/s",
            &format!(
                "{{parentRef: {{name: g}}, listeners: [{}]}}",
                listener.replace("80", "81")
            ),
        );
        let of_routes = Bound::of(
            &(gateway(&format!(
                "allowedListeners: {{namespaces: {{from: Same}}}}, listeners: [{listener}]"
            )) + &set),
        );
        let of_sets = Bound::of(&gateway(&format!(
            "allowedListeners: {{namespaces: {{{selector}}}}}, listeners: [{{name: a, port: 80, protocol: HTTP}}]"
        )));
        let reported = |bound: &Bound| -> Vec<String> {
            let warnings = bound.warnings().into_iter();
            warnings
                .map(|warning| format!("{} {}: {}", warning.object, warning.field, warning.message))
                .collect()
        };
        if why.is_empty() {
            assert!(reported(&of_routes).is_empty() && reported(&of_sets).is_empty());
            continue;
        }
        let field = "spec.listeners[0].allowedRoutes.namespaces";
        let message = format!("{field}: {why}, so no route is allowed");
        assert_eq!(
            reported(&of_routes),
            [
                format!("Gateway infra/g {message}"),
                format!("ListenerSet infra/s {message}")
            ]
        );
        let message =
            format!("spec.allowedListeners.namespaces: {why}, so no ListenerSet is allowed");
        assert_eq!(reported(&of_sets), [format!("Gateway infra/g {message}")]);
    }
}

fn route(kind: &str, name: &str, spec: &str) -> String {
    doc(kind, name, spec)
}

// "attachedRoutes counts only Accepted=True routes, even on a not-accepted listener."
#[test]
fn accepted_routes_are_counted() {
    let web = service("infra/web", "{ports: [{port: 80}]}");
    let g = "listeners: [{name: a, port: 80, protocol: HTTP, hostname: a.example}, {name: b, port: 81, protocol: HTTP}, {name: broken, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: nothing}]}}]";
    for (spec, counts) in [
        ("{parentRefs: [{name: g}]}", ["a=1", "b=1", "broken=1"]),
        (
            "{parentRefs: [{name: g, sectionName: a}]}",
            ["a=1", "b=0", "broken=0"],
        ),
        // Two references to one listener are one route.
        (
            "{parentRefs: [{name: g, sectionName: a}, {name: g, namespace: infra, sectionName: a}]}",
            ["a=1", "b=0", "broken=0"],
        ),
        (
            "{parentRefs: [{name: g, sectionName: a}, {name: g, sectionName: b}]}",
            ["a=1", "b=1", "broken=0"],
        ),
        (
            "{parentRefs: [{name: g}], hostnames: [b.example]}",
            ["a=0", "b=1", "broken=1"],
        ),
        (
            "{parentRefs: [{name: g, sectionName: a}], hostnames: [b.example]}",
            ["a=0", "b=0", "broken=0"],
        ),
        // A listener whose references are unresolved still counts, and so does a route with an unresolved backend.
        (
            "{parentRefs: [{name: g, sectionName: broken}], rules: [{backendRefs: [{name: nothing, port: 80}]}]}",
            ["a=0", "b=0", "broken=1"],
        ),
    ] {
        let bound = Bound::of(&(gateway(g) + &web + &route("HTTPRoute", "infra/r", spec)));
        assert_eq!(attached(&bound, G), counts, "{spec}");
    }
    // "TCP/UDP: oldest wins, still both Accepted and counted."
    let tcp = |name: &str| {
        route(
            "TCPRoute",
            name,
            "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
        )
    };
    let bound = Bound::of(
        &(gateway("listeners: [{name: t, port: 80, protocol: TCP}]")
            + &web
            + &tcp("infra/x")
            + &tcp("infra/z")),
    );
    assert_eq!(attached(&bound, G), ["t=2"]);
}

#[test]
fn counts_follow_added_and_removed_routes() {
    let mut bound = Bound::of(&gateway("listeners: [{name: a, port: 80, protocol: HTTP}]"));
    bound.apply(puts(
        &(route("HTTPRoute", "infra/x", "{parentRefs: [{name: g}]}")
            + &route("GRPCRoute", "infra/z", "{parentRefs: [{name: g}]}")),
    ));
    assert_eq!(attached(&bound, G), ["a=2"]);
    bound.apply([pointsman_binding::Change::Delete(key("HTTPRoute infra/x"))]);
    assert_eq!(attached(&bound, G), ["a=1"]);
    bound.apply(puts(&gateway(
        "listeners: [{name: b, port: 80, protocol: HTTP}]",
    )));
    assert_eq!(attached(&bound, G), ["b=1"]);
    bound.apply(puts(&gateway("listeners: [{name: b, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}]}}]")));
    assert_eq!(attached(&bound, G), ["b=0"]);
    assert!(
        message(&bound, "GRPCRoute infra/z", "Accepted")
            .contains("accepts HTTPRoute, not GRPCRoute")
    );
}

#[test]
fn the_observed_generation_is_reported() {
    let mut bound = Bound::of(&gateway("listeners: [{name: a, port: 80, protocol: HTTP}]"));
    assert_eq!(bound.status(&key(G)).map(|s| s.generation), Some(1));
    let newer = gateway("listeners: [{name: a, port: 80, protocol: HTTP}]")
        .replace("namespace: infra", "generation: 7, namespace: infra");
    bound.apply(puts(&newer));
    assert_eq!(bound.status(&key(G)).map(|s| s.generation), Some(7));
}
