//! Schemas of references in policies.

use serde_json::json;

use super::super::rules::text;
use super::super::shared::port;
use super::super::{Findings, Schema, integer, list, map, object, one_of, string};
use super::patterns::{NAME, TARGET_KIND};
use super::tags::{is_map, selector};
use crate::document::{Node, Value};

/// Fields of a reference that are allowed with each kind, besides `kind`.
const FIELDS: &[(&str, &[&str])] = &[
    // Rules with their own messages restrict `name` of a Mesh and `sectionName` of a Dataplane.
    ("Mesh", &["name", "proxyTypes"]),
    ("Dataplane", &["name", "namespace", "labels", "sectionName"]),
    ("MeshSubset", &["tags", "proxyTypes"]),
    ("MeshGateway", &["name", "tags"]),
    (
        "MeshService",
        &["name", "namespace", "labels", "sectionName"],
    ),
    ("MeshExternalService", &["name", "namespace", "labels"]),
    (
        "MeshMultiZoneService",
        &["name", "namespace", "labels", "sectionName"],
    ),
    ("MeshServiceSubset", &["name", "tags"]),
];

/// Kinds that are referred to by name only.
const BY_NAME: [&str; 2] = ["MeshServiceSubset", "MeshGateway"];

/// Kinds that are referred to by name or by labels.
const BY_NAME_OR_LABELS: [&str; 3] = ["MeshService", "MeshExternalService", "MeshMultiZoneService"];

/// Kinds of backends.
const BACKENDS: &[&str] = &[
    "MeshService",
    "MeshServiceSubset",
    "MeshExternalService",
    "MeshMultiZoneService",
];

/// Returns the schema of a reference to proxies or destinations of these kinds.
pub(super) fn target_ref(supported: &'static [&'static str]) -> Schema {
    object()
        .required(
            "kind",
            string().like(&TARGET_KIND).message("must be defined"),
        )
        .field("name", string().like(&NAME))
        .field("namespace", string())
        .field("mesh", string())
        .field("tags", selector())
        .field("labels", map(string()))
        .field("sectionName", string())
        .field(
            "proxyTypes",
            list(one_of(&["Gateway", "Sidecar"]))
                .size(1..=usize::MAX)
                .message("must be undefined or have at least one element"),
        )
        .rule(supported_kind(supported))
        .rule(fields_of_kind)
        .rule(mesh_without_name)
        .rule(name_required)
        .rule(name_or_labels)
}

fn weight() -> Schema {
    integer(0..=4_294_967_295)
        .message("must be in inclusive range [0, 4294967295]")
        .default(json!(1))
}

/// Returns the schema of a reference to a backend.
pub(super) fn backend_ref() -> Schema {
    target_ref(BACKENDS)
        .field("weight", weight())
        .field("port", port())
        .rule(port_of_multi_zone)
}

fn supported_kind(supported: &'static [&'static str]) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        refuse_kind(node, findings, "", supported);
    }
}

/// Rejects a reference to a kind other than these. Unknown kinds are reported separately.
pub(super) fn refuse_kind(
    node: &Node,
    findings: &mut Findings<'_>,
    part: &str,
    supported: &[&str],
) {
    let Some(kind) = text(node, "kind").filter(|kind| TARGET_KIND.matches(kind)) else {
        return;
    };
    if !supported.contains(&kind) {
        let message = TARGET_KIND.message(kind);
        findings.error_in(
            &format!("{part}.kind"),
            node.get("kind").unwrap_or(node),
            message,
        );
    }
}

/// Returns whether a value counts as set. Like Kuma, this treats empty values as unset.
fn is_set(node: &Node) -> bool {
    match &node.value {
        Value::String(text) => !text.is_empty(),
        Value::Map(entries) => !entries.is_empty(),
        Value::List(items) => !items.is_empty(),
        _ => false,
    }
}

fn set<'n>(node: &'n Node, field: &str) -> Option<&'n Node> {
    node.get(field).filter(|value| is_set(value))
}

fn fields_of_kind(node: &Node, findings: &mut Findings<'_>) {
    let kind = text(node, "kind").unwrap_or_default();
    let Some((_, allowed)) = FIELDS.iter().find(|(known, _)| *known == kind) else {
        return;
    };
    let all = [
        "name",
        "namespace",
        "mesh",
        "tags",
        "labels",
        "sectionName",
        "proxyTypes",
    ];
    for field in all.iter().filter(|field| !allowed.contains(field)) {
        if let Some(value) = set(node, field) {
            let message = format!("must not be set with kind {kind}");
            findings.error_in(&format!(".{field}"), value, message);
        }
    }
}

fn mesh_without_name(node: &Node, findings: &mut Findings<'_>) {
    if let (Some("Mesh"), Some(name)) = (text(node, "kind"), set(node, "name")) {
        findings.error_in(
            ".name",
            name,
            "using name with kind Mesh is not yet supported",
        );
    }
}

fn name_required(node: &Node, findings: &mut Findings<'_>) {
    let Some(kind) = text(node, "kind").filter(|kind| BY_NAME.contains(kind)) else {
        return;
    };
    if node
        .get("name")
        .is_none_or(|name| name.as_str() == Some(""))
    {
        findings.error_in(".name", node, format!("must be set when kind is {kind}"));
    }
}

fn name_or_labels(node: &Node, findings: &mut Findings<'_>) {
    let kind = text(node, "kind").unwrap_or_default();
    // A Dataplane reference without either refers to all Dataplanes.
    if !BY_NAME_OR_LABELS.contains(&kind) && kind != "Dataplane" {
        return;
    }
    let name = set(node, "name").or(set(node, "namespace"));
    match (set(node, "labels"), name) {
        (Some(labels), Some(_)) => {
            let message = "either labels or name and namespace must be specified";
            findings.error_in(".labels", labels, message);
        }
        (None, _) if set(node, "name").is_none() && kind != "Dataplane" => {
            // Values of the wrong type are reported separately.
            let has_wrong_type = |field, is_valid: fn(&Node) -> bool| {
                node.get(field).is_some_and(|value| !is_valid(value))
            };
            if !has_wrong_type("name", |name| name.as_str().is_some())
                && !has_wrong_type("labels", is_map)
            {
                let message = format!("name or labels must be set when kind is {kind}");
                findings.error_in(".name", node, message);
            }
        }
        _ => {}
    }
}

/// `sectionName` of a Dataplane refers to an inbound, which routes don't apply to.
pub(super) fn no_inbound(node: &Node, findings: &mut Findings<'_>) {
    if let (Some("Dataplane"), Some(section)) = (text(node, "kind"), set(node, "sectionName")) {
        let message = "can only be used with inbound policies";
        findings.error_in(".sectionName", section, message);
    }
}

fn port_of_multi_zone(node: &Node, findings: &mut Findings<'_>) {
    if text(node, "kind") == Some("MeshMultiZoneService") && node.get("port").is_none() {
        let message = "must be defined with kind MeshMultiZoneService";
        findings.error_in(".port", node, message);
    }
}
