//! Malicious backends: responses are validated as strictly as requests, and no bytes of one response leak into the next.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::backend::{Backend, RecordedRequest};
use crate::support::gateway::Gateway;
use crate::support::http1::{Http1, closes};
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::raw::AfterBytes;

fn manifests(backend: &Backend) -> String {
    [
        plain(),
        service("web", &[backend]),
        route("web", &[&to("web")]),
    ]
    .concat()
}

#[tokio::test]
async fn a_response_with_invalid_framing_is_a_502_and_closes_its_connection() {
    let heads = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhi",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        "HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 204 None\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\u{1}\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 103 Hints\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 99 Low\r\n\r\n",
        "HTTP/3.0 200 OK\r\n\r\n",
        "SSH-2.0-server\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: foo\r\nConnection: upgrade\r\n\r\n",
    ];
    for head in heads {
        let backend = Backend::bytes("web", head, AfterBytes::Keep).await;
        let gateway = Gateway::of(&manifests(&backend)).await;
        let response = gateway.ask(post("/", "x")).await;
        assert_eq!(response.status, 502, "{head:?}");
        assert!(response.reason().is_some(), "{head:?}");
        backend.open(0).await;
    }
}

#[tokio::test]
async fn a_truncated_body_truncates_the_clients_response() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ] {
        let backend = Backend::bytes("web", answer, AfterBytes::Close).await;
        let gateway = Gateway::of(&manifests(&backend)).await;
        let mut client = Http1::connect(gateway.at(8080)).await;
        let response = client.try_ask(&get("/")).await;
        // A client must never mistake a truncated body for a complete one.
        assert!(
            response.as_ref().is_err()
                || response
                    .as_ref()
                    .is_ok_and(|response| response.status == 502),
            "{answer:?}: {response:?}"
        );
    }
}

#[tokio::test]
async fn a_body_that_fails_before_any_of_it_is_sent_is_a_502() {
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalfXX0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\nhalf\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Evil: yes\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let backend = Backend::bytes("web", answer, AfterBytes::Keep).await;
        let gateway = Gateway::of(&manifests(&backend)).await;
        let mut client = Http1::connect(gateway.at(8080)).await;
        for _ in 0..2 {
            let response = client.ask(&get("/")).await;
            assert_eq!(response.status, 502, "{answer:?}");
            assert_eq!(response.reason(), Some("BackendBroke"), "{answer:?}");
            assert_eq!(response.header("x-evil"), None);
        }
        backend.open(0).await;
    }
}

#[tokio::test]
async fn an_unsolicited_response_is_never_forwarded() {
    // Each response is followed by an unsolicited one, once the connection is idle.
    let backend = Backend::listening("web", |mut stream, record| async move {
        let mut bytes = Vec::new();
        while matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            if !bytes.ends_with(b"\r\n\r\n") {
                continue;
            }
            bytes.clear();
            for body in ["good", "evil"] {
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{body}");
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
                // Bytes in the same segment are detected at once; this test sends them later.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            record.note(RecordedRequest::default());
        }
    })
    .await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    for number in 1..5 {
        assert_eq!(client.ask(&get("/")).await.text(), "good");
        backend.saw(number).await;
    }
}

#[tokio::test]
async fn too_many_interim_responses_are_a_502() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
    let backend = Backend::bytes("web", hints.repeat(1000), AfterBytes::Keep).await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let response = gateway.ask(get("/")).await;
    assert_eq!(response.status, 502);
    assert!(response.interim.len() <= 32, "{:?}", response.interim.len());
    backend.open(0).await;
}

#[tokio::test]
async fn interim_responses_are_forwarded() {
    let answer = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let backend = Backend::bytes("web", answer, AfterBytes::Keep).await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    for _ in 0..3 {
        client.send(get("/").bytes()).await;
        let hints = client.head().await;
        assert_eq!(
            (hints.status, hints.header("link")),
            (103, Some("</a.css>"))
        );
        let response = client.response().await;
        assert_eq!((response.status, response.text().as_str()), (200, "hi"));
    }
}

#[tokio::test]
async fn head_204_and_304_have_no_body_despite_a_content_length() {
    let backend = Backend::bytes(
        "web",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        AfterBytes::Keep,
    )
    .await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    for _ in 0..3 {
        let response = client.ask(&ask("HEAD", "/")).await;
        assert_eq!(
            (response.status, response.header("content-length")),
            (200, Some("5"))
        );
    }
    for status in ["204 No Content", "304 Not Modified"] {
        let backend = Backend::bytes(
            "web",
            format!("HTTP/1.1 {status}\r\nX-A: b\r\n\r\n"),
            AfterBytes::Keep,
        )
        .await;
        let gateway = Gateway::of(&manifests(&backend)).await;
        let mut client = Http1::connect(gateway.at(8080)).await;
        for _ in 0..3 {
            let response = client.ask(&get("/")).await;
            assert_eq!(response.status.to_string(), status[..3]);
            assert_eq!(response.header("x-a"), Some("b"));
            assert_eq!(response.header("transfer-encoding"), None);
        }
    }
}

#[tokio::test]
async fn bytes_after_a_response_never_become_the_next_response() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nX-Evil: yes\r\nContent-Length: 4\r\n\r\nevil";
    let backend = Backend::bytes("web", answer, AfterBytes::Keep).await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    for _ in 0..10 {
        let response = client.ask(&get("/")).await;
        assert_eq!((response.status, response.text().as_str()), (200, "hi"));
        assert_eq!(response.header("x-evil"), None);
    }
}

#[tokio::test]
async fn a_response_delimited_by_close_is_reframed() {
    let backend = Backend::bytes(
        "web",
        "HTTP/1.0 200 OK\r\nX-A: b\r\n\r\nuntil the end",
        AfterBytes::Close,
    )
    .await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    for _ in 0..3 {
        let response = client.ask(&get("/")).await;
        assert_eq!(response.text(), "until the end");
        assert_eq!(response.header("transfer-encoding"), Some("chunked"));
    }
}

#[tokio::test]
async fn connections_to_a_backend_are_reused() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    for _ in 0..50 {
        assert_eq!(gateway.ask(get("/")).await.status, 200);
    }
    // A connection may not have returned to the pool yet when the next request arrives.
    assert!(
        backend.connections() <= 10,
        "{} connections for 50 requests",
        backend.connections()
    );
}

/// A body that was spliced may end exactly with the available bytes; the connection remains usable.
#[tokio::test]
async fn a_connection_that_carried_a_large_body_is_reused() {
    let size = 1 << 20;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n");
    let whole = head + &"x".repeat(size);
    let backend = Backend::bytes("web", whole, AfterBytes::Keep).await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    for _ in 0..10 {
        assert_eq!(client.ask(&get("/")).await.body.len(), size);
    }
    let connections = backend.connections();
    assert!(
        connections <= 2,
        "{connections} connections for 10 requests"
    );
}

/// RFC 9112 §9.6: a server that does not read the rest of a request sends `close`.
#[tokio::test]
async fn an_early_response_with_close_closes_the_clients_connection() {
    let answer =
        "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig";
    let backend = Backend::listening("web", move |mut stream, record| async move {
        let (_, _open) = record.connected();
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.read(&mut [0; 1]).await;
    })
    .await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client
        .send("POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 10\r\n\r\n")
        .await;
    let response = client.response().await;
    assert_eq!((response.status, response.text().as_str()), (413, "big"));
    assert!(closes(&response), "{response:?}");
    client.ended().await;
}
