//! The xDS server as a sink of the reconciler. It determines how often the effects of routes are examined, because that takes the reconciler's time.

use std::sync::Arc;
use std::time::Instant;

use pointsman_binding::{Change, Delta, EndpointPolicy, OwnServers};
use pointsman_control::{Sink, clock};
use pointsman_routing::Tables;

use super::encoded_change::{EncodedChange, encode_all};
use super::service::Server;
use super::store::RoutesToExamine;

/// Pause after an examination of all routes, as a multiple of its duration.
const EXAMINATION_PAUSE_FACTOR: u32 = 4;

/// Passes changes to an xDS server. Reports of proxies arrive later, and `retry` returns them.
pub struct XdsSink {
    server: Arc<Server>,
    /// Changes that were staged and are not committed yet.
    staged: Vec<EncodedChange>,
    /// Policy for endpoints, without the servers of proxies.
    endpoints: Arc<EndpointPolicy>,
    /// Servers of the proxies themselves.
    own: OwnServers,
    /// Time of the next examination of the routes' effects.
    wake: Option<Instant>,
    /// Time before which not all routes are examined.
    rest_until: Instant,
}

impl XdsSink {
    /// Creates a sink without staged changes.
    pub fn new(server: Arc<Server>, endpoints: Arc<EndpointPolicy>) -> Self {
        XdsSink {
            server,
            endpoints,
            own: OwnServers::default(),
            staged: Vec::new(),
            wake: None,
            rest_until: clock::instant(),
        }
    }

    /// Returns the changed effects of routes on proxies.
    fn effects(&mut self, routes: RoutesToExamine) -> Vec<Change> {
        let found = self.server.take_effects(routes, clock::unix_seconds());
        let next = found.next.map(Instant::from);
        self.wake = match routes {
            RoutesToExamine::AllPending => next,
            RoutesToExamine::Changed => [self.wake, next].into_iter().flatten().min(),
        };
        let changes = found.changes.into_iter();
        changes
            .map(|(key, effect)| Change::Effect(key, effect))
            .collect()
    }

    /// Examines all routes whose effect may have changed, unless that would take most of the time of this thread.
    fn examine_all(&mut self) -> Vec<Change> {
        let start = clock::instant();
        if start < self.rest_until {
            self.wake = Some(
                self.wake
                    .map_or(self.rest_until, |wake| wake.min(self.rest_until)),
            );
            return Vec::new();
        }
        let changes = self.effects(RoutesToExamine::AllPending);
        let end = clock::instant();
        self.rest_until = end + (end - start) * EXAMINATION_PAUSE_FACTOR;
        changes
    }
}

impl Sink for XdsSink {
    fn uses_tables(&self) -> bool {
        false
    }

    fn stage(&mut self, delta: &Delta, _: &Tables) -> Vec<Change> {
        let mut staged = encode_all(delta);
        match self.staged.is_empty() {
            true => self.staged = staged,
            false => self.staged.append(&mut staged),
        }
        Vec::new()
    }

    fn commit(&mut self, _: &Tables) -> Vec<Change> {
        let staged = std::mem::take(&mut self.staged);
        if !staged.is_empty() {
            self.server.apply(staged);
        }
        self.server.record_applied_reports();
        self.effects(RoutesToExamine::Changed)
    }

    fn retry(&mut self) -> Vec<Change> {
        let mut reports = self.server.take_reports();
        let own = self.server.own_servers_of_proxies();
        if own != self.own {
            let mut endpoints = EndpointPolicy::clone(&self.endpoints);
            endpoints.refuse_own(&own);
            reports.push(Change::EndpointPolicy(Arc::new(endpoints)));
            self.own = own;
        }
        reports.extend(self.examine_all());
        reports
    }

    fn next_wake(&self) -> Option<Instant> {
        self.wake
    }

    fn needs_retry(&self) -> bool {
        self.server.has_expiring_reports()
    }
}
