//! Accepts connections of proxies.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::service::{Peer, Server};

/// Pause after a failure to accept: file descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens for proxies. Plaintext is allowed on loopback only.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    if !address.ip().is_loopback() {
        let why = "without TLS the address has to be a loopback address";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts connections for ever.
pub async fn accept(listener: std::net::TcpListener, server: Arc<Server>) -> io::Result<()> {
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
        let server = server.clone();
        tokio::spawn(async move {
            // Failing that, messages are slower.
            let _ = stream.set_nodelay(true);
            let identities = None;
            if let Err(error) = server
                .serve(
                    stream,
                    Peer {
                        address,
                        identities,
                    },
                )
                .await
            {
                tracing::debug!("{address}: {error}");
            }
        });
    }
}
