//! Schemas of the matches of a rule.

use serde_json::json;

use super::super::filters::METHODS;
use super::super::rules::text;
use super::super::shared::header_name;
use super::super::{Findings, Schema, list, object, one_of, string};
use crate::document::Node;

/// Returns the schema of the matches of a rule.
pub(super) fn matches() -> Schema {
    let path = object()
        .required(
            "type",
            one_of(&["Exact", "PathPrefix", "RegularExpression"]),
        )
        .required("value", string().size(1..=usize::MAX))
        .rule(absolute_path)
        .rule(no_trailing_slash);
    let matched = object()
        .field("path", path)
        .field("method", one_of(METHODS))
        .field("headers", list(header()))
        .field(
            "queryParams",
            list(query_parameter()).rule(unique_parameters),
        );
    list(matched).size(1..=usize::MAX)
}

fn header() -> Schema {
    let types = &["Present", "Absent", "Prefix", "RegularExpression", "Exact"];
    object()
        .field("type", one_of(types).default(json!("Exact")))
        .required("name", header_name())
        .field("value", string())
        .rule(value_not_allowed)
        .rule(value_required)
}

fn query_parameter() -> Schema {
    object()
        .required("type", one_of(&["Exact", "RegularExpression"]))
        .required("name", string().size(1..=usize::MAX))
        .required("value", string())
}

fn absolute_path(node: &Node, findings: &mut Findings<'_>) {
    let is_literal = matches!(text(node, "type"), Some("Exact" | "PathPrefix"));
    if let Some(value) = node.get("value").filter(|_| is_literal)
        && value
            .as_str()
            .is_some_and(|path| !path.is_empty() && !path.starts_with('/'))
    {
        findings.error_in(".value", value, "must be an absolute path");
    }
}

fn no_trailing_slash(node: &Node, findings: &mut Findings<'_>) {
    if let (Some("PathPrefix"), Some(value)) = (text(node, "type"), node.get("value"))
        && value
            .as_str()
            .is_some_and(|path| path != "/" && path.ends_with('/'))
    {
        let message = "does not need a trailing slash because only a `/`-separated prefix or an entire path is matched";
        findings.error_in(".value", value, message);
    }
}

fn value_not_allowed(node: &Node, findings: &mut Findings<'_>) {
    if let (Some("Present" | "Absent"), Some(value)) = (text(node, "type"), node.get("value"))
        && value.as_str().is_some_and(|value| !value.is_empty())
    {
        findings.error_in(".value", value, "must not be defined");
    }
}

/// The types Exact and RegularExpression require a value. A missing prefix matches any value.
fn value_required(node: &Node, findings: &mut Findings<'_>) {
    let is_required = matches!(text(node, "type"), Some("Exact" | "RegularExpression"));
    if is_required && node.get("value").is_none() {
        findings.error_in(".value", node, "must be defined");
    }
}

fn unique_parameters(node: &Node, findings: &mut Findings<'_>) {
    let name = |item| text(item, "name");
    for (index, item) in node.items().iter().enumerate() {
        let earlier = &node.items()[..index];
        if let Some(same) = name(item).filter(|own| earlier.iter().any(|e| name(e) == Some(own))) {
            let message = format!("multiple entries for name {same}");
            findings.error_in(
                &format!("[{index}].name"),
                item.get("name").unwrap_or(item),
                message,
            );
        }
    }
}
