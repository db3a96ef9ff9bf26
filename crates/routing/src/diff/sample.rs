//! Values that satisfy predicates, and samples of regular expressions.

use pointsman_binding::bound::StringPredicate;
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::expression::{Expression, satisfies};

/// Maximum number of samples of one expression.
const MAX_SAMPLES: usize = 8;

/// A word that stands for an arbitrary value.
pub(super) const ANY_VALUE: &str = "other";

/// Returns values that an expression matches, found from its structure: each alternative, and repetitions with few and more elements. May be empty.
pub(super) fn samples(expression: &Expression) -> Vec<String> {
    let Ok(hir) = regex_syntax::parse(expression.as_str()) else {
        return Vec::new();
    };
    let mut found = strings(&hir);
    found.retain(|sample| expression.is_match(sample));
    found.dedup();
    found
}

fn strings(hir: &Hir) -> Vec<String> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => vec![String::new()],
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0);
            text.map(str::to_owned).into_iter().collect()
        }
        HirKind::Class(class) => letters(class),
        HirKind::Capture(capture) => strings(&capture.sub),
        HirKind::Alternation(all) => limited(all.iter().flat_map(strings)),
        HirKind::Concat(all) => {
            let mut joined = vec![String::new()];
            for part in all {
                let parts = strings(part);
                let pairs = parts
                    .iter()
                    .flat_map(|part| joined.iter().map(move |start| format!("{start}{part}")));
                joined = limited(pairs);
            }
            joined
        }
        HirKind::Repetition(repetition) => {
            let parts = strings(&repetition.sub);
            let max = repetition.max.unwrap_or(u32::MAX);
            let min = repetition.min;
            let mut counts = vec![min.max(1), min, min.saturating_add(4)];
            counts.retain(|count| *count <= max && *count <= 64);
            counts.dedup();
            let repeated = counts.iter().flat_map(|count| {
                let parts = parts.iter();
                parts.map(|part| part.repeat(*count as usize))
            });
            limited(repeated)
        }
    }
}

fn limited(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for text in all {
        if kept.len() == MAX_SAMPLES {
            break;
        }
        if !kept.contains(&text) {
            kept.push(text);
        }
    }
    kept
}

/// Returns a letter and a digit of a class if it has them, otherwise any character.
fn letters(class: &Class) -> Vec<String> {
    let ranges: Vec<(char, char)> = match class {
        Class::Unicode(class) => {
            let ranges = class.ranges().iter();
            ranges.map(|range| (range.start(), range.end())).collect()
        }
        Class::Bytes(class) => {
            let ranges = class.ranges().iter();
            ranges
                .map(|range| (char::from(range.start()), char::from(range.end())))
                .collect()
        }
    };
    let has = |letter: &char| {
        ranges
            .iter()
            .any(|(start, end)| (start..=end).contains(&letter))
    };
    let letter = ('a'..='z').chain('A'..='Z').find(has);
    let digit = ('1'..='9').chain(['0']).find(has);
    let mut found: Vec<String> = letter.into_iter().chain(digit).map(String::from).collect();
    if found.is_empty() {
        let any = ('!'..='~')
            .find(has)
            .or(ranges.first().map(|(start, _)| *start));
        found.extend(any.map(String::from));
    }
    found
}

/// Returns a value that satisfies all predicates on one header or query parameter: `Some(None)` if it has to be absent, `None` if none was found. `word` stands for
/// an arbitrary value.
pub(super) fn common_value(
    predicates: &[&StringPredicate<Expression>],
    word: &str,
) -> Option<Option<String>> {
    if predicates
        .iter()
        .all(|predicate| **predicate == StringPredicate::Absent)
    {
        return Some(None);
    }
    let mut candidates = predicates
        .iter()
        .flat_map(|predicate| values(predicate, word));
    let found = candidates.find(|value| {
        let mut all = predicates.iter();
        all.all(|predicate| satisfies(predicate, value))
    });
    found.map(Some)
}

/// Returns values that satisfy a predicate.
pub(super) fn values(predicate: &StringPredicate<Expression>, word: &str) -> Vec<String> {
    match predicate {
        StringPredicate::Exact(value) => vec![value.to_string()],
        StringPredicate::Prefix(start) => vec![format!("{start}{word}"), start.to_string()],
        StringPredicate::Regex(expression) => samples(expression),
        StringPredicate::Present => vec![word.to_owned()],
        StringPredicate::Absent => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use pointsman_binding::bound::Pattern;

    use super::*;

    #[test]
    fn an_expression_is_sampled_by_its_structure() {
        for text in [
            "/api/v[0-9]+/.*",
            "(?i)/foo(/|$)(.*)",
            "a|b|c{3}",
            "[^/]+",
            "/x/[a-f0-9]{8}-[a-f0-9]{4}",
            ".*",
            "S.*|G.*",
            "\\d{2,3}",
        ] {
            let expression = Expression::new(&Pattern::new(text).expect("a good expression"));
            let found = samples(&expression);
            assert!(!found.is_empty(), "{text}");
            for sample in &found {
                assert!(expression.is_match(sample), "{text} {sample}");
            }
        }
    }

    #[test]
    fn a_common_value_satisfies_every_predicate() {
        let regex = |text: &str| {
            StringPredicate::Regex(Expression::new(&Pattern::new(text).expect("valid")))
        };
        let exact = StringPredicate::Exact("v2".into());
        assert_eq!(
            common_value(&[&regex("v[0-9]"), &exact], ANY_VALUE),
            Some(Some("v2".into()))
        );
        assert_eq!(common_value(&[&regex("x.*"), &exact], ANY_VALUE), None);
        let absent = StringPredicate::Absent;
        assert_eq!(common_value(&[&absent], ANY_VALUE), Some(None));
        assert_eq!(common_value(&[&absent, &exact], ANY_VALUE), None);
    }
}
