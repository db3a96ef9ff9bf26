//! gRPC: bidirectional streams, trailers, and statuses of local replies.

use crate::support::backend::{Backend, status};
use crate::support::gateway::Gateway;
use crate::support::http2::{Http2, Messages, call, message, messages};
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::within;

fn manifests(backend: &Backend, rules: &[&str]) -> String {
    [
        plain(),
        service_as("web", "kubernetes.io/h2c", &[backend]),
        service("empty", &[]),
        route_of("GRPCRoute", "web", "", rules),
    ]
    .concat()
}

#[tokio::test]
async fn a_unary_call_carries_its_message_headers_and_trailers() {
    let backend = Backend::http2_with("web", |_| {
        status(200)
            .header("content-type", "application/grpc")
            .body(message("pong"))
            .trailer("grpc-status", "0")
            .trailer("grpc-message", "fine")
    })
    .await;
    let gateway = Gateway::of(&manifests(&backend, &[&to("web")])).await;
    let mut ask = call("shop.Catalog/Get").header("x-token", "1");
    ask.body = Some(message("ping"));
    let response = Http2::connect(gateway.at(8080)).await.ask(&ask).await;
    assert_eq!(response.status, 200);
    assert_eq!(messages(&response.body), ["pong"]);
    assert_eq!(response.trailer("grpc-status"), Some("0"));
    assert_eq!(response.trailer("grpc-message"), Some("fine"));
    let saw = backend.only().await;
    assert_eq!(
        (saw.version.as_str(), saw.target.as_str()),
        ("HTTP/2.0", "/shop.Catalog/Get")
    );
    assert_eq!(saw.header("x-token"), Some("1"));
    assert_eq!(
        saw.header("te"),
        Some("trailers"),
        "gRPC servers ask for it"
    );
    assert_eq!(messages(&saw.body), ["ping"]);
}

#[tokio::test]
async fn messages_flow_in_both_directions_while_a_stream_is_open() {
    let backend = Backend::grpc("web").await;
    let gateway = Gateway::of(&manifests(&backend, &[&to("web")])).await;
    let client = Http2::connect(gateway.at(8080)).await;
    let (response, mut body) = client.open(&call("shop.Catalog/Talk")).await;
    body.send_data(message("0"), false).expect("sent");
    let response = within("a head before the end of the request", response).await;
    let mut answers = Messages::of(response.expect("a response").into_body());
    assert_eq!(answers.next().await.as_deref(), Some("0"));
    for number in 1..100 {
        let text = format!("{number} {}", "x".repeat(number * 10));
        body.send_data(message(&text), false).expect("sent");
        assert_eq!(answers.next().await, Some(text));
    }
    body.send_data(bytes::Bytes::new(), true).expect("ended");
    assert_eq!(answers.next().await, None);
    assert_eq!(field(&answers.trailers().await, "grpc-status"), Some("0"));
}

#[tokio::test]
async fn many_streams_share_few_connections_to_the_backend() {
    let backend = Backend::grpc("web").await;
    let gateway = Gateway::of(&manifests(&backend, &[&to("web")])).await;
    let client = Http2::connect(gateway.at(8080)).await;
    let mut open = Vec::new();
    for number in 0..50 {
        let (response, mut body) = client.open(&call("shop.Catalog/Talk")).await;
        body.send_data(message(&number.to_string()), false)
            .expect("sent");
        open.push((response, body));
    }
    backend.saw(50).await;
    assert!(
        backend.connections() <= 2,
        "{} connections",
        backend.connections()
    );
    for (number, (response, mut body)) in open.into_iter().enumerate() {
        body.send_data(bytes::Bytes::new(), true).expect("ended");
        let response = within("a response", response).await.expect("a response");
        let mut answers = Messages::of(response.into_body());
        assert_eq!(answers.next().await, Some(number.to_string()));
        assert_eq!(answers.next().await, None);
        assert_eq!(field(&answers.trailers().await, "grpc-status"), Some("0"));
    }
}

#[tokio::test]
async fn a_call_canceled_by_the_client_is_canceled_at_the_backend() {
    let backend = Backend::grpc("web").await;
    let gateway = Gateway::of(&manifests(&backend, &[&to("web")])).await;
    let client = Http2::connect(gateway.at(8080)).await;
    let (response, mut body) = client.open(&call("shop.Catalog/Talk")).await;
    body.send_data(message("x"), false).expect("sent");
    let response = within("a head", response).await.expect("a response");
    body.send_reset(h2::Reason::CANCEL);
    drop(response);
    // The connection stays open.
    let mut ask = call("shop.Catalog/Get");
    ask.body = Some(message("y"));
    assert_eq!(client.ask(&ask).await.status, 200);
}

#[tokio::test]
async fn local_replies_to_grpc_calls_are_grpc_statuses() {
    let backend = Backend::grpc("web").await;
    let rules = [
        "{matches: [{method: {service: shop.Empty}}], backendRefs: [{name: empty, port: 80}]}",
        "{matches: [{method: {service: shop.Missing}}], backendRefs: [{name: nowhere, port: 80}]}",
        "{matches: [{method: {service: shop.Catalog, method: Get}}], backendRefs: [{name: web, port: 80}]}",
    ];
    let gateway = Gateway::of(&manifests(&backend, &rules)).await;
    let client = Http2::connect(gateway.at(8080)).await;
    let mut large = call("shop.Catalog/Get");
    large
        .headers
        .extend((0..200).map(|number| (format!("x-{number}"), "x".to_owned())));
    let response = client.ask(&large).await;
    let result = (response.status, response.header("grpc-status"));
    assert_eq!(result, (200, Some("8")), "RESOURCE_EXHAUSTED: {response:?}");
    // UNIMPLEMENTED is 12, UNAVAILABLE is 14.
    for (method, expected) in [
        ("shop.Other/Get", "12"),
        ("shop.Catalog/Put", "12"),
        ("shop.Empty/Get", "14"),
        ("shop.Missing/Get", "14"),
        ("shop.Catalog/Get", "0"),
    ] {
        let mut ask = call(method);
        ask.body = Some(message("x"));
        let response = client.ask(&ask).await;
        assert_eq!(response.status, 200, "{method}");
        let status = response
            .header("grpc-status")
            .or(response.trailer("grpc-status"));
        assert_eq!(status, Some(expected), "{method}: {response:?}");
        assert_eq!(
            response.header("content-type"),
            Some("application/grpc"),
            "{method}"
        );
    }
}
