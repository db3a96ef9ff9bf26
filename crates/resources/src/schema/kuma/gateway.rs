//! MeshGateway and MeshGatewayInstance.

use super::super::text::BASE64;
use super::super::{Schema, any, boolean, integer, list, object, one_of, open_object, string};
use super::tags;

/// The spec of a MeshGateway.
pub(super) fn mesh_gateway() -> Schema {
    object()
        .field("selectors", list(object().field("match", tags())))
        .field("tags", tags())
        .field("conf", object().field("listeners", list(listener())))
}

fn listener() -> Schema {
    let certificate = object()
        .field("secret", string())
        .field("file", string())
        .field("inline", string().like(&BASE64))
        .field("inlineString", string());
    let tls = object()
        .field("mode", one_of(&["PASSTHROUGH", "TERMINATE"]))
        .field("certificates", list(certificate))
        .field("options", any());
    object()
        .field("hostname", string())
        .field("port", integer(1..=65535))
        .field("protocol", one_of(&["HTTP", "HTTPS", "TCP", "TLS"]))
        .field("tls", tls)
        .field("tags", tags())
        .field("crossMesh", boolean())
        .field(
            "resources",
            object().field("connectionLimit", integer(0..=4_294_967_295)),
        )
}

/// The spec of a MeshGatewayInstance: what routing uses of it.
pub(super) fn instance() -> Schema {
    open_object()
        .field("tags", tags())
        .field("replicas", integer(0..=i64::from(i32::MAX)))
        .field(
            "serviceType",
            one_of(&["LoadBalancer", "ClusterIP", "NodePort"]),
        )
}
