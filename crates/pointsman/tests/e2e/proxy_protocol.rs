//! The PROXY protocol from load balancers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::Value;

use crate::mesh::{connect_from, mesh_route, mesh_service, pod};
use crate::support::backend::Backend;
use crate::support::certificates::{Authority, Handshake};
use crate::support::eventually;
use crate::support::gateway::{Address, Gateway, HTTP, HTTPS, Setup};
use crate::support::http1::Http1;
use crate::support::http2::Http2;
use crate::support::manifests::*;
use crate::support::message::get;

/// Address of the load balancer: that of all connections in these tests, unless they bind another one.
const BALANCER: &str = "127.0.0.1/32";

const VERSION_1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";

/// A header of version 2 from 2001:db8::7, with additional fields of 300 bytes.
fn version_2() -> Vec<u8> {
    let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    let addresses = [source.octets(), source.octets()].concat();
    let ports = [0x12, 0x67, 0, 80];
    let fields = [&[4, 1, 41][..], &[0; 297]].concat();
    let length = (36 + fields.len() as u16).to_be_bytes();
    let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x21";
    [start, &length[..], &addresses, &ports, &fields].concat()
}

/// A LOCAL command, as health checks use it.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0";

fn web(backend: &Backend) -> Setup {
    let manifests = [
        plain(),
        service("web", &[backend]),
        route("web", &[&to("web")]),
    ];
    Gateway::setup(&manifests.concat()).argument("--proxy-protocol", BALANCER)
}

/// Waits until this number of connections was closed because of a missing header.
async fn refused(gateway: &Gateway, count: usize) {
    let series = format!("pointsman_connections_refused_total{{reason=\"ProxyProtocol\"}} {count}");
    eventually("connections are counted", || async {
        gateway.ask_admin("/metrics").await.text().contains(&series)
    })
    .await;
}

