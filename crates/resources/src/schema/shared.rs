//! Schemas shared by several kinds: references, selectors, headers, session persistence, certificate validation.

use serde_json::json;

use super::patterns::{
    DURATION, GROUP, HEADER_NAME, HEADER_VALUE, HOSTNAME, KIND, LABEL, SUBDOMAIN, URI, WELL_KNOWN,
};
use super::rules::{fraction, text, union};
use super::{Findings, Schema, int32, integer, list, map, object, one_of, string};
use crate::document::{Node, Value};
use crate::meta::{GATEWAY_GROUP, GATEWAY_X_GROUP};

pub(super) fn group() -> Schema {
    string().max(253).like(&GROUP)
}

pub(super) fn kind() -> Schema {
    string().size(1..=63).like(&KIND)
}

/// Returns the schema of the name of another object. Its form is not restricted, because it depends on the kind.
pub(super) fn object_name() -> Schema {
    string().size(1..=253)
}

pub(super) fn namespace() -> Schema {
    string().size(1..=63).like(&LABEL)
}

/// Returns the schema of the name of a listener, a port or a rule.
pub(super) fn section_name() -> Schema {
    string().size(1..=253).like(&SUBDOMAIN)
}

pub(super) fn port() -> Schema {
    integer(1..=65535)
}

/// Returns the schema of a hostname that may start with a wildcard label.
pub(super) fn hostname() -> Schema {
    string().size(1..=253).like(&HOSTNAME)
}

pub(super) fn precise_hostname() -> Schema {
    string().size(1..=253).like(&SUBDOMAIN)
}

pub(super) fn duration() -> Schema {
    string().like(&DURATION)
}

pub(super) fn header_name() -> Schema {
    string().size(1..=256).like(&HEADER_NAME)
}

pub(super) fn header_value() -> Schema {
    string().size(1..=4096).like(&HEADER_VALUE)
}

/// Returns the schema of a list of at most 16 headers with values.
pub(super) fn headers() -> Schema {
    list(
        object()
            .required("name", header_name())
            .required("value", header_value()),
    )
    .max(16)
    .keyed(&["name"])
}

/// Returns the schema of implementation-specific options.
pub(super) fn options() -> Schema {
    map(string().max(4096)).max(16)
}

pub(super) fn local_reference() -> Schema {
    object()
        .required("group", group())
        .required("kind", kind())
        .required("name", object_name())
}

pub(super) fn object_reference() -> Schema {
    local_reference().field("namespace", namespace())
}

pub(super) fn secret_reference() -> Schema {
    object()
        .field("group", group().default(json!("")))
        .field("kind", kind().default(json!("Secret")))
        .required("name", object_name())
        .field("namespace", namespace())
}

/// Returns the schema of a reference to a backend, without a weight.
pub(super) fn backend_reference() -> Schema {
    object()
        .field("group", group().default(json!("")))
        .field("kind", kind().default(json!("Service")))
        .required("name", object_name())
        .field("namespace", namespace())
        .field("port", port())
        .rule(port_of_service)
        .rule(port_of_x_backend)
}

fn port_of_service(node: &Node, findings: &mut Findings<'_>) {
    let is_service = text(node, "group") == Some("") && text(node, "kind") == Some("Service");
    if is_service && node.get("port").is_none() {
        findings.error_in(".port", node, "`port` is required when kind is Service");
    }
}

fn port_of_x_backend(node: &Node, findings: &mut Findings<'_>) {
    let is_backend =
        text(node, "group") == Some(GATEWAY_X_GROUP) && text(node, "kind") == Some("XBackend");
    if let Some(port) = node.get("port").filter(|_| is_backend) {
        findings.error_in(
            ".port",
            port,
            "`port` must not be set when kind is XBackend, which defines the port itself",
        );
    }
}

pub(super) fn parent_reference() -> Schema {
    object()
        .field("group", group().default(json!(GATEWAY_GROUP)))
        .field("kind", kind().default(json!("Gateway")))
        .field("namespace", namespace())
        .required("name", object_name())
        .field("sectionName", section_name())
        .field("port", port())
}

pub(super) fn parent_references() -> Schema {
    list(parent_reference()).max(32).rule(|node, findings| {
        distinct(
            node,
            findings,
            &["group", "kind", "namespace", "name"],
            &["sectionName", "port"],
        )
    })
}

