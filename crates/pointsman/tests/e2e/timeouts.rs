//! Timeouts of a rule. No test measures time: one side never responds, so only the timeout can end the request.

use crate::support::backend::{BackendResponse, Backend, status};
use crate::support::gateway::Gateway;
use crate::support::http2::{Http2, call};
use crate::support::manifests::*;
use crate::support::message::*;

fn rule(fields: &str) -> String {
    format!("{{{fields}, backendRefs: [{{name: web, port: 80}}]}}")
}

async fn gateway(backend: &Backend, rule: &str) -> Gateway {
    Gateway::of(&[plain(), service("web", &[backend]), route("web", &[rule])].concat()).await
}

#[tokio::test]
async fn a_request_timeout_is_504() {
    let backend = Backend::http1_with("web", |_| BackendResponse::Never).await;
    let gateway = gateway(&backend, &rule("timeouts: {request: 100ms}")).await;
    for response in [
        gateway.ask(get("/")).await,
        gateway.ask_http2(get("/")).await,
    ] {
        assert_eq!(response.status, 504);
        assert!(response.reason().is_some());
    }
}

#[tokio::test]
async fn the_backend_request_timeout_applies_to_each_attempt() {
    let backend = Backend::http1_with("web", |_| BackendResponse::Never).await;
    let fields = "timeouts: {request: 30s, backendRequest: 1s}, retry: {attempts: 2, codes: [504], backoff: 1ms}";
    let gateway = gateway(&backend, &rule(fields)).await;
    assert_eq!(gateway.ask(get("/")).await.status, 504);
    assert_eq!(backend.count(), 3);
}

#[tokio::test]
async fn the_request_timeout_includes_retries() {
    let backend = Backend::http1_with("web", |_| status(503)).await;
    let fields =
        "timeouts: {request: 1s}, retry: {attempts: 1000000, codes: [503], backoff: 100ms}";
    let gateway = gateway(&backend, &rule(fields)).await;
    let response = gateway.ask(get("/")).await;
    assert!(matches!(response.status, 503 | 504), "{response:?}");
    assert!(backend.count() < 100, "{}", backend.count());
}

#[tokio::test]
async fn a_timeout_of_zero_disables_it() {
    let backend = Backend::http1("web").await;
    let gateway = gateway(
        &backend,
        &rule("timeouts: {request: 0s, backendRequest: 0s}"),
    )
    .await;
    assert_eq!(gateway.ask(get("/")).await.status, 200);
}

#[tokio::test]
async fn a_timeout_of_a_grpc_call_is_a_grpc_status() {
    let backend = Backend::http2_with("web", |_| BackendResponse::Never).await;
    let manifests = [
        plain(),
        service_as("web", "kubernetes.io/h2c", &[&backend]),
        route("web", &[&rule("timeouts: {request: 100ms}")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let mut ask = call("shop.Catalog/Get");
    ask.body = Some(crate::support::http2::message("x"));
    let response = Http2::connect(gateway.at(8080)).await.ask(&ask).await;
    assert_eq!(response.status, 200);
    // DEADLINE_EXCEEDED, or UNAVAILABLE according to the gRPC mapping of 504.
    let status = response
        .header("grpc-status")
        .or(response.trailer("grpc-status"));
    assert!(matches!(status, Some("4" | "14")), "{response:?}");
}
