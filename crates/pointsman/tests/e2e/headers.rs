//! Headers that are removed, headers that describe the origin of a request, and headers that are forwarded unchanged.

use crate::support::backend::{Backend, status};
use crate::support::gateway::Gateway;
use crate::support::http1::{Http1, closes};
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::raw::AfterBytes;

fn manifests(backend: &Backend) -> String {
    [
        plain(),
        service("web", &[backend]),
        route("web", &[&to("web")]),
    ]
    .concat()
}

#[tokio::test]
async fn hop_by_hop_headers_and_those_named_by_connection_are_removed_from_requests() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let ask = get("/")
        .header("Connection", "keep-alive, X-Secret")
        .header("X-Secret", "1")
        .header("Keep-Alive", "timeout=5")
        .header("Proxy-Connection", "keep-alive")
        .header("TE", "gzip")
        .header("X-Kept", "1");
    assert_eq!(gateway.ask(ask).await.status, 200);
    let saw = backend.only().await;
    for name in ["x-secret", "keep-alive", "proxy-connection", "te"] {
        assert_eq!(saw.header(name), None, "{name}");
    }
    assert_eq!(saw.header("x-kept"), Some("1"));
    assert_eq!(saw.header("via"), None);
}

#[tokio::test]
async fn connection_cannot_name_host_framing_or_headers_added_by_the_proxy() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let ask = post("/", "body").header(
        "Connection",
        "close, host, content-length, x-forwarded-for, x-forwarded-proto, x-request-id",
    );
    assert_eq!(gateway.ask(ask).await.status, 200);
    let saw = backend.only().await;
    assert_eq!(
        (saw.host.as_str(), saw.text().as_str()),
        ("example.com", "body")
    );
    for name in ["x-forwarded-for", "x-forwarded-proto", "x-request-id"] {
        assert!(saw.header(name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn hop_by_hop_headers_are_removed_from_responses() {
    let answer = "HTTP/1.1 200 OK\r\nConnection: x-secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\nUpgrade: h2c\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nhi";
    let backend = Backend::bytes("web", answer, AfterBytes::Keep).await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    for response in [
        gateway.ask(get("/")).await,
        gateway.ask_http2(get("/")).await,
    ] {
        assert_eq!((response.status, response.text().as_str()), (200, "hi"));
        for name in ["x-secret", "keep-alive", "proxy-connection", "upgrade"] {
            assert_eq!(response.header(name), None, "{name}");
        }
        assert_eq!(response.header("x-kept"), Some("1"));
    }
}

#[tokio::test]
async fn forwarding_headers_of_untrusted_clients_are_replaced() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let lies = get("/")
        .header("X-Forwarded-For", "1.2.3.4")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "bank.example")
        .header("X-Forwarded-Port", "443")
        .header("X-Forwarded-Prefix", "/admin")
        .header("X_Forwarded_Prefix", "/admin")
        .header("Forwarded", "for=1.2.3.4;host=bank.example");
    gateway.ask(lies.clone()).await;
    gateway.ask_http2(lies).await;
    for saw in backend.saw(2).await {
        for name in ["x-forwarded-port", "x-forwarded-prefix", "x_forwarded_prefix", "forwarded"] {
            assert!(saw.all(name).is_empty(), "{name}");
        }
        assert_eq!(saw.all("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(saw.all("x-forwarded-proto"), ["http"]);
        assert_eq!(saw.all("x-forwarded-host"), ["example.com"]);
    }
}

#[tokio::test]
async fn forwarding_headers_of_trusted_proxies_are_kept_and_extended() {
    let backend = Backend::http1("web").await;
    let setup = Gateway::setup(&manifests(&backend)).argument("--trusted-proxies", "127.0.0.0/8");
    let gateway = setup.start().await;
    let ask = get("/")
        .header("X-Forwarded-For", "1.2.3.4")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "shop.example")
        .header("X-Forwarded-Port", "443")
        .header("Forwarded", "for=1.2.3.4");
    gateway.ask(ask).await;
    let saw = backend.only().await;
    assert_eq!(saw.all("x-forwarded-port"), ["443"]);
    assert_eq!(saw.all("forwarded"), ["for=1.2.3.4"]);
    assert_eq!(saw.all("x-forwarded-for").join(", "), "1.2.3.4, 127.0.0.1");
    assert_eq!(saw.all("x-forwarded-proto"), ["https"]);
    assert_eq!(saw.all("x-forwarded-host"), ["shop.example"]);
}

#[tokio::test]
async fn a_request_without_a_request_id_gets_one() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    gateway.ask(get("/")).await;
    gateway.ask(get("/")).await;
    gateway.ask(get("/").header("x-request-id", "mine")).await;
    let saw = backend.saw(3).await;
    let ids: Vec<&str> = saw.iter().flat_map(|saw| saw.all("x-request-id")).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[2], "mine");
}

#[tokio::test]
async fn trace_context_host_and_unknown_headers_are_forwarded_unchanged() {
    let backend = Backend::http1_with("web", |_| {
        status(200)
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("server", "backend")
    })
    .await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let ask = get("/")
        .host("Shop.Example:8080")
        .header("traceparent", trace)
        .header("tracestate", "a=b")
        .header("cookie", "x=1; y=2")
        .header("x-empty", "");
    let response = gateway.ask(ask).await;
    assert_eq!(response.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(response.header("server"), Some("backend"));
    assert_eq!(response.header("via"), None);
    let saw = backend.only().await;
    assert_eq!(saw.header("traceparent"), Some(trace));
    assert_eq!(saw.header("tracestate"), Some("a=b"));
    assert_eq!(saw.header("cookie"), Some("x=1; y=2"));
    assert_eq!(saw.header("x-empty"), Some(""));
    assert_eq!(saw.host.to_ascii_lowercase(), "shop.example:8080");
}

#[tokio::test]
async fn http_1_0_connections_are_closed_unless_keep_alive_is_requested() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client
        .send("GET /old HTTP/1.0\r\nHost: example.com\r\n\r\n")
        .await;
    assert_eq!(client.response().await.status, 200);
    client.ended().await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    for _ in 0..2 {
        client
            .send("GET /old HTTP/1.0\r\nHost: example.com\r\nConnection: keep-alive\r\n\r\n")
            .await;
        let response = client.response().await;
        assert_eq!(response.status, 200);
        assert!(
            response.header("transfer-encoding").is_none(),
            "HTTP/1.0 has no chunks"
        );
    }
    assert!(
        backend
            .saw(3)
            .await
            .iter()
            .all(|saw| saw.version == "HTTP/1.1")
    );
}

#[tokio::test]
async fn a_100_continue_response_precedes_the_body() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client
        .send("POST / HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await;
    assert_eq!(client.head().await.status, 100);
    client.send("body").await;
    assert_eq!(client.response().await.status, 200);
    assert_eq!(backend.only().await.text(), "body");
}

/// RFC 9110 §10.1.1: a server that determines the final status from the head alone may omit the 100, so that the client does not send its body.
#[tokio::test]
async fn no_100_continue_is_sent_for_a_body_that_is_not_forwarded() {
    let manifests = [
        plain(),
        service("empty", &[]),
        route("web", &[&matching("{path: {value: /empty}}", "empty")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for (path, status) in [("/none", 404), ("/empty", 503)] {
        let mut client = Http1::connect(gateway.at(8080)).await;
        client
            .send(format!("POST {path} HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"))
            .await;
        let response = client.response().await;
        assert_eq!((response.status, response.interim.len()), (status, 0));
        assert!(closes(&response), "{response:?}");
        client.ended().await;
    }
}
