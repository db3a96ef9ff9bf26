//! Counts of routes by the listeners, backends and mesh parents that they use.

use std::collections::BTreeSet;

use pointsman_resources::{Name, ObjectKey};

use super::{FastMap, Input, Query, SmallSet, adjust_count};
use crate::Binder;
use crate::bound::{BackendId, FrontendId};
use crate::gateway_api::route::RouteView;

impl Binder {
    /// Adds a route to the counts, or removes it.
    pub(super) fn count_route(&mut self, key: &ObjectKey, view: &RouteView, is_added: bool) {
        let gateways = self.count_attachments(view, is_added);
        let used: BTreeSet<&BackendId> = view.backends().collect();
        for id in used {
            if adjust_count(&mut self.users, id.clone(), is_added) {
                self.tracker.invalidate(Query::Backend(id.clone()));
            }
        }
        let mut reached = objects(&view.gateway_backends);
        reached.extend(view.unusable_backends.iter().cloned());
        for object in &reached {
            self.count_ancestors(object, &gateways, is_added);
        }
        let update = |map: &mut FastMap<ObjectKey, SmallSet<ObjectKey>>, of: &ObjectKey| {
            let routes = map.entry(of.clone()).or_default();
            match is_added {
                true => routes.insert(key.clone()),
                false => routes.remove(key),
            }
            if routes.is_empty() {
                map.remove(of);
            }
        };
        for parent in view.mesh_parents() {
            update(&mut self.members, parent);
        }
        for object in &objects(&view.mesh_backends) {
            update(&mut self.mesh_users, object);
        }
    }

    /// Counts a route at its listeners. Returns the Gateways of these listeners.
    fn count_attachments<'v>(&mut self, view: &'v RouteView, is_added: bool) -> BTreeSet<&'v Name> {
        let mut gateways = BTreeSet::new();
        let mut listeners = BTreeSet::new();
        for parent in &view.parents {
            for (id, _) in &parent.attached {
                let FrontendId::Listener { gateway, owner, .. } = id else {
                    continue;
                };
                gateways.insert(gateway);
                // A route whose rules all reply with 500 is not accepted, so it does not count.
                if !parent.serves_nothing && listeners.insert(id) {
                    adjust_count(&mut self.attached, id.clone(), is_added);
                    let attached = Input::AttachedRoutes(owner.clone());
                    self.tracker.invalidate_readers(&attached);
                }
            }
        }
        gateways
    }

    /// Counts a route of these Gateways at a backend object that it uses.
    fn count_ancestors(&mut self, object: &ObjectKey, gateways: &BTreeSet<&Name>, is_added: bool) {
        let counts = self.ancestors.entry(object.clone()).or_default();
        let before = counts.len();
        for &gateway in gateways {
            match counts.binary_search_by(|(known, _)| known.cmp(gateway)) {
                Ok(at) if is_added => counts[at].1 += 1,
                Ok(at) if counts[at].1 == 1 => {
                    counts.remove(at);
                }
                Ok(at) => counts[at].1 -= 1,
                Err(at) => {
                    counts.reserve_exact(1);
                    counts.insert(at, (gateway.clone(), 1));
                }
            }
        }
        let changed = counts.len() != before;
        if counts.is_empty() {
            self.ancestors.remove(object);
        }
        if changed {
            self.tracker
                .invalidate_readers(&Input::Ancestors(object.clone()));
        }
    }
}

fn objects(backends: &[BackendId]) -> BTreeSet<ObjectKey> {
    backends.iter().map(|id| id.object.clone()).collect()
}
