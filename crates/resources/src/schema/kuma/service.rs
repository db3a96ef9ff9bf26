//! MeshService, MeshExternalService and MeshMultiZoneService.

use serde_json::json;

use super::super::shared::{label_selector, port};
use super::super::{
    Schema, any, boolean, int_or_string, list, map, object, one_of, open_object, string,
};
use super::tags;

/// The spec of a MeshService.
pub(super) fn mesh_service() -> Schema {
    let selector = object()
        .field("dataplaneTags", tags())
        .field("dataplaneRef", object().field("name", string()))
        .field("dataplaneLabels", label_selector());
    object()
        .field("selector", selector)
        .field(
            "ports",
            list(service_port().field("targetPort", int_or_string())),
        )
        .field("identities", any())
        .field("state", string())
}

/// The spec of a MeshExternalService.
pub(super) fn external() -> Schema {
    let matched = object()
        .field("type", string())
        .required("port", port())
        .field("protocol", protocol());
    let endpoint = object().required("address", string()).field("port", port());
    object()
        .required("match", matched)
        .field("extension", any())
        .field("endpoints", list(endpoint))
        .field("tls", open_object().field("enabled", boolean()))
}

/// The spec of a MeshMultiZoneService.
pub(super) fn multi_zone() -> Schema {
    let selector = object().field("meshService", object().field("matchLabels", map(string())));
    object()
        .field("selector", selector)
        .field("ports", list(service_port()))
}

fn service_port() -> Schema {
    object()
        .field("name", string())
        .required("port", port())
        .field("appProtocol", string().default(json!("tcp")))
}

fn protocol() -> Schema {
    one_of(&["tcp", "grpc", "http", "http2"]).default(json!("tcp"))
}
