//! Tests of UDPRoutes: sessions, their ends, and the source addresses of replies.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;
use pointsman_resources::Kind;

const LISTENER: &str = "{name: udp, port: 53, protocol: UDP}";

/// Starts a backend that replies with its name, the sender's port and the datagram.
fn echo(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    thread::spawn(move || {
        let mut buf = [0; 65_536];
        while let Ok((count, from)) = socket.recv_from(&mut buf) {
            let mut answer = format!("{name} {} ", from.port()).into_bytes();
            answer.extend(&buf[..count]);
            let _ = socket.send_to(&answer, from);
        }
    });
    address
}

fn client() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout");
    socket
}

/// Sends a question until its reply arrives, because datagrams may be lost. Returns the backend, the session's port, and the question.
fn send_and_read(client: &UdpSocket, at: SocketAddr, question: &str) -> [String; 3] {
    let end = Instant::now() + TIMEOUT;
    let mut buf = [0; 65_536];
    while Instant::now() < end {
        client.send_to(question.as_bytes(), at).expect("sent");
        while let Ok((count, from)) = client.recv_from(&mut buf) {
            assert_eq!(from, at, "replies come from the queried address");
            let text = String::from_utf8_lossy(&buf[..count]).into_owned();
            let mut words = text.splitn(3, ' ').map(str::to_owned);
            let words: [String; 3] = std::array::from_fn(|_| words.next().expect("three words"));
            if words[2] == question {
                return words;
            }
        }
    }
    panic!("no reply to {question}");
}

fn proxy(backends: &str, services: &str) -> TestProxy {
    TestProxy::new(&(gateway(LISTENER) + &route("UDPRoute", "r", "udp", backends) + services))
}

#[test]
fn each_client_has_a_session_and_gets_its_own_replies() {
    let proxy = proxy(
        "{name: dns, port: 1000}",
        &udp_service("dns", &[echo("dns")]),
    );
    let at = proxy.udp_address(53);
    let (one, other) = (client(), client());
    let [name, first, _] = send_and_read(&one, at, "a");
    assert_eq!(name, "dns");
    let [_, second, _] = send_and_read(&other, at, "b");
    assert_ne!(first, second, "each session has a socket of its own");
    let [_, again, _] = send_and_read(&one, at, "c");
    assert_eq!(first, again, "a session keeps its socket");
    // The longest datagram in IPv4, less what the reply adds.
    let long = "x".repeat(65_000);
    send_and_read(&one, at, &long);
    let labels = "listener=\"udp\"";
    assert_eq!(
        proxy.metric("pointsman_listener_open_connections", labels),
        2
    );
    assert_eq!(
        proxy.metric("pointsman_listener_connections_total", labels),
        2
    );
}

#[test]
fn weights_count_sessions() {
    let services = udp_service("a", &[echo("a")]) + &udp_service("b", &[echo("b")]);
    let proxy = proxy(
        "{name: a, port: 1000, weight: 1}, {name: b, port: 1000, weight: 2}",
        &services,
    );
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..12 {
        let client = client();
        let [name, ..] = send_and_read(&client, proxy.udp_address(53), "who");
        *counts.entry(name).or_default() += 1;
    }
    assert_eq!(counts, [("a".to_owned(), 4), ("b".to_owned(), 8)].into());
}

#[test]
fn an_idle_session_ends_and_the_next_datagram_begins_another() {
    let mut options = options();
    options.limits.udp_idle_time = Duration::from_millis(200);
    let proxy = TestProxy::with(
        options,
        &(gateway(LISTENER)
            + &route("UDPRoute", "r", "udp", "{name: dns, port: 1000}")
            + &udp_service("dns", &[echo("dns")])),
    );
    let client = client();
    send_and_read(&client, proxy.udp_address(53), "a");
    let labels = "listener=\"udp\"";
    proxy.wait_for_metric("pointsman_listener_open_connections", labels, 0);
    send_and_read(&client, proxy.udp_address(53), "b");
    assert!(proxy.metric("pointsman_listener_connections_total", labels) >= 2);
    proxy.wait_for_metric("pointsman_listener_open_connections", labels, 0);
    assert!(proxy.metric("pointsman_listener_request_bytes_total", labels) >= 2);
    assert!(proxy.metric("pointsman_backend_response_bytes_total", "name=\"dns\"") >= 16);
}

