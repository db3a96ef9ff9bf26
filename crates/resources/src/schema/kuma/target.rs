//! References of policies.

use serde_json::json;

use super::super::shared::port;
use super::super::{Schema, integer, list, map, object, one_of, string};
use super::tags;
use super::text::TARGET_KIND;

/// A reference to proxies or destinations.
pub(super) fn target_ref() -> Schema {
    object()
        .field("kind", string().like(&TARGET_KIND))
        .field("name", string())
        .field("namespace", string())
        .field("tags", tags())
        .field("labels", map(string()))
        .field("sectionName", string())
        .field("proxyTypes", list(one_of(&["Gateway", "Sidecar"])))
}

/// A reference to a backend, with its weight.
pub(super) fn backend_ref() -> Schema {
    target_ref()
        .field("weight", integer(0..=4_294_967_295).default(json!(1)))
        .field("port", port())
}
