//! Warnings about valid but surprising configuration of Kuma: targets that don't exist, hostnames that no listener serves, backends without endpoints,
//! requests that match no rule, outbounds that don't resolve. Warnings that depend only on a policy are in [`super::policy_warnings`].

use std::collections::{BTreeMap, BTreeSet};

use pointsman_resources::kuma::{
    Inbound, ListenerProtocol, TargetKind, TargetRef, ZONE_TAG, display_name, is_universal,
};
use pointsman_resources::{Kind, ObjectKey, Resource};

use super::lowering::rule_field;
use super::policy::MeshPolicy;
use super::proxy::{INJECTION_LABEL, MeshProxy, UnresolvedOutbound, tagged_service};
use super::queries::ports_of;
use super::status::summarize_proxies;
use super::{backend, cross_mesh, policy_warnings};
use crate::bound::{BackendId, FrontendId, Protocol, RuleSource, Tags};
use crate::engine::Reader;
use crate::{Binder, Warning};

impl Binder {
    /// Returns the warnings about all of Kuma's objects, sorted by object.
    pub(crate) fn mesh_warnings(&self) -> Vec<Warning> {
        let reader = Reader::new(&self.store);
        let mut all = Vec::new();
        let known = self.known_destinations(&reader);
        for policy in self.kuma.policies.values() {
            self.policy_warnings(&reader, policy, &known, &mut |field, message| {
                all.push(Warning {
                    object: policy.key.clone(),
                    field,
                    message,
                });
            });
        }
        all.extend(self.unmatched_requests());
        all.extend(self.unresolved_outbound_warnings());
        all.extend(self.ignored_tls());
        all.extend(self.outbounds_without_destination(&reader));
        all.extend(self.backends_without_endpoint());
        all.extend(self.services_without_inbound());
        all.extend(self.outbounds_with_refused_endpoints());
        all.sort_by(|a, b| a.object.cmp(&b.object));
        all
    }

    fn policy_warnings(
        &self,
        reader: &Reader<'_>,
        policy: &MeshPolicy,
        known: &BTreeSet<BackendId>,
        warn: &mut impl FnMut(String, String),
    ) {
        let (spec, mesh) = (&policy.route.spec, &policy.route.mesh);
        policy_warnings::warnings(policy, warn);
        let selects_any = self.selects_any(policy);
        if policy.is_in_effect() && !selects_any {
            warn(
                "spec.targetRef".to_owned(),
                self.explain_empty_selection(policy),
            );
        }
        let mut has_destination = false;
        if spec.to.is_empty() {
            let message = "the policy has no `to`, so it has no effect";
            warn("spec".to_owned(), message.to_owned());
        }
        let is_in_mesh = |id: &&BackendId| {
            id.port != 0
                || id.object.namespace().mesh() == Some(mesh)
                || cross_mesh::is_cross_mesh(id)
        };
        for (index, to) in spec.to.iter().enumerate() {
            let includes = |id: &BackendId| policy.includes(reader, index, id);
            let exists = || known.iter().filter(is_in_mesh).any(includes);
            let exists = to.target_ref.kind == TargetKind::Mesh || exists();
            has_destination |= exists && !(policy.is_http() && to.rules.is_empty());
            if !exists {
                let target = target_text(&to.target_ref);
                let message = format!("mesh {mesh} has no {target}, so this item has no effect");
                warn(format!("spec.to[{index}].targetRef"), message);
            }
            let field = policy.route.to_field(index);
            if policy.is_http() && to.rules.is_empty() {
                let message = "there are no rules, so this item has no effect".to_owned();
                warn(field.clone(), message);
            }
            if let Some(gateways) = self.gateways_without_hostname(policy, index) {
                let message = format!(
                    "no listener of {gateways} serves any of these hostnames, so the rules get no requests"
                );
                warn(format!("{field}.hostnames"), message);
            }
        }
        if selects_any && has_destination {
            self.explain_no_callers(policy)
                .into_iter()
                .for_each(|message| {
                    warn("spec".to_owned(), message);
                });
        }
    }

