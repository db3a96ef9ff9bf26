//! The mesh of the Gateway API (GAMMA): permission to attach routes to Services, and precedence between routes on one Service.

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_resources::gateway::From;
use pointsman_resources::policy::{MeshBinding, MeshSettingsSpec};
use pointsman_resources::{Age, Kind, Name, ObjectKey};

use crate::bound::{BoundRoute, Frontend, FrontendId, Protocol, Scope};
use crate::engine::Reader;
use crate::gateway_api::namespaces;
use crate::gateway_api::route::{MeshConflict, RouteView};
use crate::status::Condition;

/// Returns the effective settings: those that the oldest XMesh of Pointsman references, else those named `default`, else the defaults.
pub(crate) fn settings(reader: &Reader<'_>) -> MeshSettingsSpec {
    let named = reader
        .meshes()
        .into_iter()
        .filter(|mesh| reader.controller().serves_mesh(mesh))
        .find_map(|mesh| mesh.spec.parameters_ref.as_ref())
        .filter(|reference| {
            Kind::find(&reference.group, &reference.kind) == Some(Kind::MeshSettings)
        })
        .map(|reference| reference.name.as_str());
    // A reference to missing settings must not lift the restrictions of `default`.
    [named, Some("default")]
        .into_iter()
        .flatten()
        .find_map(|name| reader.mesh_settings(&Name::new("", name)))
        .map(|found| found.spec.clone())
        .unwrap_or_default()
}

/// Returns the conditions of an XMesh; `None` if it belongs to another controller.
pub(crate) fn mesh_conditions(reader: &Reader<'_>, name: &Name) -> Option<Vec<Condition>> {
    let mesh = reader.mesh(name)?;
    if !reader.controller().serves_mesh(mesh) {
        return None;
    }
    let accepted = match &mesh.spec.parameters_ref {
        None => Condition::yes("Accepted", "Accepted", ""),
        Some(reference) => {
            let kind = Kind::find(&reference.group, &reference.kind);
            let name = Name::new("", reference.name.as_str());
            if kind != Some(Kind::MeshSettings) {
                let message = format!(
                    "parametersRef: {} {name} is not supported; use MeshSettings.pointsman.io",
                    reference.kind
                );
                Condition::no("Accepted", "InvalidParameters", message)
            } else if reader.mesh_settings(&name).is_none() {
                let kind = Kind::MeshSettings;
                let message = reader.missing(&ObjectKey { kind, name });
                Condition::no("Accepted", "InvalidParameters", message)
            } else {
                Condition::yes("Accepted", "Accepted", "")
            }
        }
    };
    Some(vec![accepted])
}

/// Checks whether MeshSettings allow routes of a namespace to attach to a parent. Fails with a reason and message.
pub(crate) fn check_allowed_routes(
    reader: &Reader<'_>,
    settings: &MeshSettingsSpec,
    parent: &ObjectKey,
    namespace: &str,
) -> Result<(), (&'static str, String)> {
    let (role, scope) = match namespace == parent.namespace() {
        true => ("producers", &settings.allowed_routes.producers),
        false => ("consumers", &settings.allowed_routes.consumers),
    };
    let choice = scope.as_ref().and_then(|scope| scope.namespaces.as_ref());
    namespaces::check_allowed(reader, choice, From::All, parent.namespace(), namespace).map_err(
        |rule| {
            (
                "NotAllowedByMesh",
                format!("MeshSettings: allowedRoutes.{role}.{rule}"),
            )
        },
    )
}

/// Routes of one mesh parent after resolving their precedence.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeshGroup {
    /// Frontends, each with the kind of route that applies to it.
    pub frontends: BTreeMap<FrontendId, Frontend>,
    /// Routes that apply to each frontend.
    pub attachments: BTreeMap<(FrontendId, ObjectKey), Arc<BoundRoute>>,
    /// Routes that a route of another kind overrides on a frontend, with the winner.
    pub conflicts: BTreeMap<(FrontendId, ObjectKey), ObjectKey>,
    /// Routes that the earlier GEP-1426 rejects, with messages.
    pub strict_conflicts: BTreeMap<ObjectKey, String>,
}

impl MeshGroup {
    /// Returns the conflict of a route that references these frontends, if any.
    pub fn conflict(
        &self,
        route: &ObjectKey,
        wanted: &[(FrontendId, Arc<BoundRoute>)],
    ) -> Option<MeshConflict> {
        if let Some(why) = self.strict_conflicts.get(route) {
            return Some(MeshConflict::Strict(why.clone()));
        }
        let mut ports = Vec::new();
        for (id, _) in wanted {
            if let (Some(winner), FrontendId::Mesh { port, .. }) =
                (self.conflicts.get(&(id.clone(), route.clone())), id)
            {
                ports.push(format!("by {winner} on port {port}"));
            }
        }
        if ports.is_empty() {
            return None;
        }
        let message = format!("overridden {}", ports.join(", "));
        Some(match ports.len() == wanted.len() {
            true => MeshConflict::AllPorts(format!(
                "{message}: only one kind of route applies to a port, and {} has lower precedence",
                route.kind
            )),
            false => MeshConflict::SomePorts(message),
        })
    }
}

/// "Route type specificity is defined in the following order (first one wins)" (GEP-1426, "Route types"). UDP is
/// orthogonal: its ports are other frontends.
fn specificity(kind: Kind) -> usize {
    match kind {
        Kind::GRPCRoute => 0,
        Kind::HTTPRoute => 1,
        Kind::TLSRoute => 2,
        _ => 3,
    }
}

