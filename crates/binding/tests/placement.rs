//! Resources from which a data plane determines the addresses to listen on.

mod common;

use common::{Bound, doc, key, puts, service};
use pointsman_binding::Change;
use pointsman_binding::bound::Transport;
use pointsman_resources::Name;

const CLASS: &str = "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: ours}, spec: {controllerName: pointsman.io/controller}}";

fn gateway(class: &str, addresses: &str) -> String {
    let listeners = "[{name: http, port: 80, protocol: HTTP}]";
    let spec =
        format!("{{gatewayClassName: {class}, addresses: [{addresses}], listeners: {listeners}}}");
    doc("Gateway", "infra/g", &spec)
}

fn request(addresses: &str) -> (Vec<String>, bool) {
    let bound = Bound::of(&(CLASS.to_owned() + &gateway("ours", addresses)));
    let request = &bound.gateways[&Name::new("infra", "g")];
    let numbers = request.addresses.iter().map(ToString::to_string);
    (numbers.collect(), request.any)
}

#[test]
fn a_gateway_requests_the_addresses_in_its_spec_or_any() {
    assert_eq!(request(""), (vec![], true));
    assert_eq!(
        request("{value: 10.0.0.1}, {value: 192.0.2.1}"),
        (vec!["10.0.0.1".to_owned(), "192.0.2.1".to_owned()], false)
    );
    assert_eq!(request("{type: IPAddress}"), (vec![], true));
    assert_eq!(
        request("{type: Hostname, value: a.example}"),
        (vec![], false)
    );
    assert_eq!(request("{type: Hostname}"), (vec![], false));
}

#[test]
fn only_managed_gateways_request_addresses() {
    let mut bound = Bound::of(&(CLASS.to_owned() + &gateway("theirs", "")));
    assert!(bound.gateways.is_empty());
    bound.apply(puts(&gateway("ours", "")));
    assert_eq!(bound.gateways.len(), 1);
    bound.apply([Change::Delete(key("GatewayClass ours"))]);
    assert!(bound.gateways.is_empty(), "its class is gone");
}

#[test]
fn a_new_route_changes_no_placement() {
    let mut bound = Bound::of(&(CLASS.to_owned() + &gateway("ours", "")));
    let route = doc(
        "HTTPRoute",
        "infra/r",
        "{parentRefs: [{name: g}], rules: [{}]}",
    );
    let delta = bound.apply(puts(&route));
    assert_eq!(delta.attachments.len(), 1);
    assert!(delta.gateways.is_empty() && delta.services.is_empty() && delta.workloads.is_empty());
}

#[test]
fn services_have_addresses_and_running_pods_have_one() {
    let pod = |phase: &str| {
        format!(
            "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{namespace: shop, name: p}}, status: {{phase: {phase}, podIP: 10.1.0.1}}}}"
        )
    };
    let web = "{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1'], ports: [{name: h, port: 80}, {name: u, port: 53, protocol: UDP}, {name: s, port: 7, protocol: SCTP}]}";
    let text = service("shop/web", web)
        + &service("shop/headless", "{clusterIP: None, ports: [{port: 80}]}")
        + &pod("Running");
    let mut bound = Bound::of(&text);
    let services: Vec<String> = bound.services.keys().map(ToString::to_string).collect();
    assert_eq!(services, ["Service shop/web"]);
    let web = &bound.services[&key("Service shop/web")];
    let addresses: Vec<String> = web.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.1", "fd00::1"]);
    assert_eq!(web.ports, [(80, Transport::Tcp), (53, Transport::Udp)]);
    let address = bound.workloads[&key("Pod shop/p")].address;
    assert_eq!(address, "10.1.0.1".parse().ok());
    bound.apply(puts(&pod("Succeeded")));
    assert!(bound.workloads.is_empty(), "it has ended");
}
