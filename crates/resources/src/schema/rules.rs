//! Validation rules shared by several kinds: unions, conditional fields, uniqueness.

use crate::document::Node;

use super::Findings;
use super::patterns::{LABEL_KEY, Pattern, is_qualified_name, milliseconds};

/// Returns the value of a string field.
pub(super) fn text<'n>(node: &'n Node, field: &str) -> Option<&'n str> {
    node.get(field)?.as_str()
}

/// Returns whether a list of filters has one of this type.
pub(super) fn has_filter(filters: &Node, kind: &str) -> bool {
    let mut all = filters.items().iter();
    all.any(|filter| text(filter, "type") == Some(kind))
}

/// Iterates over the items of a list field with their indexes.
pub(super) fn items<'n>(node: &'n Node, field: &str) -> impl Iterator<Item = (usize, &'n Node)> {
    node.get(field)
        .map(Node::items)
        .unwrap_or_default()
        .iter()
        .enumerate()
}

/// Members of a union: the value of the discriminator, and the field that is set with it.
pub(super) type Union = &'static [(&'static str, &'static str)];

/// Requires the union member that belongs to the value of the discriminator, and rejects all others.
pub(super) fn union(
    discriminator: &'static str,
    members: Union,
) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        let Some(value) = text(node, discriminator) else {
            return;
        };
        // An unsupported value is reported separately.
        if !members.iter().any(|(member, _)| *member == value) {
            return;
        }
        for &(member, field) in members {
            match node.get(field) {
                Some(set) if member != value => {
                    misused(findings, set, field, discriminator, &[member], value);
                }
                None if member == value => {
                    missing(findings, node, field, discriminator, value);
                }
                _ => {}
            }
        }
    }
}

fn misused(
    findings: &mut Findings<'_>,
    node: &Node,
    field: &str,
    other: &str,
    values: &[&str],
    value: &str,
) {
    let values = values.join(" or ");
    let message =
        format!("`{field}` is allowed only when {other} is {values}, but {other} is {value}");
    findings.error_in(&format!(".{field}"), node, message);
}

fn missing(findings: &mut Findings<'_>, node: &Node, field: &str, other: &str, value: &str) {
    let message = format!("`{field}` is required when {other} is {value}");
    findings.error_in(&format!(".{field}"), node, message);
}

/// Rejects a field unless another field has one of these values.
pub(super) fn only_with(
    field: &'static str,
    other: &'static str,
    values: &'static [&'static str],
) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        if let (Some(set), Some(value)) = (node.get(field), text(node, other))
            && !values.contains(&value)
        {
            misused(findings, set, field, other, values, value);
        }
    }
}

/// Requires a field if another field has one of these values.
pub(super) fn required_with(
    field: &'static str,
    other: &'static str,
    values: &'static [&'static str],
) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        if let (None, Some(value)) = (node.get(field), text(node, other))
            && values.contains(&value)
        {
            missing(findings, node, field, other, value);
        }
    }
}

/// Rejects `*` beside other items.
pub(super) fn wildcard_alone(node: &Node, findings: &mut Findings<'_>) {
    let items = node.items();
    if let Some(index) = items
        .iter()
        .position(|item| item.as_str() == Some("*"))
        .filter(|_| items.len() > 1)
    {
        findings.error_in(
            &format!("[{index}]"),
            &items[index],
            "`*` must be the only item",
        );
    }
}

/// Rejects fractions greater than 1.
pub(super) fn fraction(node: &Node, findings: &mut Findings<'_>) {
    let number = |field| node.get(field).and_then(Node::as_int);
    if let (Some(numerator), Some(denominator)) = (number("numerator"), number("denominator"))
        && numerator > denominator
    {
        findings.error(
            node,
            format!(
                "the numerator {numerator} must not be greater than the denominator {denominator}"
            ),
        );
    }
}

/// Limits a duration to a range in milliseconds. `range` describes it in the error message.
pub(super) fn duration_in(
    min: u64,
    max: u64,
    range: &'static str,
) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        let Some(text) = node.as_str() else { return };
        if milliseconds(text).is_some_and(|time| !(min..=max).contains(&time)) {
            findings.error(node, format!("must be {range}, found {text}"));
        }
    }
}

/// Rejects items of a list with the name of an earlier item.
pub(super) fn unique_names(node: &Node, findings: &mut Findings<'_>) {
    for (index, item) in node.items().iter().enumerate() {
        let Some(name) = text(item, "name") else {
            continue;
        };
        if node.items()[..index]
            .iter()
            .any(|earlier| text(earlier, "name") == Some(name))
        {
            findings.error_in(
                &format!("[{index}].name"),
                item.get("name").unwrap_or(item),
                format!("duplicate name `{name}`"),
            );
        }
    }
}

/// Requires map keys to be valid label keys.
pub(super) fn qualified_keys(node: &Node, findings: &mut Findings<'_>) {
    valid_keys(node, findings, &LABEL_KEY, is_qualified_name);
}

/// Requires map keys to be valid. The pattern describes valid keys in the error message.
pub(super) fn valid_keys(
    node: &Node,
    findings: &mut Findings<'_>,
    pattern: &Pattern,
    is_valid: fn(&str) -> bool,
) {
    for entry in node.entries().iter().filter(|entry| !is_valid(&entry.key)) {
        findings.error_in(
            &format!("[{}]", entry.key),
            &entry.node,
            pattern.key_message(&entry.key),
        );
    }
}
