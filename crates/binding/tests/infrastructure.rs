//! Objects that are generated for Gateways: their input, their parameters, and their state in the status of Gateways.

mod common;

use std::sync::Arc;

use common::{Bound, condition, doc, document, key, listener, message, own_conditions, puts};
use pointsman_binding::bound::{Infrastructure, Transport};
use pointsman_binding::status::StatusBody;
use pointsman_binding::{Change, Controller, Delta, InfrastructureState, LimitCheck, Observation};
use pointsman_resources::Name;

const G: &str = "Gateway infra/g";

fn class(fields: &str) -> String {
    let spec = format!("{{controllerName: pointsman.io/controller{fields}}}");
    doc("GatewayClass", "ours", &spec)
}

fn gateway(fields: &str) -> String {
    let spec = format!(
        "{{gatewayClassName: ours, {fields}allowedListeners: {{namespaces: {{from: Same}}}}, listeners: [{{name: http, port: 80, protocol: HTTP}}, {{name: dns, port: 53, protocol: UDP}}]}}"
    );
    doc("Gateway", "infra/g", &spec)
}

fn set() -> String {
    let spec = "{parentRef: {name: g}, listeners: [{name: more, port: 81, protocol: HTTP}]}";
    doc("ListenerSet", "infra/s", spec)
}

fn parameters(name: &str, spec: &str) -> String {
    document("pointsman.io/v1alpha1", "GatewayParameters", name, spec)
}

/// Binds documents as an installation that generates proxies.
fn generating(documents: &str) -> (Bound, Delta) {
    let mut bound = Bound::of("");
    let controller = Controller {
        generates_proxies: true,
        ..Controller::default()
    };
    bound.apply([Change::Controller(Arc::new(controller))]);
    let delta = bound.apply(puts(documents));
    (bound, delta)
}

fn generated(delta: &Delta) -> Option<&Infrastructure> {
    let (_, last) = delta.infrastructures.last()?;
    last.as_deref()
}

fn ready(addresses: &[&str]) -> InfrastructureState {
    let addresses = addresses.iter();
    InfrastructureState {
        addresses: addresses
            .map(|address| ("IPAddress".to_owned(), (*address).to_owned()))
            .collect(),
        ..InfrastructureState::default()
    }
}

fn observe(bound: &mut Bound, state: InfrastructureState) -> Delta {
    bound.apply([Change::ObserveInfrastructure(
        Name::new("infra", "g"),
        Some(state),
    )])
}

fn addresses(bound: &Bound) -> Vec<String> {
    match &bound.status(&key(G)).expect("a status").body {
        StatusBody::Gateway { addresses, .. } => {
            addresses.iter().map(|(_, value)| value.clone()).collect()
        }
        _ => panic!("not a Gateway"),
    }
}

#[test]
fn objects_have_the_ports_of_all_listeners_and_the_metadata_of_the_gateways_infrastructure() {
    let infrastructure =
        "infrastructure: {labels: {a: b}, annotations: {c: d}}, addresses: [{value: 192.0.2.1}], ";
    let (mut bound, delta) = generating(&(class("") + &gateway(infrastructure) + &set()));
    let objects = generated(&delta).expect("its objects");
    let ports: Vec<(u16, Transport)> = objects.ports.iter().copied().collect();
    let (tcp, udp) = (Transport::Tcp, Transport::Udp);
    assert_eq!(ports, [(53, udp), (80, tcp), (81, tcp)]);
    assert_eq!(objects.labels["a"], "b");
    assert_eq!(objects.annotations["c"], "d");
    assert_eq!(objects.addresses.len(), 1);
    assert_eq!(&*objects.class, "ours");
    let delta = bound.apply([Change::Delete(key("ListenerSet infra/s"))]);
    assert_eq!(
        generated(&delta).map(|objects| objects.ports.len()),
        Some(2)
    );
    let delta = bound.apply([Change::Delete(key(G))]);
    assert_eq!(delta.infrastructures.len(), 1);
    assert!(generated(&delta).is_none());
}

#[test]
fn nothing_is_generated_unless_the_installation_does_so() {
    let mut bound = Bound::of("");
    let delta = bound.apply(puts(&(class("") + &gateway(""))));
    assert!(delta.infrastructures.is_empty());
    assert_eq!(condition(&bound, G, "Programmed"), "True/Programmed");
}

