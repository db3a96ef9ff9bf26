//! Who listens where: the sockets of Gateways, and of Services that have an address here.
//!
//! It follows what is bound, and is asked anew only when something of it has changed: one more route changes nothing here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pointsman_binding::bound::{FrontendId, Protocol, Transport};
use pointsman_binding::{Binder, Change, Delta, Observation};
use pointsman_resources::gateway::Gateway;
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use crate::proxy::{Owner, SocketKey};

use super::addresses::{AddressPolicy, AddressRequest, Addresses, Assigned};
use super::gateway_kind;
use super::services::LocalServices;

/// A listener: the number of its port, and what it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The port, as the listener has it.
    pub port: u16,
    /// What is spoken there.
    pub protocol: Protocol,
    /// Whether it is for the proxies of Kuma's meshes alone.
    pub cross_mesh: bool,
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

/// Which of Kuma's Dataplanes are here, by name, perhaps with their mesh or namespace before it; all if none is named.
#[derive(Clone, Debug, Default)]
pub struct Dataplanes(pub BTreeSet<String>);

impl Dataplanes {
    fn contain(&self, proxy: &ObjectKey) -> bool {
        let place = proxy.namespace();
        let place = place.strip_prefix("mesh:").unwrap_or(place);
        let name = &*proxy.name.name;
        self.0.is_empty() || self.0.contains(name) || self.0.contains(&format!("{place}/{name}"))
    }
}

/// Who listens where.
pub struct Listeners {
    offset: u16,
    addresses: Addresses,
    gateways: BTreeMap<Name, Arc<Gateway>>,
    listeners: BTreeMap<Name, BTreeMap<FrontendId, Listener>>,
    /// Outbounds of Kuma's Dataplanes.
    outbounds: BTreeSet<FrontendId>,
    /// Those of Kuma's Dataplanes that are here.
    dataplanes: Dataplanes,
    /// Services that have an address here, and Pods.
    pub mesh: LocalServices,
    /// The Gateways of which something was said.
    observed: BTreeSet<Name>,
    /// What each Gateway has got.
    pub assigned: BTreeMap<Name, Assigned>,
    /// What is not listened on and has no status to say so.
    complaints: BTreeSet<String>,
    /// Listeners that lost their place to somebody else, and why.
    pub lost: BTreeMap<FrontendId, String>,
    /// Every socket.
    pub sockets: Arc<BTreeMap<SocketKey, Owner>>,
}

