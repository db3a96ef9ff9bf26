//! HTTP/1 connections to endpoints.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connect::{self, ConnectError};
use super::{SelectedEndpoint, Upstream};
use crate::http1::ResponseReader;
use crate::io::buffer::Buffer;
use crate::io::stream::{ReadHalf, WriteHalf, split, split_tls};
use crate::limits::Limits;
use crate::metrics::BackendSeries;
use crate::worker::{UpstreamFile, Worker};

/// A connection used by a request.
#[derive(Debug)]
pub(crate) struct Http1Connection {
    pub(crate) persistent: Box<PersistentConnection>,
    /// Received bytes that were not consumed yet.
    pub(crate) buffer: Buffer,
    /// Bytes to be written.
    pub(crate) out: Vec<u8>,
    /// True if it has carried another request before, so that the endpoint may have closed it in the meantime.
    pub(crate) reused: bool,
}

/// The part of a connection that outlives a request. Its box moves between the pool and requests.
#[derive(Debug)]
pub(crate) struct PersistentConnection {
    pub(crate) reader: ReadHalf,
    pub(crate) writer: WriteHalf,
    pub(crate) responses: ResponseReader,
    settings_version: u64,
    _counted: ConnectionGuard,
}

/// Returns the time after which a silent host is considered gone: 40 seconds, or `stall-time` if that is longer. A closed receive window counts as silence, and
/// `stall-time` is the time for which a backend may stop reading a request body.
fn user_timeout(limits: &Limits) -> Duration {
    (connect::KEEPALIVE_IDLE * 2).max(limits.stall_time)
}

/// Counts an open connection until dropped. It holds only the metrics: a pooled connection must not keep its upstream alive.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    series: Arc<BackendSeries>,
    _file: UpstreamFile,
}

impl ConnectionGuard {
    /// Counts a connection.
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
    /// Takes an idle connection from the pool, or opens one.
    pub(crate) async fn acquire(
        worker: &Worker,
        selected: &SelectedEndpoint,
    ) -> Result<Http1Connection, ConnectError> {
        let upstream = selected.upstream();
        while let Some(idle) = upstream.pool.checkout(selected) {
            // Connections with unexpected bytes or a closed read side are dropped.
            if idle.settings_version == upstream.settings_version() && idle.reader.is_reusable() {
                return Ok(Http1Connection::new(worker, idle, true));
            }
        }
        // Boxed: most requests use an idle connection, and their futures would be larger.
        Box::pin(Http1Connection::connect(worker, selected)).await
    }

    /// Opens a connection.
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
            let stream = connect::tcp(&selected.sockets, selected.address).await?;
            connect::set_keepalive(&stream)?;
            connect::set_user_timeout(&stream, Some(user_timeout(worker.limits())))?;
            Ok(match &tls {
                None => split(stream),
                Some(tls) => split_tls(connect::tls(stream, &tls.http1).await?),
            })
        };
        let connected = tokio::time::timeout(worker.limits().connect_time, connecting).await;
        let (reader, writer) = connect::connect_result(upstream, connected)?;
        let persistent = Box::new(PersistentConnection {
            reader,
            writer,
            responses: ResponseReader::new(worker.limits().for_responses()),
            settings_version,
            _counted: ConnectionGuard::new(upstream, file),
        });
        Ok(Http1Connection::new(worker, persistent, false))
    }

    fn new(worker: &Worker, persistent: Box<PersistentConnection>, reused: bool) -> Self {
        Http1Connection {
            persistent,
            buffer: worker.buffers.acquire(),
            out: Vec::with_capacity(512),
            reused,
        }
    }

    /// Returns the connection to the pool at the time `now` if it may carry another request.
    pub(crate) fn release(mut self, worker: &Worker, selected: &SelectedEndpoint, now: Instant) {
        let upstream = selected.upstream();
        if self.persistent.settings_version != upstream.settings_version()
            || !self.persistent.responses.finish(self.buffer.filled())
            || worker.draining.is_notified()
        {
            return;
        }
        let max = worker.limits().backend_idle_connections;
        upstream.pool.checkin(selected, self.persistent, now, max);
    }
}
