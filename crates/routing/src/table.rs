//! The table of one frontend: hostname, then path, then the rest.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pointsman_binding::bound::{BoundRoute, Frontend, RouteId};

use crate::Set;
use crate::entry::{Entry, Hit, Recorder};
use crate::host::{HostTable, same_place};
use crate::hosts::Hosts;
use crate::request::{Context, Request};
use crate::route::CompiledRoute;
use crate::split::Split;

/// What governs the traffic of one frontend.
#[derive(Clone, Debug)]
pub struct FrontendTable {
    frontend: Arc<Frontend>,
    pub(crate) hosts: Hosts<Arc<HostTable>>,
    routes: Set<ById>,
}

/// A route of a table, found by its id.
#[derive(Clone, Debug)]
struct ById {
    route: Arc<CompiledRoute>,
    /// Weighted choice of each of its rules.
    splits: Arc<[Arc<Split>]>,
}

impl ById {
    fn entries(&self) -> Vec<Arc<Entry>> {
        Entry::all(&self.route, &self.splits)
    }
}

impl Borrow<RouteId> for ById {
    fn borrow(&self) -> &RouteId {
        &self.route.bound.id
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.route.bound.id.hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.route.bound.id == other.route.bound.id
    }
}

impl Eq for ById {}

impl FrontendTable {
    /// The table of a frontend without routes.
    pub fn new(frontend: Arc<Frontend>) -> Self {
        FrontendTable {
            frontend,
            hosts: Hosts::default(),
            routes: Set::default(),
        }
    }

    /// The frontend.
    pub fn frontend(&self) -> &Arc<Frontend> {
        &self.frontend
    }

    /// Reason why the listener can't serve, if it can't. Its routes get no traffic then.
    pub fn closed(&self) -> Option<&str> {
        self.frontend.closed.as_deref()
    }

    pub(crate) fn set_frontend(&mut self, frontend: Arc<Frontend>) {
        self.frontend = frontend;
    }

    /// The routes that govern it, in no order.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<BoundRoute>> {
        self.routes.iter().map(|route| &route.route.bound)
    }

    /// Every match of every rule under each hostname, strongest first. Looks at everything: for people, not for proxies.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        let mut all: Vec<Arc<Entry>> = self.routes.iter().flat_map(ById::entries).collect();
        all.sort_by(|a, b| {
            a.rank
                .cmp(&b.rank)
                .then_with(|| a.hostname.cmp(&b.hostname))
        });
        all
    }

    /// Whether no route governs it.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Whether nothing stands under any hostname: so it is when no route governs it.
    pub fn is_bare(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Replaces the route of the same id, or removes it. Nothing else is touched.
    pub fn set_route(&mut self, id: &RouteId, route: Option<Arc<CompiledRoute>>) {
        let old = self.routes.remove(id);
        let known = old.as_ref().map(|old| (&*old.route.bound, &*old.splits));
        let route = route.map(|route| ById {
            splits: Split::of_rules(&route.bound, known),
            route,
        });
        let mut fresh = route.as_ref().map(ById::entries).unwrap_or_default();
        for entry in &fresh {
            self.edit(entry, |host| host.insert(entry));
        }
        self.routes.extend(route);
        // What a fresh entry has replaced already is not there any more.
        fresh.sort_by(|a, b| {
            a.rank
                .cmp(&b.rank)
                .then_with(|| a.hostname.cmp(&b.hostname))
        });
        for entry in old.as_ref().map(ById::entries).unwrap_or_default() {
            let order = |other: &Arc<Entry>| {
                other
                    .rank
                    .cmp(&entry.rank)
                    .then_with(|| other.hostname.cmp(&entry.hostname))
            };
            let replaced = fresh.binary_search_by(order);
            if !replaced.is_ok_and(|at| same_place(&fresh[at], &entry)) {
                self.edit(&entry, |host| host.remove(&entry));
            }
        }
    }

    /// Takes over the routes of another frontend, weighted choice included.
    pub(crate) fn share_routes(&mut self, other: &FrontendTable) {
        self.hosts = other.hosts.clone();
        self.routes = other.routes.clone();
    }

    /// Changes the table of an entry's host; one that is empty goes.
    fn edit(&mut self, entry: &Entry, change: impl FnOnce(&mut HostTable)) {
        self.hosts.edit(entry.hostname.as_ref(), |host| {
            let host = Arc::make_mut(host);
            change(host);
            !host.is_empty()
        });
    }

    /// The rule that takes a request.
    ///
    /// It may be one that can't be served; it takes the request all the same, and no weaker one is tried.
    pub fn lookup<R: Request>(&self, request: &R) -> Option<Hit<'_>> {
        self.lookup_recording(request, &mut ())
    }

    /// As [`lookup`](Self::lookup), telling a recorder what was tried on the way.
    pub fn lookup_recording<R: Request, T: Recorder>(
        &self,
        request: &R,
        recorder: &mut T,
    ) -> Option<Hit<'_>> {
        let context = Context::new(request);
        // A request that the most specific hostname has no rule for goes on to the next less specific one.
        self.hosts
            .find(request.authority(), |host| host.lookup(&context, recorder))
            .map(Hit::from)
    }

    /// The rule that takes a connection or a datagram, by its SNI where it has one: the most specific hostname, then the oldest.
    pub fn lookup_stream(&self, sni: Option<&str>) -> Option<Hit<'_>> {
        // No hostname, exact or wildcard, is the empty string.
        self.hosts
            .find(sni.unwrap_or(""), |host| host.root.prefix.iter().next())
            .map(|entry| Hit::from(&**entry))
    }
}
