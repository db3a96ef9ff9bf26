//! Schemas of MeshService, MeshExternalService and MeshMultiZoneService.

use serde_json::json;

use super::super::patterns::{BASE64, PORT_NAME};
use super::super::shared::label_selector;
use super::super::{
    Findings, Schema, any, boolean, int_or_string, integer, list, map, object, one_of, string,
};
use super::filters::exactly_one;
use super::patterns::{
    APP_PROTOCOL, EXTERNAL_ADDRESS, EXTERNAL_PROTOCOL, HIGHEST_TLS, LOWEST_TLS, MATCH_TYPE,
    PRECISE_HOSTNAME, VERIFICATION,
};
use super::tags::selector;
use crate::document::{Node, Value};

/// Sources of a certificate or key: those without a `type`, then those of the newer form with a `type`.
const SOURCES: &[&str] = &[
    "secret",
    "inline",
    "inlineString",
    "secretRef",
    "insecureInline",
    "file",
    "envVar",
];

/// Message for endpoints that would be used only if others fail.
const SINGLE_PRIORITY: &str =
    "a priority above 0 is not supported: all endpoints have the same priority";

/// Returns the schema of the spec of a MeshService.
pub(super) fn mesh_service() -> Schema {
    let selector = object()
        .field("dataplaneTags", selector())
        .field(
            "dataplaneRef",
            object().required("name", string().size(1..=usize::MAX)),
        )
        .field("dataplaneLabels", label_selector())
        .rule(single_selector);
    let port = service_port(string()).field("targetPort", int_or_string().rule(port_or_name));
    object()
        .field("selector", selector)
        .field("ports", list(port).keyed(&["port"]))
        .field("identities", any())
        .field("state", string())
}

fn single_selector(node: &Node, findings: &mut Findings<'_>) {
    let fields = ["dataplaneTags", "dataplaneRef", "dataplaneLabels"];
    if fields
        .iter()
        .filter(|field| node.get(field).is_some())
        .count()
        > 1
    {
        let message = "must specify only one of: dataplaneTags, dataplaneRef, or dataplaneLabels";
        findings.error(node, message);
    }
}

fn port_or_name(node: &Node, findings: &mut Findings<'_>) {
    let is_valid = match &node.value {
        Value::Int(number) => (1..=65535).contains(number),
        Value::String(name) => PORT_NAME.matches(name),
        _ => true,
    };
    if !is_valid {
        findings.error(
            node,
            "must be a port number between 1 and 65535 or the name of an inbound",
        );
    }
}

/// Returns the schema of the spec of a MeshExternalService.
pub(super) fn external() -> Schema {
    let matched = object()
        .field("type", string().like(&MATCH_TYPE))
        .required("port", port())
        .field(
            "protocol",
            string().like(&EXTERNAL_PROTOCOL).default(json!("tcp")),
        );
    let endpoint = object()
        .required("address", string().like(&EXTERNAL_ADDRESS))
        .required("port", port())
        .field("priority", integer(0..=0).message(SINGLE_PRIORITY));
    let extension = object()
        .required(
            "type",
            string().size(1..=usize::MAX).message("must not be empty"),
        )
        .field("config", any());
    object()
        .required("match", matched)
        .field("extension", extension)
        .field("endpoints", list(endpoint))
        .field("tls", tls())
}

/// Returns the schema of TLS configuration of connections to a MeshExternalService. TLS 1.2 and 1.3 are always enabled and certificates are always verified, so
/// other settings are rejected.
fn tls() -> Schema {
    let version = object()
        .field("min", string().like(&LOWEST_TLS))
        .field("max", string().like(&HIGHEST_TLS));
    let name = object()
        .field("type", one_of(&["Exact", "Prefix"]))
        .required("value", string().size(1..=usize::MAX));
    let source = || {
        object()
            .field("secret", string().size(1..=usize::MAX))
            .field("inline", string().like(&BASE64))
            .field("inlineString", string())
            .field("type", string())
            .field(
                "secretRef",
                object()
                    .field("kind", one_of(&["Secret"]))
                    .required("name", string().size(1..=usize::MAX)),
            )
            .field("insecureInline", object().required("value", string()))
            .field(
                "file",
                object().required("path", string().size(1..=usize::MAX)),
            )
            .field(
                "envVar",
                object().required("name", string().size(1..=usize::MAX)),
            )
            .rule(exactly_one("data source", SOURCES))
    };
    let verification = object()
        .field("mode", string().like(&VERIFICATION))
        .field("serverName", string().like(&PRECISE_HOSTNAME))
        .field("subjectAltNames", list(name))
        .field("caCert", source())
        .field("clientCert", source())
        .field("clientKey", source())
        .rule(certificate_and_key);
    object()
        .field("enabled", boolean())
        .field("allowRenegotiation", boolean())
        .field("version", version)
        .field("verification", verification)
}

fn certificate_and_key(node: &Node, findings: &mut Findings<'_>) {
    for (field, other) in [("clientKey", "clientCert"), ("clientCert", "clientKey")] {
        if let (None, Some(set)) = (node.get(field), node.get(other)) {
            let message = format!("must be defined when {other} is defined");
            findings.error_in(&format!(".{field}"), set, message);
        }
    }
}

/// Returns the schema of the spec of a MeshMultiZoneService.
pub(super) fn multi_zone() -> Schema {
    let labels = map(string())
        .size(1..=usize::MAX)
        .message("cannot be empty");
    let services = object().required("matchLabels", labels);
    let ports = list(service_port(string().like(&APP_PROTOCOL)))
        .size(1..=usize::MAX)
        .message("cannot be empty");
    object()
        .required("selector", object().required("meshService", services))
        .required("ports", ports)
}

fn port() -> Schema {
    integer(1..=65535).message("port must be a valid (1-65535)")
}

fn service_port(protocol: Schema) -> Schema {
    object()
        .field(
            "name",
            string().size(1..=usize::MAX).message("must not be empty"),
        )
        .required("port", port())
        .field("appProtocol", protocol.default(json!("tcp")))
}
