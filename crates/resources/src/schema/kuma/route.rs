//! MeshHTTPRoute, MeshTCPRoute and MeshGatewayHTTPRoute.

use serde_json::json;

use super::super::filters::METHODS;
use super::super::{Schema, list, object, one_of, string};
use super::filters::filters;
use super::target::{backend_ref, target_ref};

/// The spec of a MeshHTTPRoute.
pub(super) fn http() -> Schema {
    let to = object()
        .field("targetRef", target_ref())
        .field("hostnames", list(string()))
        .field("rules", list(http_rule()));
    object()
        .field("targetRef", target_ref())
        .field("to", list(to))
}

/// The spec of a MeshGatewayHTTPRoute.
pub(super) fn gateway_http() -> Schema {
    object()
        .field("targetRef", target_ref())
        .field("hostnames", list(string()))
        .field("rules", list(http_rule()))
}

/// The spec of a MeshTCPRoute.
pub(super) fn tcp() -> Schema {
    let rule = object().field(
        "default",
        object().field("backendRefs", list(backend_ref())),
    );
    let to = object()
        .field("targetRef", target_ref())
        .field("rules", list(rule));
    object()
        .field("targetRef", target_ref())
        .field("to", list(to))
}

fn http_rule() -> Schema {
    let conf = object()
        .field("filters", filters())
        .field("backendRefs", list(backend_ref()));
    object()
        .required("matches", list(http_match()))
        .required("default", conf)
}

fn http_match() -> Schema {
    let path = object()
        .required(
            "type",
            one_of(&["Exact", "PathPrefix", "RegularExpression"]),
        )
        .required("value", string());
    object()
        .field("path", path)
        .field("method", one_of(METHODS))
        .field("headers", list(header()))
        .field("queryParams", list(query_parameter()))
}

fn header() -> Schema {
    let types = &["Present", "Absent", "Prefix", "RegularExpression", "Exact"];
    object()
        .field("type", one_of(types).default(json!("Exact")))
        .required("name", string())
        .field("value", string())
}

fn query_parameter() -> Schema {
    object()
        .required("type", one_of(&["Exact", "RegularExpression"]))
        .required("name", string())
        .required("value", string())
}
