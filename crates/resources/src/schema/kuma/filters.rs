//! Schemas of the filters of MeshHTTPRoute and MeshGatewayHTTPRoute.

use serde_json::json;

use super::super::patterns::BASE64;
use super::super::rules::{has_filter, items, text, union};
use super::super::shared::{header_name, port};
use super::super::{
    Findings, Schema, boolean, int_or_string, integer, list, number_of, object, one_of, string,
};
use super::patterns::{HEADER_VALUE, NEW_PATH, NEW_PREFIX, PRECISE_HOSTNAME};
use super::tags::is_map;
use super::target::backend_ref;
use crate::document::{Node, Value};
use crate::kuma::fraction;
use crate::kuma::spelling::{FILTERS, PATH_MODIFIERS};

/// Sources of the body of a direct response.
const BODIES: &[&str] = &[
    "inlineBytes",
    "inlineString",
    "filename",
    "environmentVariable",
];

/// Returns the schema of the filters of a rule.
pub(super) fn filters() -> Schema {
    let types = &[
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "RequestRedirect",
        "URLRewrite",
        "DirectResponse",
    ];
    let filter = object()
        .field("type", one_of(types))
        .field("requestHeaderModifier", header_modifier())
        .field("responseHeaderModifier", header_modifier())
        .field("requestMirror", mirror())
        .field("requestRedirect", redirect())
        .field("urlRewrite", rewrite())
        .field("directResponse", direct_response())
        .misplaced(
            "requestHeader",
            "unknown field; use `requestHeaderModifier`",
        )
        .misplaced(
            "responseHeader",
            "unknown field; use `responseHeaderModifier`",
        )
        .rule(type_required)
        .rule(settings_of_type);
    list(filter).rule(redirect_or_rewrite).rule(single_response)
}

/// The type is required. If exactly one field is set, it has been inferred before validation.
fn type_required(node: &Node, findings: &mut Findings<'_>) {
    if node.get("type").is_none() {
        findings.error_in(".type", node, "must be defined");
    }
}

/// The field of the filter's type must be set, and no other.
fn settings_of_type(node: &Node, findings: &mut Findings<'_>) {
    let kind = text(node, "type").unwrap_or_default();
    if !FILTERS.iter().any(|(known, _)| *known == kind) {
        return;
    }
    for &(known, field) in FILTERS {
        match node.get(field) {
            None if known == kind => {
                findings.error_in(&format!(".{field}"), node, "must be defined");
            }
            Some(set) if known != kind => {
                let message = format!("must not be set with type {kind}");
                findings.error_in(&format!(".{field}"), set, message);
            }
            _ => {}
        }
    }
}

/// MADR 011: "it's not a valid configuration to have […] both `requestRedirect` and `urlRewrite`."
fn redirect_or_rewrite(node: &Node, findings: &mut Findings<'_>) {
    if has_filter(node, "RequestRedirect") && has_filter(node, "URLRewrite") {
        findings.error(
            node,
            "it's not a valid configuration to have both `requestRedirect` and `urlRewrite`",
        );
    }
}

/// Returns whether the filter responds to a request instead of forwarding it.
pub(super) fn is_response(filter: &Node) -> bool {
    matches!(
        text(filter, "type"),
        Some("RequestRedirect" | "DirectResponse")
    )
}

/// At most one filter may respond to a request.
fn single_response(node: &Node, findings: &mut Findings<'_>) {
    let mut all = node
        .items()
        .iter()
        .enumerate()
        .filter(|(_, filter)| is_response(filter));
    if let Some((index, filter)) = all.nth(1) {
        let message = "only one `requestRedirect` or `directResponse` is allowed, and an earlier filter is one";
        findings.error_in(&format!("[{index}]"), filter, message);
    }
}

/// MADR 011: "it's not a valid configuration to have a `requestRedirect` or `directResponse` and `backendRefs` specified".
pub(super) fn response_without_backends(conf: &Node, findings: &mut Findings<'_>) {
    let backends = conf
        .get("backendRefs")
        .filter(|backends| !backends.items().is_empty());
    let (Some(backends), Some(filters)) = (backends, conf.get("filters")) else {
        return;
    };
    for (kind, field) in [
        ("RequestRedirect", "requestRedirect"),
        ("DirectResponse", "directResponse"),
    ] {
        if has_filter(filters, kind) {
            let message = format!(
                "it's not a valid configuration to have a `{field}` and `backendRefs` specified"
            );
            findings.error_in(".backendRefs", backends, message);
        }
    }
}

/// Replacing a prefix requires all matches to match a prefix.
pub(super) fn prefix_to_replace(rule: &Node, findings: &mut Findings<'_>) {
    // Invalid matches and path types are reported separately.
    let is_other = |matched: &Node| match matched.get("path") {
        None => is_map(matched),
        Some(path) => matches!(text(path, "type"), Some("Exact" | "RegularExpression")),
    };
    let others = items(rule, "matches").any(|(_, matched)| is_other(matched));
    let Some(conf) = rule.get("default").filter(|_| others) else {
        return;
    };
    for (index, filter) in items(conf, "filters") {
        for field in ["requestRedirect", "urlRewrite"] {
            let path = filter.get(field).and_then(|body| body.get("path"));
            if let Some(replaced) = path.and_then(|path| path.get("replacePrefixMatch")) {
                let part = format!(".default.filters[{index}].{field}.path.replacePrefixMatch");
                findings.error_in(
                    &part,
                    replaced,
                    "can only appear if all matches match a path prefix",
                );
            }
        }
    }
}

