//! Certificates, TLS clients and TLS servers for tests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

pub use pointsman_test_support::certificates::{Authority, TestCertificate};
pub use pointsman_test_support::manifests::ca_config_map as authority;
use pointsman_test_support::tls;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ServerConnection, StreamOwned, SupportedProtocolVersion,
};

use crate::support::{TIMEOUT, backend, connect, with_timeouts};

/// Builds a client configuration that accepts any server, with an optional certificate and these protocol versions.
pub fn client(
    certificate: Option<&TestCertificate>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    tls::client(None, certificate, &[], versions)
}

pub fn any_client() -> Arc<ClientConfig> {
    client(None, rustls::ALL_VERSIONS)
}

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects with this SNI and completes the handshake.
pub fn connect_tls(config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> io::Result<Tls> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connection = ClientConnection::new(config.clone(), name).expect("a connection");
    let mut stream = StreamOwned::new(connection, connect(address));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Returns the certificate that the server presented.
pub fn peer_certificate(stream: &Tls) -> CertificateDer<'static> {
    let shown = stream.conn.peer_certificates().expect("certificates");
    shown[0].clone().into_owned()
}

/// Sends bytes and closes the TLS session for writing. Returns everything received.
pub fn send_and_read_tls(stream: &mut Tls, what: &[u8]) -> io::Result<String> {
    stream.write_all(what)?;
    stream.conn.send_close_notify();
    stream.flush()?;
    let mut received = String::new();
    stream.read_to_string(&mut received)?;
    Ok(received)
}

/// Starts a backend that terminates TLS, sends its name and the SNI, reads a line, and sends it back.
pub fn tls_backend(name: &'static str, pair: &TestCertificate) -> SocketAddr {
    let config = pair.server(&[], None);
    backend(move |stream| {
        let connection = ServerConnection::new(config.clone()).expect("a connection");
        let mut stream = StreamOwned::new(connection, with_timeouts(stream));
        let mut received = Vec::new();
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && byte != *b"\n" {
            received.push(byte[0]);
        }
        let received = String::from_utf8_lossy(&received).into_owned();
        let sni = stream.conn.server_name().unwrap_or("-").to_owned();
        let _ = stream.write_all(format!("{name} {sni} {received}").as_bytes());
        stream.conn.send_close_notify();
        let _ = stream.flush();
        let _ = stream.sock.set_read_timeout(Some(TIMEOUT));
        let _ = stream.sock.read(&mut byte);
    })
}
