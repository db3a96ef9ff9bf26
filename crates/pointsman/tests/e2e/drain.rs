//! The end: what runs is finished, what is new goes elsewhere.

use bytes::Bytes;

use crate::support::backend::{Answer, Backend, Gate};
use crate::support::gateway::Gateway;
use crate::support::http1::{Http1, closes};
use crate::support::http2::Http2;
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::{eventually, within};

fn manifests(backend: &Backend) -> String {
    [
        plain(),
        service("web", &[backend]),
        route("web", &[&to("web")]),
    ]
    .concat()
}

/// Waits until new connections are not served any more.
async fn refuses(gateway: &Gateway) {
    let at = gateway.at(8080);
    eventually("no new connection is taken", || async {
        Http1::try_connect(at).await.is_err()
    })
    .await;
}

#[tokio::test]
async fn a_request_that_runs_is_finished_and_its_connection_closed() {
    let gate = Gate::shut();
    let held = gate.clone();
    let backend = Backend::http1_with("web", move |_| Answer::Later(held.clone())).await;
    let mut gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client.send(get("/").bytes()).await;
    backend.saw(1).await;
    gateway.signal("TERM");
    refuses(&gateway).await;
    gate.open();
    let response = client.response().await;
    assert_eq!(response.status, 200);
    assert!(closes(&response), "{response:?}");
    client.ended().await;
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn streams_that_run_are_finished_before_an_http_2_connection_ends() {
    let gate = Gate::shut();
    let held = gate.clone();
    let backend = Backend::http1_with("web", move |_| Answer::Later(held.clone())).await;
    let mut gateway = Gateway::of(&manifests(&backend)).await;
    let client = Http2::connect(gateway.at(8080)).await;
    let (response, mut body) = client.open(&ask("POST", "/")).await;
    body.send_data(Bytes::from_static(b"x"), true)
        .expect("sent");
    backend.saw(1).await;
    gateway.signal("TERM");
    refuses(&gateway).await;
    gate.open();
    let response = within("a response", crate::support::http2::finish(response)).await;
    assert_eq!(response.expect("a response").status, 200);
    client.ended().await.expect("ended without an error");
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn an_idle_connection_does_not_keep_it_from_ending() {
    let backend = Backend::http1("web").await;
    let mut gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    assert_eq!(client.ask(&get("/")).await.status, 200);
    gateway.signal("TERM");
    client.ended().await;
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn what_runs_at_the_deadline_is_cut_and_told_by_the_exit_code() {
    let backend = Backend::http1_with("web", |_| Answer::Never).await;
    let setup = Gateway::setup(&manifests(&backend)).argument("--drain", "200ms");
    let mut gateway = setup.start().await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client.send(get("/").bytes()).await;
    backend.saw(1).await;
    gateway.signal("TERM");
    client.rest().await;
    assert_eq!(gateway.ended().await.code(), Some(1));
}