    /// Explains why a policy selects no proxy and no listener.
    fn explain_empty_selection(&self, policy: &MeshPolicy) -> String {
        let mesh = &policy.route.mesh;
        let target = &policy.route.spec.target_ref;
        let text = target_text(target);
        if target.kind == TargetKind::MeshGateway {
            return match self.has_gateway(policy) {
                false => format!("mesh {mesh} has no {text}"),
                true => {
                    let kind = policy.key.kind;
                    format!("no listener with a protocol that a {kind} supports matches {text}")
                }
            };
        }
        let proxies = || self.proxies_of(mesh);
        if let Some(namespace) = policy.only_namespace()
            && !proxies().any(|proxy| proxy.namespace.as_deref() == Some(namespace))
        {
            return format!(
                "this consumer policy applies to proxies in namespace {namespace}, where mesh {mesh} has none"
            );
        }
        if let Some(zone) = policy.zone()
            && !proxies().any(|proxy| proxy.is_in_zone(zone))
        {
            return format!(
                "the policy applies to proxies in zone {zone}, where mesh {mesh} has none (label {ZONE_TAG})"
            );
        }
        format!("no proxy of mesh {mesh} matches {text}")
    }

    fn proxies_of<'b>(&'b self, mesh: &'b str) -> impl Iterator<Item = &'b MeshProxy> {
        let proxies = self.kuma.proxies.values().map(|proxy| &**proxy);
        proxies.filter(move |proxy| *proxy.mesh == *mesh)
    }

    /// Explains why a policy applies to no calls although its destination exists: none of the proxies that it selects calls it.
    fn explain_no_callers(&self, policy: &MeshPolicy) -> Option<String> {
        let reached = self.kuma.targets.contains_key(&policy.key);
        if !policy.is_in_effect() || reached || policy.is_for_gateways() {
            return None;
        }
        let mesh = &policy.route.mesh;
        let selected = self.proxies_of(mesh).filter(|proxy| policy.selects(proxy));
        let selected: Vec<&MeshProxy> = selected.collect();
        if selected.is_empty() {
            return Some(format!(
                "the policy has no effect: mesh {mesh} has neither a Dataplane nor a Pod with sidecar injection (label {INJECTION_LABEL})"
            ));
        }
        let transparent = |proxy: &&&MeshProxy| proxy.is_transparent && proxy.outbounds.is_empty();
        let transparent = selected.iter().filter(transparent);
        let transparent: BTreeSet<&ObjectKey> = transparent.map(|proxy| &proxy.key).collect();
        let keys: BTreeSet<&ObjectKey> = selected.iter().map(|proxy| &proxy.key).collect();
        let why = match transparent.is_empty() {
            true => format!(
                "no outbound of {} leads to one of the policy's destinations",
                summarize_proxies(&keys)
            ),
            false => format!(
                "{} has transparentProxying, which is not supported, and no outbounds; list its destinations in networking.outbound",
                summarize_proxies(&transparent)
            ),
        };
        Some(format!("the policy has no effect: {why}"))
    }

    /// Returns warnings about destinations with requests that match no rule.
    fn unmatched_requests(&self) -> Vec<Warning> {
        let mut found: BTreeMap<(&RuleSource, &BackendId), BTreeSet<&ObjectKey>> = BTreeMap::new();
        for (id, outcome) in &self.kuma.destinations {
            for ((frontend, _), route) in &outcome.attachments {
                let is_http = outcome.frontends.get(frontend);
                let is_http = is_http.is_some_and(|frontend| frontend.protocol == Protocol::Http);
                // The least specific policy is reported: a last rule in it would match the remaining requests.
                let source = route.rules.last().and_then(|rule| rule.from.last());
                if let (true, Some(source)) = (is_http, source)
                    && let FrontendId::Outbound(outbound) = frontend
                    && !policy_warnings::matches_every_request(route)
                {
                    let callers = found.entry((source, id)).or_default();
                    callers.insert(&outbound.dataplane);
                }
            }
        }
        let warning = |((source, id), callers): (
            (&RuleSource, &BackendId),
            BTreeSet<&ObjectKey>,
        )| {
            let to = source
                .to
                .map_or("spec".to_owned(), |to| format!("spec.to[{to}]"));
            Warning {
                object: source.policy.clone(),
                field: format!("{to}.rules"),
                message: format!(
                    "calls from {} to {id} that match no rule get 404, while released versions of Kuma forward them; add a last rule to forward them: \
                     {{matches: [{{path: {{type: PathPrefix, value: /}}}}], default: {{}}}}",
                    summarize_proxies(&callers)
                ),
            }
        };
        found.into_iter().map(warning).collect()
    }

