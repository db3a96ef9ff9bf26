//! Runs queries and records the differences between their old and new results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_resources::policy::MeshBinding;
use pointsman_resources::{Name, ObjectKey};

use super::attachments::{Attached, record_changes};
use super::collections::SmallSet;
use super::difference::{difference, record_if_changed};
use super::{Input, Query, Reader};
use crate::bound::{BackendId, Frontend, FrontendId};
use crate::endpoint_policy::refused;
use crate::gateway_api::gateway::GatewayView;
use crate::gateway_api::mesh::{GroupMember, MeshGroup};
use crate::gateway_api::route::{RouteContext, RouteView};
use crate::gateway_api::{gateway, mesh, route};
use crate::{Binder, Delta};

impl Binder {
    pub(super) fn compute_settings(&mut self, query: &Query) {
        let reader = Reader::new(&self.store);
        let settings = mesh::settings(&reader);
        self.tracker.record_reads(query, reader.into_inputs());
        if settings != self.settings {
            if settings.binding != self.settings.binding {
                let groups: Vec<ObjectKey> = self.members.keys().cloned().collect();
                for parent in groups {
                    self.tracker.invalidate(Query::MeshParent(parent));
                }
            }
            self.settings = settings;
            self.tracker
                .invalidate_readers(&Input::Result(query.clone()));
        }
    }

    pub(super) fn compute_gateway(&mut self, query: &Query, name: &Name, delta: &mut Delta) {
        let reader = Reader::new(&self.store);
        let view = gateway::evaluate(&reader, name);
        self.tracker.record_reads(query, reader.into_inputs());
        let old = self.gateways.get(name);
        if old.map(Arc::as_ref) == view.as_ref() {
            return;
        }
        let frontends = |view: Option<&GatewayView>| -> BTreeMap<FrontendId, Frontend> {
            view.into_iter()
                .flat_map(GatewayView::frontends)
                .map(|f| (f.id.clone(), f))
                .collect()
        };
        let before = frontends(old.map(Arc::as_ref));
        let after = frontends(view.as_ref());
        difference(&before, &after, &mut delta.frontends);
        match view {
            Some(view) => self.gateways.insert(name.clone(), Arc::new(view)),
            None => self.gateways.remove(name),
        };
        self.placement.record_gateway_change();
        self.tracker
            .invalidate_readers(&Input::Result(query.clone()));
    }

    pub(super) fn compute_route(&mut self, query: &Query, key: &ObjectKey) {
        let context = RouteContext {
            reader: Reader::new(&self.store),
            gateways: &self.gateways,
            settings: &self.settings,
        };
        let view = route::evaluate(&context, key);
        self.tracker
            .record_reads(query, context.reader.into_inputs());
        let old = self.routes.get(key).cloned();
        if old.as_deref() == view.as_ref() {
            return;
        }
        let view = view.map(Arc::new);
        if let Some(old) = old.as_deref() {
            self.count_route(key, old, false);
        }
        if let Some(view) = view.as_deref() {
            self.count_route(key, view, true);
        }
        let listeners = |view: Option<&Arc<RouteView>>| -> Attached {
            let parents = view.into_iter().flat_map(|view| &view.parents);
            parents
                .flat_map(|parent| &parent.attached)
                .filter(|(id, _)| matches!(id, FrontendId::Listener { .. }))
                .map(|(id, bound)| ((id.clone(), key.clone()), bound.clone()))
                .collect()
        };
        record_changes(
            &listeners(old.as_ref()),
            &listeners(view.as_ref()),
            &mut self.attachment_changes,
        );
        for view in [old.as_deref(), view.as_deref()].into_iter().flatten() {
            self.invalidate_groups(view);
        }
        match view {
            Some(view) => self.routes.insert(key.clone(), view),
            None => self.routes.remove(key),
        };
        self.tracker
            .invalidate_readers(&Input::Result(query.clone()));
    }

