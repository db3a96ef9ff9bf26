//! ListenerSets (GEP-1713): permission to add listeners to a Gateway, conflicts, and attachment of routes.

mod common;

use common::certificates::fresh_secret;
use common::{
    Bound, attached, condition, conditions, doc, gateway_g, key, listener, message, own_conditions,
    puts,
};
use pointsman_binding::Change;
use pointsman_binding::status::StatusBody;

const G: &str = "Gateway infra/g";

/// A Gateway `infra/g` with a listener `own` on port 80, and its `allowedListeners`.
fn gateway(allowed: &str) -> String {
    let allowed = if allowed.is_empty() {
        String::new()
    } else {
        format!("allowedListeners: {{namespaces: {allowed}}}, ")
    };
    gateway_g(&format!(
        "{allowed}listeners: [{{name: own, port: 80, protocol: HTTP, hostname: own.example}}]"
    ))
}

fn set(name: &str, listeners: &str) -> String {
    doc(
        "ListenerSet",
        name,
        &format!("{{parentRef: {{name: g, namespace: infra}}, listeners: [{listeners}]}}"),
    )
}

fn http(name: &str) -> String {
    format!("{{name: {name}, port: 80, protocol: HTTP, hostname: {name}.example}}")
}

fn attached_sets(bound: &Bound) -> Option<usize> {
    match &bound.status(&key(G)).expect("a status").body {
        StatusBody::Gateway {
            attached_listener_sets,
            ..
        } => *attached_listener_sets,
        _ => None,
    }
}

const YES: [&str; 2] = ["Accepted=True/Accepted", "Programmed=True/Programmed"];
const NO: [&str; 2] = ["Accepted=False/NotAllowed", "Programmed=False/NotAllowed"];

#[test]
fn allowed_listeners_limit_namespaces() {
    let label =
        "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {may: listen}}}";
    for (allowed, expected) in [
        ("", [NO, NO, NO]),
        ("{from: None}", [NO, NO, NO]),
        ("{from: Same}", [YES, NO, NO]),
        ("{from: All}", [YES, YES, YES]),
        (
            "{from: Selector, selector: {matchLabels: {may: listen}}}",
            [NO, YES, NO],
        ),
    ] {
        let sets: String = ["infra", "team", "lab"]
            .iter()
            .map(|ns| set(&format!("{ns}/s"), &http(ns)))
            .collect();
        let bound = Bound::of(&(gateway(allowed) + label + &sets));
        let found = ["infra", "team", "lab"]
            .map(|ns| own_conditions(&bound, &format!("ListenerSet {ns}/s")));
        assert_eq!(found, expected, "{allowed}");
        let number = expected.iter().filter(|e| **e == YES).count();
        assert_eq!(attached_sets(&bound), Some(number), "{allowed}");
        assert_eq!(bound.frontend_names().len(), 1 + number);
    }
}

#[test]
fn a_set_of_an_unmanaged_gateway_has_no_status() {
    let bound = Bound::of(&set("infra/s", &http("a")));
    assert!(conditions(&bound, "ListenerSet infra/s").is_empty());
}

#[test]
fn only_gateways_that_allow_sets_count_them() {
    assert_eq!(attached_sets(&Bound::of(&gateway(""))), None);
    assert_eq!(attached_sets(&Bound::of(&gateway("{from: All}"))), Some(0));
}

#[test]
fn a_set_of_a_rejected_gateway_is_neither_accepted_nor_counted() {
    let refused = gateway("{from: All}").replace(
        "listeners: [{name: own",
        "infrastructure: {parametersRef: {group: x.io, kind: P, name: p}}, listeners: [{name: own",
    );
    let bound = Bound::of(&(refused + &set("infra/s", &http("a"))));
    assert_eq!(
        own_conditions(&bound, "ListenerSet infra/s"),
        [
            "Accepted=False/ParentNotAccepted",
            "Programmed=False/ParentNotAccepted"
        ]
    );
    assert_eq!(attached_sets(&bound), Some(0));
}

fn conflicted(reason: &str) -> Vec<String> {
    vec![
        format!("Accepted=False/{reason}"),
        "ResolvedRefs=True/ResolvedRefs".to_owned(),
        format!("Programmed=False/{reason}"),
        format!("Conflicted=True/{reason}"),
    ]
}

