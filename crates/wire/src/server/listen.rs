//! Accepts connections of proxies.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::peer::Peer;
use super::service::Server;
use crate::tls::{self, ServerTls};

/// Pause after a failure to accept: file descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Listens for proxies. Without TLS only loopback addresses are allowed.
pub fn bind(address: SocketAddr, has_tls: bool) -> io::Result<std::net::TcpListener> {
    if !has_tls && !address.ip().is_loopback() {
        let reason = "without TLS the address has to be a loopback address";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts connections until the task is cancelled.
pub async fn accept(
    listener: std::net::TcpListener,
    server: Arc<Server>,
    tls: Option<Arc<ServerTls>>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("a proxy's connection can't be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // If this fails, small messages are only slower.
        let _ = stream.set_nodelay(true);
        let (server, tls) = (server.clone(), tls.clone());
        tokio::spawn(async move {
            if let Err(error) = serve(stream, address, server, tls).await {
                tracing::debug!("{address}: {error}");
            }
        });
    }
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    server: Arc<Server>,
    tls: Option<Arc<ServerTls>>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut peer = Peer {
        address,
        identities: None,
        certificate_expires: None,
        token: None,
    };
    let Some(tls) = tls else {
        return Ok(server.serve(stream, peer).await?);
    };
    let handshake = timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream));
    let stream = match handshake.await? {
        Ok(stream) => stream,
        Err(error) => {
            server.count_handshake_failure();
            tracing::warn!("{address}: the TLS handshake failed: {error}");
            return Ok(());
        }
    };
    let (_, session) = stream.get_ref();
    let certificates = session.peer_certificates();
    peer.identities = certificates.map(|chain| tls::identities(chain).into());
    peer.certificate_expires = certificates
        .and_then(tls::time_to_expiry)
        .map(|left| Instant::now() + left);
    Ok(server.serve(stream, peer).await?)
}
