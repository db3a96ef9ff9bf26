//! The frontends of a connection's owner in a snapshot. Only this module distinguishes the kinds of owners.

use std::sync::Arc;

use pointsman_binding::bound::{BackendId, Frontend, Protocol, Transport};
use pointsman_routing::{FrontendTable, MeshClient, PortTable};

use super::ResolvedConnection;
use crate::proxy::SocketOwner;
use crate::worker::{Worker, WorkerSnapshot};

/// Frontends that apply to a connection.
#[derive(Debug)]
pub(crate) enum Frontends<'h> {
    /// The listeners of a Gateway's port, distinguished by hostname.
    Listeners(&'h Arc<PortTable>),
    /// A single frontend: that of a mesh destination for this source, or of a Gateway's UDP port.
    Single(&'h Arc<FrontendTable>),
    /// The owner is no longer configured.
    None,
}

impl<'h> Frontends<'h> {
    /// Looks up the frontends of a connection in a snapshot.
    pub(crate) fn of(
        worker: &Worker,
        snapshot: &'h WorkerSnapshot,
        connection: &ResolvedConnection,
    ) -> Self {
        let tables = &snapshot.config.tables;
        let transport = connection.destination.transport;
        let found = match (&*connection.owner.get(), transport) {
            (SocketOwner::Gateway { .. }, Transport::Tcp) => snapshot
                .port(&connection.destination)
                .map(Frontends::Listeners),
            (SocketOwner::Gateway { gateway, port }, Transport::Udp) => {
                tables.datagrams(gateway, *port).map(Frontends::Single)
            }
            (SocketOwner::Outbound(id), _) => tables.frontend(id).map(Frontends::Single),
            (SocketOwner::Mesh { parent, port }, _) => {
                let source = connection.source(worker);
                let client = source.map(MeshClient::of_pod).unwrap_or_default();
                let table = tables.mesh(parent, transport, *port, client);
                let unrouted = || {
                    let backend = BackendId::new(parent.clone(), *port, transport);
                    snapshot.config.unrouted.get(&backend)
                };
                table.or_else(unrouted).map(Frontends::Single)
            }
        };
        found.unwrap_or(Frontends::None)
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
