//! A connection to an endpoint that speaks HTTP/1: one request at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::connect::{self, ConnectError};
use super::{Pick, Upstream};
use crate::http1::ResponseReader;
use crate::io::buffer::Buffer;
use crate::io::stream::{ReadHalf, WriteHalf, split, split_tls};
use crate::limits::Limits;
use crate::metrics::BackendSeries;
use crate::worker::{UpstreamFile, Worker};

/// A connection in use.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) link: Box<Link>,
    /// What came and is not done with.
    pub(crate) buffer: Buffer,
    /// What waits to be written.
    pub(crate) out: Vec<u8>,
    /// It has carried a request before, so the endpoint may have closed it meanwhile.
    pub(crate) reused: bool,
    address: SocketAddr,
}

/// The part of a connection that outlives a request. Its box moves from the pool to a request and back.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) reader: ReadHalf,
    pub(crate) writer: WriteHalf,
    pub(crate) responses: ResponseReader,
    terms: u64,
    _counted: Counted,
}

/// Time after which a silent host is considered gone: 40 seconds, or `stall-time` if that is longer. A closed receive window counts as silence, and
/// `stall-time` is the time that a backend may take nothing of a request's body.
fn user_timeout(limits: &Limits) -> Duration {
    (connect::SILENCE * 2).max(limits.stall_time)
}

/// Counts an open connection. It knows the figures alone: a connection that waits in an upstream's pool must not keep that upstream.
#[derive(Debug)]
pub(crate) struct Counted {
    series: Arc<BackendSeries>,
    _file: UpstreamFile,
}

impl Counted {
    /// One more is open.
    pub(crate) fn new(upstream: &Upstream, file: UpstreamFile) -> Self {
        upstream.series.open.increment();
        Counted {
            series: upstream.series.clone(),
            _file: file,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.series.open.decrement();
    }
}

impl Connection {
    /// One that waits for work, else a new one.
    pub(crate) async fn open(worker: &Worker, pick: &Pick) -> Result<Connection, ConnectError> {
        let upstream = pick.upstream();
        while let Some(idle) = upstream.pool.take(pick.address) {
            // Bytes that nobody asked for, or its end: it is of no use.
            if idle.terms == upstream.terms() && idle.reader.is_reusable() {
                return Ok(Connection::new(worker, pick, idle, true));
            }
        }
        // Boxed: most requests find a connection and would pay for its room.
        Box::pin(Connection::fresh(worker, pick)).await
    }

    /// A new one.
    pub(crate) async fn fresh(worker: &Worker, pick: &Pick) -> Result<Connection, ConnectError> {
        let upstream = pick.upstream();
        let terms = upstream.terms();
        let tls = upstream.tls(worker).map_err(ConnectError::Fault)?;
        upstream.series.connects.increment();
        let file = UpstreamFile::new(worker);
        let connecting = async {
            let stream = connect::tcp(upstream, pick.address).await?;
            connect::keepalive(&stream)?;
            connect::user_timeout(&stream, Some(user_timeout(worker.limits())))?;
            Ok(match &tls {
                None => split(stream),
                Some(tls) => split_tls(connect::tls(stream, &tls.http1).await?),
            })
        };
        let connected = tokio::time::timeout(worker.limits().connect_time, connecting).await;
        let (reader, writer) = match connected.unwrap_or(Err(ConnectError::Elapsed)) {
            Ok(halves) => halves,
            Err(error) => {
                upstream.series.failed_connects.increment();
                return Err(error);
            }
        };
        let link = Box::new(Link {
            reader,
            writer,
            responses: ResponseReader::new(worker.limits().of_responses()),
            terms,
            _counted: Counted::new(upstream, file),
        });
        Ok(Connection::new(worker, pick, link, false))
    }

    fn new(worker: &Worker, pick: &Pick, link: Box<Link>, reused: bool) -> Self {
        Connection {
            link,
            buffer: worker.buffers.acquire(),
            out: Vec::with_capacity(512),
            reused,
            address: pick.address,
        }
    }

    /// Returns the connection to the pool if it may carry another request.
    pub(crate) fn keep(mut self, worker: &Worker, upstream: &Upstream) {
        if self.link.terms != upstream.terms()
            || !self.link.responses.finish(self.buffer.filled())
            || worker.draining.is_notified()
        {
            return;
        }
        let most = worker.limits().backend_idle_connections;
        upstream.pool.put(self.address, self.link, most);
    }
}
