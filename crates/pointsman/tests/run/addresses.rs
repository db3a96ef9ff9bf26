//! Addresses and ports of listeners.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::support::*;

#[test]
fn every_gateway_gets_its_own_address_and_keeps_it_after_a_restart() {
    let port = free_port();
    let text = join(&[CLASS, &gateway("edge", port), &gateway("inner", port)]);
    let pool = pool();
    let of = |running: &Running, name: &str| {
        let gateway = running.object("Gateway", name).expect("the Gateway");
        assert_eq!(
            condition(&gateway["status"], "Programmed"),
            "True/Programmed"
        );
        address(&gateway)
    };
    let first = Running::with(&[("all.yaml", &text)], &["--address-pool", &pool]);
    let (edge, inner) = (of(&first, "edge"), of(&first, "inner"));
    assert_ne!(edge, inner);
    let line = format!("Gateway infra/edge listener http: HTTP on {edge}:{port}");
    assert!(first.lines.contains(&line), "{:?}", first.lines);
    drop(first);
    let second = Running::with(&[("all.yaml", &text)], &["--address-pool", &pool]);
    assert_eq!((of(&second, "edge"), of(&second, "inner")), (edge, inner));
}

#[test]
fn the_older_gateway_gets_the_port_on_a_shared_address() {
    let port = free_port();
    let young = gateway("young", port);
    let old = gateway("old", port).replace(
        "metadata: {",
        "metadata: {creationTimestamp: '2020-01-01T00:00:00Z', ",
    );
    let text = join(&[CLASS, &young, &old]);
    let own = own_address();
    let running = Running::with(&[("all.yaml", &text)], &["--address", &own]);
    let listener = |name: &str| {
        let gateway = running.object("Gateway", name).expect("the Gateway");
        assert_eq!(address(&gateway), own);
        condition(&gateway["status"]["listeners"][0], "Accepted")
    };
    assert_eq!(listener("old"), "True/Accepted");
    assert_eq!(listener("young"), "False/PortUnavailable");
    // Without the older Gateway, the younger one gets the port.
    running.write("all.yaml", &join(&[CLASS, &young]));
    until("the younger one serves", || {
        (listener("young") == "True/Accepted").then_some(())
    });
}

#[test]
fn a_gateway_keeps_its_port_from_younger_ones_while_its_listener_cannot_serve() {
    let port = free_port();
    let old = gateway("old", port)
        .replace(
            "metadata: {",
            "metadata: {creationTimestamp: '2020-01-01T00:00:00Z', ",
        )
        .replace(
            "protocol: HTTP}",
            "protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}",
        );
    let young = gateway("young", port);
    let route = route("r", "/").replace("{name: edge}", "{name: young}");
    let own = own_address();
    let text = join(&[CLASS, &old, &young, &route]);
    let running = Running::with(&[("all.yaml", &text)], &["--address", &own]);
    let listener = |name: &str| {
        let gateway = running.object("Gateway", name).expect("the Gateway");
        gateway["status"]["listeners"][0].clone()
    };
    assert_eq!(condition(&listener("old"), "Programmed"), "False/Invalid");
    assert_eq!(
        condition(&listener("young"), "Accepted"),
        "False/PortUnavailable"
    );
    let response = response(&own, port);
    assert!(response.starts_with("HTTP/1.1 404"), "{response}");
}

#[test]
fn a_port_in_use_is_reported_in_status_and_bound_once_it_is_free() {
    let own = own_address();
    let taken = TcpListener::bind(format!("{own}:0")).expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let text = join(&[CLASS, &gateway("edge", port)]);
    let running = Running::with(&[("all.yaml", &text)], &["--address", &own]);
    let listener = || {
        let gateway = running.object("Gateway", "edge").expect("the Gateway");
        gateway["status"]["listeners"][0].clone()
    };
    assert_eq!(condition(&listener(), "Accepted"), "False/PortUnavailable");
    assert_eq!(condition(&listener(), "Programmed"), "False/Invalid");
    assert_eq!(running.get("/readyz").0, 200, "what can be bound is bound");
    let sockets = running.json("/config")["sockets"].clone();
    assert_eq!(sockets[0]["bound"], false, "{sockets}");
    drop(taken);
    until("the port is had", || {
        (condition(&listener(), "Accepted") == "True/Accepted").then_some(())
    });
}

