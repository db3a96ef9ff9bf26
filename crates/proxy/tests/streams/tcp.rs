//! Tests of TCPRoutes.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;
use pointsman_proxy::{AccessLogFormat, AccessLogOptions};
use socket2::SockRef;

const LISTENER: &str = "{name: tcp, port: 9000, protocol: TCP}";

fn proxy(backends: &str, services: &str) -> TestProxy {
    TestProxy::new(&(gateway(LISTENER) + &route("TCPRoute", "r", "tcp", backends) + services))
}

fn to(name: &str, endpoints: &[std::net::SocketAddr]) -> TestProxy {
    proxy(
        &format!("{{name: {name}, port: 1000}}"),
        &service(name, endpoints),
    )
}

#[test]
fn bytes_are_relayed_in_both_directions_and_half_closes_are_propagated() {
    let proxy = to("web", &[named_backend("web")]);
    assert_eq!(
        send_and_read(proxy.tcp_address(9000), b"hello"),
        "web 5 bytes"
    );
    assert_eq!(send_and_read(proxy.tcp_address(9000), b""), "web 0 bytes");
    // In the other direction: the backend half-closes first, and the client still sends.
    let (sender, receiver) = channel();
    let backend = backend(move |mut stream| {
        stream.write_all(b"done").expect("written");
        stream.shutdown(Shutdown::Write).expect("ended");
        let mut received = String::new();
        stream.read_to_string(&mut received).expect("read");
        sender.send(received).expect("sent");
    });
    let proxy = to("first", &[backend]);
    let mut client = connect(proxy.tcp_address(9000));
    let mut received = String::new();
    client.read_to_string(&mut received).expect("read");
    assert_eq!(received, "done");
    client.write_all(b"still here").expect("written");
    drop(client);
    assert_eq!(
        receiver.recv_timeout(TIMEOUT).expect("received"),
        "still here"
    );
    let labels = "listener=\"tcp\"";
    proxy.wait_for_metric("pointsman_listener_open_connections", labels, 0);
    assert_eq!(
        proxy.metric("pointsman_listener_connections_total", labels),
        1
    );
    assert_eq!(
        proxy.metric("pointsman_listener_request_bytes_total", labels),
        10
    );
    assert_eq!(
        proxy.metric("pointsman_listener_response_bytes_total", labels),
        4
    );
    assert_eq!(
        proxy.metric("pointsman_backend_request_bytes_total", "name=\"first\""),
        10
    );
}

#[test]
fn request_and_response_alternate_over_one_stream() {
    let echo = backend(|mut stream| {
        let mut buf = [0; 100];
        while let Ok(count @ 1..) = stream.read(&mut buf) {
            if stream.write_all(&buf[..count]).is_err() {
                return;
            }
        }
    });
    let proxy = to("echo", &[echo]);
    let mut client = connect(proxy.tcp_address(9000));
    for round in 0..200u32 {
        let mut answer = [0; 4];
        client.write_all(&round.to_be_bytes()).expect("written");
        client.read_exact(&mut answer).expect("read");
        assert_eq!(answer, round.to_be_bytes());
    }
}

#[test]
fn weights_are_exact() {
    let services = service("a", &[named_backend("a")]) + &service("b", &[named_backend("b")]);
    let proxy = proxy(
        "{name: a, port: 1000, weight: 1}, {name: b, port: 1000, weight: 3}",
        &services,
    );
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..40 {
        *counts
            .entry(send_and_read(proxy.tcp_address(9000), b""))
            .or_default() += 1;
    }
    let wanted = [("a 0 bytes".to_owned(), 10), ("b 0 bytes".to_owned(), 30)];
    assert_eq!(counts, wanted.into());
}

#[test]
fn another_endpoint_is_tried_if_one_refuses() {
    let proxy = to(
        "web",
        &[refusing_address(), named_backend("web"), refusing_address()],
    );
    for _ in 0..20 {
        assert_eq!(send_and_read(proxy.tcp_address(9000), b"x"), "web 1 bytes");
    }
    assert!(proxy.metric("pointsman_backend_retries_total", "name=\"web\"") > 0);
}

