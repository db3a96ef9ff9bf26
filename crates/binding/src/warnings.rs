//! What is legal but surprising, as far as it can be told from the objects: said by `check`, never in status.

use std::collections::BTreeSet;

use pointsman_resources::refs::ParentReference;
use pointsman_resources::route::{HeaderModifier, Route, RouteFilter};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use crate::Binder;
use crate::bound::{BackendId, Endpoints, FrontendId, Scope};
use crate::parents::{self, Parent};
use crate::status::parent_text;

/// A warning about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The object.
    pub object: ObjectKey,
    /// The field, such as `spec.rules[0].backendRefs`.
    pub field: String,
    /// What is surprising.
    pub message: String,
}

/// The label that enrols a namespace or a Pod into the mesh.
pub const MESH_LABEL: &str = "pointsman.io/mesh";

/// What is said of a policy whose targets get no traffic.
const UNREACHED: &str = "no Gateway sends traffic to its targets, so it has no effect";

impl Binder {
    /// All warnings, in the order of their objects. Looks at everything: for people, not for proxies.
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
                Resource::Gateway(_) => {
                    if let Some(why) = self.explain_unserved(&key.name) {
                        warn("spec.gatewayClassName", why);
                    }
                }
                Resource::ListenerSet(set) if self.has_no_conditions(&key) => {
                    let why = self.explain_unserved(&set.gateway());
                    let kind = &set.spec.parent_ref.kind;
                    let foreign = || format!("a {kind} is not served here");
                    warn("spec.parentRef", why.unwrap_or_else(foreign));
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

    /// Warns about a policy on backends that no Gateway is an ancestor of: its targets are missing, or nothing sends traffic to them.
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
            let target = ObjectKey::new(kind, policy.namespace(), name);
            // Policies act in the mesh too, but have no ancestor there.
            if self.mesh_users.contains_key(&target) {
                return;
            }
            if self.store.get(&target).is_none() {
                let why = self.store.missing(&target);
                missing.push((format!("spec.targetRefs[{index}]"), why));
            }
        }
        if missing.is_empty() {
            return warn("spec.targetRefs", UNREACHED.to_owned());
        }
        for (field, why) in missing {
            warn(&field, format!("{why}, so it has no effect there"));
        }
    }

    /// Warns about a policy on Gateways of which none is served here.
    fn unreached_telemetry<'p>(
        &self,
        policy: &ObjectKey,
        targets: impl Iterator<Item = (&'p str, &'p str, &'p str)>,
        warn: &mut impl FnMut(&str, String),
    ) {
        let mut is_explained = false;
        for (index, (group, kind, name)) in targets.enumerate() {
            let name = Name::new(policy.namespace(), name);
            let is_gateway = Kind::find(group, kind) == Some(Kind::Gateway);
            if let Some(why) = self.explain_unserved(&name).filter(|_| is_gateway) {
                let field = format!("spec.targetRefs[{index}]");
                warn(&field, format!("{why}, so it has no effect there"));
                is_explained = true;
            }
        }
        if !is_explained {
            let message = "none of its targets is a Gateway, so it has no effect";
            warn("spec.targetRefs", message.to_owned());
        }
    }

    fn has_no_conditions(&self, key: &ObjectKey) -> bool {
        self.statuses
            .get(key)
            .is_none_or(|status| status.conditions().is_empty())
    }

    /// Whether a route that wants a frontend has it: in the mesh it may have lost it to another.
    fn is_attached(&self, id: &FrontendId, route: &ObjectKey) -> bool {
        let FrontendId::Mesh { parent, .. } = id else {
            return true;
        };
        let wanted = (id.clone(), route.clone());
        let group = self.groups.get(parent);
        group.is_some_and(|group| group.attachments.contains_key(&wanted))
    }

    /// Why an object that something refers to is not there.
    fn missing(&self, key: &ObjectKey) -> String {
        match self.store.rejected.contains_key(key) {
            true => self.store.missing(key),
            false => format!("{key} does not exist"),
        }
    }

    /// Why a Gateway is not ours to serve; none if it is.
    fn explain_unserved(&self, name: &Name) -> Option<String> {
        if self.gateways.contains_key(name) {
            return None;
        }
        let key = ObjectKey {
            kind: Kind::Gateway,
            name: name.clone(),
        };
        let Some(Resource::Gateway(gateway)) = self.store.get(&key) else {
            return Some(self.missing(&key));
        };
        let class = &gateway.spec.gateway_class_name;
        let class = ObjectKey::new(Kind::GatewayClass, "", class.as_str());
        Some(match self.store.get(&class) {
            Some(Resource::GatewayClass(found)) => format!(
                "{class} is served by {}, not by {}",
                found.spec.controller_name, self.store.controller.name
            ),
            _ => format!("{}, so nobody serves {key}", self.missing(&class)),
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
        for (index, reference) in route.spec.parent_refs.iter().enumerate() {
            let field = format!("spec.parentRefs[{index}]");
            if view.unknown.contains(reference) {
                warn(&field, self.unknown_parent(reference, key.namespace()));
            } else if parents::has_defaulted_group(reference) {
                let parent = parent_text(reference);
                warn(
                    &field,
                    format!(
                        "{parent}: group is left out, which means gateway.networking.k8s.io; write `group: \"\"`"
                    ),
                );
            }
        }
        for (index, rule) in route.spec.rules.iter().enumerate() {
            let field = format!("spec.rules[{index}].backendRefs");
            if !rule.backend_refs.is_empty() && rule.backend_refs.iter().all(|b| b.weight == 0) {
                warn(
                    &field,
                    "all weights are 0: every request is answered with 503".to_owned(),
                );
            }
            header_warnings(&format!("spec.rules[{index}]"), &rule.filters, warn);
            for (place, backend) in rule.backend_refs.iter().enumerate() {
                let field = format!("spec.rules[{index}].backendRefs[{place}]");
                header_warnings(&field, &backend.filters, warn);
            }
        }
        let mut told: BTreeSet<&BackendId> = BTreeSet::new();
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
                    if self.is_without_endpoint(id) && told.insert(id) {
                        let field = format!("spec.rules[{}].backendRefs", rule.index);
                        warn(
                            &field,
                            format!("{id} has no ready endpoint: its share is answered with 503"),
                        );
                    }
                }
            }
        }
        for parent in &view.parents {
            // A mesh route for a Service that nobody enrolled calls does nothing. Told only where enrolment is in use.
            if let Some((FrontendId::Mesh { scope, .. }, _)) = parent.attached.first()
                && let Scope::Namespace(namespace) = scope
                && !enrolled.is_empty()
                && !enrolled.contains(&**namespace)
            {
                let message = format!(
                    "namespace {namespace} has nothing enrolled in the mesh (label {MESH_LABEL}), so nobody follows this route to {}",
                    parent.parent
                );
                warn("spec.parentRefs", message);
            }
        }
    }

    /// Why a parent that a route names is not ours.
    fn unknown_parent(&self, reference: &ParentReference, namespace: &str) -> String {
        let gateway = match parents::resolve(reference, namespace) {
            Parent::Listeners(key) if key.kind == Kind::Gateway => Some(key.name),
            Parent::Listeners(key) => match self.store.get(&key) {
                Some(Resource::ListenerSet(set)) => Some(set.gateway()),
                _ => return self.missing(&key),
            },
            Parent::Mesh(..) | Parent::Unsupported => None,
        };
        let why = gateway.and_then(|gateway| self.explain_unserved(&gateway));
        why.unwrap_or_else(|| {
            let parent = parent_text(reference);
            format!("{parent} is of a kind that is not served here")
        })
    }
}