/// A route that references the parent.
pub(crate) struct GroupMember<'a> {
    pub key: &'a ObjectKey,
    pub view: &'a RouteView,
}

impl GroupMember<'_> {
    fn order(&self) -> (Age, &Name, Kind) {
        (self.view.age, &self.key.name, self.key.kind)
    }

    fn parents(&self) -> impl Iterator<Item = &ObjectKey> {
        self.view.mesh_parents()
    }

    fn uses(&self, object: &ObjectKey) -> bool {
        self.view
            .mesh_backends
            .iter()
            .any(|id| id.object == *object)
    }
}

impl RouteView {
    /// Returns the mesh parents that the route attaches to, before precedence is resolved.
    pub fn mesh_parents(&self) -> impl Iterator<Item = &ObjectKey> {
        self.parents
            .iter()
            .filter(|parent| matches!(parent.attached.first(), Some((FrontendId::Mesh { .. }, _))))
            .map(|parent| &parent.parent)
    }
}

/// Resolves precedence between the routes of one parent. `members` reference it as a parent. `others` may conflict with them under the earlier GEP-1426:
/// they use the parent as a backend, or reference a backend of a member as a parent.
pub(crate) fn resolve_group(
    settings: &MeshSettingsSpec,
    parent: &ObjectKey,
    mut members: Vec<GroupMember<'_>>,
    others: &[GroupMember<'_>],
) -> MeshGroup {
    let mut group = MeshGroup::default();
    members.sort_by(|a, b| a.order().cmp(&b.order()));
    if settings.binding == MeshBinding::Strict {
        for (at, member) in members.iter().enumerate() {
            if let Some(why) = strict_conflict(parent, member, &members[..at], others) {
                group.strict_conflicts.insert(member.key.clone(), why);
            }
        }
    }
    let mut claims: BTreeMap<&FrontendId, Vec<(&GroupMember<'_>, &Arc<BoundRoute>)>> =
        BTreeMap::new();
    for member in &members {
        if group.strict_conflicts.contains_key(member.key) {
            continue;
        }
        for view in member
            .view
            .parents
            .iter()
            .filter(|view| view.parent == *parent)
        {
            for (id, bound) in &view.attached {
                claims.entry(id).or_default().push((member, bound));
            }
        }
    }
    for (id, mut claims) in claims {
        claims.dedup_by_key(|(member, _)| member.key);
        let winner = claims
            .iter()
            .map(|(member, _)| member.key)
            .min_by_key(|key| specificity(key.kind))
            .cloned();
        for (member, bound) in claims {
            let attachment = (id.clone(), member.key.clone());
            match &winner {
                Some(winner) if winner.kind != member.key.kind => {
                    group.conflicts.insert(attachment, winner.clone());
                }
                _ => {
                    group.attachments.insert(attachment, bound.clone());
                    let kind = member.key.kind;
                    group
                        .frontends
                        .entry(id.clone())
                        .or_insert_with(|| frontend(id, kind));
                }
            }
        }
    }
    group
}

fn frontend(id: &FrontendId, kind: Kind) -> Frontend {
    let port = match id {
        FrontendId::Mesh { port, .. } => *port,
        FrontendId::Listener { .. } | FrontendId::Outbound(_) => 0,
    };
    let protocol = match kind {
        Kind::HTTPRoute | Kind::GRPCRoute => Protocol::Http,
        Kind::TLSRoute => Protocol::Tls(crate::bound::TlsModeKey::Passthrough),
        Kind::UDPRoute => Protocol::Udp,
        _ => Protocol::Tcp,
    };
    Frontend {
        kind: Some(kind),
        ..Frontend::new(id.clone(), protocol, port)
    }
}

/// The earlier GEP-1426, "Limiting graph depth, preventing conflicts and cycles": the younger of two routes loses.
fn strict_conflict(
    parent: &ObjectKey,
    member: &GroupMember<'_>,
    older: &[GroupMember<'_>],
    others: &[GroupMember<'_>],
) -> Option<String> {
    // "NOT already specified as a parentRef of another HTTPRoute [in the same namespace]"
    let same = older.iter().find(|other| {
        other.key != member.key
            && other.key.kind == member.key.kind
            && other.key.namespace() == member.key.namespace()
    });
    if let Some(other) = same {
        return Some(format!(
            "{parent} is already the parent of {}, which is older",
            other.key
        ));
    }
    // "NOT already specified as a backendRef of any other HTTPRoute with a Service parentRef"
    let is_older =
        |other: &&GroupMember<'_>| other.key != member.key && other.order() < member.order();
    let using = others
        .iter()
        .chain(older)
        .filter(is_older)
        .find(|other| other.uses(parent));
    if let Some(other) = using {
        return Some(format!(
            "{parent} is already a backend of {}, which is older",
            other.key
        ));
    }
    others.iter().filter(is_older).find_map(|other| {
        let shared = other
            .parents()
            .find(|theirs| *theirs != parent && member.uses(theirs))?;
        Some(format!(
            "the backend {shared} is already the parent of {}, which is older",
            other.key
        ))
    })
}

/// Returns the clients to whose calls a route in a namespace applies.
pub(crate) fn scope_of(parent: &ObjectKey, namespace: &str) -> Scope {
    match parent.namespace() == namespace {
        true => Scope::Everyone,
        false => Scope::Namespace(namespace.into()),
    }
}
