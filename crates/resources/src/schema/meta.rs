//! Schema of `metadata`.

use super::patterns::{
    BUNDLE_NAME, LABEL, LABEL_KEY, LABEL_VALUE, SERVICE_NAME, SUBDOMAIN, TIME, is_qualified_name,
};
use super::rules::{qualified_keys, valid_keys};
use super::{Findings, MISSING, Schema, integer, map, open_object, string};
use crate::document::Node;
use crate::meta::Kind;

/// Maximum total size of an object's annotations, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Returns the schema of the metadata of a kind. Fields such as `managedFields` are accepted silently.
pub(super) fn metadata(kind: Kind) -> Schema {
    open_object()
        // Required by a rule, which has a message of its own for `generateName`.
        .field("name", name(kind))
        .field("namespace", string().max(63).like(&LABEL))
        .field("labels", labels())
        .field(
            "annotations",
            map(string()).rule(annotation_keys).rule(annotations_size),
        )
        .field("uid", string())
        .field("creationTimestamp", string().like(&TIME))
        // Any value is valid: the API server overwrites it.
        .field("generation", integer(i64::MIN..=i64::MAX))
        .rule(name_required)
}

/// Labels of an object, or of a universal document.
pub(super) fn labels() -> Schema {
    map(string().max(63).like(&LABEL_VALUE)).rule(qualified_keys)
}

fn name(kind: Kind) -> Schema {
    match kind {
        Kind::Service => string().size(1..=63).like(&SERVICE_NAME),
        Kind::Namespace => string().size(1..=63).like(&LABEL),
        Kind::ClusterTrustBundle => string().size(1..=253).like(&BUNDLE_NAME),
        _ => string().size(1..=253).like(&SUBDOMAIN),
    }
}

fn name_required(node: &Node, findings: &mut Findings<'_>) {
    if node.get("name").is_some() {
        return;
    }
    findings.error_in(
        ".name",
        node,
        match node.get("generateName") {
            Some(_) => "required field is missing; `generateName` is not supported in files",
            None => MISSING,
        },
    );
}

/// The prefix of an annotation key may contain uppercase letters.
fn annotation_keys(node: &Node, findings: &mut Findings<'_>) {
    valid_keys(node, findings, &LABEL_KEY, |key| {
        is_qualified_name(&key.to_lowercase())
    });
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
            format!("must have at most {MAX_ANNOTATIONS} bytes in total, found {size}"),
        );
    }
}