#[test]
fn a_gateway_is_programmed_once_it_has_an_address_and_a_proxy_that_is_ready() {
    let (mut bound, _) = generating(&(class("") + &gateway("") + &set()));
    assert_eq!(condition(&bound, G, "Accepted"), "True/Accepted");
    assert_eq!(condition(&bound, G, "Programmed"), "False/Pending");
    assert_eq!(listener(&bound, G, "http")[2], "Programmed=False/Pending");
    assert_eq!(
        own_conditions(&bound, "ListenerSet infra/s")[1],
        "Programmed=False/ParentNotProgrammed"
    );
    let no_address = InfrastructureState {
        unassigned: Some("Service g-ours of type LoadBalancer has no address yet".to_owned()),
        ..ready(&[])
    };
    observe(&mut bound, no_address);
    assert_eq!(
        condition(&bound, G, "Programmed"),
        "False/AddressNotAssigned"
    );
    assert_eq!(
        message(&bound, G, "Programmed"),
        "Service g-ours of type LoadBalancer has no address yet"
    );
    let not_ready = InfrastructureState {
        not_ready: Some("0 of 2 proxies are ready".to_owned()),
        ..ready(&["192.0.2.1"])
    };
    observe(&mut bound, not_ready);
    assert_eq!(condition(&bound, G, "Programmed"), "False/Pending");
    assert_eq!(addresses(&bound), ["192.0.2.1"]);
    let delta = observe(&mut bound, ready(&["192.0.2.1"]));
    assert_eq!(condition(&bound, G, "Programmed"), "True/Programmed");
    assert_eq!(listener(&bound, G, "http")[2], "Programmed=True/Programmed");
    assert_eq!(addresses(&bound), ["192.0.2.1"]);
    assert!(!delta.affects_traffic());
    let failed = InfrastructureState {
        failure: Some("Service g-ours exists".to_owned()),
        ..ready(&["192.0.2.1"])
    };
    observe(&mut bound, failed);
    assert_eq!(condition(&bound, G, "Programmed"), "False/NoResources");
    assert_eq!(listener(&bound, G, "http")[2], "Programmed=True/Programmed");
}

// "AddressNotUsable: … requested static IP is unavailable"
#[test]
fn a_requested_address_that_the_service_does_not_get_is_named() {
    let requested = gateway("addresses: [{value: 192.0.2.1}, {value: 192.0.2.2}], ");
    let (mut bound, _) = generating(&(class("") + &requested));
    observe(&mut bound, ready(&["192.0.2.2"]));
    assert_eq!(condition(&bound, G, "Programmed"), "False/AddressNotUsable");
    let why = message(&bound, G, "Programmed");
    assert!(
        why.starts_with("192.0.2.1: ") && why.ends_with("the other addresses serve traffic"),
        "{why}"
    );
    bound.apply(puts(&gateway("addresses: [{value: 192.0.2.2}], ")));
    assert_eq!(condition(&bound, G, "Programmed"), "True/Programmed");
    assert_eq!(addresses(&bound), ["192.0.2.2"]);
    bound.apply(puts(&gateway(
        "addresses: [{type: example.com/pool, value: a}], ",
    )));
    assert_eq!(condition(&bound, G, "Accepted"), "False/UnsupportedAddress");
}

#[test]
fn reports_of_proxies_about_listeners_count_and_those_about_addresses_do_not() {
    let (mut bound, _) = generating(&(class("") + &gateway("")));
    observe(&mut bound, ready(&["192.0.2.1"]));
    let id = bound.frontends.keys().next().expect("a listener").clone();
    let seen = Observation {
        addresses: vec!["0.0.0.0".parse().expect("an address")],
        unbound: [(id, "in use".to_owned())].into(),
        ..Observation::default()
    };
    bound.apply([Change::Observe(Name::new("infra", "g"), Some(seen))]);
    assert_eq!(addresses(&bound), ["192.0.2.1"]);
    let listeners = ["dns", "http"].map(|name| listener(&bound, G, name)[0].clone());
    assert!(
        listeners.contains(&"Accepted=False/PortUnavailable".to_owned()),
        "{listeners:?}"
    );
}

#[test]
fn a_gateway_that_is_not_accepted_keeps_its_objects_as_they_are() {
    let (mut bound, _) = generating(&(class("") + &gateway("")));
    let invalid = "infrastructure: {parametersRef: {group: pointsman.io, kind: GatewayParameters, name: none}}, ";
    let delta = bound.apply(puts(&gateway(invalid)));
    let objects = generated(&delta).expect("they are not removed");
    assert!(objects.ports.is_empty());
    assert_eq!(
        message(&bound, G, "Accepted"),
        "infrastructure.parametersRef: GatewayParameters infra/none does not exist"
    );
}

