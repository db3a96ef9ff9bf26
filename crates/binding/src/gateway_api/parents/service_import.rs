//! A ServiceImport as a parent (GEP-1748): its ClusterSetIP is the frontend.

use pointsman_resources::{Kind, Name};

use super::{MeshParent, MeshParentKind};
use crate::engine::Reader;

pub(super) const PARENT: MeshParentKind = MeshParentKind {
    kind: Kind::ServiceImport,
    read,
};

fn read(reader: &Reader<'_>, name: &Name) -> Option<MeshParent> {
    let spec = &reader.service_import(name)?.spec;
    let headless = spec.kind == "Headless";
    Some(MeshParent {
        ports: spec.ports.clone(),
        refused: headless.then(|| {
            let message =
                format!("ServiceImport {name} is headless; routes can only attach to imports of type ClusterSetIP");
            ("UnsupportedValue", message)
        }),
    })
}
