//! Filters of MeshHTTPRoute and MeshGatewayHTTPRoute.

use serde_json::json;

use super::super::shared::port;
use super::super::text::BASE64;
use super::super::{
    Schema, boolean, int_or_string, integer, list, number_of, object, one_of, string,
};
use super::target::backend_ref;

/// The filters of a rule.
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
        .required("type", one_of(types))
        .field("requestHeaderModifier", header_modifier())
        .field("responseHeaderModifier", header_modifier())
        .field("requestMirror", mirror())
        .field("requestRedirect", redirect())
        .field("urlRewrite", rewrite())
        .field("directResponse", direct_response());
    list(filter)
}

fn header_modifier() -> Schema {
    let header = || {
        object()
            .required("name", string())
            .required("value", string())
    };
    object()
        .field("set", list(header()).max(16))
        .field("add", list(header()).max(16))
        .field("remove", list(string()).max(16))
}

fn mirror() -> Schema {
    object()
        .field("percentage", int_or_string())
        .required("backendRef", backend_ref())
}

fn redirect() -> Schema {
    object()
        .field("scheme", one_of(&["http", "https"]))
        .field("hostname", string())
        .field("path", path_modifier())
        .field("port", port())
        .field(
            "statusCode",
            number_of(&[301, 302, 303, 307, 308]).default(json!(302)),
        )
}

fn rewrite() -> Schema {
    object()
        .field("hostname", string())
        .field("path", path_modifier())
        .field("hostToBackendHostname", boolean())
}

fn path_modifier() -> Schema {
    object()
        .required("type", one_of(&["ReplaceFullPath", "ReplacePrefixMatch"]))
        .field("replaceFullPath", string())
        .field("replacePrefixMatch", string())
}

fn direct_response() -> Schema {
    let body = object()
        .field("inlineBytes", string().like(&BASE64))
        .field("inlineString", string())
        .field("filename", string())
        .field("environmentVariable", string());
    object()
        .required("status", integer(200..=599))
        .field("body", body)
}
