//! Tests of limits on heads, bodies, streams and time.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use pointsman_proxy::Limits;

use crate::support::*;

async fn limited_proxy(limits: Limits) -> TestProxy {
    test_proxy(limits, EndpointProtocol::Http1, &[http1_endpoint().await])
}

#[tokio::test]
async fn oversized_heads_get_the_right_status() {
    let proxy = limited_proxy(Limits {
        header_bytes: 4096,
        headers: 20,
        uri_bytes: 1000,
        ..Limits::default()
    })
    .await;
    let mut sender = client(proxy.address).await;
    let response = fetch(&mut sender, get(&format!("/{}", "a".repeat(2000)))).await;
    assert_eq!(
        (response.status, response.header("x-pointsman-reason")),
        (414, Some("TargetTooLong"))
    );
    let mut large = get("/");
    large
        .headers_mut()
        .insert("x-large", "b".repeat(5000).parse().unwrap());
    let response = fetch(&mut sender, large).await;
    assert_eq!(
        (response.status, response.header("x-pointsman-reason")),
        (431, Some("HeadTooLarge"))
    );
    let mut many = get("/");
    for _ in 0..30 {
        many.headers_mut().append("x-many", "1".parse().unwrap());
    }
    let response = fetch(&mut sender, many).await;
    assert_eq!(
        (response.status, response.header("x-pointsman-reason")),
        (431, Some("TooManyFields"))
    );
    // Larger than the buffered maximum.
    let mut huge = get("/");
    huge.headers_mut()
        .insert("x-huge", "c".repeat(30_000).parse().unwrap());
    assert_eq!(fetch(&mut sender, huge).await.status, 431);
    assert_eq!(fetch(&mut sender, get("/")).await.status, 200);
}

#[tokio::test]
async fn oversized_bodies_are_rejected() {
    let proxy = limited_proxy(Limits {
        body_bytes: Some(1000),
        ..Limits::default()
    })
    .await;
    let mut sender = client(proxy.address).await;
    let mut announced = post("/");
    announced
        .headers_mut()
        .insert("content-length", "1001".parse().unwrap());
    let response = send_request(&mut sender, announced, &[b'x'; 1001], None)
        .await
        .unwrap();
    assert_eq!(
        (response.status, response.header("x-pointsman-reason")),
        (413, Some("BodyTooLarge"))
    );
    let response = send_request(&mut sender, post("/"), &[b'x'; 5000], None)
        .await
        .unwrap();
    assert_eq!(response.status, 413);
    let response = send_request(&mut sender, post("/"), &[b'x'; 1000], None)
        .await
        .unwrap();
    assert_eq!(response.status, 200);
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused_and_may_be_retried() {
    let endpoint = http2_endpoint(|_, respond| async move {
        // Never responds.
        std::future::pending::<()>().await;
        drop(respond);
    })
    .await;
    let limits = Limits {
        streams: 3,
        ..Limits::default()
    };
    let proxy = test_proxy(limits, EndpointProtocol::Http2, &[endpoint]);
    let mut raw = RawConnection::new(proxy.address).await;
    for stream in [1, 3, 5, 7] {
        raw.frame(1, 5, stream, &request_block(&[])).await;
    }
    // REFUSED_STREAM
    assert_eq!(raw.outcome(7).await, "reset 7");
}

#[tokio::test]
async fn connections_without_requests_are_closed() {
    let short = Duration::from_millis(300);
    let proxy = limited_proxy(Limits {
        head_time: short,
        ..Limits::default()
    })
    .await;
    // An incomplete preface; no request; no second request.
    let mut raw = RawConnection::of(tokio::net::TcpStream::connect(proxy.address).await.unwrap());
    raw.send(b"PRI * HTTP/2.0\r\n").await;
    within_deadline("the end", async {
        while raw.next_byte().await.is_some() {}
    })
    .await;
    let mut raw = RawConnection::new(proxy.address).await;
    assert_eq!(raw.goaway().await, Some(0));
    assert!(raw.next().await.is_none());
    let proxy = limited_proxy(Limits {
        idle_time: short,
        ..Limits::default()
    })
    .await;
    let mut raw = RawConnection::new(proxy.address).await;
    raw.frame(1, 5, 1, &request_block(&[])).await;
    assert_eq!(raw.outcome(1).await, "200");
    assert_eq!(raw.goaway().await, Some(0));
    assert!(raw.next().await.is_none());
}

#[tokio::test]
async fn a_stalled_body_is_aborted() {
    let proxy = limited_proxy(Limits {
        stall_time: Duration::from_millis(300),
        ..Limits::default()
    })
    .await;
    let mut sender = client(proxy.address).await;
    let mut request = post("/");
    request
        .headers_mut()
        .insert("content-length", "10".parse().unwrap());
    let (response, mut sink) = sender.send_request(request, false).unwrap();
    sink.send_data(Bytes::from_static(b"five!"), false).unwrap();
    let response = within_deadline("a response", response).await.unwrap();
    assert_eq!(response.status(), 408);
}

#[tokio::test]
async fn a_slow_reader_occupies_no_more_than_its_window() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    // Number of bytes that the endpoint could send.
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let endpoint = http2_endpoint(move |_, mut respond| {
        let counter = counter.clone();
        async move {
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            let piece = [b'x'; 10_000];
            for _ in 0..300 {
                if send_all(&mut stream, &piece).await.is_err() {
                    return;
                }
                counter.fetch_add(piece.len(), Ordering::Relaxed);
            }
            let _ = stream.send_data(Bytes::new(), true);
        }
    })
    .await;
    let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let mut sender = client(proxy.address).await;
    let (response, _) = sender.send_request(get("/"), true).unwrap();
    let mut slow = within_deadline("a head", response)
        .await
        .unwrap()
        .into_body();
    // Meanwhile, other requests complete over the same connection to the endpoint.
    let mut other = client(proxy.address).await;
    for _ in 0..2 {
        let whole = fetch(&mut other, get("/")).await;
        assert_eq!(whole.body.len(), 3_000_000);
    }
    let held = sent.load(Ordering::Relaxed) - 6_000_000;
    // The client's window, both buffers of the proxy, and what the endpoint has in flight.
    assert!(held <= 64 * 1024 * 4 + 20_000, "{held}");
    let (body, _) = within_deadline("the rest", drain(&mut slow)).await.unwrap();
    assert_eq!(body.len(), 3_000_000);
}

