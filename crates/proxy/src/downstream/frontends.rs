//! The frontends of a connection in a snapshot.

use std::sync::Arc;

use pointsman_binding::bound::{Frontend, Protocol};
use pointsman_routing::{FrontendTable, MeshClient, PortTable};

use super::ResolvedConnection;
use crate::worker::{SocketFrontends, Worker, WorkerSnapshot};

/// Frontends that apply to a connection.
#[derive(Debug)]
pub(crate) enum Frontends<'h> {
    /// The listeners of a Gateway's port, distinguished by hostname.
    Listeners(&'h Arc<PortTable>),
    /// A single frontend: that of a mesh destination for this source, or of a Gateway's UDP port.
    Single(&'h Arc<FrontendTable>),
    /// The destination is no longer configured.
    None,
}

impl<'h> Frontends<'h> {
    /// Looks up the frontends of a connection in a snapshot.
    pub(crate) fn of(
        worker: &Worker,
        snapshot: &'h WorkerSnapshot,
        connection: &ResolvedConnection,
    ) -> Self {
        match snapshot.config.frontends.get(&connection.destination) {
            Some(SocketFrontends::Listeners(port)) => Frontends::Listeners(port),
            Some(SocketFrontends::Single(table)) => Frontends::Single(table),
            Some(SocketFrontends::Mesh { routed, unrouted }) => {
                let table = routed.as_ref().and_then(|port| {
                    let source = connection.source(worker);
                    port.table(source.map(MeshClient::of_pod).unwrap_or_default())
                });
                Frontends::Single(table.unwrap_or(unrouted))
            }
            None => Frontends::None,
        }
    }

    /// Returns one of a port's listeners. All of them share protocol, connection limit and mesh TLS.
    pub(crate) fn listener(&self) -> Option<&'h Arc<Frontend>> {
        match self {
            Frontends::Listeners(port) => Some(port.any()?.frontend()),
            _ => None,
        }
    }

    /// Returns the protocol of the frontend; `None` if it was removed.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        match self {
            Frontends::Listeners(_) => self.listener().map(|frontend| frontend.protocol),
            Frontends::Single(table) => Some(table.frontend().protocol),
            Frontends::None => None,
        }
    }

    /// Returns the number of connections that the port may have at once.
    pub(crate) fn connection_limit(&self) -> Option<u32> {
        self.listener()?.connection_limit
    }

    /// Returns whether only proxies of a mesh may connect, over the mesh's mutual TLS.
    pub(crate) fn requires_mesh_mtls(&self) -> bool {
        self.listener().is_some_and(|frontend| frontend.cross_mesh)
    }
}
