//! A listener that can't serve traffic reserves its hostname: a route on a catch-all listener of the same port must not get its requests because its Secret was
//! deleted.

mod common;

use common::certificates::fresh_secret;
use common::{Bound, doc, gateway_g, key, listener, puts};
use pointsman_binding::Change;
use pointsman_binding::bound::FrontendId;

const G: &str = "Gateway infra/g";

fn gateway(listeners: &[&str]) -> String {
    let listeners = listeners.join(", ");
    gateway_g(&format!(
        "allowedListeners: {{namespaces: {{from: All}}}}, listeners: [{listeners}]"
    ))
}

const SECURE: &str = "{name: secure, port: 443, protocol: HTTPS, hostname: secure.example, tls: {certificateRefs: [{name: c}]}}";
const CATCH_ALL: &str =
    "{name: all, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: all}]}}";

/// Returns the message of a listener's Programmed condition.
fn programmed(bound: &Bound, owner: &str, listener: &str) -> String {
    let status = bound.status(&key(owner)).expect("a status");
    let wanted = format!("listener {listener}");
    let mut conditions = status.conditions().into_iter();
    let found = conditions.find(|(place, c)| *place == wanted && c.kind == "Programmed");
    found.expect("the condition").1.message.to_string()
}

#[test]
fn a_listener_with_a_missing_secret_reserves_its_hostname() {
    let mut bound = Bound::of(&(gateway(&[SECURE, CATCH_ALL]) + &fresh_secret("infra/all")));
    assert_eq!(
        listener(&bound, G, "secure")[..3],
        [
            "Accepted=True/Accepted",
            "ResolvedRefs=False/InvalidCertificateRef",
            "Programmed=False/Invalid"
        ]
    );
    assert_eq!(
        programmed(&bound, G, "secure"),
        "TLS handshakes for secure.example are rejected, and no other listener gets them: Secret infra/c does not exist"
    );
    assert_eq!(bound.frontend_names(), ["infra/g all"]);
    assert_eq!(
        bound.closed(),
        ["infra/g secure: Secret infra/c does not exist"]
    );
    bound.apply(puts(fresh_secret("infra/c").trim_start_matches("\n---\n")));
    assert_eq!(bound.frontend_names(), ["infra/g all", "infra/g secure"]);
    assert!(bound.closed().is_empty());
    bound.apply([Change::Delete(key("Secret infra/c"))]);
    assert_eq!(bound.frontend_names(), ["infra/g all"]);
    assert_eq!(bound.closed().len(), 1);
    // It only reserves its hostname.
    let is_closed = |id: &&FrontendId| bound.frontends[*id].closed.is_some();
    let id = bound.frontends.keys().find(is_closed).expect("one");
    assert!(bound.frontends[id].tls.is_none());
    assert_eq!(bound.frontends[id].secrets().count(), 0);
}

// Nothing listens, so there are no TLS handshakes to reject.
#[test]
fn the_message_of_an_unsupported_protocol_claims_no_consequence() {
    let bound = Bound::of(&gateway(&[
        "{name: a, port: 80, protocol: example.com/FOO}",
    ]));
    assert_eq!(
        programmed(&bound, G, "a"),
        "protocol example.com/FOO is not supported; supported protocols: HTTP, HTTPS, TLS, TCP, UDP"
    );
}

#[test]
fn a_listener_without_valid_route_kinds_reserves_its_hostname() {
    for (listener, all, message) in [
        (
            "{name: a, port: 80, protocol: HTTP, hostname: a.example, allowedRoutes: {kinds: [{kind: TCPRoute}]}}",
            "{name: all, port: 80, protocol: HTTP}",
            "requests for a.example get 404, and no other listener gets them: ",
        ),
        (
            "{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}",
            "{name: all, port: 80, protocol: HTTP, hostname: b.example}",
            "requests for hosts without a listener of their own on port 80 get 404, and no other listener gets them: ",
        ),
        (
            "{name: a, port: 443, protocol: TLS, hostname: a.example, tls: {mode: Passthrough}, allowedRoutes: {kinds: [{kind: HTTPRoute}]}}",
            "{name: all, port: 443, protocol: TLS, tls: {mode: Passthrough}}",
            "TLS handshakes for a.example are rejected, and no other listener gets them: ",
        ),
    ] {
        let bound = Bound::of(&gateway(&[listener, all]));
        let why = bound.closed().join("\n");
        let why = why.strip_prefix("infra/g a: ").expect("it is closed");
        assert!(why.starts_with("allowedRoutes.kinds: "), "{why}");
        assert_eq!(programmed(&bound, G, "a"), format!("{message}{why}"));
        assert_eq!(bound.frontend_names(), ["infra/g all"]);
    }
}

#[test]
fn a_listener_that_is_not_accepted_reserves_its_hostname() {
    let filters = "filters: {requests: [{type: ExtensionRef, extensionRef: {group: x.io, kind: F, name: f}}]}";
    let a = format!("{{name: a, port: 80, protocol: HTTP, hostname: a.example, {filters}}}");
    let bound = Bound::of(&gateway(&[&a, "{name: all, port: 80, protocol: HTTP}"]));
    assert_eq!(
        listener(&bound, G, "a")[0],
        "Accepted=False/UnsupportedValue"
    );
    let why = "filters on listeners are not supported; move them to routes";
    assert_eq!(bound.closed(), [format!("infra/g a: {why}")]);
}

