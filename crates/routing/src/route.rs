//! A route with its rules compiled, shared by all frontends that it is attached to.

use std::sync::Arc;

use pointsman_binding::bound::{BoundRoute, BoundRule, Dialect};

use crate::expression::{CompiledMatch, compile_matches};
use crate::filters::RuleFilters;

/// A route with its rules compiled.
#[derive(Clone, Debug)]
pub struct CompiledRoute {
    pub(crate) bound: Arc<BoundRoute>,
    /// The compiled parts of each rule of `bound`.
    pub(crate) rules: Box<[CompiledRule]>,
}

/// The compiled parts of a rule.
#[derive(Clone, Debug)]
pub(crate) struct CompiledRule {
    pub(crate) filters: Option<Arc<RuleFilters>>,
    pub(crate) matches: Arc<[CompiledMatch]>,
}

impl CompiledRoute {
    /// Compiles a route. Reuses unchanged rules of the previous version, and the mirrors' counters of changed ones.
    pub fn new(bound: Arc<BoundRoute>, old: Option<&CompiledRoute>) -> Self {
        let rules = bound.rules.iter();
        CompiledRoute {
            rules: rules
                .map(|rule| compile(rule, bound.dialect, old))
                .collect(),
            bound,
        }
    }

    /// Returns the rule with the index and part of another, and its compiled parts.
    fn rule(&self, other: &BoundRule) -> Option<(&Arc<BoundRule>, &CompiledRule)> {
        let rules = &self.bound.rules;
        let at = rules
            .iter()
            .position(|rule| (rule.index, rule.part) == (other.index, other.part))?;
        Some((&rules[at], &self.rules[at]))
    }
}

fn compile(rule: &Arc<BoundRule>, dialect: Dialect, old: Option<&CompiledRoute>) -> CompiledRule {
    let old = old.and_then(|old| old.rule(rule));
    match old {
        // A rule that is resent is an equal copy.
        Some((old, compiled)) if Arc::ptr_eq(old, rule) || old == rule => compiled.clone(),
        _ => CompiledRule {
            filters: RuleFilters::compile(
                rule,
                dialect,
                old.and_then(|(_, old)| old.filters.as_deref()),
            ),
            matches: compile_matches(rule),
        },
    }
}
