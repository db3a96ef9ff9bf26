//! New connections to endpoints.

use std::io;
use std::net::SocketAddr;

use pointsman_binding::bound::Fault;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::tls::BackendConfig;
use crate::wire::io::Prefixed;

/// Why there is no connection. Nothing of a request has left.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// It could not be reached.
    #[error("connecting: {0}")]
    Io(#[from] io::Error),
    /// It took too long.
    #[error("connecting took too long")]
    Elapsed,
    /// TLS was not agreed on.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// The other side does not speak what is needed.
    #[error("the endpoint did not agree to HTTP/2")]
    Protocol,
    /// It can't be spoken to at all.
    #[error("{}", .0.message)]
    Fault(Fault),
}

impl ConnectError {
    /// The same error, for another one who waited for the connection.
    pub(crate) fn again(&self) -> Self {
        let io = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        match self {
            ConnectError::Io(error) => ConnectError::Io(io(error)),
            ConnectError::Elapsed => ConnectError::Elapsed,
            ConnectError::Tls(error) => ConnectError::Tls(io(error)),
            ConnectError::Protocol => ConnectError::Protocol,
            ConnectError::Fault(fault) => ConnectError::Fault(fault.clone()),
        }
    }
}

/// A TCP connection.
pub(crate) async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Heads and small bodies leave when they are written; there is nothing to wait for.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// TLS over a connection.
pub(crate) async fn tls(
    stream: TcpStream,
    config: &BackendConfig,
) -> Result<TlsStream<Prefixed>, ConnectError> {
    let connector = TlsConnector::from(config.config.clone());
    let stream = Prefixed::new(Vec::new(), stream);
    let stream = connector
        .connect(config.server_name.clone(), stream)
        .await
        .map_err(ConnectError::Tls)?;
    Ok(TlsStream::Client(stream))
}
