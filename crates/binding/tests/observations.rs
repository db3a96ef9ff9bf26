//! State of Gateways and backends that the data plane reports, and backends that require TLS.

mod common;

use common::certificates::authority;
use common::{Bound, doc, key, listener, message, own_conditions, service, slice, summary};
use pointsman_binding::bound::{BackendId, FrontendId, Transport};
use pointsman_binding::status::StatusBody;
use pointsman_binding::{Binder, Change, Observation};
use pointsman_resources::Name;

const G: &str = "Gateway infra/g";

fn gateway(fields: &str) -> Bound {
    let class = doc(
        "GatewayClass",
        "ours",
        "{controllerName: pointsman.io/controller}",
    );
    let set = "{parentRef: {name: g}, listeners: [{name: more, port: 81, protocol: HTTP}]}";
    let spec = format!(
        "{{gatewayClassName: ours, {fields}allowedListeners: {{namespaces: {{from: Same}}}}, listeners: [{{name: http, port: 80, protocol: HTTP}}, {{name: tcp, port: 90, protocol: TCP}}]}}"
    );
    Bound::of(&(class + &doc("Gateway", "infra/g", &spec) + &doc("ListenerSet", "infra/s", set)))
}

fn id(owner: &str, name: &str) -> FrontendId {
    FrontendId::Listener {
        gateway: Name::new("infra", "g"),
        owner: key(owner),
        listener: name.into(),
    }
}

fn at(address: &str) -> Observation {
    Observation {
        addresses: vec![address.parse().expect("an address")],
        ..Observation::default()
    }
}

fn observe(bound: &mut Bound, seen: Observation) {
    let served = bound.frontends.clone();
    bound.apply([Change::Observe(Name::new("infra", "g"), Some(seen))]);
    assert_eq!(bound.frontends, served, "what is served does not change");
}

fn addresses(binder: &Binder) -> Vec<String> {
    match &binder.status(&key(G)).expect("a status").body {
        StatusBody::Gateway { addresses, .. } => addresses
            .iter()
            .map(|(kind, value)| format!("{kind} {value}"))
            .collect(),
        _ => panic!("not a Gateway"),
    }
}

#[test]
fn the_addresses_of_a_gateway_are_in_its_status() {
    let mut bound = gateway("");
    assert!(addresses(&bound).is_empty());
    observe(&mut bound, at("127.0.64.7"));
    assert_eq!(addresses(&bound), ["IPAddress 127.0.64.7"]);
    observe(&mut bound, at("127.0.64.8"));
    assert_eq!(addresses(&bound), ["IPAddress 127.0.64.8"]);
    bound.apply([Change::Observe(Name::new("infra", "g"), None)]);
    assert!(addresses(&bound).is_empty());
}

#[test]
fn a_gateway_without_an_address_is_not_programmed() {
    let mut bound = gateway("");
    observe(&mut bound, Observation::default());
    let conditions = own_conditions(&bound, G);
    assert!(
        conditions.contains(&"Programmed=False/AddressNotAssigned".to_owned()),
        "{conditions:?}"
    );
    assert_eq!(listener(&bound, G, "http")[2], "Programmed=False/Pending");
    assert!(
        conditions.contains(&"Accepted=True/Accepted".to_owned()),
        "{conditions:?}"
    );
}

#[test]
fn an_unusable_address_is_named() {
    let mut bound = gateway("addresses: [{value: 192.0.2.1}, {value: 127.0.0.9}], ");
    let unusable = [(
        "192.0.2.1".parse().expect("an address"),
        "not here".to_owned(),
    )];
    let seen = Observation {
        unusable: unusable.clone().into(),
        ..at("127.0.0.9")
    };
    observe(&mut bound, seen);
    let conditions = own_conditions(&bound, G);
    assert!(
        conditions.contains(&"Programmed=False/AddressNotUsable".to_owned()),
        "{conditions:?}"
    );
    assert_eq!(
        message(&bound, G, "Programmed"),
        "192.0.2.1: not here; the other addresses serve traffic"
    );
    assert_eq!(addresses(&bound), ["IPAddress 127.0.0.9"]);
    let set = "ListenerSet infra/s";
    assert_eq!(listener(&bound, G, "http")[2], "Programmed=True/Programmed");
    assert_eq!(own_conditions(&bound, set)[1], "Programmed=True/Programmed");
    // Without the other address, no traffic is served.
    let seen = Observation {
        unusable: unusable.into(),
        ..Observation::default()
    };
    observe(&mut bound, seen);
    assert_eq!(message(&bound, G, "Programmed"), "192.0.2.1: not here");
    assert_eq!(listener(&bound, G, "http")[2], "Programmed=False/Pending");
    assert_eq!(
        own_conditions(&bound, set)[1],
        "Programmed=False/ParentNotProgrammed"
    );
}

#[test]
fn a_hostname_among_the_addresses_is_reported_together_with_the_observation() {
    let mut bound =
        gateway("addresses: [{type: Hostname, value: bogus.example}, {value: 127.0.0.9}], ");
    observe(&mut bound, at("127.0.0.9"));
    assert_eq!(
        own_conditions(&bound, G)[1],
        "Programmed=False/AddressNotUsable"
    );
    assert_eq!(
        message(&bound, G, "Programmed"),
        "can't listen on hostname bogus.example; use an address of type IPAddress; the other addresses serve traffic"
    );
    assert_eq!(addresses(&bound), ["IPAddress 127.0.0.9"]);
    assert_eq!(listener(&bound, G, "http")[2], "Programmed=True/Programmed");
}

