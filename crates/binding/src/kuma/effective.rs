//! Reports the effective rules of a proxy or MeshGateway, with the policies that set each part, for `explain` and `merged`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_resources::kuma::{TargetKind, display_name};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use super::backend;
use super::destination::{PolicyOutcome, items_for, items_for_caller, select_by_protocol};
use super::gateway;
use super::merge::{EffectiveRule, merge};
use super::policy::{MeshPolicy, ToItem};
use super::proxy::{self, MeshProxy, UnresolvedOutbound};
use super::warnings::target_text;
use crate::bound::{BackendId, BoundRoute, FrontendId, RuleSource};
use crate::engine::Reader;
use crate::{Binder, InactiveReason, InactiveRoute};

/// Effective rules for calls of a proxy to a destination, or for a hostname of a gateway's listener.
#[derive(Clone, Debug)]
pub struct MergedRules {
    /// The destination, or the listener and hostname, as text.
    pub destination: String,
    /// The rules, most specific policy first.
    pub rules: Vec<MergedRule>,
    /// The route that the rules are bound as, which determines the order in which they are tried; `None` without rules.
    pub route: Option<Arc<BoundRoute>>,
}

/// A merged rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedRule {
    /// Rules that contribute to it, most specific first. All have the same `matches`.
    pub from: Vec<RuleSource>,
    /// Rule that sets `filters`.
    pub filters: Option<RuleSource>,
    /// Rule that sets `backendRefs`.
    pub backend_refs: Option<RuleSource>,
}

fn summarize(merged: Vec<EffectiveRule<'_>>) -> Vec<MergedRule> {
    let rules = merged.into_iter().map(|rule| MergedRule {
        from: rule.from,
        filters: rule.filters.map(|(_, _, source)| source),
        backend_refs: rule.backend_refs.map(|(_, _, source)| source),
    });
    rules.collect()
}

impl Binder {
    /// Returns the proxies and MeshGateways with a name of the form `NAME`, `MESH/NAME`, or on Kubernetes `NAMESPACE/NAME`.
    pub fn named_proxies(&self, name: &str) -> Vec<ObjectKey> {
        let (qualifier, name) = match name.rsplit_once('/') {
            Some((qualifier, name)) => (Some(qualifier), name),
            None => (None, name),
        };
        let is_named = |key: &&ObjectKey| {
            let is_in = |qualifier: &str| {
                let namespace = key.namespace();
                let mesh = match self.store.get(key) {
                    Some(Resource::MeshGateway(gateway)) => Some(&*gateway.mesh),
                    _ => None,
                };
                *namespace == *qualifier
                    || namespace.mesh() == Some(qualifier)
                    || mesh == Some(qualifier)
            };
            (*key.name.name == *name || self.proxy_name(key) == name) && qualifier.is_none_or(is_in)
        };
        let serving = self.kuma.gateways.values().flat_map(|view| &view.proxies);
        let all = self.kuma.proxies.keys().chain(serving);
        let all = all
            .chain(self.kuma.gateways.keys())
            .filter(is_named)
            .cloned();
        // Without policies, Pods are not computed as proxies.
        let reader = Reader::new(&self.store);
        let pods = self.store.objects().map(|(key, _)| key);
        let pods = pods.filter(|key| key.kind == Kind::Pod && is_named(&key));
        let pods = pods.filter(|key| proxy::resolve_proxy(&reader, key).is_some());
        let all: BTreeSet<ObjectKey> = all.chain(pods).collect();
        all.into_iter().collect()
    }

    /// Returns the outbounds of Dataplanes whose `backendRef` does not resolve, in arbitrary order.
    pub fn unresolved_outbounds(&self) -> impl Iterator<Item = &UnresolvedOutbound> {
        let proxies = self.kuma.proxies.values();
        proxies.flat_map(|proxy| &proxy.unresolved)
    }

