//! What the outside says of a Gateway: where it was put, and what of it could not be had there.
//!
//! It comes from whoever binds addresses and ports, and changes what is said of the Gateway and its ListenerSets, never what it serves:
//! a port that is taken today may be free tomorrow, and then nothing has to be bound anew. A builtin gateway of Kuma's goes by the name of its proxy.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::bound::FrontendId;
use crate::gateway::GatewayView;

/// What became of a Gateway outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The addresses that it has, for `status.addresses`.
    pub addresses: Vec<IpAddr>,
    /// Addresses of `spec.addresses` that can't be used, and why.
    pub unusable: BTreeMap<IpAddr, String>,
    /// Why no address could be assigned to it, if it asked for any.
    pub unassigned: Option<String>,
    /// Listeners whose port can't be bound, and why.
    pub unbound: BTreeMap<FrontendId, String>,
    /// Listeners whose certificate or key can't be used, and why.
    pub faulty: BTreeMap<FrontendId, String>,
    /// Where the proxies of all meshes find listeners that are for them.
    pub cross_mesh_addresses: BTreeMap<FrontendId, Vec<SocketAddr>>,
}

impl GatewayView {
    /// The Gateway with what the outside says of it.
    pub(crate) fn with_observation(&self, seen: &Observation) -> GatewayView {
        let mut view = self.clone();
        if view.refused.is_none() && view.unusable.is_none() {
            view.unusable = if !seen.unusable.is_empty() {
                let all = seen.unusable.iter();
                let all: Vec<String> = all.map(|(a, why)| format!("{a}: {why}")).collect();
                Some(("AddressNotUsable", all.join("; ")))
            } else if seen.addresses.is_empty() {
                let message = seen.unassigned.as_deref();
                let message = message.unwrap_or("no address could be found for it");
                Some(("AddressNotAssigned", message.to_owned()))
            } else {
                None
            };
            let kind = || "IPAddress".to_owned();
            let addresses = seen.addresses.iter().map(|a| (kind(), a.to_string()));
            view.addresses = addresses.collect();
        }
        let sets = view.sets.iter_mut().flat_map(|set| &mut set.listeners);
        for listener in view.listeners.iter_mut().chain(sets) {
            if let Some(why) = seen.unbound.get(&listener.id) {
                let why = ("PortUnavailable", why.clone());
                listener.refused.get_or_insert(why);
            }
            if let Some(why) = seen.faulty.get(&listener.id) {
                let why = ("InvalidCertificateRef", why.clone());
                listener.unresolved.push(why);
                listener.can_serve = false;
            }
        }
        view
    }
}
