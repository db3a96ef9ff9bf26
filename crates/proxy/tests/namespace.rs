//! Tests of sockets in another network namespace.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines")]

#[allow(dead_code, unused_imports, reason = "only a part is used here")]
#[path = "streams/support.rs"]
mod support;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use pointsman_proxy::{NetworkNamespace, SocketFactory};
use support::*;

/// A thread in a network namespace of its own.
struct NamespaceThread {
    namespace: NetworkNamespace,
    work: Sender<Box<dyn FnOnce() + Send>>,
}

impl NamespaceThread {
    /// Creates a namespace with a loopback device. Errors state why that is impossible.
    fn new() -> Result<NamespaceThread, String> {
        let (work, todo) = channel::<Box<dyn FnOnce() + Send>>();
        let (ready, entered) = channel();
        thread::spawn(move || {
            let namespace = enter_new_namespace();
            let _ = ready.send(namespace);
            todo.iter().for_each(|work| work());
        });
        let namespace = entered.recv().expect("a thread")?;
        Ok(NamespaceThread { namespace, work })
    }

    /// Runs a function inside the namespace, in which threads that it starts run too.
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let work = move || drop(done.send(work()));
        self.work.send(Box::new(work)).expect("a running thread");
        result.recv().expect("a result")
    }
}

fn enter_new_namespace() -> Result<NetworkNamespace, String> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|error| format!("can't create a namespace: {error}"))?;
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    match up {
        Ok(status) if status.success() => {}
        other => return Err(format!("`ip link set lo up`: {other:?}")),
    }
    let own = NetworkNamespace::open(Path::new("/proc/thread-self/ns/net"));
    own.map_err(|error| error.to_string())
}

fn udp_echo() -> SocketAddr {
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = echo.local_addr().expect("an address");
    thread::spawn(move || {
        let mut buf = [0; 100];
        while let Ok((count, from)) = echo.recv_from(&mut buf) {
            let _ = echo.send_to(&buf[..count], from);
        }
    });
    address
}

fn send_and_receive_udp(at: SocketAddr) -> Vec<u8> {
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    client.send_to(b"hello", at).expect("sent");
    let mut buf = [0; 100];
    let (count, from) = client.recv_from(&mut buf).expect("a response");
    assert_eq!(from, at);
    buf[..count].to_vec()
}

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test explains why")]
fn all_sockets_are_created_in_the_namespace_of_their_factory() {
    let inside = match NamespaceThread::new() {
        Ok(inside) => inside,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let listeners =
        "{name: tcp, port: 9000, protocol: TCP}, {name: udp, port: 9001, protocol: UDP}";
    let manifests = gateway(listeners)
        + &route("TCPRoute", "t", "tcp", "{name: web, port: 1000}")
        + &route("UDPRoute", "u", "udp", "{name: echo, port: 1000}")
        + &service("web", &[inside.run(|| named_backend("web"))])
        + &udp_service("echo", &[inside.run(udp_echo)]);
    let mut options = options();
    options.sockets = SocketFactory::default().in_namespace(inside.namespace.clone());
    let proxy = TestProxy::with(options, &manifests);
    let (tcp, udp) = (proxy.tcp_address(9000), proxy.udp_address(9001));
    assert_eq!(inside.run(move || send_and_read(tcp, b"x")), "web 1 bytes");
    assert_eq!(inside.run(move || send_and_receive_udp(udp)), b"hello");
    let refused = TcpStream::connect(tcp).expect_err("no listener outside");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // The worker thread has returned to its own namespace.
    let outside = TestProxy::new(
        &(gateway("{name: tcp, port: 9000, protocol: TCP}")
            + &route("TCPRoute", "t", "tcp", "{name: web, port: 1000}")
            + &service("web", &[named_backend("outside")])),
    );
    assert_eq!(
        send_and_read(outside.tcp_address(9000), b"x"),
        "outside 1 bytes"
    );
}
