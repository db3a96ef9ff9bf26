//! Resources from which a data plane determines the addresses to listen on, and the owners of connections. Only the data plane knows the addresses of its
//! machine.

use std::net::IpAddr;

use pointsman_resources::meta::Age;
use pointsman_resources::{Name, ObjectKey};

use super::Transport;

/// Addresses that a Gateway requests, or a proxy that serves Kuma's MeshGateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRequest {
    /// The `gateway` name in the [`FrontendId`](super::FrontendId)s of its listeners.
    pub gateway: Name,
    /// Proxy that serves a MeshGateway; `None` for a Gateway of the Gateway API.
    pub proxy: Option<ObjectKey>,
    /// Age of the Gateway or proxy. Older ones take precedence.
    pub age: Age,
    /// IP addresses requested explicitly.
    pub addresses: Vec<IpAddr>,
    /// True if the data plane may assign any address.
    pub any: bool,
    /// Address that can't be parsed. Only proxies of Kuma may have one, since validation checks Gateways.
    pub invalid: Option<String>,
}

/// Addresses and ports of a Service or a ServiceImport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAddresses {
    /// Cluster IPs, without duplicates.
    pub addresses: Vec<IpAddr>,
    /// Ports that carry TCP or UDP.
    pub ports: Vec<(u16, Transport)>,
}

/// A Pod, or a Dataplane of Kuma's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Source address of a running Pod's connections.
    pub address: Option<IpAddr>,
    /// Age. Sockets for outbounds of older Dataplanes are opened first.
    pub age: Age,
}
