//! The policy for endpoint addresses. The API server requires of EndpointSlices: "may not be in the loopback range (127.0.0.0/8, ::1/128)", "… in the
//! link-local range (169.254.0.0/16, fe80::/10)", "… unspecified (0.0.0.0 or '::')", "… in the link-local multicast range (224.0.0.0/24, ff02::/10)".

mod common;

use std::net::IpAddr;
use std::sync::Arc;

use common::{doc, document, puts, slice};
use pointsman_binding::bound::Endpoints;
use pointsman_binding::status::Condition;
use pointsman_binding::{Binder, Change, EndpointPolicy, Network, OwnServer, OwnServers};
use pointsman_resources::{Kind, ObjectKey};

const REFUSED: &str = "pointsman.io/EndpointsRefused";

fn routable(exceptions: &[&str]) -> Change {
    let range = |text: &&str| text.parse::<Network>().expect(text);
    let ranges = exceptions.iter().map(range).collect();
    Change::EndpointPolicy(Arc::new(EndpointPolicy::routable(ranges)))
}

/// A route to the Service `web` with these endpoints.
fn manifests(addresses: &[&str]) -> String {
    let mut text = common::BASE.to_owned()
        + &doc(
            "HTTPRoute",
            "shop/web",
            "{parentRefs: [{name: edge, namespace: infra}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
        );
    for (number, address) in addresses.iter().enumerate() {
        let family = if address.contains(':') {
            "IPv6"
        } else {
            "IPv4"
        };
        let one = slice(
            "shop/web",
            "http",
            8000 + number as u16,
            &format!("'{address}'"),
        );
        text += &one.replace("addressType: IPv4", &format!("addressType: {family}"));
    }
    text
}

fn refused(binder: &Binder, key: &ObjectKey) -> Option<Condition> {
    let status = binder.status(key).expect("a status");
    let all = status.conditions().into_iter().map(|(_, one)| one.clone());
    all.into_iter().find(|one| one.kind == REFUSED)
}

fn web() -> ObjectKey {
    ObjectKey::new(Kind::HTTPRoute, "shop", "web")
}

/// Returns the addresses that get traffic, by the last item of a delta.
fn endpoints(delta: &pointsman_binding::Delta) -> Vec<String> {
    let (_, last) = delta.endpoints.last().expect("endpoints");
    match last.as_deref() {
        Some(Endpoints::Addresses(all)) => all.iter().map(|one| one.address.to_string()).collect(),
        other => panic!("{other:?}"),
    }
}

const SPECIAL: [(&str, &str); 8] = [
    ("127.0.0.1", "loopback"),
    ("::1", "loopback"),
    ("169.254.169.254", "link-local"),
    ("fe80::1", "link-local"),
    ("0.0.0.0", "unspecified"),
    ("::", "unspecified"),
    ("224.0.0.5", "multicast"),
    ("ff02::1", "multicast"),
];

#[test]
fn by_default_every_address_may_be_an_endpoint() {
    for (address, _) in SPECIAL {
        let mut binder = Binder::new();
        let delta = binder.apply(puts(&manifests(&[address])));
        assert_eq!(endpoints(&delta).len(), 1, "{address}");
        assert_eq!(refused(&binder, &web()), None);
    }
}

#[test]
fn addresses_of_the_proxys_own_machine_or_link_are_refused_with_a_condition() {
    for (address, class) in SPECIAL {
        let mut binder = Binder::new();
        let changes = [routable(&[])].into_iter();
        let delta = binder.apply(changes.chain(puts(&manifests(&[address, "10.0.0.7"]))));
        assert_eq!(endpoints(&delta), ["10.0.0.7:8001"], "{address}");
        let reported = refused(&binder, &web()).expect(address);
        assert!(reported.is_true() && reported.is_problem());
        assert_eq!(reported.reason, "AddressNotAllowed");
        let conditions = "Service shop/web port 80: ";
        assert!(
            reported.message.starts_with(conditions),
            "{}",
            reported.message
        );
        assert!(
            reported.message.contains(&format!("is {class}.")),
            "{}",
            reported.message
        );
        assert!(reported.message.contains("--allow-endpoint-range"));
    }
}

#[test]
fn ranges_that_the_operator_allows_are_used() {
    let mut binder = Binder::new();
    let changes = [routable(&["127.0.0.0/8", "fe80::/10"])].into_iter();
    let all = manifests(&["127.0.0.1", "fe80::1", "::1"]);
    let delta = binder.apply(changes.chain(puts(&all)));
    assert_eq!(endpoints(&delta), ["127.0.0.1:8000", "[fe80::1]:8001"]);
    let reported = refused(&binder, &web()).expect("one is left out");
    assert!(
        reported.message.contains("[::1]:8002 is loopback"),
        "{}",
        reported.message
    );
}

