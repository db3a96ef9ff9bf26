//! Rules that several kinds share, made from data: unions, conditions, uniqueness.

use crate::document::Node;

use super::Findings;
use super::patterns::{LABEL_KEY, is_qualified_name, milliseconds};

/// The text of a field.
pub(super) fn text<'n>(node: &'n Node, field: &str) -> Option<&'n str> {
    node.get(field)?.as_str()
}

/// The items of a field with their places in it.
pub(super) fn items<'n>(node: &'n Node, field: &str) -> impl Iterator<Item = (usize, &'n Node)> {
    node.get(field)
        .map(Node::items)
        .unwrap_or_default()
        .iter()
        .enumerate()
}

/// A field that says which one of other fields is set, and those: `(word, field)`.
pub(super) type Union = &'static [(&'static str, &'static str)];

/// The field that belongs to the tag's value must be set and the others must not.
pub(super) fn union(tag: &'static str, members: Union) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        let Some(value) = text(node, tag) else { return };
        // A value that is not allowed has its own finding.
        if !members.iter().any(|(word, _)| *word == value) {
            return;
        }
        for &(word, field) in members {
            match node.get(field) {
                Some(set) if word != value => findings.error_in(
                    &format!(".{field}"),
                    set,
                    format!("`{field}` goes with {tag} {word} only, but {tag} is {value}"),
                ),
                None if word == value => {
                    findings.error_in(
                        &format!(".{field}"),
                        node,
                        format!("{tag} {value} needs `{field}`"),
                    );
                }
                _ => {}
            }
        }
    }
}

/// A field may be set only where another has one of these values.
pub(super) fn only_with(
    field: &'static str,
    other: &'static str,
    values: &'static [&'static str],
) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        if let (Some(set), Some(value)) = (node.get(field), text(node, other))
            && !values.contains(&value)
        {
            findings.error_in(
                &format!(".{field}"),
                set,
                format!(
                    "`{field}` goes with {other} {} only, but {other} is {value}",
                    values.join(" or ")
                ),
            );
        }
    }
}

/// A field must be set where another has one of these values.
pub(super) fn needed_with(
    field: &'static str,
    other: &'static str,
    values: &'static [&'static str],
) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        if let (None, Some(value)) = (node.get(field), text(node, other))
            && values.contains(&value)
        {
            findings.error_in(
                &format!(".{field}"),
                node,
                format!("{other} {value} needs `{field}`"),
            );
        }
    }
}

/// The star stands alone or not at all.
pub(super) fn lone_star(node: &Node, findings: &mut Findings<'_>) {
    let items = node.items();
    if let Some(index) = items
        .iter()
        .position(|item| item.as_str() == Some("*"))
        .filter(|_| items.len() > 1)
    {
        findings.error_in(
            &format!("[{index}]"),
            &items[index],
            "`*` stands for all and goes with no other",
        );
    }
}

/// A part is no more than its whole.
pub(super) fn fraction(node: &Node, findings: &mut Findings<'_>) {
    let number = |field| node.get(field).and_then(Node::as_int);
    if let (Some(numerator), Some(denominator)) = (number("numerator"), number("denominator"))
        && numerator > denominator
    {
        findings.error(
            node,
            format!("the numerator {numerator} is more than the denominator {denominator}"),
        );
    }
}

/// A duration lies between two, in milliseconds.
pub(super) fn lasts(
    min: u64,
    max: u64,
    message: &'static str,
) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        if let Some(time) = node
            .as_str()
            .and_then(milliseconds)
            .filter(|time| !(min..=max).contains(time))
        {
            findings.error(node, format!("this is {time} ms; {message}"));
        }
    }
}

/// Named items of a list have different names.
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
                format!("an earlier item has the name `{name}` too"),
            );
        }
    }
}

/// Keys are those that labels may have.
pub(super) fn qualified_keys(node: &Node, findings: &mut Findings<'_>) {
    for entry in node
        .entries()
        .iter()
        .filter(|entry| !is_qualified_name(&entry.key))
    {
        findings.error_in(
            &format!("[{}]", entry.key),
            &entry.node,
            format!("the key is not {}", LABEL_KEY.description),
        );
    }
}
