//! Connections of load balancers, which begin with a header of the PROXY protocol. Only the header is consumed, so that the connection continues as if the
//! client had opened it.
//!
//! Only the address of the peer determines whether a header is expected ("the receiver MUST be configured to only receive the protocol described in this
//! specification and MUST not try to guess whether the protocol header is present or not"). A client outside the configured ranges can't claim another address:
//! its header is treated as a malformed request.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use tokio::io::{AsyncReadExt, ReadBuf};
use tokio::net::TcpStream;

use super::accept::start_task;
use crate::downstream::run_until_closed;
use crate::io::deadline::DeadlineTimer;
use crate::io::stream::has_nothing_to_read;
use crate::limits::limit_name;
use crate::proxy_protocol::{MAX_READ, ProxyHeader, ProxyHeaderError, read};
use crate::worker::{Admission, Socket, Worker};

/// Returns whether a peer has to send a header.
pub(super) fn is_expected(worker: &Worker, peer: SocketAddr) -> bool {
    let ranges = &worker.shared.options.proxy_protocol;
    ranges.iter().any(|range| range.contains(peer.ip()))
}

/// Reads the header and serves the connection for the client that it names.
pub(super) async fn serve(
    worker: Rc<Worker>,
    socket: Rc<Socket>,
    mut stream: TcpStream,
    peer: SocketAddr,
    admission: Admission,
) {
    let deadline = Instant::now() + worker.limits().head_time;
    let mut timer = DeadlineTimer::new();
    let header = header(&socket, &mut stream, &admission);
    let header = run_until_closed(&socket.closed, &mut timer, deadline, header).await;
    let error = match header {
        Ok(Ok(Some(header))) => {
            let client = header.source.unwrap_or(peer);
            return start_task(&worker, &socket, stream, client, admission).await;
        }
        // Nothing was sent: a health check, or the listener was closed.
        Ok(Ok(None)) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!(
            "the PROXY protocol header took too long (limit {})",
            limit_name::head_time
        ),
    };
    worker.metrics.count_refused_connection("ProxyProtocol");
    if let Some(count) = worker.limit_log.due("proxy-protocol") {
        tracing::warn!(%peer, count, "connection closed: {error}");
    }
}

/// Reads and consumes a header. Returns `None` if the peer sends nothing.
async fn header(
    socket: &Socket,
    stream: &mut TcpStream,
    admission: &Admission,
) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let mut bytes = [0; MAX_READ];
    let mut filled = 0;
    loop {
        let count = match filled {
            0 => first_bytes(socket, stream, admission, &mut bytes).await,
            _ => stream.peek(&mut bytes[filled..]).await.unwrap_or(0),
        };
        if count == 0 {
            return match filled {
                0 => Ok(None),
                _ => Err(ProxyHeaderError::Incomplete),
            };
        }
        let available = filled + count;
        let (parsed, consumed) = match read(&bytes[..available]) {
            Ok(header) => (Some(header), header.len),
            Err(ProxyHeaderError::Incomplete) => (None, available),
            Err(error) => return Err(error),
        };
        skip(stream, consumed - filled).await?;
        if parsed.is_some() {
            return Ok(parsed);
        }
        filled = available;
    }
}

/// Waits for the first bytes, and returns their number without consuming them; 0 if the connection ends. Meanwhile the connection counts as idle.
async fn first_bytes(
    socket: &Socket,
    stream: &TcpStream,
    admission: &Admission,
    bytes: &mut [u8],
) -> usize {
    let mut closed = socket.closed.waiter();
    let count = poll_fn(|cx| match stream.poll_peek(cx, &mut ReadBuf::new(bytes)) {
        Poll::Ready(count) => Poll::Ready(count.unwrap_or(0)),
        Poll::Pending if admission.poll_idle(cx).is_ready() && has_nothing_to_read(stream) => {
            Poll::Ready(0)
        }
        Poll::Pending => closed.poll(cx).map(|()| 0),
    })
    .await;
    admission.set_busy();
    count
}

/// Consumes this number of bytes, which is the length of the header.
async fn skip(stream: &mut TcpStream, mut count: usize) -> Result<(), ProxyHeaderError> {
    let mut bytes = [0; 256];
    while count > 0 {
        let next = count.min(bytes.len());
        match stream.read(&mut bytes[..next]).await {
            Ok(read @ 1..) => count -= read,
            _ => return Err(ProxyHeaderError::Incomplete),
        }
    }
    Ok(())
}
