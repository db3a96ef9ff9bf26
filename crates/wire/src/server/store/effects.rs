//! The effect of routes on proxies: for each route, the proxies that have acknowledged its newest version, that lag, or that reject a part of it.
//!
//! Nothing is kept for each pair of a route and a proxy. A route has the position of its last change, a proxy that of its last acknowledgement, and each log
//! tracks the lowest acknowledgement of its followers: if it is at or above the route's position, no follower lags. Only routes whose effect may have
//! changed are examined, and proxies are looked up only to name those that lag. `examine` decides which effect is reported. A change that is acknowledged
//! within a grace period is never reported as lagging, and short disconnections are not reported.
//!
//! `rejections` has the resources that proxies reject, `remote` the effects on the proxies of other controllers.

mod examine;
mod rejections;
mod remote;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::RouteEffect;
use pointsman_resources::ObjectKey;
use tokio::time::Instant;

use rejections::RejectionCounts;
pub(super) use rejections::Rejections;
pub use remote::RemoteEffect;
use remote::{LocalState, RemoteEffects};

use super::{LogId, ProxyId, SlotId, Store};

/// Index of a route or policy.
pub type RouteIndex = u32;

/// Time after which proxies that have not acknowledged a change are reported as lagging.
const GRACE: Duration = Duration::from_secs(1);

/// Time for proxies to reconnect before the absence of proxies is reported.
const RECONNECT_GRACE: Duration = Duration::from_secs(5);

/// The same after the start of the control plane, and the time that a new proxy has to put its first configuration into effect. Proxies without a control plane
/// wait for up to ten seconds between attempts.
const START_GRACE: Duration = Duration::from_secs(15);

/// Interval between updates of the proxies that are reported to lag.
const UPDATE_INTERVAL: Duration = Duration::from_secs(5);

/// Routes that are examined while the store is locked.
const CHUNK: usize = 2_000;

/// Upper bounds of the buckets of [`EffectHistogram`], in seconds.
pub const EFFECT_BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Times from changes of routes to their effect on all proxies that serve them.
#[derive(Clone, Debug, Default)]
pub struct EffectHistogram {
    /// Number of times up to each bound, and above the last one; not cumulative.
    pub counts: [u64; EFFECT_BUCKETS.len() + 1],
    /// Sum of all times.
    pub sum: Duration,
}

impl EffectHistogram {
    fn record(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = EFFECT_BUCKETS.partition_point(|bound| *bound < seconds);
        self.counts[bucket] += 1;
        self.sum += time;
    }
}

/// A route of the Gateway API, or one of Kuma's policies.
#[derive(Debug)]
struct TrackedRoute {
    key: ObjectKey,
    /// Its resources, sorted: for a route the route itself, its rules and attachments; for a policy the rules that it contributes to.
    slots: Vec<SlotId>,
    /// Position of the last change of any of them.
    changed: u64,
    /// Position of the last removal of any of them.
    removed: u64,
    /// Hash of its parts, and the effect on the proxies of this controller, as of the last examination.
    version: u64,
    local: Option<Arc<RouteEffect>>,
    /// Effect on the proxies of all controllers.
    reported: Option<Arc<RouteEffect>>,
}

/// A route whose effect may differ from what was reported.
#[derive(Clone, Copy, Debug)]
struct PendingExamination {
    since: Instant,
    /// The same in seconds since the Unix epoch, once it has been reported.
    since_unix: Option<i64>,
    /// Time of the first change that is not in effect everywhere.
    changed: Option<Instant>,
    /// Time when the last proxy that served it disconnected.
    disconnected: Option<Instant>,
    /// Time of the last report that lists lagging proxies.
    listed: Option<Instant>,
}

/// The proxies that follow a log and are considered to serve its resources.
#[derive(Debug, Default)]
struct Followers {
    /// Number of proxies by their last acknowledgement.
    acknowledged: BTreeMap<Option<u64>, u32>,
    /// Time when the lowest acknowledgement last increased.
    advanced: Option<Instant>,
}

impl Followers {
    fn lowest(&self) -> Option<u64> {
        let first = self.acknowledged.first_key_value();
        first.and_then(|(position, _)| *position)
    }

    fn add(&mut self, position: Option<u64>) {
        *self.acknowledged.entry(position).or_default() += 1;
    }

