//! What is legal in Kuma's policies but surprising: targets that are not there, hostnames that no listener serves, backends without endpoints.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_resources::kuma::{
    Inbound, ListenerProtocol, TargetKind, TargetRef, display_name, is_universal,
};
use pointsman_resources::{ObjectKey, Resource};

use super::lower::place_text;
use super::policy::Policy;
use super::proxy::tagged;
use super::units::ports_of;
use super::{across, backend};
use crate::bound::{BackendId, Tags};
use crate::store::Reader;
use crate::{Binder, Warning};

impl Binder {
    /// The warnings of all policies, in their order.
    pub(crate) fn mesh_warnings(&self) -> Vec<Warning> {
        let reader = Reader::new(&self.store);
        let mut all = Vec::new();
        for policy in self.kuma.policies.values() {
            let mut warn = |field: String, message: String| {
                all.push(Warning {
                    object: policy.key.clone(),
                    field,
                    message,
                });
            };
            let target = &policy.route.spec.target_ref;
            if policy.is_in_effect() && !self.selects_some(policy) {
                let mesh = &policy.route.mesh;
                let message = match target.kind {
                    TargetKind::MeshGateway if !self.has_gateway(policy) => {
                        format!("there is no {} in mesh {mesh}", target_text(target))
                    }
                    TargetKind::MeshGateway => {
                        let (target, kind) = (target_text(target), policy.key.kind);
                        format!("no listener of {target} that a {kind} is for has its tags")
                    }
                    _ => format!("no proxy of mesh {mesh} is {}", target_text(target)),
                };
                warn("spec.targetRef".to_owned(), message);
            }
            for (index, to) in policy.route.spec.to.iter().enumerate() {
                if to.target_ref.kind != TargetKind::Mesh && !self.is_there(&reader, policy, index)
                {
                    let (to, mesh) = (target_text(&to.target_ref), &policy.route.mesh);
                    let message = format!("there is no {to} in mesh {mesh}, so it has no effect");
                    warn(format!("spec.to[{index}].targetRef"), message);
                }
            }
            if policy.route.spec.to.is_empty() {
                warn(
                    "spec".to_owned(),
                    "it has no `to`, so it has no effect".to_owned(),
                );
            }
            for (index, to) in policy.route.spec.to.iter().enumerate() {
                if policy.is_http() && to.rules.is_empty() {
                    let field = policy.route.to_field(index);
                    warn(field, "it has no rules, so it has no effect".to_owned());
                }
            }
            for (index, gateways) in self.unmet(policy) {
                let message = format!(
                    "no listener of {gateways} serves any of them, so its rules get nothing"
                );
                warn(
                    format!("{}.hostnames", policy.route.to_field(index)),
                    message,
                );
            }
        }
        all.extend(self.idle_tls());
        all.extend(self.dead_ends(&reader));
        let outcomes = self
            .kuma
            .outcomes()
            .flat_map(|outcome| &outcome.told.backends);
        let idle: BTreeSet<_> = outcomes
            .filter(|(_, id)| self.is_without_endpoint(id))
            .collect();
        all.extend(idle.into_iter().map(|(source, id)| Warning {
            object: source.policy.clone(),
            field: format!(
                "{}.default.backendRefs",
                place_text((source.to, source.rule))
            ),
            message: format!("{id} has no ready endpoint: its share is answered with 503"),
        }));
        all.sort_by(|a, b| a.object.cmp(&b.object));
        all
    }

    /// TLS of listeners that don't speak it.
    fn idle_tls(&self) -> Vec<Warning> {
        let mut all = Vec::new();
        for key in self.kuma.gateways.keys() {
            let Some(Resource::MeshGateway(gateway)) = self.store.get(key) else {
                continue;
            };
            for (index, listener) in gateway.spec.conf.listeners.iter().enumerate() {
                let plain = matches!(
                    listener.protocol,
                    ListenerProtocol::Http | ListenerProtocol::Tcp
                );
                if plain && !listener.cross_mesh && listener.tls.is_some() {
                    let spec = if is_universal(&gateway.metadata) {
                        ""
                    } else {
                        "spec."
                    };
                    all.push(Warning {
                        object: key.clone(),
                        field: format!("{spec}conf.listeners[{index}].tls"),
                        message: "this listener does not speak TLS, so it is ignored".to_owned(),
                    });
                }
            }
        }
        all
    }

