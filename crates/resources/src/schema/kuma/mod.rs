//! Kuma's kinds in both forms, with Kuma's own messages.
//!
//! A Kubernetes object has `metadata` and `spec`; a universal document has `type`, `mesh` and `name`, and then either
//! `spec` or, for the kinds that are older than policies, the fields of the spec itself.

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

/// Adds a kind's fields to those that every Kubernetes object has.
pub(super) fn fields(kind: Kind, object: Schema) -> Schema {
    let object = match kind {
        Kind::Dataplane | Kind::MeshGateway => object.field("mesh", name()),
        Kind::MeshHTTPRoute | Kind::MeshTCPRoute => object.rule(route::one_role),
        _ => object,
    };
    with_spec(kind, object)
}

/// All that a Mesh or a MeshGatewayInstance says may be left out.
fn with_spec(kind: Kind, object: Schema) -> Schema {
    match kind {
        Kind::Mesh | Kind::MeshGatewayInstance => object.field("spec", spec(kind)),
        _ => object.required("spec", spec(kind)),
    }
}

/// The schema of a universal document.
pub(super) fn universal(kind: Kind) -> Schema {
    let called = match kind {
        Kind::MeshService | Kind::MeshExternalService | Kind::MeshMultiZoneService => {
            let name = string().size(1..=usize::MAX).like(&SERVICE_NAME);
            name.message("cannot be empty")
        }
        _ => name(),
    };
    let object = object()
        .field("type", string())
        .required("name", called)
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
        Kind::Mesh | Kind::Dataplane | Kind::MeshGateway => joined(object, spec(kind)),
        Kind::Secret => object.field("data", string().like(&BASE64)),
        _ => with_spec(kind, object),
    }
}

/// The name of an object or a mesh in a universal document.
fn name() -> Schema {
    let name = string().size(1..=usize::MAX).like(&NAME);
    name.message("cannot be empty")
}

/// One object with the fields and rules of both.
fn joined(mut object: Schema, spec: Schema) -> Schema {
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
    // What is of the wrong type has its own finding.
    let is_list = |backends: &Node| matches!(backends.value, Value::List(_));
    let odd = node
        .get("backends")
        .is_some_and(|backends| !is_list(backends));
    let known = items(node, "backends").any(|(_, backend)| match backend.get("name") {
        Some(name) => name.as_str().is_none() || name.as_str() == enabled.as_str(),
        None => !matches!(backend.value, Value::Map(_)),
    });
    let known = known || odd;
    if enabled.as_str().is_some() && !known {
        let message = "has to be set to one of the backends in the mesh";
        findings.error_in(".enabledBackend", enabled, message);
    }
}

/// A Mesh: what routing uses of it. The rest is for others.
fn mesh() -> Schema {
    let modes = &["Everywhere", "ReachableBackends", "Exclusive", "Disabled"];
    open_object().field("mtls", mtls()).field(
        "meshServices",
        open_object().field("mode", one_of(modes).default(json!("Disabled"))),
    )
}
