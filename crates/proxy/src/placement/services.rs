//! The mesh on this machine: Services that have an address of it, their own backends, and whose Pods call from which address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_binding::bound::{Backend, BackendId, Transport};
use pointsman_binding::{Binder, Change, Delta};
use pointsman_resources::core::{ServicePort, ServiceType};
use pointsman_resources::{Kind, ObjectKey, Resource};

use super::addresses;

/// What of the mesh is here.
#[derive(Default)]
pub struct LocalServices {
    /// The ports of Services and their kin that have an address here, with the addresses.
    pub services: BTreeMap<ObjectKey, Vec<(BackendId, Vec<IpAddr>)>>,
    pods_by_name: BTreeMap<ObjectKey, IpAddr>,
    /// Whether an address of a Service is one of this machine.
    here: HashMap<IpAddr, bool>,
    needed: BTreeSet<BackendId>,
    /// The Pods by their addresses.
    pub pods: Arc<HashMap<IpAddr, ObjectKey>>,
    /// The backends of Services that are called by their own address.
    pub implicit: Arc<HashMap<BackendId, Arc<Backend>>>,
}

impl LocalServices {
    /// Asks again which addresses this machine has.
    pub fn look_again(&mut self, binder: &Binder) {
        self.here.clear();
        let services: Vec<ObjectKey> = binder
            .objects()
            .map(|(key, _)| key)
            .filter(|key| matches!(key.kind, Kind::Service | Kind::ServiceImport))
            .collect();
        for key in services {
            self.follow_service(&key, binder.object(&key));
        }
    }

    /// Follows a Service or its kin, or that it is gone. Returns whether something has changed.
    pub fn follow_service(&mut self, key: &ObjectKey, object: Option<&Resource>) -> bool {
        let ports = object.map(|object| self.mesh_ports(key, object));
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

    /// The ports of a Service, if it has an address of this machine.
    fn mesh_ports(&mut self, key: &ObjectKey, object: &Resource) -> Vec<(BackendId, Vec<IpAddr>)> {
        let (texts, ports): (Vec<&String>, &[ServicePort]) = match object {
            Resource::Service(service) if service.spec.kind != ServiceType::ExternalName => {
                let spec = &service.spec;
                (
                    spec.cluster_ips.iter().chain(&spec.cluster_ip).collect(),
                    &spec.ports,
                )
            }
            Resource::ServiceImport(import) => {
                (import.spec.ips.iter().collect(), &import.spec.ports)
            }
            _ => return Vec::new(),
        };
        let mut addresses: Vec<IpAddr> = texts
            .into_iter()
            .filter_map(|text| text.parse().ok())
            .filter(|address| {
                let here = self.here.entry(*address);
                *here.or_insert_with(|| addresses::can_be_bound(*address).is_ok())
            })
            .collect();
        addresses.sort();
        addresses.dedup();
        if addresses.is_empty() {
            return Vec::new();
        }
        let transports = [Transport::Tcp, Transport::Udp];
        ports
            .iter()
            .filter_map(|port| {
                let mut known = transports.into_iter();
                let transport = known.find(|transport| transport.name() == port.protocol)?;
                let id = BackendId::new(key.clone(), port.port, transport);
                Some((id, addresses.clone()))
            })
            .collect()
    }

    /// Follows a Pod, or that it is gone. Returns whether something has changed.
    pub fn follow_pod(&mut self, key: &ObjectKey, object: Option<&Resource>) -> bool {
        let address = object.and_then(pod_address);
        if self.pods_by_name.get(key) == address.as_ref() {
            return false;
        }
        match address {
            Some(address) => drop(self.pods_by_name.insert(key.clone(), address)),
            None => drop(self.pods_by_name.remove(key)),
        }
        true
    }

    /// Makes the map of Pods anew. Where several share an address, the first by name has it.
    pub fn settle_pods(&mut self) {
        let mut by_address: HashMap<IpAddr, ObjectKey> = HashMap::new();
        for (pod, address) in &self.pods_by_name {
            by_address.entry(*address).or_insert_with(|| pod.clone());
        }
        self.pods = Arc::new(by_address);
    }

    /// What has to be asked of the binder so that every Service that is listened on has its backend.
    pub fn needs(&mut self, changed: bool) -> Vec<Change> {
        if !changed {
            return Vec::new();
        }
        let ids = self.services.values().flatten().map(|(id, _)| id.clone());
        let needed: BTreeSet<BackendId> = ids.collect();
        let gone = self.needed.difference(&needed).cloned();
        let mut changes: Vec<Change> = gone.map(|id| Change::Need(id, false)).collect();
        let new = needed.difference(&self.needed).cloned();
        changes.extend(new.map(|id| Change::Need(id, true)));
        // Who is there already is not told again.
        let stale = self.needed.iter().filter(|id| !needed.contains(id));
        let stale: Vec<BackendId> = stale.cloned().collect();
        if !stale.is_empty() {
            let implicit = Arc::make_mut(&mut self.implicit);
            stale.iter().for_each(|id| drop(implicit.remove(id)));
        }
        self.needed = needed;
        changes
    }

    /// Takes over the backends that are needed.
    pub fn follow_backends(&mut self, delta: &Delta) {
        for (id, backend) in &delta.backends {
            if self.needed.contains(id) {
                let implicit = Arc::make_mut(&mut self.implicit);
                match backend {
                    Some(backend) => drop(implicit.insert(id.clone(), backend.clone())),
                    None => drop(implicit.remove(id)),
                }
            }
        }
    }

    /// The backends that are needed, where they are used by routes too and so were known before.
    pub fn fill(&mut self, known: impl Fn(&BackendId) -> Option<Arc<Backend>>) {
        let missing: Vec<BackendId> = self
            .needed
            .iter()
            .filter(|id| !self.implicit.contains_key(id))
            .cloned()
            .collect();
        for id in missing {
            if let Some(backend) = known(&id) {
                Arc::make_mut(&mut self.implicit).insert(id, backend);
            }
        }
    }
}

/// The address of a Pod that runs.
fn pod_address(object: &Resource) -> Option<IpAddr> {
    let Resource::Pod(pod) = object else {
        return None;
    };
    let ended = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let address = pod.status.pod_ip.as_deref().filter(|_| !ended)?;
    address.parse().ok()
}
