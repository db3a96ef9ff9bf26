//! Warnings about valid but surprising configuration. `check` prints them; they are never part of a status.

use std::collections::BTreeSet;

use pointsman_resources::gateway::{Listener, Namespaces};
use pointsman_resources::refs::ParentReference;
use pointsman_resources::route::{HeaderModifier, Route, RouteFilter};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use crate::Binder;
use crate::bound::{BackendId, Endpoints, FrontendId, Scope};
use crate::gateway_api::namespaces;
use crate::gateway_api::parents::{self, Parent};
use crate::status::parent_text;

/// A warning about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The object.
    pub object: ObjectKey,
    /// The field, such as `spec.rules[0].backendRefs`.
    pub field: String,
    /// Human-readable text.
    pub message: String,
}

/// Label that enrols a namespace or a Pod into the mesh.
pub const MESH_LABEL: &str = "pointsman.io/mesh";

/// Message about a policy whose targets get no traffic.
const NO_TRAFFIC: &str = "no Gateway sends traffic to its targets, so the policy has no effect";

impl Binder {
    /// Returns all warnings, sorted by object. Evaluates every object.
    pub fn warnings(&self) -> Vec<Warning> {
        let enrolled = self.store.enrolled_namespaces(MESH_LABEL);
        let mut objects: Vec<(ObjectKey, &Resource)> = self.store.objects().collect();
        objects.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut all = Vec::new();
        for (key, object) in objects {
            let mut warn = |field: &str, message: String| {
                all.push(Warning {
                    object: key.clone(),
                    field: field.to_owned(),
                    message,
                });
            };
            match object {
                Resource::Route(route) => self.route_warnings(&key, route, &enrolled, &mut warn),
                Resource::Gateway(gateway) => match self.explain_unserved(&key.name) {
                    Some(reason) => warn("spec.gatewayClassName", reason),
                    None => {
                        let sets = gateway.spec.allowed_listeners.as_ref();
                        let sets = sets.and_then(|allowed| allowed.namespaces.as_ref());
                        selector_warning("spec.allowedListeners", sets, "ListenerSet", &mut warn);
                        listener_warnings(&gateway.spec.listeners, &mut warn);
                    }
                },
                Resource::ListenerSet(set) if !self.has_no_conditions(&key) => {
                    listener_warnings(&set.spec.listeners, &mut warn);
                }
                Resource::ListenerSet(set) => {
                    let reason = self.explain_unserved(&set.gateway());
                    let kind = &set.spec.parent_ref.kind;
                    let unsupported = || format!("a {kind} is not supported as a parent");
                    warn("spec.parentRef", reason.unwrap_or_else(unsupported));
                }
                Resource::MeshSettings(settings) => {
                    let allowed = &settings.spec.allowed_routes;
                    for (role, scope) in [
                        ("producers", &allowed.producers),
                        ("consumers", &allowed.consumers),
                    ] {
                        let choice = scope.as_ref().and_then(|scope| scope.namespaces.as_ref());
                        let of = format!("spec.allowedRoutes.{role}");
                        selector_warning(&of, choice, "route", &mut warn);
                    }
                }
                Resource::BackendTLSPolicy(policy) if self.has_no_conditions(&key) => {
                    let targets = policy.spec.target_refs.iter();
                    let targets = targets.map(|t| (&*t.group, &*t.kind, &*t.name));
                    self.unreached_policy(&key, targets, &mut warn);
                }
                Resource::XBackendTrafficPolicy(policy) if self.has_no_conditions(&key) => {
                    let targets = policy.spec.target_refs.iter();
                    let targets = targets.map(|t| (&*t.group, &*t.kind, &*t.name));
                    self.unreached_policy(&key, targets, &mut warn);
                }
                Resource::XTelemetryPolicy(policy) if self.has_no_conditions(&key) => {
                    let targets = policy.spec.target_refs.iter();
                    let targets = targets.map(|t| (&*t.group, &*t.kind, &*t.name));
                    self.unreached_telemetry(&key, targets, &mut warn);
                }
                _ => {}
            }
        }
        all.extend(self.mesh_warnings());
        all
    }

