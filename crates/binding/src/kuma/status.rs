//! Status of Kuma's policies and gateways, and of Gateway API routes that a policy overrides.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_resources::{Name, ObjectKey, Resource};

use super::destination::PolicyOutcome;
use super::effective::SHADOW;
use super::gateway::{MeshGatewayView, gateway_name};
use super::lowering::rule_field;
use super::{PolicyTarget, cross_mesh};
use crate::Binder;
use crate::bound::{BackendId, FrontendId, Scope};
use crate::engine::{Input, Query, Reader};
use crate::gateway_api::observation::Observation;
use crate::status::{Condition, ListenerStatus, PolicyReach, StatusBody};

impl Binder {
    /// Returns the targets to which a policy applies, with their outcomes.
    fn outcomes_of(&self, policy: &ObjectKey) -> Vec<(&PolicyTarget, &PolicyOutcome)> {
        let targets = self.kuma.targets.get(policy).into_iter().flatten();
        targets
            .filter_map(|target| Some((target, self.kuma.outcome(target)?)))
            .collect()
    }

    /// Computes the status of a policy.
    pub(crate) fn policy_status(&self, key: &ObjectKey) -> Option<StatusBody> {
        let policy = self.kuma.policies.get(key)?;
        let parts = self.outcomes_of(key);
        let reaches: Vec<PolicyReach> = parts
            .iter()
            .map(|(to, outcome)| PolicyReach {
                to: to.to_string(),
                proxies: outcome.reached[key].iter().cloned().collect(),
            })
            .collect();
        let findings = |all: fn(&PolicyOutcome) -> &BTreeMap<ObjectKey, BTreeSet<String>>| {
            let all = parts
                .iter()
                .filter_map(|(_, outcome)| all(outcome).get(key));
            all.flatten().cloned().collect::<BTreeSet<String>>()
        };
        let mut remarks = findings(|outcome| &outcome.findings.remarks);
        if policy.is_shadow() {
            remarks.insert(SHADOW.to_owned());
        } else if reaches.is_empty() {
            remarks.insert(
                "no proxy or gateway that it selects has a matching destination".to_owned(),
            );
        }
        let remarks: Vec<String> = remarks.into_iter().collect();
        let accepted = match &policy.refused {
            Some(why) => Condition::no("Accepted", "UnsupportedValue", why.clone()),
            None => Condition::yes("Accepted", "Accepted", remarks.join("; ")),
        };
        let mut conditions = vec![accepted];
        let unresolved: BTreeSet<&(&'static str, String)> = parts
            .iter()
            .filter_map(|(_, outcome)| outcome.findings.unresolved.get(key))
            .flatten()
            .collect();
        match unresolved.first() {
            Some((reason, _)) => {
                let messages: Vec<&str> = unresolved.iter().map(|(_, m)| m.as_str()).collect();
                conditions.push(Condition::no("ResolvedRefs", reason, messages.join("; ")));
            }
            // References are resolved only where the policy applies.
            None if reaches.is_empty() => {}
            None => conditions.push(Condition::yes("ResolvedRefs", "ResolvedRefs", "")),
        }
        let invalid = findings(|outcome| &outcome.findings.invalid);
        if !invalid.is_empty() {
            let invalid: Vec<String> = invalid.into_iter().collect();
            let message = invalid.join("; ");
            conditions.push(Condition::yes(
                "PartiallyInvalid",
                "UnsupportedValue",
                message,
            ));
        }
        let overridden = self.overridden_rules(key, &parts);
        if !overridden.is_empty() {
            let message = overridden.join("; ");
            conditions.push(Condition::yes(OVERRIDDEN, "Merged", message));
        }
        let used = parts
            .iter()
            .flat_map(|(_, outcome)| &outcome.findings.backends);
        let used = used.filter(|(source, _)| source.policy == *key);
        conditions.extend(self.refused_condition(used.map(|(_, id)| id)));
        if conditions[0].is_true() {
            conditions.extend(self.store.policy_effect(key, !reaches.is_empty()));
        }
        Some(StatusBody::Mesh {
            conditions,
            reaches,
        })
    }

    /// Describes the rules of a policy, and lists in them, that more specific policies override.
    fn overridden_rules(
        &self,
        key: &ObjectKey,
        parts: &[(&PolicyTarget, &PolicyOutcome)],
    ) -> Vec<String> {
        let mut all = Vec::new();
        for (to, outcome) in parts {
            // Groups of callers to whom the same applies are reported together.
            let mut texts: BTreeMap<String, BTreeSet<&ObjectKey>> = BTreeMap::new();
            for (overridden, callers) in outcome.findings.overridden.get(key).into_iter().flatten()
            {
                let rule = rule_field((overridden.rule.to, overridden.rule.rule));
                let part = overridden.part.map(|part| format!(".default.{part}"));
                let part = part.unwrap_or_default();
                let text = format!("{rule}{part}: overridden by {}", overridden.winner);
                texts.entry(text).or_default().extend(callers.iter());
            }
            all.extend(texts.into_iter().map(|(text, callers)| match to {
                PolicyTarget::Destination(to) => {
                    let callers = summarize_proxies(&callers);
                    format!("{text} for calls from {callers} to {to}")
                }
                PolicyTarget::Gateway(gateway) if callers.contains(gateway) => {
                    format!("{text} on {gateway}")
                }
                PolicyTarget::Gateway(gateway) => {
                    format!("{text} on {gateway} ({})", summarize_proxies(&callers))
                }
            }));
        }
        all
    }

    /// Computes the status of a MeshGateway.
    pub(crate) fn mesh_gateway_status(
        &self,
        reader: &Reader<'_>,
        key: &ObjectKey,
    ) -> Option<StatusBody> {
        reader.record_read(Input::Result(Query::MeshGateway(key.clone())));
        let view = self.kuma.gateways.get(key)?;
        let chose_another = view.chose_another.iter();
        let chose_another: Vec<String> = chose_another
            .map(|(proxy, chosen)| format!("{proxy} serves MeshGateway {chosen}"))
            .collect();
        let message = match view.proxies.as_slice() {
            [] if !chose_another.is_empty() => {
                format!("not served by any proxy: {}", chose_another.join(", "))
            }
            [] => "not served by any proxy: no Dataplane of type BUILTIN and no MeshGatewayInstance has the tags of its selectors".to_owned(),
            proxies => {
                let proxies: Vec<String> = proxies.iter().map(ToString::to_string).collect();
                format!("served by {}", proxies.join(", "))
            }
        };
        let mut listeners = view.listeners.clone();
        if view.proxies.is_empty() {
            // Without a proxy, no listener is programmed.
            for listener in &mut listeners {
                let conditions = &mut listener.conditions;
                conditions
                    .retain(|condition| condition.kind != "Programmed" || !condition.is_true());
            }
        }
        let observations = ProxyObservations::of(reader, key, view);
        for listener in &mut listeners {
            observations.apply_to(listener);
        }
        Some(StatusBody::Gateway {
            conditions: vec![Condition::yes("Accepted", "Accepted", message)],
            addresses: observations.addresses(),
            listeners,
            attached_listener_sets: None,
        })
    }

    /// Returns the proxies that serve MeshGateways, each with the `gateway` name in the frontend ids of its listeners.
    pub fn gateway_proxies(&self) -> impl Iterator<Item = (Name, &Resource)> {
        let proxies = self.kuma.gateways.values().flat_map(|view| &view.proxies);
        proxies.filter_map(|key| {
            let object = self.store.get(key)?;
            Some((gateway_name(proxy_mesh(object)?, key), object))
        })
    }

    /// Returns the condition of a mesh route whose traffic policies take over: "a loser keeps Accepted and gets `pointsman.io/Overridden`=True naming the
    /// winner".
    pub(crate) fn overridden(
        &self,
        reader: &Reader<'_>,
        wanted: &[(FrontendId, std::sync::Arc<crate::bound::BoundRoute>)],
    ) -> Option<Condition> {
        let mut winners: BTreeMap<ObjectKey, BTreeSet<String>> = BTreeMap::new();
        for (id, _) in wanted {
            let FrontendId::Mesh {
                parent,
                port,
                transport,
                scope,
            } = id
            else {
                continue;
            };
            let destination = BackendId::new(parent.clone(), *port, *transport);
            reader.record_read(Input::Result(Query::Destination(destination.clone())));
            let outcome = self.kuma.destinations.get(&destination);
            for (policy, proxies) in outcome.into_iter().flat_map(|outcome| &outcome.reached) {
                let concerned = proxies.iter().flat_map(|group| group.iter());
                let concerned = concerned.filter(|proxy| match scope {
                    Scope::Everyone => true,
                    Scope::Namespace(namespace) => proxy.namespace() == &**namespace,
                });
                let concerned: BTreeSet<String> = concerned.map(ToString::to_string).collect();
                if !concerned.is_empty() {
                    winners.entry(policy.clone()).or_default().extend(concerned);
                }
            }
        }
        if winners.is_empty() {
            return None;
        }
        let parts: Vec<String> = winners
            .into_iter()
            .map(|(policy, proxies)| {
                let proxies: Vec<String> = proxies.into_iter().collect();
                let proxies = proxies.join(", ");
                format!("{policy} takes precedence for calls from {proxies}")
            })
            .collect();
        Some(Condition::yes(OVERRIDDEN, "KumaPolicy", parts.join("; ")))
    }

    /// Returns whether the mesh of a proxy enables mutual TLS.
    pub fn has_mtls(&self, proxy: &ObjectKey) -> bool {
        let proxy = self.kuma.proxies.get(proxy);
        proxy.is_some_and(|proxy| cross_mesh::mesh_has_mtls(&Reader::new(&self.store), &proxy.mesh))
    }

    /// Returns whether an object is a proxy of a mesh: a Dataplane, or a Pod with sidecar injection.
    pub fn is_proxy(&self, key: &ObjectKey) -> bool {
        self.kuma.proxies.contains_key(key)
    }
}

/// Lists the first few proxies by name and counts the others.
pub(super) fn summarize_proxies(proxies: &BTreeSet<&ObjectKey>) -> String {
    const MAX_NAMED: usize = 3;
    let named = proxies.iter().take(MAX_NAMED).map(ToString::to_string);
    let mut text = named.collect::<Vec<_>>().join(", ");
    if let more @ 1.. = proxies.len().saturating_sub(MAX_NAMED) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// Returns the mesh of an object that may serve a MeshGateway.
fn proxy_mesh(object: &Resource) -> Option<&str> {
    match object {
        Resource::Dataplane(dataplane) => Some(&dataplane.mesh),
        Resource::MeshGatewayInstance(instance) => Some(&instance.mesh),
        _ => None,
    }
}

/// The data plane's observations of the proxies of a MeshGateway.
struct ProxyObservations<'a> {
    gateway: &'a ObjectKey,
    proxies: Vec<(&'a ObjectKey, Name, &'a Observation)>,
}

impl<'a> ProxyObservations<'a> {
    fn of(reader: &Reader<'a>, gateway: &'a ObjectKey, view: &'a MeshGatewayView) -> Self {
        let seen = |key: &'a ObjectKey| {
            let name = gateway_name(proxy_mesh(reader.object(key)?)?, key);
            let seen = reader.observation(&name)?;
            Some((key, name, seen))
        };
        let proxies = view.proxies.iter().filter_map(seen).collect();
        ProxyObservations { gateway, proxies }
    }

