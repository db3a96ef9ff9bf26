//! Retries: conditions, number of attempts, and selection of endpoints.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::backend::{BackendResponse, Backend, RecordedRequest, status};
use crate::support::gateway::Gateway;
use crate::support::manifests::*;
use crate::support::message::*;

/// Starts two backends that share a script, which responds according to the number of the request.
async fn pair(script: impl Fn(usize, &RecordedRequest) -> BackendResponse + Send + Sync + 'static) -> [Backend; 2] {
    let script = Arc::new(script);
    let turn = Arc::new(AtomicUsize::new(0));
    let (first, second) = ((script.clone(), turn.clone()), (script, turn));
    [
        Backend::http1_with("one", move |saw| {
            first.0(first.1.fetch_add(1, Ordering::SeqCst), saw)
        })
        .await,
        Backend::http1_with("two", move |saw| {
            second.0(second.1.fetch_add(1, Ordering::SeqCst), saw)
        })
        .await,
    ]
}

fn retrying(retry: &str) -> String {
    format!("{{retry: {{{retry}}}, backendRefs: [{{name: web, port: 80}}]}}")
}

fn manifests(backends: &[&Backend], rule: &str) -> String {
    [plain(), service("web", backends), route("web", &[rule])].concat()
}

/// Returns an address that refuses connections: its port was allocated by a socket that is closed again.
fn refused() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

#[tokio::test]
async fn a_listed_code_is_retried_on_another_endpoint() {
    let [one, two] = pair(|turn, _| if turn == 0 { status(503) } else { status(200) }).await;
    let rule = retrying("codes: [503], attempts: 1, backoff: 1ms");
    let gateway = Gateway::of(&manifests(&[&one, &two], &rule)).await;
    assert_eq!(gateway.ask(get("/")).await.status, 200);
    assert_eq!((one.count(), two.count()), (1, 1));
}

#[tokio::test]
async fn attempts_exclude_the_first_request_and_the_last_response_is_forwarded() {
    let backend = Backend::http1_with("web", |_| status(503).header("x-own", "yes")).await;
    let rule = retrying("codes: [503], attempts: 2, backoff: 1ms");
    let gateway = Gateway::of(&manifests(&[&backend], &rule)).await;
    let response = gateway.ask(get("/")).await;
    assert_eq!(
        (response.status, response.header("x-own")),
        (503, Some("yes"))
    );
    assert_eq!(backend.count(), 3);
}

#[tokio::test]
async fn an_unlisted_code_is_not_retried() {
    let backend = Backend::http1_with("web", |_| status(500)).await;
    let rule = retrying("codes: [503], attempts: 2, backoff: 1ms");
    let gateway = Gateway::of(&manifests(&[&backend], &rule)).await;
    assert_eq!(gateway.ask(get("/")).await.status, 500);
    assert_eq!(backend.count(), 1);
}

#[tokio::test]
async fn a_request_that_was_not_sent_is_always_retried_on_another_endpoint() {
    let backend = Backend::http1("web").await;
    let endpoints = service_at("web", "http", &[refused(), backend.address]);
    let gateway = Gateway::of(&[plain(), endpoints, route("web", &[&to("web")])].concat()).await;
    for number in 0..20 {
        let response = gateway.ask(post("/", format!("body {number}"))).await;
        assert_eq!(response.status, 200, "{response:?}");
    }
    assert_eq!(backend.saw(20).await.len(), 20);
}

#[tokio::test]
async fn unreachable_endpoints_are_503_with_a_reason() {
    let endpoints = service_at("web", "http", &[refused(), refused()]);
    let gateway = Gateway::of(&[plain(), endpoints, route("web", &[&to("web")])].concat()).await;
    let response = gateway.ask(get("/")).await;
    assert!(matches!(response.status, 502 | 503), "{response:?}");
    assert!(response.reason().is_some());
}

#[tokio::test]
async fn a_retry_resends_the_whole_body() {
    let [one, two] = pair(|turn, _| if turn == 0 { status(503) } else { status(200) }).await;
    let rule = retrying("codes: [503], attempts: 1, backoff: 1ms");
    let gateway = Gateway::of(&manifests(&[&one, &two], &rule)).await;
    let body = "x".repeat(30_000);
    assert_eq!(gateway.ask(post("/", body.clone())).await.status, 200);
    assert_eq!(one.only().await.text(), body);
    assert_eq!(two.only().await.text(), body);
}

#[tokio::test]
async fn a_body_that_is_too_large_to_buffer_is_not_retried() {
    let backend = Backend::http1_with("web", |_| status(503)).await;
    let rule = retrying("codes: [503], attempts: 3, backoff: 1ms");
    let setup = Gateway::setup(&manifests(&[&backend], &rule)).limit("replay-bytes", "1024");
    let gateway = setup.start().await;
    assert_eq!(
        gateway.ask(post("/", "x".repeat(200_000))).await.status,
        503
    );
    assert_eq!(backend.count(), 1);
    assert_eq!(gateway.ask(post("/", "x".repeat(1000))).await.status, 503);
    assert_eq!(backend.count(), 5);
}

#[tokio::test]
async fn a_connection_closed_before_the_response_is_a_502_without_a_retry_policy() {
    let backend = Backend::http1_with("web", |_| BackendResponse::Cut).await;
    let gateway = Gateway::of(&manifests(&[&backend], &to("web"))).await;
    let response = gateway.ask(post("/", "x")).await;
    assert_eq!(response.status, 502);
    assert!(response.reason().is_some());

    let [one, two] = pair(|turn, _| if turn == 0 { BackendResponse::Cut } else { status(200) }).await;
    let rule = retrying("attempts: 1, backoff: 1ms");
    let gateway = Gateway::of(&manifests(&[&one, &two], &rule)).await;
    assert_eq!(gateway.ask(get("/")).await.status, 200);
    assert_eq!((one.count(), two.count()), (1, 1));
}

#[tokio::test]
async fn no_request_is_lost_to_an_idle_connection_that_the_backend_closed() {
    // Announces keep-alive, but closes the connection.
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let backend = Backend::bytes("web", answer, crate::support::raw::AfterBytes::Close).await;
    let gateway = Gateway::of(&manifests(&[&backend], &to("web"))).await;
    for _ in 0..50 {
        assert_eq!(gateway.ask(get("/")).await.status, 200);
    }
}

#[tokio::test]
async fn a_retry_budget_limits_retries_to_a_share_of_the_requests() {
    let backend = Backend::http1_with("web", |_| status(503)).await;
    let policy = "---\napiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\nmetadata: {name: budget, namespace: default}\nspec:\n  \
        targetRefs: [{group: '', kind: Service, name: web}]\n  retryConstraint: {budget: {percent: 20, interval: 1h}, minRetryRate: {count: 1, interval: 1h}}\n";
    let rule = retrying("codes: [503], attempts: 1, backoff: 1ms");
    let gateway = Gateway::of(&(manifests(&[&backend], &rule) + policy)).await;
    for _ in 0..100 {
        assert_eq!(gateway.ask(get("/")).await.status, 503);
    }
    let tries = backend.count();
    assert!(
        tries > 100 && tries <= 100 + 25,
        "{tries} tries of 100 requests with a budget of 20 %"
    );
}