    pub(crate) fn is_without_endpoint(&self, id: &BackendId) -> bool {
        self.backends.get(id).is_some_and(
            |(_, endpoints)| matches!(&**endpoints, Endpoints::Addresses(list) if list.is_empty()),
        )
    }

    /// Warns about a backend policy without an ancestor Gateway: its targets don't exist, or no route of a Gateway uses them.
    fn unreached_policy<'p>(
        &self,
        policy: &ObjectKey,
        targets: impl Iterator<Item = (&'p str, &'p str, &'p str)>,
        warn: &mut impl FnMut(&str, String),
    ) {
        let mut missing = Vec::new();
        for (index, (group, kind, name)) in targets.enumerate() {
            let Some(kind) = Kind::find(group, kind) else {
                continue;
            };
            let target = ObjectKey::new(kind, policy.namespace().clone(), name);
            // Policies apply to mesh routes too, which are not ancestors.
            if self.mesh_users.contains_key(&target) {
                return;
            }
            if self.store.get(&target).is_none() {
                let reason = self.store.missing(&target);
                missing.push((format!("spec.targetRefs[{index}]"), reason));
            }
        }
        if missing.is_empty() {
            return warn("spec.targetRefs", NO_TRAFFIC.to_owned());
        }
        for (field, reason) in missing {
            warn(
                &field,
                format!("{reason}, so the policy has no effect there"),
            );
        }
    }

    /// Warns about a policy none of whose targets is a Gateway that Pointsman serves.
    fn unreached_telemetry<'p>(
        &self,
        policy: &ObjectKey,
        targets: impl Iterator<Item = (&'p str, &'p str, &'p str)>,
        warn: &mut impl FnMut(&str, String),
    ) {
        let mut is_explained = false;
        for (index, (group, kind, name)) in targets.enumerate() {
            let name = Name::new(policy.namespace().clone(), name);
            let is_gateway = Kind::find(group, kind) == Some(Kind::Gateway);
            if let Some(reason) = self.explain_unserved(&name).filter(|_| is_gateway) {
                let field = format!("spec.targetRefs[{index}]");
                warn(
                    &field,
                    format!("{reason}, so the policy has no effect there"),
                );
                is_explained = true;
            }
        }
        if !is_explained {
            let message = "no target is a Gateway, so the policy has no effect";
            warn("spec.targetRefs", message.to_owned());
        }
    }

    fn has_no_conditions(&self, key: &ObjectKey) -> bool {
        self.statuses
            .get(key)
            .is_none_or(|status| status.conditions().is_empty())
    }

    /// Returns whether a route applies to a frontend: in the mesh, a route of another kind may override it.
    fn is_attached(&self, id: &FrontendId, route: &ObjectKey) -> bool {
        let FrontendId::Mesh { parent, .. } = id else {
            return true;
        };
        let attachment = (id.clone(), route.clone());
        let group = self.groups.get(parent);
        group.is_some_and(|group| group.attachments.contains_key(&attachment))
    }

    /// Explains why Pointsman does not serve a Gateway; `None` if it does.
    fn explain_unserved(&self, name: &Name) -> Option<String> {
        if self.gateways.contains_key(name) {
            return None;
        }
        let key = ObjectKey {
            kind: Kind::Gateway,
            name: name.clone(),
        };
        let Some(Resource::Gateway(gateway)) = self.store.get(&key) else {
            return Some(self.store.missing(&key));
        };
        let class = &gateway.spec.gateway_class_name;
        let class = ObjectKey::new(Kind::GatewayClass, "", class.as_str());
        Some(match self.store.get(&class) {
            Some(Resource::GatewayClass(found)) => format!(
                "{class} belongs to controller {}, not {}",
                found.spec.controller_name, self.store.controller.name
            ),
            _ => format!("{}, so {key} is not served", self.store.missing(&class)),
        })
    }