    /// Returns warnings about outbounds whose `backendRef` does not resolve.
    fn unresolved_outbound_warnings(&self) -> Vec<Warning> {
        let outbounds = self.unresolved_outbounds();
        let mut outbounds: Vec<_> = outbounds.collect();
        outbounds.sort_by_key(|outbound| (&outbound.dataplane, outbound.index));
        let warning = |outbound: &UnresolvedOutbound| {
            let dataplane = self.store.get(&outbound.dataplane);
            let spec = match dataplane.is_some_and(|found| is_universal(found.meta())) {
                true => "",
                false => "spec.",
            };
            let (index, listen) = (outbound.index, outbound.listen);
            Warning {
                object: outbound.dataplane.clone(),
                field: format!("{spec}networking.outbound[{index}].backendRef"),
                message: format!("{listen} is not served: {}", outbound.reason),
            }
        };
        outbounds.into_iter().map(warning).collect()
    }

    /// Returns warnings about rules with a backend that has no endpoint.
    fn backends_without_endpoint(&self) -> Vec<Warning> {
        let outcomes = self.kuma.outcomes();
        let used = outcomes.flat_map(|outcome| &outcome.findings.backends);
        let without_endpoint: BTreeSet<_> = used
            .filter(|(_, id)| self.is_without_endpoint(id))
            .collect();
        let warning = |(source, id): &(RuleSource, BackendId)| {
            let rule = rule_field((source.to, source.rule));
            Warning {
                object: source.policy.clone(),
                field: format!("{rule}.default.backendRefs"),
                message: format!("{id} has no ready endpoint; its share of requests gets 503"),
            }
        };
        without_endpoint.into_iter().map(warning).collect()
    }

    /// Returns warnings about MeshServices that are called and that no inbound backs.
    fn services_without_inbound(&self) -> Vec<Warning> {
        let is_empty = |id: &&BackendId| {
            id.object.kind == Kind::MeshService
                && id.port != 0
                && id.tags.is_empty()
                && !cross_mesh::is_cross_mesh(id)
                && self.is_without_endpoint(id)
        };
        let mut empty: Vec<&BackendId> = self.backends.keys().filter(is_empty).collect();
        empty.sort();
        let warning = |id: &BackendId| Warning {
            object: id.object.clone(),
            field: "spec.selector".to_owned(),
            message: format!(
                "no ready inbound backs port {}, so calls to it get 503",
                id.port
            ),
        };
        empty.into_iter().map(warning).collect()
    }

