//! What is legal but surprising, as far as it can be told from the objects: said by `check`, never in status.

use std::collections::BTreeSet;

use pointsman_resources::{Kind, ObjectKey, Resource};

use crate::Binder;
use crate::bound::{BackendId, Endpoints, FrontendId};
use crate::parents;
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

impl Binder {
    /// All warnings, in the order of their objects. Looks at everything: for people, not for proxies.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut all = Vec::new();
        let mut keys: Vec<&ObjectKey> = self.routes.keys().collect();
        keys.sort();
        for key in keys {
            self.route_warnings(key, &mut all);
        }
        let mut policies: Vec<&ObjectKey> = self
            .statuses
            .keys()
            .filter(|key| key.kind == Kind::BackendTLSPolicy)
            .collect();
        policies.sort();
        for key in policies {
            let none = self
                .statuses
                .get(key)
                .is_some_and(|status| status.conditions().is_empty());
            if none {
                let message =
                    "no Gateway sends traffic to its targets, so it has no effect".to_owned();
                let field = "spec.targetRefs".to_owned();
                all.push(Warning {
                    object: key.clone(),
                    field,
                    message,
                });
            }
        }
        all
    }

    fn route_warnings(&self, key: &ObjectKey, all: &mut Vec<Warning>) {
        let Some(Resource::Route(route)) = self.store.get(key) else {
            return;
        };
        let Some(view) = self.routes.get(key) else {
            return;
        };
        let mut warn = |field: String, message: String| {
            all.push(Warning {
                object: key.clone(),
                field,
                message,
            });
        };
        for (index, reference) in route.spec.parent_refs.iter().enumerate() {
            let field = format!("spec.parentRefs[{index}]");
            let parent = parent_text(reference);
            if view.unknown.contains(reference) {
                let message = match parents::of(reference, key.namespace()) {
                    parents::Parent::Foreign => {
                        format!("{parent} is of a kind that is not served here")
                    }
                    _ => format!("{parent} does not exist, or is served by another controller"),
                };
                warn(field, message);
            } else if parents::has_defaulted_group(reference) {
                warn(
                    field,
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
                    field,
                    "all weights are 0: every request is answered with 503".to_owned(),
                );
            }
        }
        let mut told: BTreeSet<&BackendId> = BTreeSet::new();
        for bound in view
            .parents
            .iter()
            .flat_map(|parent| &parent.attached)
            .map(|(_, bound)| bound)
        {
            for rule in &bound.rules {
                for backend in rule.backends.iter().filter(|backend| backend.weight > 0) {
                    let Ok(id) = &backend.target else { continue };
                    let empty = self.backends.get(id).is_some_and(|found| {
                        matches!(&found.endpoints, Endpoints::Addresses(list) if list.is_empty())
                    });
                    if empty && told.insert(id) {
                        let field = format!("spec.rules[{}].backendRefs", rule.index);
                        warn(
                            field,
                            format!("{id} has no ready endpoint: its share is answered with 503"),
                        );
                    }
                }
            }
        }
        self.enrolment_warnings(view, &mut warn);
    }

    /// A mesh route for a Service that nobody enrolled calls does nothing. Told only where enrolment is in use.
    fn enrolment_warnings(
        &self,
        view: &crate::route::RouteView,
        warn: &mut impl FnMut(String, String),
    ) {
        let enrolled = self.store.enrolled_namespaces(MESH_LABEL);
        if enrolled.is_empty() {
            return;
        }
        for parent in &view.parents {
            if let Some((FrontendId::Mesh { scope, .. }, _)) = parent.attached.first()
                && let crate::bound::Scope::Namespace(namespace) = scope
                && !enrolled.contains(&**namespace)
            {
                let message = format!(
                    "namespace {namespace} has nothing enrolled in the mesh (label {MESH_LABEL}), so nobody follows this route to {}",
                    parent.parent
                );
                warn("spec.parentRefs".to_owned(), message);
            }
        }
    }
}
