//! The routing table of one frontend: by hostname, then by path, then by the other conditions.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pointsman_binding::bound::{
    BackendId, BackendName, BoundRoute, BoundRule, Dialect, Frontend, FrontendId, Protocol,
    RouteBinding, RouteId, RouteMeta, Scope, Transport, WeightedBackend,
};
use pointsman_resources::Age;

use crate::Set;
use crate::entry::{LookupResult, MatchEntry, MismatchRecorder};
use crate::host::{HostTable, same_slot};
use crate::hosts::HostMap;
use crate::request::{MatchContext, Request};
use crate::route::CompiledRoute;
use crate::weighted_selector::WeightedSelector;

/// The routing table of one frontend.
#[derive(Clone, Debug)]
pub struct FrontendTable {
    frontend: Arc<Frontend>,
    pub(crate) hosts: HostMap<Arc<HostTable>>,
    routes: Set<AttachedRoute>,
}

/// A route of a table, hashed by its id.
#[derive(Clone, Debug)]
struct AttachedRoute {
    route: Arc<CompiledRoute>,
    /// Selectors of its rules.
    selectors: Arc<[Arc<WeightedSelector>]>,
}

impl AttachedRoute {
    fn entries(&self) -> Vec<Arc<MatchEntry>> {
        MatchEntry::all(&self.route, &self.selectors)
    }
}

impl Borrow<RouteId> for AttachedRoute {
    fn borrow(&self) -> &RouteId {
        &self.route.bound.id
    }
}

impl Hash for AttachedRoute {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.route.bound.id.hash(state);
    }
}

impl PartialEq for AttachedRoute {
    fn eq(&self, other: &Self) -> bool {
        self.route.bound.id == other.route.bound.id
    }
}

impl Eq for AttachedRoute {}

impl FrontendTable {
    /// Creates the table of a frontend without routes.
    pub fn new(frontend: Arc<Frontend>) -> Self {
        FrontendTable {
            frontend,
            hosts: HostMap::default(),
            routes: Set::default(),
        }
    }

    /// Creates the table of a mesh parent without routes, all of whose traffic goes to its own endpoints.
    pub fn unrouted(backend: &BackendId) -> Self {
        let id = FrontendId::Mesh {
            parent: backend.object.clone(),
            port: backend.port,
            transport: backend.transport,
            scope: Scope::Everyone,
        };
        let protocol = match backend.transport {
            Transport::Tcp => Protocol::Tcp,
            Transport::Udp => Protocol::Udp,
        };
        let frontend = Frontend::new(id, protocol, backend.port);
        let id = RouteId {
            route: backend.object.clone(),
            binding: RouteBinding::Mesh(Some(Arc::new(backend.clone()))),
        };
        let meta = RouteMeta {
            id: id.clone(),
            age: Age::InputOrder(0),
            generation: 0,
            dialect: Dialect::GatewayApi,
            hostnames: Vec::new(),
        };
        let rule = BoundRule {
            index: 0,
            part: 0,
            name: None,
            matches: Vec::new(),
            filters: Vec::new(),
            backends: vec![WeightedBackend {
                reference: BackendName {
                    kind: backend.object.kind.name().into(),
                    name: backend.object.name.clone(),
                    port: Some(backend.port),
                    tags: backend.tags.clone(),
                },
                weight: 1,
                target: Ok(backend.clone()),
                filters: Vec::new(),
            }],
            fault: None,
            request_timeout: None,
            backend_timeout: None,
            retry: None,
            from: Vec::new(),
        };
        let route = BoundRoute::new(meta, vec![Arc::new(rule)]);
        let mut table = FrontendTable::new(Arc::new(frontend));
        table.set_route(
            &id,
            Some(Arc::new(CompiledRoute::new(Arc::new(route), None))),
        );
        table
    }

    /// Returns the frontend.
    pub fn frontend(&self) -> &Arc<Frontend> {
        &self.frontend
    }

    /// Returns the reason if the listener can't serve. Its routes get no traffic then.
    pub fn closed(&self) -> Option<&str> {
        self.frontend.closed.as_deref()
    }

