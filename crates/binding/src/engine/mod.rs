//! The binder: an incremental engine that runs queries over objects and derives the bound form from their results.

pub(crate) mod attachments;
pub(crate) mod collections;
mod compute;
pub(crate) mod difference;
mod infrastructure;
mod placement;
mod query;
mod reader;
mod secrets;
pub(crate) mod store;
mod usage;

pub(crate) use collections::{FastMap, SmallSet, adjust_count};
pub(crate) use query::{Input, Query};
pub(crate) use reader::Reader;

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_resources::core::Secret;
use pointsman_resources::kuma::DataSource;
use pointsman_resources::policy::MeshSettingsSpec;
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use crate::bound::{Backend, BackendId, Endpoints, FrontendId};
use crate::endpoint_policy::refused::{self, RefusedEndpoint};
use crate::gateway_api::certificates;
use crate::gateway_api::gateway::GatewayView;
use crate::gateway_api::mesh::MeshGroup;
use crate::gateway_api::route::RouteView;
use crate::kuma::Kuma;
use crate::status::{Status, has_status};
use crate::{Change, Delta};
use attachments::{AttachedRoutes, AttachmentChange};
use placement::PlacementChanges;
use query::Tracker;
use secrets::Secrets;
use store::Store;

/// Computes the bound form and statuses from objects, incrementally.
#[derive(Default)]
pub struct Binder {
    pub(crate) store: Store,
    pub(crate) tracker: Tracker,
    pub(crate) settings: MeshSettingsSpec,
    pub(crate) gateways: FastMap<Name, Arc<GatewayView>>,
    pub(crate) routes: FastMap<ObjectKey, Arc<RouteView>>,
    pub(crate) groups: FastMap<ObjectKey, MeshGroup>,
    pub(crate) backends: FastMap<BackendId, (Arc<Backend>, Arc<Endpoints>)>,
    /// Endpoints of each backend that the operator's policy refuses.
    pub(crate) refused_endpoints: FastMap<BackendId, Vec<RefusedEndpoint>>,
    pub(crate) statuses: FastMap<ObjectKey, Arc<Status>>,
    /// Number of routes attached to each listener.
    pub(crate) attached: FastMap<FrontendId, usize>,
    /// Number of attached routes that use each backend.
    pub(crate) users: FastMap<BackendId, usize>,
    /// Backends that are needed even without a route.
    pub(crate) needed: BTreeSet<BackendId>,
    /// Gateways whose routes use each backend object, with the number of these routes.
    pub(crate) ancestors: FastMap<ObjectKey, Vec<(Name, usize)>>,
    /// Routes that reference each mesh parent.
    pub(crate) members: FastMap<ObjectKey, SmallSet<ObjectKey>>,
    /// Mesh routes that use each object as a backend.
    pub(crate) mesh_users: FastMap<ObjectKey, SmallSet<ObjectKey>>,
    pub(crate) kuma: Kuma,
    pub(crate) placement: PlacementChanges,
    pub(crate) attached_routes: AttachedRoutes,
    /// Attachments that changed since the last delta.
    pub(crate) attachment_changes: Vec<AttachmentChange>,
    pub(crate) secrets: Secrets,
}

impl Binder {
    /// Creates an empty binder.
    pub fn new() -> Self {
        Binder::default()
    }