#[test]
fn a_stream_without_a_usable_backend_is_closed() {
    for (proxy, reason) in [
        (to("web", &[refusing_address()]), "ConnectFailed"),
        (to("web", &[]), "NoEndpoints"),
        (proxy("{name: none, port: 1000}", ""), "BackendNotFound"),
        (
            proxy(
                "{name: web, port: 1000, weight: 0}",
                &service("web", &[named_backend("web")]),
            ),
            "NoWeight",
        ),
        (TestProxy::new(&gateway(LISTENER)), "NoRoute"),
    ] {
        assert!(is_refused(connect(proxy.tcp_address(9000))), "{reason}");
        proxy.wait_for_metric(
            "pointsman_connections_refused_total",
            &format!("reason=\"{reason}\""),
            1,
        );
    }
}

/// Byte of a test pattern at a position.
fn pattern(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn send(stream: &mut TcpStream, count: u64) {
    let mut at = 0;
    while at < count {
        let piece: Vec<u8> = (at..count.min(at + 65_536)).map(pattern).collect();
        stream.write_all(&piece).expect("written");
        at += piece.len() as u64;
    }
    stream.shutdown(Shutdown::Write).expect("ended");
}

/// Reads to the end and verifies the pattern. Returns the number of bytes. A slow reader pauses now and then.
fn check(stream: &mut TcpStream, slow: bool) -> u64 {
    let mut buf = vec![0; 100_000];
    let mut at = 0;
    let mut rests = 0;
    loop {
        match stream.read(&mut buf).expect("read") {
            0 => return at,
            count => {
                for byte in &buf[..count] {
                    assert_eq!(*byte, pattern(at), "at {at}");
                    at += 1;
                }
            }
        }
        if slow && rests < 20 && at > rests * 1_000_000 {
            rests += 1;
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn bulk_in_both_directions_at_once_arrives_complete() {
    const MUCH: u64 = 64 << 20;
    let (sender, receiver) = channel();
    let backend = backend(move |mut stream| {
        let mut other = stream.try_clone().expect("a clone");
        let sending = thread::spawn(move || send(&mut other, MUCH));
        sender.send(check(&mut stream, true)).expect("sent");
        sending.join().expect("sent");
    });
    let proxy = to("bulk", &[backend]);
    let mut client = connect(proxy.tcp_address(9000));
    let mut other = client.try_clone().expect("a clone");
    let sending = thread::spawn(move || send(&mut other, MUCH));
    assert_eq!(check(&mut client, true), MUCH);
    sending.join().expect("sent");
    assert_eq!(receiver.recv_timeout(TIMEOUT).expect("received"), MUCH);
    let labels = "listener=\"tcp\"";
    proxy.wait_for_metric("pointsman_listener_request_bytes_total", labels, MUCH);
    proxy.wait_for_metric("pointsman_listener_response_bytes_total", labels, MUCH);
}

#[test]
fn bulk_and_small_messages_can_alternate() {
    let echo = backend(|mut stream| {
        let mut buf = [0; 50_000];
        while let Ok(count @ 1..) = stream.read(&mut buf) {
            if stream.write_all(&buf[..count]).is_err() {
                return;
            }
        }
    });
    let proxy = to("echo", &[echo]);
    let client = connect(proxy.tcp_address(9000));
    let sizes = [10, 2_000_000, 1, 3_000_000, 5, 700, 1_000_000];
    let mut sender = client.try_clone().expect("a clone");
    for size in sizes {
        let sent: Vec<u8> = (0..size).map(pattern).collect();
        let mut got = vec![0; sent.len()];
        thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&sent).expect("written"));
            (&client).read_exact(&mut got).expect("read");
        });
        assert_eq!(got, sent);
    }
}

