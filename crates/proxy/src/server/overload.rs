//! Refusal of connections beyond a limit: HTTP clients get a 503, all others are disconnected.

use std::net::SocketAddr;
use std::rc::Rc;

use pointsman_binding::bound::Protocol;
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use crate::downstream::Frontends;
use crate::io::lingering_close::lingering_close;
use crate::io::stream::split;
use crate::worker::Worker;

/// The response to HTTP clients.
const RESPONSE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\n\
    connection: close\r\nx-pointsman-reason: TooManyConnections\r\n\r\ntoo many connections\n";

/// Maximum number of refused connections in lingering close per worker; further ones are closed without a response. They use the reserved file descriptors.
const MAX_LINGERING: usize = 32;

/// A lingering connection, counted until dropped.
struct LingeringPermit(Rc<Worker>);

impl LingeringPermit {
    fn try_acquire(worker: &Rc<Worker>) -> Option<Self> {
        let lingering = &worker.lingering_refusals;
        if lingering.get() >= MAX_LINGERING {
            return None;
        }
        lingering.set(lingering.get() + 1);
        Some(LingeringPermit(worker.clone()))
    }
}

impl Drop for LingeringPermit {
    fn drop(&mut self) {
        let lingering = &self.0.lingering_refusals;
        lingering.set(lingering.get() - 1);
    }
}

/// Refuses a connection that exceeds a limit, and closes it.
pub(super) fn refuse_connection(
    worker: &Rc<Worker>,
    frontends: &Frontends<'_>,
    stream: TcpStream,
    client: SocketAddr,
    limit: &'static str,
) {
    worker
        .metrics
        .count_refused_connection("TooManyConnections");
    worker.limit_log.record_refusal(limit, client);
    let http = frontends.protocol() == Some(Protocol::Http) && !frontends.requires_mesh_mtls();
    let Some(permit) = LingeringPermit::try_acquire(worker).filter(|_| http) else {
        return;
    };
    // The send buffer of a new socket is large enough.
    if !matches!(stream.try_write(RESPONSE), Ok(count) if count == RESPONSE.len()) {
        return;
    }
    spawn_local(async move {
        let (mut reader, mut writer) = split(stream);
        lingering_close(&mut reader, &mut writer).await;
        drop(permit);
    });
}