impl Listeners {
    /// Nobody listens yet. `offset` is added to every port.
    pub fn new(policy: AddressPolicy, offset: u16, dataplanes: Dataplanes) -> Self {
        Listeners {
            offset,
            dataplanes,
            addresses: Addresses::new(policy),
            gateways: BTreeMap::new(),
            listeners: BTreeMap::new(),
            outbounds: BTreeSet::new(),
            mesh: LocalServices::default(),
            observed: BTreeSet::new(),
            assigned: BTreeMap::new(),
            complaints: BTreeSet::new(),
            lost: BTreeMap::new(),
            sockets: Arc::default(),
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
                    services |= self.mesh.follow_service(key, binder.object(key));
                }
                Kind::MeshGatewayInstance => gateways = true,
                Kind::Dataplane => {
                    gateways |= is_gateway(binder.object(key)) || self.is_listed(key);
                }
                Kind::Pod => pods |= self.mesh.follow_pod(key, binder.object(key)),
                _ => {}
            }
        }
        for (id, frontend) in &delta.frontends {
            if let FrontendId::Listener { gateway, .. } = id {
                gateways = true;
                let listeners = self.listeners.entry(gateway.clone()).or_default();
                match frontend {
                    // Without certificates to ask for, nobody would be kept out.
                    Some(frontend) if !frontend.cross_mesh || frontend.tls.is_some() => {
                        let listener = Listener {
                            port: frontend.port,
                            protocol: frontend.protocol,
                            cross_mesh: frontend.cross_mesh,
                        };
                        listeners.insert(id.clone(), listener);
                    }
                    _ => drop(listeners.remove(id)),
                }
                if listeners.is_empty() {
                    self.listeners.remove(gateway);
                }
            }
            if let FrontendId::Outbound(_) = id {
                gateways |= match frontend {
                    Some(_) => self.outbounds.insert(id.clone()),
                    None => self.outbounds.remove(id),
                };
            }
        }
        if pods {
            self.mesh.settle_pods();
        }
        if gateways || services {
            self.settle(binder);
        }
        (self.mesh.needs(services), gateways || services)
    }

    /// Whether a Dataplane has an address here as a gateway.
    fn is_listed(&self, dataplane: &ObjectKey) -> bool {
        self.assigned.contains_key(&dataplane.name)
    }

    /// Asks again what could not be had, as the machine may have changed.
    pub fn look_again(&mut self, binder: &Binder) -> Vec<Change> {
        self.mesh.look_again(binder);
        self.settle(binder);
        self.mesh.needs(true)
    }

    /// Gives every Gateway its addresses and every listener its socket. Older Gateways choose first, then Kuma's proxies, then Services.
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
        let mut complaints = BTreeSet::new();
        let mut wishes: Vec<AddressRequest> =
            gateways.into_iter().map(AddressRequest::of).collect();
        wishes.extend(self.builtin_gateways(binder, &mut complaints));
        self.assigned = self.addresses.assign(&wishes);
        let mut sockets = self.kept(&wishes);
        let mut lost = BTreeMap::new();
        for AddressRequest { name, .. } in wishes {
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
                        complaints.insert(format!("{} is not listened for: {why}", id.parent()));
                        lost.insert(id.clone(), why);
                    }
                }
            }
        }
        self.settle_outbounds(binder, &mut sockets, &mut complaints);
        for (id, addresses) in self.mesh.services.values().flatten() {
            let owner = Owner::Mesh {
                parent: id.object.clone(),
                port: id.port,
            };
            for address in addresses {
                let key = self.socket(*address, id.port, id.transport);
                if let Err(why) = key.and_then(|key| claim(&mut sockets, key, &owner)) {
                    complaints.insert(format!("{id} is not listened on: {why}"));
                }
            }
        }
        // Each is said once, however often it is found.
        for complaint in complaints.difference(&self.complaints) {
            tracing::warn!("{complaint}");
        }
        self.complaints = complaints;
        self.lost = lost;
        if *self.sockets != sockets {
            self.sockets = Arc::new(sockets);
        }
    }

    /// The sockets of Kuma's proxies that stay theirs: who comes later takes nothing from who listens already.
    fn kept(&self, wishes: &[AddressRequest]) -> BTreeMap<SocketKey, Owner> {
        let outbounds = self.outbounds.iter();
        let outbounds = outbounds.filter_map(|id| Some((place_of(id)?, id)));
        let outbounds: BTreeMap<_, &FrontendId> = outbounds.collect();
        let held = self.sockets.iter().filter_map(|(key, owner)| match owner {
            Owner::Gateway { gateway, .. } if gateway_kind(gateway) != "Gateway" => {
                let wished = wishes.iter().any(|wish| wish.name == *gateway);
                let mut listeners = self.listeners_of(gateway);
                let wanted = listeners.any(|(_, one)| self.places(gateway, *one).contains(key));
                (wished && wanted).then(|| (*key, owner.clone()))
            }
            // What a Dataplane calls there may have changed since.
            Owner::Outbound(id) => {
                let now = outbounds.get(&place_of(id)?)?;
                Some((*key, Owner::Outbound((*now).clone())))
            }
            Owner::Gateway { .. } | Owner::Mesh { .. } => None,
        });
        held.collect()
    }

    /// What Kuma's builtin gateways wish for: a Dataplane the address that it has, a MeshGatewayInstance any.
    fn builtin_gateways(
        &self,
        binder: &Binder,
        complaints: &mut BTreeSet<String>,
    ) -> Vec<AddressRequest> {
        let proxies = binder.gateway_proxies();
        let here = proxies.filter(|(_, proxy)| self.dataplanes.contain(&proxy.key()));
        let mut here: Vec<(Name, &Resource)> = here.collect();
        here.sort_by_key(|(name, proxy)| (proxy.meta().age(), name.clone()));
        here.into_iter()
            .map(|(name, proxy)| match proxy {
                Resource::Dataplane(dataplane) => {
                    let address = &dataplane.spec.networking.address;
                    let parsed = address.parse::<IpAddr>();
                    if parsed.is_err() {
                        let proxy = proxy.key();
                        complaints.insert(format!(
                            "{proxy} is not listened for: `{address}` is no address"
                        ));
                    }
                    AddressRequest {
                        name,
                        asked: parsed.into_iter().collect(),
                        any: false,
                    }
                }
                _ => AddressRequest {
                    name,
                    asked: Vec::new(),
                    any: true,
                },
            })
            .collect()
    }

    /// Gives the outbounds of Kuma's sidecars their sockets.
    fn settle_outbounds(
        &self,
        binder: &Binder,
        sockets: &mut BTreeMap<SocketKey, Owner>,
        complaints: &mut BTreeSet<String>,
    ) {
        let age = |id: &&FrontendId| match id {
            FrontendId::Outbound(outbound) => binder
                .object(&outbound.dataplane)
                .map(|object| object.meta().age()),
            _ => None,
        };
        let mut outbounds: Vec<&FrontendId> = self.outbounds.iter().collect();
        outbounds.sort_by_key(age);
        for id in outbounds {
            let FrontendId::Outbound(outbound) = id else {
                continue;
            };
            let Some(listen) = outbound.listen else {
                continue;
            };
            if !self.dataplanes.contain(&outbound.dataplane) {
                continue;
            }
            let owner = Owner::Outbound(id.clone());
            let key = self.socket(listen.ip(), listen.port(), Transport::Tcp);
            if let Err(why) = key.and_then(|key| claim(sockets, key, &owner)) {
                let (dataplane, to) = (&outbound.dataplane, &outbound.destination);
                complaints.insert(format!("{dataplane} to {to} is not listened on: {why}"));
            }
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
                if listener.cross_mesh {
                    let owner = Owner::Gateway {
                        gateway: name.clone(),
                        port: listener.port,
                    };
                    let own = |key: &SocketKey| self.sockets.get(key) == Some(&owner);
                    let places = self.places(name, *listener).into_iter();
                    let places = places.filter(own).map(|key| key.address);
                    seen.places.insert(id.clone(), places.collect());
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
        let lacks = |assigned: &Assigned| {
            assigned.hopes && (assigned.addresses.is_empty() || !assigned.unusable.is_empty())
        };
        self.assigned.values().any(lacks)
    }
}

/// Whose an outbound is, and where it is listened on.
fn place_of(id: &FrontendId) -> Option<(&ObjectKey, SocketAddr)> {
    match id {
        FrontendId::Outbound(outbound) => Some((&outbound.dataplane, outbound.listen?)),
        _ => None,
    }
}

fn is_gateway(object: Option<&Resource>) -> bool {
    matches!(object, Some(Resource::Dataplane(dataplane)) if dataplane.builtin_gateway().is_some())
}

/// Takes a socket for somebody, unless somebody else has it.
fn claim(
    sockets: &mut BTreeMap<SocketKey, Owner>,
    key: SocketKey,
    owner: &Owner,
) -> Result<(), String> {
    match sockets.entry(key).or_insert_with(|| owner.clone()) {
        has if has == owner => Ok(()),
        has => Err(format!("{} is taken by {has}", key.address)),
    }
}
