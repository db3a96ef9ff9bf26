//! Signals and the shutdown of `run`.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use crate::support::*;

fn running() -> Running {
    let text = join(&[CLASS, &gateway("edge", free_port()), &route("one", "/one")]);
    Running::start(&[("all.yaml", &text)])
}

#[test]
fn it_ends_with_0_when_nothing_is_left() {
    for signal in ["TERM", "INT"] {
        let mut running = running();
        running.signal(signal);
        assert_eq!(running.exit(), Some(0), "{}", running.log());
    }
}

#[test]
fn sighup_does_not_stop_the_process() {
    let mut running = running();
    running.signal("HUP");
    until("it says so", || {
        running.log().contains("reloading all files").then_some(())
    });
    assert_eq!(running.get("/readyz").0, 200);
    running.signal("TERM");
    assert_eq!(running.exit(), Some(0));
}

/// Starts a process with a backend that never responds, and a client that waits for a response.
fn busy(drain: &str) -> (Running, TcpStream, TcpStream) {
    let backend = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = backend.local_addr().expect("an address").port();
    let to = "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: to, namespace: infra}, spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: slow, port: 80}]}]}}\n";
    let service = "{apiVersion: v1, kind: Service, metadata: {name: slow, namespace: infra}, spec: {ports: [{port: 80}]}}\n";
    let slice = format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{name: slow, namespace: infra, labels: {{kubernetes.io/service-name: slow}}}}, ports: [{{port: {port}}}], endpoints: [{{addresses: [127.0.0.1]}}]}}\n"
    );
    let text = join(&[CLASS, &gateway("edge", free_port()), to, service, &slice]);
    let arguments = ["--address-pool", &pool(), "--drain", drain];
    let running = Running::with(&[("all.yaml", &text)], &arguments);
    let line = running.lines.first().expect("a line");
    let address = line.rsplit(' ').next().expect("an address");
    let mut client = TcpStream::connect(address).expect("a connection");
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    let (held, _) = backend.accept().expect("a connection");
    (running, client, held)
}

#[test]
fn the_exit_status_reports_connections_closed_at_the_end_of_the_drain_period() {
    let (mut running, _client, _held) = busy("2s");
    running.signal("TERM");
    // The process is not ready while it shuts down; it may also have exited before this request.
    until("not ready", || {
        (running.is_ready() != Some(true)).then_some(())
    });
    assert_eq!(running.exit(), Some(1), "{}", running.log());
}

#[test]
fn a_second_signal_exits_immediately() {
    let (mut running, _client, _held) = busy("1h");
    running.signal("TERM");
    until("not ready", || {
        (running.is_ready() == Some(false)).then_some(())
    });
    running.signal("TERM");
    assert_eq!(running.exit(), Some(1), "{}", running.log());
}
