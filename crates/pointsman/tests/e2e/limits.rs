//! Limits. Time limits are set so short that only they can end the connection.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::backend::{BackendResponse, Backend, Gate, status};
use crate::support::gateway::{Gateway, Setup};
use crate::support::http1::Http1;
use crate::support::http2::Http2;
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::raw::AfterBytes;
use crate::support::{eventually, within};

fn setup(backend: &Backend) -> Setup {
    Gateway::setup(
        &[
            plain(),
            service("web", &[backend]),
            route("web", &[&to("web")]),
        ]
        .concat(),
    )
}

#[tokio::test]
async fn limits_of_heads_targets_and_bodies_have_their_own_statuses() {
    let backend = Backend::http1("web").await;
    let gateway = setup(&backend)
        .limit("header-bytes", "1KiB")
        .limit("headers", "10")
        .limit("uri-bytes", "100")
        .limit("body-bytes", "1000")
        .start()
        .await;
    let long = "x".repeat(2000);
    let mut many = get("/");
    for number in 0..20 {
        many = many.header(&format!("x-{number}"), "y");
    }
    let table = [
        (get("/").header("x-long", &long), 431),
        (many, 431),
        (get(&format!("/{}", "x".repeat(200))), 414),
        (post("/", "x".repeat(2000)), 413),
        (get("/"), 200),
    ];
    for (ask, code) in table {
        let response = gateway.ask(ask.clone()).await;
        assert_eq!(response.status, code, "{ask:?}");
        assert_eq!(response.reason().is_some(), code != 200);
    }
    let mut client = Http1::connect(gateway.at(8080)).await;
    let chunks = "100\r\n".to_owned() + &"x".repeat(256) + "\r\n";
    client
        .send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            chunks.repeat(8)
        ))
        .await;
    assert_eq!(client.response().await.status, 413);
    assert_eq!(backend.count(), 1);
}

#[tokio::test]
async fn the_log_names_the_exceeded_limit() {
    let backend = Backend::http1("web").await;
    let gateway = setup(&backend).limit("header-bytes", "1KiB").start().await;
    let response = gateway
        .ask(get("/").header("x-long", &"x".repeat(2000)))
        .await;
    assert_eq!(response.status, 431);
    let lines = || {
        let log = gateway.log();
        let limits = log
            .lines()
            .filter(|line| line.contains("limit=\"header-bytes\""));
        limits.map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("a line of the log", || async { !lines().is_empty() }).await;
    assert!(lines()[0].contains("client=127."), "{:?}", lines());
    // A flood of invalid requests does not flood the log: each limit is logged once per second.
    for _ in 0..200 {
        let ask = get("/").header("x-long", &"x".repeat(2000));
        assert_eq!(gateway.ask(ask).await.status, 431);
    }
    assert!(lines().len() < 100, "{} lines", lines().len());
}

#[tokio::test]
async fn the_log_names_the_limit_that_a_backend_exceeded() {
    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(2000));
    let backend = Backend::bytes("web", head, AfterBytes::Keep).await;
    let gateway = setup(&backend).limit("header-bytes", "1KiB").start().await;
    assert_eq!(gateway.ask(get("/")).await.status, 502);
    eventually("a line of the log", || async {
        let log = gateway.log();
        log.contains("response: the head is too large") && log.contains("limit=\"header-bytes\"")
    })
    .await;
}

#[tokio::test]
async fn a_head_far_over_the_limit_is_logged_over_http_2_too() {
    let backend = Backend::http1("web").await;
    let gateway = setup(&backend)
        .environment("RUST_LOG", "info")
        .start()
        .await;
    // So large that the HTTP/2 library discards it.
    let ask = (0..8).fold(get("/"), |ask, _| ask.header("x-long", &"x".repeat(16_000)));
    let response = gateway.ask_http2(ask).await;
    assert_eq!(response.status, 431);
    eventually("a line of the log", || async {
        gateway.log().contains("header-bytes")
    })
    .await;
    let metrics = gateway.ask_admin("/metrics").await.text();
    assert!(
        metrics.contains("pointsman_answers_total{reason=\"HeadTooLarge\"} 1"),
        "{metrics}"
    );
}

// A slow machine may exceed these times itself, so the tests wait until the expected result occurs.

#[tokio::test]
async fn a_slow_head_is_408_and_a_silent_connection_is_closed() {
    let backend = Backend::http1("web").await;
    let gateway = setup(&backend).limit("head-time", "300ms").start().await;
    Http1::connect(gateway.at(8080)).await.ended().await;
    eventually("a slow head gets a response", || async {
        let mut slow = Http1::connect(gateway.at(8080)).await;
        slow.send("GET / HTTP/1.1\r\nHost: exa").await;
        let result = slow.try_response().await;
        result.is_ok_and(|response| response.status == 408) && slow.rest().await.is_empty()
    })
    .await;
    eventually("others are served", || async {
        let mut client = Http1::connect(gateway.at(8080)).await;
        client
            .try_ask(&get("/"))
            .await
            .is_ok_and(|response| response.status == 200)
    })
    .await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let backend = Backend::http1("web").await;
    let gateway = setup(&backend).limit("idle-time", "300ms").start().await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    assert_eq!(client.ask(&get("/")).await.status, 200);
    client.ended().await;
    eventually("an idle HTTP/2 connection ends", || async {
        let client = Http2::connect(gateway.at(8080)).await;
        let served = client.try_ask(&get("/")).await.is_ok();
        let _ = client.ended().await;
        served
    })
    .await;
}

