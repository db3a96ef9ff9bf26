//! Mesh.
#![allow(missing_docs, reason = "fields are named and documented as in Kuma")]

use serde::Deserialize;

use super::MeshObject;
use crate::meta::{Meta, null_as_default};

/// A mesh. All other resources of Kuma belong to a mesh, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "MeshObject<MeshSpec>")]
pub struct Mesh {
    pub metadata: Meta,
    pub spec: MeshSpec,
}

impl From<MeshObject<MeshSpec>> for Mesh {
    fn from(MeshObject { metadata, spec, .. }: MeshObject<MeshSpec>) -> Self {
        Mesh { metadata, spec }
    }
}

/// The spec of a [`Mesh`], reduced to the fields that routing uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    pub mtls: Mtls,
    #[serde(default, deserialize_with = "null_as_default")]
    pub mesh_services: MeshServices,
}

impl MeshSpec {
    /// Returns whether mutual TLS between proxies is enabled.
    pub fn has_mtls(&self) -> bool {
        self.mtls
            .enabled_backend
            .as_deref()
            .is_some_and(|name| !name.is_empty())
    }
}

/// Mutual TLS settings of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mtls {
    /// Name of the certificate authority in use. If unset, mutual TLS is disabled.
    pub enabled_backend: Option<String>,
}

/// Settings for generated MeshServices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshServices {
    #[serde(default)]
    pub mode: MeshServicesMode,
}

/// Mode in which a mesh generates MeshServices for its services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum MeshServicesMode {
    #[default]
    Disabled,
    Everywhere,
    ReachableBackends,
    Exclusive,
}
