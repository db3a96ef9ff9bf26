//! Merges rules of several policies that have equal `matches`.
//!
//! "This MADR proposes to distribute `default` down into individual `rules` and merge `rules` based on structural equality of the
//! `matches` value" (MADR 011). `filters` and `backendRefs` are each taken as a whole from the most specific policy that has them; an empty
//! list is one. Hostnames merge by "an exact string match" (MADR 045).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use pointsman_resources::ObjectKey;
use pointsman_resources::kuma::{BackendRef, Filter, Match, Rule, RuleConf};

use super::policy::{MeshPolicy, ToItem};
use crate::bound::RuleSource;
use crate::engine::FastMap;

/// A rule in effect after merging.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EffectiveRule<'p> {
    pub matches: &'p [Match],
    /// Filters, with the policy and rule that set them.
    pub filters: Option<(&'p [Filter], &'p MeshPolicy, RuleSource)>,
    /// Backend references, with the policy and rule that set them.
    pub backend_refs: Option<(&'p [BackendRef], &'p MeshPolicy, RuleSource)>,
    /// Rules that contribute to this one, most specific first.
    pub from: Vec<RuleSource>,
    /// Rules and lists that a more specific policy overrides.
    pub overridden: Vec<OverriddenRule>,
}

/// A rule, or one of its lists, that a more specific policy overrides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OverriddenRule {
    pub rule: RuleSource,
    /// The overridden list (`filters` or `backendRefs`); `None` if the whole rule is overridden.
    pub part: Option<&'static str>,
    /// The more specific policy.
    pub winner: ObjectKey,
}

/// Rule of a MeshTCPRoute without rules: "if `rules: []`, a ref to `to.targetRef`".
static FORWARD_UNCHANGED: LazyLock<Rule> = LazyLock::new(|| Rule {
    matches: Vec::new(),
    default: RuleConf {
        filters: None,
        backend_refs: Some(Vec::new()),
    },
});

/// Merges the rules of items that are sorted most specific first: the most specific policy's rules in their order, then those that each next one adds.
pub(crate) fn merge<'p>(items: &[ToItem<'p>]) -> Vec<EffectiveRule<'p>> {
    let mut merged: Vec<EffectiveRule<'p>> = Vec::new();
    let mut positions: FastMap<&[Match], usize> = FastMap::default();
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
            let position = *positions.entry(&rule.matches).or_insert_with(|| {
                merged.push(EffectiveRule {
                    matches: &rule.matches,
                    filters: None,
                    backend_refs: None,
                    from: Vec::new(),
                    overridden: Vec::new(),
                });
                merged.len() - 1
            });
            merged[position].add(rule, item.policy, source);
        }
    }
    merged
}

impl<'p> EffectiveRule<'p> {
    /// Takes from a less specific rule the lists that no more specific rule set.
    fn add(&mut self, rule: &'p Rule, policy: &'p MeshPolicy, source: RuleSource) {
        let mut used = self.from.is_empty();
        let mut overrides: Vec<(&'static str, ObjectKey)> = Vec::new();
        match (&self.filters, &rule.default.filters) {
            (None, Some(filters)) => {
                self.filters = Some((filters, policy, source.clone()));
                used = true;
            }
            (Some((_, winner, _)), Some(_)) => overrides.push(("filters", winner.key.clone())),
            (_, None) => {}
        }
        match (&self.backend_refs, &rule.default.backend_refs) {
            (None, Some(backends)) => {
                self.backend_refs = Some((backends, policy, source.clone()));
                used = true;
            }
            (Some((_, winner, _)), Some(_)) => overrides.push(("backendRefs", winner.key.clone())),
            (_, None) => {}
        }
        if !used && overrides.is_empty() {
            // The rule sets neither list, so the most specific rule overrides it as a whole.
            let first = self.from.iter().take(1);
            overrides.extend(first.map(|first| ("", first.policy.clone())));
        }
        self.overridden
            .extend(overrides.into_iter().map(|(part, winner)| OverriddenRule {
                rule: source.clone(),
                part: used.then_some(part),
                winner,
            }));
        if used {
            self.from.push(source);
        }
    }
}

/// Groups items by hostname as written: "It's based on an exact string match" (MADR 045). Items without hostnames are under the empty one. The order
/// within each group is kept.
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

/// Sorts rules whose hostnames are spelled differently but denote the same hosts: they are not merged, but the more specific come first.
pub(crate) fn sort_by_strength<'p>(
    mut rules: Vec<EffectiveRule<'p>>,
    items: &[ToItem<'p>],
) -> Vec<EffectiveRule<'p>> {
    let ranks = items.iter().enumerate().map(|(rank, item)| {
        let to = item.policy.written_index(item.to);
        ((&item.policy.key, to), rank)
    });
    let ranks: FastMap<(&ObjectKey, Option<usize>), usize> = ranks.collect();
    rules.sort_by_key(|rule| {
        let source = rule.from.first();
        source.map(|source| {
            let rank = ranks.get(&(&source.policy, source.to)).copied();
            (rank, source.rule)
        })
    });
    rules
}