    /// Returns whether a proxy serves a MeshGateway.
    pub fn serves(&self, proxy: &ObjectKey, gateway: &ObjectKey) -> bool {
        let view = self.kuma.gateways.get(gateway);
        view.is_some_and(|view| view.proxies.contains(proxy))
    }

    /// Returns the `gateway` name in the frontend ids of a proxy's listeners, or `None` if it serves no MeshGateway.
    pub fn gateway_name_of(&self, proxy: &ObjectKey) -> Option<Name> {
        let mut all = self.gateway_proxies();
        all.find(|(_, object)| object.key() == *proxy)
            .map(|(name, _)| name)
    }

    /// Returns the effective rules of a proxy or a MeshGateway. Evaluates all policies.
    pub fn merged_rules(&self, key: &ObjectKey) -> Vec<MergedRules> {
        let reader = Reader::new(&self.store);
        let policies = &self.kuma.policies;
        if let Some(gateway) = self.gateway_of(key) {
            let view = &self.kuma.gateways[gateway];
            let on = |proxy: Option<&ObjectKey>| {
                let listeners = gateway::listeners(&reader, gateway, proxy, policies);
                let served = proxy.or(view.proxies.first()).unwrap_or(gateway);
                listener_rules(listeners, &view.outcome, served)
            };
            if key != gateway {
                return on(Some(key));
            }
            // The proxies' own tags may select different policies for each of them.
            let all: Vec<(&ObjectKey, Vec<MergedRules>)> = view
                .proxies
                .iter()
                .map(|proxy| (proxy, on(Some(proxy))))
                .collect();
            if all
                .windows(2)
                .all(|two| have_same_rules(&two[0].1, &two[1].1))
            {
                return on(None);
            }
            return all
                .into_iter()
                .flat_map(|(proxy, rules)| {
                    rules.into_iter().map(move |rules| MergedRules {
                        destination: format!("{} on {proxy}", rules.destination),
                        ..rules
                    })
                })
                .collect();
        }
        let proxy = self.kuma.proxies.get(key).cloned();
        let proxy = proxy.or_else(|| proxy::resolve_proxy(&reader, key).map(Arc::new));
        let Some(proxy) = proxy.as_deref() else {
            return Vec::new();
        };
        let outbounds = proxy.outbounds.iter().map(|(_, id)| id);
        let targeted = self.kuma.targeted.iter();
        let targeted = targeted.filter(|id| proxy.is_unrestricted && id.port != 0);
        outbounds
            .chain(targeted)
            .map(|id| {
                let own = items_for_caller(&items_for(&reader, policies.values(), id), proxy);
                let http = backend::is_http(backend::protocol(&reader, id).as_deref());
                MergedRules {
                    destination: match id.object.namespace().mesh() {
                        Some(_) => id
                            .to_string()
                            .replace(&id.object.name.to_string(), &id.object.name.name),
                        None => id.to_string(),
                    },
                    rules: summarize(merge(&select_by_protocol(&own, http).1)),
                    route: self.outbound_route(key, id),
                }
            })
            .collect()
    }

    /// Returns the route for calls of a proxy to a destination.
    fn outbound_route(&self, proxy: &ObjectKey, to: &BackendId) -> Option<Arc<BoundRoute>> {
        let mut attached = self.kuma.destinations.get(to)?.attachments.iter();
        let found = attached.find(|((id, _), _)| {
            matches!(id, FrontendId::Outbound(outbound) if outbound.dataplane == *proxy)
        });
        found.map(|(_, route)| route.clone())
    }

    /// Returns the MeshGateway with a key, or that a proxy with this key serves.
    fn gateway_of(&self, key: &ObjectKey) -> Option<&ObjectKey> {
        let mut gateways = self.kuma.gateways.iter();
        let found = gateways.find(|(gateway, view)| *gateway == key || view.proxies.contains(key));
        found.map(|(gateway, _)| gateway)
    }

    /// Returns the display name of a proxy.
    fn proxy_name(&self, key: &ObjectKey) -> String {
        match self.store.get(key) {
            Some(object) if key.kind != Kind::Pod => display_name(object.meta()).to_owned(),
            _ => key.name.name.to_string(),
        }
    }

