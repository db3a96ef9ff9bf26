//! Tags: what proxies and listeners are, and what selects them.

use super::super::{Findings, Schema, map, string};
use crate::document::Node;
use crate::kuma::{PROTOCOL_TAG, SERVICE_TAG};

/// Protocols of inbounds and ports.
pub(super) const PROTOCOLS: [&str; 5] = ["grpc", "http", "http2", "kafka", "tcp"];

/// Tags that say what Dataplanes are, which listeners must not say again.
const RESERVED: [&str; 4] = [
    "kuma.io/external-service-name",
    PROTOCOL_TAG,
    SERVICE_TAG,
    "kuma.io/zone",
];

/// What something is.
pub(super) fn tags() -> Schema {
    map(string()).rule(names).rule(values)
}

/// What something must be; the value `*` is any.
pub(super) fn selector() -> Schema {
    map(string()).rule(names).rule(selector_values)
}

/// What a listener is.
pub(super) fn listener_tags() -> Schema {
    selector().rule(not_reserved)
}

/// A tag in a path, as Kuma writes it.
pub(super) fn key(tag: &str) -> String {
    format!("[\"{tag}\"]")
}

fn is_plain(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':')
}

fn names(node: &Node, findings: &mut Findings<'_>) {
    for entry in node.entries() {
        let part = key(&entry.key);
        if entry.key.is_empty() {
            findings.error(node, "tag name must be non-empty");
        } else if !entry.key.bytes().all(|b| is_plain(b) || b == b'/') {
            let message = "tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores";
            findings.error_in(&part, &entry.node, message);
        }
    }
}

fn values(node: &Node, findings: &mut Findings<'_>) {
    each_value(node, findings, |value| {
        let message =
            "tag value must consist of alphanumeric characters, dots, dashes and underscores";
        (!value.bytes().all(is_plain)).then_some(message)
    });
}

fn selector_values(node: &Node, findings: &mut Findings<'_>) {
    each_value(node, findings, |value| {
        let message = "tag value must consist of alphanumeric characters, dots, dashes, slashes and underscores or be \"*\"";
        let fits = value == "*" || value.bytes().all(|b| is_plain(b) || b == b'/');
        (!fits).then_some(message)
    });
}

fn each_value(node: &Node, findings: &mut Findings<'_>, wrong: fn(&str) -> Option<&'static str>) {
    for entry in node.entries() {
        let message = match entry.node.as_str() {
            Some("") => Some("tag value must be non-empty"),
            Some(value) => wrong(value),
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

/// The tags in `field` name a service.
pub(super) fn names_a_service(field: &'static str) -> impl Fn(&Node, &mut Findings<'_>) {
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

/// A selector asks for something.
pub(super) fn selects_something(node: &Node, findings: &mut Findings<'_>) {
    if node.entries().is_empty() {
        findings.error(node, "must have at least one tag");
    }
}

/// Whether this is an object; what is not has its own finding.
pub(super) fn is_map(node: &Node) -> bool {
    matches!(node.value, crate::document::Value::Map(_))
}
