//! Listening sockets and their owners: the Gateways, mesh parents and outbounds whose frontends get the traffic.

use std::fmt;
use std::net::SocketAddr;

use pointsman_binding::bound::{Frontend, FrontendId, Transport};
use pointsman_resources::{Name, ObjectKey};

/// Identifies a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketKey {
    /// Address that is bound.
    pub address: SocketAddr,
    /// Transport protocol.
    pub transport: Transport,
}

/// Owner of the traffic that arrives at a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketOwner {
    /// A port of a Gateway.
    Gateway {
        /// Name of the Gateway.
        gateway: Name,
        /// Port of the Gateway's listeners, which may differ from the bound one.
        port: u16,
    },
    /// A port of a mesh parent.
    Mesh {
        /// The Service, or another kind of mesh parent.
        parent: ObjectKey,
        /// Port of the parent.
        port: u16,
    },
    /// An outbound of a Kuma Dataplane.
    Outbound(FrontendId),
}

impl SocketOwner {
    /// Returns the Gateway and the port of its listeners, if the owner is a Gateway.
    pub(crate) fn gateway_port(&self) -> Option<(&Name, u16)> {
        match self {
            SocketOwner::Gateway { gateway, port } => Some((gateway, *port)),
            SocketOwner::Mesh { .. } | SocketOwner::Outbound(_) => None,
        }
    }

    /// Returns the owner of the sockets at which a frontend gets its traffic.
    pub fn of(frontend: &Frontend) -> SocketOwner {
        match &frontend.id {
            FrontendId::Listener { gateway, .. } => SocketOwner::Gateway {
                gateway: gateway.clone(),
                port: frontend.port,
            },
            FrontendId::Mesh { parent, .. } => SocketOwner::Mesh {
                parent: parent.clone(),
                port: frontend.port,
            },
            FrontendId::Outbound(outbound) if outbound.listen.is_some() => {
                SocketOwner::Outbound(frontend.id.clone())
            }
            // It shares the sockets of the destination with other Pods.
            FrontendId::Outbound(outbound) => SocketOwner::Mesh {
                parent: outbound.destination.object.clone(),
                port: outbound.destination.port,
            },
        }
    }
}

impl fmt::Display for SocketOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketOwner::Gateway { gateway, port } => {
                write!(f, "{} {gateway} port {port}", gateway_kind(gateway))
            }
            SocketOwner::Mesh { parent, port } => write!(f, "{parent} port {port}"),
            SocketOwner::Outbound(FrontendId::Outbound(outbound)) => {
                write!(f, "{} to {}", outbound.dataplane, outbound.destination)
            }
            SocketOwner::Outbound(id) => write!(f, "{}", id.parent()),
        }
    }
}

/// Returns the kind of the object that a Gateway's name refers to: Kuma's builtin gateways have the name of their Dataplane.
pub fn gateway_kind(gateway: &Name) -> &'static str {
    match gateway.namespace.mesh() {
        Some(_) => "Dataplane",
        None => "Gateway",
    }
}
