//! The table of one frontend: hostname, then path, then the rest.

use std::sync::Arc;

use pointsman_binding::bound::{BoundRoute, Frontend};
use pointsman_resources::ObjectKey;

use crate::Map;
use crate::entry::{Entry, Hit, Recorder};
use crate::host::HostTable;
use crate::hosts::Hosts;
use crate::request::{Context, Request};

/// What governs the traffic of one frontend.
#[derive(Clone, Debug)]
pub struct FrontendTable {
    frontend: Arc<Frontend>,
    pub(crate) hosts: Hosts<Arc<HostTable>>,
    routes: Map<ObjectKey, Arc<BoundRoute>>,
}

impl FrontendTable {
    /// The table of a frontend without routes.
    pub fn new(frontend: Arc<Frontend>) -> Self {
        FrontendTable {
            frontend,
            hosts: Hosts::default(),
            routes: Map::default(),
        }
    }

    /// The frontend.
    pub fn frontend(&self) -> &Arc<Frontend> {
        &self.frontend
    }

    pub(crate) fn set_frontend(&mut self, frontend: Arc<Frontend>) {
        self.frontend = frontend;
    }

    /// The routes that govern it, in no order.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<BoundRoute>> {
        self.routes.values()
    }

    /// The route of this name, if it governs some of its traffic.
    pub fn route(&self, key: &ObjectKey) -> Option<&Arc<BoundRoute>> {
        self.routes.get(key)
    }

    /// Whether no route governs it.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Whether nothing stands under any hostname: so it is when no route governs it.
    pub fn is_bare(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Puts a route in the place of the one of the same name, or takes it away.
    pub fn set_route(&mut self, key: &ObjectKey, route: Option<Arc<BoundRoute>>) {
        if let Some(old) = self.routes.remove(key) {
            for entry in Entry::all(&old) {
                self.hosts.edit(entry.hostname.as_ref(), |host| {
                    let host = Arc::make_mut(host);
                    host.remove(&entry);
                    !host.is_empty()
                });
            }
        }
        if let Some(route) = route {
            for entry in Entry::all(&route) {
                self.hosts.edit(entry.hostname.as_ref(), |host| {
                    Arc::make_mut(host).insert(&entry);
                    !host.is_empty()
                });
            }
            self.routes.insert(key.clone(), route);
        }
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