    /// Applies changes and returns the resulting delta. If an object changes several times, only the last change counts.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Delta {
        for change in changes {
            match change {
                Change::Put(resource) => self.upsert_or_remove(&resource.key(), Some(resource)),
                Change::Delete(key) => self.upsert_or_remove(&key, None),
                Change::Observe(gateway, seen) => {
                    if self.store.set_observation(&gateway, seen) {
                        self.tracker
                            .invalidate_readers(&Input::Observation(gateway));
                    }
                }
                Change::ObserveInfrastructure(gateway, state) => {
                    if self.store.set_infrastructure(&gateway, state) {
                        self.tracker
                            .invalidate_readers(&Input::Infrastructure(gateway));
                    }
                }
                Change::Reject(key, location) => {
                    if self.store.set_rejection(&key, location) {
                        self.tracker.invalidate_readers(&Input::Object(key));
                    }
                }
                Change::Need(id, needed) => self.set_needed(id, needed),
                Change::Content(source, content) => {
                    if self.store.set_content(&source, content) {
                        self.tracker.invalidate_readers(&Input::Content(source));
                    }
                }
                Change::Identity(mesh, identity) => {
                    if self.store.set_identity(mesh, identity) {
                        self.tracker.invalidate_readers(&Input::Identities);
                    }
                }
                Change::RetainSecret(name, reason) => {
                    if self.store.set_retained(&name, reason) {
                        let kind = Kind::Secret;
                        self.tracker
                            .invalidate_readers(&Input::Object(ObjectKey { kind, name }));
                    }
                }
                Change::Controller(controller) => self.set_controller(controller),
                Change::ServedApi(api) => self.set_served_api(api),
                Change::EndpointPolicy(policy) => self.set_endpoint_policy(policy),
                Change::RefusedResolution(name, refused) => {
                    if self.store.set_refused_resolution(&name, refused) {
                        self.tracker.invalidate_readers(&Input::Resolution(name));
                    }
                }
                Change::Effect(key, effect) => {
                    // Only the status of the object itself depends on it.
                    if self.store.set_effect(&key, effect) {
                        self.tracker.invalidate(Query::Status(key));
                    }
                }
                Change::EffectOnCommit => {
                    self.store.effect_on_commit = true;
                    let keys = self.statuses.keys().cloned();
                    keys.for_each(|key| self.tracker.invalidate(Query::Status(key)));
                }
            }
        }
        let mut delta = Delta::default();
        self.compute_before(query::SECRETS, &mut delta);
        self.update_secret_references(&delta);
        self.compute_before(u8::MAX, &mut delta);
        let changes = std::mem::take(&mut self.attachment_changes);
        self.attached_routes.apply(changes, &mut delta);
        self.update_placement(&mut delta);
        delta
    }

    /// Runs all queries that are due in phases before `end`.
    fn compute_before(&mut self, end: u8, delta: &mut Delta) {
        while let Some(query) = self.tracker.next_before(end) {
            self.compute(&query, delta);
        }
    }

    fn upsert_or_remove(&mut self, key: &ObjectKey, resource: Option<Resource>) {
        let inputs = self.store.upsert_or_remove(key, resource);
        if inputs.is_empty() {
            return;
        }
        for input in &inputs {
            self.tracker.invalidate_readers(input);
        }
        self.placement.record_change(key);
        self.invalidate_queries_of(key);
    }

    fn set_needed(&mut self, id: BackendId, needed: bool) {
        let changed = match needed {
            true => self.needed.insert(id.clone()),
            false => self.needed.remove(&id),
        };
        if changed && adjust_count(&mut self.users, id.clone(), needed) {
            self.tracker.invalidate(Query::Backend(id));
        }
    }

    /// Invalidates the queries that exist because of an object.
    fn invalidate_queries_of(&mut self, key: &ObjectKey) {
        match key.kind {
            Kind::Gateway => self.tracker.invalidate(Query::Gateway(key.name.clone())),
            kind if kind.is_route() => self.tracker.invalidate(Query::Route(key.clone())),
            Kind::XMesh | Kind::MeshSettings => self.tracker.invalidate(Query::Settings),
            _ => self.invalidate_kuma(key),
        }
        if has_status(key.kind) {
            self.tracker.invalidate(Query::Status(key.clone()));
        }
    }

    fn compute(&mut self, query: &Query, delta: &mut Delta) {
        match query {
            Query::Settings => self.compute_settings(query),
            Query::Gateway(name) => self.compute_gateway(query, name, delta),
            Query::Route(key) => self.compute_route(query, key),
            Query::MeshParent(parent) => self.compute_group(query, parent, delta),
            Query::Proxy(key) => self.compute_proxy(query, key),
            Query::Destination(id) => self.compute_destination(query, id, delta),
            Query::MeshGateway(key) => self.compute_mesh_gateway(query, key, delta),
            Query::Backend(id) => self.compute_backend(query, id, delta),
            Query::Status(key) => self.compute_status(query, key, delta),
            Query::Secret(id) => self.compute_secret(query, id, delta),
        }
    }
}

impl Binder {
    /// Returns the status of an object; `None` if Pointsman does not manage it.
    pub fn status(&self, key: &ObjectKey) -> Option<&Arc<Status>> {
        self.statuses.get(key)
    }

    /// Returns a backend with its endpoints, even if no route uses it.
    pub fn backend(&self, id: &BackendId) -> Option<(Backend, Endpoints)> {
        let (backend, endpoints, _) = refused::load_backend(&Reader::new(&self.store), id)?;
        Some((backend, endpoints))
    }

    /// Returns all objects, in arbitrary order.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectKey, &Resource)> {
        self.store.objects()
    }

    /// Returns an object.
    pub fn object(&self, key: &ObjectKey) -> Option<&Resource> {
        self.store.get(key)
    }

    /// Returns the location of an object that validation rejected.
    pub fn rejected(&self, key: &ObjectKey) -> Option<&Arc<str>> {
        self.store.rejected.get(key)
    }

    /// Returns the reason why a new version of a Secret must not replace the one in effect, whose certificate is valid.
    pub fn invalidates(&self, new: &Secret) -> Option<String> {
        let name = new.metadata.key();
        let current = Reader::new(&self.store).certificate(&name)?;
        current.ok()?;
        certificates::from_secret(new).err()
    }

    /// Returns whether an earlier version of a Secret is in effect instead of the newest.
    pub fn is_retained(&self, secret: &Name) -> bool {
        self.store.retained.contains_key(secret)
    }

    /// Returns whether the content of a file or environment variable was read successfully.
    pub fn has_read(&self, source: &DataSource) -> bool {
        matches!(self.store.contents.get(source), Some(Ok(_)))
    }
}
