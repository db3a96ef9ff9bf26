//! Routes that don't apply to traffic of their parents, for `explain`.

use pointsman_resources::ObjectKey;

use super::route::MeshConflict;
use crate::bound::FrontendId;
use crate::{Binder, InactiveReason, InactiveRoute};

impl Binder {
    /// Returns the routes that reference a parent but apply to none of its traffic, and the dropped rules of those that do. Evaluates every route.
    pub fn inactive_routes(&self, parent: &ObjectKey) -> Vec<InactiveRoute> {
        let mut all: Vec<InactiveRoute> = Vec::new();
        for (key, view) in &self.routes {
            let mut refused = None;
            let mut dropped = Vec::new();
            let mut attached = false;
            for view in view.parents.iter().filter(|view| view.parent == *parent) {
                let conflict = self
                    .groups
                    .get(parent)
                    .and_then(|group| group.conflict(key, &view.attached));
                match view.refusal(conflict.as_ref()) {
                    Some((reason, message)) => {
                        let reason = match (&view.refused, &conflict) {
                            (None, Some(MeshConflict::AllPorts(_))) => InactiveReason::Conflicted,
                            _ => InactiveReason::Refused(reason),
                        };
                        refused = refused.or(Some((reason, message)));
                    }
                    None => {
                        attached = true;
                        dropped = view.dropped().collect();
                    }
                }
            }
            let inactive = |rule, reason, message| InactiveRoute {
                route: key.clone(),
                to: None,
                rule,
                reason,
                message,
            };
            if attached {
                let rules = dropped.into_iter();
                all.extend(rules.map(|rule| {
                    let reason = InactiveReason::Refused("UnsupportedValue");
                    inactive(Some(rule.index), reason, rule.why.clone())
                }));
            } else if let Some((reason, message)) = refused {
                all.push(inactive(None, reason, message));
            }
        }
        all.sort_by(|a, b| (&a.route, a.rule).cmp(&(&b.route, b.rule)));
        all
    }

    /// Returns the routes attached to a port of a mesh parent that a route of another kind overrides there.
    pub fn outranked_by_kind(&self, parent: &ObjectKey, port: u16) -> Vec<InactiveRoute> {
        let conflicts = self
            .groups
            .get(parent)
            .into_iter()
            .flat_map(|group| &group.conflicts);
        let at_port =
            |id: &FrontendId| matches!(id, FrontendId::Mesh { port: own, .. } if *own == port);
        conflicts.filter(|((frontend, _), _)| at_port(frontend))
            .map(|((_, route), winner)| InactiveRoute {
                route: route.clone(),
                to: None,
                rule: None,
                reason: InactiveReason::Conflicted,
                message: format!(
                    "overridden by {winner}: only one kind of route applies to port {port}, and {} has lower precedence",
                    route.kind
                ),
            })
            .collect()
    }
}
