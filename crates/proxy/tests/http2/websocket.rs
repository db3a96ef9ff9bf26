//! Tests of WebSockets between all combinations of versions. Over HTTP/2 an extended CONNECT opens them (RFC 8441).

use std::net::SocketAddr;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use h2::ext::Protocol;
use http::{Method, Request, Response};
use pointsman_proxy::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Starts an HTTP/2 endpoint that accepts a WebSocket and returns what it receives in upper case.
async fn over_http2() -> SocketAddr {
    http2_endpoint(|request, mut respond| async move {
        assert_eq!(request.method(), Method::CONNECT);
        let protocol = request.extensions().get::<Protocol>().unwrap();
        assert_eq!(protocol.as_str(), "websocket");
        assert_eq!(request.uri(), "http://shop.example/chat?a=b");
        assert_eq!(request.headers()["sec-websocket-version"], "13");
        assert!(!request.headers().contains_key("sec-websocket-key"));
        assert!(!request.headers().contains_key("upgrade"));
        let response = Response::builder().header("sec-websocket-protocol", "chat");
        let mut sink = respond
            .send_response(response.body(()).unwrap(), false)
            .unwrap();
        let mut stream = request.into_body();
        while let Some(Ok(piece)) = stream.data().await {
            let _ = stream.flow_control().release_capacity(piece.len());
            let _ = send_all(&mut sink, &piece.to_ascii_uppercase()).await;
        }
        let _ = sink.send_data(Bytes::new(), true);
    })
    .await
}

/// Starts an HTTP/1 endpoint that does the same. If not `honest`, its `sec-websocket-accept` is wrong.
async fn over_http1(honest: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                let end = read_until(&mut stream, &mut bytes, b"\r\n\r\n")
                    .await
                    .unwrap();
                let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
                assert!(head.starts_with("GET /chat?a=b HTTP/1.1\r\n"), "{head}");
                for line in [
                    "connection: upgrade",
                    "upgrade: websocket",
                    "sec-websocket-version: 13",
                ] {
                    assert!(head.contains(line), "{head}");
                }
                let key = head.split("sec-websocket-key: ").nth(1).unwrap();
                let key = match honest {
                    true => key.split("\r\n").next().unwrap(),
                    false => KEY,
                };
                let head = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {}\r\nsec-websocket-protocol: chat\r\n\r\n",
                    accept(key)
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                let mut piece = [0; 100];
                while let Ok(count @ 1..) = stream.read(&mut piece).await {
                    let _ = stream.write_all(&piece[..count].to_ascii_uppercase()).await;
                }
            });
        }
    });
    address
}

fn accept(key: &str) -> String {
    use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
    use base64::prelude::{BASE64_STANDARD, Engine};
    let events = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, events.as_bytes()))
}

/// Connects a client and waits for the setting that allows WebSockets.
async fn ready_client(address: SocketAddr) -> SendRequest<Bytes> {
    let mut sender = client(address).await;
    within_deadline("the settings", async {
        while !sender.is_extended_connect_protocol_enabled() {
            std::future::poll_fn(|cx| sender.poll_ready(cx))
                .await
                .unwrap();
            tokio::task::yield_now().await;
        }
    })
    .await;
    sender
}

fn opening() -> Request<()> {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri("http://shop.example/chat?a=b")
        .header("sec-websocket-version", "13")
        .body(())
        .unwrap();
    request
        .extensions_mut()
        .insert(Protocol::from_static("websocket"));
    request
}

async fn read_bytes(stream: &mut RecvStream, count: usize) -> Vec<u8> {
    let mut received_events = Vec::new();
    while received_events.len() < count {
        let piece = within_deadline("bytes", stream.data())
            .await
            .unwrap()
            .unwrap();
        let _ = stream.flow_control().release_capacity(piece.len());
        received_events.extend(piece);
    }
    received_events
}

#[tokio::test]
async fn a_client_of_http2_opens_websockets_to_endpoints_of_either_version() {
    for protocol in [EndpointProtocol::Http1, EndpointProtocol::Http2] {
        let endpoint = match protocol {
            EndpointProtocol::Http1 => over_http1(true).await,
            EndpointProtocol::Http2 => over_http2().await,
        };
        let proxy = test_proxy(Limits::default(), protocol, &[endpoint]);
        let mut sender = ready_client(proxy.address).await;
        let (response, mut sink) = sender.send_request(opening(), false).unwrap();
        // Sent before the upgrade is accepted, so it is buffered.
        sink.send_data(Bytes::from_static(b"early "), false)
            .unwrap();
        let response = within_deadline("a head", response).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
        assert!(!response.headers().contains_key("sec-websocket-accept"));
        let mut stream = response.into_body();
        assert_eq!(read_bytes(&mut stream, 6).await, b"EARLY ");
        for word in ["hello", "world"] {
            sink.send_data(Bytes::from(word), false).unwrap();
            assert_eq!(
                read_bytes(&mut stream, 5).await,
                word.to_ascii_uppercase().as_bytes()
            );
        }
        sink.send_data(Bytes::new(), true).unwrap();
        let (rest, _) = within_deadline("the end", drain(&mut stream))
            .await
            .unwrap();
        assert!(rest.is_empty());
    }
}

#[tokio::test]
async fn a_client_of_http1_opens_a_websocket_to_an_endpoint_of_http2() {
    let proxy = test_proxy(
        Limits::default(),
        EndpointProtocol::Http2,
        &[over_http2().await],
    );
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let request = format!(
        "GET /chat?a=b HTTP/1.1\r\nhost: shop.example\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: {KEY}\r\nsec-websocket-version: 13\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let end = within_deadline("a head", read_until(&mut stream, &mut bytes, b"\r\n\r\n"))
        .await
        .unwrap();
    let head = String::from_utf8(bytes.drain(..end).collect()).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(
        head.contains(&format!("sec-websocket-accept: {ACCEPT}\r\n")),
        "{head}"
    );
    stream.write_all(b"hello").await.unwrap();
    within_deadline("an echo", read_until(&mut stream, &mut bytes, b"HELLO"))
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    within_deadline("the end", stream.read_to_end(&mut rest))
        .await
        .unwrap();
}

#[tokio::test]
async fn endpoints_without_websocket_support_are_a_502() {
    // One endpoint does not announce support, the other has a wrong `sec-websocket-accept`.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while connection.accept().await.is_some() {}
            });
        }
    });
    for (protocol, endpoint) in [
        (EndpointProtocol::Http2, endpoint),
        (EndpointProtocol::Http1, over_http1(false).await),
    ] {
        let proxy = test_proxy(Limits::default(), protocol, &[endpoint]);
        let mut sender = ready_client(proxy.address).await;
        let (response, _sink) = sender.send_request(opening(), false).unwrap();
        let response = within_deadline("a head", response).await.unwrap();
        assert_eq!(response.status(), 502, "{:?}", response.headers());
    }
}