#[tokio::test]
async fn a_stalled_body_is_aborted() {
    let backend = Backend::http1("web").await;
    let gateway = setup(&backend)
        .environment("RUST_LOG", "info")
        .limit("stall-time", "200ms")
        .start()
        .await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
        .await;
    assert_eq!(client.response().await.status, 408);
    client.ended().await;
    eventually("a line of the log", || async {
        gateway.log().contains("stall-time")
    })
    .await;
    assert_eq!(backend.count(), 0, "no whole request came");
}

#[tokio::test]
async fn a_backend_that_reads_nothing_of_a_body_is_a_504() {
    let backend = Backend::listening("web", |stream, _| async move {
        let _kept = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let gateway = setup(&backend).limit("stall-time", "1s").start().await;
    // Larger than all buffers on the path, so that the response arrives before all of it is sent. Created first, so that the sender is never the slow side.
    let length = 64 << 20;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    let whole = [head.into_bytes(), vec![b'x'; length]].concat();
    let client = tokio::net::TcpStream::connect(gateway.at(8080)).await;
    let (mut reader, mut writer) = client.expect("a connection").into_split();
    tokio::spawn(async move {
        let _ = writer.write_all(&whole).await;
    });
    let mut answer = Vec::new();
    within("an answer", async {
        while !answer.ends_with(b"body\n") && matches!(reader.read_buf(&mut answer).await, Ok(1..))
        {
        }
    })
    .await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(
        answer.contains("x-pointsman-reason: BackendStalled"),
        "{answer}"
    );
}

#[tokio::test]
async fn an_idle_connection_to_a_backend_is_closed() {
    let backend = Backend::http1("web").await;
    let gateway = setup(&backend)
        .limit("backend-idle-time", "100ms")
        .start()
        .await;
    assert_eq!(gateway.ask(get("/")).await.status, 200);
    backend.open(0).await;
    assert_eq!(gateway.ask(get("/")).await.status, 200);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_until_others_end() {
    let gate = Gate::shut();
    let later = gate.clone();
    let backend = Backend::http1_with("web", move |_| BackendResponse::Later(later.clone())).await;
    let gateway = setup(&backend).limit("connections", "4").start().await;
    let mut kept = Vec::new();
    for _ in 0..4 {
        let mut client = Http1::connect(gateway.at(8080)).await;
        // An idle connection would be closed instead.
        client.send(get("/").bytes()).await;
        kept.push(client);
    }
    backend.saw(4).await;
    let mut fifth = Http1::connect(gateway.at(8080)).await;
    // The client gets a 503, unless the connection is closed before it sends a request.
    let result = fifth.try_ask(&get("/")).await;
    assert!(result.is_err() || result.is_ok_and(|response| response.status == 503));
    gate.open();
    drop(kept);
    eventually("room", || async {
        let Ok(mut client) = Http1::try_connect(gateway.at(8080)).await else {
            return false;
        };
        client
            .try_ask(&get("/"))
            .await
            .is_ok_and(|response| response.status == 200)
    })
    .await;
}

#[tokio::test]
async fn floods_of_resets_and_pings_close_the_connection() {
    let backend = Backend::http1_with("web", |_| BackendResponse::Never).await;
    let gateway = setup(&backend).limit("http2-resets", "10").start().await;
    let client = Http2::connect(gateway.at(8080)).await;
    let mut refused = false;
    for _ in 0..10_000 {
        let sent = client.try_open(&ask("POST", "/")).await;
        let Ok((_, mut body)) = sent else {
            refused = true;
            break;
        };
        body.send_reset(h2::Reason::CANCEL);
        tokio::task::yield_now().await;
    }
    assert!(refused, "ten thousand resets");
    assert_eq!(
        Http2::connect(gateway.at(8080))
            .await
            .ask(&get("/%zz"))
            .await
            .status,
        400
    );
}

#[tokio::test]
async fn a_slow_reader_uses_no_more_memory_than_the_buffers() {
    let backend = Backend::http1_with("web", |_| status(200).body(vec![b'x'; 64 << 20])).await;
    let gateway = setup(&backend).start().await;
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.process()))
            .expect("a process");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .expect("a size");
        line.split_whitespace()
            .nth(1)
            .and_then(|size| size.parse::<usize>().ok())
            .expect("a number")
    };
    assert_eq!(gateway.ask(get("/%zz")).await.status, 400);
    let before = memory();
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut client = Http1::connect(gateway.at(8080)).await;
        client.send(get("/").bytes()).await;
        assert_eq!(client.head().await.status, 200);
        readers.push(client);
    }
    backend.saw(20).await;
    let each = memory().saturating_sub(before) / 20;
    // 64 KiB per direction on both sides, and memory retained by the allocator.
    assert!(each < 400, "{each} KiB for each slow reader");
}