#[test]
fn a_reset_is_not_mistaken_for_an_orderly_end() {
    let (sender, receiver) = channel();
    let backend = backend(move |mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte");
        stream.write_all(b"k").expect("written");
        sender
            .send(stream.read(&mut byte).map_err(|error| error.kind()))
            .expect("sent");
    });
    let proxy = to("web", &[backend]);
    let mut client = connect(proxy.tcp_address(9000));
    client.write_all(b"x").expect("written");
    client.read_exact(&mut [0]).expect("a response");
    let socket = SockRef::from(&client);
    socket.set_linger(Some(Duration::ZERO)).expect("set");
    drop(client);
    let end = receiver.recv_timeout(TIMEOUT).expect("received");
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
}

#[test]
fn a_stream_is_closed_after_the_idle_timeout() {
    let mut options = options();
    options.limits.stream_idle_time = Some(Duration::from_millis(300));
    let proxy = TestProxy::with(
        options,
        &(gateway(LISTENER)
            + &route("TCPRoute", "r", "tcp", "{name: web, port: 1000}")
            + &service("web", &[named_backend("web")])),
    );
    let start = Instant::now();
    let mut client = connect(proxy.tcp_address(9000));
    let mut received = Vec::new();
    let _ = client.read_to_end(&mut received);
    assert!(b"web ".starts_with(&received), "{received:?}");
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn streams_survive_changes_and_new_streams_follow_them() {
    let mut proxy = to("a", &[named_backend("a")]);
    let mut old = connect(proxy.tcp_address(9000));
    old.read_exact(&mut [0; 2]).expect("a name");
    proxy.apply(
        &(service("b", &[named_backend("b")])
            + &route("TCPRoute", "r", "tcp", "{name: b, port: 1000}")),
    );
    assert_eq!(send_and_read(proxy.tcp_address(9000), b""), "b 0 bytes");
    old.write_all(b"still").expect("written");
    old.shutdown(Shutdown::Write).expect("ended");
    let mut received = String::new();
    old.read_to_string(&mut received).expect("read");
    assert_eq!(received, "5 bytes");
}

#[test]
fn a_drain_waits_for_streams_and_accepts_no_new_ones() {
    let mut proxy = to("web", &[named_backend("web")]);
    let at = proxy.tcp_address(9000);
    let mut client = connect(at);
    client.read_exact(&mut [0; 4]).expect("a name");
    let stream = client.try_clone().expect("a clone");
    let ending = thread::spawn(move || {
        wait_for("no more connections", || TcpStream::connect(at).is_err());
        stream.shutdown(Shutdown::Write).expect("ended");
    });
    assert_eq!(proxy.proxy.drain(TIMEOUT), 0, "all streams ended in time");
    ending.join().expect("ended");
    let mut received = String::new();
    client.read_to_string(&mut received).expect("read");
    assert_eq!(received, "0 bytes");
    let mut other = to("web", &[named_backend("web")]);
    let mut client = connect(other.tcp_address(9000));
    client.read_exact(&mut [0; 4]).expect("a name");
    assert_eq!(
        other.proxy.drain(Duration::from_millis(50)),
        1,
        "one stream is still open"
    );
}

#[test]
fn a_stream_has_an_access_log_entry() {
    let file = std::env::temp_dir().join(format!("pointsman-streams-{}.log", std::process::id()));
    let mut options = options();
    options.access_log = Some(AccessLogOptions {
        format: AccessLogFormat::Json,
        file: Some(file.clone()),
    });
    let proxy = TestProxy::with(
        options,
        &(gateway(LISTENER)
            + &route("TCPRoute", "r", "tcp", "{name: web, port: 1000}")
            + &service("web", &[named_backend("web")])),
    );
    assert_eq!(
        send_and_read(proxy.tcp_address(9000), b"hello"),
        "web 5 bytes"
    );
    let text = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_for("a line", || text().ends_with('\n'));
    let line: serde_json::Value = serde_json::from_str(text().trim_end()).expect("json");
    let _ = std::fs::remove_file(&file);
    for (field, wanted) in [
        ("listener", "infra/edge/tcp"),
        ("protocol", "TCP"),
        ("route", "TCPRoute/infra/r"),
        ("backend", "Service/infra/web:1000"),
    ] {
        assert_eq!(line[field], wanted, "{line}");
    }
    assert_eq!(line["request_bytes"], 5);
    assert_eq!(line["response_bytes"], 11);
}
