//! Dataplane.

use super::super::shared::port;
use super::super::text::IP;
use super::super::{Schema, any, boolean, list, object, one_of, open_object, string};
use super::tags;
use super::target::backend_ref;

/// The spec of a Dataplane.
pub(super) fn dataplane() -> Schema {
    let gateway = object()
        .field("type", one_of(&["DELEGATED", "BUILTIN"]))
        .field("tags", tags());
    let networking = object()
        .field("address", string())
        .field("advertisedAddress", string())
        .field("gateway", gateway)
        .field("inbound", list(inbound()))
        .field("outbound", list(outbound()))
        .field("transparentProxying", any())
        .field("admin", any());
    object()
        .field("networking", networking)
        .field("metrics", any())
        .field("probes", any())
        .field("envoy", any())
}

fn inbound() -> Schema {
    object()
        .field("name", string())
        .required("port", port())
        .field("address", string())
        .field("servicePort", port())
        .field("serviceAddress", string())
        .field("tags", tags())
        .field("protocol", string())
        .field("health", open_object().field("ready", boolean()))
        .field("serviceProbe", any())
        .field("state", one_of(&["Ready", "NotReady", "Ignored"]))
}

fn outbound() -> Schema {
    object()
        .field("address", string().like(&IP))
        .required("port", port())
        .field("tags", tags())
        .field("backendRef", backend_ref())
}