// "ListenerSet conflicts have a winner (Gateway, then oldest ListenerSet, then name)." A set with a valid entry is Accepted and
// Programmed, one with none is False/ListenersNotValid on both.
#[test]
fn the_gateway_wins_then_the_oldest_set_then_the_name() {
    let own = "{name: x, port: 80, protocol: HTTP, hostname: own.example}";
    let aged = |name: &str, at: &str, listeners: &str| {
        set(name, listeners).replace(
            "metadata: {",
            &format!("metadata: {{creationTimestamp: '{at}', "),
        )
    };
    let bound = Bound::of(
        &(gateway("{from: All}")
            + &aged("infra/young", "2024-01-02T00:00:00Z", &http("shared"))
            + &aged(
                "infra/b",
                "2024-01-01T00:00:00Z",
                &format!("{}, {}", http("shared"), http("alone")),
            )
            + &aged(
                "infra/a",
                "2024-01-01T00:00:00Z",
                &format!("{}, {own}", http("shared")),
            )),
    );
    assert_eq!(
        listener(&bound, "ListenerSet infra/a", "shared")[0],
        "Accepted=True/Accepted"
    );
    assert_eq!(
        listener(&bound, "ListenerSet infra/a", "x"),
        conflicted("HostnameConflict")
    );
    assert_eq!(
        own_conditions(&bound, "ListenerSet infra/a"),
        [
            "Accepted=True/ListenersNotValid",
            "Programmed=True/Programmed"
        ]
    );
    assert_eq!(
        listener(&bound, "ListenerSet infra/b", "shared"),
        conflicted("HostnameConflict")
    );
    assert_eq!(
        listener(&bound, "ListenerSet infra/b", "alone")[0],
        "Accepted=True/Accepted"
    );
    assert_eq!(
        listener(&bound, "ListenerSet infra/young", "shared"),
        conflicted("HostnameConflict")
    );
    assert_eq!(
        own_conditions(&bound, "ListenerSet infra/young"),
        [
            "Accepted=False/ListenersNotValid",
            "Programmed=False/ListenersNotValid"
        ]
    );
    assert_eq!(attached_sets(&bound), Some(2));
    assert_eq!(
        own_conditions(&bound, G)[..2],
        ["Accepted=True/Accepted", "Programmed=True/Programmed"]
    );
}

#[test]
fn protocols_conflict_across_sets_and_siblings_of_the_loser_are_unaffected() {
    let tcp = "{name: tcp, port: 80, protocol: TCP}";
    let bound =
        Bound::of(&(gateway("{from: All}") + &set("infra/s", &format!("{}, {tcp}", http("a")))));
    assert_eq!(
        listener(&bound, "ListenerSet infra/s", "tcp"),
        conflicted("ProtocolConflict")
    );
    assert_eq!(
        listener(&bound, "ListenerSet infra/s", "a")[0],
        "Accepted=True/Accepted"
    );
    assert_eq!(
        own_conditions(&bound, "ListenerSet infra/s")[1],
        "Programmed=True/Programmed"
    );
}

// Listener entries may be Conflicted=True with HostnameConflict, ProtocolConflict or ListenerConflict.
#[test]
fn listeners_without_hostnames_conflict_as_listeners() {
    for protocol in ["TCP", "UDP"] {
        let on_90 = |name: &str| format!("{{name: {name}, port: 90, protocol: {protocol}}}");
        let bound = Bound::of(
            &(gateway("{from: All}")
                + &set("infra/a", &on_90("one"))
                + &set("infra/b", &on_90("two"))),
        );
        assert_eq!(
            listener(&bound, "ListenerSet infra/b", "two"),
            conflicted("ListenerConflict")
        );
        let status = bound.status(&key("ListenerSet infra/b")).expect("a status");
        let reported =
            format!("listener one of ListenerSet infra/a already has {protocol} port 90");
        let conditions = status.conditions();
        assert!(conditions.iter().any(|(_, c)| c.message == reported));
        assert_eq!(bound.frontend_names(), ["infra/g own", "infra/a one"]);
    }
}

#[test]
fn the_next_set_gets_the_port_when_the_winner_is_removed() {
    let mut bound = Bound::of(
        &(gateway("{from: All}") + &set("infra/old", &http("x")) + &set("infra/young", &http("x"))),
    );
    assert_eq!(bound.frontend_names(), ["infra/g own", "infra/old x"]);
    bound.apply([Change::Delete(key("ListenerSet infra/old"))]);
    assert_eq!(bound.frontend_names(), ["infra/g own", "infra/young x"]);
    assert_eq!(own_conditions(&bound, "ListenerSet infra/young"), YES);
}

// "Cross-ns cert needs a grant from kind ListenerSet; else RefNotPermitted + ListenersNotValid."
#[test]
fn a_set_without_a_valid_listener_is_not_accepted() {
    let tls = "{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c, namespace: team}]}}";
    let grant = |kind: &str| {
        doc(
            "ReferenceGrant",
            "team/grant",
            &format!(
                "{{from: [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: infra}}], to: [{{group: '', kind: Secret}}]}}"
            ),
        )
    };
    for (objects, expected) in [
        (fresh_secret("team/c"), false),
        (fresh_secret("team/c") + &grant("Gateway"), false),
        (fresh_secret("team/c") + &grant("ListenerSet"), true),
    ] {
        let bound = Bound::of(&(gateway("{from: All}") + &set("infra/s", tls) + &objects));
        let conditions = own_conditions(&bound, "ListenerSet infra/s");
        match expected {
            true => assert_eq!(conditions, YES),
            false => {
                assert_eq!(
                    conditions,
                    [
                        "Accepted=False/ListenersNotValid",
                        "Programmed=False/ListenersNotValid"
                    ]
                );
                assert_eq!(
                    listener(&bound, "ListenerSet infra/s", "a")[1],
                    "ResolvedRefs=False/RefNotPermitted"
                );
            }
        }
    }
}

