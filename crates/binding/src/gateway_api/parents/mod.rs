//! Parents to which routes attach.
//!
//! There are two types of parents: listeners ([`listeners`]), and ports of objects that are called by name in the mesh. Each kind of mesh parent has a file
//! that converts its objects to a [`MeshParent`], and an entry in [`MESH_PARENTS`].

pub(crate) mod listeners;
mod service;
mod service_import;

use pointsman_resources::core::ServicePort;
use pointsman_resources::meta::GATEWAY_GROUP;
use pointsman_resources::refs::ParentReference;
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::engine::Reader;

/// A parent whose ports are called by name or virtual address, such as a Service.
pub(crate) struct MeshParent {
    /// Ports, which `sectionName` selects by name.
    pub ports: Vec<ServicePort>,
    /// Reason and message if no route can attach to it.
    pub refused: Option<(&'static str, String)>,
}

/// A kind of mesh parent.
pub(crate) struct MeshParentKind {
    pub kind: Kind,
    /// Reads an object. Returns `None` if it does not exist.
    pub read: fn(&Reader<'_>, &Name) -> Option<MeshParent>,
}

/// All kinds of mesh parents.
const MESH_PARENTS: &[MeshParentKind] = &[service::PARENT, service_import::PARENT];

/// The object that a parent reference names.
pub(crate) enum Parent {
    /// Listeners of a Gateway or a ListenerSet.
    Listeners(ObjectKey),
    /// Ports of a mesh parent.
    Mesh(ObjectKey, &'static MeshParentKind),
    /// An object of an unsupported kind.
    Unsupported,
}

/// Resolves a parent reference of a route in `namespace`.
pub(crate) fn resolve(reference: &ParentReference, namespace: &str) -> Parent {
    let name = || {
        let namespace = reference.namespace.as_deref().unwrap_or(namespace);
        Name::new(namespace, reference.name.as_str())
    };
    let kind = Kind::find(&reference.group, &reference.kind)
        .or_else(|| is_service(&reference.group, &reference.kind).then_some(Kind::Service));
    match kind {
        Some(kind @ (Kind::Gateway | Kind::ListenerSet)) => {
            Parent::Listeners(ObjectKey { kind, name: name() })
        }
        Some(kind) => match MESH_PARENTS.iter().find(|parent| parent.kind == kind) {
            Some(parent) => Parent::Mesh(ObjectKey { kind, name: name() }, parent),
            None => Parent::Unsupported,
        },
        None => Parent::Unsupported,
    }
}

/// Returns whether a parent reference with this group and kind is to a Service.
///
/// `core` is a common misspelling of the core group, and the examples of GEP-1426 omit the group of a Service, which then defaults to that of the Gateway API.
pub(crate) fn is_service(group: &str, kind: &str) -> bool {
    kind == "Service" && ["", "core", GATEWAY_GROUP].contains(&group)
}

/// Returns whether a reference to a Service omits the group, which then defaults to that of the Gateway API.
pub(crate) fn has_defaulted_group(reference: &ParentReference) -> bool {
    reference.kind == "Service" && reference.group == GATEWAY_GROUP
}