    fn remove(&mut self, position: Option<u64>) {
        if let Some(number) = self.acknowledged.get_mut(&position) {
            *number -= 1;
            if *number == 0 {
                self.acknowledged.remove(&position);
            }
        }
    }
}

/// Effects of all routes and policies: those last reported, and the routes to examine.
#[derive(Debug, Default)]
pub(super) struct Effects {
    ids: HashMap<ObjectKey, RouteIndex>,
    routes: Vec<Option<TrackedRoute>>,
    free: Vec<RouteIndex>,
    pending: BTreeMap<RouteIndex, PendingExamination>,
    /// Routes that have changed since the last examination.
    newly_changed: BTreeSet<RouteIndex>,
    /// Removed routes whose effect was reported.
    removed_keys: Vec<ObjectKey>,
    /// Logs with serving proxies.
    followers: HashMap<LogId, Followers>,
    /// Proxies that are not serving yet, by the time at which they count as serving.
    connecting: BTreeSet<(Instant, ProxyId)>,
    started: Option<Instant>,
    rejected: RejectionCounts,
    histogram: EffectHistogram,
    /// Routes whose version or local effect has changed.
    changed: Vec<ObjectKey>,
    remote: RemoteEffects,
}

impl Effects {
    fn route(&self, id: RouteIndex) -> Option<&TrackedRoute> {
        self.routes.get(id as usize)?.as_ref()
    }

    fn route_mut(&mut self, id: RouteIndex) -> Option<&mut TrackedRoute> {
        self.routes.get_mut(id as usize)?.as_mut()
    }

    fn acquire(&mut self, key: &ObjectKey) -> RouteIndex {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let route = TrackedRoute {
            key: key.clone(),
            slots: Vec::new(),
            changed: 0,
            removed: 0,
            version: 0,
            local: None,
            reported: None,
        };
        let id = self.free.pop().unwrap_or(self.routes.len() as RouteIndex);
        match self.routes.get_mut(id as usize) {
            Some(free) => *free = Some(route),
            None => self.routes.push(Some(route)),
        }
        self.ids.insert(key.clone(), id);
        id
    }

    /// Removes a route without resources.
    fn release(&mut self, id: RouteIndex) {
        if self.route(id).is_none_or(|route| !route.slots.is_empty()) {
            return;
        }
        if let Some(route) = self.routes[id as usize].take() {
            self.ids.remove(&route.key);
            self.pending.remove(&id);
            self.newly_changed.remove(&id);
            self.free.push(id);
            self.changed.push(route.key.clone());
            if route.reported.is_some() {
                self.removed_keys.push(route.key);
            }
        }
    }

    /// Schedules a route for examination. Returns its entry.
    fn schedule(&mut self, id: RouteIndex, since: Instant) -> &mut PendingExamination {
        self.pending.entry(id).or_insert(PendingExamination {
            since,
            since_unix: None,
            changed: None,
            disconnected: None,
            listed: None,
        })
    }
}

/// Routes to examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutesToExamine {
    /// Routes that have changed since the last examination.
    Changed,
    /// All routes whose effect may have changed.
    AllPending,
}

/// Effects that differ from those last reported.
#[derive(Debug, Default)]
pub struct EffectChanges {
    /// Routes and policies. `None` for a route without resources.
    pub changes: Vec<(ObjectKey, Option<Arc<RouteEffect>>)>,
    /// Time of the next examination, even if nothing happens until then.
    pub next: Option<Instant>,
}

impl EffectChanges {
    fn wake_at(&mut self, time: Instant) {
        self.next = Some(self.next.map_or(time, |next| next.min(time)));
    }
}

// Records changes, and the progress of proxies.
impl Store {
    /// Records a changed or removed resource of routes and policies.
    pub(super) fn record_resource_change(
        &mut self,
        id: SlotId,
        routes: &[ObjectKey],
        now: Instant,
    ) {
        if routes.is_empty() && self.slots[id].routes.is_empty() {
            return;
        }
        let new: Box<[RouteIndex]> = routes.iter().map(|key| self.effects.acquire(key)).collect();
        let old = std::mem::replace(&mut self.slots[id].routes, new.clone());
        let position = self.position;
        for &route in new.iter().chain(old.iter().filter(|id| !new.contains(id))) {
            let is_part = new.contains(&route);
            let Some(parts) = self.effects.route_mut(route) else {
                continue;
            };
            parts.changed = position;
            match (parts.slots.binary_search(&id), is_part) {
                (Err(at), true) => parts.slots.insert(at, id),
                (Ok(at), false) => {
                    parts.slots.remove(at);
                    parts.removed = position;
                }
                _ => {}
            }
            let pending = self.effects.schedule(route, now);
            pending.changed.get_or_insert(now);
            self.effects.newly_changed.insert(route);
        }
        old.iter().for_each(|route| self.effects.release(*route));
    }

