//! Schemas of Kuma's kinds, as Kubernetes objects and as universal documents. Error messages are Kuma's own, where it has one.
//!
//! A Kubernetes object has `metadata` and `spec`. A universal document has `type`, `mesh` and `name`, and either `spec` or, in kinds that
//! predate policies, the fields of the spec at the top level.

mod dataplane;
mod filters;
mod gateway;
mod matches;
mod patterns;
mod route;
mod service;
mod tags;
mod target;

use serde_json::json;

use super::meta::labels;
use super::patterns::{BASE64, TIME};
use super::rules::items;
use super::{Findings, Schema, Shape, any, list, object, one_of, open_object, string};
use crate::document::{Node, Value};
use crate::kuma::DEFAULT_MESH;
use crate::meta::Kind;
use patterns::{NAME, SERVICE_NAME};

/// Adds the fields of a kind to those that every Kubernetes object has.
pub(super) fn fields(kind: Kind, object: Schema) -> Schema {
    let object = match kind {
        Kind::Dataplane | Kind::MeshGateway => object.field("mesh", name()),
        Kind::MeshHTTPRoute | Kind::MeshTCPRoute => object.rule(route::single_role),
        _ => object,
    };
    with_spec(kind, object)
}

/// Adds the spec, which is optional in a Mesh and a MeshGatewayInstance.
fn with_spec(kind: Kind, object: Schema) -> Schema {
    match kind {
        Kind::Mesh | Kind::MeshGatewayInstance => object.field("spec", spec(kind)),
        _ => object.required("spec", spec(kind)),
    }
}

/// Returns the schema of a kind's universal documents.
pub(super) fn universal(kind: Kind) -> Schema {
    let object_name = match kind {
        Kind::MeshService | Kind::MeshExternalService | Kind::MeshMultiZoneService => {
            let name = string().size(1..=usize::MAX).like(&SERVICE_NAME);
            name.message("cannot be empty")
        }
        _ => name(),
    };
    let object = object()
        .field("type", string())
        .required("name", object_name)
        .field("labels", labels())
        .field("creationTime", string().like(&TIME))
        .field("modificationTime", string())
        .field("kri", string())
        .field("status", any());
    let object = match kind {
        Kind::Mesh => object,
        _ => object.field("mesh", name().default(json!(DEFAULT_MESH))),
    };
    match kind {
        Kind::Mesh | Kind::Dataplane | Kind::MeshGateway => merge(object, spec(kind)),
        Kind::Secret => object.field("data", string().like(&BASE64)),
        _ => with_spec(kind, object),
    }
}

/// Returns the schema of the name of a universal document, or of a mesh.
fn name() -> Schema {
    let name = string().size(1..=usize::MAX).like(&NAME);
    name.message("cannot be empty")
}

/// Combines the fields and rules of two objects.
fn merge(mut object: Schema, spec: Schema) -> Schema {
    if let (
        Shape::Object { fields, open, .. },
        Shape::Object {
            fields: more,
            open: too,
            ..
        },
    ) = (&mut object.shape, spec.shape)
    {
        fields.extend(more);
        *open |= too;
    }
    object.rules.extend(spec.rules);
    object
}

fn spec(kind: Kind) -> Schema {
    match kind {
        Kind::Dataplane => dataplane::dataplane(),
        Kind::MeshService => service::mesh_service(),
        Kind::MeshExternalService => service::external(),
        Kind::MeshMultiZoneService => service::multi_zone(),
        Kind::MeshGateway => gateway::mesh_gateway(),
        Kind::MeshGatewayInstance => gateway::instance(),
        Kind::MeshHTTPRoute => route::http(),
        Kind::MeshTCPRoute => route::tcp(),
        Kind::MeshGatewayHTTPRoute => route::gateway_http(),
        _ => mesh(),
    }
}

fn mtls() -> Schema {
    open_object()
        .field("enabledBackend", string())
        .field(
            "backends",
            list(open_object().field("name", string()))
                .max(1)
                .message("cannot have more than 1 backends"),
        )
        .rule(enabled_backend)
}

fn enabled_backend(node: &Node, findings: &mut Findings<'_>) {
    let Some(enabled) = node
        .get("enabledBackend")
        .filter(|name| name.as_str() != Some(""))
    else {
        return;
    };
    // A value of the wrong type is reported separately.
    let is_list = |backends: &Node| matches!(backends.value, Value::List(_));
    let has_wrong_type = node
        .get("backends")
        .is_some_and(|backends| !is_list(backends));
    let known = items(node, "backends").any(|(_, backend)| match backend.get("name") {
        Some(name) => name.as_str().is_none() || name.as_str() == enabled.as_str(),
        None => !matches!(backend.value, Value::Map(_)),
    });
    let known = known || has_wrong_type;
    if enabled.as_str().is_some() && !known {
        let message = "has to be set to one of the backends in the mesh";
        findings.error_in(".enabledBackend", enabled, message);
    }
}

/// Returns the schema of the spec of a Mesh, reduced to the fields that routing uses.
fn mesh() -> Schema {
    let modes = &["Everywhere", "ReachableBackends", "Exclusive", "Disabled"];
    open_object().field("mtls", mtls()).field(
        "meshServices",
        open_object().field("mode", one_of(modes).default(json!("Disabled"))),
    )
}
