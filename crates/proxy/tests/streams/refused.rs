//! Tests of the connection limit, and of backends with a DNS name.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};

use crate::support::*;
use crate::tls::http_backend;

#[test]
fn connections_beyond_the_limit_are_refused_until_one_ends() {
    let mut options = options();
    options.limits.connections = Some(2);
    let listeners =
        "{name: http, port: 80, protocol: HTTP}, {name: tcp, port: 9000, protocol: TCP}";
    let proxy = TestProxy::with(
        options,
        &(gateway(listeners)
            + &route("HTTPRoute", "h", "http", "{name: web, port: 1000}")
            + &route("TCPRoute", "t", "tcp", "{name: raw, port: 1000}")
            + &service("web", &[http_backend()])
            + &service("raw", &[named_backend("raw")])),
    );
    let mut held: Vec<_> = (0..2).map(|_| connect(proxy.tcp_address(9000))).collect();
    for stream in &mut held {
        stream.read_exact(&mut [0; 4]).expect("a name");
    }
    let get = |close: &str| {
        let mut stream = connect(proxy.tcp_address(80));
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\n{close}\r\n");
        // A refused connection may be closed before the request is read.
        let _ = stream.write_all(request.as_bytes());
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        String::from_utf8(received).expect("text")
    };
    let received = get("");
    assert!(received.starts_with("HTTP/1.1 503 "), "{received}");
    assert!(received.contains("connection: close\r\n"), "{received}");
    assert!(
        received.contains("x-pointsman-reason: TooManyConnections\r\n"),
        "{received}"
    );
    assert!(
        received.ends_with("\r\n\r\ntoo many connections\n"),
        "{received}"
    );
    assert!(
        is_refused(connect(proxy.tcp_address(9000))),
        "a TCP stream is closed without a response"
    );
    let refused = "reason=\"TooManyConnections\"";
    assert_eq!(
        proxy.metric("pointsman_connections_refused_total", refused),
        2
    );
    held.pop();
    wait_for("room for a connection", || {
        get("connection: close\r\n").starts_with("HTTP/1.1 200 ")
    });
}

#[test]
fn a_backend_may_have_a_dns_name() {
    let backend = named_backend("web");
    assert_eq!(backend.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    let external = document(
        "gateway.networking.x-k8s.io/v1alpha1",
        "XBackend",
        "out",
        &format!(
            "{{type: ExternalHostname, externalHostname: {{hostname: localhost}}, port: {{number: {}}}}}",
            backend.port()
        ),
    );
    let proxy = TestProxy::new(
        &(gateway("{name: tcp, port: 9000, protocol: TCP}")
            + &route(
                "TCPRoute",
                "r",
                "tcp",
                "{group: gateway.networking.x-k8s.io, kind: XBackend, name: out}",
            )
            + &external),
    );
    // The backend has no endpoints before its name is resolved.
    wait_for("the name to be resolved", || {
        let mut stream = connect(proxy.tcp_address(9000));
        let mut name = [0; 4];
        stream.read_exact(&mut name).is_ok() && name == *b"web "
    });
}
