//! A Service as a parent (GEP-1426, "Allowed service types").

use pointsman_resources::core::ServiceType;
use pointsman_resources::{Kind, Name};

use super::{MeshParent, MeshParentKind};
use crate::engine::Reader;

pub(super) const PARENT: MeshParentKind = MeshParentKind {
    kind: Kind::Service,
    read,
};

fn read(reader: &Reader<'_>, name: &Name) -> Option<MeshParent> {
    let spec = &reader.service(name)?.spec;
    let refused = if spec.kind == ServiceType::ExternalName {
        Some(format!(
            "Service {name} has type ExternalName; routes can only attach to Services with a clusterIP"
        ))
    } else if spec.is_headless() {
        Some(format!(
            "Service {name} is headless; routes can only attach to Services with a clusterIP"
        ))
    } else {
        None
    };
    Some(MeshParent {
        ports: spec.ports.clone(),
        refused: refused.map(|message| ("UnsupportedValue", message)),
    })
}
