//! The frontends of each socket, looked up once for each configuration. Only this module distinguishes the kinds of owners.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pointsman_binding::bound::{BackendId, Transport};
use pointsman_routing::{FrontendTable, MeshPort, PortTable, Tables};

use crate::socket_owner::{SocketKey, SocketOwner};

/// The frontends of a socket.
#[derive(Debug)]
pub(crate) enum SocketFrontends {
    /// The listeners of a Gateway's port, distinguished by hostname.
    Listeners(Arc<PortTable>),
    /// A single frontend: that of an outbound, or of a Gateway's UDP port.
    Single(Arc<FrontendTable>),
    /// The frontends of a mesh parent's port, distinguished by client.
    Mesh {
        /// Those with routes.
        routed: Option<Arc<MeshPort>>,
        /// The one for clients whose calls no route applies to.
        unrouted: Arc<FrontendTable>,
    },
}

/// Frontends by socket. Sockets whose owner has none are absent.
pub(crate) type FrontendMap = HashMap<SocketKey, SocketFrontends, foldhash::fast::RandomState>;

/// Tables of mesh parents without routes, by the backend that has their own endpoints.
pub(crate) type UnroutedTables = HashMap<BackendId, Arc<FrontendTable>>;

impl SocketFrontends {
    /// Looks up the frontends of all sockets.
    pub(crate) fn all(
        sockets: &BTreeMap<SocketKey, SocketOwner>,
        tables: &Tables,
        unrouted: &UnroutedTables,
    ) -> FrontendMap {
        let all = sockets.iter().filter_map(|(key, owner)| {
            let frontends = SocketFrontends::of(key.transport, owner, tables, unrouted)?;
            Some((*key, frontends))
        });
        all.collect()
    }

    fn of(
        transport: Transport,
        owner: &SocketOwner,
        tables: &Tables,
        unrouted: &UnroutedTables,
    ) -> Option<Self> {
        let single = |table: &Arc<FrontendTable>| SocketFrontends::Single(table.clone());
        match (owner, transport) {
            (SocketOwner::Gateway { gateway, port }, Transport::Tcp) => {
                let port = tables.port(gateway, *port)?;
                Some(SocketFrontends::Listeners(port.clone()))
            }
            (SocketOwner::Gateway { gateway, port }, Transport::Udp) => {
                tables.datagrams(gateway, *port).map(single)
            }
            (SocketOwner::Outbound(id), _) => tables.frontend(id).map(single),
            (SocketOwner::Mesh { parent, port }, _) => {
                let backend = BackendId::new(parent.clone(), *port, transport);
                Some(SocketFrontends::Mesh {
                    routed: tables.mesh_port(parent, transport, *port).cloned(),
                    unrouted: unrouted.get(&backend)?.clone(),
                })
            }
        }
    }
}