#[test]
fn parameters_of_the_class_are_merged_with_those_of_the_gateway() {
    let class = class(
        ", parametersRef: {group: pointsman.io, kind: GatewayParameters, name: all, namespace: system}",
    );
    let own = "infrastructure: {parametersRef: {group: pointsman.io, kind: GatewayParameters, name: own}}, ";
    let documents = class
        + &gateway(own)
        + &parameters("system/all", "{replicas: 4, service: {type: NodePort}}")
        + &parameters("infra/own", "{service: {type: ClusterIP}}");
    let (mut bound, delta) = generating(&documents);
    let merged = generated(&delta).expect("its objects").parameters.clone();
    assert_eq!(merged.replicas, Some(4));
    assert_eq!(format!("{:?}", merged.service.kind), "ClusterIP");
    let delta = bound.apply(puts(&parameters("system/all", "{replicas: 5}")));
    let merged = generated(&delta).expect("a change").parameters.clone();
    assert_eq!(merged.replicas, Some(5));
    bound.apply([Change::Delete(key("GatewayParameters system/all"))]);
    let class = "GatewayClass ours";
    assert_eq!(
        condition(&bound, class, "Accepted"),
        "False/InvalidParameters"
    );
    assert_eq!(
        message(&bound, class, "Accepted"),
        "parametersRef: GatewayParameters system/all does not exist"
    );
    assert_eq!(condition(&bound, G, "Accepted"), "False/InvalidParameters");
}

#[test]
fn parameters_that_contradict_each_other_are_rejected() {
    let own = "infrastructure: {parametersRef: {group: pointsman.io, kind: GatewayParameters, name: own}}, ";
    let class = class(
        ", parametersRef: {group: pointsman.io, kind: GatewayParameters, name: all, namespace: system}",
    );
    let documents = class
        + &gateway(own)
        + &parameters("system/all", "{service: {type: ClusterIP}}")
        + &parameters("infra/own", "{service: {loadBalancerClass: a}}");
    let (bound, _) = generating(&documents);
    assert_eq!(condition(&bound, G, "Accepted"), "False/InvalidParameters");
    assert_eq!(
        message(&bound, G, "Accepted"),
        "GatewayParameters: service.loadBalancerClass requires service.type LoadBalancer"
    );
}

// A proxy does not start with a limit that it does not know.
#[test]
fn an_invalid_limit_is_reported_and_everything_else_works() {
    let check = |name: &str, value: &str| match (name, value) {
        ("header-bytes", "64KiB") => Ok(()),
        _ => Err(format!(
            "no limit {name}={value}; known limits: header-bytes"
        )),
    };
    let controller = Controller {
        generates_proxies: true,
        check_limit: LimitCheck(check),
        ..Controller::default()
    };
    let mut bound = Bound::of("");
    bound.apply([Change::Controller(Arc::new(controller))]);
    let class = class(
        ", parametersRef: {group: pointsman.io, kind: GatewayParameters, name: all, namespace: system}",
    );
    let limits = "{replicas: 4, proxy: {limits: {header-bytes: 64KiB, headers: many}}}";
    let delta = bound.apply(puts(
        &(class + &gateway("") + &parameters("system/all", limits)),
    ));
    let merged = generated(&delta).expect("its objects").parameters.clone();
    assert_eq!(merged.replicas, Some(4));
    let expected = [("header-bytes".to_owned(), "64KiB".to_owned())];
    assert_eq!(merged.proxy.limits, expected.into());
    let expected = "GatewayParameters: ignored in proxy.limits: no limit headers=many; known limits: header-bytes";
    for object in ["GatewayClass ours", G] {
        assert_eq!(condition(&bound, object, "Accepted"), "True/Accepted");
        assert_eq!(message(&bound, object, "Accepted"), expected, "{object}");
    }
}

#[test]
fn the_feature_of_generated_objects_is_published_where_there_are_any() {
    let features = |bound: &Bound| match &bound
        .status(&key("GatewayClass ours"))
        .expect("a status")
        .body
    {
        StatusBody::Class { features, .. } => features.contains(&"GatewayInfrastructure"),
        _ => panic!("not a class"),
    };
    assert!(features(&generating(&class("")).0));
    assert!(!features(&Bound::of(&class(""))));
}