    pub(crate) fn set_frontend(&mut self, frontend: Arc<Frontend>) {
        self.frontend = frontend;
    }

    /// Returns the routes in unspecified order.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<BoundRoute>> {
        self.routes.iter().map(|route| &route.route.bound)
    }

    /// Returns every match of every rule under each hostname, in order of precedence. Costs time proportional to the table: not for the request path.
    pub fn entries(&self) -> Vec<Arc<MatchEntry>> {
        let mut all: Vec<Arc<MatchEntry>> = self
            .routes
            .iter()
            .flat_map(AttachedRoute::entries)
            .collect();
        all.sort_by(|a, b| {
            a.rank
                .cmp(&b.rank)
                .then_with(|| a.hostname.cmp(&b.hostname))
        });
        all
    }

    /// Returns whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Returns whether there are no entries, which is the case if there are no routes.
    pub fn has_no_entries(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Replaces or removes the route with this id.
    pub fn set_route(&mut self, id: &RouteId, route: Option<Arc<CompiledRoute>>) {
        let old = self.routes.remove(id);
        let known = old.as_ref().map(|old| (&*old.route.bound, &*old.selectors));
        let route = route.map(|route| AttachedRoute {
            selectors: WeightedSelector::for_rules(&route.bound, known),
            route,
        });
        let mut fresh = route
            .as_ref()
            .map(AttachedRoute::entries)
            .unwrap_or_default();
        for entry in &fresh {
            self.edit(entry, |host| host.insert(entry));
        }
        self.routes.extend(route);
        // Old entries that a new one has replaced are gone already.
        fresh.sort_by(|a, b| {
            a.rank
                .cmp(&b.rank)
                .then_with(|| a.hostname.cmp(&b.hostname))
        });
        for entry in old.as_ref().map(AttachedRoute::entries).unwrap_or_default() {
            let order = |other: &Arc<MatchEntry>| {
                other
                    .rank
                    .cmp(&entry.rank)
                    .then_with(|| other.hostname.cmp(&entry.hostname))
            };
            let replaced = fresh.binary_search_by(order);
            if !replaced.is_ok_and(|at| same_slot(&fresh[at], &entry)) {
                self.edit(&entry, |host| host.remove(&entry));
            }
        }
    }

    /// Uses the routes of another frontend, including their selectors.
    pub(crate) fn share_routes(&mut self, other: &FrontendTable) {
        self.hosts = other.hosts.clone();
        self.routes = other.routes.clone();
    }

    /// Changes the table of an entry's hostname. Removes the table if it becomes empty.
    fn edit(&mut self, entry: &MatchEntry, change: impl FnOnce(&mut HostTable)) {
        self.hosts.edit(entry.hostname.as_ref(), |host| {
            let host = Arc::make_mut(host);
            change(host);
            !host.is_empty()
        });
    }

    /// Returns the rule that matches a request.
    ///
    /// A rule that can't be served also matches; no rule of lower precedence is used instead.
    pub fn lookup<R: Request>(&self, request: &R) -> Option<LookupResult<'_>> {
        self.lookup_recording(request, &mut ())
    }

    /// Like [`lookup`](Self::lookup), and records the conditions that were not satisfied.
    pub fn lookup_recording<R: Request, T: MismatchRecorder>(
        &self,
        request: &R,
        recorder: &mut T,
    ) -> Option<LookupResult<'_>> {
        let context = MatchContext::new(request);
        // If the most specific hostname has no matching rule, the next less specific one is tried.
        self.hosts
            .find(request.authority(), |host| host.lookup(&context, recorder))
            .map(LookupResult::from)
    }

    /// Returns the rule that matches a connection or datagram, by its SNI if it has one: that of the most specific hostname, then of the oldest route.
    pub fn lookup_stream(&self, sni: Option<&str>) -> Option<LookupResult<'_>> {
        // The empty string matches no exact hostname and no wildcard.
        self.hosts
            .find(sni.unwrap_or(""), |host| host.root.prefix.iter().next())
            .map(|entry| LookupResult::from(&**entry))
    }
}