#[test]
fn listeners_that_both_lost_a_hostname_reserve_it() {
    let passed = "{name: passed, port: 443, protocol: TLS, hostname: secure.example, tls: {mode: Passthrough}}";
    let secrets = fresh_secret("infra/all") + &fresh_secret("infra/c");
    let bound = Bound::of(&(gateway(&[SECURE, passed, CATCH_ALL]) + &secrets));
    let both = "listeners secure and passed both request hostname secure.example on port 443, so neither gets it";
    assert_eq!(
        bound.closed().last(),
        Some(&format!("infra/g secure: {both}"))
    );
    assert_eq!(bound.closed().len(), 2);
    assert_eq!(
        programmed(&bound, G, "secure"),
        format!(
            "TLS handshakes for secure.example are rejected, and no other listener gets them: {both}"
        )
    );
    assert_eq!(
        listener(&bound, G, "secure")[2],
        "Programmed=False/HostnameConflict"
    );
}

#[test]
fn a_listener_that_lost_its_hostname_to_another_reserves_nothing() {
    let set = doc(
        "ListenerSet",
        "infra/s",
        &format!("{{parentRef: {{name: g}}, listeners: [{SECURE}]}}"),
    );
    let secrets = fresh_secret("infra/c") + &fresh_secret("infra/all");
    let bound = Bound::of(&(gateway(&[SECURE, CATCH_ALL]) + &secrets + &set));
    assert_eq!(bound.frontend_names(), ["infra/g all", "infra/g secure"]);
    assert!(bound.closed().is_empty());
    let reported =
        "listener secure of Gateway infra/g already has hostname secure.example on port 443";
    assert_eq!(
        programmed(&bound, "ListenerSet infra/s", "secure"),
        reported
    );
    // It does not get the hostname even if the winner can't serve traffic.
    let secrets = fresh_secret("infra/all");
    let bound = Bound::of(&(gateway(&[SECURE, CATCH_ALL]) + &secrets + &set));
    assert_eq!(bound.frontend_names(), ["infra/g all"]);
    assert_eq!(
        bound.closed(),
        ["infra/g secure: Secret infra/c does not exist"]
    );
}

// Otherwise another Gateway with the same address would get the port.
#[test]
fn a_listener_that_is_alone_on_its_port_reserves_it() {
    for (listener, message) in [
        (
            SECURE,
            "TLS handshakes for secure.example are rejected, and no other listener gets them: Secret infra/c does not exist",
        ),
        (
            "{name: secure, port: 90, protocol: TCP, allowedRoutes: {kinds: [{kind: UDPRoute}]}}",
            "connections to port 90 are closed, and no other listener gets them: allowedRoutes.kinds: UDPRoute can't attach to a listener of protocol TCP, which supports TCPRoute",
        ),
        (
            "{name: secure, port: 90, protocol: UDP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}",
            "datagrams to port 90 are dropped, and no other listener gets them: allowedRoutes.kinds: TCPRoute can't attach to a listener of protocol UDP, which supports UDPRoute",
        ),
    ] {
        let bound = Bound::of(&gateway(&[listener]));
        assert_eq!(bound.closed().len(), 1, "{listener}");
        assert_eq!(programmed(&bound, G, "secure"), message);
    }
}

// "If a Listener is conflicted, its network port should not be configured on any network elements."
#[test]
fn listeners_that_both_lost_a_hostname_reserve_no_port() {
    let passed = "{name: passed, port: 443, protocol: TLS, hostname: secure.example, tls: {mode: Passthrough}}";
    let plain = "{name: plain, port: 443, protocol: HTTP}";
    for listeners in [&[SECURE, passed][..], &[SECURE, passed, plain]] {
        let bound = Bound::of(&(gateway(listeners) + &fresh_secret("infra/c")));
        assert!(bound.frontends.is_empty(), "{listeners:?}");
    }
    // Port and hostname are available to a ListenerSet.
    let set = |listener: &str| {
        doc(
            "ListenerSet",
            "infra/s",
            &format!("{{parentRef: {{name: g}}, listeners: [{listener}]}}"),
        )
    };
    let secrets = fresh_secret("infra/c") + &fresh_secret("infra/all");
    let gateway = gateway(&[SECURE, passed]) + &secrets;
    for (listener, closed) in [(SECURE, 0), (CATCH_ALL, 2), (plain, 0)] {
        let bound = Bound::of(&(gateway.clone() + &set(listener)));
        assert_eq!(bound.frontend_names().len(), 1, "{listener}");
        assert_eq!(bound.closed().len(), closed, "{listener}");
    }
}

#[test]
fn a_closed_listener_of_a_set_reserves_its_hostname_and_yaml_ends_its_message() {
    let set = doc(
        "ListenerSet",
        "team/s",
        "{parentRef: {name: g, namespace: infra}, listeners: [{name: own, port: 443, protocol: HTTPS, hostname: own.example, tls: {certificateRefs: [{name: c, namespace: other}]}}]}",
    );
    let bound = Bound::of(&(gateway(&[CATCH_ALL]) + &fresh_secret("infra/all") + &set));
    let why = "Secret other/c can't be referenced from namespace team without a ReferenceGrant";
    assert_eq!(bound.closed(), [format!("team/s own: {why}")]);
    let message = programmed(&bound, "ListenerSet team/s", "own");
    let start = format!(
        "TLS handshakes for own.example are rejected, and no other listener gets them: {why}"
    );
    assert!(message.starts_with(&start), "{message}");
    assert!(message.ends_with("    name: c\n"), "{message}");
}
