//! Schemas of the Gateway API's route kinds.

use serde_json::{Value as Json, json};

use super::filters::{self, METHODS, prefix_to_replace, redirect_without_backends};
use super::patterns::{GRPC_METHOD, GRPC_SERVICE, PATH, is_ip, milliseconds};
use super::rules::{text, unique_names};
use super::shared::{
    backend_reference, duration, header_name, header_value, hostname, parent_references,
    section_name, session_persistence,
};
use super::{Findings, Schema, integer, list, object, one_of, string};
use crate::document::Node;

/// Maximum number of matches in all rules of a route.
const MAX_MATCHES: usize = 128;

/// Returns the schema of the spec of an HTTPRoute.
pub(super) fn http() -> Schema {
    let rule = object()
        .field("name", section_name())
        .field("matches", list(http_match()).max(64).default(any_path()))
        .field("filters", filters::http())
        .field(
            "backendRefs",
            list(weighted().field("filters", filters::http())).max(16),
        )
        .field("timeouts", timeouts())
        .field("retry", retry())
        .field("sessionPersistence", session_persistence())
        .rule(redirect_without_backends)
        .rule(prefix_to_replace);
    let rules = list(rule)
        .size(1..=16)
        .default(json!([{"matches": any_path()}]))
        .rule(unique_names)
        .rule(total_matches);
    route()
        .field("hostnames", list(hostname()).max(16))
        .field("rules", rules)
}

/// Returns the schema of the spec of a GRPCRoute.
pub(super) fn grpc() -> Schema {
    let headers = list(value_match(string().size(1..=4096)))
        .max(16)
        .keyed(&["name"]);
    let matches = object()
        .field("method", grpc_method())
        .field("headers", headers);
    let rule = object()
        .field("name", section_name())
        .field("matches", list(matches).max(64))
        .field("filters", filters::grpc())
        .field(
            "backendRefs",
            list(weighted().field("filters", filters::grpc())).max(16),
        )
        .field("sessionPersistence", session_persistence());
    let rules = list(rule).max(16).rule(unique_names).rule(total_matches);
    route()
        .field("hostnames", list(hostname()).max(16))
        .field("rules", rules)
}

/// Returns the schema of the spec of a TLSRoute. In v1alpha2, hostnames are optional and up to 16 rules are allowed.
pub(super) fn tls(version: &str) -> Schema {
    let hostnames = list(hostname());
    match version {
        "v1alpha2" => l4(version).field("hostnames", hostnames.max(1024)),
        _ => l4("v1").required("hostnames", hostnames.size(1..=1024).rule(no_addresses)),
    }
}

/// Returns the schema of the spec of a TCPRoute or UDPRoute. In v1alpha2, up to 16 rules are allowed.
pub(super) fn l4(version: &str) -> Schema {
    let rule = object()
        .field("name", section_name())
        .required("backendRefs", list(weighted()).size(1..=16));
    let rules = if version == "v1alpha2" {
        list(rule).size(1..=16).rule(unique_names)
    } else {
        list(rule).size(1..=1)
    };
    route().required("rules", rules)
}

fn route() -> Schema {
    object()
        .field("parentRefs", parent_references())
        .field("useDefaultGateways", one_of(&["All", "None"]))
}

fn weighted() -> Schema {
    backend_reference().field("weight", integer(0..=1_000_000).default(json!(1)))
}

fn any_path() -> Json {
    json!([{"path": {"type": "PathPrefix", "value": "/"}}])
}

fn http_match() -> Schema {
    let path = object()
        .field(
            "type",
            one_of(&["Exact", "PathPrefix", "RegularExpression"]).default(json!("PathPrefix")),
        )
        .field("value", string().max(1024).default(json!("/")))
        .default(json!({"type": "PathPrefix", "value": "/"}))
        .rule(literal_path);
    let parameters = list(value_match(string().size(1..=1024)))
        .max(16)
        .keyed(&["name"]);
    object()
        .field("path", path)
        .field(
            "headers",
            list(value_match(header_value())).max(16).keyed(&["name"]),
        )
        .field("queryParams", parameters)
        .field("method", one_of(METHODS))
}