#[test]
fn a_usable_address_of_the_manifest_is_used() {
    let port = free_port();
    let own = own_address();
    let good = gateway_with("good", port, &format!("addresses: [{{value: {own}}}], "));
    let other = own_address();
    let asks = format!(
        "addresses: [{{value: 192.0.2.1}}, {{type: Hostname, value: a.example}}, {{value: {other}}}], "
    );
    let bad = gateway_with("bad", port, &asks);
    let route = route("r", "/").replace("{name: edge}", "{name: bad}");
    let running = Running::start(&[("all.yaml", &join(&[CLASS, &good, &bad, &route]))]);
    let good = running.object("Gateway", "good").expect("the Gateway");
    assert_eq!(address(&good), own);
    assert_eq!(condition(&good["status"], "Programmed"), "True/Programmed");
    let bad = running.object("Gateway", "bad").expect("the Gateway");
    assert_eq!(
        condition(&bad["status"], "Programmed"),
        "False/AddressNotUsable"
    );
    // It serves on the address that it has.
    assert_eq!(address(&bad), other);
    let listener = &bad["status"]["listeners"][0];
    assert_eq!(condition(listener, "Programmed"), "True/Programmed");
    let response = response(&other, port);
    assert!(response.starts_with("HTTP/1.1 302"), "{response}");
}

/// The response to a request at an address.
fn response(address: &str, port: u16) -> String {
    let place: SocketAddr = format!("{address}:{port}").parse().expect("an address");
    let mut stream = TcpStream::connect(place).expect("it listens");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

#[test]
fn the_port_offset_applies_to_every_port() {
    let port = free_port();
    let low = port.checked_sub(1000).expect("a high port");
    let text = join(&[CLASS, &gateway("edge", low), &gateway("high", 65000)]);
    let own = own_address();
    let arguments = ["--address", &own, "--port-offset", "1000"];
    let running = Running::with(&[("all.yaml", &text)], &arguments);
    let line = format!("Gateway infra/edge listener http: HTTP on {own}:{port}");
    assert!(running.lines.contains(&line), "{:?}", running.lines);
    let high = running.object("Gateway", "high").expect("the Gateway");
    let listener = &high["status"]["listeners"][0];
    assert_eq!(condition(listener, "Accepted"), "False/PortUnavailable");
    assert!(high.to_string().contains("above 65535"), "{high}");
}

#[test]
fn services_with_an_address_of_this_machine_get_listeners() {
    let (address, port) = (own_address(), free_port());
    let service = |name: &str, ip: &str| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, spec: {{clusterIP: {ip}, ports: [{{name: a, port: {port}}}, {{name: b, port: {port}, protocol: UDP}}]}}}}\n"
        )
    };
    let text = join(&[
        &service("here", &address),
        &service("far", "192.0.2.7"),
        &service("none", "None"),
    ]);
    let running = Running::start(&[("all.yaml", &text)]);
    let place: SocketAddr = format!("{address}:{port}").parse().expect("an address");
    for transport in ["TCP", "UDP"] {
        let line = format!("Service shop/here port {port}: {transport} on {place}");
        assert!(running.lines.contains(&line), "{:?}", running.lines);
    }
    let config = running.json("/config");
    assert_eq!(
        config["sockets"].as_array().map(Vec::len),
        Some(2),
        "{config}"
    );
    assert_eq!(
        config["backends"].as_array().map(Vec::len),
        Some(2),
        "{config}"
    );
    running.write("all.yaml", &service("far", "192.0.2.7"));
    until("nobody listens", || {
        let config = running.json("/config");
        (config["sockets"] == serde_json::json!([]) && config["backends"] == serde_json::json!([]))
            .then_some(())
    });
}

/// "`run` prints HTTP for HTTP outbounds."
#[test]
fn an_outbound_is_listed_with_the_protocol_of_its_destination() {
    let (address, web, db) = (own_address(), free_port(), free_port());
    let client = format!(
        "{{type: Dataplane, mesh: default, name: client, networking: {{address: {address}, outbound: [{{port: {web}, address: {address}, tags: {{kuma.io/service: web}}}}, {{port: {db}, address: {address}, tags: {{kuma.io/service: db}}}}]}}}}\n"
    );
    let server = |name: &str, protocol: &str| {
        format!(
            "{{type: Dataplane, mesh: default, name: {name}-1, networking: {{address: 192.0.2.7, inbound: [{{port: 80, tags: {{kuma.io/service: {name}, kuma.io/protocol: {protocol}}}}}]}}}}\n"
        )
    };
    let text = join(&[
        "{type: Mesh, name: default}\n",
        &client,
        &server("web", "http"),
        &server("db", "tcp"),
    ]);
    let running = Running::start(&[("all.yaml", &text)]);
    for end in [
        format!(": HTTP on {address}:{web}"),
        format!(": TCP on {address}:{db}"),
    ] {
        let is_listed = running.lines.iter().any(|line| line.ends_with(&end));
        assert!(is_listed, "{end}: {:?}", running.lines);
    }
}

#[test]
fn a_gateway_without_an_address_is_listed_as_such() {
    let text = join(&[CLASS, &gateway("edge", free_port())]);
    let running = Running::with(&[("all.yaml", &text)], &["--address", "192.0.2.1"]);
    let line = "Gateway infra/edge listener http: HTTP not bound: 192.0.2.1: this machine does not have that address";
    let lines = &running.lines;
    assert!(lines.iter().any(|printed| printed == line), "{lines:?}");
}
