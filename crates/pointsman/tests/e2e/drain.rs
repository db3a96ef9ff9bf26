//! Shutdown: active requests are completed, and new connections are refused.

use bytes::Bytes;

use crate::support::backend::{BackendResponse, Backend, Gate};
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

/// Waits until new connections are no longer served.
async fn refuses(gateway: &Gateway) {
    let at = gateway.at(8080);
    eventually("no new connection is taken", || async {
        Http1::try_connect(at).await.is_err()
    })
    .await;
}

#[tokio::test]
async fn an_active_request_is_completed_and_its_connection_closed() {
    let gate = Gate::shut();
    let held = gate.clone();
    let backend = Backend::http1_with("web", move |_| BackendResponse::Later(held.clone())).await;
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
async fn a_connection_whose_response_promised_to_keep_it_takes_another_request() {
    const LENGTH: usize = 8 << 20;
    let backend = Backend::http1_with("web", |_| BackendResponse::Whole {
        status: 200,
        headers: Vec::new(),
        body: Bytes::from(vec![b'x'; LENGTH]),
        trailers: Vec::new(),
    })
    .await;
    let mut gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client.send(get("/").bytes()).await;
    let head = client.head().await;
    assert!(head.status == 200 && !closes(&head), "{head:?}");
    gateway.signal("TERM");
    refuses(&gateway).await;
    // The body is longer than all buffers, so the response ends after the signal.
    client.exactly(LENGTH).await.expect("the body");
    let response = client.ask(&get("/")).await;
    assert_eq!(response.status, 200);
    assert!(closes(&response));
    client.ended().await;
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn active_streams_are_completed_before_an_http_2_connection_closes() {
    let gate = Gate::shut();
    let held = gate.clone();
    let backend = Backend::http1_with("web", move |_| BackendResponse::Later(held.clone())).await;
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
async fn an_idle_connection_does_not_delay_the_shutdown() {
    let backend = Backend::http1("web").await;
    let mut gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    assert_eq!(client.ask(&get("/")).await.status, 200);
    gateway.signal("TERM");
    client.ended().await;
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn an_idle_connection_does_not_count_as_closed_even_without_a_drain_period() {
    let backend = Backend::http1("web").await;
    let setup = Gateway::setup(&manifests(&backend)).argument("--drain", "0s");
    let mut gateway = setup.start().await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    assert_eq!(client.ask(&get("/")).await.status, 200);
    gateway.signal("TERM");
    client.ended().await;
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn active_requests_are_closed_at_the_deadline_and_the_exit_code_reports_it() {
    let backend = Backend::http1_with("web", |_| BackendResponse::Never).await;
    let setup = Gateway::setup(&manifests(&backend)).argument("--drain", "200ms");
    let mut gateway = setup.start().await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client.send(get("/").bytes()).await;
    backend.saw(1).await;
    gateway.signal("TERM");
    client.rest().await;
    assert_eq!(gateway.ended().await.code(), Some(1));
}

#[tokio::test]
async fn a_connection_without_a_complete_request_does_not_delay_the_shutdown() {
    use crate::support::certificates::Authority;
    let backend = Backend::http1("web").await;
    let https =
        "{name: https, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}";
    let manifests = [
        gateway(&["{name: http, port: 8080, protocol: HTTP}", https]),
        Authority::new().issue(&["example.com"]).secret("default/cert"),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
    ]
    .concat();
    // The start of a request head, of the HTTP/2 preface, of HTTP/2 frames, and of a ClientHello.
    let frame = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0";
    for (port, begun) in [
        (8080, "GET / HTTP/1.1\r\nHost:"),
        (8080, "PRI * HTTP/2.0\r\n"),
        (8080, frame),
        (8443, "\u{16}\u{3}\u{1}"),
    ] {
        let setup = Gateway::setup(&manifests).limit("head-time", "10m");
        let mut gateway = setup.argument("--drain", "10m").start().await;
        let mut client = Http1::connect(gateway.at(port)).await;
        client.send(begun).await;
        // A later request was served, so the partial input has been read.
        assert_eq!(gateway.ask(get("/")).await.status, 200);
        gateway.signal("TERM");
        assert_eq!(gateway.ended().await.code(), Some(0), "{begun:?}");
    }
}

#[tokio::test]
async fn requests_closed_at_the_deadline_are_in_the_access_log() {
    let http = Backend::http1_with("web", |_| BackendResponse::Never).await;
    let tcp = Backend::tcp("echo").await;
    let manifests = [
        gateway(&[
            "{name: http, port: 8080, protocol: HTTP}",
            "{name: tcp, port: 9000, protocol: TCP}",
        ]),
        service("web", &[&http]),
        service("echo", &[&tcp]),
        route("web", &[&to("web")]),
        route_of("TCPRoute", "echo", "", &[&to("echo")]),
    ];
    let setup = Gateway::setup(&manifests.concat()).argument("--drain", "100ms");
    let mut gateway = setup.argument("--access-log", "text").start().await;
    let mut old = Http1::connect(gateway.at(8080)).await;
    old.send(get("/old").bytes()).await;
    let new = Http2::connect(gateway.at(8080)).await;
    let (_response, _body) = new.open(&ask("POST", "/new")).await;
    let mut stream = Http1::connect(gateway.at(9000)).await;
    assert_eq!(stream.exactly(5).await.expect("a greeting"), b"echo\n");
    http.open(2).await;
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await.code(), Some(1));
    let log = gateway.log();
    for what in [
        "GET example.com /old",
        "POST example.com /new",
        "edge/tcp TCP",
    ] {
        let line = log.lines().find(|line| line.contains(what));
        let line = line.unwrap_or_else(|| panic!("{what}: {log}"));
        assert!(line.contains("reason=Drained"), "{line}");
    }
}
