//! The sockets of this machine: those of Gateways, of outbounds of Kuma's proxies, and of Services with an address on this machine.
//!
//! Sockets are assigned again only if a listener, an outbound, a Service or a requested address has changed, so route changes cost nothing here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pointsman_binding::bound::{AddressRequest, Frontend, FrontendId, Protocol, Transport};
use pointsman_binding::{Change, Delta};
use pointsman_resources::meta::Age;
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::logging::warn_each;
use crate::socket_owner::{SocketKey, SocketOwner};

use super::addresses::{AddressAssigner, AddressPolicy, AssignedAddresses};
use super::gateway_kind;
use super::services::LocalServices;

/// Number of ports that require a privilege.
const LOW_PORTS: u16 = 1024;

/// Port and protocol of a Gateway's listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenerPort {
    /// Port in the listener's specification, without the offset.
    pub(super) port: u16,
    /// Protocol of the listener.
    pub(super) protocol: Protocol,
    /// True if only proxies of Kuma's meshes may connect.
    pub(super) cross_mesh: bool,
    /// True if the listener cannot serve. It keeps its socket, so that no other Gateway on the address gets its port.
    pub(super) is_closed: bool,
}

impl ListenerPort {
    pub(super) fn transport(self) -> Transport {
        match self.protocol {
            Protocol::Udp => Transport::Udp,
            _ => Transport::Tcp,
        }
    }
}

/// Names of the Kuma Dataplanes that this machine listens for, optionally preceded by their mesh or namespace; empty for all.
#[derive(Clone, Debug, Default)]
pub struct DataplaneFilter(pub BTreeSet<String>);

impl DataplaneFilter {
    fn matches(&self, proxy: &ObjectKey) -> bool {
        let scope = proxy.namespace();
        let scope = scope.mesh().unwrap_or(scope);
        let name = &*proxy.name.name;
        self.0.is_empty() || self.0.contains(name) || self.0.contains(&format!("{scope}/{name}"))
    }
}

/// The sockets of this machine and their owners.
pub struct Placement {
    offset: u16,
    /// Number that is added to ports below [`LOW_PORTS`] only.
    low_port_offset: u16,
    addresses: AddressAssigner,
    /// Addresses requested by Gateways.
    requests: BTreeMap<Name, Arc<AddressRequest>>,
    pub(super) listeners: BTreeMap<Name, BTreeMap<FrontendId, ListenerPort>>,
    /// Outbounds of Kuma's Dataplanes, with their protocols.
    pub(super) outbounds: BTreeMap<FrontendId, Protocol>,
    /// Ages of Kuma's Dataplanes.
    ages: HashMap<ObjectKey, Age>,
    /// Selects the Dataplanes that this machine listens for.
    dataplanes: DataplaneFilter,
    /// Pods, and Services with an address on this machine.
    pub(crate) services: LocalServices,
    /// Gateways that observations were reported for.
    pub(super) observed: BTreeSet<Name>,
    /// Addresses of each Gateway.
    pub(super) assigned: BTreeMap<Name, AssignedAddresses>,
    /// Logged reasons why sockets that no status reports on are not opened.
    warnings: BTreeSet<String>,
    /// Listeners whose socket belongs to another owner, with the reason.
    pub(super) conflicts: BTreeMap<FrontendId, String>,
    /// Sockets to open.
    pub(crate) sockets: Arc<BTreeMap<SocketKey, SocketOwner>>,
}

impl Placement {
    /// Creates an empty placement. `offset` is added to every port.
    pub fn new(policy: AddressPolicy, offset: u16, dataplanes: DataplaneFilter) -> Self {
        Placement {
            offset,
            low_port_offset: 0,
            dataplanes,
            addresses: AddressAssigner::new(policy),
            requests: BTreeMap::new(),
            listeners: BTreeMap::new(),
            outbounds: BTreeMap::new(),
            ages: HashMap::new(),
            services: LocalServices::default(),
            observed: BTreeSet::new(),
            assigned: BTreeMap::new(),
            warnings: BTreeSet::new(),
            conflicts: BTreeMap::new(),
            sockets: Arc::default(),
        }
    }

    /// Sets a number that is added to ports below 1024 only.
    pub fn with_low_port_offset(mut self, offset: u16) -> Self {
        self.low_port_offset = offset;
        self
    }

    /// Applies changes of the bound form. Returns changes of the needed backends, and true if sockets or addresses may have changed.
    pub(crate) fn apply(&mut self, delta: &Delta) -> (Vec<Change>, bool) {
        for (gateway, request) in &delta.gateways {
            match request {
                Some(request) => drop(self.requests.insert(gateway.clone(), request.clone())),
                None => drop(self.requests.remove(gateway)),
            }
        }
        let mut gateways = !delta.gateways.is_empty();
        for (id, frontend) in &delta.frontends {
            gateways |= self.apply_frontend(id, frontend.as_deref());
        }
        self.apply_workloads(delta);
        let mut services = false;
        for (key, addresses) in &delta.services {
            services |= self.services.apply_service(key, addresses.as_ref());
        }
        if gateways || services {
            self.reassign();
        }
        (self.services.needed_changes(services), gateways || services)
    }

