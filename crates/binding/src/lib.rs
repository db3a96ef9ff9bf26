//! Binds routes and policies to the objects that they reference: attachment, conflicts, merging, and resolution of references.
//!
//! [`Binder::apply`] takes changes to objects and returns the resulting changes of the bound form and of statuses. The binder caches results and records
//! their inputs, so the cost of a change depends on the results that it affects, not on the size of the cluster. Nothing here does I/O or reads a clock.

pub mod bound;
mod endpoint_policy;
mod engine;
mod gateway_api;
mod kuma;
pub mod status;
pub mod x509;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bound::{
    AddressRequest, Attachment, Backend, BackendId, BoundRule, CertifiedKey, Endpoints, Frontend,
    FrontendId, MeshIdentity, RouteId, RouteMeta, RuleId, SecretId, ServiceAddresses, Workload,
};
use endpoint_policy::refused::RefusedEndpoint;
use engine::attachments::{Attached, AttachedRoutes, AttachmentChange, record_changes};
use engine::collections::SmallSet;
use engine::placement::PlacementChanges;
use engine::secrets::Secrets;
use engine::store::{FastMap, Input, Query, Reader, Store, Tracker};
use gateway_api::gateway::GatewayView;
use gateway_api::mesh::{GroupMember, MeshGroup};
use gateway_api::route::{RouteContext, RouteView};
use pointsman_resources::core::Secret;
use pointsman_resources::kuma::DataSource;
use pointsman_resources::policy::{MeshBinding, MeshSettingsSpec};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};
use status::Status;

pub use endpoint_policy::{EndpointPolicy, Network, RefusedAddress, is_reached_at};
pub use gateway_api::certificates::parse_certified_key;
pub use gateway_api::controller::{CONTROLLER_NAME, Controller};
pub use gateway_api::observation::Observation;
pub use gateway_api::served_api::ServedApi;
pub use kuma::{MergedRule, MergedRules, UnresolvedOutbound};
pub use status::certificate_warnings::CERTIFICATE_KINDS;
pub use status::warnings::Warning;

/// A change to one of the binder's inputs.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds or replaces an object.
    Put(Resource),
    /// Removes an object.
    Delete(ObjectKey),
    /// Sets the state of a Gateway in the data plane. Without one, the Gateway is assumed to be programmed as written.
    Observe(Name, Option<Observation>),
    /// Sets the location (file and line) of an object that validation rejected, for the status of objects that reference it; `None` if it is valid or gone.
    Reject(ObjectKey, Option<Arc<str>>),
    /// Sets whether a backend is needed even without a route: that of a Service called by its own address.
    Need(BackendId, bool),
    /// Sets the content of a file or environment variable that a policy names, or the reason why it can't be read; `None` if unknown.
    Content(DataSource, Option<Content>),
    /// Sets the certificate of a Kuma mesh, or the reason why there is none; `None` if unknown, as in `check`.
    Identity(Arc<str>, Option<Identity>),
    /// Sets the reason why the newest version of a Secret is not used and an earlier one stays in effect; `None` if the newest is used.
    RetainSecret(Name, Option<String>),
    /// Sets the identity of this installation.
    Controller(Arc<Controller>),
    /// Kinds that the cluster serves.
    ServedApi(Arc<ServedApi>),
    /// Sets which addresses may be endpoints.
    EndpointPolicy(Arc<EndpointPolicy>),
    /// Sets the addresses of a backend's DNS name that a proxy resolved and refused.
    RefusedResolution(Arc<str>, Vec<IpAddr>),
}

/// The certificate that proxies of a Kuma mesh present to each other, or the reason why there is none.
pub type Identity = Result<Arc<MeshIdentity>, String>;

/// Content of a data source, or the reason why it can't be read.
pub type Content = Result<Arc<[u8]>, String>;

/// Changes to the bound form and to statuses. A value of `None` is a removal.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Frontends.
    pub frontends: Vec<(FrontendId, Option<Arc<Frontend>>)>,
    /// Attached routes, without their rules.
    pub routes: Vec<(RouteId, Option<Arc<RouteMeta>>)>,
    /// Rules of attached routes.
    pub rules: Vec<(RuleId, Option<Arc<BoundRule>>)>,
    /// Attachments: `true` for an added one, `false` for a removed one.
    pub attachments: Vec<(Attachment, bool)>,
    /// Backends.
    pub backends: Vec<(BackendId, Option<Arc<Backend>>)>,
    /// Endpoints of backends.
    pub endpoints: Vec<(BackendId, Option<Arc<Endpoints>>)>,
    /// Certificates with their keys.
    pub secrets: Vec<(SecretId, Option<Arc<CertifiedKey>>)>,
    /// Addresses that Gateways request.
    pub gateways: Vec<(Name, Option<Arc<AddressRequest>>)>,
    /// Addresses of Services and ServiceImports.
    pub services: Vec<(ObjectKey, Option<Arc<ServiceAddresses>>)>,
    /// Pods and Dataplanes.
    pub workloads: Vec<(ObjectKey, Option<Arc<Workload>>)>,
    /// Statuses of objects.
    pub statuses: Vec<(ObjectKey, Option<Arc<Status>>)>,
}

