//! Reports about sockets: observations, from which the status of Gateways is derived, and a description of each listener.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_binding::bound::{FrontendId, Protocol};
use pointsman_binding::{Change, Observation};
use pointsman_resources::Name;

use crate::socket_owner::{SocketKey, SocketOwner};

use super::addresses::AssignedAddresses;
use super::gateway_kind;
use super::sockets::{ListenerPort, Placement};

impl Placement {
    /// Returns the observations of all Gateways, given unbound sockets and listeners with an invalid TLS configuration.
    pub(crate) fn observations(
        &mut self,
        unbound: &BTreeMap<SocketKey, String>,
        faulty: &BTreeMap<FrontendId, String>,
    ) -> Vec<Change> {
        let observe = |(name, assigned): (&Name, &AssignedAddresses)| {
            let mut observation = Observation {
                addresses: assigned.addresses.clone(),
                unusable: assigned.unusable.clone(),
                unassigned: assigned.unassigned.clone(),
                ..Observation::default()
            };
            for (id, listener) in self.listeners_of(name) {
                let mut reason: Vec<String> = self.conflicts.get(id).into_iter().cloned().collect();
                for address in &assigned.addresses {
                    let key = self.socket(*address, listener.port, listener.transport());
                    let failed = key.ok().and_then(|key| Some((key, unbound.get(&key)?)));
                    reason.extend(failed.map(|(key, error)| format!("{}: {error}", key.address)));
                }
                if !reason.is_empty() {
                    observation.unbound.insert(id.clone(), reason.join("; "));
                }
                if let Some(reason) = faulty.get(id) {
                    observation.faulty.insert(id.clone(), reason.clone());
                }
                if listener.cross_mesh {
                    let owner = SocketOwner::Gateway {
                        gateway: name.clone(),
                        port: listener.port,
                    };
                    let own = |key: &SocketKey| self.sockets.get(key) == Some(&owner);
                    let socket_keys = self.socket_keys(name, *listener).into_iter();
                    let socket_keys = socket_keys.filter(own).map(|key| key.address);
                    observation
                        .cross_mesh_addresses
                        .insert(id.clone(), socket_keys.collect());
                }
            }
            Change::Observe(name.clone(), Some(observation))
        };
        let mut changes: Vec<Change> = self.assigned.iter().map(observe).collect();
        let removed = self
            .observed
            .iter()
            .filter(|name| !self.assigned.contains_key(*name));
        changes.extend(removed.map(|name| Change::Observe(name.clone(), None)));
        self.observed = self.assigned.keys().cloned().collect();
        changes
    }

    /// Listeners of a Gateway.
    pub(super) fn listeners_of(
        &self,
        gateway: &Name,
    ) -> impl Iterator<Item = (&FrontendId, &ListenerPort)> {
        self.listeners.get(gateway).into_iter().flatten()
    }

    /// Sockets of a listener, including unbound ones.
    pub(super) fn socket_keys(&self, gateway: &Name, listener: ListenerPort) -> Vec<SocketKey> {
        let assigned = self.assigned.get(gateway);
        let addresses = assigned.map_or(&[][..], |assigned| &assigned.addresses);
        addresses
            .iter()
            .filter_map(|a| self.socket(*a, listener.port, listener.transport()).ok())
            .collect()
    }

    /// Describes each listener that can serve with its addresses in one line.
    pub(crate) fn describe(&self, unbound: &BTreeMap<SocketKey, String>) -> Vec<String> {
        let mut lines = Vec::new();
        for (gateway, assigned) in &self.assigned {
            for (address, reason) in &assigned.unusable {
                let kind = gateway_kind(gateway);
                lines.push(format!("{kind} {gateway}: {address}: {reason}"));
            }
            for (id, listener) in self.listeners_of(gateway).filter(|(_, one)| !one.is_closed) {
                self.describe_listener(gateway, id, *listener, unbound, &mut lines);
            }
        }
        for (key, owner) in self.sockets.iter() {
            let is_listed = matches!(owner, SocketOwner::Gateway { gateway, .. } if self.assigned.contains_key(gateway));
            if !is_listed {
                let protocol = match owner {
                    SocketOwner::Outbound(id) => self.outbounds.get(id).copied(),
                    SocketOwner::Gateway { .. } | SocketOwner::Mesh { .. } => None,
                };
                let protocol = protocol.map_or(key.transport.name(), Protocol::name);
                let description = format!("{owner}: {protocol}");
                lines.push(describe_socket(&description, key, unbound));
            }
        }
        lines
    }

    /// Descriptions of the listeners that accept connections, one per address.
    pub(crate) fn serving(
        &self,
        unbound: &BTreeMap<SocketKey, String>,
        faulty: &BTreeMap<FrontendId, String>,
    ) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for gateway in self.assigned.keys() {
            let listeners = self.listeners_of(gateway);
            let is_open = |(id, port): &(&FrontendId, &ListenerPort)| {
                !port.is_closed && !faulty.contains_key(id)
            };
            for (id, listener) in listeners.filter(is_open) {
                let Some(description) = listener_text(id, *listener) else {
                    continue;
                };
                let own = SocketOwner::Gateway {
                    gateway: gateway.clone(),
                    port: listener.port,
                };
                for key in self.socket_keys(gateway, *listener) {
                    if self.sockets.get(&key) == Some(&own) && !unbound.contains_key(&key) {
                        all.insert(describe_socket(&description, &key, unbound));
                    }
                }
            }
        }
        for (key, owner) in self.sockets.iter() {
            if owner.gateway_port().is_none() && !unbound.contains_key(key) {
                let description = format!("{owner}: {}", key.transport);
                all.insert(describe_socket(&description, key, unbound));
            }
        }
        all
    }

    fn describe_listener(
        &self,
        gateway: &Name,
        id: &FrontendId,
        listener: ListenerPort,
        unbound: &BTreeMap<SocketKey, String>,
        lines: &mut Vec<String>,
    ) {
        let Some(description) = listener_text(id, listener) else {
            return;
        };
        if let Some(reason) = self.conflicts.get(id) {
            return lines.push(format!("{description} not bound: {reason}"));
        }
        let socket_keys = self.socket_keys(gateway, listener);
        if socket_keys.is_empty() {
            let assigned = self.assigned.get(gateway);
            let reason = assigned.and_then(|assigned| assigned.unassigned.as_deref());
            let reason = reason.unwrap_or("it has no address");
            lines.push(format!("{description} not bound: {reason}"));
        }
        let socket_keys = socket_keys.iter();
        lines.extend(socket_keys.map(|key| describe_socket(&description, key, unbound)));
    }
}

/// Describes a listener with its protocol.
fn listener_text(id: &FrontendId, listener: ListenerPort) -> Option<String> {
    let FrontendId::Listener {
        owner,
        listener: name,
        ..
    } = id
    else {
        return None;
    };
    let tls = match listener.cross_mesh {
        true => " over mutual TLS",
        false => "",
    };
    let protocol = listener.protocol.name();
    Some(format!("{owner} listener {name}: {protocol}{tls}"))
}

fn describe_socket(
    description: &str,
    key: &SocketKey,
    unbound: &BTreeMap<SocketKey, String>,
) -> String {
    match unbound.get(key) {
        Some(reason) => format!("{description} not bound to {}: {reason}", key.address),
        None => format!("{description} on {}", key.address),
    }
}
