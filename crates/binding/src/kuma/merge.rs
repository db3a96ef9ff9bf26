//! Merging: rules of several policies with equal `matches` become one.
//!
//! "This MADR proposes to distribute `default` down into individual `rules` and merge `rules` based on structural equality of the
//! `matches` value" (MADR 011). `filters` and `backendRefs` are each taken as a whole from the strongest policy that has them; an empty
//! list is one. Hostnames merge by "an exact string match" (MADR 045).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use pointsman_resources::ObjectKey;
use pointsman_resources::kuma::{BackendRef, Filter, Match, Rule, RuleConf};

use super::policy::{MeshPolicy, ToItem};
use crate::bound::RuleSource;
use crate::store::FastMap;

/// A rule, merged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EffectiveRule<'p> {
    /// Which requests.
    pub matches: &'p [Match],
    /// What is done to them, and whose word that is.
    pub filters: Option<(&'p [Filter], &'p MeshPolicy, RuleSource)>,
    /// Where they go, and whose word that is.
    pub backend_refs: Option<(&'p [BackendRef], &'p MeshPolicy, RuleSource)>,
    /// The rules that it came from, the strongest first: those that something of is left.
    pub from: Vec<RuleSource>,
    /// What is not left of the rules.
    pub overridden: Vec<OverriddenRule>,
}

/// What a policy has lost to a stronger one: a rule, or one of its lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OverriddenRule {
    /// The rule.
    pub rule: RuleSource,
    /// Its list, where the other is left.
    pub part: Option<&'static str>,
    /// The policy that has its place.
    pub winner: ObjectKey,
}

/// What a MeshTCPRoute without rules says: "if `rules: []`, a ref to `to.targetRef`".
static FORWARD_UNCHANGED: LazyLock<Rule> = LazyLock::new(|| Rule {
    matches: Vec::new(),
    default: RuleConf {
        filters: None,
        backend_refs: Some(Vec::new()),
    },
});

/// Merges the rules of these items, the strongest first: the strongest policy's rules in their order, then what the next one adds.
pub(crate) fn merge<'p>(items: &[ToItem<'p>]) -> Vec<EffectiveRule<'p>> {
    let mut merged: Vec<EffectiveRule<'p>> = Vec::new();
    let mut places: FastMap<&[Match], usize> = FastMap::default();
    for item in items {
        let rules = match &item.to().rules[..] {
            [] if !item.policy.is_http() => std::slice::from_ref(&*FORWARD_UNCHANGED),
            rules => rules,
        };
        for (index, rule) in rules.iter().enumerate() {
            let source = RuleSource {
                policy: item.policy.key.clone(),
                to: item.policy.written_index(item.to),
                rule: index,
            };
            let place = *places.entry(&rule.matches).or_insert_with(|| {
                merged.push(EffectiveRule {
                    matches: &rule.matches,
                    filters: None,
                    backend_refs: None,
                    from: Vec::new(),
                    overridden: Vec::new(),
                });
                merged.len() - 1
            });
            merged[place].add(rule, item.policy, source);
        }
    }
    merged
}

impl<'p> EffectiveRule<'p> {
    /// Takes what is still left open from a weaker rule.
    fn add(&mut self, rule: &'p Rule, policy: &'p MeshPolicy, source: RuleSource) {
        let mut used = self.from.is_empty();
        let mut lost: Vec<(&'static str, ObjectKey)> = Vec::new();
        match (&self.filters, &rule.default.filters) {
            (None, Some(filters)) => {
                self.filters = Some((filters, policy, source.clone()));
                used = true;
            }
            (Some((_, winner, _)), Some(_)) => lost.push(("filters", winner.key.clone())),
            (_, None) => {}
        }
        match (&self.backend_refs, &rule.default.backend_refs) {
            (None, Some(backends)) => {
                self.backend_refs = Some((backends, policy, source.clone()));
                used = true;
            }
            (Some((_, winner, _)), Some(_)) => lost.push(("backendRefs", winner.key.clone())),
            (_, None) => {}
        }
        if !used && lost.is_empty() {
            // It says nothing that another could have said before it.
            let first = self.from.iter().take(1);
            lost.extend(first.map(|first| ("", first.policy.clone())));
        }
        self.overridden
            .extend(lost.into_iter().map(|(part, winner)| OverriddenRule {
                rule: source.clone(),
                part: used.then_some(part),
                winner,
            }));
        if used {
            self.from.push(source);
        }
    }
}

/// The items by hostname, as it is written: "It's based on an exact string match" (MADR 045). Where none is written it is the empty one. Order
/// within a hostname is kept.
pub(crate) fn group_by_hostname<'p>(items: &[ToItem<'p>]) -> BTreeMap<&'p str, Vec<ToItem<'p>>> {
    let mut groups: BTreeMap<&str, Vec<ToItem<'p>>> = BTreeMap::new();
    for item in items {
        let written = item.to().hostnames.iter().map(String::as_str);
        let mut hostnames: BTreeSet<&str> = written.collect();
        if hostnames.is_empty() {
            hostnames.insert("");
        }
        for hostname in hostnames {
            groups.entry(hostname).or_default().push(*item);
        }
    }
    groups
}

/// The rules of hostnames that mean the same hosts, written in different ways: they are not merged, but the stronger come first.
pub(crate) fn sort_by_strength<'p>(
    mut rules: Vec<EffectiveRule<'p>>,
    items: &[ToItem<'p>],
) -> Vec<EffectiveRule<'p>> {
    let places = items.iter().enumerate();
    let places: FastMap<(&ObjectKey, Option<usize>), usize> = places
        .map(|(place, item)| {
            (
                (&item.policy.key, item.policy.written_index(item.to)),
                place,
            )
        })
        .collect();
    rules.sort_by_key(|rule| {
        let source = rule.from.first();
        source.map(|source| {
            (
                places.get(&(&source.policy, source.to)).copied(),
                source.rule,
            )
        })
    });
    rules
}
