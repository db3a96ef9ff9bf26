//! Connections to control planes.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::transport::{self, Connection};

/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Address of a control plane: `http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneUrl {
    host: String,
    port: u16,
}

impl FromStr for ControlPlaneUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write http://HOST:PORT, such as http://127.0.0.1:15010".to_owned();
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['/', '@']) {
            return Err(wrong());
        }
        let is_remote = match host.parse::<IpAddr>() {
            Ok(address) => !address.is_loopback(),
            Err(_) => host != "localhost",
        };
        if is_remote {
            return Err("without TLS a control plane can be reached on loopback only".to_owned());
        }
        Ok(ControlPlaneUrl {
            host: host.to_owned(),
            port: port.parse().map_err(|_| wrong())?,
        })
    }
}

impl fmt::Display for ControlPlaneUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "http://[{}]:{}", self.host, self.port),
            false => write!(f, "http://{}:{}", self.host, self.port),
        }
    }
}

/// A control plane that can't be reached.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// It does not answer in time.
    #[error("no connection within {CONNECT_TIMEOUT:?}")]
    Timeout,
    /// The connection can't be opened.
    #[error("no connection: {0}")]
    Io(#[from] io::Error),
    /// A name resolves to an address that plaintext must not be sent to.
    #[error("{0} is not a loopback address, and without TLS only these are allowed")]
    NotLoopback(IpAddr),
    /// HTTP/2 can't be started.
    #[error("no HTTP/2: {0}")]
    Http(#[from] hyper::Error),
}

/// Connects to a control plane.
pub async fn connect(url: &ControlPlaneUrl) -> Result<Connection, ConnectError> {
    let connect = async {
        let stream = TcpStream::connect((&*url.host, url.port)).await?;
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?.ip();
        if !peer.is_loopback() {
            return Err(ConnectError::NotLoopback(peer));
        }
        Ok(transport::connect(stream).await?)
    };
    timeout(CONNECT_TIMEOUT, connect)
        .await
        .map_err(|_| ConnectError::Timeout)?
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
        ] {
            let why = bad.parse::<ControlPlaneUrl>().expect_err(bad);
            assert!(why.contains("write http"), "{bad}: {why}");
        }
        for remote in ["http://192.0.2.1:15010", "http://example.com:15010"] {
            let why = remote.parse::<ControlPlaneUrl>().expect_err(remote);
            assert!(why.contains("loopback only"), "{remote}: {why}");
        }
    }
}