    /// Outbounds that lead nowhere.
    fn dead_ends(&self, reader: &Reader<'_>) -> Vec<Warning> {
        let mut all = Vec::new();
        let proxies: BTreeMap<_, _> = self.kuma.proxies.iter().collect();
        for (key, proxy) in proxies {
            let nowhere = |id: &BackendId| {
                let outcome = self.kuma.destinations.get(id);
                let governed = outcome.is_some_and(|outcome| outcome.leads_elsewhere(key, id));
                let away = across::turned_away(reader, &proxy.mesh, id).is_some();
                id.port == 0 && !governed && (away || !backend::is_offered(reader, id))
            };
            for (listen, to) in proxy.outbounds.iter().filter(|(_, to)| nowhere(to)) {
                all.push(Warning {
                    object: key.clone(),
                    field: "networking.outbound".to_owned(),
                    message: match across::is_meant(to) {
                        true if across::turned_away(reader, &proxy.mesh, to).is_some() => format!(
                            "{listen} leads nowhere: {to} lets in proxies of meshes with mTLS alone"
                        ),
                        true => format!("{listen} leads nowhere: no crossMesh listener is {to}"),
                        false => format!("{listen} leads nowhere: nothing has the tags of {to}"),
                    },
                });
            }
        }
        all
    }

    /// Whether a policy is for a proxy. In a mesh where there is none, nothing can be told.
    fn selects_some(&self, policy: &Policy) -> bool {
        let mesh = &policy.route.mesh;
        let mut proxies = self
            .kuma
            .proxies
            .values()
            .filter(|proxy| proxy.mesh == *mesh);
        if policy.route.spec.target_ref.kind == TargetKind::MeshGateway {
            let mut items = self
                .kuma
                .gateways
                .values()
                .flat_map(|view| view.items.keys());
            return items.any(|(found, _)| *found == policy.key);
        }
        let mut gateways = self.kuma.gateways.values();
        proxies.clone().next().is_none()
            || proxies.any(|proxy| policy.selects(proxy))
            || gateways.any(|view| view.outcome.reached.contains_key(&policy.key))
    }

    fn has_gateway(&self, policy: &Policy) -> bool {
        let wanted = policy.route.spec.target_ref.name.as_deref();
        self.kuma
            .gateways
            .keys()
            .any(|key| match self.store.get(key) {
                Some(Resource::MeshGateway(gateway)) => {
                    gateway.mesh == policy.route.mesh
                        && wanted == Some(display_name(&gateway.metadata))
                }
                _ => false,
            })
    }

    /// Whether what one of a policy's `to` names exists.
    fn is_there(&self, reader: &Reader<'_>, policy: &Policy, to: usize) -> bool {
        let mesh = &policy.route.mesh;
        let inbounds = reader
            .dataplanes(mesh)
            .flat_map(|dataplane| &dataplane.spec.networking.inbound);
        let services: BTreeSet<&str> = inbounds.filter_map(Inbound::service).collect();
        let tagged = services
            .into_iter()
            .map(|service| tagged(mesh, service, Tags::default()));
        let objects = reader.all_destinations();
        let ports = objects.flat_map(|object| ports_of(reader, &object.key()));
        // What somebody is told to call is there for policies, whether or not anybody offers it.
        let called = self.kuma.callers.keys().cloned();
        let mut all = tagged.chain(ports).chain(called);
        all.any(|id| policy.includes(reader, to, &id))
    }

    /// The items of a policy whose hostnames are served nowhere, with the MeshGateways that were asked.
    fn unmet(&self, policy: &Policy) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for index in 0..policy.route.spec.to.len() {
            let item = (policy.key.clone(), index);
            let gateways = self.kuma.gateways.iter();
            let asked: Vec<(&ObjectKey, bool)> = gateways
                .filter_map(|(key, view)| Some((key, *view.items.get(&item)?)))
                .collect();
            if !asked.is_empty() && asked.iter().all(|(_, met)| !met) {
                let asked: Vec<String> = asked.iter().map(|(key, _)| key.to_string()).collect();
                found.push((index, asked.join(", ")));
            }
        }
        found
    }
}

/// What a reference refers to, for people.
pub(crate) fn target_text(target: &TargetRef) -> String {
    let mut text = target.kind.name().to_owned();
    if let Some(name) = &target.name {
        let namespace = target
            .namespace
            .as_ref()
            .map(|namespace| format!("{namespace}/"));
        text.push_str(&format!(" {}{name}", namespace.unwrap_or_default()));
    }
    let pairs = target.tags.iter().chain(&target.labels);
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !pairs.is_empty() {
        text.push_str(&format!(" with {}", pairs.join(", ")));
    }
    if let Some(section) = &target.section_name {
        text.push_str(&format!(" port {section}"));
    }
    for kind in &target.proxy_types {
        text.push_str(&format!(" proxyType {kind:?}"));
    }
    text
}
