//! MeshService, MeshExternalService and MeshMultiZoneService.

use serde_json::json;

use super::super::shared::label_selector;
use super::super::text::PORT_NAME;
use super::super::{
    Report, Schema, any, boolean, int_or_string, integer, list, map, object, one_of, open_object,
    string,
};
use super::tags::selector;
use super::text::EXTERNAL_ADDRESS;
use crate::document::{Node, Value};

/// The spec of a MeshService.
pub(super) fn mesh_service() -> Schema {
    let selector = object()
        .field("dataplaneTags", selector())
        .field(
            "dataplaneRef",
            object().required("name", string().size(1..=usize::MAX)),
        )
        .field("dataplaneLabels", label_selector())
        .rule(one_selector);
    let port = service_port().field("targetPort", int_or_string().rule(port_or_name));
    object()
        .field("selector", selector)
        .field("ports", list(port).keyed(&["port"]))
        .field("identities", any())
        .field("state", string())
}

fn one_selector(node: &Node, report: &mut Report<'_>) {
    let fields = ["dataplaneTags", "dataplaneRef", "dataplaneLabels"];
    if fields
        .iter()
        .filter(|field| node.get(field).is_some())
        .count()
        > 1
    {
        let says = "must specify only one of: dataplaneTags, dataplaneRef, or dataplaneLabels";
        report.error(node, says);
    }
}

fn port_or_name(node: &Node, report: &mut Report<'_>) {
    let fits = match &node.value {
        Value::Int(number) => (1..=65535).contains(number),
        Value::String(name) => PORT_NAME.matches(name),
        _ => true,
    };
    if !fits {
        report.error(
            node,
            "must be a port between 1 and 65535, or the name of an inbound",
        );
    }
}

/// The spec of a MeshExternalService.
pub(super) fn external() -> Schema {
    let matched = object()
        .field("type", one_of(&["HostnameGenerator"]))
        .required("port", port())
        .field(
            "protocol",
            one_of(&["tcp", "grpc", "http", "http2"]).default(json!("tcp")),
        );
    let endpoint = object()
        .required("address", string().like(&EXTERNAL_ADDRESS))
        .required("port", port());
    object()
        .required("match", matched)
        .field("extension", any())
        .field("endpoints", list(endpoint))
        .field("tls", open_object().field("enabled", boolean()))
}

/// The spec of a MeshMultiZoneService.
pub(super) fn multi_zone() -> Schema {
    let labels = map(string()).size(1..=usize::MAX).said("cannot be empty");
    let services = object().required("matchLabels", labels);
    let ports = list(service_port())
        .size(1..=usize::MAX)
        .said("cannot be empty");
    object()
        .required("selector", object().required("meshService", services))
        .required("ports", ports)
}

fn port() -> Schema {
    integer(1..=65535).said("port must be a valid (1-65535)")
}

fn service_port() -> Schema {
    object()
        .field(
            "name",
            string().size(1..=usize::MAX).said("must not be empty"),
        )
        .required("port", port())
        .field("appProtocol", string().default(json!("tcp")))
}