    /// Applies a changed frontend. Returns true if sockets may change.
    fn apply_frontend(&mut self, id: &FrontendId, frontend: Option<&Frontend>) -> bool {
        match id {
            FrontendId::Listener { gateway, .. } => {
                let listeners = self.listeners.entry(gateway.clone()).or_default();
                match frontend {
                    // Without mutual TLS a cross-mesh listener would be open to everyone.
                    Some(frontend) if !frontend.cross_mesh || frontend.tls.is_some() => {
                        let listener = ListenerPort {
                            port: frontend.port,
                            protocol: frontend.protocol,
                            cross_mesh: frontend.cross_mesh,
                            is_closed: frontend.closed.is_some(),
                        };
                        listeners.insert(id.clone(), listener);
                    }
                    _ => drop(listeners.remove(id)),
                }
                if listeners.is_empty() {
                    self.listeners.remove(gateway);
                }
                true
            }
            FrontendId::Outbound(_) => match frontend {
                Some(frontend) => {
                    let known = self.outbounds.insert(id.clone(), frontend.protocol);
                    known.is_none()
                }
                None => self.outbounds.remove(id).is_some(),
            },
            FrontendId::Mesh { .. } => false,
        }
    }

    fn apply_workloads(&mut self, delta: &Delta) {
        for (key, workload) in &delta.workloads {
            let workload = workload.as_deref();
            if key.kind == Kind::Pod {
                let address = workload.and_then(|workload| workload.address);
                self.services.apply_pod(key, address);
            } else if let Some(workload) = workload {
                self.ages.insert(key.clone(), workload.age);
            } else {
                self.ages.remove(key);
            }
        }
    }

    /// Checks again which addresses this machine has, and assigns those that were unusable before. Returns changes of the needed backends.
    pub(crate) fn retry(&mut self) -> Vec<Change> {
        self.services.refresh();
        self.reassign();
        self.services.needed_changes(true)
    }

    /// Assigns addresses to Gateways and sockets to listeners. Older Gateways have precedence, then Kuma's proxies, then Services.
    fn reassign(&mut self) {
        let mut warnings = BTreeSet::new();
        let requests = self.requests_in_order(&mut warnings);
        self.assigned = self.addresses.assign(&requests);
        let mut sockets = self.retained_sockets(&requests);
        let mut conflicts = BTreeMap::new();
        for request in &requests {
            let name = &request.gateway;
            let assigned = self.assigned.get(name);
            let addresses = assigned.map_or(&[][..], |assigned| &assigned.addresses);
            for (id, listener) in self.listeners.get(name).into_iter().flatten() {
                let owner = SocketOwner::Gateway {
                    gateway: name.clone(),
                    port: listener.port,
                };
                for address in addresses {
                    let key = self.socket(*address, listener.port, listener.transport());
                    let claimed = key.and_then(|key| claim(&mut sockets, key, &owner));
                    if let Err(reason) = claimed {
                        conflicts.insert(id.clone(), reason);
                    }
                }
            }
        }
        self.assign_outbounds(&mut sockets, &mut warnings);
        self.assign_services(&mut sockets, &mut warnings);
        // Each warning is logged once while it lasts.
        warn_each(warnings.difference(&self.warnings));
        self.warnings = warnings;
        self.conflicts = conflicts;
        if *self.sockets != sockets {
            self.sockets = Arc::new(sockets);
        }
    }

    /// Address requests in order of precedence: Gateways, then Kuma's proxies, each by age.
    fn requests_in_order(&self, warnings: &mut BTreeSet<String>) -> Vec<Arc<AddressRequest>> {
        let is_here = |request: &&Arc<AddressRequest>| {
            let proxy = request.proxy.as_ref();
            proxy.is_none_or(|proxy| self.dataplanes.matches(proxy))
        };
        let requests = self.requests.values().filter(is_here).cloned();
        let mut requests: Vec<Arc<AddressRequest>> = requests.collect();
        requests.sort_by(|a, b| {
            let order = |r: &AddressRequest| (r.proxy.is_some(), r.age);
            (order(a), &a.gateway).cmp(&(order(b), &b.gateway))
        });
        for request in &requests {
            if let (Some(proxy), Some(address)) = (&request.proxy, &request.invalid) {
                warnings.insert(format!(
                    "{proxy} is not bound: `{address}` is not an IP address"
                ));
            }
        }
        requests
    }

