//! Rejection of connections over a limit, with an HTTP response where possible.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pointsman_binding::bound::Protocol;
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use crate::downstream::Frontends;
use crate::io::lingering_close::lingering_close;
use crate::io::stream::split;
use crate::worker::Worker;

/// Response on HTTP listeners.
const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\n\
    connection: close\r\nx-pointsman-reason: TooManyConnections\r\n\r\ntoo many connections\n";

/// Maximum number of concurrent lingering closes; further connections are closed immediately. They count against the reserve of files.
const LINGERING: usize = 32;

/// Minimum interval between log messages about the same limit.
const SAID: Duration = Duration::from_secs(1);

/// Recently exceeded limits.
#[derive(Debug, Default)]
pub(crate) struct Overload {
    lingering: Cell<usize>,
    said: RefCell<Vec<Said>>,
}

/// A limit that was logged, and the number of times it was exceeded since.
#[derive(Debug)]
struct Said {
    limit: &'static str,
    at: Instant,
    unsaid: u64,
}

impl Overload {
    /// Counts an exceeded limit. If a log message is due, returns the count since the last one.
    pub(crate) fn due(&self, limit: &'static str) -> Option<u64> {
        let now = Instant::now();
        let mut all = self.said.borrow_mut();
        let Some(said) = all.iter_mut().find(|said| said.limit == limit) else {
            all.push(Said {
                limit,
                at: now,
                unsaid: 0,
            });
            return Some(1);
        };
        said.unsaid += 1;
        if now.duration_since(said.at) < SAID {
            return None;
        }
        said.at = now;
        Some(std::mem::take(&mut said.unsaid))
    }

    /// Counts and logs a connection rejected because of a limit.
    pub(crate) fn note(&self, limit: &'static str, client: SocketAddr) {
        if let Some(count) = self.due(limit) {
            tracing::warn!(limit, %client, count, "turned away: over the limit");
        }
    }
}

/// Counts a lingering close.
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

/// Closes a connection that exceeds the limit of this name.
pub(crate) fn turn_away(
    worker: &Rc<Worker>,
    frontends: &Frontends<'_>,
    stream: TcpStream,
    client: SocketAddr,
    limit: &'static str,
) {
    worker
        .metrics
        .count_refused_connection("TooManyConnections");
    worker.overload.note(limit, client);
    let http = frontends.protocol() == Some(Protocol::Http) && !frontends.requires_mesh_mtls();
    let Some(lingering) = Lingering::new(worker).filter(|_| http) else {
        return;
    };
    // The send buffer of a new socket always has room for this.
    if !matches!(stream.try_write(ANSWER), Ok(count) if count == ANSWER.len()) {
        return;
    }
    spawn_local(async move {
        let (mut reader, mut writer) = split(stream);
        lingering_close(&mut reader, &mut writer).await;
        drop(lingering);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_once_a_second_with_how_many_went_beyond_it() {
        let overload = Overload::default();
        assert_eq!(overload.due("headers"), Some(1));
        assert_eq!(overload.due("uri-bytes"), Some(1), "each has its own turn");
        assert_eq!(overload.due("headers"), None);
        assert_eq!(overload.due("headers"), None);
        for said in overload.said.borrow_mut().iter_mut() {
            said.at -= SAID;
        }
        assert_eq!(overload.due("headers"), Some(3));
    }
}
