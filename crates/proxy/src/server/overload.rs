//! Connections beyond the limit: they are told so where that can be said, and closed.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pointsman_binding::bound::Protocol;
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::accept::protocol;
use crate::wire::io::split;
use crate::wire::linger::linger;
use crate::worker::{Socket, Worker};

/// What is said where HTTP is spoken.
const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\n\
    connection: close\r\nx-pointsman-reason: TooManyConnections\r\n\r\ntoo many connections\n";

/// Connections that are closed with care at once; further ones are just closed. They count against the reserve of files.
const LINGERING: usize = 32;

/// How often it is said that there are too many.
const SAID: Duration = Duration::from_secs(1);

/// Who was turned away of late.
#[derive(Debug, Default)]
pub(crate) struct Overload {
    lingering: Cell<usize>,
    said: Cell<Option<Instant>>,
    unsaid: Cell<u64>,
}

impl Overload {
    /// One more was turned away because of a limit. It is said once a second.
    pub(crate) fn note(&self, limit: &'static str, client: SocketAddr) {
        let now = Instant::now();
        let count = self.unsaid.get() + 1;
        let lately = |at: Instant| now.duration_since(at) < SAID;
        if self.said.get().is_some_and(lately) {
            return self.unsaid.set(count);
        }
        self.said.set(Some(now));
        self.unsaid.set(0);
        tracing::warn!(limit, %client, count, "turned away: over the limit");
    }
}

/// Counts those that linger.
struct Lingering(Rc<Worker>);

impl Lingering {
    fn new(worker: &Rc<Worker>) -> Option<Self> {
        let lingering = &worker.overload.lingering;
        if lingering.get() >= LINGERING {
            return None;
        }
        lingering.set(lingering.get() + 1);
        Some(Lingering(worker.clone()))
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let lingering = &self.0.overload.lingering;
        lingering.set(lingering.get() - 1);
    }
}

/// Closes a connection that is one too many.
pub(crate) fn turn_away(
    worker: &Rc<Worker>,
    socket: &Socket,
    stream: TcpStream,
    client: SocketAddr,
) {
    worker.metrics.refused("TooManyConnections");
    worker.overload.note("connections", client);
    let http = protocol(worker, socket, client) == Some(Protocol::Http);
    let Some(lingering) = Lingering::new(worker).filter(|_| http) else {
        return;
    };
    // A new socket has room for so little.
    if !matches!(stream.try_write(ANSWER), Ok(count) if count == ANSWER.len()) {
        return;
    }
    spawn_local(async move {
        let (mut reader, mut writer) = split(stream);
        linger(&mut reader, &mut writer).await;
        drop(lingering);
    });
}
