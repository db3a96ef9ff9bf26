//! Different kinds of routes on one Service port: GEP-1426, "Route types".

mod common;

use common::{Bound, accepted, conditions, doc, message, service};
use pointsman_binding::bound::Transport;

fn route(kind: &str, name: &str, port: &str) -> String {
    let port = if port.is_empty() {
        String::new()
    } else {
        format!(", port: {port}")
    };
    let hostnames = if kind == "TLSRoute" {
        "hostnames: [a.example], "
    } else {
        ""
    };
    let parent = format!("{{group: '', kind: Service, namespace: shop, name: web{port}}}");
    let backend = match kind {
        "UDPRoute" => "{namespace: shop, name: web, port: 53}",
        _ => "{namespace: shop, name: web, port: 80}",
    };
    doc(
        kind,
        name,
        &format!("{{{hostnames}parentRefs: [{parent}], rules: [{{backendRefs: [{backend}]}}]}}"),
    )
}

fn web(routes: &str) -> Bound {
    let ports = "[{name: a, port: 80}, {name: b, port: 81}, {name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]";
    Bound::of(&format!(
        "{}{routes}",
        service(
            "shop/web",
            &format!("{{clusterIP: 10.0.0.1, ports: {ports}}}")
        )
    ))
}

// "Route type specificity is defined in the following order (first one wins): GRPCRoute, HTTPRoute, TLSRoute, TCPRoute."
// "The rejected routes should be ignored and have the RouteConditionAccepted status set to the (new) reason RouteReasonConflicted."
// DESIGN: Accepted=False, reason `Conflicted`, and the message names the winner.
#[test]
fn the_more_specific_kind_wins_regardless_of_its_age() {
    let order = ["GRPCRoute", "HTTPRoute", "TLSRoute", "TCPRoute"];
    for (at, winner) in order.iter().enumerate() {
        for loser in &order[at + 1..] {
            for documents in [[*winner, *loser], [*loser, *winner]] {
                let routes: String = documents
                    .iter()
                    .map(|kind| route(kind, "shop/r", "80"))
                    .collect();
                let bound = web(&routes);
                assert_eq!(
                    accepted(&bound, &format!("{winner} shop/r")),
                    "True/Accepted"
                );
                assert_eq!(
                    accepted(&bound, &format!("{loser} shop/r")),
                    "False/Conflicted"
                );
                let message = message(&bound, &format!("{loser} shop/r"), "Accepted");
                assert!(message.contains(&format!("{winner} shop/r")), "{message}");
                assert_eq!(
                    bound.attached_routes(),
                    [format!("shop/web:80 everyone {winner} shop/r")]
                );
                let frontend = bound.frontends.values().next().expect("a frontend");
                assert_eq!(frontend.kind.map(|kind| kind.name()), Some(*winner));
            }
        }
    }
}

#[test]
fn an_overridden_route_applies_when_the_winner_is_removed() {
    let mut bound = web(&format!(
        "{}{}",
        route("HTTPRoute", "shop/h", "80"),
        route("TCPRoute", "shop/t", "80")
    ));
    assert_eq!(accepted(&bound, "TCPRoute shop/t"), "False/Conflicted");
    bound.apply([pointsman_binding::Change::Delete(common::key(
        "HTTPRoute shop/h",
    ))]);
    assert_eq!(accepted(&bound, "TCPRoute shop/t"), "True/Accepted");
    assert_eq!(
        bound.attached_routes(),
        ["shop/web:80 everyone TCPRoute shop/t"]
    );
}

// "Note: these conflicts only occur when multiple different route types apply to the same Service+Port pair."
// DESIGN: a route that lost on some of its ports only stays Accepted, and the message lists them.
#[test]
fn a_route_overridden_on_some_ports_applies_to_the_others() {
    let bound = web(&format!(
        "{}{}",
        route("GRPCRoute", "shop/g", "80"),
        route("HTTPRoute", "shop/h", "")
    ));
    assert_eq!(accepted(&bound, "HTTPRoute shop/h"), "True/Accepted");
    let message = message(&bound, "HTTPRoute shop/h", "Accepted");
    assert_eq!(message, "overridden by GRPCRoute shop/g on port 80");
    assert_eq!(
        bound.attached_routes(),
        [
            "shop/web:53 everyone HTTPRoute shop/h",
            "shop/web:80 everyone GRPCRoute shop/g",
            "shop/web:81 everyone HTTPRoute shop/h"
        ]
    );
}

#[test]
fn every_winner_is_named_if_there_are_several() {
    let h = doc(
        "HTTPRoute",
        "shop/h",
        "{parentRefs: [{group: '', kind: Service, name: web, port: 80}, {group: '', kind: Service, name: web, port: 81}]}",
    );
    let bound = web(&format!(
        "{}{}{h}",
        route("GRPCRoute", "shop/g", "80"),
        route("GRPCRoute", "shop/k", "81")
    ));
    assert_eq!(
        conditions(&bound, "HTTPRoute shop/h"),
        [
            "parent Service web port 80: Accepted=False/Conflicted",
            "parent Service web port 80: ResolvedRefs=True/ResolvedRefs",
            "parent Service web port 81: Accepted=False/Conflicted",
            "parent Service web port 81: ResolvedRefs=True/ResolvedRefs"
        ]
    );
    let both = doc(
        "TLSRoute",
        "shop/t",
        "{hostnames: [a.example], parentRefs: [{group: '', kind: Service, name: web}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
    );
    let g53 = route("GRPCRoute", "shop/z", "53");
    let bound = web(&format!(
        "{}{}{g53}{both}",
        route("GRPCRoute", "shop/g", "80"),
        route("HTTPRoute", "shop/k", "81")
    ));
    let message = message(&bound, "TLSRoute shop/t", "Accepted");
    for winner in [
        "by GRPCRoute shop/z on port 53",
        "by GRPCRoute shop/g on port 80",
        "by HTTPRoute shop/k on port 81",
    ] {
        assert!(message.contains(winner), "{message}");
    }
}

