//! Applies the defaults of a schema to a document, and validates the document.
//!
//! Both work as in the API server: `null` counts as unset, the default of a field applies if its parent is set, and defaults are applied
//! within a default value. Errors don't cascade: a value of the wrong type causes a single finding.

use std::collections::HashSet;

use super::findings::{FieldFinding, PathSegment};
use super::{FieldSchema, Findings, MISSING, Schema, Shape, Unique};
use crate::document::{MapEntry, Node, Value};

/// Removes null values and adds defaults.
pub(crate) fn apply_defaults(node: &mut Node, schema: &Schema) {
    match (&schema.shape, &mut node.value) {
        (Shape::Object { fields, open, .. }, Value::Map(entries)) => {
            entries.retain(|entry| {
                let field = fields.iter().find(|field| field.name == entry.key);
                field.is_none_or(|field| !is_absent(&entry.node, &field.schema, *open))
            });
            for field in fields {
                if let Some(entry) = entries.iter_mut().find(|entry| entry.key == field.name) {
                    apply_defaults(&mut entry.node, &field.schema);
                } else if let Some(default) = &field.schema.default {
                    let mut filled = Node::from_json(default, node.at);
                    apply_defaults(&mut filled, &field.schema);
                    entries.push(MapEntry {
                        key: field.name.to_owned(),
                        at: node.at,
                        node: filled,
                    });
                }
            }
        }
        (Shape::Map { values, .. }, Value::Map(entries)) => {
            entries.retain(|entry| entry.node.value != Value::Null);
            entries
                .iter_mut()
                .for_each(|entry| apply_defaults(&mut entry.node, values));
        }
        (Shape::List { items, .. }, Value::List(nodes)) => {
            nodes
                .iter_mut()
                .for_each(|item| apply_defaults(item, items));
        }
        _ => {}
    }
}

/// Returns whether a field counts as unset. In core kinds, which have open objects and are Go structs in the API server, zero values of
/// fields with a default count as unset too.
fn is_absent(node: &Node, schema: &Schema, open: bool) -> bool {
    let defaulted = schema.default.is_some() || matches!(schema.shape, Shape::IntOrString);
    match &node.value {
        Value::Null => true,
        Value::Int(0) => open && defaulted,
        Value::String(text) => open && defaulted && text.is_empty(),
        _ => false,
    }
}

/// Validates a document whose defaults have been applied.
pub(crate) fn validate(node: &Node, schema: &Schema) -> Vec<FieldFinding> {
    let mut findings = Findings::default();
    visit(node, schema, &mut findings);
    findings.list
}

fn visit<'a>(node: &'a Node, schema: &'a Schema, findings: &mut Findings<'a>) {
    let fits = match (&schema.shape, &node.value) {
        (Shape::Object { fields, open, min }, Value::Map(entries)) => {
            visit_object(node, entries, fields, *min, findings);
            if !open {
                visit_unknown(entries, fields, &schema.misplaced, findings);
            }
            true
        }
        (Shape::Map { values, min, max }, Value::Map(entries)) => {
            let (have, nouns) = (entries.len(), ["entry", "entries"]);
            count(node, have, (*min, *max), nouns, schema.message, findings);
            for entry in entries {
                findings.within(PathSegment::Key(&entry.key), |findings| {
                    visit(&entry.node, values, findings)
                });
            }
            true
        }
        (
            Shape::List {
                items,
                min,
                max,
                unique,
            },
            Value::List(nodes),
        ) => {
            let (have, nouns) = (nodes.len(), ["item", "items"]);
            count(node, have, (*min, *max), nouns, schema.message, findings);
            for (index, item) in nodes.iter().enumerate() {
                findings.within(PathSegment::Index(index), |findings| {
                    visit(item, items, findings)
                });
            }
            visit_unique(nodes, unique, findings);
            true
        }
        (Shape::String { .. }, Value::String(text)) => visit_string(node, text, schema, findings),
        (Shape::Integer { .. }, Value::Int(number)) => {
            visit_integer(node, *number, schema, findings)
        }
        (Shape::Bool, Value::Bool(_)) => true,
        (Shape::IntOrString, Value::Int(_) | Value::String(_)) => true,
        (Shape::Any, _) => true,
        (shape, _) => {
            findings.error(node, type_message(node, shape));
            false
        }
    };
    if fits {
        for rule in &schema.rules {
            rule(node, findings);
        }
    }
}