    /// Records that a proxy has connected. It is serving from its first acknowledgement, or after a grace period at the latest.
    pub(super) fn record_connect(&mut self, proxy: ProxyId, is_empty: bool, now: Instant) {
        let resumed = self.proxies.get(&proxy).and_then(|p| p.acknowledged);
        match resumed {
            Some(_) => self.mark_serving(proxy, now),
            None => {
                let grace = if is_empty { START_GRACE } else { GRACE };
                self.effects.connecting.insert((now + grace, proxy));
            }
        }
    }

    /// Marks a proxy as serving its subscription.
    fn mark_serving(&mut self, proxy: ProxyId, now: Instant) {
        let Some(progress) = self.proxies.get_mut(&proxy) else {
            return;
        };
        progress.is_serving = true;
        let (log, acknowledged) = (progress.log, progress.acknowledged);
        let followers = self.effects.followers.entry(log).or_default();
        let is_first = followers.acknowledged.is_empty();
        followers.add(acknowledged);
        if is_first {
            followers.advanced = Some(now);
        }
        if acknowledged.is_none() {
            // The time to acknowledge something has passed already.
            self.schedule_all_in(log, now.checked_sub(GRACE).unwrap_or(now));
        } else if is_first {
            self.schedule_all_in(log, now);
        }
    }

    /// Schedules all routes of a log for examination.
    fn schedule_all_in(&mut self, log: LogId, since: Instant) {
        for id in self.routes_in(log) {
            self.effects.schedule(id, since);
        }
    }

    fn routes_in(&self, log: LogId) -> BTreeSet<RouteIndex> {
        if log == LogId::Everything {
            return self.effects.ids.values().copied().collect();
        }
        let ids = self.resources(log).into_iter();
        ids.flat_map(|id| self.slots[id].routes.iter().copied())
            .collect()
    }

    /// Records that a proxy is about to be disconnected.
    pub(super) fn record_disconnect(&mut self, proxy: ProxyId, now: Instant) {
        self.effects.connecting.retain(|(_, id)| *id != proxy);
        let Some(progress) = self.proxies.get(&proxy).filter(|p| p.is_serving) else {
            return;
        };
        let log = progress.log;
        if let Some(followers) = self.effects.followers.get_mut(&log) {
            followers.remove(progress.acknowledged);
            followers.advanced = Some(now);
            if followers.acknowledged.is_empty() {
                self.effects.followers.remove(&log);
                for id in self.routes_in(log) {
                    self.effects.schedule(id, now).disconnected = Some(now);
                }
            }
        }
    }

    /// Records that a commit is in effect at a proxy. Returns whether effects may have changed.
    pub fn acknowledge(&mut self, proxy: ProxyId, commit: u64, now: Instant) -> bool {
        let Some(progress) = self.proxies.get_mut(&proxy) else {
            return false;
        };
        let before = progress.acknowledged;
        progress.acknowledged = before.max(Some(commit));
        if !progress.is_serving {
            self.effects.connecting.retain(|(_, id)| *id != proxy);
            self.mark_serving(proxy, now);
            return true;
        }
        let (log, after) = (progress.log, progress.acknowledged);
        let Some(followers) = self.effects.followers.get_mut(&log) else {
            return false;
        };
        let lowest = followers.lowest();
        followers.remove(before);
        followers.add(after);
        let has_advanced = followers.lowest() != lowest;
        if has_advanced {
            followers.advanced = Some(now);
        }
        has_advanced
    }

    /// Returns the number of routes and policies whose newest version is not known to be in effect on all proxies that serve them.
    pub fn pending_routes(&self) -> usize {
        self.effects.pending.len()
    }

    /// Returns the times from changes to their effect.
    pub fn effect_histogram(&self) -> &EffectHistogram {
        &self.effects.histogram
    }
}

#[cfg(test)]
mod tests;
