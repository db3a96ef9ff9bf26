//! What is said of Kuma's policies and gateways, and of routes of the Gateway API that a policy overrides.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_resources::{Name, ObjectKey, Resource};

use super::destination::PolicyOutcome;
use super::effective::SHADOW;
use super::gateway::{MeshGatewayView, gateway_name};
use super::lowering::rule_field;
use super::{PolicyTarget, cross_mesh};
use crate::Binder;
use crate::bound::{BackendId, FrontendId, Scope};
use crate::observation::Observation;
use crate::status::{Condition, ListenerStatus, Reach, StatusBody};
use crate::store::{Input, Query, Reader};

impl Binder {
    /// The outcomes that a policy has a part in, each with what it is of.
    fn outcomes_of(&self, policy: &ObjectKey) -> Vec<(&PolicyTarget, &PolicyOutcome)> {
        let targets = self.kuma.targets.get(policy).into_iter().flatten();
        targets
            .filter_map(|target| Some((target, self.kuma.outcome(target)?)))
            .collect()
    }

    /// What is said of a policy.
    pub(crate) fn policy_status(&self, key: &ObjectKey) -> Option<StatusBody> {
        let policy = self.kuma.policies.get(key)?;
        let parts = self.outcomes_of(key);
        let reaches: Vec<Reach> = parts
            .iter()
            .map(|(to, outcome)| Reach {
                to: to.to_string(),
                proxies: outcome.reached[key].iter().cloned().collect(),
            })
            .collect();
        let told = |all: fn(&PolicyOutcome) -> &BTreeMap<ObjectKey, BTreeSet<String>>| {
            let all = parts
                .iter()
                .filter_map(|(_, outcome)| all(outcome).get(key));
            all.flatten().cloned().collect::<BTreeSet<String>>()
        };
        let mut remarks = told(|outcome| &outcome.findings.remarks);
        if policy.is_shadow() {
            remarks.insert(SHADOW.to_owned());
        } else if reaches.is_empty() {
            remarks.insert("it reaches no proxy that calls what it is for".to_owned());
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
            // What is in force nowhere was resolved nowhere.
            None if reaches.is_empty() => {}
            None => conditions.push(Condition::yes("ResolvedRefs", "ResolvedRefs", "")),
        }
        let invalid = told(|outcome| &outcome.findings.invalid);
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
        Some(StatusBody::Mesh {
            conditions,
            reaches,
        })
    }