/// Returns the error message for a value of the wrong type.
fn type_message(node: &Node, shape: &Shape) -> String {
    let (expected, found) = (type_name(shape), node.type_name());
    let hint = match (shape, &node.value) {
        (Shape::String { .. }, Value::Bool(_) | Value::Int(_) | Value::Float(_)) => {
            "; enclose the value in quotes"
        }
        _ => "",
    };
    format!("must be {expected}, found {found}{hint}")
}

fn visit_object<'a>(
    node: &'a Node,
    entries: &'a [MapEntry],
    fields: &'a [FieldSchema],
    min: usize,
    findings: &mut Findings<'a>,
) {
    for field in fields {
        match entries.iter().find(|entry| entry.key == field.name) {
            Some(entry) => {
                findings.within(PathSegment::Field(field.name), |findings| {
                    visit(&entry.node, &field.schema, findings)
                });
            }
            None if field.required => {
                let message = field.schema.message.unwrap_or(MISSING);
                findings.error_in(&format!(".{}", field.name), node, message);
            }
            None => {}
        }
    }
    // Unknown fields don't count: the API server drops them before it validates.
    let known = |entry: &&MapEntry| fields.iter().any(|field| field.name == entry.key);
    if min > 0 && entries.iter().filter(known).count() < min {
        let names: Vec<_> = fields.iter().map(|field| field.name).collect();
        findings.error(
            node,
            format!(
                "at least {min} of these fields must be set: {}",
                names.join(", ")
            ),
        );
    }
}

/// Warns about unknown fields. Rejects fields that are known to belong elsewhere, because their configuration would be lost.
fn visit_unknown(
    entries: &[MapEntry],
    fields: &[FieldSchema],
    misplaced: &[(&str, &str)],
    findings: &mut Findings<'_>,
) {
    let known = |entry: &&MapEntry| fields.iter().any(|field| field.name == entry.key);
    for entry in entries.iter().filter(|entry| !known(entry)) {
        let part = format!(".{}", entry.key);
        if let Some((_, message)) = misplaced.iter().find(|(name, _)| *name == entry.key) {
            findings.error_at(&part, entry.at, *message);
            continue;
        }
        let suggestion = closest(&entry.key, fields.iter().map(|field| field.name));
        let hint = suggestion
            .map(|name| format!("; did you mean `{name}`?"))
            .unwrap_or_default();
        findings.warn(&part, entry.at, format!("unknown field{hint}"));
    }
}

fn visit_integer(node: &Node, number: i64, schema: &Schema, findings: &mut Findings<'_>) -> bool {
    let Shape::Integer { min, max, one_of } = &schema.shape else {
        return true;
    };
    let message = if !one_of.is_empty() && !one_of.contains(&number) {
        let allowed: Vec<_> = one_of.iter().map(i64::to_string).collect();
        let allowed = allowed.join(", ");
        format!("unsupported value {number}; supported values: {allowed}")
    } else if !(*min..=*max).contains(&number) {
        let custom = schema.message.map(str::to_owned);
        custom.unwrap_or_else(|| range_message(number, *min, *max))
    } else {
        return true;
    };
    findings.error(node, message);
    false
}

