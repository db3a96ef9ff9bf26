//! Schemas of tags, which describe and select proxies and listeners.

use super::super::{Findings, Schema, map, string};
use crate::document::Node;
use crate::kuma::{PROTOCOL_TAG, SERVICE_TAG};

/// Supported protocols of inbounds and ports.
pub(super) const PROTOCOLS: [&str; 5] = ["grpc", "http", "http2", "kafka", "tcp"];

/// Tags that belong to Dataplanes and are not allowed on listeners.
const RESERVED: [&str; 4] = [
    "kuma.io/external-service-name",
    PROTOCOL_TAG,
    SERVICE_TAG,
    "kuma.io/zone",
];

/// Tags of a Dataplane, inbound or outbound.
pub(super) fn tags() -> Schema {
    map(string()).rule(names).rule(values)
}

/// Tags of a selector. The value `*` matches any value.
pub(super) fn selector() -> Schema {
    map(string()).rule(names).rule(selector_values)
}

/// Tags of a listener.
pub(super) fn listener_tags() -> Schema {
    selector().rule(not_reserved)
}

/// Formats a tag as a segment of a field path, as Kuma does.
pub(super) fn key(tag: &str) -> String {
    format!("[\"{tag}\"]")
}

fn is_tag_character(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':')
}

fn names(node: &Node, findings: &mut Findings<'_>) {
    for entry in node.entries() {
        let part = key(&entry.key);
        if entry.key.is_empty() {
            findings.error(node, "tag name must be non-empty");
        } else if !entry.key.bytes().all(|b| is_tag_character(b) || b == b'/') {
            let message = "tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores";
            findings.error_in(&part, &entry.node, message);
        }
    }
}

fn values(node: &Node, findings: &mut Findings<'_>) {
    each_value(node, findings, |value| {
        let message =
            "tag value must consist of alphanumeric characters, dots, dashes and underscores";
        (!value.bytes().all(is_tag_character)).then_some(message)
    });
}

fn selector_values(node: &Node, findings: &mut Findings<'_>) {
    each_value(node, findings, |value| {
        let message = "tag value must consist of alphanumeric characters, dots, dashes, slashes and underscores or be \"*\"";
        let is_valid = value == "*" || value.bytes().all(|b| is_tag_character(b) || b == b'/');
        (!is_valid).then_some(message)
    });
}

fn each_value(node: &Node, findings: &mut Findings<'_>, error: fn(&str) -> Option<&'static str>) {
    for entry in node.entries() {
        let message = match entry.node.as_str() {
            Some("") => Some("tag value must be non-empty"),
            Some(value) => error(value),
            None => None,
        };
        if let Some(message) = message {
            findings.error_in(&key(&entry.key), &entry.node, message);
        }
    }
}

fn not_reserved(node: &Node, findings: &mut Findings<'_>) {
    for entry in node.entries() {
        if RESERVED.contains(&entry.key.as_str()) {
            let message = format!("tag name must not be \"{}\"", entry.key);
            findings.error_in(&key(&entry.key), &entry.node, message);
        }
    }
}

/// Requires the tags in `field` to contain the service tag.
pub(super) fn service_tag_required(field: &'static str) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        let tags = node.get(field);
        if tags.is_none_or(|tags| is_map(tags) && tags.get(SERVICE_TAG).is_none()) {
            findings.error_in(
                &format!(".{field}"),
                tags.unwrap_or(node),
                format!("mandatory tag \"{SERVICE_TAG}\" is missing"),
            );
        }
    }
}

/// Requires a selector to have at least one tag.
pub(super) fn non_empty_selector(node: &Node, findings: &mut Findings<'_>) {
    if node.entries().is_empty() {
        findings.error(node, "must have at least one tag");
    }
}

/// Returns whether the value is an object. Other values are reported separately.
pub(super) fn is_map(node: &Node) -> bool {
    matches!(node.value, crate::document::Value::Map(_))
}
