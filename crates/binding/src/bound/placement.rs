//! Resources from which a data plane decides where it listens and whose connections it sees. Which of the addresses exist is known only on the
//! machine that it runs on.

use std::net::IpAddr;

use pointsman_resources::meta::Age;
use pointsman_resources::{Name, ObjectKey};

use super::Transport;

/// Addresses that a Gateway requests. A builtin gateway of Kuma's requests them for its proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRequest {
    /// Name under which the Gateway's listeners are found.
    pub gateway: Name,
    /// Proxy that serves a builtin gateway of Kuma's; `None` for a Gateway of the Gateway API.
    pub proxy: Option<ObjectKey>,
    /// Age of the Gateway or proxy: older ones choose first.
    pub age: Age,
    /// Addresses requested by number.
    pub addresses: Vec<IpAddr>,
    /// Whether any address that the data plane assigns will do.
    pub any: bool,
    /// Text given as an address that is none. Only a proxy of Kuma's may have one.
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
    /// Address from which a running Pod connects.
    pub address: Option<IpAddr>,
    /// Age: outbounds of older Dataplanes get their sockets first.
    pub age: Age,
}
