//! TLS clients with a given SNI, and certificates.

use std::net::SocketAddr;
use std::sync::Arc;

pub use pointsman_test_support::certificates::{Authority, TestCertificate};
use pointsman_test_support::tls::client;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::http1::Stream;
use super::within;

/// Settings of a client's handshake.
#[derive(Clone, Copy)]
pub struct Handshake<'a> {
    pub trusts: &'a Authority,
    pub sni: &'a str,
    pub alpn: &'a [&'a str],
    pub identity: Option<&'a TestCertificate>,
    pub versions: &'a [&'static rustls::SupportedProtocolVersion],
}

impl<'a> Handshake<'a> {
    pub fn new(trusts: &'a Authority, sni: &'a str) -> Handshake<'a> {
        Handshake {
            trusts,
            sni,
            alpn: &[],
            identity: None,
            versions: rustls::ALL_VERSIONS,
        }
    }

    pub fn alpn(self, alpn: &'a [&'a str]) -> Self {
        Handshake { alpn, ..self }
    }

    pub fn identity(self, identity: &'a TestCertificate) -> Self {
        Handshake {
            identity: Some(identity),
            ..self
        }
    }

    pub fn versions(self, versions: &'a [&'static rustls::SupportedProtocolVersion]) -> Self {
        Handshake { versions, ..self }
    }

    /// Performs the handshake over a new connection.
    pub async fn try_connect(self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        self.try_over(TcpStream::connect(address).await?).await
    }

    /// Performs the handshake over a connection.
    pub async fn try_over<S: Stream>(self, stream: S) -> std::io::Result<TlsStream<S>> {
        let config = client(Some(self.trusts), self.identity, self.alpn, self.versions);
        shake(config, self.sni, stream).await
    }

    pub async fn connect(self, address: SocketAddr) -> TlsStream<TcpStream> {
        self.try_connect(address).await.expect("a TLS handshake")
    }
}

async fn shake<S: Stream>(
    config: Arc<ClientConfig>,
    name: &str,
    stream: S,
) -> std::io::Result<TlsStream<S>> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connecting = TlsConnector::from(config).connect(name, stream);
    within("a TLS handshake", connecting).await
}

/// Performs a handshake without verifying the server.
pub async fn gullible(
    address: SocketAddr,
    name: &str,
    identity: Option<&TestCertificate>,
) -> TlsStream<TcpStream> {
    let config = client(None, identity, &[], rustls::ALL_VERSIONS);
    let stream = TcpStream::connect(address).await.expect("a connection");
    shake(config, name, stream).await.expect("a handshake")
}

/// Returns the certificate that a server presents for a name, without verifying it.
pub async fn shown(address: SocketAddr, name: &str) -> Vec<u8> {
    let stream = gullible(address, name, None).await;
    let chain = stream
        .get_ref()
        .1
        .peer_certificates()
        .expect("certificates");
    chain.first().expect("a certificate").to_vec()
}
