//! The state of a Gateway in the data plane: its addresses, and the failures to assign or bind them.
//!
//! The data plane reports it. It affects the status of the Gateway and its ListenerSets, never their frontends: when a port that was in use becomes free,
//! nothing has to be bound again. Listeners of Kuma's builtin gateways are reported under the name of their proxy.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::bound::FrontendId;
use crate::gateway_api::gateway::GatewayView;
use crate::gateway_api::infrastructure::ip_address;

/// State of a Gateway in the data plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Assigned addresses, for `status.addresses`.
    pub addresses: Vec<IpAddr>,
    /// Addresses of `spec.addresses` that can't be used, with reasons.
    pub unusable: BTreeMap<IpAddr, String>,
    /// Reason why a requested address could not be assigned.
    pub unassigned: Option<String>,
    /// Listeners whose port can't be bound, with reasons.
    pub unbound: BTreeMap<FrontendId, String>,
    /// Listeners whose certificate or key can't be used, with reasons.
    pub faulty: BTreeMap<FrontendId, String>,
    /// Addresses of cross-mesh listeners, at which proxies of other meshes call them.
    pub cross_mesh_addresses: BTreeMap<FrontendId, Vec<SocketAddr>>,
}

impl GatewayView {
    /// Adds the state in the data plane to a Gateway.
    pub(crate) fn with_observation(&self, observation: &Observation) -> GatewayView {
        let mut view = self.clone();
        if view.refused.is_none() && !view.is_without_address {
            let known = view.unusable.take().map(|(_, message)| message);
            let found = observation
                .unusable
                .iter()
                .map(|(a, why)| format!("{a}: {why}"));
            let unusable: Vec<String> = known.into_iter().chain(found).collect();
            view.is_without_address = observation.addresses.is_empty();
            view.unusable = if !unusable.is_empty() {
                Some(("AddressNotUsable", unusable.join("; ")))
            } else if view.is_without_address {
                let message = observation.unassigned.as_deref();
                let message = message.unwrap_or("no address could be assigned");
                Some(("AddressNotAssigned", message.to_owned()))
            } else {
                None
            };
            let addresses = observation.addresses.iter();
            view.addresses = addresses.map(|a| ip_address(a.to_string())).collect();
        }
        view.record_listener_failures(observation);
        view
    }

    /// Adds listeners that can't be bound or whose certificate can't be used.
    pub(crate) fn record_listener_failures(&mut self, observation: &Observation) {
        let sets = self.sets.iter_mut().flat_map(|set| &mut set.listeners);
        for listener in self.listeners.iter_mut().chain(sets) {
            if let Some(why) = observation.unbound.get(&listener.id) {
                let why = ("PortUnavailable", why.clone());
                listener.refused.get_or_insert(why);
                // A port that can't be bound receives nothing to reserve.
                listener.reserves_hostname = false;
            }
            if let Some(why) = observation.faulty.get(&listener.id) {
                let why = ("InvalidCertificateRef", why.clone());
                listener.unresolved.push(why);
                listener.can_serve = false;
                listener.reserves_hostname = listener.is_accepted();
            }
        }
    }
}
