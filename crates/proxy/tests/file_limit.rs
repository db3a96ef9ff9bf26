//! Test of more idle connections than the process may have files. The proxy is alone in its process: clients and the backend run in another one, which has a
//! limit of its own.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines")]

#[allow(dead_code, unused_imports, reason = "only a part is used here")]
#[path = "streams/support.rs"]
mod support;

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::*;

const NAME: &str = "an_ordinary_client_loses_no_request_to_idle_connections";

/// Set in the process of the clients, to the address at which the test controls it.
const CONTROL: &str = "POINTSMAN_TEST_CONTROL";

/// File descriptors that the proxy may have.
const FILES: u64 = 2000;

/// Idle connections; more than fit.
const IDLE: usize = 2400;

#[test]
fn an_ordinary_client_loses_no_request_to_idle_connections() {
    if let Ok(control) = env::var(CONTROL) {
        return run_clients(&control);
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let control = listener.local_addr().expect("an address").to_string();
    let clients = Command::new(env::current_exe().expect("this test"))
        .args(["--exact", NAME])
        .env(CONTROL, control)
        .stdout(Stdio::null())
        .spawn();
    let mut clients = clients.expect("a process for the clients");
    let (control, _) = listener.accept().expect("the clients");
    let mut control = BufReader::new(with_timeouts(control));
    let backend = read_line(&mut control).parse().expect("an address");

    let limit = Rlimit {
        current: Some(FILES),
        maximum: Some(FILES),
    };
    setrlimit(Resource::Nofile, limit).expect("a limit");
    let mut options = options();
    options.workers = Some(2);
    let manifests = gateway("{name: http, port: 80, protocol: HTTP}")
        + &route("HTTPRoute", "h", "http", "{name: web, port: 1000}")
        + &service("web", &[backend]);
    let proxy = TestProxy::with(options, &manifests);
    writeln!(control.get_mut(), "{}", proxy.tcp_address(80)).expect("sent");

    assert_eq!(read_line(&mut control), "only 200");
    assert_eq!(proxy.metric("pointsman_connections_refused_total", ""), 0);
    assert_eq!(proxy.metric("pointsman_accept_errors_total", ""), 0);
    assert!(proxy.metric("pointsman_idle_connections_closed_total", "") >= IDLE as u64 - FILES);
    drop(control);
    assert!(clients.wait().expect("an exit status").success());
}

fn read_line(control: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    control.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

/// Runs a backend, opens the idle connections, and sends the requests of ordinary clients. Reports the first response that is not 200.
fn run_clients(control: &str) {
    let unlimited = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: unlimited.maximum,
        ..unlimited
    };
    setrlimit(Resource::Nofile, raised).expect("a limit");
    let control = TcpStream::connect(control).expect("the test");
    let mut control = BufReader::new(with_timeouts(control));
    writeln!(control.get_mut(), "{}", http_backend()).expect("sent");
    let proxy: SocketAddr = read_line(&mut control).parse().expect("an address");

    let mut idle = Vec::new();
    for number in 0..IDLE {
        let mut stream = connect(proxy);
        if number % 2 == 0 {
            assert_eq!(status(&mut stream), "200");
        }
        idle.push(stream);
    }
    // Several at once, so that upstream connections are opened too.
    let clients = (0..8).map(|_| thread::spawn(move || ordinary_client(proxy)));
    let clients: Vec<_> = clients.collect();
    let failed = clients
        .into_iter()
        .find_map(|client| client.join().expect("a client").err());
    let result = failed.unwrap_or_else(|| "only 200".to_owned());
    writeln!(control.get_mut(), "{result}").expect("sent");
    // The idle connections stay open until the test ends.
    let _ = control.read(&mut [0]);
    drop(idle);
}

/// Sends requests on new connections and on one that is kept.
fn ordinary_client(proxy: SocketAddr) -> Result<(), String> {
    let mut kept = connect(proxy);
    for _ in 0..100 {
        let statuses = [status(&mut connect(proxy)), status(&mut kept)];
        if statuses != ["200", "200"] {
            return Err(format!("{statuses:?}"));
        }
    }
    Ok(())
}

/// Sends a request. Returns the status of the response.
fn status(stream: &mut TcpStream) -> String {
    let (mut received, mut byte) = (Vec::new(), [0]);
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    while sent.is_ok() && !received.ends_with(b"\r\n\r\nok") {
        match stream.read(&mut byte) {
            Ok(1) => received.push(byte[0]),
            _ => break,
        }
    }
    let received = String::from_utf8_lossy(&received);
    received.split(' ').nth(1).unwrap_or("none").to_owned()
}

fn http_backend() -> SocketAddr {
    backend(|mut stream| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while stream.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
            if head.ends_with(b"\r\n\r\n") {
                head.clear();
                let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                if stream.write_all(response).is_err() {
                    return;
                }
            }
        }
    })
}
