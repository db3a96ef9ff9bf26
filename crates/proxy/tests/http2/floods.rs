//! Tests of frame floods: the connection is closed with ENHANCE_YOUR_CALM, and the reason is counted.

use pointsman_proxy::Limits;

use crate::support::*;

const CALM: Option<u8> = Some(11);

async fn proxy_with_backend() -> TestProxy {
    let limits = Limits {
        http2_control_frames: 50,
        http2_resets: 10,
        ..Limits::default()
    };
    test_proxy(limits, EndpointProtocol::Http1, &[http1_endpoint().await])
}

/// Waits until a refused connection is counted with this reason.
async fn wait_for_refusal(proxy: &TestProxy, reason: &str) {
    let wanted = format!("reason=\"{reason}\"");
    within_deadline(reason, async {
        while !proxy.proxy.metrics().render().contains(&wanted) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn control_frames_beyond_the_limit_close_the_connection() {
    let proxy = proxy_with_backend().await;
    let floods = [
        ("PING", frame(6, 0, 0, b"12345678")),
        ("SETTINGS", frame(4, 0, 0, b"")),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 3, 1])),
        ("WINDOW_UPDATE", frame(8, 0, 0, &[0, 0, 0, 1])),
        ("unknown", frame(99, 0, 0, b"x")),
    ];
    for (what, one) in floods {
        let mut raw = RawConnection::new(proxy.address).await;
        raw.send(&one.repeat(60)).await;
        assert_eq!(raw.goaway().await, CALM, "{what}");
    }
    wait_for_refusal(&proxy, "Http2ControlFrames").await;
}

#[tokio::test]
async fn empty_frames_beyond_the_limit_close_the_connection() {
    let proxy = proxy_with_backend().await;
    let mut raw = RawConnection::new(proxy.address).await;
    raw.frame(1, 4, 1, &request_block(&[])).await;
    raw.send(&frame(0, 0, 1, b"").repeat(80)).await;
    assert_eq!(raw.goaway().await, CALM);
}

#[tokio::test]
async fn a_head_in_endless_continuation_frames_closes_the_connection() {
    let proxy = proxy_with_backend().await;
    for piece in [b"".to_vec(), block(&[("x-a", "b")])] {
        let mut raw = RawConnection::new(proxy.address).await;
        raw.frame(1, 1, 1, &request_block(&[])).await;
        raw.send(&frame(9, 0, 1, &piece).repeat(400)).await;
        assert_eq!(raw.goaway().await, CALM);
    }
}

#[tokio::test]
async fn small_messages_to_a_slow_reader_are_buffered_up_to_the_window() {
    // Like gRPC messages, each in a DATA frame of its own; the endpoint reads none of them.
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = test_proxy(
        Limits::default(),
        EndpointProtocol::Http1,
        &[deaf.local_addr().unwrap()],
    );
    let mut raw = RawConnection::new(proxy.address).await;
    raw.frame(1, 4, 1, &request_block(&[])).await;
    raw.send(&frame(0, 0, 1, b"x").repeat(65_000)).await;
    raw.frame(1, 5, 3, &request_block(&[("expect", "nonsense")]))
        .await;
    assert_eq!(raw.outcome(3).await, "417", "the connection is open");
}

#[tokio::test]
async fn streams_that_are_reset_at_once_close_the_connection() {
    let proxy = proxy_with_backend().await;
    let mut raw = RawConnection::new(proxy.address).await;
    let mut bytes = Vec::new();
    for stream in 0..20 {
        bytes.extend(frame(1, 5, 1 + 2 * stream, &request_block(&[])));
        bytes.extend(frame(3, 0, 1 + 2 * stream, &[0, 0, 0, 8]));
    }
    raw.send(&bytes).await;
    assert_eq!(raw.goaway().await, CALM);
    wait_for_refusal(&proxy, "Http2Resets").await;
}

#[tokio::test]
async fn resets_in_proportion_to_completed_requests_are_allowed() {
    let proxy = proxy_with_backend().await;
    let mut raw = RawConnection::new(proxy.address).await;
    for at in 0..30 {
        let (served, reset) = (1 + 4 * at, 3 + 4 * at);
        raw.frame(1, 5, served, &request_block(&[])).await;
        assert_eq!(raw.outcome(served).await, "200");
        raw.frame(1, 4, reset, &request_block(&[])).await;
        raw.frame(3, 0, reset, &[0, 0, 0, 8]).await;
    }
    raw.frame(1, 5, 1001, &request_block(&[])).await;
    assert_eq!(raw.outcome(1001).await, "200");
}

#[tokio::test]
async fn window_updates_in_proportion_to_a_response_are_allowed() {
    // The client updates both windows for each frame of a long response, byte by byte.
    let endpoint = http2_endpoint(|_, mut respond| async move {
        let mut stream = respond
            .send_response(http::Response::new(()), false)
            .unwrap();
        for _ in 0..300 {
            if send_all(&mut stream, b"x").await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let _ = stream.send_data(bytes::Bytes::new(), true);
    })
    .await;
    let limits = Limits {
        http2_control_frames: 50,
        ..Limits::default()
    };
    let proxy = test_proxy(limits, EndpointProtocol::Http2, &[endpoint]);
    let mut raw = RawConnection::new(proxy.address).await;
    raw.frame(1, 5, 1, &request_block(&[])).await;
    loop {
        let frame = raw.next().await.expect("the connection is open");
        assert_ne!(frame.kind, 7, "an unexpected GOAWAY");
        if frame.kind == 0 {
            if frame.flags & 1 == 1 {
                break;
            }
            for stream in [0, 1] {
                raw.frame(8, 0, stream, &(frame.payload.len() as u32).to_be_bytes())
                    .await;
            }
        }
    }
}