fn visit_string(node: &Node, text: &str, schema: &Schema, findings: &mut Findings<'_>) -> bool {
    let Shape::String {
        min,
        max,
        pattern,
        one_of,
    } = &schema.shape
    else {
        return true;
    };
    if !one_of.is_empty() && !one_of.contains(&text) {
        let hint = closest(text, one_of.iter().copied())
            .map(|word| format!("; did you mean `{word}`?"))
            .unwrap_or_default();
        findings.error(
            node,
            format!(
                "unsupported value `{}`; supported values: {}{hint}",
                shorten(text),
                one_of.join(", ")
            ),
        );
        return false;
    }
    let before = findings.list.len();
    // Characters are counted only if the length in bytes is out of range.
    if text.len() < *min || text.len() > *max {
        let (have, nouns) = (text.chars().count(), ["character", "characters"]);
        count(node, have, (*min, *max), nouns, schema.message, findings);
    }
    // An empty string that is too short has been reported already.
    if let Some(pattern) = pattern.filter(|_| findings.list.len() == before || !text.is_empty())
        && !pattern.matches(text)
    {
        findings.error(node, pattern.message(text));
    }
    findings.list.len() == before
}

fn visit_unique(nodes: &[Node], unique: &Unique, findings: &mut Findings<'_>) {
    let mut seen = HashSet::new();
    for (index, node) in nodes.iter().enumerate() {
        let (key, fields) = match unique {
            Unique::No => return,
            Unique::Items => (scalar(node), String::new()),
            Unique::Keys(keys) => {
                let parts: Option<Vec<_>> = keys.iter().map(|key| scalar(node.get(key)?)).collect();
                (parts.map(|parts| parts.join("\u{1}")), keys.join(", "))
            }
        };
        // Values that are missing or of the wrong type are reported separately.
        let Some(key) = key else { continue };
        if !seen.insert(key.clone()) {
            let shown = shorten(&key.replace('\u{1}', ", "));
            let message = match fields.as_str() {
                "" => format!("duplicate value `{shown}`"),
                fields => {
                    format!("duplicate item: an earlier item has the same {fields} (`{shown}`)")
                }
            };
            findings.error_in(&format!("[{index}]"), node, message);
        }
    }
}

fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::String(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

fn count(
    node: &Node,
    have: usize,
    (min, max): (usize, usize),
    [one, many]: [&str; 2],
    message: Option<&str>,
    findings: &mut Findings<'_>,
) {
    if (min..=max).contains(&have) {
        return;
    }
    if let Some(message) = message {
        return findings.error(node, message);
    }
    let noun = |n: usize| if n == 1 { one } else { many };
    let message = match (have, min) {
        (0, 1) => "must not be empty".to_owned(),
        _ if have < min => format!("must have at least {min} {}, found {have}", noun(min)),
        _ => format!("must have at most {max} {}, found {have}", noun(max)),
    };
    findings.error(node, message);
}

/// Returns the error message for an integer that is out of range.
pub(super) fn range_message(number: i64, min: i64, max: i64) -> String {
    match max {
        i64::MAX => format!("must be at least {min}, found {number}"),
        _ => format!("must be between {min} and {max}, found {number}"),
    }
}

fn type_name(shape: &Shape) -> &'static str {
    match shape {
        Shape::Object { .. } | Shape::Map { .. } => "an object",
        Shape::List { .. } => "a list",
        Shape::String { .. } => "a string",
        Shape::Integer { .. } => "an integer",
        Shape::Bool => "a boolean",
        Shape::IntOrString => "an integer or a string",
        Shape::Any => "a value",
    }
}

/// Truncates a text to 60 characters, for use in a message.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the known word that is most similar to a word, if they differ only in case or by one or two typing errors.
pub fn closest<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let allowed = (word.chars().count() / 3).min(2);
    known
        .map(|candidate| {
            (
                distance(&word.to_lowercase(), &candidate.to_lowercase(), allowed),
                candidate,
            )
        })
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the edit distance between two words: insertions, deletions, substitutions and transpositions (Damerau-Levenshtein). Any result
/// above `limit` means only that the limit is exceeded.
fn distance(a: &str, b: &str, limit: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (i, 0) => i,
                (0, j) => j,
                _ => {
                    let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let swapped = (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                        .then(|| rows[i - 2][j - 2] + 1);
                    let shifted = rows[i - 1][j].min(rows[i][j - 1]) + 1;
                    replaced.min(shifted).min(swapped.unwrap_or(usize::MAX))
                }
            };
        }
    }
    rows[a.len()][b.len()]
}
