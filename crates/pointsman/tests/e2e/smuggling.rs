//! Request smuggling: ambiguous requests are rejected with 400, the connection is closed, and nothing is forwarded.

use crate::support::backend::Backend;
use crate::support::gateway::Gateway;
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;

async fn gateway(backend: &Backend) -> Gateway {
    Gateway::of(
        &[
            plain(),
            service("web", &[backend]),
            route("web", &[&to("web")]),
        ]
        .concat(),
    )
    .await
}

const SECOND: &str = "GET /second HTTP/1.1\r\nHost: example.com\r\n\r\n";

#[tokio::test]
async fn ambiguous_framing_is_400_and_closes_the_connection() {
    let backend = Backend::http1("web").await;
    let gateway = gateway(&backend).await;
    let heads = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: 5,5",
        "Content-Length: 1e1",
        "Content-Length: 5;",
        "Content-Length\t: 5",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: -5",
        "Content-Length:",
        "Content-Length: 5 5",
        "Content-Length: 9223372036854775808",
        "Content-Length: 18446744073709551615",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \u{b}chunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Content-Length : 5",
        "Transfer-Encoding:\r\n chunked",
        "X: a\n\tTransfer-Encoding: chunked",
        "X: a\nTransfer-Encoding: chunked",
        "X: a\rTransfer-Encoding: chunked",
        "X\u{0}: a",
        "Content-Length\u{0}: 5",
        " Content-Length: 5",
    ];
    for head in heads {
        let mut client = Http1::connect(gateway.at(8080)).await;
        let bytes =
            format!("POST / HTTP/1.1\r\nHost: example.com\r\n{head}\r\n\r\n0\r\n\r\n{SECOND}");
        client.send(bytes).await;
        let response = client.response().await;
        assert_eq!(response.status, 400, "{head:?}");
        assert!(response.reason().is_some(), "{head:?}");
        client.ended().await;
    }
    assert_eq!(gateway.ask(get("/good")).await.status, 200);
    assert_eq!(backend.only().await.target, "/good");
}

#[tokio::test]
async fn invalid_chunks_are_400_and_no_complete_request_reaches_the_backend() {
    let backend = Backend::http1("web").await;
    let gateway = gateway(&backend).await;
    let bodies = [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\n",
        "5\r\nhello\r\n0\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5;a=\u{1}\r\nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\rX0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\n\r\n",
        "5\r\nhello\r\n0\r\nX : y\r\n\r\n",
    ];
    for body in bodies {
        let mut client = Http1::connect(gateway.at(8080)).await;
        let head = "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.send(format!("{head}{body}{SECOND}")).await;
        assert_eq!(client.response().await.status, 400, "{body:?}");
        client.ended().await;
    }
    assert_eq!(gateway.ask(get("/good")).await.status, 200);
    assert_eq!(
        backend.only().await.target,
        "/good",
        "only whole requests are noted"
    );
}

#[tokio::test]
async fn invalid_request_lines_and_hosts_are_rejected() {
    let backend = Backend::http1("web").await;
    let gateway = gateway(&backend).await;
    let table = [
        ("GET * HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
        (
            "GET example.com:80 HTTP/1.1\r\nHost: example.com\r\n\r\n",
            400,
        ),
        (
            "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n\r\n",
            501,
        ),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: user@a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        ("GET /\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (
            "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /#f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        ("GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ];
    for (bytes, code) in table {
        let mut client = Http1::connect(gateway.at(8080)).await;
        client.send(format!("{bytes}{SECOND}")).await;
        assert_eq!(client.response().await.status, code, "{bytes:?}");
        client.ended().await;
    }
    assert_eq!(gateway.ask(get("/good")).await.status, 200);
    assert_eq!(backend.only().await.target, "/good");
}

#[tokio::test]
async fn the_clients_framing_never_reaches_the_backend() {
    let backend = Backend::bytes(
        "web",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        crate::support::raw::AfterBytes::Keep,
    )
    .await;
    let gateway = gateway(&backend).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client
        .send(
            "POST / HTTP/1.1\r\nHOST:   example.com  \r\ncOnTeNt-LeNgTh:\t5 \r\nX-A:b\r\n\r\nhello",
        )
        .await;
    assert_eq!(client.response().await.status, 200);
    let saw = backend.only().await;
    assert_eq!(saw.all("content-length"), ["5"]);
    assert_eq!(saw.text(), "hello");
    assert_eq!(saw.all("host"), ["example.com"]);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let backend = Backend::http1("web").await;
    let gateway = gateway(&backend).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    let body = "POST /0 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n";
    let rest: String = (1..5)
        .map(|number| format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .collect();
    client.send(format!("{body}{rest}")).await;
    for number in 0..5 {
        let response = client.response().await;
        assert_eq!(response.json()["target"], format!("/{number}"));
    }
    assert_eq!(backend.saw(5).await[0].text(), "abc");
}

#[tokio::test]
async fn the_absolute_form_determines_the_host() {
    let backend = Backend::http1("web").await;
    let manifests = [
        plain(),
        service("web", &[&backend]),
        route_for("web", "real.example", &[&to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client
        // RFC 9112 §3.2.2: the Host header is ignored and replaced.
        .send("GET http://real.example/x?y HTTP/1.1\r\nHost: other.example\r\n\r\n")
        .await;
    assert_eq!(client.response().await.status, 200);
    let saw = backend.only().await;
    assert_eq!(
        (saw.host.as_str(), saw.target.as_str()),
        ("real.example", "/x?y")
    );
}
