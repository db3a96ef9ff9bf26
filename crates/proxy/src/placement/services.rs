//! Services with an address on this machine, the backends that they need, and the Pods that call them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_binding::Change;
use pointsman_binding::bound::{BackendId, ServiceAddresses};
use pointsman_resources::ObjectKey;
use pointsman_routing::Map;

use super::addresses;

/// Pods by address. A clone is a snapshot.
pub(crate) type PodMap = Map<IpAddr, ObjectKey>;

/// Services and Pods of this machine.
#[derive(Default)]
pub(crate) struct LocalServices {
    /// Addresses of all Services, local or not.
    known: BTreeMap<ObjectKey, Arc<ServiceAddresses>>,
    /// Ports of Services with a local address, and those addresses.
    services: BTreeMap<ObjectKey, Vec<(BackendId, Vec<IpAddr>)>>,
    /// Tested addresses; `true` for local ones.
    here: HashMap<IpAddr, bool>,
    /// Backends of the ports in `services`.
    needed: BTreeSet<BackendId>,
    pods_by_name: BTreeMap<ObjectKey, IpAddr>,
    pods_by_address: BTreeMap<IpAddr, BTreeSet<ObjectKey>>,
    /// Pods by address. If several share an address, the first by name.
    pub(crate) pods: PodMap,
}

impl LocalServices {
    /// Ports to listen on, with their addresses.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &(BackendId, Vec<IpAddr>)> {
        self.services.values().flatten()
    }

    /// Tests again which addresses this machine has.
    pub(crate) fn refresh(&mut self) {
        self.here.clear();
        for (key, addresses) in self.known.clone() {
            self.apply_service(&key, Some(&addresses));
        }
    }

    /// Applies a changed or removed Service. Returns true if the local ports changed.
    pub(crate) fn apply_service(
        &mut self,
        key: &ObjectKey,
        addresses: Option<&Arc<ServiceAddresses>>,
    ) -> bool {
        match addresses {
            Some(addresses) => drop(self.known.insert(key.clone(), addresses.clone())),
            None => drop(self.known.remove(key)),
        }
        let ports = addresses.map(|addresses| self.local_ports(key, addresses));
        let ports = ports.filter(|ports| !ports.is_empty());
        if self.services.get(key) == ports.as_ref() {
            return false;
        }
        match ports {
            Some(ports) => drop(self.services.insert(key.clone(), ports)),
            None => drop(self.services.remove(key)),
        }
        true
    }

    /// Ports of a Service with their local addresses; empty if it has none.
    fn local_ports(
        &mut self,
        key: &ObjectKey,
        service: &ServiceAddresses,
    ) -> Vec<(BackendId, Vec<IpAddr>)> {
        let is_here = |address: &&IpAddr| {
            let here = self.here.entry(**address);
            *here.or_insert_with(|| addresses::check_bindable(**address).is_ok())
        };
        let addresses: Vec<IpAddr> = service.addresses.iter().filter(is_here).copied().collect();
        if addresses.is_empty() {
            return Vec::new();
        }
        let ports = service.ports.iter().map(|(port, transport)| {
            let id = BackendId::new(key.clone(), *port, *transport);
            (id, addresses.clone())
        });
        ports.collect()
    }

    /// Applies the address of a Pod; `None` if it has none or was removed.
    pub(crate) fn apply_pod(&mut self, key: &ObjectKey, address: Option<IpAddr>) {
        let old = match address {
            Some(address) => self.pods_by_name.insert(key.clone(), address),
            None => self.pods_by_name.remove(key),
        };
        if old == address {
            return;
        }
        if let Some(old) = old {
            if let Some(pods) = self.pods_by_address.get_mut(&old) {
                pods.remove(key);
            }
            self.index_address(old);
        }
        if let Some(address) = address {
            let pods = self.pods_by_address.entry(address).or_default();
            pods.insert(key.clone());
            self.index_address(address);
        }
    }

    /// Updates the Pod of an address in the index.
    fn index_address(&mut self, address: IpAddr) {
        let pods = self.pods_by_address.get(&address);
        match pods.and_then(BTreeSet::first) {
            Some(pod) if self.pods.get(&address) == Some(pod) => {}
            Some(pod) => drop(self.pods.insert(address, pod.clone())),
            None => {
                self.pods_by_address.remove(&address);
                self.pods.remove(&address);
            }
        }
    }

    /// Returns changes of the set of backends that are needed even if no route uses them.
    pub(crate) fn needed_changes(&mut self, changed: bool) -> Vec<Change> {
        if !changed {
            return Vec::new();
        }
        let ids = self.services.values().flatten().map(|(id, _)| id.clone());
        let needed: BTreeSet<BackendId> = ids.collect();
        let removed: Vec<BackendId> = self.needed.difference(&needed).cloned().collect();
        let new: Vec<BackendId> = needed.difference(&self.needed).cloned().collect();
        self.needed = needed;
        let removed = removed.into_iter().map(|id| Change::Need(id, false));
        removed
            .chain(new.into_iter().map(|id| Change::Need(id, true)))
            .collect()
    }
}