/// Requires references to the same object to be distinct: they must set the same fields of `parts`, with different values. The fields `same`
/// identify the object.
pub(super) fn distinct(node: &Node, findings: &mut Findings<'_>, same: &[&str], parts: &[&str]) {
    let value = |item: &Node, field: &&str| item.get(field).map(|node| node.value.clone());
    let object = |item: &Node| {
        same.iter()
            .map(|field| value(item, field))
            .collect::<Vec<_>>()
    };
    let part = |item: &Node| {
        parts
            .iter()
            .map(|field| value(item, field))
            .collect::<Vec<_>>()
    };
    let items = node.items();
    for (index, item) in items.iter().enumerate() {
        // A missing name is reported separately.
        if text(item, "name").is_none() {
            continue;
        }
        let mut earlier = items[..index]
            .iter()
            .enumerate()
            .filter(|(_, other)| object(other) == object(item));
        let names = parts.join(" or ");
        let clash = earlier.find_map(|(other_index, other)| {
            let (ours, theirs) = (part(item), part(other));
            if ours == theirs {
                return Some(format!(
                    "duplicate reference: item {other_index} refers to the same object; {names} must be different"
                ));
            }
            let set = |values: &[Option<Value>]| {
                let set = parts
                    .iter()
                    .zip(values)
                    .filter(|(_, value)| value.is_some());
                set.map(|(name, _)| *name).collect::<Vec<_>>().join(" and ")
            };
            let (ours, theirs) = (set(&ours), set(&theirs));
            let both = format!("item {other_index} refers to the same object");
            if ours == theirs {
                None
            } else if ours.is_empty() || theirs.is_empty() {
                Some(format!("{both}; either both or neither must set {names}"))
            } else {
                Some(format!(
                    "{both}; both must set the same fields, but this item sets {ours} and item {other_index} sets {theirs}"
                ))
            }
        });
        if let Some(message) = clash {
            findings.error_in(&format!("[{index}]"), item, message);
        }
    }
}

/// Returns the schema of a label selector. The CRDs do not restrict the operator, so an invalid one is reported where the selector is used.
pub(super) fn label_selector() -> Schema {
    let expression = object()
        .required("key", string())
        .required("operator", string())
        .field("values", list(string()));
    object()
        .field("matchLabels", map(string()))
        .field("matchExpressions", list(expression))
}

/// Returns the schema of a selection of namespaces.
pub(super) fn namespaces(from: &'static [&'static str], default: &'static str) -> Schema {
    object()
        .field("from", one_of(from).default(json!(default)))
        .field("selector", label_selector())
        .default(json!({"from": default}))
}

/// Returns the schema of a fraction of requests.
pub(super) fn request_fraction() -> Schema {
    object()
        .required("numerator", int32(0))
        .field("denominator", int32(1).default(json!(100)))
        .rule(fraction)
}

pub(super) fn session_persistence() -> Schema {
    let cookie = object()
        .field("name", header_name())
        .field("path", string().max(1024).default(json!("/")))
        .field(
            "lifetimeType",
            one_of(&["Permanent", "Session"]).default(json!("Session")),
        );
    object()
        .field(
            "type",
            one_of(&["Cookie", "Header"]).default(json!("Cookie")),
        )
        .field("absoluteTimeout", duration())
        .field("cookie", cookie)
        .field("header", object().required("name", header_name()))
        .rule(union("type", &[("Cookie", "cookie"), ("Header", "header")]))
        .rule(timeout_of_permanent_cookie)
}

fn timeout_of_permanent_cookie(node: &Node, findings: &mut Findings<'_>) {
    let lifetime = node
        .get("cookie")
        .and_then(|cookie| text(cookie, "lifetimeType"));
    if lifetime == Some("Permanent") && node.get("absoluteTimeout").is_none() {
        findings.error_in(
            ".absoluteTimeout",
            node,
            "`absoluteTimeout` is required when lifetimeType of the cookie is Permanent",
        );
    }
}

/// Returns the schema of the validation of a backend's certificate.
pub(super) fn backend_validation() -> Schema {
    let alternative_name = object()
        .required("type", one_of(&["Hostname", "URI"]))
        .field("hostname", hostname())
        .field("uri", string().size(1..=253).like(&URI))
        .rule(union("type", &[("Hostname", "hostname"), ("URI", "uri")]));
    object()
        .field("caCertificateRefs", list(local_reference()).size(1..=8))
        .field(
            "wellKnownCACertificates",
            string().size(1..=253).like(&WELL_KNOWN),
        )
        .required("hostname", precise_hostname())
        .field("subjectAltNames", list(alternative_name).max(5))
        .rule(one_source_of_trust)
}

fn one_source_of_trust(node: &Node, findings: &mut Findings<'_>) {
    match (
        node.get("caCertificateRefs"),
        node.get("wellKnownCACertificates"),
    ) {
        (Some(_), Some(_)) => {
            findings.error(
                node,
                "`caCertificateRefs` and `wellKnownCACertificates` must not both be set",
            );
        }
        (None, None) => findings.error(
            node,
            "either `caCertificateRefs` or `wellKnownCACertificates` is required",
        ),
        _ => {}
    }
}

/// Returns the schema of external authorization of requests.
pub(super) fn external_auth() -> Schema {
    let allowed = || list(string()).max(64).set();
    let http = object()
        .field("path", string().max(1024).like(&super::patterns::PATH))
        .field("allowedHeaders", allowed())
        .field("allowedResponseHeaders", allowed());
    object()
        .required("protocol", one_of(&["HTTP", "GRPC"]))
        .required("backendRef", backend_reference())
        .field("grpc", object().field("allowedHeaders", allowed()))
        .field("http", http)
        .field("forwardBody", object().field("maxSize", int32(0)))
        .rule(union("protocol", &[("GRPC", "grpc"), ("HTTP", "http")]))
}
