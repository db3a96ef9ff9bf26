//! Derives the resources that determine the addresses on which a data plane listens: address requests, addresses of Services, and workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_resources::core::{ServicePort, ServiceType};
use pointsman_resources::gateway::{Gateway, GatewayAddress};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use super::difference::difference_arc;
use crate::bound::{AddressRequest, Infrastructure, ServiceAddresses, Transport, Workload};
use crate::gateway_api::gateway::IP_ADDRESS;
use crate::{Binder, Delta};

/// Changes that accumulate between two deltas.
#[derive(Default)]
pub(crate) struct PlacementChanges {
    changed: BTreeSet<ObjectKey>,
    /// True if a Gateway, or the set of proxies that serve a MeshGateway, changed.
    gateways: bool,
    /// Requests as of the last delta.
    requests: BTreeMap<Name, Arc<AddressRequest>>,
    /// Objects to generate as of the last delta.
    infrastructures: BTreeMap<Name, Arc<Infrastructure>>,
}

impl PlacementChanges {
    /// Records a changed object.
    pub fn record_change(&mut self, key: &ObjectKey) {
        let is_relevant = matches!(
            key.kind,
            Kind::Gateway
                | Kind::MeshGatewayInstance
                | Kind::Dataplane
                | Kind::Service
                | Kind::ServiceImport
                | Kind::Pod
        );
        if is_relevant {
            self.changed.insert(key.clone());
        }
    }

    /// Records that address requests may have changed.
    pub fn record_gateway_change(&mut self) {
        self.gateways = true;
    }
}

impl Binder {
    /// Adds changed resources to a delta.
    pub(crate) fn update_placement(&mut self, delta: &mut Delta) {
        let mut gateways = std::mem::take(&mut self.placement.gateways);
        for key in std::mem::take(&mut self.placement.changed) {
            let object = self.store.get(&key);
            match key.kind {
                Kind::Service | Kind::ServiceImport => {
                    let addresses = object.and_then(service_addresses);
                    delta.services.push((key, addresses.map(Arc::new)));
                }
                Kind::Pod => delta.workloads.push((key, object.and_then(workload))),
                Kind::Dataplane => {
                    // Its address may have changed.
                    gateways |= object.is_some_and(is_gateway);
                    delta.workloads.push((key, object.and_then(workload)));
                }
                _ => gateways = true,
            }
        }
        if gateways {
            let requests = self.address_requests();
            let requests = requests.map(|request| (request.gateway.clone(), Arc::new(request)));
            let requests: BTreeMap<Name, Arc<AddressRequest>> = requests.collect();
            difference_arc(&self.placement.requests, &requests, &mut delta.gateways);
            self.placement.requests = requests;
            let mut infrastructures = std::mem::take(&mut self.placement.infrastructures);
            self.update_infrastructures(&mut infrastructures, delta);
            self.placement.infrastructures = infrastructures;
        }
    }

    /// Returns the requests of all Gateways that Pointsman manages, and of Kuma's builtin gateways.
    fn address_requests(&self) -> impl Iterator<Item = AddressRequest> {
        let own = self.gateways.keys().filter_map(|name| {
            let (kind, name) = (Kind::Gateway, name.clone());
            match self.store.get(&ObjectKey { kind, name })? {
                Resource::Gateway(gateway) => Some(gateway_request(gateway)),
                _ => None,
            }
        });
        let builtin = self.gateway_proxies();
        own.chain(builtin.map(|(name, proxy)| proxy_request(name, proxy)))
    }
}

fn gateway_request(gateway: &Gateway) -> AddressRequest {
    let wanted = &gateway.spec.addresses;
    let by_number = wanted.iter().filter(|address| address.kind == IP_ADDRESS);
    let value = |address: &GatewayAddress| address.value.clone().filter(|value| !value.is_empty());
    AddressRequest {
        gateway: gateway.metadata.key(),
        proxy: None,
        age: gateway.metadata.age(),
        any: wanted.is_empty() || by_number.clone().any(|address| value(address).is_none()),
        addresses: by_number
            .filter_map(|address| value(address)?.parse().ok())
            .collect(),
        invalid: None,
    }
}

/// Creates the request of a proxy: a Dataplane requests its own address, a MeshGatewayInstance any address.
fn proxy_request(gateway: Name, proxy: &Resource) -> AddressRequest {
    let address = match proxy {
        Resource::Dataplane(dataplane) => Some(&dataplane.spec.networking.address),
        _ => None,
    };
    let parsed = address.map(|address| address.parse::<IpAddr>());
    AddressRequest {
        gateway,
        proxy: Some(proxy.key()),
        age: proxy.meta().age(),
        addresses: parsed.iter().flatten().copied().collect(),
        any: address.is_none(),
        invalid: match parsed {
            Some(Err(_)) => address.cloned(),
            _ => None,
        },
    }
}

/// Returns the addresses of a Service; `None` for an ExternalName or headless Service.
fn service_addresses(object: &Resource) -> Option<ServiceAddresses> {
    let (texts, ports): (Vec<&String>, &[ServicePort]) = match object {
        Resource::Service(service) if service.spec.kind != ServiceType::ExternalName => {
            let spec = &service.spec;
            let texts = spec.cluster_ips.iter().chain(&spec.cluster_ip);
            (texts.collect(), &spec.ports)
        }
        Resource::ServiceImport(import) => (import.spec.ips.iter().collect(), &import.spec.ports),
        _ => return None,
    };
    let mut addresses: Vec<IpAddr> = texts
        .into_iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    addresses.sort();
    addresses.dedup();
    if addresses.is_empty() {
        return None;
    }
    let transports = [Transport::Tcp, Transport::Udp];
    let ports = ports.iter().filter_map(|port| {
        let mut known = transports.into_iter();
        let transport = known.find(|transport| transport.name() == port.protocol)?;
        Some((port.port, transport))
    });
    let ports = ports.collect();
    Some(ServiceAddresses { addresses, ports })
}

fn workload(object: &Resource) -> Option<Arc<Workload>> {
    let address = match object {
        Resource::Pod(pod) => {
            let has_terminated =
                matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
            let address = pod.status.pod_ip.as_deref().filter(|_| !has_terminated)?;
            Some(address.parse().ok()?)
        }
        _ => None,
    };
    let age = object.meta().age();
    Some(Arc::new(Workload { address, age }))
}

fn is_gateway(object: &Resource) -> bool {
    matches!(object, Resource::Dataplane(dataplane) if dataplane.builtin_gateway().is_some())
}
