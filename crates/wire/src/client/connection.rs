//! Connections to control planes.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::tls::ClientTls;
use crate::transport::{self, Connection};

/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Address of a control plane: `https://HOST:PORT`, or `http://HOST:PORT` on loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneUrl {
    has_tls: bool,
    host: String,
    port: u16,
}

impl ControlPlaneUrl {
    /// Returns whether the connection uses TLS.
    pub fn has_tls(&self) -> bool {
        self.has_tls
    }
}

impl FromStr for ControlPlaneUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let examples =
                "https://control-plane.example:15010, or http://127.0.0.1:15010 on this machine";
            format!("expected https://HOST:PORT, such as {examples}")
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let has_tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(wrong()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        let in_brackets = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = in_brackets.unwrap_or(host);
        // Only an IPv6 address has colons, and only in brackets.
        let is_ipv6 = host.parse::<Ipv6Addr>().is_ok();
        if host.is_empty()
            || host.contains(['/', '@', '[', ']'])
            || in_brackets.is_some() != is_ipv6
        {
            return Err(wrong());
        }
        let is_remote = match host.parse::<IpAddr>() {
            Ok(address) => !address.is_loopback(),
            Err(_) => host != "localhost",
        };
        if is_remote && !has_tls {
            let reason = "http:// is allowed for loopback addresses only; use https://";
            return Err(reason.to_owned());
        }
        Ok(ControlPlaneUrl {
            has_tls,
            host: host.to_owned(),
            port: port.parse().map_err(|_| wrong())?,
        })
    }
}

impl fmt::Display for ControlPlaneUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.has_tls {
            true => "https",
            false => "http",
        };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

/// A control plane that can't be reached.
#[derive(Debug, Error)]
pub enum ControlPlaneConnectError {
    /// The control plane does not respond in time.
    #[error("timed out after {CONNECT_TIMEOUT:?}")]
    Timeout,
    /// The connection can't be opened.
    #[error("can't connect: {0}")]
    Io(#[from] io::Error),
    /// The host has no address.
    #[error("the host has no address")]
    NoAddress,
    /// The TLS handshake fails.
    #[error("TLS handshake failed: {0}")]
    Handshake(io::Error),
    /// The URL begins with `https`, and TLS is not configured.
    #[error("no certificate is configured for TLS")]
    NoCertificate,
    /// The token can't be read.
    #[error("the token in {0}: {1}")]
    Token(PathBuf, io::Error),
    /// The host is neither a DNS name nor an IP address.
    #[error("`{0}` is not a valid host name")]
    Host(String),
    /// A name resolves to an address that plaintext must not be sent to.
    #[error("{0} is not a loopback address; plaintext is allowed only on loopback")]
    NotLoopback(IpAddr),
    /// HTTP/2 can't be started.
    #[error("HTTP/2 handshake failed: {0}")]
    Http(#[from] hyper::Error),
}

/// Resolves the host of a URL.
pub async fn resolve(url: &ControlPlaneUrl) -> Result<Vec<SocketAddr>, ControlPlaneConnectError> {
    let addresses = timeout(CONNECT_TIMEOUT, lookup_host((&*url.host, url.port))).await;
    let addresses = addresses.map_err(|_| ControlPlaneConnectError::Timeout)??;
    Ok(addresses.collect())
}

/// Connects to a control plane at the first of its addresses that works.
pub async fn connect(
    url: &ControlPlaneUrl,
    addresses: &[SocketAddr],
    tls: Option<&ClientTls>,
) -> Result<Connection, ControlPlaneConnectError> {
    let mut failed = ControlPlaneConnectError::NoAddress;
    for address in addresses {
        // An address that drops packets does not use up the time of the others.
        let result = timeout(CONNECT_TIMEOUT, connect_to(url, *address, tls)).await;
        match result.unwrap_or(Err(ControlPlaneConnectError::Timeout)) {
            Ok(connection) => return Ok(connection),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn connect_to(
    url: &ControlPlaneUrl,
    address: SocketAddr,
    tls: Option<&ClientTls>,
) -> Result<Connection, ControlPlaneConnectError> {
    if !url.has_tls && !address.ip().is_loopback() {
        return Err(ControlPlaneConnectError::NotLoopback(address.ip()));
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    if !url.has_tls {
        return Ok(transport::connect(stream).await?);
    }
    let tls = tls.ok_or(ControlPlaneConnectError::NoCertificate)?;
    let name = ServerName::try_from(url.host.clone());
    let name = name.map_err(|_| ControlPlaneConnectError::Host(url.host.clone()))?;
    let stream = tls.connector().connect(name, stream).await;
    let stream = stream.map_err(ControlPlaneConnectError::Handshake)?;
    Ok(transport::connect(stream).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_host_and_a_port_and_plaintext_stays_on_loopback() {
        for good in [
            "http://127.0.0.1:15010",
            "http://[::1]:15010",
            "http://localhost:15010",
            "https://control-plane.example:15010",
            "https://[2001:db8::1]:15010",
        ] {
            let url: ControlPlaneUrl = good.parse().expect("a URL");
            assert_eq!(url.to_string(), good);
        }
        for bad in [
            "127.0.0.1:15010",
            "http://127.0.0.1",
            "http://127.0.0.1:99999",
            "http://:15010",
            "http://127.0.0.1:15010/path",
            "tcp://127.0.0.1:15010",
            "http://[::1:15010",
            "http://::1]:15010",
            "http://::1:15010",
            "https://[control-plane.example]:15010",
        ] {
            let reason = bad.parse::<ControlPlaneUrl>().expect_err(bad);
            assert!(reason.contains("expected https"), "{bad}: {reason}");
        }
        for remote in ["http://192.0.2.1:15010", "http://example.com:15010"] {
            let reason = remote.parse::<ControlPlaneUrl>().expect_err(remote);
            assert!(
                reason.contains("loopback addresses only"),
                "{remote}: {reason}"
            );
        }
    }
}
