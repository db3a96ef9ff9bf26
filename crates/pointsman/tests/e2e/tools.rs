//! Tests of the test clients and backends, connected directly, so that failures of other tests are about Pointsman.

use futures_util::{SinkExt, StreamExt};
use tokio::net::UdpSocket;

use crate::support::backend::{BackendResponse, Backend, status};
use crate::support::certificates::{Authority, Handshake};
use crate::support::http1::Http1;
use crate::support::http2::{Http2, Messages, call, message};
use crate::support::message::*;
use crate::support::raw::AfterBytes;
use crate::support::within;

#[tokio::test]
async fn backends_record_requests_of_both_versions_with_bodies_and_trailers() {
    let one = Backend::http1("one").await;
    let response = Http1::connect(one.address)
        .await
        .ask(&post("/a?b", "text"))
        .await;
    assert_eq!(response.backend(), Some("one"));
    assert_eq!(response.json()["target"], "/a?b");
    let saw = one.only().await;
    assert_eq!(
        (saw.text().as_str(), saw.host.as_str()),
        ("text", "example.com")
    );

    let two = Backend::http2_with("two", |_| status(201).trailer("x-after", "end")).await;
    let response = Http2::connect(two.address)
        .await
        .ask(&post("/", "more"))
        .await;
    assert_eq!(
        (response.status, response.trailer("x-after")),
        (201, Some("end"))
    );
    assert_eq!(two.only().await.text(), "more");
    two.open(0).await;
}

#[tokio::test]
async fn grpc_messages_flow_in_both_directions_while_the_stream_is_open() {
    let backend = Backend::grpc("echo").await;
    let client = Http2::connect(backend.address).await;
    let (response, mut body) = client.open(&call("shop.Catalog/Talk")).await;
    body.send_data(message("one"), false).expect("sent");
    let response = within("a head", response).await.expect("a response");
    let mut messages = Messages::of(response.into_body());
    assert_eq!(messages.next().await.as_deref(), Some("one"));
    body.send_data(message("two"), true).expect("sent");
    assert_eq!(messages.next().await.as_deref(), Some("two"));
    assert_eq!(messages.next().await, None);
    assert_eq!(field(&messages.trailers().await, "grpc-status"), Some("0"));
}

#[tokio::test]
async fn tls_backends_record_the_sni_and_the_client_certificate() {
    let authority = Authority::new();
    let server = authority
        .issue(&["a.example"])
        .server(&["h2", "http/1.1"], Some(&authority));
    let backend = Backend::tls("secure", server).await;
    let identity = authority.issue(&["client"]);
    let shake = Handshake::new(&authority, "a.example").identity(&identity);
    let stream = shake.alpn(&["h2"]).connect(backend.address).await;
    assert_eq!(
        Http2::over(stream, "https")
            .await
            .ask(&get("/"))
            .await
            .status,
        200
    );
    let saw = backend.only().await;
    assert_eq!(
        (saw.sni.as_deref(), saw.certificate),
        (Some("a.example"), true)
    );
    assert_eq!(saw.version, "HTTP/2.0");
}

#[tokio::test]
async fn scripted_tcp_udp_and_websocket_backends_work() {
    let liar = Backend::bytes(
        "liar",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        AfterBytes::Close,
    )
    .await;
    let mut client = Http1::connect(liar.address).await;
    assert_eq!(client.ask(&get("/")).await.text(), "hi");
    client.ended().await;

    let cut = Backend::http1_with("cut", |_| BackendResponse::Cut).await;
    assert!(
        Http1::connect(cut.address)
            .await
            .try_ask(&get("/"))
            .await
            .is_err()
    );

    let stream = Backend::tcp("tcp").await;
    let mut client = Http1::connect(stream.address).await;
    client.send("ping").await;
    client.finish().await;
    assert_eq!(client.rest().await, b"tcp\nping");

    let datagrams = Backend::udp("udp").await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    socket
        .send_to(b"ping", datagrams.address)
        .await
        .expect("sent");
    let mut buffer = [0; 64];
    let length = within("a datagram", socket.recv(&mut buffer))
        .await
        .expect("received");
    assert_eq!(&buffer[..length], b"udp: ping");

    let talk = Backend::websocket("talk").await;
    let stream = tokio::net::TcpStream::connect(talk.address)
        .await
        .expect("a connection");
    let (mut socket, _) = tokio_tungstenite::client_async("ws://example.com/chat", stream)
        .await
        .expect("a handshake");
    socket.send("hello".into()).await.expect("sent");
    let answer = within("a message", socket.next())
        .await
        .expect("open")
        .expect("a message");
    assert_eq!(answer.into_text().expect("text"), "hello");
    assert_eq!(talk.only().await.target, "/chat");
}
