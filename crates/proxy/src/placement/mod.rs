//! Placement: the addresses and sockets of Gateways, Services and outbounds of Kuma's proxies on this machine.
//!
//! `addresses` assigns addresses, `services` finds the Services and Pods of this machine, `sockets` combines both into the set of sockets, and `observations`
//! reports about them. The only input is the bound form, so the result is the same whether or not the control plane runs in this process.
//!
//! Sockets are not part of the bound form, but derived by each proxy, because they depend on its machine: on the addresses that it has, on its offsets of
//! ports, and on the Dataplanes that it serves. Addresses are tested by binding a socket; nothing listens here.

mod addresses;
mod observations;
mod services;
mod sockets;

pub use crate::socket_owner::gateway_kind;
pub use addresses::{AddressPolicy, AddressPool};
pub(crate) use services::PodMap;
pub use sockets::{DataplaneFilter, Placement};