#[test]
fn datagrams_beyond_the_session_limit_are_dropped() {
    let mut options = options();
    options.limits.udp_sessions = 3;
    let proxy = TestProxy::with(
        options,
        &(gateway(LISTENER)
            + &route("UDPRoute", "r", "udp", "{name: dns, port: 1000}")
            + &udp_service("dns", &[echo("dns")])),
    );
    let clients: Vec<UdpSocket> = (0..3).map(|_| client()).collect();
    for client in &clients {
        send_and_read(client, proxy.udp_address(53), "in");
    }
    client()
        .send_to(b"out", proxy.udp_address(53))
        .expect("sent");
    proxy.wait_for_metric(
        "pointsman_connections_refused_total",
        "reason=\"TooManySessions\"",
        1,
    );
    for client in &clients {
        send_and_read(client, proxy.udp_address(53), "still in");
    }
}

#[test]
fn sessions_follow_changes() {
    let (first, second) = (echo("first"), echo("second"));
    let mut proxy = proxy("{name: dns, port: 1000}", &udp_service("dns", &[first]));
    let client = client();
    let [name, port, _] = send_and_read(&client, proxy.udp_address(53), "a");
    assert_eq!(name, "first");
    // An unrelated change does not affect the session.
    proxy.apply(&udp_service("other", &[second]));
    let [name, same, _] = send_and_read(&client, proxy.udp_address(53), "b");
    assert_eq!((name.as_str(), same), ("first", port));
    proxy.apply(&udp_service("dns", &[second]));
    let [name, ..] = send_and_read(&client, proxy.udp_address(53), "c");
    assert_eq!(name, "second");
    proxy.delete(Kind::UDPRoute, "infra", "r");
    client.send_to(b"d", proxy.udp_address(53)).expect("sent");
    wait_for("the session to be refused", || {
        proxy.metric("pointsman_connections_refused_total", "reason=\"NoRoute\"") > 0
    });
    proxy.wait_for_metric("pointsman_listener_open_connections", "listener=\"udp\"", 0);
}

#[test]
fn a_session_leaves_an_endpoint_that_is_unreachable() {
    // The kernel reports the closed port, which ends the session.
    let closed_port = UdpSocket::bind((address(), 0));
    let closed_port = closed_port
        .and_then(|socket| socket.local_addr())
        .expect("a port");
    let proxy = proxy(
        "{name: dns, port: 1000}",
        &udp_service("dns", &[closed_port, echo("dns")]),
    );
    let client = client();
    let [name, ..] = send_and_read(&client, proxy.udp_address(53), "a");
    assert_eq!(name, "dns");
}

#[test]
fn a_drain_waits_for_a_reply_and_no_longer() {
    let slow = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = slow.local_addr().expect("an address");
    slow.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut proxy = proxy("{name: dns, port: 1000}", &udp_service("dns", &[address]));
    let client = client();
    client.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    client
        .send_to(b"question", proxy.udp_address(53))
        .expect("sent");
    let mut buf = [0; 100];
    let (_, from) = slow.recv_from(&mut buf).expect("a question");
    let answering = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        slow.send_to(b"answer", from).expect("sent");
    });
    let start = Instant::now();
    assert_eq!(proxy.proxy.drain(TIMEOUT), 0);
    assert!(start.elapsed() < TIMEOUT / 2);
    answering.join().expect("answered");
    let (count, _) = client.recv_from(&mut buf).expect("a response");
    assert_eq!(&buf[..count], b"answer");
}