    /// Returns the rules for a MeshGateway that a more specific policy overrides, and the policies that target it but none of its listeners. Evaluates all
    /// policies.
    pub fn inactive_on_gateway(&self, gateway: &ObjectKey) -> Vec<InactiveRoute> {
        let reader = Reader::new(&self.store);
        let mut all = Vec::new();
        for (listener, groups) in gateway::listeners(&reader, gateway, None, &self.kuma.policies) {
            for (hostname, items) in groups {
                let target = format!("listener {listener} {hostname}");
                all.extend(overridden_rules(&merge(&items), target.trim_end()));
            }
        }
        all.extend(self.unattached_policies(gateway));
        all
    }

    fn unattached_policies(&self, key: &ObjectKey) -> Vec<InactiveRoute> {
        let (Some(view), Some(Resource::MeshGateway(gateway))) =
            (self.kuma.gateways.get(key), self.store.get(key))
        else {
            return Vec::new();
        };
        let name = display_name(&gateway.metadata);
        let policies = self.kuma.policies.values().filter(|policy| {
            let target = &policy.route.spec.target_ref;
            let named =
                target.kind == TargetKind::MeshGateway && target.name.as_deref() == Some(name);
            let mut items = view.items.keys();
            named
                && policy.route.mesh == gateway.mesh
                && !items.any(|(found, _)| *found == policy.key)
        });
        let idle = policies.map(|policy| InactiveRoute {
            route: policy.key.clone(),
            to: None,
            rule: None,
            reason: match &policy.refused {
                Some(_) => InactiveReason::Refused("UnsupportedValue"),
                None => InactiveReason::NotSelected,
            },
            message: match &policy.refused {
                Some(why) => why.clone(),
                None if policy.is_shadow() => SHADOW.to_owned(),
                None => {
                    "no listener with a protocol that it supports has the tags of its targetRef"
                        .to_owned()
                }
            },
        });
        idle.collect()
    }

    /// Returns the policies and rules for a destination that don't apply to calls of a proxy, with reasons. Evaluates all policies.
    pub fn inactive_for_caller(
        &self,
        proxy: &ObjectKey,
        destination: &BackendId,
    ) -> Vec<InactiveRoute> {
        let reader = Reader::new(&self.store);
        let Some(proxy) = self.kuma.proxies.get(proxy) else {
            return Vec::new();
        };
        let outbounds = proxy.outbounds.iter().map(|(_, id)| id);
        let mut known = outbounds.chain(&self.kuma.targeted);
        let mut all: BTreeMap<ObjectKey, InactiveRoute> = BTreeMap::new();
        let mut overridden = Vec::new();
        if let Some(id) = known.find(|id| *id == destination) {
            let items = items_for(&reader, self.kuma.policies.values(), id);
            let own = items_for_caller(&items, proxy);
            let http = backend::is_http(backend::protocol(&reader, id).as_deref());
            let (_, governing, ignored) = select_by_protocol(&own, http);
            overridden.extend(overridden_rules(&merge(&governing), &id.to_string()));
            let governs =
                |item: &ToItem<'_>| governing.iter().any(|g| g.policy.key == item.policy.key);
            for item in items.iter().filter(|item| !governs(item)) {
                let is_ignored = ignored.iter().any(|i| i.policy.key == item.policy.key);
                let (reason, message) = match (&item.policy.refused, is_ignored) {
                    (Some(why), _) => (InactiveReason::Refused("UnsupportedValue"), why.clone()),
                    (_, true) => (
                        InactiveReason::Conflicted,
                        format!("it does not apply to the protocol of {id}"),
                    ),
                    (_, false) => (
                        InactiveReason::NotSelected,
                        not_selected(item.policy, proxy),
                    ),
                };
                let route = item.policy.key.clone();
                all.entry(route.clone()).or_insert(InactiveRoute {
                    route,
                    to: None,
                    rule: None,
                    reason,
                    message,
                });
            }
        }
        overridden.into_iter().chain(all.into_values()).collect()
    }
}

