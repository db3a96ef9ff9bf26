//! Endpoints that the operator's [`EndpointPolicy`] refuses: they get no traffic, and a condition of each route that uses them reports it.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use crate::Binder;
use crate::bound::{Backend, BackendId, Endpoints};
use crate::endpoint_policy::{EndpointPolicy, RefusedAddress};
use crate::engine::{Query, Reader};
use crate::gateway_api::backends;
use crate::status::Condition;
use crate::status::has_status;

/// Condition of routes and XBackends with refused endpoints.
pub(crate) const ENDPOINTS_REFUSED: &str = "pointsman.io/EndpointsRefused";

/// Maximum number of endpoints of a backend that a condition names; the others are counted.
const MAX_NAMED: usize = 3;

/// An address, or a DNS name with an address that it resolves to, and the reason for refusing it.
pub(crate) type RefusedEndpoint = (String, RefusedAddress);

/// Loads a backend with its allowed endpoints, and the refused ones.
pub(crate) fn load_backend(
    reader: &Reader<'_>,
    id: &BackendId,
) -> Option<(Backend, Endpoints, Vec<RefusedEndpoint>)> {
    let (backend, mut endpoints) = backends::load(reader, id)?;
    let refused = match backends::is_own_listener(reader, id) {
        // The addresses come from Pointsman itself, not from the author of a manifest.
        true => Vec::new(),
        false => remove_refused(reader, id, &mut endpoints),
    };
    Some((backend, endpoints, refused))
}

fn remove_refused(
    reader: &Reader<'_>,
    id: &BackendId,
    endpoints: &mut Endpoints,
) -> Vec<RefusedEndpoint> {
    let policy = reader.endpoint_policy();
    let mut refused = Vec::new();
    match endpoints {
        Endpoints::Addresses(all) => all.retain(|endpoint| {
            let why = policy.refuses_endpoint(endpoint.address, id.transport);
            refused.extend(why.map(|why| (endpoint.address.to_string(), why)));
            why.is_none()
        }),
        Endpoints::Dns(name, port) => {
            if let Some(why) = always_refused(policy, id, name, *port) {
                refused.push((name.to_string(), why));
                *endpoints = Endpoints::Addresses(Vec::new());
                return refused;
            }
            // Proxies resolve the name, and skip and report refused addresses. An address of Pointsman itself is refused only for the server's port.
            for address in reader.refused_resolution(name) {
                let endpoint = SocketAddr::new(*address, *port);
                let why = policy.refuses_endpoint(endpoint, id.transport);
                refused.extend(why.map(|why| (format!("{name} ({address})"), why)));
            }
        }
    }
    refused
}

/// RFC 6761, section 6.3: "Users may assume that IPv4 and IPv6 address queries for localhost names will always resolve to the respective IP loopback
/// address."
fn always_refused(
    policy: &EndpointPolicy,
    id: &BackendId,
    name: &str,
    port: u16,
) -> Option<RefusedAddress> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if name != "localhost" && !name.ends_with(".localhost") {
        return None;
    }
    let refuses = |ip: IpAddr| policy.refuses_endpoint(SocketAddr::new(ip, port), id.transport);
    refuses(Ipv4Addr::LOCALHOST.into()).and(refuses(Ipv6Addr::LOCALHOST.into()))
}

impl Binder {
    /// Sets which addresses may be endpoints.
    pub(crate) fn set_endpoint_policy(&mut self, policy: Arc<EndpointPolicy>) {
        if self.store.endpoint_policy == policy {
            return;
        }
        self.store.endpoint_policy = policy;
        for id in self.users.keys() {
            self.tracker.invalidate(Query::Backend(id.clone()));
        }
    }

    /// Sets the refused endpoints of a backend, and invalidates the status of the objects that use it.
    pub(crate) fn set_refused_endpoints(&mut self, id: &BackendId, refused: Vec<RefusedEndpoint>) {
        let old = match refused.is_empty() {
            true => self.refused_endpoints.remove(id),
            false => self.refused_endpoints.insert(id.clone(), refused),
        };
        if old.as_ref() == self.refused_endpoints.get(id) {
            return;
        }
        let users = self.routes.iter().filter(|(_, view)| {
            let mut used = view.backends();
            used.any(|used| used == id)
        });
        let users = users.map(|(key, _)| key).chain(self.kuma.policies.keys());
        for key in users.chain([&id.object]).filter(|key| has_status(key.kind)) {
            self.tracker.invalidate(Query::Status(key.clone()));
        }
    }

    /// Returns a condition that names the refused endpoints of some backends; `None` if all are allowed.
    pub(crate) fn refused_condition<'b>(
        &self,
        backends: impl IntoIterator<Item = &'b BackendId>,
    ) -> Option<Condition> {
        let message = self.refused_message(backends)?;
        let condition = Condition::yes(ENDPOINTS_REFUSED, "AddressNotAllowed", message);
        Some(condition)
    }

    /// Returns the message that names the refused endpoints of some backends; `None` if all are allowed.
    pub(crate) fn refused_message<'b>(
        &self,
        backends: impl IntoIterator<Item = &'b BackendId>,
    ) -> Option<String> {
        let mut parts: Vec<String> = Vec::new();
        for id in backends {
            let Some(refused) = self.refused_endpoints.get(id) else {
                continue;
            };
            let named = refused.iter().take(MAX_NAMED);
            let named: Vec<String> = named
                .map(|(endpoint, why)| format!("{endpoint} is {why}"))
                .collect();
            let mut text = format!("{id}: {}", named.join(", "));
            if let more @ 1.. = refused.len().saturating_sub(MAX_NAMED) {
                let _ = write!(text, " and {more} more");
            }
            if !parts.contains(&text) {
                parts.push(text);
            }
        }
        (!parts.is_empty()).then(|| format!(
            "{}. These endpoints get no traffic; --allow-endpoint-range CIDR allows a range of addresses, but never the admin server",
            parts.join("; ")
        ))
    }

    /// Returns the backends of an object that have refused endpoints.
    pub(crate) fn refused_backends_of<'b>(
        &'b self,
        object: &'b pointsman_resources::ObjectKey,
    ) -> impl Iterator<Item = &'b BackendId> {
        let mut found: Vec<&BackendId> = self.refused_endpoints.keys().collect();
        found.retain(|id| id.object == *object);
        found.sort();
        found.into_iter()
    }
}