    /// Returns warnings about listeners whose protocol ignores their `tls`.
    fn ignored_tls(&self) -> Vec<Warning> {
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
                        message:
                            "ignored, because the protocol of the listener is neither HTTPS nor TLS"
                                .to_owned(),
                    });
                }
            }
        }
        all
    }

    /// Returns warnings about outbounds whose destination has no inbound or rejects the caller.
    fn outbounds_without_destination(&self, reader: &Reader<'_>) -> Vec<Warning> {
        let mut all = Vec::new();
        let proxies: BTreeMap<_, _> = self.kuma.proxies.iter().collect();
        for (key, proxy) in proxies {
            let is_unusable = |id: &BackendId| {
                if id.port != 0 {
                    return false;
                }
                let outcome = self.kuma.destinations.get(id);
                let is_overridden =
                    outcome.is_some_and(|outcome| outcome.overrides_default_destination(key, id));
                let is_rejected = cross_mesh::caller_fault(reader, &proxy.mesh, id).is_some();
                !is_overridden && (is_rejected || !backend::is_offered(reader, id))
            };
            for (listen, to) in proxy.outbounds.iter().filter(|(_, to)| is_unusable(to)) {
                all.push(Warning {
                    object: key.clone(),
                    field: "networking.outbound".to_owned(),
                    message: match cross_mesh::is_cross_mesh(to) {
                        true if cross_mesh::caller_fault(reader, &proxy.mesh, to).is_some() => format!(
                            "{listen} has no usable destination: {to} accepts only proxies of meshes with mTLS"
                        ),
                        true => format!("{listen} has no destination: there is no crossMesh listener {to}"),
                        false => format!("{listen} has no destination: no inbound has the tags of {to}"),
                    },
                });
            }
        }
        all
    }

    /// Returns warnings about outbounds with endpoints that the operator's policy refuses. Where policies govern the traffic, their condition says so too.
    fn outbounds_with_refused_endpoints(&self) -> Vec<Warning> {
        let mut all = Vec::new();
        let proxies: BTreeMap<_, _> = self.kuma.proxies.iter().collect();
        for (key, proxy) in proxies {
            for (listen, to) in &proxy.outbounds {
                let outcome = self.kuma.destinations.get(to);
                let is_overridden =
                    outcome.is_some_and(|outcome| outcome.overrides_default_destination(key, to));
                let message = self.refused_message([to]).filter(|_| !is_overridden);
                all.extend(message.map(|message| Warning {
                    object: key.clone(),
                    field: "networking.outbound".to_owned(),
                    message: format!("{listen}: {message}"),
                }));
            }
        }
        all
    }

    /// Returns whether a policy selects a proxy or listener. Always true in a mesh without proxies, where it can't be decided.
    fn selects_any(&self, policy: &MeshPolicy) -> bool {
        let mesh = &policy.route.mesh;
        let mut proxies = self.proxies_of(mesh);
        if policy.route.spec.target_ref.kind == TargetKind::MeshGateway {
            let mut items = self
                .kuma
                .gateways
                .values()
                .flat_map(|view| view.items.keys());
            return items.any(|(found, _)| *found == policy.key);
        }
        let mut gateways = self.kuma.gateways.values();
        self.proxies_of(mesh).next().is_none()
            || proxies.any(|proxy| policy.selects(proxy))
            || gateways.any(|view| view.outcome.reached.contains_key(&policy.key))
    }

    fn has_gateway(&self, policy: &MeshPolicy) -> bool {
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

    /// Returns every destination that a policy may include: existing ones, and those that an outbound names even if they don't exist.
    fn known_destinations(&self, reader: &Reader<'_>) -> BTreeSet<BackendId> {
        let dataplanes = self.store.objects().filter_map(|(_, object)| match object {
            Resource::Dataplane(dataplane) => Some(dataplane),
            _ => None,
        });
        let offered = dataplanes.flat_map(|dataplane| {
            let inbounds = dataplane.spec.networking.inbound.iter();
            let services = inbounds.filter_map(Inbound::service);
            services.map(|service| tagged_service(&dataplane.mesh, service, Tags::default()))
        });
        let objects = reader.all_destinations();
        let ports = objects.flat_map(|object| ports_of(reader, &object.key()));
        let called = self.kuma.callers.keys().cloned();
        offered.chain(ports).chain(called).collect()
    }

    /// Returns the MeshGateways that a `to` item selects, if none of their listeners serves one of its hostnames.
    fn gateways_without_hostname(&self, policy: &MeshPolicy, to: usize) -> Option<String> {
        let item = (policy.key.clone(), to);
        let gateways = self.kuma.gateways.iter();
        let selected: Vec<(&ObjectKey, bool)> = gateways
            .filter_map(|(key, view)| Some((key, *view.items.get(&item)?)))
            .collect();
        let is_unserved = !selected.is_empty() && selected.iter().all(|(_, is_served)| !is_served);
        is_unserved.then(|| {
            let names: Vec<String> = selected.iter().map(|(key, _)| key.to_string()).collect();
            names.join(", ")
        })
    }
}

/// Formats a target reference.
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
