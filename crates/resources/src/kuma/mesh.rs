//! A mesh: the world that its other resources live in.

use serde::Deserialize;

use super::MeshObject;
use crate::meta::{Meta, null_as_default};

/// A mesh. Its name is what others call their mesh.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "MeshObject<MeshSpec>")]
pub struct Mesh {
    /// Name and age.
    pub metadata: Meta,
    /// What it says.
    pub spec: MeshSpec,
}

impl From<MeshObject<MeshSpec>> for Mesh {
    fn from(MeshObject { metadata, spec, .. }: MeshObject<MeshSpec>) -> Self {
        Mesh { metadata, spec }
    }
}

/// The spec of a [`Mesh`], as far as routing goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshSpec {
    /// Its mutual TLS.
    #[serde(default, deserialize_with = "null_as_default")]
    pub mtls: Mtls,
    /// Whether services are MeshServices.
    #[serde(default, deserialize_with = "null_as_default")]
    pub mesh_services: MeshServices,
}

impl MeshSpec {
    /// Whether its proxies speak mutual TLS with each other.
    pub fn has_mtls(&self) -> bool {
        self.mtls
            .enabled_backend
            .as_deref()
            .is_some_and(|name| !name.is_empty())
    }
}

/// Mutual TLS of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mtls {
    /// The authority in use; none is no mutual TLS.
    pub enabled_backend: Option<String>,
}

/// How a mesh makes MeshServices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshServices {
    /// Whether it does.
    #[serde(default)]
    pub mode: MeshServicesMode,
}

/// Whether a mesh makes MeshServices of its services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "named as in Kuma")]
pub enum MeshServicesMode {
    #[default]
    Disabled,
    Everywhere,
    ReachableBackends,
    Exclusive,
}
