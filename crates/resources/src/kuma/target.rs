//! References of policies to proxies, destinations and backends.
#![allow(missing_docs, reason = "fields are named and documented as in Kuma")]

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::meta::null_as_default;

/// Tags by name.
pub type Tags = BTreeMap<String, String>;

/// Reference to proxies or destinations of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    #[serde(default)]
    pub kind: TargetKind,
    pub name: Option<String>,
    /// Namespace on Kubernetes; defaults to the policy's own namespace.
    pub namespace: Option<String>,
    /// Required tags.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// Required labels, as an alternative to a name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    /// Name of a port, or its number if the port has no name.
    pub section_name: Option<String>,
    /// Restricts the target to these types of proxies; all types if empty.
    #[serde(default, deserialize_with = "null_as_default")]
    pub proxy_types: Vec<ProxyType>,
}

/// Kind of a [`TargetRef`], ordered from the least to the most specific. Policies are sorted by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum TargetKind {
    #[default]
    Mesh,
    Dataplane,
    MeshSubset,
    MeshGateway,
    MeshService,
    MeshExternalService,
    MeshMultiZoneService,
    MeshServiceSubset,
}

impl TargetKind {
    const ALL: [(TargetKind, &'static str); 8] = [
        (TargetKind::Mesh, "Mesh"),
        (TargetKind::Dataplane, "Dataplane"),
        (TargetKind::MeshSubset, "MeshSubset"),
        (TargetKind::MeshGateway, "MeshGateway"),
        (TargetKind::MeshService, "MeshService"),
        (TargetKind::MeshExternalService, "MeshExternalService"),
        (TargetKind::MeshMultiZoneService, "MeshMultiZoneService"),
        (TargetKind::MeshServiceSubset, "MeshServiceSubset"),
    ];

    /// Returns the name as written in `kind`.
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(kind, _)| *kind == self)
            .map_or("", |(_, name)| name)
    }

    /// Returns the kind with this name.
    pub fn find(name: &str) -> Option<TargetKind> {
        let mut all = Self::ALL.iter();
        all.find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }
}

/// Type of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum ProxyType {
    Sidecar,
    Gateway,
}

/// A weighted reference to a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct BackendRef {
    #[serde(flatten)]
    pub target: TargetRef,
    /// Share of the rule's traffic, relative to the sum of all weights.
    #[serde(default = "one")]
    pub weight: u32,
    /// With a port or `sectionName`, the kind MeshService refers to a resource; without either, to the service of the tag
    /// `kuma.io/service`.
    pub port: Option<u16>,
}

fn one() -> u32 {
    1
}
