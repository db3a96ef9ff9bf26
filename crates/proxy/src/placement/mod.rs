//! Placement: the addresses and sockets of Gateways, Services and outbounds of Kuma's proxies on this machine.
//!
//! `addresses` assigns addresses, `services` finds the Services and Pods of this machine, `sockets` combines both into the set of sockets, and `observations`
//! reports about them. The only input is the bound form, so the result is the same whether or not the control plane runs in this process. Addresses are
//! tested by binding a socket; nothing listens here.

mod addresses;
mod observations;
mod services;
mod sockets;

use std::fmt;

use pointsman_binding::bound::FrontendId;
use pointsman_resources::Name;

use crate::proxy::SocketOwner;

pub use addresses::{AddressPolicy, AddressPool};
pub(crate) use services::PodMap;
pub use sockets::{DataplaneFilter, Placement};

/// Returns the kind of the object that a Gateway's name refers to: Kuma's builtin gateways have the name of their Dataplane.
pub fn gateway_kind(gateway: &Name) -> &'static str {
    match gateway.namespace.mesh() {
        Some(_) => "Dataplane",
        None => "Gateway",
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
