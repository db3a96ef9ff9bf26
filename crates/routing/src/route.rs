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
    /// Compiles a route. Reuses unchanged rules of the previous version.
    pub fn new(bound: Arc<BoundRoute>, old: Option<&CompiledRoute>) -> Self {
        let rules = bound.rules.iter();
        CompiledRoute {
            rules: rules
                .map(|rule| compile(rule, bound.dialect, old))
                .collect(),
            bound,
        }
    }
}

fn compile(rule: &Arc<BoundRule>, dialect: Dialect, old: Option<&CompiledRoute>) -> CompiledRule {
    let mut known = old
        .into_iter()
        .flat_map(|old| old.bound.rules.iter().zip(&old.rules));
    match known.find(|(old, _)| Arc::ptr_eq(old, rule)) {
        Some((_, compiled)) => compiled.clone(),
        None => CompiledRule {
            filters: RuleFilters::compile(rule, dialect),
            matches: compile_matches(rule),
        },
    }
}