#[tokio::test]
async fn the_address_in_the_header_is_the_clients_address() {
    let backend = Backend::http1("web").await;
    let gateway = web(&backend)
        .argument("--access-log", "json")
        .start()
        .await;
    let v2 = version_2();
    let cases = [
        (VERSION_1, "192.0.2.7", "192.0.2.7:4711"),
        (&v2, "2001:db8::7", "[2001:db8::7]:4711"),
        (LOCAL, "127.0.0.1", "127.0.0.1:"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1", "127.0.0.1:"),
    ];
    for (number, (header, expected, _)) in cases.into_iter().enumerate() {
        let mut client = Http1::connect(gateway.at(HTTP)).await;
        let both = [header, &get("/").bytes()].concat();
        client.send(both).await;
        assert_eq!(client.response().await.status, 200);
        let second = client.ask(&get("/second")).await;
        assert_eq!(second.status, 200, "a header is for the whole connection");
        for saw in &backend.saw(2 * number + 2).await[2 * number..] {
            assert_eq!(saw.all("x-forwarded-for"), [expected]);
        }
    }
    for (_, _, logged) in cases {
        let is_logged = || {
            let lines = gateway.log();
            let mut lines = lines
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            lines.any(|line: Value| {
                line["client"]
                    .as_str()
                    .is_some_and(|client| client.starts_with(logged))
            })
        };
        eventually(logged, || async { is_logged() }).await;
    }
}

#[tokio::test]
async fn a_header_may_arrive_in_pieces_and_together_with_http_2() {
    let backend = Backend::http1("web").await;
    let gateway = web(&backend).start().await;
    for header in [VERSION_1, &version_2()] {
        let mut client = Http1::connect(gateway.at(HTTP)).await;
        for byte in header {
            client.send([*byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(client.ask(&get("/")).await.status, 200);
    }
    let mut client = Http1::connect(gateway.at(HTTP)).await;
    client.send(VERSION_1).await;
    let client = Http2::over(client.into_stream(), "http").await;
    assert_eq!(client.ask(&get("/")).await.status, 200);
    let saw = backend.saw(3).await;
    assert_eq!(saw[2].all("x-forwarded-for"), ["192.0.2.7"]);
}

#[tokio::test]
async fn a_load_balancer_without_a_valid_header_is_disconnected_and_counted() {
    let backend = Backend::http1("web").await;
    let gateway = web(&backend).limit("head-time", "300ms").start().await;
    let closed: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 04711 80\r\nGET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\x0c",
        // The header takes too long.
        b"PROXY TCP4 192.0.2.7",
    ];
    for bytes in closed {
        let mut client = Http1::connect(gateway.at(HTTP)).await;
        client.send(bytes).await;
        assert_eq!(client.rest().await, b"");
    }
    refused(&gateway, 4).await;
    assert!(
        gateway
            .log()
            .contains("does not begin with a PROXY protocol header"),
        "{}",
        gateway.log()
    );
    // A connection on which nothing is sent is a health check.
    let mut client = Http1::connect(gateway.at(HTTP)).await;
    client.finish().await;
    assert_eq!(client.rest().await, b"");
    refused(&gateway, 4).await;
    assert_eq!(backend.count(), 0);
}

#[tokio::test]
async fn a_client_that_is_not_a_load_balancer_cannot_state_an_address() {
    let backend = Backend::http1("web").await;
    let gateway = web(&backend).start().await;
    let stranger = Ipv4Addr::new(127, 0, 0, 9).into();
    let mut client = connect_from(stranger, gateway.at(HTTP)).await;
    client
        .send([VERSION_1, &get("/").bytes()].concat())
        .await;
    assert_eq!(client.response().await.status, 400);
    let mut client = connect_from(stranger, gateway.at(HTTP)).await;
    assert_eq!(client.ask(&get("/")).await.status, 200);
    let saw = backend.only().await;
    assert_eq!(saw.all("x-forwarded-for"), ["127.0.0.9"]);
}

#[tokio::test]
async fn forwarding_headers_are_trusted_by_the_address_in_the_header() {
    let backend = Backend::http1("web").await;
    let gateway = web(&backend)
        .argument("--trusted-proxies", "192.0.2.0/24")
        .start()
        .await;
    let ask = get("/").header("X-Forwarded-For", "203.0.113.1");
    let cases = [(VERSION_1, "203.0.113.1, 192.0.2.7"), (LOCAL, "127.0.0.1")];
    for (number, (header, expected)) in cases.into_iter().enumerate() {
        let mut client = Http1::connect(gateway.at(HTTP)).await;
        client.send(header).await;
        assert_eq!(client.ask(&ask).await.status, 200);
        let saw = &backend.saw(number + 1).await[number];
        assert_eq!(saw.all("x-forwarded-for").join(", "), expected);
    }
}

#[tokio::test]
async fn the_header_precedes_tls_that_is_terminated_or_passed_through_and_tcp() {
    let authority = Authority::new();
    let identity = authority.issue(&["example.com"]);
    let (web, echo) = (Backend::http1("web").await, Backend::tcp("echo").await);
    let server = authority.issue(&["through.example"]);
    let through = Backend::tls("through", server.server(&["http/1.1"], None)).await;
    let manifests = [
        gateway(&[
            &format!("{{name: https, port: {HTTPS}, protocol: HTTPS, hostname: example.com, tls: {{certificateRefs: [{{name: cert}}]}}}}"),
            "{name: tls, port: 9443, protocol: TLS, tls: {mode: Passthrough}}",
            "{name: tcp, port: 9000, protocol: TCP}",
        ]),
        identity.secret("default/cert"),
        service("web", &[&web]),
        service("through", &[&through]),
        service("echo", &[&echo]),
        route_on("[{name: edge, sectionName: https}]", "HTTPRoute", "web", "", &[&to("web")]),
        route_on("[{name: edge, sectionName: tls}]", "TLSRoute", "through", "  hostnames: [through.example]\n", &[&to("through")]),
        route_on("[{name: edge, sectionName: tcp}]", "TCPRoute", "echo", "", &[&to("echo")]),
    ];
    let gateway = Gateway::setup(&manifests.concat())
        .argument("--proxy-protocol", BALANCER)
        .argument("--access-log", "json")
        .start()
        .await;
    for (name, port) in [("example.com", HTTPS), ("through.example", 9443)] {
        let mut client = Http1::connect(gateway.at(port)).await;
        client.send(VERSION_1).await;
        let shake = Handshake::new(&authority, name);
        let stream = shake.try_over(client.into_stream()).await;
        let stream = stream.expect("a handshake");
        let response = Http1::over(stream).ask(&get("/").host(name)).await;
        assert_eq!(response.status, 200, "{name}");
    }
    assert_eq!(web.only().await.all("x-forwarded-for"), ["192.0.2.7"]);
    let mut client = Http1::connect(gateway.at(9000)).await;
    client.send([VERSION_1, b"ping"].concat()).await;
    assert_eq!(client.exactly(9).await.expect("an answer"), b"echo\nping");
    drop(client);
    eventually("both streams are logged with the client", || async {
        gateway.log().matches("192.0.2.7:4711").count() >= 3
    })
    .await;
}

#[tokio::test]
async fn a_mesh_client_is_known_by_the_address_in_the_header() {
    let (cluster, more, consumer) = (Address::new(), Address::new(), Address::new());
    let (own, theirs) = (Backend::http1("own").await, Backend::http1("theirs").await);
    let manifests = [
        mesh_service("shop", cluster.ip, &own),
        mesh_service("v2", more.ip, &theirs),
        pod("till", "checkout", consumer.ip),
        mesh_route("consumer", "checkout", "v2"),
    ];
    let _gateway = Gateway::setup(&manifests.concat())
        .argument("--proxy-protocol", BALANCER)
        .start()
        .await;
    let at = SocketAddr::new(cluster.ip, crate::mesh::PORT);
    for (address, expected) in [(consumer.ip, "theirs"), ([192, 0, 2, 7].into(), "own")] {
        let mut client = Http1::connect(at).await;
        client
            .send(format!("PROXY TCP4 {address} {} 4711 80\r\n", cluster.ip))
            .await;
        let response = client.ask(&get("/")).await;
        assert_eq!(response.backend(), Some(expected));
    }
}
