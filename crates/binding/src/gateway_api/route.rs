//! Evaluates a route: its attachment to each of its parents, and its rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_resources::meta::GATEWAY_GROUP;
use pointsman_resources::policy::{MeshBinding, MeshReferenceGrants, MeshSettingsSpec};
use pointsman_resources::refs::ParentReference;
use pointsman_resources::route::Route;
use pointsman_resources::{Age, Kind, Name, ObjectKey};

use crate::bound::{
    BackendId, BoundRoute, Dialect, FrontendId, Hostname, RouteBinding, RouteId, RouteMeta,
    Transport,
};
use crate::engine::{FastMap, Input, Query, Reader};
use crate::gateway_api::backends::{CrossNamespace, ReferringRoute};
use crate::gateway_api::gateway::GatewayView;
use crate::gateway_api::grants;
use crate::gateway_api::mesh;
use crate::gateway_api::parents::{self, MeshParentKind, Parent};
use crate::gateway_api::rules::{self, Effect, InvalidRule, LoweredRules};
use crate::status::Condition;
use crate::status::warnings;

/// A route, evaluated. Precedence between mesh routes is resolved later, in [`crate::gateway_api::mesh`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouteView {
    pub generation: i64,
    pub age: Age,
    /// An entry for each parent that Pointsman manages.
    pub parents: Vec<ParentView>,
    /// Backends used under Gateway parents, sorted. They differ from `mesh_backends` because of ReferenceGrants and omitted backendRefs.
    pub gateway_backends: Box<[BackendId]>,
    /// Backends used under mesh parents, sorted.
    pub mesh_backends: Box<[BackendId]>,
    /// XBackends that the route references under Gateway parents but can't use.
    pub unusable_backends: Box<[ObjectKey]>,
    /// References to parents that Pointsman does not manage.
    pub unknown_parents: Vec<ParentReference>,
}

impl RouteView {
    /// Returns the backends used under all parents.
    pub fn backends(&self) -> impl Iterator<Item = &BackendId> {
        self.gateway_backends.iter().chain(&self.mesh_backends)
    }
}

/// A route with respect to one parent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParentView {
    /// The reference as written.
    pub reference: Arc<ParentReference>,
    pub parent: ObjectKey,
    /// Reason and message if the route may not attach.
    pub refused: Option<(&'static str, String)>,
    /// Frontends to which the route attaches.
    pub attached: Vec<(FrontendId, Arc<BoundRoute>)>,
    /// Reasons and messages about references that do not resolve.
    pub unresolved: Vec<(&'static str, String)>,
    /// Rules that are not implemented as written.
    pub invalid: Vec<InvalidRule>,
    /// True if no rule serves requests: each is dropped or replies with 500.
    pub serves_nothing: bool,
    /// Further messages for the condition `Accepted`.
    pub remarks: Vec<String>,
}

impl ParentView {
    /// Returns the rules that can't be matched.
    pub fn dropped(&self) -> impl Iterator<Item = &InvalidRule> {
        let invalid = self.invalid.iter();
        invalid.filter(|rule| rule.effect == Effect::Dropped)
    }

    /// Returns the reason and message if the route applies to no traffic of this parent.
    pub fn refusal(&self, conflict: Option<&MeshConflict>) -> Option<(&'static str, String)> {
        self.refused.clone().or(match conflict {
            Some(MeshConflict::AllPorts(message)) => Some(("Conflicted", message.clone())),
            Some(MeshConflict::Strict(message)) => Some(("ParentRefConflict", message.clone())),
            _ => None,
        })
    }

    /// Returns the conditions with respect to this parent.
    pub fn conditions(&self, conflict: Option<&MeshConflict>) -> Vec<Condition> {
        let mut remarks = self.remarks.clone();
        if let Some(MeshConflict::SomePorts(message)) = conflict {
            remarks.push(message.clone());
        }
        let mut refused = self.refusal(conflict);
        if self.serves_nothing {
            refused = refused.or_else(|| Some(("UnsupportedValue", no_rule_served(&self.invalid))));
        }
        let accepted = refused.is_none();
        // Almost always these two and the effect on proxies, and there may be many routes.
        let mut all = Vec::with_capacity(3);
        all.push(match refused {
            Some((reason, message)) => Condition::no("Accepted", reason, message),
            None => Condition::yes("Accepted", "Accepted", remarks.join("; ")),
        });
        all.push(match self.unresolved.first() {
            Some((reason, _)) => {
                let messages: Vec<&str> = self.unresolved.iter().map(|(_, m)| m.as_str()).collect();
                Condition::no("ResolvedRefs", reason, grants::join(&messages))
            }
            None => Condition::yes("ResolvedRefs", "ResolvedRefs", ""),
        });
        // "This condition MUST NOT be set if a Route is fully valid, fully invalid, or not accepted."
        if accepted {
            all.extend(partially_invalid(&self.invalid));
        }
        all
    }
}

/// Returns the condition of a route with both valid and invalid rules.
fn partially_invalid(invalid: &[InvalidRule]) -> Option<Condition> {
    let (dropped, failing): (Vec<&InvalidRule>, Vec<&InvalidRule>) = invalid
        .iter()
        .filter(|rule| !rule.is_unresolved)
        .partition(|rule| rule.effect == Effect::Dropped);
    let texts =
        |rules: &[&InvalidRule]| -> Vec<String> { rules.iter().map(ToString::to_string).collect() };
    let mut parts = texts(&failing);
    if !dropped.is_empty() {
        // "The message for this condition MUST start with the prefix "Dropped Rule""
        parts.insert(0, format!("Dropped Rule: {}", texts(&dropped).join("; ")));
    }
    let condition = || Condition::yes("PartiallyInvalid", "UnsupportedValue", parts.join("; "));
    (!parts.is_empty()).then(condition)
}

/// A conflict with other routes on the same mesh parent.
pub(crate) enum MeshConflict {
    /// Routes of another kind override the route on all ports: message.
    AllPorts(String),
    /// The earlier GEP-1426 (`binding: Strict`) rejects the route: message.
    Strict(String),
    /// The route is overridden on some ports: message.
    SomePorts(String),
}

/// Inputs for the evaluation of routes.
pub(crate) struct RouteContext<'a> {
    pub reader: Reader<'a>,
    /// Gateways that Pointsman manages.
    pub gateways: &'a FastMap<Name, Arc<GatewayView>>,
    /// Effective settings of the mesh.
    pub settings: &'a MeshSettingsSpec,
}

