//! Backends that accept a request and never respond.

use std::time::Duration;

use pointsman_test_support::link::Link;

use crate::support::backend::{Backend, BackendResponse, status};
use crate::support::gateway::{Gateway, Setup};
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::namespace::{listener, unacknowledged};
use crate::support::{eventually, within};

/// Consecutive failures after which an endpoint is ejected.
const FAILURES: usize = 5;

/// Longer than the kernel needs to declare a host unreachable: 20 seconds without data, then probes for another 20 seconds.
const DETECTED: Duration = Duration::from_secs(180);

fn setup(backend: &Backend) -> Setup {
    let manifests = [
        plain(),
        service("web", &[backend]),
        route("web", &[&to("web")]),
    ];
    Gateway::setup(&manifests.concat()).environment("RUST_LOG", "info")
}

async fn ejected(gateway: &Gateway) {
    eventually("the endpoint is ejected", || async {
        gateway.log().contains("ejected after consecutive failures")
    })
    .await;
}

#[tokio::test]
async fn an_unreachable_host_is_504_and_its_endpoint_counts_as_failed() {
    let Some(host) = Link::new() else { return };
    let backend = Backend::http1_on("web", listener(&host), |saw| match &*saw.target {
        "/first" => status(200),
        _ => BackendResponse::Never,
    });
    // `stall-time` also limits the time without an acknowledgement, so it has to be longer.
    let gateway = setup(&backend).limit("stall-time", "10s").start().await;
    // One of the requests below uses a connection that has carried a request before.
    assert_eq!(gateway.ask(get("/first")).await.status, 200);
    let mut clients = Vec::new();
    for _ in 0..FAILURES {
        let mut client = Http1::connect(gateway.at(8080)).await;
        client.send(get("/").bytes()).await;
        clients.push(client);
    }
    backend.saw(FAILURES + 1).await;
    eventually("all is acknowledged", || async {
        unacknowledged(&host) == 0
    })
    .await;
    host.cut();
    for client in &mut clients {
        let response = tokio::time::timeout(DETECTED, client.try_response()).await;
        let response = response.expect("an answer in time").expect("a response");
        assert_eq!(
            (response.status, response.reason()),
            (504, Some("HostUnreachable"))
        );
    }
    assert_eq!(backend.connections(), FAILURES);
    ejected(&gateway).await;
}

#[tokio::test]
async fn backend_head_time_limits_the_wait_for_a_response_head() {
    let backend = Backend::http1_with("web", |_| BackendResponse::Never).await;
    let gateway = setup(&backend)
        .limit("backend-head-time", "50ms")
        .start()
        .await;
    for number in 0..FAILURES {
        let response = match number % 2 {
            0 => gateway.ask(get("/")).await,
            _ => gateway.ask_http2(post("/", "body")).await,
        };
        assert_eq!(
            (response.status, response.reason()),
            (504, Some("BackendHeadTimeout"))
        );
    }
    ejected(&gateway).await;
    let log = gateway.log();
    assert!(log.contains("limit=\"backend-head-time\""), "{log}");
    let metrics = gateway.ask_admin("/metrics").await.text();
    let timeouts = "pointsman_backend_timeouts_total";
    let line = metrics.lines().find(|line| line.starts_with(timeouts));
    assert!(
        line.is_some_and(|line| line.ends_with(&format!(" {FAILURES}"))),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_head_timeout_is_retried_if_the_route_allows_retries() {
    let silent = Backend::http1_with("silent", |_| BackendResponse::Never).await;
    let prompt = Backend::http1("prompt").await;
    let rule = "{retry: {attempts: 1}, backendRefs: [{name: web, port: 80}]}";
    let manifests = [
        plain(),
        service("web", &[&silent, &prompt]),
        route("web", &[rule]),
    ];
    let gateway = Gateway::setup(&manifests.concat())
        .limit("backend-head-time", "1s")
        .start()
        .await;
    within("the silent one is chosen", async {
        while silent.count() == 0 {
            let response = gateway.ask(get("/")).await;
            assert_eq!(response.backend(), Some("prompt"));
        }
    })
    .await;
}

#[tokio::test]
async fn backend_head_time_starts_once_the_whole_request_is_sent() {
    let backend = Backend::http1("web").await;
    let time = Duration::from_millis(200);
    let gateway = setup(&backend)
        .limit("backend-head-time", "200ms")
        .start()
        .await;
    // On a slow machine, a response may take longer than that.
    eventually("a slow upload is answered", || async {
        let mut client = Http1::connect(gateway.at(8080)).await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf")
            .await;
        tokio::time::sleep(time * 2).await;
        client.send("half").await;
        client.response().await.status == 200
    })
    .await;
}
