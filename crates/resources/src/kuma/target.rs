//! References of policies: to the proxies that they configure, to destinations, and to backends.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::meta::null_as_default;

/// Tags by name.
pub type Tags = BTreeMap<String, String>;

/// Some part of the mesh: proxies, or destinations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// What is referred to.
    #[serde(default)]
    pub kind: TargetKind,
    /// Its name.
    pub name: Option<String>,
    /// Its namespace on Kubernetes; the policy's own if left out.
    pub namespace: Option<String>,
    /// Tags that it must have.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// Labels that it must have, in place of a name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    /// One of its ports: the port's name, or its number if it has no name.
    pub section_name: Option<String>,
    /// Which proxies of a mesh; all if empty.
    #[serde(default, deserialize_with = "null_as_default")]
    pub proxy_types: Vec<ProxyType>,
}

/// What a [`TargetRef`] refers to, from the least specific to the most: policies are ordered by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[allow(missing_docs, reason = "named as in Kuma")]
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

    /// The name as it is written.
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(kind, _)| *kind == self)
            .map_or("", |(_, name)| name)
    }

    /// The kind of this name.
    pub fn find(name: &str) -> Option<TargetKind> {
        let mut all = Self::ALL.iter();
        all.find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }
}

/// A kind of proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[allow(missing_docs, reason = "named as in Kuma")]
pub enum ProxyType {
    Sidecar,
    Gateway,
}

/// Where traffic goes, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct BackendRef {
    /// The backend.
    #[serde(flatten)]
    pub target: TargetRef,
    /// Its part of the sum of all weights.
    #[serde(default = "one")]
    pub weight: u32,
    /// The port. With it, or with a `sectionName`, a MeshService is the resource of that name; without, it is the service
    /// that the tag `kuma.io/service` names.
    pub port: Option<u16>,
}

fn one() -> u32 {
    1
}
