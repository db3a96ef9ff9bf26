//! Test of running out of file descriptors: accepting pauses and resumes. In a process of its own, because the limit is per process.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines")]

#[allow(dead_code, unused_imports, reason = "only a part is used here")]
#[path = "streams/support.rs"]
mod support;

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::*;

#[test]
fn accepting_pauses_without_files_and_does_not_spin() {
    let mut options = options();
    options.limits.connections = Some(1000);
    let proxy = TestProxy::with(
        options,
        &(gateway("{name: tcp, port: 9000, protocol: TCP}")
            + &route("TCPRoute", "r", "tcp", "{name: web, port: 1000}")
            + &service("web", &[named_backend("web")])),
    );
    assert_eq!(send_and_read(proxy.tcp_address(9000), b"x"), "web 1 bytes");
    let limit = Rlimit {
        current: Some(256),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).expect("a limit");
    // Uses up all files but one for a client; files of earlier connections may be freed meanwhile.
    let (used, clients) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let errors = || proxy.metric("pointsman_accept_errors_total", "");
    wait_for("accepting to fail", || {
        while let Ok(file) = File::open("/dev/null") {
            used.borrow_mut().push(file);
        }
        used.borrow_mut().pop();
        clients
            .borrow_mut()
            .extend(TcpStream::connect(proxy.tcp_address(9000)));
        errors() > 0
    });
    let (start, before) = (Instant::now(), errors());
    wait_for("further attempts", || errors() >= before + 3);
    let (elapsed, more) = (start.elapsed(), errors() - before);
    let max = elapsed.as_millis() as u64 / 100 + 2;
    assert!(
        more <= max,
        "{more} attempts in {elapsed:?} without a pause"
    );
    drop((used, clients));
    wait_for("accepting to resume", || {
        let mut received = Vec::new();
        let mut client = connect(proxy.tcp_address(9000));
        let sent = client
            .write_all(b"y")
            .and_then(|()| client.shutdown(Shutdown::Write));
        let _ = sent.and_then(|()| client.read_to_end(&mut received));
        received == b"web 1 bytes"
    });
}
