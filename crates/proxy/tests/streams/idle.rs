//! Tests of idle connections at the connection limit: the longest-idle ones are closed to make room.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::certificates::{TestCertificate, any_client, connect_tls};
use crate::support::*;
use crate::tls::http_backend;

/// Starts a proxy with a connection limit and an HTTP listener in front of a backend.
fn proxy(workers: usize, limit: usize, backend: SocketAddr) -> TestProxy {
    let mut options = options();
    options.workers = Some(workers);
    options.limits.connections = Some(limit);
    let manifests = gateway("{name: http, port: 80, protocol: HTTP}")
        + &route("HTTPRoute", "h", "http", "{name: web, port: 1000}")
        + &service("web", &[backend]);
    TestProxy::with(options, &manifests)
}

fn send(stream: &mut TcpStream) {
    let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request).expect("written");
}

/// Reads a response of [`http_backend`]. Returns its status line.
fn receive(stream: &mut TcpStream) -> String {
    let (mut received, mut byte) = (Vec::new(), [0]);
    while !received.ends_with(b"\r\n\r\nok") {
        match stream.read(&mut byte) {
            Ok(1) => received.push(byte[0]),
            ended => panic!("{ended:?} after {:?}", String::from_utf8_lossy(&received)),
        }
    }
    let received = String::from_utf8(received).expect("text");
    received.lines().next().unwrap_or_default().to_owned()
}

fn get(stream: &mut TcpStream) -> String {
    send(stream);
    receive(stream)
}

const OK: &str = "HTTP/1.1 200 OK";

#[test]
fn idle_connections_never_lock_out_an_active_client() {
    let proxy = proxy(2, 64, http_backend());
    let mut kept = connect(proxy.tcp_address(80));
    let mut idle = Vec::new();
    for at in 0..128 {
        let mut stream = connect(proxy.tcp_address(80));
        if at % 2 == 0 {
            assert_eq!(get(&mut stream), OK);
        }
        idle.push(stream);
        assert_eq!(get(&mut kept), OK, "an active client is not idle");
    }
    for _ in 0..100 {
        assert_eq!(get(&mut connect(proxy.tcp_address(80))), OK);
        assert_eq!(get(&mut kept), OK);
    }
    assert_eq!(proxy.metric("pointsman_connections_refused_total", ""), 0);
    assert!(proxy.metric("pointsman_idle_connections_closed_total", "") >= 65);
    assert!(
        is_refused(idle.swap_remove(0)),
        "the longest-idle connection"
    );
}

/// Starts a backend that responds when the test says so.
fn manual_backend() -> (SocketAddr, Receiver<()>, Sender<()>) {
    let ((request, requests), (response, responses)) = (channel(), channel());
    let responses = Arc::new(Mutex::new(responses));
    let address = backend(move |mut stream| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while stream.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
            if head.ends_with(b"\r\n\r\n") {
                head.clear();
                let _ = request.send(());
                let _ = responses.lock().map(|responses| responses.recv());
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            }
        }
    });
    (address, requests, response)
}

#[test]
fn a_connection_with_a_request_in_progress_is_never_closed() {
    let (backend, requests, response) = manual_backend();
    let proxy = proxy(1, 2, backend);
    let mut busy = connect(proxy.tcp_address(80));
    send(&mut busy);
    requests.recv().expect("a request");
    let idle = connect(proxy.tcp_address(80));
    let mut second = connect(proxy.tcp_address(80));
    assert!(is_refused(idle), "the idle connection made room");
    send(&mut second);
    requests.recv().expect("a request");
    let third = connect(proxy.tcp_address(80));
    let mut third_received = String::new();
    (&third)
        .read_to_string(&mut third_received)
        .expect("a response");
    assert!(
        third_received.contains("TooManyConnections"),
        "{third_received}"
    );
    for _ in 0..2 {
        response.send(()).expect("sent");
    }
    assert_eq!(receive(&mut busy), OK);
    assert_eq!(receive(&mut second), OK);
}

#[test]
fn a_silent_connection_makes_room_before_its_tls_handshake() {
    let pair = TestCertificate::new("web.example");
    let mut options = options();
    options.limits.connections = Some(2);
    let listener = "{name: tls, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: web}]}}";
    let manifests = gateway(listener)
        + &pair.secret("infra/web")
        + &route("HTTPRoute", "h", "tls", "{name: web, port: 1000}")
        + &service("web", &[http_backend()]);
    let proxy = TestProxy::with(options, &manifests);
    let mut silent = [
        connect(proxy.tcp_address(443)),
        connect(proxy.tcp_address(443)),
    ];
    let mut stream =
        connect_tls(&any_client(), proxy.tcp_address(443), "web.example").expect("a handshake");
    let request = b"GET / HTTP/1.1\r\nhost: web.example\r\nconnection: close\r\n\r\n";
    stream.write_all(request).expect("written");
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    assert!(received.starts_with(OK.as_bytes()), "{received:?}");
    assert_eq!(silent[0].read(&mut [0]).expect("the end"), 0);
    assert_eq!(proxy.metric("pointsman_connections_refused_total", ""), 0);
}