/// Returns whether two proxies have the same rules.
fn have_same_rules(one: &[MergedRules], other: &[MergedRules]) -> bool {
    let rules = |all: &[MergedRules]| -> Vec<(String, Vec<MergedRule>)> {
        let parts = all.iter();
        parts
            .map(|part| (part.destination.clone(), part.rules.clone()))
            .collect()
    };
    rules(one) == rules(other)
}

/// Returns the route of a MeshGateway's listener on one of its proxies, for a hostname as written.
fn listener_route(
    outcome: &PolicyOutcome,
    proxy: &ObjectKey,
    listener: &str,
    hostname: &str,
) -> Option<Arc<BoundRoute>> {
    let hosts = gateway::hosts(hostname);
    let mut attached = outcome.attachments.iter();
    let found = attached.find(|((id, _), route)| {
        let FrontendId::Listener {
            gateway: name,
            listener: own,
            ..
        } = id
        else {
            return false;
        };
        gateway::is_gateway_name(name, proxy)
            && **own == *listener
            && route.hostnames.first() == hosts.as_ref()
    });
    found.map(|(_, route)| route.clone())
}

/// Returns the rules of a MeshGateway's listeners on one of its proxies, by hostname, in the order in which hostnames are tried.
fn listener_rules(
    listeners: Vec<gateway::ListenerItems<'_>>,
    outcome: &PolicyOutcome,
    proxy: &ObjectKey,
) -> Vec<MergedRules> {
    let mut all = Vec::new();
    for (listener, groups) in listeners {
        if groups.is_empty() {
            all.push(MergedRules {
                destination: format!("listener {listener}"),
                rules: Vec::new(),
                route: None,
            });
        }
        // "Characters in a matching non-wildcard hostname", then "in a matching hostname".
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(name, _)| (name.starts_with('*'), Reverse(name.len())));
        groups.sort_by_key(|(name, _)| matches!(*name, "" | "*"));
        all.extend(groups.into_iter().map(|(hostname, items)| {
            let destination = format!("listener {listener} {hostname}");
            MergedRules {
                destination: destination.trim_end().to_owned(),
                rules: summarize(merge(&items)),
                route: listener_route(outcome, proxy, &listener, hostname),
            }
        }));
    }
    all
}

/// Message for policies that are not enforced.
pub(crate) const SHADOW: &str = "the policy is not enforced (kuma.io/effect: shadow)";

/// Returns the rules that are overridden as a whole.
fn overridden_rules(merged: &[EffectiveRule<'_>], target: &str) -> Vec<InactiveRoute> {
    let overridden = merged.iter().flat_map(|rule| &rule.overridden);
    let whole = overridden.filter(|overridden| overridden.part.is_none());
    let mut all: Vec<InactiveRoute> = whole
        .map(|overridden| InactiveRoute {
            route: overridden.rule.policy.clone(),
            to: overridden.rule.to,
            rule: Some(overridden.rule.rule),
            reason: InactiveReason::Merged,
            message: format!(
                "overridden by {}, which is more specific and has the same matches for {target}",
                overridden.winner
            ),
        })
        .collect();
    all.dedup();
    all
}

fn not_selected(policy: &MeshPolicy, proxy: &MeshProxy) -> String {
    if policy.is_shadow() {
        return SHADOW.to_owned();
    }
    if policy.route.mesh != proxy.mesh {
        return format!("it applies to mesh {}", policy.route.mesh);
    }
    if let Some(namespace) = policy.only_namespace()
        && proxy.namespace.as_deref() != Some(namespace)
    {
        return format!("it is a consumer policy, for calls from namespace {namespace}");
    }
    if let Some(zone) = policy.zone()
        && !proxy.is_in_zone(zone)
    {
        return format!("it applies to calls from zone {zone}");
    }
    let target = target_text(&policy.route.spec.target_ref);
    format!("its targetRef ({target}) does not select {}", proxy.key)
}
