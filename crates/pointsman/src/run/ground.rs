//! Who listens where: the sockets of Gateways and of Services that have an address here, and whose Pods call from which address.
//!
//! It follows what is bound, and is asked anew only when something of it has changed: one more route changes nothing here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pointsman_binding::bound::{Backend, BackendId, FrontendId, Protocol, Transport};
use pointsman_binding::{Binder, Change, Delta, Observation};
use pointsman_proxy::{Owner, SocketKey};
use pointsman_resources::core::{ServicePort, ServiceType};
use pointsman_resources::gateway::Gateway;
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use super::addresses::{self, Addresses, Assigned};

/// A listener: the number of its port, and what it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The port, as the listener has it.
    pub port: u16,
    /// What is spoken there.
    pub protocol: Protocol,
}

impl Listener {
    /// Streams or datagrams.
    pub fn transport(self) -> Transport {
        match self.protocol {
            Protocol::Udp => Transport::Udp,
            _ => Transport::Tcp,
        }
    }
}

/// Who listens where.
pub struct Ground {
    offset: u16,
    addresses: Addresses,
    gateways: BTreeMap<Name, Arc<Gateway>>,
    listeners: BTreeMap<Name, BTreeMap<FrontendId, Listener>>,
    /// The ports of Services and their kin that have an address here, with the addresses.
    services: BTreeMap<ObjectKey, Vec<(BackendId, Vec<IpAddr>)>>,
    pods_by_name: BTreeMap<ObjectKey, IpAddr>,
    /// Whether an address of a Service is one of this machine.
    here: HashMap<IpAddr, bool>,
    needed: BTreeSet<BackendId>,
    /// The Gateways of which something was said.
    observed: BTreeSet<Name>,
    /// What each Gateway has got.
    pub assigned: BTreeMap<Name, Assigned>,
    /// Listeners that lost their place to somebody else, and why.
    pub lost: BTreeMap<FrontendId, String>,
    /// Every socket.
    pub sockets: Arc<BTreeMap<SocketKey, Owner>>,
    /// The namespace of each Pod by its address.
    pub pods: Arc<HashMap<IpAddr, Arc<str>>>,
    /// The backends of Services that are called by their own address.
    pub implicit: Arc<HashMap<BackendId, Arc<Backend>>>,
}

impl Ground {
    /// Nobody listens yet. `offset` is added to every port.
    pub fn new(addresses: Addresses, offset: u16) -> Self {
        Ground {
            offset,
            addresses,
            gateways: BTreeMap::new(),
            listeners: BTreeMap::new(),
            services: BTreeMap::new(),
            pods_by_name: BTreeMap::new(),
            here: HashMap::new(),
            needed: BTreeSet::new(),
            observed: BTreeSet::new(),
            assigned: BTreeMap::new(),
            lost: BTreeMap::new(),
            sockets: Arc::default(),
            pods: Arc::default(),
            implicit: Arc::default(),
        }
    }