impl<'a> RouteContext<'a> {
    fn gateway(&self, name: &Name) -> Option<&'a GatewayView> {
        self.reader
            .record_read(Input::Result(Query::Gateway(name.clone())));
        self.gateways.get(name).map(Arc::as_ref)
    }

    fn settings(&self) -> &'a MeshSettingsSpec {
        self.reader.record_read(Input::Result(Query::Settings));
        self.settings
    }
}

/// Evaluates a route. Returns `None` if it does not exist.
pub(crate) fn evaluate(context: &RouteContext<'_>, key: &ObjectKey) -> Option<RouteView> {
    let route = context.reader.route(key)?;
    let mut resolver = RouteResolver {
        context,
        route,
        key,
        hostnames: route
            .spec
            .hostnames
            .iter()
            .map(|name| Hostname::new(name))
            .collect(),
        gateway_form: None,
        gateway_backends: BTreeSet::new(),
        mesh_backends: BTreeSet::new(),
        unusable_backends: BTreeSet::new(),
    };
    let (mut parents, mut unknown_parents) = (Vec::new(), Vec::new());
    for reference in resolver.references() {
        match resolver.parent(&reference) {
            Some(parent) => parents.push(parent),
            None => unknown_parents.push(reference),
        }
    }
    // Most routes have one parent, and there may be many routes.
    parents.shrink_to_fit();
    unknown_parents.shrink_to_fit();
    Some(RouteView {
        generation: route.metadata.generation,
        age: route.metadata.age(),
        parents,
        gateway_backends: resolver.gateway_backends.into_iter().collect(),
        mesh_backends: resolver.mesh_backends.into_iter().collect(),
        unusable_backends: resolver.unusable_backends.into_iter().collect(),
        unknown_parents,
    })
}

struct RouteResolver<'a> {
    context: &'a RouteContext<'a>,
    route: &'a Route,
    key: &'a ObjectKey,
    hostnames: Vec<Hostname>,
    /// The rules for Gateway parents, which are the same for all of them.
    gateway_form: Option<(Arc<LoweredRules>, Arc<BoundRoute>)>,
    gateway_backends: BTreeSet<BackendId>,
    mesh_backends: BTreeSet<BackendId>,
    unusable_backends: BTreeSet<ObjectKey>,
}

