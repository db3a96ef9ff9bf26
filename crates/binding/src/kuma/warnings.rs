//! What is legal in Kuma's policies but surprising: targets that are not there, hostnames that no listener serves, backends without endpoints.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_resources::kuma::{
    Inbound, ListenerProtocol, TargetKind, TargetRef, display_name, is_universal, scope,
};
use pointsman_resources::{ObjectKey, Resource};

use super::lower::place_text;
use super::policy::Policy;
use super::proxy::tagged;
use super::units::ports_of;
use super::{across, backend};
use crate::bound::{BackendId, RuleSource, Tags};
use crate::store::Reader;
use crate::{Binder, Warning};

impl Binder {
    /// The warnings of all of Kuma's objects, in their order.
    pub(crate) fn mesh_warnings(&self) -> Vec<Warning> {
        let reader = Reader::new(&self.store);
        let mut all = Vec::new();
        let there = self.destinations_there(&reader);
        for policy in self.kuma.policies.values() {
            self.policy_warnings(&reader, policy, &there, &mut |field, message| {
                all.push(Warning {
                    object: policy.key.clone(),
                    field,
                    message,
                });
            });
        }
        all.extend(self.idle_tls());
        all.extend(self.dead_ends(&reader));
        all.extend(self.idle_backends());
        all.sort_by(|a, b| a.object.cmp(&b.object));
        all
    }

    fn policy_warnings(
        &self,
        reader: &Reader<'_>,
        policy: &Policy,
        there: &BTreeSet<BackendId>,
        warn: &mut impl FnMut(String, String),
    ) {
        let (spec, mesh) = (&policy.route.spec, &policy.route.mesh);
        if policy.is_in_effect() && !self.selects_some(policy) {
            let target = target_text(&spec.target_ref);
            let message = match spec.target_ref.kind {
                TargetKind::MeshGateway if !self.has_gateway(policy) => {
                    format!("there is no {target} in mesh {mesh}")
                }
                TargetKind::MeshGateway => {
                    let kind = policy.key.kind;
                    format!("no listener of {target} that a {kind} is for has its tags")
                }
                _ => format!("no proxy of mesh {mesh} is {target}"),
            };
            warn("spec.targetRef".to_owned(), message);
        }
        if spec.to.is_empty() {
            let message = "it has no `to`, so it has no effect";
            warn("spec".to_owned(), message.to_owned());
        }
        let own = scope(mesh);
        let near =
            |id: &&BackendId| id.port != 0 || id.object.namespace() == own || across::is_meant(id);
        for (index, to) in spec.to.iter().enumerate() {
            let includes = |id: &BackendId| policy.includes(reader, index, id);
            let is_there = || there.iter().filter(near).any(includes);
            if to.target_ref.kind != TargetKind::Mesh && !is_there() {
                let target = target_text(&to.target_ref);
                let message = format!("there is no {target} in mesh {mesh}, so it has no effect");
                warn(format!("spec.to[{index}].targetRef"), message);
            }
            let field = policy.route.to_field(index);
            if policy.is_http() && to.rules.is_empty() {
                let message = "it has no rules, so it has no effect".to_owned();
                warn(field.clone(), message);
            }
            if let Some(gateways) = self.unmet(policy, index) {
                let message = format!(
                    "no listener of {gateways} serves any of them, so its rules get nothing"
                );
                warn(format!("{field}.hostnames"), message);
            }
        }
    }

    /// Backends that have no endpoint, where rules name them.
    fn idle_backends(&self) -> Vec<Warning> {
        let outcomes = self.kuma.outcomes();
        let used = outcomes.flat_map(|outcome| &outcome.told.backends);
        let idle: BTreeSet<_> = used
            .filter(|(_, id)| self.is_without_endpoint(id))
            .collect();
        let warning = |(source, id): &(RuleSource, BackendId)| {
            let rule = place_text((source.to, source.rule));
            Warning {
                object: source.policy.clone(),
                field: format!("{rule}.default.backendRefs"),
                message: format!("{id} has no ready endpoint: its share is answered with 503"),
            }
        };
        idle.into_iter().map(warning).collect()
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
                if id.port != 0 {
                    return false;
                }
                let outcome = self.kuma.destinations.get(id);
                let governed = outcome.is_some_and(|outcome| outcome.leads_elsewhere(key, id));
                let away = across::turned_away(reader, &proxy.mesh, id).is_some();
                !governed && (away || !backend::is_offered(reader, id))
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

    /// Everything that a policy may be for: what is offered, and what somebody is told to call, whether or not anybody offers it.
    fn destinations_there(&self, reader: &Reader<'_>) -> BTreeSet<BackendId> {
        let dataplanes = self.store.objects().filter_map(|(_, object)| match object {
            Resource::Dataplane(dataplane) => Some(dataplane),
            _ => None,
        });
        let offered = dataplanes.flat_map(|dataplane| {
            let inbounds = dataplane.spec.networking.inbound.iter();
            let services = inbounds.filter_map(Inbound::service);
            services.map(|service| tagged(&dataplane.mesh, service, Tags::default()))
        });
        let objects = reader.all_destinations();
        let ports = objects.flat_map(|object| ports_of(reader, &object.key()));
        let called = self.kuma.callers.keys().cloned();
        offered.chain(ports).chain(called).collect()
    }

    /// The MeshGateways that were asked for the hostnames of one of a policy's items, where none of their listeners serves one.
    fn unmet(&self, policy: &Policy, to: usize) -> Option<String> {
        let item = (policy.key.clone(), to);
        let gateways = self.kuma.gateways.iter();
        let asked: Vec<(&ObjectKey, bool)> = gateways
            .filter_map(|(key, view)| Some((key, *view.items.get(&item)?)))
            .collect();
        let none = !asked.is_empty() && asked.iter().all(|(_, met)| !met);
        none.then(|| {
            let names: Vec<String> = asked.iter().map(|(key, _)| key.to_string()).collect();
            names.join(", ")
        })
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