    /// Sockets that Kuma's proxies keep: a new proxy never takes over a socket in use.
    fn retained_sockets(
        &self,
        requests: &[Arc<AddressRequest>],
    ) -> BTreeMap<SocketKey, SocketOwner> {
        let outbounds = self.outbounds.keys();
        let outbounds = outbounds.filter_map(|id| Some((outbound_address(id)?, id)));
        let outbounds: BTreeMap<_, &FrontendId> = outbounds.collect();
        let retained = self.sockets.iter().filter_map(|(key, owner)| match owner {
            SocketOwner::Gateway { gateway, .. } if gateway_kind(gateway) != "Gateway" => {
                let requested = requests.iter().any(|request| request.gateway == *gateway);
                let mut listeners = self.listeners_of(gateway);
                let wanted =
                    listeners.any(|(_, one)| self.socket_keys(gateway, *one).contains(key));
                (requested && wanted).then(|| (*key, owner.clone()))
            }
            // The destination of the outbound may have changed.
            SocketOwner::Outbound(id) => {
                let now = outbounds.get(&outbound_address(id)?)?;
                Some((*key, SocketOwner::Outbound((*now).clone())))
            }
            SocketOwner::Gateway { .. } | SocketOwner::Mesh { .. } => None,
        });
        retained.collect()
    }

    /// Assigns sockets to the outbounds of Kuma's sidecars.
    fn assign_outbounds(
        &self,
        sockets: &mut BTreeMap<SocketKey, SocketOwner>,
        warnings: &mut BTreeSet<String>,
    ) {
        let age = |id: &&FrontendId| match id {
            FrontendId::Outbound(outbound) => self.ages.get(&outbound.dataplane).copied(),
            _ => None,
        };
        let mut outbounds: Vec<&FrontendId> = self.outbounds.keys().collect();
        outbounds.sort_by_key(age);
        for id in outbounds {
            let FrontendId::Outbound(outbound) = id else {
                continue;
            };
            let Some(listen) = outbound.listen else {
                continue;
            };
            if !self.dataplanes.matches(&outbound.dataplane) {
                continue;
            }
            let owner = SocketOwner::Outbound(id.clone());
            let key = self.socket(listen.ip(), listen.port(), Transport::Tcp);
            if let Err(reason) = key.and_then(|key| claim(sockets, key, &owner)) {
                let (dataplane, to) = (&outbound.dataplane, &outbound.destination);
                warnings.insert(format!("{dataplane} to {to} is not bound: {reason}"));
            }
        }
    }

    /// Assigns sockets to the ports of Services with an address on this machine.
    fn assign_services(
        &self,
        sockets: &mut BTreeMap<SocketKey, SocketOwner>,
        warnings: &mut BTreeSet<String>,
    ) {
        for (id, addresses) in self.services.ports() {
            let owner = SocketOwner::Mesh {
                parent: id.object.clone(),
                port: id.port,
            };
            for address in addresses {
                let key = self.socket(*address, id.port, id.transport);
                if let Err(reason) = key.and_then(|key| claim(sockets, key, &owner)) {
                    warnings.insert(format!("{id} is not bound: {reason}"));
                }
            }
        }
    }

    pub(super) fn socket(
        &self,
        address: IpAddr,
        port: u16,
        transport: Transport,
    ) -> Result<SocketKey, String> {
        let offset = match port < LOW_PORTS {
            true => self.offset.saturating_add(self.low_port_offset),
            false => self.offset,
        };
        let number = port
            .checked_add(offset)
            .ok_or_else(|| format!("port {port} with an offset of {offset} is above 65535"))?;
        let address = SocketAddr::new(address, number);
        Ok(SocketKey { address, transport })
    }

    /// Returns whether a retry may assign a missing address to a Gateway.
    pub(crate) fn has_retryable(&self) -> bool {
        let lacks_address = |assigned: &AssignedAddresses| {
            assigned.may_retry && (assigned.addresses.is_empty() || !assigned.unusable.is_empty())
        };
        self.assigned.values().any(lacks_address)
    }
}

/// Returns the Dataplane and the address of an outbound.
fn outbound_address(id: &FrontendId) -> Option<(&ObjectKey, SocketAddr)> {
    match id {
        FrontendId::Outbound(outbound) => Some((&outbound.dataplane, outbound.listen?)),
        _ => None,
    }
}

/// Assigns a socket to an owner. Fails if it has another owner.
fn claim(
    sockets: &mut BTreeMap<SocketKey, SocketOwner>,
    key: SocketKey,
    owner: &SocketOwner,
) -> Result<(), String> {
    match sockets.entry(key).or_insert_with(|| owner.clone()) {
        has if has == owner => Ok(()),
        has => Err(format!("{} is in use by {has}", key.address)),
    }
}