    /// Invalidates the mesh parents whose precedence depends on a route.
    pub(super) fn invalidate_groups(&mut self, view: &RouteView) {
        for parent in view.mesh_parents() {
            self.tracker.invalidate(Query::MeshParent(parent.clone()));
        }
        if self.settings.binding != MeshBinding::Strict {
            return;
        }
        // Under the earlier GEP-1426 a Service is either a parent or a backend, so routes that conflict with this one are evaluated again too.
        let mut touched = BTreeSet::new();
        if view.mesh_parents().next().is_some() {
            touched.extend(view.mesh_backends.iter().map(|id| id.object.clone()));
        }
        for parent in view.mesh_parents() {
            for user in self
                .mesh_users
                .get(parent)
                .into_iter()
                .flat_map(SmallSet::iter)
            {
                let user = self.routes.get(user);
                touched.extend(
                    user.into_iter()
                        .flat_map(|user| user.mesh_parents().cloned()),
                );
            }
        }
        for object in touched {
            if self.members.contains_key(&object) || self.groups.contains_key(&object) {
                self.tracker.invalidate(Query::MeshParent(object));
            }
        }
    }

    pub(super) fn compute_group(&mut self, query: &Query, parent: &ObjectKey, delta: &mut Delta) {
        let member = |key| {
            let (key, view) = self.routes.get_key_value(key)?;
            Some(GroupMember { key, view })
        };
        let keys = self.members.get(parent);
        let members: Vec<GroupMember<'_>> = keys
            .into_iter()
            .flat_map(SmallSet::iter)
            .filter_map(member)
            .collect();
        let mut others: BTreeSet<&ObjectKey> = BTreeSet::new();
        if self.settings.binding == MeshBinding::Strict {
            others.extend(
                self.mesh_users
                    .get(parent)
                    .into_iter()
                    .flat_map(SmallSet::iter),
            );
            let used = members.iter().flat_map(|member| &member.view.mesh_backends);
            others.extend(
                used.filter_map(|id| self.members.get(&id.object))
                    .flat_map(SmallSet::iter),
            );
        }
        let others: Vec<GroupMember<'_>> = others.into_iter().filter_map(member).collect();
        let group = mesh::resolve_group(&self.settings, parent, members, &others);
        let old = self.groups.remove(parent).unwrap_or_default();
        difference(&old.frontends, &group.frontends, &mut delta.frontends);
        let changes = &mut self.attachment_changes;
        record_changes(&old.attachments, &group.attachments, changes);
        if group.conflicts != old.conflicts || group.strict_conflicts != old.strict_conflicts {
            self.tracker
                .invalidate_readers(&Input::Result(query.clone()));
        }
        if group != MeshGroup::default() {
            self.groups.insert(parent.clone(), group);
        }
    }

    pub(super) fn compute_backend(&mut self, query: &Query, id: &BackendId, delta: &mut Delta) {
        let reader = Reader::new(&self.store);
        let view = match self.users.contains_key(id) {
            true => refused::load_backend(&reader, id),
            false => None,
        };
        self.tracker.record_reads(query, reader.into_inputs());
        let (view, refused) = match view {
            Some((backend, endpoints, refused)) => (Some((backend, endpoints)), refused),
            None => (None, Vec::new()),
        };
        self.set_refused_endpoints(id, refused);
        let old = self.backends.remove(id);
        let (old_backend, old_endpoints) = old.unzip();
        let (backend, endpoints) = view.unzip();
        let backend = record_if_changed(id, old_backend, backend, &mut delta.backends);
        let endpoints = record_if_changed(id, old_endpoints, endpoints, &mut delta.endpoints);
        if let Some(both) = backend.zip(endpoints) {
            self.backends.insert(id.clone(), both);
        }
    }

    pub(super) fn compute_status(&mut self, query: &Query, key: &ObjectKey, delta: &mut Delta) {
        let reader = Reader::new(&self.store);
        let status = self.status_of(&reader, key).map(Arc::new);
        self.tracker.record_reads(query, reader.into_inputs());
        if self.statuses.get(key) != status.as_ref() {
            delta.statuses.push((key.clone(), status.clone()));
            match status {
                Some(status) => self.statuses.insert(key.clone(), status),
                None => self.statuses.remove(key),
            };
        }
    }
}