    /// The rules of a policy, and the lists of rules, of which nothing is left, where, and who has their place.
    fn overridden_rules(
        &self,
        key: &ObjectKey,
        parts: &[(&PolicyTarget, &PolicyOutcome)],
    ) -> Vec<String> {
        let mut all = Vec::new();
        for (to, outcome) in parts {
            // A rule that lost both of its lists to one policy is told of once, and so is one that lost them for several callers.
            let mut lost: BTreeMap<String, BTreeSet<&ObjectKey>> = BTreeMap::new();
            for (what, callers) in outcome.findings.overridden.get(key).into_iter().flatten() {
                let rule = rule_field((what.rule.to, what.rule.rule));
                let part = what.part.map(|part| format!(".default.{part}"));
                let text = format!(
                    "{rule}{}: {} is stronger",
                    part.unwrap_or_default(),
                    what.winner
                );
                lost.entry(text).or_default().extend(callers.iter());
            }
            all.extend(lost.into_iter().map(|(text, callers)| match to {
                PolicyTarget::Destination(to) => {
                    format!(
                        "{text} for the calls of {} to {to}",
                        summarize_proxies(&callers)
                    )
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

    /// What is said of a MeshGateway.
    pub(crate) fn mesh_gateway_status(
        &self,
        reader: &Reader<'_>,
        key: &ObjectKey,
    ) -> Option<StatusBody> {
        reader.record_read(Input::Result(Query::MeshGateway(key.clone())));
        let view = self.kuma.gateways.get(key)?;
        let elsewhere = view.chose_another.iter();
        let elsewhere: Vec<String> = elsewhere
            .map(|(proxy, chosen)| format!("{proxy} has chosen MeshGateway {chosen}"))
            .collect();
        let message = match view.proxies.as_slice() {
            [] if !elsewhere.is_empty() => format!("nobody serves it: {}", elsewhere.join(", ")),
            [] => "no Dataplane of type BUILTIN and no MeshGatewayInstance has the tags of its selectors: nobody serves it".to_owned(),
            some => {
                let some: Vec<String> = some.iter().map(ToString::to_string).collect();
                format!("served by {}", some.join(", "))
            }
        };
        let mut listeners = view.listeners.clone();
        if view.proxies.is_empty() {
            // Nobody has put it in effect.
            for listener in &mut listeners {
                let told = &mut listener.conditions;
                told.retain(|condition| condition.kind != "Programmed" || !condition.status);
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

    /// The proxies that serve MeshGateways, each with the name under which its ports are found.
    pub fn gateway_proxies(&self) -> impl Iterator<Item = (Name, &Resource)> {
        let proxies = self.kuma.gateways.values().flat_map(|view| &view.proxies);
        proxies.filter_map(|key| {
            let object = self.store.get(key)?;
            Some((gateway_name(proxy_mesh(object)?, key), object))
        })
    }

    /// Whether policies govern calls that a route of the Gateway API is for as well: "a loser keeps Accepted and gets
    /// `pointsman.io/Overridden`=True naming the winner".
    pub(crate) fn overridden(
        &self,
        reader: &Reader<'_>,
        wanted: &[(FrontendId, std::sync::Arc<crate::bound::BoundRoute>)],
    ) -> Option<Condition> {
        let mut won: BTreeMap<ObjectKey, BTreeSet<String>> = BTreeMap::new();
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
                    won.entry(policy.clone()).or_default().extend(concerned);
                }
            }
        }
        if won.is_empty() {
            return None;
        }
        let parts: Vec<String> = won
            .into_iter()
            .map(|(policy, proxies)| {
                let proxies: Vec<String> = proxies.into_iter().collect();
                format!("{policy} governs the calls of {}", proxies.join(", "))
            })
            .collect();
        Some(Condition::yes(OVERRIDDEN, "KumaPolicy", parts.join("; ")))
    }

    /// Whether a proxy is of a mesh with mutual TLS.
    pub fn has_mtls(&self, proxy: &ObjectKey) -> bool {
        let proxy = self.kuma.proxies.get(proxy);
        proxy.is_some_and(|proxy| cross_mesh::mesh_has_mtls(&Reader::new(&self.store), &proxy.mesh))
    }

    /// Whether an object is a proxy of a mesh: a Dataplane, or a Pod that is one.
    pub fn is_proxy(&self, key: &ObjectKey) -> bool {
        self.kuma.proxies.contains_key(key)
    }
}

/// Some proxies for people: not more than a few by name.
pub(super) fn summarize_proxies(proxies: &BTreeSet<&ObjectKey>) -> String {
    const MOST: usize = 3;
    let named = proxies.iter().take(MOST).map(ToString::to_string);
    let mut text = named.collect::<Vec<_>>().join(", ");
    if let more @ 1.. = proxies.len().saturating_sub(MOST) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// The mesh of an object that may serve a MeshGateway.
fn proxy_mesh(object: &Resource) -> Option<&str> {
    match object {
        Resource::Dataplane(dataplane) => Some(&dataplane.mesh),
        Resource::MeshGatewayInstance(instance) => Some(&instance.mesh),
        _ => None,
    }
}

/// What the outside says of the proxies of a MeshGateway.
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

    /// Says of a listener what became of it on each proxy. It is in effect if it is on one of them.
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
                    Some(why.unwrap_or_else(|| "it has no address".to_owned()))
                }
                None => None,
            };
            let why = seen.unbound.get(&id).cloned().or(no_address);
            unbound.extend(why.map(|why| format!("{proxy}: {why}")));
            faulty.extend(seen.faulty.get(&id).map(String::as_str));
        }
        let nowhere = unbound.len() == self.proxies.len();
        for condition in &mut listener.conditions {
            if condition.kind == "Programmed" && condition.status && !unbound.is_empty() {
                let message = unbound.join("; ");
                *condition = match nowhere {
                    true => Condition::no("Programmed", "PortUnavailable", message),
                    false => Condition::yes("Programmed", "Programmed", message),
                };
            }
            if condition.kind == "Programmed" && condition.status && !faulty.is_empty() {
                *condition =
                    Condition::no("Programmed", "Invalid", "its certificate can't be used");
            }
            if condition.kind == "ResolvedRefs" && condition.status && !faulty.is_empty() {
                let faulty: Vec<&str> = faulty.iter().copied().collect();
                let message = faulty.join("; ");
                *condition = Condition::no("ResolvedRefs", "InvalidCertificateRef", message);
            }
        }
    }
}

/// The condition of what another has the place of.
const OVERRIDDEN: &str = "pointsman.io/Overridden";