#[test]
fn inactive_routes_of_a_parent_are_listed_with_their_reasons() {
    let bound = web(&format!(
        "{}{}{}",
        route("HTTPRoute", "shop/h", "80"),
        route("TCPRoute", "shop/t", "80"),
        route("HTTPRoute", "team/k", "99")
    ));
    let found: Vec<String> = bound
        .inactive_routes(&common::key("Service shop/web"))
        .iter()
        .map(|r| format!("{} {}", r.route, r.reason))
        .collect();
    assert_eq!(
        found,
        [
            "HTTPRoute team/k NoMatchingParent",
            "TCPRoute shop/t Conflicted"
        ]
    );
}

// Kinds conflict within one scope: a producer's HTTPRoute does not override a consumer's TCPRoute, which replaces it for the consumer's namespace.
#[test]
fn kinds_conflict_within_one_scope_only() {
    let bound = web(&format!(
        "{}{}",
        route("HTTPRoute", "shop/h", "80"),
        route("TCPRoute", "team/t", "80")
    ));
    assert_eq!(accepted(&bound, "TCPRoute team/t"), "True/Accepted");
    assert_eq!(
        bound.attached_routes(),
        [
            "shop/web:80 everyone HTTPRoute shop/h",
            "shop/web:80 team TCPRoute team/t"
        ]
    );
}

// "Because UDP is its own protocol, it is orthogonal to this precedence order."
#[test]
fn udp_is_orthogonal() {
    let bound = web(&format!(
        "{}{}",
        route("UDPRoute", "shop/u", "53"),
        route("TCPRoute", "shop/t", "53")
    ));
    for object in ["UDPRoute shop/u", "TCPRoute shop/t"] {
        assert_eq!(accepted(&bound, object), "True/Accepted", "{object}");
    }
    let mut kinds: Vec<&str> = bound
        .frontends
        .values()
        .filter_map(|f| f.kind.map(|k| k.name()))
        .collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        ["TCPRoute", "UDPRoute"],
        "each has a frontend of its own"
    );
}

// A TCP and a UDP port may have the same number, with different endpoints.
#[test]
fn tcp_and_udp_ports_of_one_number_have_separate_endpoints() {
    let slices = "
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {namespace: shop, name: s, labels: {kubernetes.io/service-name: web}}, ports: [{name: dns, port: 5353, protocol: UDP}, {name: dns-tcp, port: 5354, protocol: TCP}], endpoints: [{addresses: [10.1.0.1]}]}";
    let tcp = doc(
        "TCPRoute",
        "shop/t",
        "{parentRefs: [{group: '', kind: Service, name: web, port: 53}], rules: [{backendRefs: [{name: web, port: 53}]}]}",
    );
    let bound = web(&format!(
        "{}{tcp}{slices}",
        route("UDPRoute", "shop/u", "53")
    ));
    let of = |transport| -> Vec<String> {
        let ours = bound
            .backends
            .values()
            .filter(|b| b.id.transport == transport);
        ours.map(|b| format!("{:?} {:?}", b.protocol, bound.endpoints[&b.id]))
            .collect()
    };
    let (tcp, udp) = (of(Transport::Tcp), of(Transport::Udp));
    assert!(tcp.len() == 1 && udp.len() == 1, "{tcp:?} {udp:?}");
    assert!(
        tcp[0].starts_with("Unspecified") && tcp[0].contains(":5354") && !tcp[0].contains(":5353"),
        "{tcp:?}"
    );
    assert!(
        udp[0].starts_with("Udp") && udp[0].contains(":5353") && !udp[0].contains(":5354"),
        "{udp:?}"
    );
}

#[test]
fn only_udp_routes_attach_to_udp_ports() {
    let bound = web(&route("UDPRoute", "shop/u", ""));
    assert_eq!(
        bound.attached_routes(),
        ["shop/web:53 everyone UDPRoute shop/u"]
    );
    let bound = web(&route("UDPRoute", "shop/u", "80"));
    assert_eq!(
        accepted(&bound, "UDPRoute shop/u"),
        "False/NoMatchingParent"
    );
}

#[test]
fn an_overridden_route_causes_no_warning_about_its_backends() {
    let route = |kind: &str, matches: &str| {
        format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{name: r, namespace: shop}}, spec: {{parentRefs: [{{group: '', kind: Service, name: web}}], rules: [{{{matches} backendRefs: [{{name: web-v2, port: 80}}]}}]}}}}"
        )
    };
    let warned = |yaml: &str| -> Vec<String> {
        let warnings = common::bind_on_base(yaml).warnings().into_iter();
        let empty = warnings.filter(|w| w.message.contains("no ready endpoint"));
        empty.map(|w| w.object.to_string()).collect()
    };
    let (tcp, http) = (route("TCPRoute", ""), route("HTTPRoute", "name: a,"));
    assert_eq!(warned(&tcp), ["TCPRoute shop/r"]);
    assert_eq!(warned(&format!("{tcp}\n---\n{http}")), ["HTTPRoute shop/r"]);
}
