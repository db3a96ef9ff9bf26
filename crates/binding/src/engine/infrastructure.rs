//! Derives the objects to generate for Gateways.

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_resources::gateway::Gateway;
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use super::difference::difference_arc;
use crate::bound::{Infrastructure, Protocol, Transport};
use crate::gateway_api::gateway::GatewayView;
use crate::{Binder, Delta};

impl Binder {
    /// Adds changed infrastructure to a delta. `known` is the infrastructure as of the last delta.
    pub(super) fn update_infrastructures(
        &self,
        known: &mut BTreeMap<Name, Arc<Infrastructure>>,
        delta: &mut Delta,
    ) {
        let all: BTreeMap<Name, Arc<Infrastructure>> = match self.store.controller.generates_proxies
        {
            true => self.infrastructures().collect(),
            false => BTreeMap::new(),
        };
        difference_arc(known, &all, &mut delta.infrastructures);
        *known = all;
    }

    fn infrastructures(&self) -> impl Iterator<Item = (Name, Arc<Infrastructure>)> {
        self.gateways.iter().filter_map(|(name, view)| {
            let (kind, key) = (Kind::Gateway, name.clone());
            match self.store.get(&ObjectKey { kind, name: key })? {
                Resource::Gateway(gateway) => {
                    Some((name.clone(), Arc::new(infrastructure(gateway, view))))
                }
                _ => None,
            }
        })
    }
}

fn infrastructure(gateway: &Gateway, view: &GatewayView) -> Infrastructure {
    let metadata = gateway.spec.infrastructure.clone().unwrap_or_default();
    let ports = view.frontends().map(|frontend| {
        let transport = match frontend.protocol {
            Protocol::Udp => Transport::Udp,
            _ => Transport::Tcp,
        };
        (frontend.port, transport)
    });
    let addresses = view.addresses.iter();
    Infrastructure {
        gateway: gateway.metadata.key(),
        uid: gateway.metadata.uid.clone(),
        class: gateway.spec.gateway_class_name.as_str().into(),
        ports: ports.collect(),
        labels: metadata.labels,
        annotations: metadata.annotations,
        addresses: addresses
            .filter_map(|(_, value)| value.parse().ok())
            .collect(),
        parameters: view.parameters.clone(),
    }
}