#[test]
fn a_port_that_can_not_be_bound_is_reported_on_its_listener_only() {
    let mut bound = gateway("");
    let seen = Observation {
        unbound: [(id(G, "http"), "taken".to_owned())].into(),
        ..at("127.0.64.7")
    };
    observe(&mut bound, seen);
    assert_eq!(
        listener(&bound, G, "http"),
        [
            "Accepted=False/PortUnavailable",
            "ResolvedRefs=True/ResolvedRefs",
            "Programmed=False/Invalid"
        ]
    );
    assert_eq!(listener(&bound, G, "tcp")[2], "Programmed=True/Programmed");
    assert_eq!(
        own_conditions(&bound, G)[..2],
        [
            "Accepted=True/ListenersNotValid",
            "Programmed=True/Programmed"
        ]
    );
    observe(&mut bound, at("127.0.64.7"));
    assert_eq!(listener(&bound, G, "http")[0], "Accepted=True/Accepted");
}

#[test]
fn a_port_of_a_listener_set_that_can_not_be_bound_is_reported_on_the_set() {
    let mut bound = gateway("");
    let set = "ListenerSet infra/s";
    let seen = Observation {
        unbound: [(id(set, "more"), "taken".to_owned())].into(),
        ..at("127.0.64.7")
    };
    observe(&mut bound, seen);
    assert_eq!(
        listener(&bound, set, "more"),
        [
            "Accepted=False/PortUnavailable",
            "ResolvedRefs=True/ResolvedRefs",
            "Programmed=False/PortUnavailable"
        ]
    );
    assert_eq!(
        own_conditions(&bound, set)[0],
        "Accepted=False/ListenersNotValid"
    );
    assert_eq!(own_conditions(&bound, G)[0], "Accepted=True/Accepted");
}

#[test]
fn a_certificate_that_the_proxy_rejects_is_an_unresolved_reference() {
    let mut bound = gateway("");
    let seen = Observation {
        faulty: [(
            id(G, "http"),
            "the key is of another certificate".to_owned(),
        )]
        .into(),
        ..at("127.0.64.7")
    };
    observe(&mut bound, seen);
    assert_eq!(
        listener(&bound, G, "http"),
        [
            "Accepted=True/Accepted",
            "ResolvedRefs=False/InvalidCertificateRef",
            "Programmed=False/Invalid"
        ]
    );
    assert_eq!(
        own_conditions(&bound, G)[2],
        "ResolvedRefs=False/ListenersNotResolved"
    );
}

#[test]
fn a_needed_backend_is_bound_without_a_route() {
    let ports = "{ports: [{name: http, port: 80}]}";
    let mut bound =
        Bound::of(&(service("shop/web", ports) + &slice("shop/web", "http", 8080, "10.0.0.1")));
    let id = BackendId::new(key("Service shop/web"), 80, Transport::Tcp);
    assert!(bound.backends.is_empty());
    bound.apply([
        Change::Need(id.clone(), true),
        Change::Need(id.clone(), true),
    ]);
    assert_eq!(bound.addresses("shop/web", 80), ["10.0.0.1:8080"]);
    bound.apply(common::puts(&slice("shop/web", "http", 8080, "10.0.0.2")));
    assert_eq!(bound.addresses("shop/web", 80), ["10.0.0.2:8080"]);
    bound.apply([Change::Need(id, false)]);
    assert!(bound.backends.is_empty());
}

#[test]
fn a_backend_whose_app_protocol_requires_tls_needs_a_policy() {
    let ports = "{ports: [{name: s, port: 443, appProtocol: HTTPS}]}";
    let route = "rules: [{backendRefs: [{name: api, port: 443}]}]}";
    let policy = doc(
        "BackendTLSPolicy",
        "infra/trust",
        "{targetRefs: [{group: '', kind: Service, name: api}], validation: {hostname: api.example, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}}",
    );
    let mut bound = gateway("");
    bound.apply(common::puts(
        &(service("infra/api", ports)
            + &doc("HTTPRoute", "infra/r", &format!("{{parentRefs: [{{name: g}}], {route}"))
            + &doc("TCPRoute", "infra/t", &format!("{{parentRefs: [{{name: g}}], {route}"))
            + &doc("HTTPRoute", "infra/own", "{parentRefs: [{group: '', kind: Service, name: api}], rules: [{timeouts: {request: 1s}}]}")),
    ));
    let refused = "Accepted=True/Accepted ResolvedRefs=False/UnsupportedProtocol";
    let well = "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs";
    assert_eq!(summary(&bound, "HTTPRoute infra/r"), refused);
    assert_eq!(
        bound.destinations("HTTPRoute infra/r"),
        ["infra/g http #0: 500 UnsupportedProtocol=1"]
    );
    assert_eq!(
        summary(&bound, "TCPRoute infra/t"),
        well,
        "bytes are carried"
    );
    assert_eq!(summary(&bound, "HTTPRoute infra/own"), refused);
    bound.apply(common::puts(
        &(policy + &authority("infra/ca", include_str!("data/rsa.crt"))),
    ));
    assert_eq!(summary(&bound, "HTTPRoute infra/r"), well);
    assert_eq!(summary(&bound, "HTTPRoute infra/own"), well);
    bound.apply([Change::Delete(key("BackendTLSPolicy infra/trust"))]);
    assert_eq!(summary(&bound, "HTTPRoute infra/r"), refused);
}