fn header_modifier() -> Schema {
    let header = || {
        object()
            .required("name", header_name())
            .required("value", string().like(&HEADER_VALUE))
    };
    object()
        .field("set", list(header()).max(16))
        .field("add", list(header()).max(16))
        .field("remove", list(header_name()).max(16))
        .rule(non_empty_modifier)
        .rule(unique_headers)
}

fn non_empty_modifier(node: &Node, findings: &mut Findings<'_>) {
    if ["set", "add", "remove"]
        .iter()
        .all(|field| node.get(field).is_none_or(is_empty))
    {
        findings.error(node, "must have at least one defined: set, add, remove");
    }
}

fn is_empty(list: &Node) -> bool {
    matches!(&list.value, Value::List(items) if items.is_empty())
}

/// Header names must be unique. They are compared without regard to case, as in HTTP.
fn unique_headers(node: &Node, findings: &mut Findings<'_>) {
    let mut seen = std::collections::HashSet::new();
    for field in ["set", "add", "remove"] {
        for (index, item) in items(node, field) {
            let name = item.as_str().or_else(|| text(item, "name"));
            if name.is_some_and(|name| !seen.insert(name.to_ascii_lowercase())) {
                findings.error_in(
                    &format!(".{field}[{index}].name"),
                    item,
                    "duplicate header name",
                );
            }
        }
    }
}

fn mirror() -> Schema {
    object()
        .field("percentage", int_or_string().rule(percentage))
        .required("backendRef", backend_ref().message("must be defined"))
}

fn percentage(node: &Node, findings: &mut Findings<'_>) {
    let (text, number) = match &node.value {
        Value::Int(number) => (number.to_string(), true),
        Value::String(text) => (text.clone(), text.parse::<f64>().is_ok()),
        _ => return,
    };
    if fraction(&text).is_some() {
        return;
    }
    let message = match number {
        true => "must be in inclusive range [0.0, 100.0]",
        false => "string must be a valid number",
    };
    findings.error(node, message);
}

fn redirect() -> Schema {
    object()
        .field("scheme", one_of(&["http", "https"]))
        .field("hostname", string().like(&PRECISE_HOSTNAME))
        .field("path", path_modifier())
        .field("port", port())
        .field(
            "statusCode",
            number_of(&[301, 302, 303, 307, 308]).default(json!(302)),
        )
}

fn rewrite() -> Schema {
    object()
        .field("hostname", string().like(&PRECISE_HOSTNAME))
        .field("path", path_modifier())
        .field("hostToBackendHostname", boolean())
        .rule(single_hostname)
}

fn single_hostname(node: &Node, findings: &mut Findings<'_>) {
    if let (Some(set), Some(_)) = (node.get("hostToBackendHostname"), node.get("hostname"))
        && set.value == Value::Bool(true)
    {
        findings.error_in(
            ".hostToBackendHostname",
            set,
            "cannot be set together with hostname",
        );
    }
}

fn path_modifier() -> Schema {
    object()
        .field("type", one_of(&["ReplaceFullPath", "ReplacePrefixMatch"]))
        .field("replaceFullPath", string().like(&NEW_PATH))
        .field("replacePrefixMatch", string().like(&NEW_PREFIX))
        .rule(type_required)
        .rule(union("type", PATH_MODIFIERS))
}

fn direct_response() -> Schema {
    let body = object()
        .field("inlineBytes", string().like(&BASE64))
        .field("inlineString", string())
        .field("filename", string().size(1..=usize::MAX))
        .field("environmentVariable", string().size(1..=usize::MAX))
        .rule(exactly_one("body", BODIES));
    object()
        .required(
            "status",
            integer(200..=599).message("must be in inclusive range [200, 599]"),
        )
        .field("body", body)
        .rule(status_without_content)
}

/// Responses with some status codes have no content (RFC 9110 §15).
fn status_without_content(node: &Node, findings: &mut Findings<'_>) {
    let status = node.get("status").and_then(Node::as_int);
    if let (Some(status @ (204 | 205 | 304)), Some(body)) = (status, node.get("body")) {
        let message = format!("must not be set when status is {status}");
        findings.error_in(".body", body, message);
    }
}

/// Requires exactly one of the fields to be set.
pub(super) fn exactly_one(
    entity: &'static str,
    fields: &'static [&'static str],
) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        if fields
            .iter()
            .filter(|field| node.get(field).is_some())
            .count()
            != 1
        {
            let message = format!(
                "{entity} must have exactly one defined: {}",
                fields.join(", ")
            );
            findings.error(node, message);
        }
    }
}