#[tokio::test]
async fn a_stream_reset_by_the_client_is_reset_at_the_endpoint() {
    use tokio::sync::mpsc::unbounded_channel;
    for started in [false, true] {
        let (events, mut received_events) = unbounded_channel();
        let endpoint = http2_endpoint(move |_, mut respond| {
            let events = events.clone();
            async move {
                events.send("received").unwrap();
                if !started {
                    let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                } else {
                    let mut stream = respond.send_response(Response::new(()), false).unwrap();
                    let _ = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
                }
                events.send("reset").unwrap();
            }
        })
        .await;
        let proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
        let mut sender = client(proxy.address).await;
        let (response, mut sink) = sender.send_request(get("/"), false).unwrap();
        assert_eq!(
            within_deadline("the request", received_events.recv()).await,
            Some("received")
        );
        if started {
            within_deadline("a head", response).await.unwrap();
        }
        sink.send_reset(h2::Reason::CANCEL);
        assert_eq!(
            within_deadline("the reset", received_events.recv()).await,
            Some("reset")
        );
    }
}

#[tokio::test]
async fn a_drain_finishes_streams_and_closes_idle_connections() {
    let (go, wait) = tokio::sync::watch::channel(false);
    let endpoint = http2_endpoint(move |_, mut respond| {
        let mut wait = wait.clone();
        async move {
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            let _ = wait.wait_for(|go| *go).await;
            let _ = stream.send_data(Bytes::from_static(b"done"), true);
        }
    })
    .await;
    let mut proxy = test_proxy(Limits::default(), EndpointProtocol::Http2, &[endpoint]);
    let _idle = client(proxy.address).await;
    let mut sender = client(proxy.address).await;
    let (response, _) = sender.send_request(get("/"), true).unwrap();
    let response = within_deadline("a head", response).await.unwrap();
    let draining = tokio::task::spawn_blocking(move || proxy.proxy.drain(PATIENCE));
    // The client gets a GOAWAY, and its streams complete.
    within_deadline("GOAWAY", async {
        while std::future::poll_fn(|cx| sender.poll_ready(cx))
            .await
            .is_ok()
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    go.send(true).unwrap();
    assert_eq!(
        within_deadline("a body", read_response(response))
            .await
            .unwrap()
            .text(),
        "done"
    );
    assert_eq!(within_deadline("the end", draining).await.unwrap(), 0);
}

#[tokio::test]
async fn an_idle_connection_gets_a_goaway_when_others_need_room() {
    let proxy = limited_proxy(Limits {
        connections: Some(1),
        ..Limits::default()
    })
    .await;
    let mut idle = RawConnection::new(proxy.address).await;
    idle.frame(1, 5, 1, &request_block(&[])).await;
    // The connection is not idle until the response has ended.
    while let Some(frame) = idle.next().await {
        if frame.stream == 1 && frame.flags & 1 == 1 {
            break;
        }
    }
    let mut sender = client(proxy.address).await;
    assert_eq!(fetch(&mut sender, get("/")).await.status, 200);
    assert_eq!(idle.goaway().await, Some(0), "NO_ERROR");
    let mut third = client(proxy.address).await;
    assert_eq!(fetch(&mut third, get("/")).await.status, 200);
}
