//! Schemas of the filters of HTTPRoute and GRPCRoute.

use serde_json::json;

use super::patterns::ORIGIN;
use super::rules::{Union, has_filter, items, text, union, wildcard_alone};
use super::shared::{
    backend_reference, external_auth, header_name, headers, local_reference, port,
    precise_hostname, request_fraction,
};
use super::{Findings, Schema, boolean, int32, integer, list, number_of, object, one_of, string};
use crate::document::{Node, Value};

pub(super) const METHODS: &[&str] = &[
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

const HTTP: Union = &[
    ("RequestHeaderModifier", "requestHeaderModifier"),
    ("ResponseHeaderModifier", "responseHeaderModifier"),
    ("RequestMirror", "requestMirror"),
    ("RequestRedirect", "requestRedirect"),
    ("URLRewrite", "urlRewrite"),
    ("ExtensionRef", "extensionRef"),
    ("CORS", "cors"),
    ("ExternalAuth", "externalAuth"),
];

const GRPC: Union = &[
    ("ResponseHeaderModifier", "responseHeaderModifier"),
    ("RequestHeaderModifier", "requestHeaderModifier"),
    ("RequestMirror", "requestMirror"),
    ("ExtensionRef", "extensionRef"),
];

/// Returns the schema of the filters of an HTTPRoute's rule or backendRef.
pub(super) fn http() -> Schema {
    let filter = common(&[
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "RequestRedirect",
        "URLRewrite",
        "ExtensionRef",
        "CORS",
        "ExternalAuth",
    ])
    .field("requestRedirect", redirect())
    .field(
        "urlRewrite",
        object()
            .field("hostname", precise_hostname())
            .field("path", path_modifier()),
    )
    .field("cors", cors())
    .field("externalAuth", external_auth())
    .rule(union("type", HTTP));
    list(filter).max(16).rule(redirect_or_rewrite).rule(once(&[
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestRedirect",
        "URLRewrite",
        "CORS",
    ]))
}

/// Returns the schema of the filters of a GRPCRoute's rule or backendRef.
pub(super) fn grpc() -> Schema {
    let filter = common(&[
        "ResponseHeaderModifier",
        "RequestHeaderModifier",
        "RequestMirror",
        "ExtensionRef",
    ])
    .rule(union("type", GRPC));
    list(filter)
        .max(16)
        .rule(once(&["RequestHeaderModifier", "ResponseHeaderModifier"]))
}

fn common(types: &'static [&'static str]) -> Schema {
    object()
        .required("type", one_of(types))
        .field("requestHeaderModifier", header_modifier())
        .field("responseHeaderModifier", header_modifier())
        .field("requestMirror", mirror())
        .field("extensionRef", local_reference())
}

fn header_modifier() -> Schema {
    object()
        .field("set", headers())
        .field("add", headers())
        .field("remove", list(string()).max(16).set())
}

fn mirror() -> Schema {
    object()
        .required("backendRef", backend_reference())
        .field("percent", integer(0..=100))
        .field("fraction", request_fraction())
        .rule(percent_or_fraction)
}

fn percent_or_fraction(node: &Node, findings: &mut Findings<'_>) {
    if let (Some(_), Some(fraction)) = (node.get("percent"), node.get("fraction")) {
        findings.error_in(
            ".fraction",
            fraction,
            "`percent` and `fraction` must not both be set",
        );
    }
}

fn redirect() -> Schema {
    object()
        .field("scheme", one_of(&["http", "https"]))
        .field("hostname", precise_hostname())
        .field("path", path_modifier())
        .field("port", port())
        .field(
            "statusCode",
            number_of(&[301, 302, 303, 307, 308]).default(json!(302)),
        )
}

fn path_modifier() -> Schema {
    object()
        .required("type", one_of(&["ReplaceFullPath", "ReplacePrefixMatch"]))
        .field("replaceFullPath", string().max(1024))
        .field("replacePrefixMatch", string().max(1024))
        .rule(union(
            "type",
            &[
                ("ReplaceFullPath", "replaceFullPath"),
                ("ReplacePrefixMatch", "replacePrefixMatch"),
            ],
        ))
}