/// Warns about header modifiers that don't do what they seem to.
fn header_warnings(of: &str, filters: &[RouteFilter], warn: &mut impl FnMut(&str, String)) {
    for (index, filter) in filters.iter().enumerate() {
        for (field, modifier) in header_modifiers(filter) {
            let field = format!("{of}.filters[{index}].{field}");
            for name in modifier.without_effect() {
                let message =
                    format!("this does not change {name}: it is written anew for each connection");
                warn(&field, message);
            }
            for (list, at, header) in modifier.ignored() {
                let name = &header.name;
                let message = format!(
                    "{name} differs from an earlier entry only in case: the first counts, this one is ignored"
                );
                warn(&format!("{field}.{list}[{at}]"), message);
            }
            for message in contradictions(modifier) {
                warn(&field, message);
            }
            for (at, name) in modifier.unremovable() {
                let message = format!("`{name}` is not a header name, so it removes nothing");
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

/// Names on which a modifier acts more than once.
fn contradictions(modifier: &HeaderModifier) -> impl Iterator<Item = String> {
    let all = modifier.contradictions().into_iter();
    all.map(|(name, actions)| {
        let actions = actions.join(" and ");
        format!(
            "{name} stands in {actions}, but only one action for a header name is permitted in a filter; they are applied in the order set, add, remove"
        )
    })
}

/// The same for the status of a route: each with its rule.
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
