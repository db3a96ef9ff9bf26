//! Compiled regular expressions.

use std::sync::Arc;

use pointsman_binding::bound::{BoundMatch, BoundRule, Pattern, StringPredicate};
use regex::Regex;

/// A compiled regular expression. Equality compares the source text.
#[derive(Clone, Debug)]
pub struct Expression {
    pattern: Pattern,
    /// `None` if it does not compile, and matches nothing then. [`Pattern::new`] accepts no such expression, so a rule that has one is rejected before.
    regex: Option<Regex>,
}

/// A match of a rule with its expressions compiled.
pub type CompiledMatch = BoundMatch<Expression>;

impl Expression {
    /// Compiles an expression.
    pub fn new(pattern: &Pattern) -> Self {
        Expression {
            regex: Pattern::compile(pattern.as_str()).ok(),
            pattern: pattern.clone(),
        }
    }

    /// Returns the source text.
    pub fn as_str(&self) -> &str {
        self.pattern.as_str()
    }

    /// Returns whether the expression matches the whole value.
    pub fn is_match(&self, value: &str) -> bool {
        self.regex
            .as_ref()
            .is_some_and(|regex| regex.is_match(value))
    }

    /// Returns the anchored text that was compiled; `None` if it does not compile.
    pub(crate) fn anchored(&self) -> Option<&str> {
        self.regex.as_ref().map(Regex::as_str)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }
}

impl AsRef<str> for Expression {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// Compiles the matches of a rule.
pub(crate) fn compile_matches(rule: &BoundRule) -> Arc<[CompiledMatch]> {
    let matches = rule.matches.iter();
    matches
        .map(|matched| matched.compile(Expression::new))
        .collect()
}

/// Returns whether a value that is present satisfies a predicate.
pub(crate) fn satisfies(predicate: &StringPredicate<Expression>, value: &str) -> bool {
    match predicate {
        StringPredicate::Exact(wanted) => **wanted == *value,
        StringPredicate::Regex(expression) => expression.is_match(value),
        StringPredicate::Prefix(start) => value.starts_with(&**start),
        StringPredicate::Present => true,
        StringPredicate::Absent => false,
    }
}