    fn route_warnings(
        &self,
        key: &ObjectKey,
        route: &Route,
        enrolled: &BTreeSet<&str>,
        warn: &mut impl FnMut(&str, String),
    ) {
        let Some(view) = self.routes.get(key) else {
            return;
        };
        if route.spec.parent_refs.is_empty() && view.parents.is_empty() {
            let message = "there is no parentRef, so the route has no effect";
            warn("spec.parentRefs", message.to_owned());
        }
        for (index, reference) in route.spec.parent_refs.iter().enumerate() {
            let field = format!("spec.parentRefs[{index}]");
            if view.unknown_parents.contains(reference) {
                warn(&field, self.unknown_parent(reference, key.namespace()));
            } else if parents::has_defaulted_group(reference) {
                let parent = parent_text(reference);
                warn(
                    &field,
                    format!(
                        "{parent}: group is omitted and defaults to gateway.networking.k8s.io; for a Service, write `group: \"\"`"
                    ),
                );
            }
        }
        for (index, rule) in route.spec.rules.iter().enumerate() {
            let field = format!("spec.rules[{index}].backendRefs");
            if !rule.backend_refs.is_empty() && rule.backend_refs.iter().all(|b| b.weight == 0) {
                let message = match route.kind {
                    Kind::TLSRoute | Kind::TCPRoute => {
                        "all weights are 0, so every connection is closed"
                    }
                    Kind::UDPRoute => "all weights are 0, so every datagram is dropped",
                    _ => "all weights are 0, so every request gets 503",
                };
                warn(&field, message.to_owned());
            }
            header_warnings(&format!("spec.rules[{index}]"), &rule.filters, warn);
            for (position, backend) in rule.backend_refs.iter().enumerate() {
                let field = format!("spec.rules[{index}].backendRefs[{position}]");
                header_warnings(&field, &backend.filters, warn);
            }
        }
        let mut reported: BTreeSet<&BackendId> = BTreeSet::new();
        for bound in view
            .parents
            .iter()
            .flat_map(|parent| &parent.attached)
            .filter(|(id, _)| self.is_attached(id, key))
            .map(|(_, bound)| bound)
        {
            for rule in &bound.rules {
                for backend in rule.backends.iter().filter(|backend| backend.weight > 0) {
                    let Ok(id) = &backend.target else { continue };
                    if self.is_without_endpoint(id) && reported.insert(id) {
                        let field = format!("spec.rules[{}].backendRefs", rule.index);
                        let share = match route.kind {
                            Kind::TLSRoute | Kind::TCPRoute => "connections is closed",
                            Kind::UDPRoute => "datagrams is dropped",
                            _ => "requests gets 503",
                        };
                        let message = format!("{id} has no ready endpoint; its share of {share}");
                        warn(&field, message);
                    }
                }
            }
        }
        for parent in &view.parents {
            // A consumer route has no effect if no client in its namespace is enrolled. Reported only if enrolment is in use at all.
            if let Some((FrontendId::Mesh { scope, .. }, _)) = parent.attached.first()
                && let Scope::Namespace(namespace) = scope
                && !enrolled.is_empty()
                && !enrolled.contains(&**namespace)
            {
                let message = format!(
                    "no client in namespace {namespace} is enrolled in the mesh (label {MESH_LABEL}), so this route to {} has no effect",
                    parent.parent
                );
                warn("spec.parentRefs", message);
            }
        }
    }

