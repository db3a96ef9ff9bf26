//! A connection to an endpoint that speaks HTTP/1: one request at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::connect::{self, ConnectError};
use super::{SelectedEndpoint, Upstream};
use crate::http1::ResponseReader;
use crate::io::buffer::Buffer;
use crate::io::stream::{ReadHalf, WriteHalf, split, split_tls};
use crate::limits::Limits;
use crate::metrics::BackendSeries;
use crate::worker::{UpstreamFile, Worker};

/// A connection in use.
#[derive(Debug)]
pub(crate) struct Http1Connection {
    pub(crate) link: Box<PersistentConnection>,
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
pub(crate) struct PersistentConnection {
    pub(crate) reader: ReadHalf,
    pub(crate) writer: WriteHalf,
    pub(crate) responses: ResponseReader,
    settings_version: u64,
    _counted: ConnectionGuard,
}

/// Time after which a silent host is considered gone: 40 seconds, or `stall-time` if that is longer. A closed receive window counts as silence, and
/// `stall-time` is the time that a backend may take nothing of a request's body.
fn user_timeout(limits: &Limits) -> Duration {
    (connect::KEEPALIVE_IDLE * 2).max(limits.stall_time)
}

/// Counts an open connection. It knows the figures alone: a connection that waits in an upstream's pool must not keep that upstream.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    series: Arc<BackendSeries>,
    _file: UpstreamFile,
}

impl ConnectionGuard {
    /// One more is open.
    pub(crate) fn new(upstream: &Upstream, file: UpstreamFile) -> Self {
        upstream.series.open.increment();
        ConnectionGuard {
            series: upstream.series.clone(),
            _file: file,
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.series.open.decrement();
    }
}

impl Http1Connection {
    /// One that waits for work, else a new one.
    pub(crate) async fn acquire(
        worker: &Worker,
        selected: &SelectedEndpoint,
    ) -> Result<Http1Connection, ConnectError> {
        let upstream = selected.upstream();
        while let Some(idle) = upstream.pool.checkout(selected.address) {
            // Bytes that nobody asked for, or its end: it is of no use.
            if idle.settings_version == upstream.settings_version() && idle.reader.is_reusable() {
                return Ok(Http1Connection::new(worker, selected, idle, true));
            }
        }
        // Boxed: most requests find a connection and would pay for its room.
        Box::pin(Http1Connection::connect(worker, selected)).await
    }

    /// A new one.
    pub(crate) async fn connect(
        worker: &Worker,
        selected: &SelectedEndpoint,
    ) -> Result<Http1Connection, ConnectError> {
        let upstream = selected.upstream();
        let settings_version = upstream.settings_version();
        let tls = upstream.tls(worker).map_err(ConnectError::Fault)?;
        upstream.series.connects.increment();
        let file = UpstreamFile::new(worker);
        let connecting = async {
            let stream = connect::tcp(upstream, selected.address).await?;
            connect::set_keepalive(&stream)?;
            connect::set_user_timeout(&stream, Some(user_timeout(worker.limits())))?;
            Ok(match &tls {
                None => split(stream),
                Some(tls) => split_tls(connect::tls(stream, &tls.http1).await?),
            })
        };
        let connected = tokio::time::timeout(worker.limits().connect_time, connecting).await;
        let (reader, writer) = match connected.unwrap_or(Err(ConnectError::Timeout)) {
            Ok(halves) => halves,
            Err(error) => {
                upstream.series.failed_connects.increment();
                return Err(error);
            }
        };
        let link = Box::new(PersistentConnection {
            reader,
            writer,
            responses: ResponseReader::new(worker.limits().for_responses()),
            settings_version,
            _counted: ConnectionGuard::new(upstream, file),
        });
        Ok(Http1Connection::new(worker, selected, link, false))
    }

    fn new(
        worker: &Worker,
        selected: &SelectedEndpoint,
        link: Box<PersistentConnection>,
        reused: bool,
    ) -> Self {
        Http1Connection {
            link,
            buffer: worker.buffers.acquire(),
            out: Vec::with_capacity(512),
            reused,
            address: selected.address,
        }
    }

    /// Returns the connection to the pool if it may carry another request.
    pub(crate) fn release(mut self, worker: &Worker, upstream: &Upstream) {
        if self.link.settings_version != upstream.settings_version()
            || !self.link.responses.finish(self.buffer.filled())
            || worker.draining.is_notified()
        {
            return;
        }
        let max = worker.limits().backend_idle_connections;
        upstream.pool.checkin(self.address, self.link, max);
    }
}