    /// Follows a change: the objects that were put or taken away, and what came of it. Returns which backends are needed now or no more,
    /// and whether sockets or addresses may have changed.
    pub fn follow<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k ObjectKey>,
        delta: &Delta,
        binder: &Binder,
    ) -> (Vec<Change>, bool) {
        let (mut gateways, mut services, mut pods) = (false, false, false);
        for key in keys {
            match key.kind {
                Kind::GatewayClass => gateways = true,
                Kind::Gateway => {
                    gateways = true;
                    match binder.object(key) {
                        Some(Resource::Gateway(gateway)) => {
                            drop(self.gateways.insert(key.name.clone(), gateway.clone()));
                        }
                        _ => drop(self.gateways.remove(&key.name)),
                    }
                }
                Kind::Service | Kind::ServiceImport => {
                    services |= self.follow_service(key, binder.object(key));
                }
                Kind::Pod => {
                    pods = true;
                    let address = binder.object(key).and_then(pod_address);
                    match address {
                        Some(address) => drop(self.pods_by_name.insert(key.clone(), address)),
                        None => drop(self.pods_by_name.remove(key)),
                    }
                }
                _ => {}
            }
        }
        for (id, frontend) in &delta.frontends {
            if let FrontendId::Listener { gateway, .. } = id {
                gateways = true;
                let listeners = self.listeners.entry(gateway.clone()).or_default();
                match frontend {
                    Some(frontend) => {
                        let (port, protocol) = (frontend.port, frontend.protocol);
                        listeners.insert(id.clone(), Listener { port, protocol });
                    }
                    None => drop(listeners.remove(id)),
                }
                if listeners.is_empty() {
                    self.listeners.remove(gateway);
                }
            }
        }
        if pods {
            let mut by_address: HashMap<IpAddr, Arc<str>> = HashMap::new();
            for (pod, address) in &self.pods_by_name {
                let namespace = || pod.name.namespace.clone();
                by_address.entry(*address).or_insert_with(namespace);
            }
            self.pods = Arc::new(by_address);
        }
        if gateways || services {
            self.settle(binder);
        }
        (self.needs(services), gateways || services)
    }

    /// Asks again what could not be had, as the machine may have changed.
    pub fn look_again(&mut self, binder: &Binder) -> Vec<Change> {
        self.here.clear();
        let services: Vec<ObjectKey> = binder
            .objects()
            .map(|(key, _)| key)
            .filter(|key| matches!(key.kind, Kind::Service | Kind::ServiceImport))
            .collect();
        for key in services {
            self.follow_service(&key, binder.object(&key));
        }
        self.settle(binder);
        self.needs(true)
    }

    fn follow_service(&mut self, key: &ObjectKey, object: Option<&Resource>) -> bool {
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
                let id = BackendId {
                    object: key.clone(),
                    port: port.port,
                    transport,
                };
                Some((id, addresses.clone()))
            })
            .collect()
    }

    /// Gives every Gateway its addresses and every listener its socket. Older Gateways choose first, then Services.
    fn settle(&mut self, binder: &Binder) {
        let mut gateways: Vec<&Gateway> = self
            .gateways
            .iter()
            .filter(|(name, _)| {
                let name = (*name).clone();
                let kind = Kind::Gateway;
                binder.status(&ObjectKey { kind, name }).is_some()
            })
            .map(|(_, gateway)| &**gateway)
            .collect();
        gateways.sort_by_key(|gateway| (gateway.metadata.age(), gateway.metadata.key()));
        self.assigned = self.addresses.assign(&gateways);
        let mut sockets: BTreeMap<SocketKey, Owner> = BTreeMap::new();
        let mut lost = BTreeMap::new();
        for gateway in gateways {
            let name = gateway.metadata.key();
            // A Gateway with an address that it can't have serves nothing: it says so as a whole.
            let assigned = self.assigned.get(&name);
            let assigned = assigned.filter(|assigned| assigned.unusable.is_empty());
            let addresses = assigned.map_or(&[][..], |assigned| &assigned.addresses);
            for (id, listener) in self.listeners.get(&name).into_iter().flatten() {
                let owner = Owner::Gateway {
                    gateway: name.clone(),
                    port: listener.port,
                };
                for address in addresses {
                    let key = self.socket(*address, listener.port, listener.transport());
                    let claimed = key.and_then(|key| claim(&mut sockets, key, &owner));
                    if let Err(why) = claimed {
                        lost.insert(id.clone(), why);
                    }
                }
            }
        }
        for (id, addresses) in self.services.values().flatten() {
            let owner = Owner::Mesh {
                parent: id.object.clone(),
                port: id.port,
            };
            for address in addresses {
                let key = self.socket(*address, id.port, id.transport);
                if let Err(why) = key.and_then(|key| claim(&mut sockets, key, &owner)) {
                    tracing::warn!("{id} is not listened on: {why}");
                }
            }
        }
        self.lost = lost;
        if *self.sockets != sockets {
            self.sockets = Arc::new(sockets);
        }
    }

    fn socket(
        &self,
        address: IpAddr,
        port: u16,
        transport: Transport,
    ) -> Result<SocketKey, String> {
        let number = port.checked_add(self.offset).ok_or_else(|| {
            let offset = self.offset;
            format!("port {port} with an offset of {offset} is above 65535")
        })?;
        let address = SocketAddr::new(address, number);
        Ok(SocketKey { address, transport })
    }

    /// What has to be asked of the binder so that every Service that is listened on has its backend.
    fn needs(&mut self, changed: bool) -> Vec<Change> {
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

    /// What there is to say of every Gateway, given the sockets that could not be bound and the listeners whose TLS can't be had.
    pub fn observations(
        &mut self,
        unbound: &BTreeMap<SocketKey, String>,
        faulty: &BTreeMap<FrontendId, String>,
    ) -> Vec<Change> {
        let observe = |(name, assigned): (&Name, &Assigned)| {
            let mut seen = Observation {
                addresses: assigned.addresses.clone(),
                unusable: assigned.unusable.clone(),
                ..Observation::default()
            };
            for (id, listener) in self.listeners_of(name) {
                let mut why: Vec<String> = self.lost.get(id).into_iter().cloned().collect();
                for address in &assigned.addresses {
                    let key = self.socket(*address, listener.port, listener.transport());
                    let failed = key.ok().and_then(|key| Some((key, unbound.get(&key)?)));
                    why.extend(failed.map(|(key, error)| format!("{}: {error}", key.address)));
                }
                if !why.is_empty() {
                    seen.unbound.insert(id.clone(), why.join("; "));
                }
                if let Some(why) = faulty.get(id) {
                    seen.faulty.insert(id.clone(), why.clone());
                }
            }
            Change::Observe(name.clone(), Some(seen))
        };
        let mut changes: Vec<Change> = self.assigned.iter().map(observe).collect();
        let gone = self
            .observed
            .iter()
            .filter(|name| !self.assigned.contains_key(*name));
        changes.extend(gone.map(|name| Change::Observe(name.clone(), None)));
        self.observed = self.assigned.keys().cloned().collect();
        changes
    }

    /// The listeners of a Gateway.
    pub fn listeners_of(&self, gateway: &Name) -> impl Iterator<Item = (&FrontendId, &Listener)> {
        self.listeners.get(gateway).into_iter().flatten()
    }

    /// Where a listener is, whether or not it could be bound.
    pub fn places(&self, gateway: &Name, listener: Listener) -> Vec<SocketKey> {
        let assigned = self.assigned.get(gateway);
        let addresses = assigned.map_or(&[][..], |assigned| &assigned.addresses);
        addresses
            .iter()
            .filter_map(|a| self.socket(*a, listener.port, listener.transport()).ok())
            .collect()
    }

    /// Whether something could not be had that may be had later.
    pub fn wants_more(&self) -> bool {
        let lacks =
            |assigned: &Assigned| assigned.addresses.is_empty() || !assigned.unusable.is_empty();
        self.assigned.values().any(lacks)
    }
}

/// Takes a socket for somebody, unless somebody else has it.
fn claim(
    sockets: &mut BTreeMap<SocketKey, Owner>,
    key: SocketKey,
    owner: &Owner,
) -> Result<(), String> {
    let has = sockets.entry(key).or_insert_with(|| owner.clone());
    match has {
        has if has == owner => Ok(()),
        Owner::Gateway { gateway, .. } => Err(format!(
            "{} is taken by Gateway {gateway}, which is older",
            key.address
        )),
        Owner::Mesh { parent, .. } => Err(format!("{} is taken by {parent}", key.address)),
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
