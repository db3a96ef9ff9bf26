//! Connections to endpoints.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use pointsman_binding::bound::{Fault, FaultReason};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio_rustls::{TlsConnector, TlsStream};

use super::{SelectedEndpoint, Upstream};
use crate::io::stream::{PrefixedStream, ReadHalf, WriteHalf, split, split_tls};
use crate::sockets::SocketFactory;
use crate::tls::BackendConfig;
use crate::worker::Worker;

/// Reason why a connection could not be opened. Nothing of a request was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("connecting: {0}")]
    Io(#[from] io::Error),
    /// The connect timeout elapsed.
    #[error("connect timeout")]
    Timeout,
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// The endpoint does not support the required protocol.
    #[error("the endpoint did not negotiate HTTP/2")]
    Protocol,
    /// The backend's settings are invalid.
    #[error("{}", .0.message)]
    Fault(Fault),
}

impl ConnectError {
    /// Returns the reason for logs and responses.
    pub(crate) fn fault_reason(&self) -> FaultReason {
        match self {
            ConnectError::Io(_) => FaultReason::ConnectFailed,
            ConnectError::Timeout => FaultReason::ConnectTimeout,
            ConnectError::Tls(_) => FaultReason::TlsFailed,
            ConnectError::Protocol => FaultReason::ProtocolMismatch,
            ConnectError::Fault(fault) => fault.reason,
        }
    }

    /// Copies the error for another waiter of the same connection.
    pub(crate) fn duplicate(&self) -> Self {
        let io = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        match self {
            ConnectError::Io(error) => ConnectError::Io(io(error)),
            ConnectError::Timeout => ConnectError::Timeout,
            ConnectError::Tls(error) => ConnectError::Tls(io(error)),
            ConnectError::Protocol => ConnectError::Protocol,
            ConnectError::Fault(fault) => ConnectError::Fault(fault.clone()),
        }
    }
}

/// Connects to an endpoint over TCP.
pub(crate) async fn tcp(sockets: &SocketFactory, address: SocketAddr) -> io::Result<TcpStream> {
    let stream = sockets.connect(address).await?;
    // Headers and small bodies are written at once, so Nagle's algorithm would only delay them.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Idle time after which the kernel probes whether the peer's host is still reachable.
pub(super) const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);

/// Interval between keepalive probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Unanswered probes after which the host is considered gone.
const PROBES: u32 = 4;

/// Enables TCP keepalive: a host that vanishes without closing its connections is detected although nothing is sent to it.
pub(super) fn set_keepalive(stream: &TcpStream) -> io::Result<()> {
    let probes = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(PROBE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&probes.with_retries(PROBES))
}

/// Sets `TCP_USER_TIMEOUT`, the time that sent data may stay unacknowledged. Linux applies it also to keepalive probes and to a peer whose receive
/// window stays closed. None lifts the limit.
pub(crate) fn set_user_timeout(stream: &TcpStream, time: Option<Duration>) -> io::Result<()> {
    SockRef::from(stream).set_tcp_user_timeout(time)
}

/// Opens a connection for a stream, with TLS if it is configured for the backend.
pub(crate) async fn byte_stream(
    worker: &Worker,
    selected: &SelectedEndpoint,
) -> Result<(ReadHalf, WriteHalf), ConnectError> {
    let upstream = selected.upstream();
    let settings = upstream.tls(worker).map_err(ConnectError::Fault)?;
    upstream.series.connects.increment();
    let connecting = async {
        let stream = tcp(&selected.sockets, selected.address).await?;
        set_keepalive(&stream)?;
        Ok(match &settings {
            None => split(stream),
            Some(settings) => split_tls(tls(stream, &settings.bytes).await?),
        })
    };
    let connected = tokio::time::timeout(worker.limits().connect_time, connecting).await;
    connect_result(upstream, connected)
}

/// Flattens the result of a connection attempt with a timeout, and counts a failure.
pub(super) fn connect_result<T>(
    upstream: &Upstream,
    result: Result<Result<T, ConnectError>, Elapsed>,
) -> Result<T, ConnectError> {
    let result = result.unwrap_or(Err(ConnectError::Timeout));
    if result.is_err() {
        upstream.series.failed_connects.increment();
    }
    result
}

/// Performs the TLS handshake.
pub(crate) async fn tls(
    stream: TcpStream,
    config: &BackendConfig,
) -> Result<TlsStream<PrefixedStream>, ConnectError> {
    let connector = TlsConnector::from(config.config.clone());
    let stream = PrefixedStream::new(Vec::new(), stream);
    let stream = connector
        .connect(config.server_name.clone(), stream)
        .await
        .map_err(ConnectError::Tls)?;
    Ok(TlsStream::Client(stream))
}
