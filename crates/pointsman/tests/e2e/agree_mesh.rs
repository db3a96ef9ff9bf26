//! `explain` and the proxy agree on requests to Services and to their workloads, for every protocol.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::agree::encoded;
use crate::mesh::{PORT, ask_from, mesh_route, mesh_service, pod};
use crate::support::backend::Backend;
use crate::support::certificates::{Authority, Handshake};
use crate::support::gateway::{Address, Gateway};
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::within;

/// Returns the explanation of a running instance for a request from a namespace.
async fn explained(gateway: &Gateway, from: &str, url: &str) -> Value {
    let question = format!("/explain?from={from}&url={}", encoded(url));
    gateway.ask_admin(&question).await.json()
}

/// Sends bytes and returns everything that is received until the peer closes the connection.
async fn answer_to(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = within("a connection", TcpStream::connect(at))
        .await
        .expect("connected");
    stream.write_all(bytes).await.expect("sent");
    let mut got = Vec::new();
    // A reset also ends the connection.
    let _ = within("the end", stream.read_to_end(&mut got)).await;
    got
}

fn tls_route() -> String {
    let parent = format!("[{{group: '', kind: Service, name: shop, port: {PORT}}}]");
    let rule = format!("backendRefs: [{{name: shop, port: {PORT}}}]");
    route_on(
        &parent,
        "TLSRoute",
        "shop",
        "  hostnames: [shop.example]\n",
        &[&rule],
    )
}

#[tokio::test]
async fn plaintext_to_a_service_port_with_a_tls_route() {
    let authority = Authority::new();
    let cluster = Address::new();
    let config = authority
        .issue(&["shop.example"])
        .server(&["http/1.1"], None);
    let backend = Backend::tls("shop", config).await;
    let manifests = mesh_service("shop", cluster.ip, &backend) + &tls_route();
    let gateway = Gateway::of(&manifests).await;
    let at = SocketAddr::new(cluster.ip, PORT);

    // HTTP without TLS gets a response.
    let explanation = explained(&gateway, "default", &format!("http://{at}/")).await;
    let response = Http1::connect(at).await.ask(&get("/")).await;
    assert_eq!(response.status, 400);
    assert_eq!(explanation["status"], 400, "{explanation:#}");
    assert_eq!(explanation["outcome"], "respond", "{explanation:#}");
    assert!(
        explanation["reason"]
            .as_str()
            .is_some_and(|why| why.contains("only TLS")),
        "{explanation:#}"
    );

    // Any other connection is closed without a response.
    let explanation = explained(&gateway, "default", &format!("tcp://{at}")).await;
    assert_eq!(explanation["status"], "reset", "{explanation:#}");
    assert_eq!(answer_to(at, b"\x00\x01hello\r\n").await, b"");
    assert_eq!(backend.connections(), 0, "nothing was forwarded");

    // TLS is forwarded, with any server name.
    for url in [format!("tls://{at}"), format!("https://{at}/")] {
        let explanation = explained(&gateway, "default", &url).await;
        assert_eq!(explanation["outcome"], "forward", "{explanation:#}");
        assert_eq!(explanation["rule"]["kind"], "TLSRoute", "{explanation:#}");
    }
    let stream = Handshake::new(&authority, "shop.example").connect(at).await;
    let response = Http1::over(stream).ask(&get("/")).await;
    assert_eq!(response.backend(), Some("shop"));
}

#[tokio::test]
async fn tls_to_a_service_port_with_an_http_route() {
    let authority = Authority::new();
    let cluster = Address::new();
    let backend = Backend::http1("shop").await;
    let route = mesh_route("shop", "default", "shop");
    let gateway = Gateway::of(&(mesh_service("shop", cluster.ip, &backend) + &route)).await;
    let at = SocketAddr::new(cluster.ip, PORT);
    for url in [format!("https://{at}/"), format!("tls://{at}")] {
        let explanation = explained(&gateway, "default", &url).await;
        assert_eq!(explanation["status"], "reset", "{explanation:#}");
        assert_eq!(explanation["outcome"], "respond", "{explanation:#}");
    }
    let handshake = Handshake::new(&authority, "shop.example").try_connect(at);
    assert!(handshake.await.is_err());
    assert_eq!(backend.connections(), 0, "nothing was forwarded");
    let explanation = explained(&gateway, "default", &format!("http://{at}/")).await;
    assert_eq!(explanation["outcome"], "forward", "{explanation:#}");
}

#[tokio::test]
async fn requests_to_a_workloads_own_address_bypass_routes() {
    let cluster = Address::new();
    let backend = Backend::http1("own").await;
    // The route would respond with 404.
    let route = mesh_route("shop", "default", "shop").replace(
        "[{backendRefs",
        "[{matches: [{path: {value: /only}}], backendRefs",
    );
    let gateway = Gateway::of(&(mesh_service("shop", cluster.ip, &backend) + &route)).await;
    let at = backend.address;
    let explanation = explained(&gateway, "default", &format!("http://{at}/")).await;
    assert_eq!(explanation["outcome"], "forward", "{explanation:#}");
    assert_eq!(explanation["backends"][0]["endpoints"][0], at.to_string());
    assert!(
        explanation["why"]
            .as_str()
            .is_some_and(|why| why.contains("bypasses")),
        "{explanation:#}"
    );
    let response = Http1::connect(at).await.ask(&get("/")).await;
    assert_eq!(response.backend(), Some("own"));
    let explanation = explained(
        &gateway,
        "default",
        &format!("http://{}:{PORT}/", cluster.ip),
    )
    .await;
    assert_eq!(explanation["status"], 404, "{explanation:#}");
}

#[tokio::test]
async fn a_client_in_the_producers_namespace_follows_the_producer_routes() {
    let (cluster, other, client) = (Address::new(), Address::new(), Address::new());
    let (own, next) = (Backend::http1("own").await, Backend::http1("next").await);
    let manifests = [
        mesh_service("shop", cluster.ip, &own),
        mesh_service("v1", other.ip, &next),
        pod("page", "default", client.ip),
        mesh_route("producer", "default", "v1"),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let at = SocketAddr::new(cluster.ip, PORT);
    assert_eq!(ask_from(client.ip, at).await.backend(), Some("next"));
    let explanation = explained(&gateway, "default/page", &format!("http://{at}/")).await;
    assert_eq!(explanation["rule"]["name"], "producer", "{explanation:#}");
    let why = explanation["why"].as_str().unwrap_or_default();
    assert_eq!(
        why,
        format!("port {PORT} of Service default/shop, for all clients")
    );
}
