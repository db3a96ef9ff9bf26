//! What is said of Kuma's policies and gateways, and of routes of the Gateway API that a policy overrides.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_resources::ObjectKey;

use super::destination::Outcome;
use super::lower::place_text;
use crate::Binder;
use crate::bound::{BackendId, BoundRule, FrontendId, Scope};
use crate::status::{Condition, Reach, StatusBody};
use crate::store::{Reader, Topic, Unit};

impl Binder {
    /// The outcomes that a policy has a part in, each with what it is of.
    fn parts(&self, policy: &ObjectKey) -> Vec<(String, &Outcome)> {
        let destinations = self.kuma.destinations.iter();
        let destinations = destinations.map(|(id, outcome)| (id.to_string(), outcome));
        let gateways = self.kuma.gateways.iter();
        let gateways = gateways.map(|(key, view)| (key.to_string(), &view.outcome));
        destinations
            .chain(gateways)
            .filter(|(_, outcome)| outcome.reached.contains_key(policy))
            .collect()
    }

    /// What is said of a policy.
    pub(crate) fn policy_status(&self, key: &ObjectKey) -> Option<StatusBody> {
        let policy = self.kuma.policies.get(key)?;
        let parts = self.parts(key);
        let reaches: Vec<Reach> = parts
            .iter()
            .map(|(to, outcome)| Reach {
                to: to.clone(),
                proxies: outcome.reached[key]
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
            })
            .collect();
        let told = |all: fn(&Outcome) -> &BTreeMap<ObjectKey, BTreeSet<String>>| {
            let all = parts
                .iter()
                .filter_map(|(_, outcome)| all(outcome).get(key));
            all.flatten().cloned().collect::<BTreeSet<String>>()
        };
        let mut remarks = told(|outcome| &outcome.told.remarks);
        if policy.is_shadow() {
            remarks.insert("it is tried and not carried out (kuma.io/effect: shadow)".to_owned());
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
            .filter_map(|(_, outcome)| outcome.told.unresolved.get(key))
            .flatten()
            .collect();
        conditions.push(match unresolved.first() {
            Some((reason, _)) => {
                let messages: Vec<&str> = unresolved.iter().map(|(_, m)| m.as_str()).collect();
                Condition::no("ResolvedRefs", reason, messages.join("; "))
            }
            None => Condition::yes("ResolvedRefs", "ResolvedRefs", ""),
        });
        let invalid = told(|outcome| &outcome.told.invalid);
        if !invalid.is_empty() {
            let invalid: Vec<String> = invalid.into_iter().collect();
            let message = invalid.join("; ");
            conditions.push(Condition::yes(
                "PartiallyInvalid",
                "UnsupportedValue",
                message,
            ));
        }
        let lost = self.lost(key, &parts);
        if !lost.is_empty() {
            let message = lost.join("; ");
            conditions.push(Condition::yes(OVERRIDDEN, "Merged", message));
        }
        Some(StatusBody::Mesh {
            conditions,
            reaches,
        })
    }

    /// The rules of a policy, and the lists of rules, of which nothing is left, where, and who has their place.
    fn lost(&self, key: &ObjectKey, parts: &[(String, &Outcome)]) -> Vec<String> {
        let mut all = Vec::new();
        for (to, outcome) in parts {
            let lost = outcome.told.lost.get(key).into_iter().flatten();
            // A rule that lost both of its lists to one policy is told of once.
            let lost: BTreeSet<String> = lost
                .map(|lost| {
                    let rule = place_text((lost.rule.to, lost.rule.rule));
                    let part = lost.part.map(|part| format!(".default.{part}"));
                    let winner = &lost.winner;
                    format!("{rule}{} to {winner} for {to}", part.unwrap_or_default())
                })
                .collect();
            all.extend(lost);
        }
        all
    }

    /// What is said of a MeshGateway.
    pub(crate) fn mesh_gateway_status(
        &self,
        reader: &Reader<'_>,
        key: &ObjectKey,
    ) -> Option<StatusBody> {
        reader.note(Topic::Result(Unit::MeshGateway(key.clone())));
        let view = self.kuma.gateways.get(key)?;
        let message = match view.proxies.as_slice() {
            [] => "no Dataplane of type BUILTIN and no MeshGatewayInstance has the tags of its selectors: nobody serves it".to_owned(),
            some => {
                let some: Vec<String> = some.iter().map(ToString::to_string).collect();
                format!("served by {}", some.join(", "))
            }
        };
        Some(StatusBody::Gateway {
            conditions: vec![Condition::yes("Accepted", "Accepted", message)],
            addresses: Vec::new(),
            listeners: view.listeners.clone(),
            attached_listener_sets: None,
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
            reader.note(Topic::Result(Unit::Destination(destination.clone())));
            let outcome = self.kuma.destinations.get(&destination);
            for (policy, proxies) in outcome.into_iter().flat_map(|outcome| &outcome.reached) {
                let concerned = proxies.iter().filter(|proxy| match scope {
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

    /// Every merged rule, as it stands at each place.
    pub(crate) fn mesh_rules(&self) -> impl Iterator<Item = &BoundRule> {
        let destinations = self.kuma.destinations.values();
        let gateways = self.kuma.gateways.values().map(|view| &view.outcome);
        let routes = destinations
            .chain(gateways)
            .flat_map(|outcome| outcome.attachments.values());
        routes.flat_map(|route| route.rules.iter().map(|rule| &**rule))
    }

    /// Whether an object is a proxy of a mesh: a Dataplane, or a Pod that is one.
    pub fn is_proxy(&self, key: &ObjectKey) -> bool {
        self.kuma.proxies.contains_key(key)
    }
}

/// The condition of what another has the place of.
const OVERRIDDEN: &str = "pointsman.io/Overridden";
