//! The merged rules of Kuma's policies for one proxy, in the syntax of the policies and in the order of their evaluation.

use pointsman_binding::bound::{RuleSource, policy_names};
use pointsman_binding::{MergedRule, MergedRules};
use pointsman_resources::ObjectKey;
use pointsman_routing::evaluation_order;
use serde::Serialize;
use serde_json::Value;

use crate::offline::Loaded;

/// The merged rules for one proxy or MeshGateway.
#[derive(Debug, Serialize)]
pub struct MergedPolicies {
    /// Its name, as given.
    #[serde(rename = "for")]
    pub name: String,
    /// Destinations to which policies apply.
    pub destinations: Vec<MergedDestination>,
}

/// The merged rules for a destination.
#[derive(Debug, Serialize)]
pub struct MergedDestination {
    /// Name of the destination or listener.
    pub destination: String,
    /// Rules, by the rank of their first match.
    pub rules: Vec<WrittenRule>,
}

/// A merged rule in the syntax of the policies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WrittenRule {
    /// Ranks of the rule's matches, starting at 1, in the order in which the matches of the destination are evaluated. Empty for streams, and for a rule
    /// that can't be matched.
    pub order: Vec<usize>,
    /// Matches; empty for all requests.
    pub matches: Value,
    /// Filters.
    pub filters: Value,
    /// Backends; empty for the original destination.
    pub backend_refs: Value,
    /// Names of the policies that the rule is merged from.
    pub from: Vec<String>,
}

impl MergedPolicies {
    /// Merges the policies for a proxy or MeshGateway that a user named.
    pub fn new(loaded: &Loaded, key: &ObjectKey, name: &str) -> Self {
        let rules = loaded.binder.merged_rules(key).into_iter();
        MergedPolicies {
            name: name.to_owned(),
            destinations: rules.map(|rules| destination(loaded, rules)).collect(),
        }
    }
}

/// Returns the rules of a destination, ordered by the rank of their first match.
fn destination(loaded: &Loaded, merged: MergedRules) -> MergedDestination {
    let ranked = merged
        .route
        .as_deref()
        .map(evaluation_order)
        .unwrap_or_default();
    let ranks = |rule: &MergedRule| -> Vec<usize> {
        let own = ranked.iter().enumerate();
        let own = own.filter(|(_, (bound, _))| bound.from == rule.from);
        let mut own: Vec<(usize, usize)> = own.map(|(at, (_, index))| (*index, at + 1)).collect();
        own.sort();
        own.into_iter().map(|(_, at)| at).collect()
    };
    let rules = merged.rules.iter();
    let mut rules: Vec<WrittenRule> = rules
        .map(|rule| written_rule(loaded, rule, ranks(rule)))
        .collect();
    rules.sort_by_key(|rule| rule.order.iter().min().copied().unwrap_or(usize::MAX));
    MergedDestination {
        destination: merged.destination,
        rules,
    }
}

fn written_rule(loaded: &Loaded, rule: &MergedRule, order: Vec<usize>) -> WrittenRule {
    let list = |source: Option<&RuleSource>, field: &str| {
        let found = source.and_then(|source| source_rule(loaded, source));
        let found = found.and_then(|rule| rule.pointer(field).cloned());
        found.unwrap_or(Value::Array(Vec::new()))
    };
    WrittenRule {
        order,
        matches: list(rule.from.first(), "/matches"),
        filters: list(rule.filters.as_ref(), "/default/filters"),
        backend_refs: list(rule.backend_refs.as_ref(), "/default/backendRefs"),
        from: policy_names(&rule.from),
    }
}

/// Returns a rule as its author wrote it.
fn source_rule(loaded: &Loaded, source: &RuleSource) -> Option<Value> {
    let object = loaded.document(&source.policy)?.object();
    let pointer = match source.to {
        Some(to) => format!("/spec/to/{to}/rules/{}", source.rule),
        None => format!("/spec/rules/{}", source.rule),
    };
    object.pointer(&pointer).cloned()
}
