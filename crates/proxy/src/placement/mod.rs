//! Placement: which addresses and sockets Gateways, Services and outbounds of Kuma's proxies get on the machine that the proxy runs on.
//!
//! `addresses` assigns addresses, `services` knows which Services and Pods are on this machine, `listeners` joins both into the set of
//! sockets, `observations` reports on them. The input is the bound form alone, so that a proxy places its sockets the same whether the control plane is in
//! its process or not. Addresses are tested by binding a socket; nothing listens here.

mod addresses;
mod observations;
mod services;
mod sockets;

use std::fmt;

use pointsman_binding::bound::FrontendId;
use pointsman_resources::Name;

use crate::proxy::SocketOwner;

pub use addresses::{AddressPolicy, AddressPool, AssignedAddresses};
pub use observations::protocol_name;
pub use services::LocalServices;
pub use sockets::{DataplaneFilter, ListenerPort, Placement};

/// Kind of the object that a Gateway's name stands for: builtin gateways of Kuma's are named after their proxy.
pub fn gateway_kind(gateway: &Name) -> &'static str {
    match gateway.namespace.starts_with("mesh:") {
        true => "Dataplane",
        false => "Gateway",
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
