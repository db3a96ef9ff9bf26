//! Decides which effect is reported for a route: where it is in effect, and which proxies lag or reject a part of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::status::effect::{MAX_NAMED, join};
use pointsman_binding::{Effect, OutdatedProxies, RouteEffect};
use pointsman_resources::ObjectKey;
use tokio::time::Instant;

use super::{
    CHUNK, EffectChanges, GRACE, LocalState, PendingExamination, RECONNECT_GRACE, RouteIndex,
    RoutesToExamine, START_GRACE, TrackedRoute, UPDATE_INTERVAL,
};
use crate::id::ResourceId;
use crate::resource::ResourceType;
use crate::server::proxies::{Proxies, UNNAMED};
use crate::server::store::{LogId, ProxyId, SlotId, Store};

/// State of a resource of a route on the proxies that receive it: an attachment, or a rule of a policy.
#[derive(Debug, Default)]
struct ResourceState {
    has_proxy: bool,
    is_lagging: bool,
    outdated: OutdatedProxies,
    /// Time of the last acknowledgement.
    advanced: Option<Instant>,
}

/// Effect of a route on the proxies of this controller.
struct LocalEffect {
    /// `None` if the route is attached to nothing.
    effect: Option<Arc<RouteEffect>>,
    /// It stays until the configuration or the proxies change.
    is_final: bool,
    /// Time from a change until it was in effect everywhere, if it is now.
    in_effect_after: Option<Duration>,
}

/// Lookups that are shared by routes that are examined together.
struct Examination<'p> {
    proxies: &'p Proxies,
    now: Instant,
    /// Now, in seconds since the Unix epoch.
    unix: i64,
    /// Followers of a log with their acknowledgements, lowest first.
    followers_by_log: HashMap<LogId, Vec<Follower>>,
    /// Proxies that reject resources.
    rejecting: Vec<RejectingProxy<'p>>,
}

/// A proxy that follows a log. The order is that of acknowledgements.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Follower {
    acknowledged: Option<u64>,
    name: Arc<str>,
}

/// A proxy that rejects resources.
#[derive(Debug)]
struct RejectingProxy<'p> {
    id: ProxyId,
    log: LogId,
    name: Arc<str>,
    /// Reasons of the first rejected resources, by name.
    reasons: &'p BTreeMap<String, String>,
}

/// Reason of a rejection whose reason was not kept.
const UNKNOWN_REASON: &str = "the proxy can't use it; it rejects many resources";

impl RejectingProxy<'_> {
    fn rejection(&self, resource: &Arc<str>) -> (Arc<str>, Arc<str>, Arc<str>) {
        let reason = self.reasons.get(&**resource);
        let reason = reason.map_or(UNKNOWN_REASON, String::as_str);
        (self.name.clone(), resource.clone(), reason.into())
    }
}

impl Examination<'_> {
    fn has_rejections(&self) -> bool {
        !self.rejecting.is_empty()
    }

    /// Time since which a route is pending, in seconds since the Unix epoch. It is computed once: rounded down at different times, it would vary.
    fn since(&self, pending: &mut PendingExamination) -> i64 {
        *pending.since_unix.get_or_insert_with(|| {
            let age = self.now.saturating_duration_since(pending.since);
            self.unix - i64::try_from(age.as_secs()).unwrap_or(0)
        })
    }
}

impl Store {
    /// Examines some of the routes whose effect may have changed: those after `cursor`, which it advances; `None` at the end.
    pub fn examine(
        &mut self,
        routes: RoutesToExamine,
        cursor: &mut Option<RouteIndex>,
        (proxies, now, unix): (&Proxies, Instant, i64),
        found: &mut EffectChanges,
    ) {
        self.effects.started.get_or_insert(now);
        self.mark_overdue_serving(now);
        let removed = std::mem::take(&mut self.effects.removed_keys).into_iter();
        found.changes.extend(removed.map(|key| (key, None)));
        if let Some((time, _)) = self.effects.connecting.first() {
            found.wake_at(*time);
        }
        let from = cursor.unwrap_or(0);
        let due: Vec<RouteIndex> = match routes {
            RoutesToExamine::Changed => std::mem::take(&mut self.effects.newly_changed)
                .into_iter()
                .collect(),
            RoutesToExamine::AllPending => {
                self.effects.newly_changed.clear();
                let pending = self.effects.pending.range(from..);
                pending.map(|(id, _)| *id).take(CHUNK).collect()
            }
        };
        *cursor = match routes {
            RoutesToExamine::AllPending if due.len() == CHUNK => due.last().map(|id| id + 1),
            _ => None,
        };
        let mut examination = self.examination(proxies, now, unix);
        for id in due {
            self.examine_route(id, &mut examination, found);
        }
    }