impl Delta {
    /// Returns whether anything but statuses changed.
    pub fn affects_traffic(&self) -> bool {
        !self.endpoints.is_empty() || self.affects_more_than_endpoints()
    }

    /// Returns whether anything but statuses and endpoints changed.
    pub fn affects_more_than_endpoints(&self) -> bool {
        let Delta {
            frontends,
            routes,
            rules,
            attachments,
            backends,
            endpoints: _,
            secrets,
            gateways,
            services,
            workloads,
            statuses: _,
        } = self;
        !(frontends.is_empty()
            && routes.is_empty()
            && rules.is_empty()
            && attachments.is_empty()
            && backends.is_empty()
            && secrets.is_empty()
            && gateways.is_empty()
            && services.is_empty()
            && workloads.is_empty())
    }
}

/// A route or policy, or one of its rules, that does not apply to traffic of a parent that it selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InactiveRoute {
    /// The route or policy.
    pub route: ObjectKey,
    /// Index of the policy's `to` item that contains the rule.
    pub to: Option<usize>,
    /// Index of the rule; `None` for the whole route.
    pub rule: Option<usize>,
    /// Machine-readable reason, as in its condition.
    pub reason: &'static str,
    /// Human-readable reason.
    pub message: String,
}

/// Computes the bound form and statuses from objects, incrementally.
#[derive(Default)]
pub struct Binder {
    store: Store,
    tracker: Tracker,
    settings: MeshSettingsSpec,
    gateways: FastMap<Name, Arc<GatewayView>>,
    routes: FastMap<ObjectKey, Arc<RouteView>>,
    groups: FastMap<ObjectKey, MeshGroup>,
    backends: FastMap<BackendId, (Arc<Backend>, Arc<Endpoints>)>,
    /// Endpoints of each backend that the operator's policy refuses.
    refused_endpoints: FastMap<BackendId, Vec<RefusedEndpoint>>,
    statuses: FastMap<ObjectKey, Arc<Status>>,
    /// Number of routes attached to each listener.
    attached: FastMap<FrontendId, usize>,
    /// Number of attached routes that use each backend.
    users: FastMap<BackendId, usize>,
    /// Backends that are needed even without a route.
    needed: BTreeSet<BackendId>,
    /// Gateways whose routes use each backend object, with the number of these routes.
    ancestors: FastMap<ObjectKey, Vec<(Name, usize)>>,
    /// Routes that reference each mesh parent.
    members: FastMap<ObjectKey, SmallSet<ObjectKey>>,
    /// Mesh routes that use each object as a backend.
    mesh_users: FastMap<ObjectKey, SmallSet<ObjectKey>>,
    kuma: kuma::Kuma,
    placement: PlacementChanges,
    attached_routes: AttachedRoutes,
    /// Attachments that changed since the last delta.
    attachment_changes: Vec<AttachmentChange>,
    secrets: Secrets,
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
                Change::Put(resource) => self.put(&resource.key(), Some(resource)),
                Change::Delete(key) => self.put(&key, None),
                Change::Observe(gateway, seen) => {
                    if self.store.set_observation(&gateway, seen) {
                        self.tracker
                            .invalidate_readers(&Input::Observation(gateway));
                    }
                }
                Change::Reject(key, location) => {
                    if self.store.set_rejection(&key, location) {
                        self.tracker.invalidate_readers(&Input::Object(key));
                    }
                }
                Change::Need(id, needed) => self.need(id, needed),
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
            }
        }
        let mut delta = Delta::default();
        self.compute_all(&mut delta);
        self.update_secret_references(&delta);
        self.compute_all(&mut delta);
        let changes = std::mem::take(&mut self.attachment_changes);
        self.attached_routes.apply(changes, &mut delta);
        self.update_placement(&mut delta);
        delta
    }

    fn compute_all(&mut self, delta: &mut Delta) {
        while let Some(query) = self.tracker.next() {
            self.compute(&query, delta);
        }
    }

    fn put(&mut self, key: &ObjectKey, resource: Option<Resource>) {
        let inputs = self.store.put(key, resource);
        if inputs.is_empty() {
            return;
        }
        for input in &inputs {
            self.tracker.invalidate_readers(input);
        }
        self.placement.record_change(key);
        self.invalidate_queries_of(key);
    }

    fn need(&mut self, id: BackendId, needed: bool) {
        let changed = match needed {
            true => self.needed.insert(id.clone()),
            false => self.needed.remove(&id),
        };
        if changed && engine::store::adjust_count(&mut self.users, id.clone(), needed) {
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

    fn compute_settings(&mut self, query: &Query) {
        let reader = Reader::new(&self.store);
        let settings = gateway_api::mesh::settings(&reader);
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

    fn compute_gateway(&mut self, query: &Query, name: &Name, delta: &mut Delta) {
        let reader = Reader::new(&self.store);
        let view = gateway_api::gateway::evaluate(&reader, name);
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

    fn compute_route(&mut self, query: &Query, key: &ObjectKey) {
        let context = RouteContext {
            reader: Reader::new(&self.store),
            gateways: &self.gateways,
            settings: &self.settings,
        };
        let view = gateway_api::route::evaluate(&context, key);
        self.tracker
            .record_reads(query, context.reader.into_inputs());
        let old = self.routes.get(key).cloned();
        if old.as_deref() == view.as_ref() {
            return;
        }
        let view = view.map(Arc::new);
        self.count(key, old.as_deref(), false);
        self.count(key, view.as_deref(), true);
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
    fn invalidate_groups(&mut self, view: &RouteView) {
        for parent in view.mesh_parents() {
            self.tracker.invalidate(Query::MeshParent(parent.clone()));
        }
        if self.settings.binding != MeshBinding::Strict {
            return;
        }
        // Under the earlier GEP-1426 a Service is either a parent or a backend, so routes that conflict with this one are re-evaluated too.
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

    /// Adds or removes the attachments and backends of a route in the binder's counts.
    fn count(&mut self, key: &ObjectKey, view: Option<&RouteView>, up: bool) {
        let Some(view) = view else { return };
        let mut gateways = BTreeSet::new();
        let mut listeners = BTreeSet::new();
        for parent in &view.parents {
            for (id, _) in &parent.attached {
                let FrontendId::Listener { gateway, owner, .. } = id else {
                    continue;
                };
                gateways.insert(gateway);
                // A route that only answers 500 is not accepted and does not count.
                if !parent.serves_nothing && listeners.insert(id) {
                    engine::store::adjust_count(&mut self.attached, id.clone(), up);
                    self.tracker
                        .invalidate_readers(&Input::AttachedRoutes(owner.clone()));
                }
            }
        }
        let used: BTreeSet<&BackendId> = view
            .gateway_backends
            .iter()
            .chain(&view.mesh_backends)
            .collect();
        for id in used {
            if engine::store::adjust_count(&mut self.users, id.clone(), up) {
                self.tracker.invalidate(Query::Backend(id.clone()));
            }
        }
        let objects = |uses: &[BackendId]| -> BTreeSet<ObjectKey> {
            uses.iter().map(|id| id.object.clone()).collect()
        };
        let mut reached = objects(&view.gateway_backends);
        reached.extend(view.unusable_backends.iter().cloned());
        for object in &reached {
            let counts = self.ancestors.entry(object.clone()).or_default();
            let before = counts.len();
            for &gateway in &gateways {
                match counts.binary_search_by(|(known, _)| known.cmp(gateway)) {
                    Ok(at) if !up && counts[at].1 == 1 => {
                        counts.remove(at);
                    }
                    Ok(at) => {
                        counts[at].1 = if up {
                            counts[at].1 + 1
                        } else {
                            counts[at].1 - 1
                        }
                    }
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
        let set = |map: &mut FastMap<ObjectKey, SmallSet<ObjectKey>>, of: &ObjectKey| {
            let routes = map.entry(of.clone()).or_default();
            if up {
                routes.insert(key.clone())
            } else {
                routes.remove(key)
            };
            if routes.is_empty() {
                map.remove(of);
            }
        };
        for parent in view.mesh_parents() {
            set(&mut self.members, parent);
        }
        for object in &objects(&view.mesh_backends) {
            set(&mut self.mesh_users, object);
        }
    }

    fn compute_group(&mut self, query: &Query, parent: &ObjectKey, delta: &mut Delta) {
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
        let group = gateway_api::mesh::resolve_group(&self.settings, parent, members, &others);
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

    fn compute_backend(&mut self, query: &Query, id: &BackendId, delta: &mut Delta) {
        let reader = Reader::new(&self.store);
        let view = match self.users.contains_key(id) {
            true => endpoint_policy::refused::load_backend(&reader, id),
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
        let backend = changed(id, old_backend, backend, &mut delta.backends);
        let endpoints = changed(id, old_endpoints, endpoints, &mut delta.endpoints);
        if let Some(both) = backend.zip(endpoints) {
            self.backends.insert(id.clone(), both);
        }
    }

    fn compute_status(&mut self, query: &Query, key: &ObjectKey, delta: &mut Delta) {
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

    /// Returns the status of an object; `None` if Pointsman does not manage it.
    pub fn status(&self, key: &ObjectKey) -> Option<&Arc<Status>> {
        self.statuses.get(key)
    }

    /// Returns a backend with its endpoints, even if no route uses it.
    pub fn backend(&self, id: &BackendId) -> Option<(Backend, Endpoints)> {
        let (backend, endpoints, _) =
            endpoint_policy::refused::load_backend(&Reader::new(&self.store), id)?;
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

    /// Returns the reason why a new version of a Secret must not replace the one in effect: the latter has a valid certificate, the former does not.
    pub fn invalidates(&self, new: &Secret) -> Option<String> {
        let name = new.metadata.key();
        let current = Reader::new(&self.store).certificate(&name)?;
        current.ok()?;
        gateway_api::certificates::from_secret(new).err()
    }

    /// Returns whether an earlier version of a Secret is in effect instead of the newest.
    pub fn is_retained(&self, secret: &Name) -> bool {
        self.store.retained.contains_key(secret)
    }

    /// Returns whether the content of a file or environment variable was read successfully.
    pub fn has_read(&self, source: &DataSource) -> bool {
        matches!(self.store.contents.get(source), Some(Ok(_)))
    }

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
                    Some(why) => refused = refused.or(Some(why)),
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
                all.extend(
                    rules.map(|rule| {
                        inactive(Some(rule.index), "UnsupportedValue", rule.why.clone())
                    }),
                );
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
                reason: "Conflicted",
                message: format!(
                    "overridden by {winner}: only one kind of route applies to port {port}, and {} has lower precedence",
                    route.kind
                ),
            })
            .collect()
    }
}

/// Returns whether Pointsman reports status for objects of a kind.
pub fn has_status(kind: Kind) -> bool {
    kind.is_route()
        || kind.is_mesh_route()
        || matches!(
            kind,
            Kind::GatewayClass
                | Kind::Gateway
                | Kind::ListenerSet
                | Kind::BackendTLSPolicy
                | Kind::XBackend
                | Kind::XBackendTrafficPolicy
                | Kind::XTelemetryPolicy
                | Kind::XMesh
                | Kind::MeshGateway
                | Kind::MeshExternalService
        )
}

/// Records the differences between two maps.
fn difference<K: Ord + Clone, V: PartialEq + Clone>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    out: &mut Vec<(K, Option<Arc<V>>)>,
) {
    for key in before.keys().filter(|key| !after.contains_key(key)) {
        out.push((key.clone(), None));
    }
    for (key, value) in after {
        if before.get(key) != Some(value) {
            out.push((key.clone(), Some(Arc::new(value.clone()))));
        }
    }
}

/// Records a value if it differs from the old one. Returns the value to keep.
fn changed<K: Clone, V: PartialEq>(
    key: &K,
    old: Option<Arc<V>>,
    new: Option<V>,
    out: &mut Vec<(K, Option<Arc<V>>)>,
) -> Option<Arc<V>> {
    if old.as_deref() == new.as_ref() {
        return old;
    }
    let new = new.map(Arc::new);
    out.push((key.clone(), new.clone()));
    new
}

/// Like [`difference`], for values that are already shared.
fn difference_arc<K: Ord + Clone, V: PartialEq>(
    before: &BTreeMap<K, Arc<V>>,
    after: &BTreeMap<K, Arc<V>>,
    out: &mut Vec<(K, Option<Arc<V>>)>,
) {
    for key in before.keys().filter(|key| !after.contains_key(key)) {
        out.push((key.clone(), None));
    }
    for (key, value) in after {
        let same = before.get(key).is_some_and(|old| old == value);
        if !same {
            out.push((key.clone(), Some(value.clone())));
        }
    }
}