fn value_match(value: Schema) -> Schema {
    object()
        .field(
            "type",
            one_of(&["Exact", "RegularExpression"]).default(json!("Exact")),
        )
        .required("name", header_name())
        .required("value", value)
}

/// A path of type Exact or PathPrefix must be absolute and normalized.
fn literal_path(node: &Node, findings: &mut Findings<'_>) {
    let (Some(kind @ ("Exact" | "PathPrefix")), Some(node)) =
        (text(node, "type"), node.get("value"))
    else {
        return;
    };
    let Some(value) = node.as_str() else { return };
    let inside = ["//", "/./", "/../", "%2f", "%2F", "#"];
    let at_end = ["/..", "/."];
    let message = if !value.starts_with('/') {
        "must start with `/`".to_owned()
    } else if let Some(part) = inside.iter().find(|part| value.contains(*part)) {
        format!("must not contain `{part}`")
    } else if let Some(part) = at_end.iter().find(|part| value.ends_with(*part)) {
        format!("must not end with `{part}`")
    } else if !PATH.matches(value) {
        format!("must be {}", PATH.description)
    } else {
        return;
    };
    let value = super::validate::shorten(value);
    findings.error_in(
        ".value",
        node,
        format!("invalid value `{value}`: {message} when type is {kind}"),
    );
}

fn grpc_method() -> Schema {
    object()
        .field(
            "type",
            one_of(&["Exact", "RegularExpression"]).default(json!("Exact")),
        )
        .field("service", string().max(1024))
        .field("method", string().max(1024))
        .rule(service_or_method)
        .rule(exact_names)
}

fn service_or_method(node: &Node, findings: &mut Findings<'_>) {
    if node.get("service").is_none() && node.get("method").is_none() {
        findings.error(node, "at least one of `service` and `method` is required");
    }
}

fn exact_names(node: &Node, findings: &mut Findings<'_>) {
    if text(node, "type") != Some("Exact") {
        return;
    }
    for (field, pattern) in [("service", &GRPC_SERVICE), ("method", &GRPC_METHOD)] {
        let Some(node) = node.get(field) else {
            continue;
        };
        if let Some(value) = node.as_str().filter(|value| !pattern.matches(value)) {
            findings.error_in(&format!(".{field}"), node, pattern.message(value));
        }
    }
}

fn total_matches(node: &Node, findings: &mut Findings<'_>) {
    let matches = |rule: &Node| {
        rule.get("matches")
            .map_or(0, |matches| matches.items().len())
    };
    let total: usize = node.items().iter().map(matches).sum();
    if total > MAX_MATCHES {
        findings.error(
            node,
            format!("must have at most {MAX_MATCHES} matches in all rules, found {total}"),
        );
    }
}

fn timeouts() -> Schema {
    object()
        .field("request", duration())
        .field("backendRequest", duration())
        .rule(attempt_within_request)
}

/// The timeout of an attempt must not exceed that of the request. 0 disables a timeout.
fn attempt_within_request(node: &Node, findings: &mut Findings<'_>) {
    let time = |field| text(node, field).and_then(milliseconds);
    let (Some(request), Some(backend)) = (time("request"), time("backendRequest")) else {
        return;
    };
    if request != 0 && backend > request {
        let node = node.get("backendRequest").unwrap_or(node);
        findings.error_in(
            ".backendRequest",
            node,
            "`backendRequest` must not be longer than `request`",
        );
    }
}

fn retry() -> Schema {
    object()
        .field("codes", list(integer(400..=599)).set())
        .field("attempts", integer(0..=i64::MAX).default(json!(1)))
        .field("backoff", duration())
}

fn no_addresses(node: &Node, findings: &mut Findings<'_>) {
    for (index, name) in node.items().iter().enumerate() {
        if let Some(address) = name.as_str().filter(|name| is_ip(name)) {
            findings.error_in(
                &format!("[{index}]"),
                name,
                format!("invalid value `{address}`: must be a hostname, not an IP address"),
            );
        }
    }
}