    /// Marks proxies as serving that should have acknowledged a commit by now.
    fn mark_overdue_serving(&mut self, now: Instant) {
        while let Some(&(time, proxy)) = self.effects.connecting.first()
            && time <= now
        {
            self.effects.connecting.pop_first();
            self.mark_serving(proxy, now);
        }
    }

    fn examination<'p>(&self, proxies: &'p Proxies, now: Instant, unix: i64) -> Examination<'p> {
        let connected = proxies.connected().iter();
        let rejecting = connected.filter_map(|(id, proxy)| {
            let progress = self.proxies.get(id)?;
            let rejects = !progress.rejections.is_empty() || proxy.rejected.contains_key(UNNAMED);
            rejects.then(|| RejectingProxy {
                id: *id,
                log: progress.log,
                name: proxy.name.as_str().into(),
                reasons: &proxy.rejected,
            })
        });
        Examination {
            proxies,
            now,
            unix,
            followers_by_log: HashMap::new(),
            rejecting: rejecting.collect(),
        }
    }

    fn examine_route(
        &mut self,
        id: RouteIndex,
        examination: &mut Examination<'_>,
        found: &mut EffectChanges,
    ) {
        let (Some(route), Some(pending)) = (self.effects.route(id), self.effects.pending.get(&id))
        else {
            return;
        };
        let mut pending = *pending;
        let now = examination.now;
        let local = self.examine_local(route, &mut pending, examination, found);
        let version = self.version_of(route);
        let overdue = (now >= pending.since + GRACE).then(|| examination.since(&mut pending));
        let (reported, same_version) = self.effects.remote.merge(&LocalState {
            key: &route.key,
            version,
            effect: local.effect.as_ref(),
            overdue,
        });
        if !same_version && overdue.is_none() {
            found.wake_at(pending.since + GRACE);
        }
        match local.is_final && same_version {
            true => drop(self.effects.pending.remove(&id)),
            false => drop(self.effects.pending.insert(id, pending)),
        }
        if let Some(time) = local.in_effect_after {
            self.effects.histogram.record(time);
        }
        let Some(route) = self.effects.route_mut(id) else {
            return;
        };
        let has_changes = route.version != version || route.local != local.effect;
        route.version = version;
        route.local = local.effect;
        let changed = has_changes.then(|| route.key.clone());
        if route.reported != reported {
            route.reported.clone_from(&reported);
            found.changes.push((route.key.clone(), reported));
        }
        self.effects.changed.extend(changed);
    }

    /// Returns the hash of the parts of a route. It does not depend on the process.
    fn version_of(&self, route: &TrackedRoute) -> u64 {
        let parts = route.slots.iter();
        let hashes = parts.filter_map(|id| Some(self.slots[*id].fingerprint()?.hash()));
        hashes.fold(0, u64::wrapping_add)
    }

    /// Determines the effect of a route on the proxies of this controller.
    fn examine_local(
        &self,
        route: &TrackedRoute,
        pending: &mut PendingExamination,
        examination: &mut Examination<'_>,
        found: &mut EffectChanges,
    ) -> LocalEffect {
        let now = examination.now;
        let resource_type = match route.key.kind.is_mesh_route() {
            true => ResourceType::Rule,
            false => ResourceType::Attachment,
        };
        let resources = route
            .slots
            .iter()
            .filter(|slot| self.slots[**slot].kind == resource_type);
        // The list of lagging proxies is updated only at intervals.
        let next_list = pending.listed.map(|listed| listed + UPDATE_INTERVAL);
        let wants_list = now >= pending.since + GRACE && next_list.is_none_or(|next| now >= next)
            || examination.has_rejections();
        let states: Vec<(SlotId, ResourceState)> = resources
            .map(|slot| {
                (
                    *slot,
                    self.resource_state(*slot, route, pending, wants_list, examination),
                )
            })
            .collect();
        let is_known = |effect: &Effect| matches!(effect, Effect::Partial(_));
        let keeps_list = !wants_list
            && route.local.as_deref().is_some_and(|local| match local {
                RouteEffect::Uniform(effect) => is_known(effect),
                RouteEffect::PerFrontend(all) => all.values().any(is_known),
            })
            && states.iter().any(|(_, state)| state.is_lagging);
        if keeps_list {
            if let Some(next) = next_list {
                found.wake_at(next);
            }
            return LocalEffect {
                effect: route.local.clone(),
                is_final: false,
                in_effect_after: None,
            };
        }
        let effects: Vec<(SlotId, Effect)> = states
            .iter()
            .map(|(slot, state)| (*slot, self.effect_of(state, route, pending, now)))
            .collect();
        let mut is_final = true;
        for (_, effect) in &effects {
            let deadline = match effect {
                Effect::InEffect | Effect::NoProxy => continue,
                Effect::Pending => pending.since + GRACE,
                Effect::Reconnecting => self.reconnect_deadline(pending),
                Effect::Partial(_) => {
                    pending.listed = Some(now);
                    now + UPDATE_INTERVAL
                }
            };
            is_final = false;
            found.wake_at(deadline);
        }
        let advanced = states.iter().filter_map(|(_, state)| state.advanced).max();
        let in_effect = states.iter().all(|(_, state)| !state.is_lagging);
        let mut in_effect_after = None;
        if let (Some(changed), Some(advanced), true) = (pending.changed, advanced, in_effect) {
            in_effect_after = Some(advanced.saturating_duration_since(changed));
            pending.changed = None;
        }
        if !states.iter().any(|(_, state)| state.has_proxy) {
            // A proxy that connects later receives it with its initial configuration.
            pending.changed = None;
        }
        LocalEffect {
            effect: (!effects.is_empty()).then(|| self.joined(&route.key, &effects)),
            is_final,
            in_effect_after,
        }
    }

    fn reconnect_deadline(&self, pending: &PendingExamination) -> Instant {
        let started = self.effects.started.map(|started| started + START_GRACE);
        let disconnected = pending
            .disconnected
            .map(|disconnected| disconnected + RECONNECT_GRACE);
        disconnected.or(started).unwrap_or(pending.since)
    }

    /// Returns the effect to report.
    fn effect_of(
        &self,
        state: &ResourceState,
        route: &TrackedRoute,
        pending: &PendingExamination,
        now: Instant,
    ) -> Effect {
        // A rejection is reported together with the lagging proxies, so that a change causes only one status.
        if state.is_lagging && now < pending.since + GRACE {
            return Effect::Pending;
        }
        if state.is_lagging || !state.outdated.rejections.is_empty() {
            return Effect::Partial(Arc::new(state.outdated.clone()));
        }
        if state.has_proxy {
            return Effect::InEffect;
        }
        // A proxy is expected if no effect was reported before, or if proxies were reported as reconnecting.
        let is_expected = route.local.as_deref().is_none_or(|local| match local {
            RouteEffect::Uniform(effect) => *effect == Effect::Reconnecting,
            RouteEffect::PerFrontend(all) => all.values().any(|e| *e == Effect::Reconnecting),
        });
        let was_disconnected = pending.disconnected.is_some();
        match (was_disconnected || is_expected) && now < self.reconnect_deadline(pending) {
            true => Effect::Reconnecting,
            false => Effect::NoProxy,
        }
    }

    fn joined(&self, key: &ObjectKey, effects: &[(SlotId, Effect)]) -> Arc<RouteEffect> {
        let all = || effects.iter().map(|(_, effect)| effect);
        let is_uniform = all().all(|effect| *effect == effects[0].1);
        if is_uniform || key.kind.is_mesh_route() {
            let effect = join(all()).unwrap_or(Effect::NoProxy);
            return Arc::new(RouteEffect::Uniform(effect));
        }
        let frontends = effects.iter().filter_map(|(slot, effect)| {
            match self.slots[*slot].name.parse::<ResourceId>().ok()? {
                ResourceId::Attachment(id) => Some((id.frontend, effect.clone())),
                _ => None,
            }
        });
        // A route may be attached to a frontend only once.
        Arc::new(RouteEffect::PerFrontend(frontends.collect()))
    }

    /// Determines the state of a resource on the proxies that receive it. With `wants_list`, lists those that lag.
    fn resource_state(
        &self,
        part: SlotId,
        route: &TrackedRoute,
        pending: &mut PendingExamination,
        wants_list: bool,
        examination: &mut Examination<'_>,
    ) -> ResourceState {
        let mut state = ResourceState::default();
        let sets = self.slots[part].sets.iter();
        let logs = sets.map(|set| LogId::Set(*set)).chain([LogId::Everything]);
        let related = self.related(part, examination.has_rejections());
        for log in logs {
            let Some(followers) = self.effects.followers.get(&log) else {
                continue;
            };
            state.has_proxy = true;
            state.advanced = state.advanced.max(followers.advanced);
            if examination.has_rejections() {
                self.list_rejections(&mut state.outdated, log, &related, examination);
            }
            let (entries, _) = self.log_and_digest(log);
            let newest = entries.changed;
            if followers.lowest() >= Some(route.changed.min(newest)) {
                continue;
            }
            // The route may have changed for other proxies only.
            let of_route = related
                .iter()
                .filter(|id| is_part_of_route(self.slots[**id].kind));
            let needed = of_route
                .map(|id| self.position_in(log, *id))
                .max()
                .unwrap_or(0);
            let needed = needed.max(route.removed.min(newest));
            if followers.lowest() >= Some(needed) {
                continue;
            }
            state.is_lagging = true;
            if wants_list {
                self.list_lagging(&mut state.outdated, log, needed, examination);
                state.outdated.since = Some(examination.since(pending));
            }
        }
        state
    }

    /// Returns the resources on which the effect of a part depends: for an attachment, the route and its rules. With `include_references`, also the frontend, the backends,
    /// and everything that these reference.
    fn related(&self, part: SlotId, include_references: bool) -> BTreeSet<SlotId> {
        let mut found = BTreeSet::from([part]);
        let mut stack = vec![part];
        if include_references {
            stack.extend(self.slots[part].parent);
        }
        while let Some(id) = stack.pop() {
            let slot = &self.slots[id];
            let references = slot.references.iter().copied();
            let rules = slot
                .children
                .iter()
                .filter(|_| slot.kind == ResourceType::Route);
            for other in references.chain(rules) {
                let wanted = include_references || is_part_of_route(self.slots[other].kind);
                if wanted && found.insert(other) {
                    stack.push(other);
                }
            }
            found.insert(id);
        }
        found
    }

    pub(in crate::server::store) fn position_in(&self, log: LogId, id: SlotId) -> u64 {
        match log {
            LogId::Everything => self.slots[id].position,
            LogId::Set(set) => self.sets.get(&set).map_or(0, |set| set.position(id)),
        }
    }

    /// Adds the rejections of some resources by followers of a log.
    fn list_rejections(
        &self,
        outdated: &mut OutdatedProxies,
        log: LogId,
        resources: &BTreeSet<SlotId>,
        examination: &Examination<'_>,
    ) {
        let rejected = resources.iter().copied();
        let rejected = rejected.filter(|id| self.effects.rejected.contains(*id));
        let rejected: Vec<SlotId> = rejected.collect();
        let rejecting = examination.rejecting.iter();
        for proxy in rejecting.filter(|proxy| proxy.log == log) {
            let Some(progress) = self.proxies.get(&proxy.id) else {
                continue;
            };
            let named = rejected.iter();
            let named = named.filter(|id| progress.rejections.contains(**id));
            let named = named.map(|id| proxy.rejection(&self.slots[*id].name));
            let unnamed = proxy.reasons.contains_key(UNNAMED);
            let unnamed = unnamed.then(|| proxy.rejection(&UNNAMED.into()));
            for rejection in named.chain(unnamed) {
                if outdated.rejections.len() == MAX_NAMED {
                    outdated.has_more_rejections = true;
                    return;
                }
                outdated.rejections.insert(rejection);
            }
        }
    }

    /// Adds the followers of a log that have not acknowledged a position.
    fn list_lagging(
        &self,
        outdated: &mut OutdatedProxies,
        log: LogId,
        needed: u64,
        examination: &mut Examination<'_>,
    ) {
        let connected = examination.proxies.connected();
        let followers = examination.followers_by_log.entry(log).or_insert_with(|| {
            let followers = self.proxies.iter();
            let followers =
                followers.filter(|(_, progress)| progress.log == log && progress.is_serving);
            let mut all: Vec<Follower> = followers
                .filter_map(|(id, progress)| {
                    Some(Follower {
                        acknowledged: progress.acknowledged,
                        name: connected.get(id)?.name.as_str().into(),
                    })
                })
                .collect();
            all.sort();
            all
        });
        let lagging = followers
            .iter()
            .take_while(|follower| follower.acknowledged < Some(needed));
        for Follower { name, .. } in lagging {
            if outdated.lagging.len() == MAX_NAMED && !outdated.lagging.contains(name) {
                outdated.has_more_lagging = true;
                return;
            }
            outdated.lagging.insert(name.clone());
        }
    }
}

fn is_part_of_route(kind: ResourceType) -> bool {
    use ResourceType::{Attachment, Route, Rule};
    matches!(kind, Route | Rule | Attachment)
}
