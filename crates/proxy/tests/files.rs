//! No files left: accepting pauses and goes on when there are some again. Alone in its process, since the limit is the process's.

#![allow(clippy::disallowed_methods, reason = "tests wait, and not for ever")]

#[allow(dead_code, unused_imports, reason = "a part of it is used here")]
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
fn accepting_pauses_without_files_and_never_spins() {
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
    // All files are used up but one, which is a client's; those of connections before may be given back meanwhile.
    let (used, clients) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let errors = || proxy.metric("pointsman_accept_errors_total", "");
    wait_for("accepting fails", || {
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
    wait_for("it is tried again", || errors() >= before + 3);
    let (took, more) = (start.elapsed(), errors() - before);
    let most = took.as_millis() as u64 / 100 + 2;
    assert!(more <= most, "{more} tries in {took:?}: it does not pause");
    drop((used, clients));
    wait_for("it goes on", || {
        let mut received = Vec::new();
        let mut client = connect(proxy.tcp_address(9000));
        let told = client
            .write_all(b"y")
            .and_then(|()| client.shutdown(Shutdown::Write));
        let _ = told.and_then(|()| client.read_to_end(&mut received));
        received == b"web 1 bytes"
    });
}