fn cors() -> Schema {
    let method = one_of(&[
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*",
    ]);
    object()
        .field(
            "allowOrigins",
            list(string().size(1..=253).like(&ORIGIN))
                .max(64)
                .set()
                .rule(wildcard_alone),
        )
        .field("allowCredentials", boolean())
        .field(
            "allowMethods",
            list(method).max(9).set().rule(wildcard_alone),
        )
        .field(
            "allowHeaders",
            list(header_name()).max(64).set().rule(wildcard_alone),
        )
        .field("exposeHeaders", list(header_name()).max(64).set())
        .field("maxAge", int32(1).default(json!(5)))
}

fn redirect_or_rewrite(node: &Node, findings: &mut Findings<'_>) {
    if has_filter(node, "RequestRedirect") && has_filter(node, "URLRewrite") {
        findings.error(
            node,
            "RequestRedirect and URLRewrite filters must not be used together",
        );
    }
}

/// Rejects repeated filters of these types.
fn once(types: &'static [&'static str]) -> impl Fn(&Node, &mut Findings<'_>) {
    move |node, findings| {
        for kind in types {
            let mut same = node
                .items()
                .iter()
                .enumerate()
                .filter(|(_, filter)| text(filter, "type") == Some(kind));
            if let Some((index, filter)) = same.nth(1) {
                findings.error_in(
                    &format!("[{index}]"),
                    filter,
                    format!("duplicate filter: {kind} must not be repeated"),
                );
            }
        }
    }
}

/// Replacing a prefix requires exactly one match, with a path of type PathPrefix.
///
/// Like the CRD, this validates the filters of backendRefs only if exactly one of them replaces a prefix.
pub(super) fn prefix_to_replace(node: &Node, findings: &mut Findings<'_>) {
    let matches = node.get("matches").map(|matches| &matches.value);
    match matches {
        Some(Value::List(matches)) if matches.len() == 1 => {
            let kind = matches[0].get("path").and_then(|path| text(path, "type"));
            // An unsupported type is reported separately.
            if !matches!(kind, Some("Exact" | "RegularExpression")) {
                return;
            }
        }
        Some(Value::List(_)) => {}
        _ => return,
    }
    for field in ["requestRedirect", "urlRewrite"] {
        let mut found: Vec<_> = replaced_prefix(node, field).into_iter().collect();
        let mut backends = items(node, "backendRefs").filter_map(|(index, backend)| {
            let (part, path) = replaced_prefix(backend, field)?;
            Some((format!(".backendRefs[{index}]{part}"), path))
        });
        found.extend(backends.next().filter(|_| backends.next().is_none()));
        for (part, path) in found {
            findings.error_in(
                &part,
                path,
                "ReplacePrefixMatch requires the rule to have exactly one match, with a path of type PathPrefix",
            );
        }
    }
}

/// Returns the filter that replaces a prefix, if the rule or backendRef has exactly one.
fn replaced_prefix<'n>(holder: &'n Node, field: &str) -> Option<(String, &'n Node)> {
    let mut found = items(holder, "filters").filter_map(|(index, filter)| {
        let path = filter.get(field)?.get("path")?;
        let replaces = text(path, "type") == Some("ReplacePrefixMatch")
            && path.get("replacePrefixMatch").is_some();
        replaces.then(|| (format!(".filters[{index}].{field}.path"), path))
    });
    found.next().filter(|_| found.next().is_none())
}

/// Rejects backendRefs in a rule that redirects.
pub(super) fn redirect_without_backends(node: &Node, findings: &mut Findings<'_>) {
    if items(node, "backendRefs").next().is_none() {
        return;
    }
    for (index, filter) in items(node, "filters") {
        if let Some(redirect) = filter.get("requestRedirect") {
            findings.error_in(
                &format!(".filters[{index}].requestRedirect"),
                redirect,
                "RequestRedirect must not be used together with `backendRefs`",
            );
        }
    }
}
