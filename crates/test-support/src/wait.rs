//! Waiting for what another thread or process does.

use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Limit of all waits. It is reached only in failing tests.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Repeats a function until it returns a value.
#[allow(clippy::disallowed_methods, reason = "a test waits in real time")]
pub fn until<T>(event: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < end, "not within {TIMEOUT:?}: {event}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a port of the loopback interface that was unused a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