fn route(name: &str, parents: &str) -> String {
    doc("HTTPRoute", name, &format!("{{parentRefs: [{parents}]}}"))
}

const TO_SET: &str = "{kind: ListenerSet, namespace: team, name: s}";

// "Listener-level allowedRoutes All/Same/Selector evaluated relative to the ListenerSet namespace."
#[test]
fn allowed_routes_are_relative_to_the_sets_namespace() {
    let listener = |name: &str, from: &str| {
        format!(
            "{{name: {name}, port: 80, protocol: HTTP, hostname: {name}.example, allowedRoutes: {{namespaces: {{{from}}}}}}}"
        )
    };
    let listeners = [
        listener("all", "from: All"),
        listener("same", "from: Same"),
        listener(
            "selector",
            "from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: lab}}",
        ),
    ]
    .join(", ");
    let routes: String = ["infra/r", "team/r", "lab/r"]
        .iter()
        .map(|name| route(name, TO_SET))
        .collect();
    let bound = Bound::of(&(gateway("{from: All}") + &set("team/s", &listeners) + &routes));
    assert_eq!(
        attached(&bound, "ListenerSet team/s"),
        ["all=3", "same=1", "selector=1"]
    );
    assert_eq!(attached(&bound, G), ["own=0"]);
    let bound = Bound::of(
        &(gateway("{from: All}") + &set("team/s", &listener("same", "from: Same")) + &routes),
    );
    assert_eq!(
        condition(&bound, "HTTPRoute infra/r", "Accepted"),
        "False/NotAllowedByListeners"
    );
    assert_eq!(
        condition(&bound, "HTTPRoute team/r", "Accepted"),
        "True/Accepted"
    );
}

// "Route with Gateway + ListenerSet parentRefs: separate Accepted per parent"; "status.parents holds only the declared parentRefs".
#[test]
fn two_parents_are_evaluated_separately() {
    let both = "{namespace: infra, name: g, sectionName: a}, {kind: ListenerSet, name: s}";
    let bound = Bound::of(
        &(gateway("{from: All}") + &set("infra/s", &http("a")) + &route("infra/r", both)),
    );
    assert_eq!(
        conditions(&bound, "HTTPRoute infra/r"),
        [
            "parent Gateway infra/g section a: Accepted=False/NoMatchingParent",
            "parent Gateway infra/g section a: ResolvedRefs=True/ResolvedRefs",
            "parent ListenerSet s: Accepted=True/Accepted",
            "parent ListenerSet s: ResolvedRefs=True/ResolvedRefs"
        ]
    );
    assert_eq!(bound.attached_routes(), ["infra/s a HTTPRoute infra/r"]);
}

// "Gateway parentRef + ListenerSet listener name: NoMatchingParent."
#[test]
fn a_sets_listener_can_not_be_referenced_through_the_gateway() {
    let bound = Bound::of(
        &(gateway("{from: All}")
            + &set("infra/s", &http("a"))
            + &route("infra/r", "{name: g, sectionName: a}")),
    );
    assert_eq!(
        condition(&bound, "HTTPRoute infra/r", "Accepted"),
        "False/NoMatchingParent"
    );
    let bound = Bound::of(
        &(gateway("{from: All}") + &set("infra/s", &http("a")) + &route("infra/r", "{name: g}")),
    );
    assert_eq!(
        bound.attached_routes(),
        ["infra/g own HTTPRoute infra/r"],
        "a Gateway's routes are not its sets'"
    );
}

#[test]
fn a_route_to_a_rejected_set_reports_it() {
    let bound = Bound::of(
        &(gateway("")
            + &set("infra/s", &http("a"))
            + &route("infra/r", "{kind: ListenerSet, name: s}")),
    );
    assert_eq!(
        condition(&bound, "HTTPRoute infra/r", "Accepted"),
        "False/NoMatchingParent"
    );
    assert!(
        message(&bound, "HTTPRoute infra/r", "Accepted")
            .contains("has no listeners that routes can attach to")
    );
    let mut bound = bound;
    bound.apply(puts(&gateway("{from: Same}")));
    assert_eq!(
        condition(&bound, "HTTPRoute infra/r", "Accepted"),
        "True/Accepted"
    );
}