impl RouteResolver<'_> {
    /// Returns the parent references, including those that `useDefaultGateways` adds.
    fn references(&self) -> Vec<ParentReference> {
        let mut all = self.route.spec.parent_refs.clone();
        if self.route.spec.use_default_gateways.as_deref() != Some("All") {
            return all;
        }
        let own: Vec<Parent> = all
            .iter()
            .map(|r| parents::resolve(r, &self.route.metadata.namespace))
            .collect();
        for gateway in self.context.reader.default_gateways() {
            let named = |p: &Parent| matches!(p, Parent::Listeners(key) if key.kind == Kind::Gateway && key.name == gateway);
            if !own.iter().any(named) {
                all.push(ParentReference {
                    group: GATEWAY_GROUP.to_owned(),
                    kind: "Gateway".to_owned(),
                    namespace: Some(gateway.namespace.to_string()),
                    name: gateway.name.to_string(),
                    section_name: None,
                    port: None,
                });
            }
        }
        all
    }

    fn parent(&mut self, reference: &ParentReference) -> Option<ParentView> {
        match parents::resolve(reference, &self.route.metadata.namespace) {
            Parent::Listeners(owner) => self.listeners(reference, owner),
            Parent::Mesh(parent, kind) => Some(self.mesh(reference, parent, kind)),
            Parent::Unsupported => None,
        }
    }

    /// "A parent Gateway that doesn't exist or isn't ours" gets no entry.
    fn listeners(&mut self, reference: &ParentReference, owner: ObjectKey) -> Option<ParentView> {
        let gateway = match owner.kind {
            Kind::Gateway => owner.name.clone(),
            _ => self.context.reader.listener_set(&owner.name)?.gateway(),
        };
        let listeners = self.context.gateway(&gateway)?.listeners_of(&owner)?;
        let (lowered, bound) = self.gateway_form();
        let mut refused = None;
        let mut attached = Vec::new();
        if lowered.drops_every_rule() {
            refused = Some(("UnsupportedValue", no_rule_served(&lowered.invalid)));
        } else {
            let reader = &self.context.reader;
            let hostnames = &self.hostnames;
            match parents::listeners::attach(
                reader, &owner, listeners, reference, self.route, hostnames,
            ) {
                Ok(frontends) => {
                    self.gateway_backends.extend(lowered.uses.iter().cloned());
                    self.unusable_backends
                        .extend(lowered.unusable.iter().cloned());
                    attached = frontends
                        .into_iter()
                        .map(|id| (id, bound.clone()))
                        .collect();
                }
                Err(why) => refused = Some(why),
            }
        }
        Some(ParentView {
            reference: Arc::new(reference.clone()),
            parent: owner,
            refused,
            attached,
            unresolved: lowered.unresolved.clone(),
            serves_nothing: lowered.serves_nothing(),
            invalid: lowered.invalid.clone(),
            remarks: warnings::contradicting_filters(self.route),
        })
    }

    fn gateway_form(&mut self) -> (Arc<LoweredRules>, Arc<BoundRoute>) {
        if let Some(both) = &self.gateway_form {
            return both.clone();
        }
        let lowered = self.lower(CrossNamespace::RequiresGrant, None);
        let bound = self.bind(&lowered, RouteBinding::Gateway, self.hostnames.clone());
        let bound = Arc::new(bound);
        let both = (Arc::new(lowered), bound);
        self.gateway_form = Some(both.clone());
        both
    }

    fn lower(&self, cross_namespace: CrossNamespace, implicit: Option<&BackendId>) -> LoweredRules {
        let namespace = &*self.route.metadata.namespace;
        let referrer = ReferringRoute {
            kind: self.route.kind,
            namespace,
            cross_namespace,
        };
        rules::lower(&self.context.reader, self.route, referrer, implicit)
    }

    fn bind(
        &self,
        lowered: &LoweredRules,
        binding: RouteBinding,
        hostnames: Vec<Hostname>,
    ) -> BoundRoute {
        let meta = RouteMeta {
            id: RouteId {
                route: self.key.clone(),
                binding,
            },
            age: self.route.metadata.age(),
            generation: self.route.metadata.generation,
            dialect: Dialect::GatewayApi,
            hostnames,
        };
        BoundRoute::new(meta, lowered.rules.clone())
    }

    fn mesh(
        &mut self,
        reference: &ParentReference,
        parent: ObjectKey,
        kind: &MeshParentKind,
    ) -> ParentView {
        let settings = self.context.settings();
        let cross_namespace = match (settings.binding, settings.reference_grants) {
            (MeshBinding::Strict, _) => CrossNamespace::Forbidden,
            (MeshBinding::Merge, MeshReferenceGrants::Required) => CrossNamespace::RequiresGrant,
            (MeshBinding::Merge, MeshReferenceGrants::Ignored) => CrossNamespace::Allowed,
        };
        let scope = mesh::scope_of(&parent, &self.route.metadata.namespace);
        let transport = Transport::of(self.route.kind);
        let port = self.mesh_ports(reference, &parent, kind);
        // A rule without backendRefs forwards to the port that the request was sent to, so each port has rules of its own.
        let has_implicit = self
            .route
            .spec
            .rules
            .iter()
            .any(|rule| rule.backend_refs.is_empty());
        let first = port
            .as_ref()
            .ok()
            .and_then(|ports| ports.first())
            .copied()
            .unwrap_or(0);
        let id = |port| BackendId::new(parent.clone(), port, transport);
        let lowered = self.lower(cross_namespace, Some(&id(first)));
        let mut refused = match lowered.drops_every_rule() {
            true => Some(("UnsupportedValue", no_rule_served(&lowered.invalid))),
            false => None,
        };
        let mut attached = Vec::new();
        match port {
            Err(why) => refused = Some(why),
            Ok(ports) if refused.is_none() => {
                let binding = |port| RouteBinding::Mesh(has_implicit.then(|| Arc::new(id(port))));
                let shared = Arc::new(self.bind(&lowered, binding(first), Vec::new()));
                self.mesh_backends.extend(lowered.uses.iter().cloned());
                for port in ports {
                    let bound = if has_implicit && port != first {
                        let lowered = self.lower(cross_namespace, Some(&id(port)));
                        self.mesh_backends.extend(lowered.uses.iter().cloned());
                        Arc::new(self.bind(&lowered, binding(port), Vec::new()))
                    } else {
                        shared.clone()
                    };
                    let (parent, scope) = (parent.clone(), scope.clone());
                    attached.push((
                        FrontendId::Mesh {
                            parent,
                            port,
                            transport,
                            scope,
                        },
                        bound,
                    ));
                }
            }
            Ok(_) => {}
        }
        let mut remarks = warnings::contradicting_filters(self.route);
        if !self.hostnames.is_empty() {
            let instead = match self.route.kind {
                Kind::TLSRoute => "; connections match regardless of their SNI",
                _ => "; match the header Host instead",
            };
            remarks.push(format!("hostnames are ignored in the mesh{instead}"));
        }
        ParentView {
            reference: Arc::new(reference.clone()),
            parent,
            refused,
            attached,
            serves_nothing: lowered.serves_nothing(),
            unresolved: lowered.unresolved,
            invalid: lowered.invalid,
            remarks,
        }
    }

    /// Returns the ports that a reference to a mesh parent selects, if MeshSettings allow the route.
    fn mesh_ports(
        &self,
        reference: &ParentReference,
        parent: &ObjectKey,
        kind: &MeshParentKind,
    ) -> Result<Vec<u16>, (&'static str, String)> {
        let reader = &self.context.reader;
        let Some(found) = (kind.read)(reader, &parent.name) else {
            return Err(("NoMatchingParent", reader.missing(parent)));
        };
        if let Some(why) = found.refused {
            return Err(why);
        }
        mesh::check_allowed_routes(
            reader,
            self.context.settings(),
            parent,
            &self.route.metadata.namespace,
        )?;
        let transport = Transport::of(self.route.kind);
        // "If port is not set, the implementation MUST associate the route with all ports defined in the Service."
        let mut ports: Vec<u16> = found
            .ports
            .iter()
            .filter(|port| reference.port.is_none_or(|wanted| wanted == port.port))
            .filter(|port| reference.section_name.is_none() || reference.section_name == port.name)
            .filter(|port| port.protocol == transport.name())
            .map(|port| port.port)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        if ports.is_empty() {
            let known: Vec<String> = found
                .ports
                .iter()
                .map(|p| match &p.name {
                    Some(name) => format!("{} ({name}, {})", p.port, p.protocol),
                    None => format!("{} ({})", p.port, p.protocol),
                })
                .collect();
            let wanted = match (&reference.section_name, reference.port) {
                (Some(name), Some(port)) => format!(" {port} named {name}"),
                (Some(name), None) => format!(" named {name}"),
                (None, Some(port)) => format!(" {port}"),
                (None, None) => String::new(),
            };
            let message = match known.is_empty() {
                true => format!("{parent} has no ports"),
                false => format!(
                    "{parent} has no {transport} port{wanted}; its ports are {}",
                    known.join(", ")
                ),
            };
            return Err(("NoMatchingParent", message));
        }
        Ok(ports)
    }
}

fn no_rule_served(invalid: &[InvalidRule]) -> String {
    let all: Vec<String> = invalid.iter().map(ToString::to_string).collect();
    format!("no rule can be served: {}", all.join("; "))
}
