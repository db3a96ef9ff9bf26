//! Tests of endpoints that refuse streams, send GOAWAYs, close early or never respond.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::Response;
use pointsman_proxy::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::*;

#[tokio::test]
async fn a_refused_stream_is_retried() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let endpoint = http2_endpoint(move |request, mut respond| {
        let turn = counter.fetch_add(1, Ordering::Relaxed);
        async move {
            match turn {
                0 => respond.send_reset(Reason::REFUSED_STREAM),
                _ => echo(request, respond).await,
            }
        }
    })
    .await;
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    // The endpoint has not processed the request, so even a POST may be retried.
    let response = send_request(&mut sender, post("/"), b"body", None)
        .await
        .unwrap();
    assert_eq!(response.status, 200);
    assert!(response.text().ends_with("body"));
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_stream_refused_by_a_goaway_is_retried_on_another_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        // The first connection sends a GOAWAY at its first request, which it has not processed.
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&frame(4, 0, 0, b"")).await.unwrap();
        let mut bytes = Vec::new();
        while !has_headers(&bytes) {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
        }
        stream.write_all(&frame(7, 0, 0, &[0; 8])).await.unwrap();
        let (second, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(second).await.unwrap();
        while let Some(Ok((request, respond))) = connection.accept().await {
            tokio::spawn(echo(request, respond));
        }
    });
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let response = send_request(&mut sender, post("/"), b"body", None)
        .await
        .unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    task.abort();
}

/// Returns whether the bytes of a client contain a HEADERS frame.
fn has_headers(bytes: &[u8]) -> bool {
    let mut at = 24;
    while let Some(head) = bytes.get(at..at + 9) {
        if head[3] == 1 {
            return true;
        }
        at += 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    }
    false
}

#[tokio::test]
async fn streams_before_a_goaway_complete() {
    let (go, wait) = tokio::sync::watch::channel(false);
    let connections = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let wait = wait.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let mut wait = wait.clone();
                    tokio::spawn(async move {
                        let mut stream = respond.send_response(Response::new(()), false).unwrap();
                        let _ = wait.wait_for(|go| *go).await;
                        let _ = stream.send_data(Bytes::from_static(b"done"), true);
                    });
                    connection.graceful_shutdown();
                }
            });
        }
    });
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let mut streams = Vec::new();
    // Each connection sends a GOAWAY after its first stream, so the next stream uses another connection, at once or after a retry.
    for _ in 0..3 {
        let (response, _) = sender.send_request(get("/"), true).unwrap();
        streams.push(within_deadline("a head", response).await.unwrap());
    }
    go.send(true).unwrap();
    for response in streams {
        assert_eq!(
            within_deadline("a body", read_response(response))
                .await
                .unwrap()
                .text(),
            "done"
        );
    }
    assert!(connections.load(Ordering::Relaxed) <= 3);
}

#[tokio::test]
async fn an_endpoint_that_closes_early_is_a_502_before_and_a_reset_after_the_head() {
    let (go, wait) = tokio::sync::watch::channel(false);
    let endpoint = http2_endpoint(move |request, mut respond| {
        let mut wait = wait.clone();
        async move {
            match request.uri().path() {
                "/before" => respond.send_reset(Reason::INTERNAL_ERROR),
                _ => {
                    let mut stream = respond.send_response(Response::new(()), false).unwrap();
                    let _ = wait.wait_for(|go| *go).await;
                    stream.send_reset(Reason::INTERNAL_ERROR);
                }
            }
        }
    })
    .await;
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let response = fetch(&mut sender, get("/before")).await;
    assert_eq!(
        (response.status, response.header("x-pointsman-reason")),
        (502, Some("StreamReset"))
    );
    let (response, _) = sender.send_request(get("/after"), true).unwrap();
    let response = within_deadline("a head", response).await.unwrap();
    go.send(true).unwrap();
    let error = within_deadline("the end", read_response(response))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    // The same from HTTP/1: a body that is shorter than its length.
    let short = canned_endpoint(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive!").await;
    let proxy = self::test_proxy(Limits::default(), EndpointProtocol::Http1, &[short]);
    let mut sender = client(proxy.address).await;
    let error = try_fetch(&mut sender, get("/")).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
}

#[tokio::test]
async fn an_endpoint_without_http2_support_is_detected() {
    // An endpoint that sends nothing, one that speaks HTTP/1, and one that refuses connections.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hurried = Limits {
        connect_time: Duration::from_millis(500),
        ..Limits::default()
    };
    let proxy = self::test_proxy(
        hurried,
        EndpointProtocol::Http2,
        &[silent.local_addr().unwrap()],
    );
    let mut sender = client(proxy.address).await;
    let response = fetch(&mut sender, get("/")).await;
    assert_eq!(
        (response.status, response.header("x-pointsman-reason")),
        (503, Some("ConnectTimeout"))
    );

    let other = canned_endpoint(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let proxy = self::test_proxy(Limits::default(), EndpointProtocol::Http2, &[other]);
    let mut sender = client(proxy.address).await;
    let response = fetch(&mut sender, get("/")).await;
    assert_eq!(
        (response.status, response.header("x-pointsman-reason")),
        (502, Some("ProtocolMismatch"))
    );

    let proxy = self::test_proxy(
        Limits::default(),
        EndpointProtocol::Http2,
        &[unused_address()],
    );
    let mut sender = client(proxy.address).await;
    let response = fetch(&mut sender, get("/")).await;
    assert_eq!(
        (response.status, response.header("x-pointsman-reason")),
        (503, Some("ConnectFailed"))
    );
}

#[tokio::test]
async fn streams_share_a_connection_up_to_the_endpoints_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let (go, wait) = tokio::sync::watch::channel(false);
    let (connections, streams) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (connections.clone(), streams.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counts.0.fetch_add(1, Ordering::Relaxed);
            let (wait, streams) = (wait.clone(), counts.1.clone());
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                let mut connection: h2::server::Connection<_, Bytes> = builder
                    .max_concurrent_streams(2)
                    .handshake(stream)
                    .await
                    .unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    streams.fetch_add(1, Ordering::Relaxed);
                    let mut wait = wait.clone();
                    tokio::spawn(async move {
                        let _ = wait.wait_for(|go| *go).await;
                        let _ = respond.send_response(Response::new(()), true);
                    });
                }
            });
        }
    });
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let requests: Vec<_> = (0..5)
        .map(|_| sender.send_request(get("/"), true).unwrap().0)
        .collect();
    within_deadline("all streams", async {
        while streams.load(Ordering::Relaxed) < 5 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(connections.load(Ordering::Relaxed), 3);
    go.send(true).unwrap();
    for response in requests {
        assert_eq!(
            within_deadline("a response", response)
                .await
                .unwrap()
                .status(),
            200
        );
    }
}

#[tokio::test]
async fn an_early_response_is_kept_if_the_body_is_refused() {
    let endpoint = http2_endpoint(|_, mut respond| async move {
        // The endpoint does not read the body: the stream ends with NO_ERROR after the response.
        let response = Response::builder().status(403).body(()).unwrap();
        let _ = respond.send_response(response, true);
    })
    .await;
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let response = send_request(&mut sender, post("/"), &vec![b'x'; 1_000_000], None).await;
    assert_eq!(response.unwrap().status, 403);
}
