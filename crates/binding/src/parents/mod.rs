//! What a route can attach to.
//!
//! Two shapes of parent exist: listeners ([`gateway`]), and ports of something that is called by name in the mesh. A parent of the
//! second shape is one file that says how its object becomes a [`MeshParent`], and one line in [`MESH`].

pub(crate) mod gateway;
mod service;
mod service_import;

use pointsman_resources::meta::GATEWAY_GROUP;
use pointsman_resources::refs::ParentReference;
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::store::Reader;

/// A parent whose ports are called by name or virtual address: a Service or its kin.
pub(crate) struct MeshParent {
    /// Its ports.
    pub ports: Vec<ParentPort>,
    /// Why nothing can attach to it.
    pub refused: Option<(&'static str, String)>,
}

/// One port of a [`MeshParent`].
pub(crate) struct ParentPort {
    /// The port's name, which `sectionName` picks.
    pub name: Option<String>,
    /// The number.
    pub port: u16,
    /// `TCP` or `UDP`.
    pub transport: String,
}

/// A kind of mesh parent.
pub(crate) struct MeshParentKind {
    /// The kind.
    pub kind: Kind,
    /// Reads the object. None if it does not exist.
    pub read: fn(&Reader<'_>, &Name) -> Option<MeshParent>,
}

/// Every kind of mesh parent.
const MESH: [MeshParentKind; 2] = [service::PARENT, service_import::PARENT];

/// What a parent reference names.
pub(crate) enum Parent {
    /// Listeners of a Gateway or a ListenerSet.
    Listeners(ObjectKey),
    /// Ports of a mesh parent.
    Mesh(ObjectKey, &'static MeshParentKind),
    /// A kind that nothing of ours can be.
    Unsupported,
}

/// What a parent reference of a route in `namespace` names.
pub(crate) fn resolve(reference: &ParentReference, namespace: &str) -> Parent {
    let name = || {
        let namespace = reference.namespace.as_deref().unwrap_or(namespace);
        Name::new(namespace, reference.name.as_str())
    };
    let kind = Kind::find(&reference.group, &reference.kind).or_else(|| {
        // `core` is a common spelling of the core group. The group's default is the Gateway API's, and the examples of GEP-1426
        // write `kind: Service` alone.
        let is_service = reference.kind == "Service";
        let spelled_so = ["core", GATEWAY_GROUP].contains(&reference.group.as_str());
        (is_service && spelled_so).then_some(Kind::Service)
    });
    match kind {
        Some(kind @ (Kind::Gateway | Kind::ListenerSet)) => {
            Parent::Listeners(ObjectKey { kind, name: name() })
        }
        Some(kind) => match MESH.iter().find(|parent| parent.kind == kind) {
            Some(parent) => Parent::Mesh(ObjectKey { kind, name: name() }, parent),
            None => Parent::Unsupported,
        },
        None => Parent::Unsupported,
    }
}

/// Whether a reference to a Service leaves out its group, which is then the Gateway API's.
pub(crate) fn has_defaulted_group(reference: &ParentReference) -> bool {
    reference.kind == "Service" && reference.group == GATEWAY_GROUP
}
