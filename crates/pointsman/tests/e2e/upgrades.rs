//! WebSockets over HTTP/1 and HTTP/2. No other upgrade is supported.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::support::backend::{Backend, status};
use crate::support::gateway::Gateway;
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

#[tokio::test]
async fn a_websocket_over_http_1_carries_messages_in_both_directions() {
    let backend = Backend::websocket("talk").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let stream = TcpStream::connect(gateway.at(8080))
        .await
        .expect("a connection");
    let mut request = "ws://example.com/chat?room=1"
        .into_client_request()
        .expect("a request");
    let headers = request.headers_mut();
    headers.insert(
        "sec-websocket-protocol",
        "talk.v1".parse().expect("a value"),
    );
    headers.insert("x-forwarded-for", "9.9.9.9".parse().expect("a value"));
    let shaken = within(
        "a handshake",
        tokio_tungstenite::client_async(request, stream),
    )
    .await;
    let (mut socket, response) = shaken.expect("a WebSocket");
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["sec-websocket-protocol"], "talk.v1");
    for size in [1, 100, 70_000, 1_000_000] {
        let text = "x".repeat(size);
        socket
            .send(Message::text(text.clone()))
            .await
            .expect("sent");
        let answer = within("a message", socket.next())
            .await
            .expect("open")
            .expect("a message");
        assert_eq!(answer.into_text().expect("text").len(), size);
    }
    socket.close(None).await.expect("closed");
    while let Some(Ok(_)) = within("the end", socket.next()).await {}
    let saw = backend.only().await;
    assert_eq!(saw.target, "/chat?room=1");
    assert_eq!(saw.header("x-forwarded-for"), Some("127.0.0.1"));
    backend.open(0).await;
}

#[tokio::test]
async fn a_declined_upgrade_is_forwarded_and_the_connection_stays_open() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let mut client = crate::support::http1::Http1::connect(gateway.at(8080)).await;
    let ask = get("/")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(client.ask(&ask).await.status, 200);
    assert_eq!(client.ask(&get("/")).await.status, 200);
}

#[tokio::test]
async fn other_upgrades_are_removed_from_the_request() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    for (number, protocol) in ["h2c", "foo/2", "TLS/1.0"].into_iter().enumerate() {
        let ask = get("/")
            .header("Connection", "Upgrade, HTTP2-Settings")
            .header("Upgrade", protocol)
            .header("HTTP2-Settings", "AAMAAABkAAQAAP__");
        assert_eq!(gateway.ask(ask).await.status, 200, "{protocol}");
        let saw = backend.saw(number + 1).await.remove(number);
        for name in ["upgrade", "http2-settings"] {
            assert_eq!(saw.header(name), None, "{protocol}");
        }
    }
}

#[tokio::test]
async fn a_websocket_over_http_2_becomes_an_upgrade_to_the_backend() {
    let backend = Backend::websocket("talk").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    let client = Http2::connect(gateway.at(8080)).await;
    let (response, mut outgoing) = client.send(extended_connect(&client).await).await;
    let response = within("a response", response).await.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers().get("sec-websocket-accept"), None);
    let mut incoming = response.into_body();
    // A masked text frame from a client (`hello`, with a mask of zeros), and the server's response.
    let frame = [&[0x81, 0x85, 0, 0, 0, 0], &b"hello"[..]].concat();
    outgoing.send_data(Bytes::from(frame), false).expect("sent");
    let mut got = Vec::new();
    while got.len() < 7 {
        let data = within("data", incoming.data())
            .await
            .expect("open")
            .expect("data");
        got.extend_from_slice(&data);
    }
    assert_eq!(got, [&[0x81, 0x05], &b"hello"[..]].concat());
    outgoing.send_data(Bytes::new(), true).expect("ended");
    backend.open(0).await;
    let saw = backend.only().await;
    assert_eq!((saw.method.as_str(), saw.target.as_str()), ("GET", "/chat"));
    assert_eq!(saw.header("upgrade"), Some("websocket"));
}

/// Waits until the peer accepts extended CONNECT and returns a request that opens a WebSocket.
async fn extended_connect(client: &Http2) -> http::Request<()> {
    eventually("the settings that allow extended CONNECT", || async {
        client.takes_extended_connect()
    })
    .await;
    let mut request = http::Request::builder()
        .method("CONNECT")
        .uri("http://example.com/chat")
        .version(http::Version::HTTP_2)
        .header("sec-websocket-version", "13")
        .body(())
        .expect("a request");
    request
        .extensions_mut()
        .insert(h2::ext::Protocol::from_static("websocket"));
    request
}

/// RFC 8441 §5: any 2xx status would indicate an open WebSocket.
#[tokio::test]
async fn a_declined_upgrade_is_never_a_success_over_http_2() {
    for (declines, expected) in [(200, 502), (204, 502), (403, 403)] {
        let backend = Backend::http1_with("web", move |_| status(declines)).await;
        let gateway = Gateway::of(&manifests(&backend)).await;
        let client = Http2::connect(gateway.at(8080)).await;
        let (response, _outgoing) = client.send(extended_connect(&client).await).await;
        let response = within("a response", response).await.expect("a response");
        assert_eq!(response.status(), expected, "{declines}");
    }
}