    /// Explains why Pointsman does not manage a parent of a route.
    fn unknown_parent(&self, reference: &ParentReference, namespace: &str) -> String {
        let gateway = match parents::resolve(reference, namespace) {
            Parent::Listeners(key) if key.kind == Kind::Gateway => Some(key.name),
            Parent::Listeners(key) => match self.store.get(&key) {
                Some(Resource::ListenerSet(set)) => Some(set.gateway()),
                _ => return self.store.missing(&key),
            },
            Parent::Mesh(..) | Parent::Unsupported => None,
        };
        let reason = gateway.and_then(|gateway| self.explain_unserved(&gateway));
        reason.unwrap_or_else(|| {
            let parent = parent_text(reference);
            format!("{parent} is not a supported kind of parent; supported kinds: Gateway, ListenerSet, Service, ServiceImport")
        })
    }
}

/// Warns about listeners whose selector of namespaces allows no route.
fn listener_warnings(listeners: &[Listener], warn: &mut impl FnMut(&str, String)) {
    for (index, listener) in listeners.iter().enumerate() {
        let of = format!("spec.listeners[{index}].allowedRoutes");
        let choice = listener.allowed_routes.namespaces.as_ref();
        selector_warning(&of, choice, "route", warn);
    }
}

/// Warns about a selector of namespaces that is missing or invalid and therefore selects nothing.
fn selector_warning(
    of: &str,
    choice: Option<&Namespaces>,
    what: &str,
    warn: &mut impl FnMut(&str, String),
) {
    if let Some(why) = namespaces::selects_none(choice) {
        warn(
            &format!("{of}.namespaces"),
            format!("{why}, so no {what} is allowed"),
        );
    }
}

/// Warns about header modifiers without effect.
fn header_warnings(of: &str, filters: &[RouteFilter], warn: &mut impl FnMut(&str, String)) {
    for (index, filter) in filters.iter().enumerate() {
        for (field, modifier) in header_modifiers(filter) {
            let field = format!("{of}.filters[{index}].{field}");
            for name in modifier.without_effect() {
                let message =
                    format!("{name} can't be modified: the proxy sets it for each connection");
                warn(&field, message);
            }
            for (list, at, header) in modifier.ignored() {
                let name = &header.name;
                let message = format!(
                    "this entry for {name} is ignored, because an earlier one differs from it only in case"
                );
                warn(&format!("{field}.{list}[{at}]"), message);
            }
            for message in contradictions(modifier) {
                warn(&field, message);
            }
            for (at, name) in modifier.unremovable() {
                let message = format!("`{name}` is not a valid header name, so it removes nothing");
                warn(&format!("{field}.remove[{at}]"), message);
            }
        }
    }
}

fn header_modifiers(filter: &RouteFilter) -> impl Iterator<Item = (&'static str, &HeaderModifier)> {
    let request = filter.request_header_modifier.as_ref();
    let response = filter.response_header_modifier.as_ref();
    let request = request.map(|modifier| ("requestHeaderModifier", modifier));
    let response = response.map(|modifier| ("responseHeaderModifier", modifier));
    request.into_iter().chain(response)
}

/// Describes the headers to which a modifier applies several actions.
fn contradictions(modifier: &HeaderModifier) -> impl Iterator<Item = String> {
    let all = modifier.contradictions().into_iter();
    all.map(|(name, actions)| {
        let actions = actions.join(" and ");
        format!(
            "{name} is in {actions}, but a filter may have only one action for a header; they are applied in the order set, add, remove"
        )
    })
}

/// Describes the contradicting header modifiers of a route, with their rules, for its status.
pub(crate) fn contradicting_filters(route: &Route) -> Vec<String> {
    let mut all = Vec::new();
    for (index, rule) in route.spec.rules.iter().enumerate() {
        let of_backends = rule
            .backend_refs
            .iter()
            .flat_map(|backend| &backend.filters);
        let modifiers = rule.filters.iter().chain(of_backends);
        let modifiers = modifiers.flat_map(header_modifiers);
        for message in modifiers.flat_map(|(_, modifier)| contradictions(modifier)) {
            let message = format!("rule {index}: header {message}");
            if !all.contains(&message) {
                all.push(message);
            }
        }
    }
    all
}
