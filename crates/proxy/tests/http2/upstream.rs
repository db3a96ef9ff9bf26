//! Endpoints that refuse, go away, break off or never say a word.

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
async fn a_stream_that_is_refused_is_sent_again() {
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
    // Not even a POST was looked at.
    let answer = send_request(&mut sender, post("/"), b"body", None)
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
    assert!(answer.text().ends_with("body"));
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_stream_beyond_a_goaway_is_sent_again_on_another_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        // The first connection goes away at its first request, and says that it has looked at none.
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
    let answer = send_request(&mut sender, post("/"), b"body", None)
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    task.abort();
}

/// Whether a HEADERS frame is among what a client has sent.
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
async fn streams_that_a_goaway_leaves_alone_come_to_their_end() {
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
    // Each connection goes away after its first stream; the next stream is on another one, if it was heard in time, or else sent again there.
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
async fn an_endpoint_that_breaks_off_is_a_502_before_and_a_reset_after_the_head() {
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
    let answer = fetch(&mut sender, get("/before")).await;
    assert_eq!(
        (answer.status, answer.header("x-pointsman-reason")),
        (502, Some("StreamReset"))
    );
    let (response, _) = sender.send_request(get("/after"), true).unwrap();
    let response = within_deadline("a head", response).await.unwrap();
    go.send(true).unwrap();
    let error = within_deadline("the end", read_response(response))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    // The same from HTTP/1: a body that is shorter than it was said to be.
    let short = canned_endpoint(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive!").await;
    let proxy = self::test_proxy(Limits::default(), EndpointProtocol::Http1, &[short]);
    let mut sender = client(proxy.address).await;
    let error = try_fetch(&mut sender, get("/")).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
}

#[tokio::test]
async fn an_endpoint_that_does_not_speak_http2_is_found_out() {
    // One that never says a word, one that speaks HTTP/1, one that is not there.
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
    let answer = fetch(&mut sender, get("/")).await;
    assert_eq!(
        (answer.status, answer.header("x-pointsman-reason")),
        (503, Some("ConnectTimeout"))
    );

    let other = canned_endpoint(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let proxy = self::test_proxy(Limits::default(), EndpointProtocol::Http2, &[other]);
    let mut sender = client(proxy.address).await;
    let answer = fetch(&mut sender, get("/")).await;
    assert_eq!(
        (answer.status, answer.header("x-pointsman-reason")),
        (502, Some("ProtocolMismatch"))
    );

    let proxy = self::test_proxy(
        Limits::default(),
        EndpointProtocol::Http2,
        &[unused_address()],
    );
    let mut sender = client(proxy.address).await;
    let answer = fetch(&mut sender, get("/")).await;
    assert_eq!(
        (answer.status, answer.header("x-pointsman-reason")),
        (503, Some("ConnectFailed"))
    );
}

#[tokio::test]
async fn as_many_streams_as_the_endpoint_takes_share_a_connection() {
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
    let asked: Vec<_> = (0..5)
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
    for response in asked {
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
async fn a_response_that_came_early_stands_though_the_body_is_refused() {
    let endpoint = http2_endpoint(|_, mut respond| async move {
        // The body is not read: the stream ends with NO_ERROR once the response is out.
        let response = Response::builder().status(403).body(()).unwrap();
        let _ = respond.send_response(response, true);
    })
    .await;
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let answer = send_request(&mut sender, post("/"), &vec![b'x'; 1_000_000], None).await;
    assert_eq!(answer.unwrap().status, 403);
}
