//! `metadata` of every kind.

use super::patterns::{
    BUNDLE_NAME, LABEL, LABEL_KEY, LABEL_VALUE, SERVICE_NAME, SUBDOMAIN, TIME, is_qualified_name,
};
use super::{Findings, Schema, integer, map, open_object, string};
use crate::document::Node;
use crate::meta::Kind;

/// The most bytes that all annotations of an object may have together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The metadata of a kind. `managedFields` and the like are nobody's business here.
pub(super) fn metadata(kind: Kind) -> Schema {
    open_object()
        // That it is missing is said by a rule, which knows of `generateName`.
        .field("name", name(kind))
        .field("namespace", string().max(63).like(&LABEL))
        .field("labels", labels())
        .field(
            "annotations",
            map(string()).rule(annotation_keys).rule(annotations_size),
        )
        .field("creationTimestamp", string().like(&TIME))
        // The API server counts by itself and takes no notice of what a document says.
        .field("generation", integer(i64::MIN..=i64::MAX))
        .rule(named)
}

/// Labels of an object.
pub(super) fn labels() -> Schema {
    map(string().max(63).like(&LABEL_VALUE)).rule(label_keys)
}

fn name(kind: Kind) -> Schema {
    match kind {
        Kind::Service => string().size(1..=63).like(&SERVICE_NAME),
        Kind::Namespace => string().size(1..=63).like(&LABEL),
        Kind::ClusterTrustBundle => string().size(1..=253).like(&BUNDLE_NAME),
        _ => string().size(1..=253).like(&SUBDOMAIN),
    }
}

fn named(node: &Node, findings: &mut Findings<'_>) {
    if node.get("name").is_some() {
        return;
    }
    findings.error_in(
        ".name",
        node,
        match node.get("generateName") {
            Some(_) => "this required field is missing; `generateName` is for the API server, files need a name",
            None => "this required field is missing",
        },
    );
}

fn label_keys(node: &Node, findings: &mut Findings<'_>) {
    keys(node, findings, is_qualified_name);
}

/// The keys of annotations may be written in any case.
fn annotation_keys(node: &Node, findings: &mut Findings<'_>) {
    keys(node, findings, |key| is_qualified_name(&key.to_lowercase()));
}

fn keys(node: &Node, findings: &mut Findings<'_>, valid: fn(&str) -> bool) {
    for entry in node.entries().iter().filter(|entry| !valid(&entry.key)) {
        findings.error_in(
            &format!("[{}]", entry.key),
            &entry.node,
            format!("the key `{}` is not {}", entry.key, LABEL_KEY.description),
        );
    }
}

fn annotations_size(node: &Node, findings: &mut Findings<'_>) {
    let size: usize = node
        .entries()
        .iter()
        .map(|entry| entry.key.len() + entry.node.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_ANNOTATIONS {
        findings.error(
            node,
            format!("the annotations have {size} bytes; at most {MAX_ANNOTATIONS} are allowed"),
        );
    }
}
