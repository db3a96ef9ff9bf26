//! HTTP/2 downstream and upstream, and its translation to HTTP/1.

use bytes::Bytes;

use crate::support::backend::{BackendResponse, Backend, status};
use crate::support::gateway::Gateway;
use crate::support::http2::Http2;
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::within;

fn manifests(backend: &Backend, protocol: &str) -> String {
    [
        plain(),
        service_as("web", protocol, &[backend]),
        route("web", &[&to("web")]),
    ]
    .concat()
}

#[tokio::test]
async fn http_2_requests_are_translated_to_http_1() {
    let backend = Backend::http1_with("web", |_| status(201).header("x-a", "b")).await;
    let gateway = Gateway::of(&manifests(&backend, "http")).await;
    let client = Http2::connect(gateway.at(8080)).await;
    let body = "x".repeat(300_000);
    let response = client
        .ask(
            &post("/a?b=c", body.clone())
                .header("cookie", "a=1")
                .header("cookie", "b=2"),
        )
        .await;
    assert_eq!((response.status, response.header("x-a")), (201, Some("b")));
    for name in ["connection", "transfer-encoding", "keep-alive"] {
        assert_eq!(response.header(name), None, "{name}");
    }
    let saw = backend.only().await;
    assert_eq!(
        (saw.version.as_str(), saw.target.as_str()),
        ("HTTP/1.1", "/a?b=c")
    );
    assert_eq!(saw.all("host"), ["example.com"]);
    // RFC 9113 §8.2.3: cookies are joined into one header for HTTP/1.
    assert_eq!(saw.all("cookie"), ["a=1; b=2"]);
    assert_eq!(saw.text(), body);
    assert!(
        saw.headers.iter().all(|(name, _)| !name.starts_with(':')),
        "{saw:?}"
    );
}

#[tokio::test]
async fn http_1_requests_are_translated_to_http_2() {
    let backend = Backend::http2_with("web", |_| status(200).body("x".repeat(300_000))).await;
    let gateway = Gateway::of(&manifests(&backend, "kubernetes.io/h2c")).await;
    let ask = post("/a?b", "hello")
        .header("Connection", "keep-alive")
        .header("X-Upper", "Case");
    let response = gateway.ask(ask).await;
    assert_eq!((response.status, response.body.len()), (200, 300_000));
    let saw = backend.only().await;
    assert_eq!(
        (saw.version.as_str(), saw.target.as_str()),
        ("HTTP/2.0", "/a?b")
    );
    assert_eq!(saw.host, "example.com");
    assert_eq!(saw.header("connection"), None);
    assert_eq!(saw.header("x-upper"), Some("Case"));
    assert_eq!(saw.text(), "hello");
}

#[tokio::test]
async fn trailers_are_forwarded_if_both_sides_support_them() {
    let backend = Backend::http2_with("web", |_| status(200).trailer("x-after", "end")).await;
    let gateway = Gateway::of(&manifests(&backend, "kubernetes.io/h2c")).await;
    let client = Http2::connect(gateway.at(8080)).await;
    let (response, mut body) = client.open(&ask("POST", "/")).await;
    body.send_data(Bytes::from_static(b"body"), false)
        .expect("sent");
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-before", http::HeaderValue::from_static("start"));
    body.send_trailers(trailers).expect("sent");
    let response = within("a response", crate::support::http2::finish(response))
        .await
        .expect("a response");
    assert_eq!(response.trailer("x-after"), Some("end"));
    assert_eq!(
        field(&backend.only().await.trailers, "x-before"),
        Some("start")
    );
}

#[tokio::test]
async fn a_stream_reset_by_the_backend_is_502_and_others_are_unaffected() {
    let backend = Backend::http2_with("web", |saw| match saw.target.as_str() {
        "/cut" => BackendResponse::Cut,
        _ => status(200),
    })
    .await;
    let gateway = Gateway::of(&manifests(&backend, "kubernetes.io/h2c")).await;
    let client = Http2::connect(gateway.at(8080)).await;
    for _ in 0..3 {
        assert_eq!(client.ask(&post("/cut", "x")).await.status, 502);
        assert_eq!(client.ask(&get("/")).await.status, 200);
    }
    assert_eq!(
        backend.connections(),
        1,
        "a reset stream costs no connection"
    );
}

#[tokio::test]
async fn no_request_is_lost_to_a_goaway_of_the_backend() {
    // Each connection accepts two requests and sends a GOAWAY.
    let backend = Backend::listening("web", |stream, record| async move {
        let (connection, _open) = record.connected();
        let Ok(mut server) = h2::server::handshake(stream).await else {
            return;
        };
        let mut taken = 0;
        while let Some(Ok((request, mut respond))) = server.accept().await {
            record.note(crate::support::backend::RecordedRequest {
                target: request.uri().path().to_owned(),
                connection,
                ..Default::default()
            });
            let _ = respond.send_response(http::Response::new(()), true);
            taken += 1;
            if taken == 2 {
                server.graceful_shutdown();
            }
        }
    })
    .await;
    let gateway = Gateway::of(&manifests(&backend, "kubernetes.io/h2c")).await;
    let client = Http2::connect(gateway.at(8080)).await;
    for number in 0..40 {
        assert_eq!(client.ask(&get("/")).await.status, 200, "{number}");
    }
    assert_eq!(backend.saw(40).await.len(), 40, "each was sent once");
    assert!(backend.connections() > 1);
}

#[tokio::test]
async fn the_listener_allows_128_concurrent_streams_by_default() {
    let backend = Backend::http1("web").await;
    for (limit, expected) in [(None, 128), (Some("3"), 3)] {
        let mut setup = Gateway::setup(&manifests(&backend, "http"));
        if let Some(limit) = limit {
            setup = setup.limit("streams", limit);
        }
        let gateway = setup.start().await;
        let client = Http2::connect(gateway.at(8080)).await;
        // The settings arrive with the first response.
        assert_eq!(client.ask(&get("/")).await.status, 200);
        assert_eq!(client.streams(), expected);
    }
}

#[tokio::test]
async fn an_http_2_connection_survives_an_invalid_request_on_one_stream() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend, "http")).await;
    let client = Http2::connect(gateway.at(8080)).await;
    let bad = get("/").host("user@example.com");
    match client.try_ask(&bad).await {
        Ok(response) => assert_eq!(response.status, 400),
        Err(error) => assert!(error.is_reset(), "{error}"),
    }
    assert_eq!(client.ask(&get("/")).await.status, 200);
    assert_eq!(backend.only().await.host, "example.com");
}
