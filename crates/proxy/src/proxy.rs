//! The data plane as the control side sees it: it is started, told what holds from now on, asked for figures, drained.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::bound::{Backend, BackendId, FrontendId, Transport};
use pointsman_resources::{Name, ObjectKey};
use pointsman_routing::Tables;

use crate::options::Options;

/// A socket that clients connect or send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketKey {
    /// Where.
    pub address: SocketAddr,
    /// Streams or datagrams.
    pub transport: Transport,
}

/// Whose traffic arrives at a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A port of a Gateway: that number in its listeners, whatever number is bound.
    Gateway {
        /// The Gateway.
        gateway: Name,
        /// The listeners' port.
        port: u16,
    },
    /// A port of a mesh parent.
    Mesh {
        /// The Service or its kin.
        parent: ObjectKey,
        /// Its port.
        port: u16,
    },
}

/// All that holds from now on.
#[derive(Debug, Clone, Default)]
pub struct Update {
    /// Which rule takes which traffic.
    pub tables: Tables,
    /// Every socket that is to be listened on.
    pub sockets: Arc<BTreeMap<SocketKey, Owner>>,
    /// The namespace of each Pod, by address: whose calls are whose.
    pub pods: Arc<HashMap<IpAddr, Arc<str>>>,
    /// The backends of mesh parents themselves, for calls that no route governs.
    pub implicit: Arc<HashMap<BackendId, Arc<Backend>>>,
}

/// What came of an [`Update`].
#[derive(Debug, Default)]
pub struct Outcome {
    /// Sockets that could not be bound, and why. They are tried again with each update.
    pub unbound: BTreeMap<SocketKey, io::Error>,
    /// Listeners whose TLS could not be made of what they name, and why. The others serve.
    pub faulty: BTreeMap<FrontendId, String>,
}

/// A running data plane. Dropping it ends it at once.
#[derive(Debug)]
pub struct Proxy {}

impl Proxy {
    /// Starts the workers. They have nothing to listen on before the first [`Proxy::apply`].
    pub fn start(_options: Options) -> io::Result<Proxy> {
        Ok(Proxy {})
    }

    /// Puts an update in effect; it is when this returns: every worker listens on the new sockets and uses the new tables for requests that come
    /// from then on.
    pub fn apply(&mut self, _update: Update) -> Outcome {
        Outcome::default()
    }

    /// Stops accepting, lets what runs finish, and returns when it has, or at the deadline. Returns how many connections were cut.
    pub fn drain(&mut self, _deadline: Duration) -> usize {
        0
    }

    /// All figures, in Prometheus' text format.
    pub fn metrics(&self) -> String {
        String::new()
    }

    /// Opens the access log's file anew, for who rotates it.
    pub fn reopen_log(&self) -> io::Result<()> {
        Ok(())
    }
}
