//! Converts changed attachments to changes of routes, rules and attachments, so that one changed rule is one item of a delta.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_resources::ObjectKey;

use super::FastMap;
use crate::Delta;
use crate::bound::{Attachment, BoundRoute, BoundRule, FrontendId, RouteId, RuleId};

/// A frontend's route before and after a change.
pub(crate) struct AttachmentChange {
    frontend: FrontendId,
    old: Option<Arc<BoundRoute>>,
    new: Option<Arc<BoundRoute>>,
}

/// Routes by the frontend that they are attached to.
pub(crate) type Attached = BTreeMap<(FrontendId, ObjectKey), Arc<BoundRoute>>;

/// Records the difference between two sets of attachments.
pub(crate) fn record_changes(
    before: &Attached,
    after: &Attached,
    changes: &mut Vec<AttachmentChange>,
) {
    for (key, old) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        changes.push(AttachmentChange {
            frontend: key.0.clone(),
            old: Some(old.clone()),
            new: None,
        });
    }
    // Consecutive frontends often share a route, so the last comparison is kept.
    let mut last: Option<([*const BoundRoute; 2], bool)> = None;
    for (key, new) in after {
        let old = before.get(key);
        let same = old.is_some_and(|old| {
            let both = [Arc::as_ptr(old), Arc::as_ptr(new)];
            match last {
                Some((known, same)) if known == both => same,
                _ => {
                    let same = Arc::ptr_eq(old, new) || old == new;
                    last = Some((both, same));
                    same
                }
            }
        });
        if !same {
            changes.push(AttachmentChange {
                frontend: key.0.clone(),
                old: old.cloned(),
                new: Some(new.clone()),
            });
        }
    }
}

/// Attached routes, each with the number of its attachments.
#[derive(Default)]
pub(crate) struct AttachedRoutes(FastMap<RouteId, (Arc<BoundRoute>, usize)>);

impl AttachedRoutes {
    /// Applies changed attachments and adds the resulting changes to a delta.
    pub fn apply(&mut self, changes: Vec<AttachmentChange>, delta: &mut Delta) {
        let mut touched: BTreeSet<RouteId> = BTreeSet::new();
        let mut before: FastMap<RouteId, Arc<BoundRoute>> = FastMap::default();
        for AttachmentChange { frontend, old, new } in changes {
            let moved = old.as_ref().map(|route| &route.id) != new.as_ref().map(|route| &route.id);
            if let Some(new) = new {
                let id = &new.id;
                if touched.insert(id.clone())
                    && let Some((known, _)) = self.0.get(id)
                {
                    before.insert(id.clone(), known.clone());
                }
                let entry = self.0.entry(id.clone());
                let entry = entry.or_insert_with(|| (new.clone(), 0));
                entry.0 = new.clone();
                if moved {
                    entry.1 += 1;
                    let attachment = Attachment::new(&frontend, id);
                    delta.attachments.push((attachment, true));
                }
            }
            if let Some(old) = old.filter(|_| moved) {
                let id = &old.id;
                if touched.insert(id.clone())
                    && let Some((known, _)) = self.0.get(id)
                {
                    before.insert(id.clone(), known.clone());
                }
                if let Some(entry) = self.0.get_mut(id) {
                    entry.1 -= 1;
                }
                let attachment = Attachment::new(&frontend, id);
                delta.attachments.push((attachment, false));
            }
        }
        for id in touched {
            if self.0.get(&id).is_some_and(|(_, users)| *users == 0) {
                self.0.remove(&id);
            }
            let new = self.0.get(&id).map(|(route, _)| &**route);
            difference(&id, before.get(&id).map(|route| &**route), new, delta);
        }
    }
}

/// Adds the differences between two versions of a route to a delta.
fn difference(id: &RouteId, old: Option<&BoundRoute>, new: Option<&BoundRoute>, delta: &mut Delta) {
    let meta = |route: Option<&BoundRoute>| route.map(|route| route.meta.clone());
    if meta(old) != meta(new) {
        delta.routes.push((id.clone(), meta(new)));
    }
    fn rules(route: Option<&BoundRoute>) -> BTreeMap<(usize, usize), &Arc<BoundRule>> {
        let rules = route.into_iter().flat_map(|route| &route.rules);
        rules.map(|rule| ((rule.index, rule.part), rule)).collect()
    }
    let (old, new) = (rules(old), rules(new));
    let rule_id = |(index, part): (usize, usize)| RuleId {
        route: id.clone(),
        index,
        part,
    };
    for position in old.keys().filter(|position| !new.contains_key(position)) {
        delta.rules.push((rule_id(*position), None));
    }
    for (position, rule) in new {
        if old.get(&position).is_none_or(|old| **old != *rule) {
            delta.rules.push((rule_id(position), Some(rule.clone())));
        }
    }
}