#[test]
fn a_condition_names_a_few_endpoints_and_counts_the_others() {
    let all: Vec<String> = (1..=9).map(|n| format!("127.0.0.{n}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut binder = Binder::new();
    let changes = [routable(&[])].into_iter();
    binder.apply(changes.chain(puts(&manifests(&all))));
    let reported = refused(&binder, &web()).expect("all are left out");
    assert!(
        reported
            .message
            .contains("127.0.0.3:8002 is loopback and 6 more"),
        "{}",
        reported.message
    );
}

// The order of objects and policy does not matter, and conditions follow both.
#[test]
fn conditions_follow_endpoints_and_policy() {
    let mut binder = Binder::new();
    binder.apply(puts(&manifests(&["127.0.0.1"])));
    assert_eq!(refused(&binder, &web()), None);
    let delta = binder.apply([routable(&[])]);
    assert!(endpoints(&delta).is_empty());
    assert!(refused(&binder, &web()).is_some());
    binder.apply(puts(&slice("shop/web", "http", 8000, "10.0.0.7")));
    assert_eq!(refused(&binder, &web()), None);
    binder.apply(puts(&slice("shop/web", "http", 8000, "127.0.0.9")));
    let reported = refused(&binder, &web()).expect("a condition");
    assert!(
        reported.message.contains("127.0.0.9"),
        "{}",
        reported.message
    );
    let delta = binder.apply([Change::EndpointPolicy(Arc::default())]);
    assert_eq!(endpoints(&delta), ["127.0.0.9:8000"]);
    assert_eq!(refused(&binder, &web()), None);
}

#[test]
fn the_admin_server_is_refused_under_every_policy() {
    let policy = without("127.0.0.1:8000", OwnServer::Admin);
    let mut binder = Binder::new();
    let changes = [Change::EndpointPolicy(Arc::new(policy))].into_iter();
    let delta = binder.apply(changes.chain(puts(&manifests(&["127.0.0.1", "127.0.0.1"]))));
    assert_eq!(endpoints(&delta), ["127.0.0.1:8001"], "another port");
    let reported = refused(&binder, &web()).expect("a condition");
    let conditions = "127.0.0.1:8000 is Pointsman's own admin server";
    assert!(
        reported.message.contains(conditions),
        "{}",
        reported.message
    );
}

/// Returns a policy that refuses a server of Pointsman alone.
fn without(address: &str, server: OwnServer) -> EndpointPolicy {
    let mut own = OwnServers::default();
    own.add(server, address.parse().expect(address));
    let mut policy = EndpointPolicy::default();
    policy.refuse_own(&own);
    policy
}

// "Pointsman never connects to its own admin address, however it is written"
#[test]
fn a_name_that_resolves_to_an_own_server_is_reported_for_its_port_alone() {
    for (port, server, is_refused) in [
        (443, OwnServer::Admin, true),
        (443, OwnServer::Probes, true),
        (443, OwnServer::ControlPlane, true),
        (15000, OwnServer::Admin, false),
    ] {
        let policy = without(&format!("127.0.0.1:{port}"), server);
        let mut binder = Binder::new();
        let all = common::BASE.to_owned() + &external("api.example.com");
        let policy = [Change::EndpointPolicy(Arc::new(policy))].into_iter();
        binder.apply(policy.chain(puts(&all)));
        let own = "::ffff:127.0.0.1".parse().expect("an address");
        binder.apply([Change::RefusedResolution(
            "api.example.com".into(),
            vec![own],
        )]);
        let reported = refused(&binder, &web()).map(|condition| condition.message.to_string());
        let expected = format!("api.example.com (::ffff:127.0.0.1) is {server}");
        let is_reported = reported
            .as_ref()
            .is_some_and(|text| text.contains(&expected));
        assert_eq!(is_reported, is_refused, "{port} {server}: {reported:?}");
    }
}

fn external(hostname: &str) -> String {
    document(
        "gateway.networking.x-k8s.io/v1alpha1",
        "XBackend",
        "shop/out",
        &format!(
            "{{type: ExternalHostname, externalHostname: {{hostname: {hostname}}}, port: {{number: 443}}}}"
        ),
    ) + &doc(
        "HTTPRoute",
        "shop/web",
        "{parentRefs: [{name: edge, namespace: infra}], rules: [{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: out}]}]}",
    )
}

// Only proxies know the addresses of a DNS name: they skip refused ones, and report them.
#[test]
fn a_name_that_resolves_to_a_refused_address_is_reported_on_the_route_and_the_x_backend() {
    let out = ObjectKey::new(Kind::XBackend, "shop", "out");
    let mut binder = Binder::new();
    let all = common::BASE.to_owned() + &external("api.example.com");
    binder.apply([routable(&[])].into_iter().chain(puts(&all)));
    assert_eq!(refused(&binder, &web()), None);
    let report = |addresses: &[&str]| {
        let addresses = addresses
            .iter()
            .map(|text| text.parse::<IpAddr>().expect(text));
        Change::RefusedResolution("api.example.com".into(), addresses.collect())
    };
    binder.apply([report(&["127.0.0.1", "169.254.169.254"])]);
    for key in [&web(), &out] {
        let reported = refused(&binder, key).expect("a condition");
        let conditions = "XBackend shop/out port 443: api.example.com (127.0.0.1) is loopback, api.example.com (169.254.169.254) is link-local";
        assert!(
            reported.message.starts_with(conditions),
            "{}",
            reported.message
        );
    }
    binder.apply([report(&[])]);
    assert_eq!(
        (refused(&binder, &web()), refused(&binder, &out)),
        (None, None)
    );
}

// RFC 6761, section 6.3: localhost names "will always resolve to the respective IP loopback address".
#[test]
fn subdomains_of_localhost_are_refused_without_being_resolved() {
    let mut binder = Binder::new();
    let all = common::BASE.to_owned() + &external("api.localhost");
    let delta = binder.apply([routable(&[])].into_iter().chain(puts(&all)));
    assert!(endpoints(&delta).is_empty());
    let reported = refused(&binder, &web()).expect("a condition");
    assert!(
        reported.message.contains("api.localhost is loopback"),
        "{}",
        reported.message
    );
}