    fn addresses(&self) -> Vec<(String, String)> {
        let all = self.proxies.iter().flat_map(|(_, _, seen)| &seen.addresses);
        let all: BTreeSet<String> = all.map(ToString::to_string).collect();
        let kind = || "IPAddress".to_owned();
        all.into_iter().map(|address| (kind(), address)).collect()
    }

    /// Updates the status of a listener. It is programmed if one proxy serves it; failures on the others are named.
    fn apply_to(&self, listener: &mut ListenerStatus) {
        let mut unbound: Vec<String> = Vec::new();
        let mut faulty: BTreeSet<&str> = BTreeSet::new();
        for (proxy, name, seen) in &self.proxies {
            let id = FrontendId::Listener {
                gateway: name.clone(),
                owner: self.gateway.clone(),
                listener: listener.name.as_str().into(),
            };
            let no_address = match seen.unusable.iter().next() {
                Some((address, why)) => Some(format!("{address}: {why}")),
                None if seen.addresses.is_empty() => {
                    let why = seen.unassigned.clone();
                    Some(why.unwrap_or_else(|| "no address is assigned to it".to_owned()))
                }
                None => None,
            };
            let why = seen.unbound.get(&id).cloned().or(no_address);
            unbound.extend(why.map(|why| format!("{proxy}: {why}")));
            faulty.extend(seen.faulty.get(&id).map(String::as_str));
        }
        let nowhere = unbound.len() == self.proxies.len();
        for condition in &mut listener.conditions {
            if condition.kind == "Programmed" && condition.is_true() && !unbound.is_empty() {
                let message = unbound.join("; ");
                *condition = match nowhere {
                    true => Condition::no("Programmed", "PortUnavailable", message),
                    false => Condition::yes("Programmed", "Programmed", message),
                };
            }
            if condition.kind == "Programmed" && condition.is_true() && !faulty.is_empty() {
                *condition =
                    Condition::no("Programmed", "Invalid", "the certificate can't be used");
            }
            if condition.kind == "ResolvedRefs" && condition.is_true() && !faulty.is_empty() {
                let faulty: Vec<&str> = faulty.iter().copied().collect();
                let message = faulty.join("; ");
                *condition = Condition::no("ResolvedRefs", "InvalidCertificateRef", message);
            }
        }
    }
}

/// Condition of routes and rules that a policy overrides.
const OVERRIDDEN: &str = "pointsman.io/Overridden";
