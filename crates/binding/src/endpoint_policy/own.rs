//! Addresses of Pointsman itself. A client of the admin server can read the configuration, and a client of a control plane without TLS receives private keys,
//! so routes must not reach these servers.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

/// A server of Pointsman that is not for the traffic of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnServer {
    /// The admin server.
    Admin,
    /// The server for probes and metrics.
    Probes,
    /// The control plane's server for proxies.
    ControlPlane,
}

impl fmt::Display for OwnServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OwnServer::Admin => "Pointsman's own admin server",
            OwnServer::Probes => "Pointsman's own server for probes",
            OwnServer::ControlPlane => "Pointsman's own control plane",
        })
    }
}

/// Socket addresses of Pointsman's own servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnServers(BTreeSet<(SocketAddr, OwnServer)>);

impl OwnServers {
    /// Adds an address at which a server listens, or at which it can be reached.
    pub fn add(&mut self, server: OwnServer, address: SocketAddr) {
        self.0.insert((address, server));
    }

    /// Adds all addresses of another set.
    pub fn extend(&mut self, other: &OwnServers) {
        self.0.extend(&other.0);
    }

    /// Returns the addresses with their servers.
    pub fn iter(&self) -> impl Iterator<Item = (OwnServer, SocketAddr)> {
        self.0.iter().map(|(address, server)| (*server, *address))
    }

    /// Returns the server that a TCP connection to an address reaches, determined only from the addresses.
    pub fn reached_at(&self, address: SocketAddr) -> Option<OwnServer> {
        let mut servers = self.iter();
        let found = servers.find(|(_, listener)| is_reached_at(*listener, address));
        found.map(|(server, _)| server)
    }
}

/// Returns whether a connection to an address reaches a listener on this machine, judging by the addresses alone: those of the machine's interfaces, at which
/// a wildcard listener is reached too, are not known here.
pub fn is_reached_at(listener: SocketAddr, address: SocketAddr) -> bool {
    let (local, remote) = (listener.ip().to_canonical(), address.ip().to_canonical());
    listener.port() == address.port()
        && (local == remote
            // A connection to 0.0.0.0 or :: goes to this machine.
            || remote.is_unspecified()
            || local.is_unspecified() && remote.is_loopback())
}
