//! Decides which effect is reported for a route: where it is in effect, and which proxies lag or reject a part of it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::status::effect::{MAX_NAMED, join};
use pointsman_binding::{Effect, OutdatedProxies, RouteEffect};
use pointsman_resources::ObjectKey;
use tokio::time::Instant;

use super::{
    CHUNK, EffectChanges, GRACE, LocalState, Owner, OwnerId, Pending, RECONNECT_GRACE, START_GRACE,
    Scan, UPDATE_INTERVAL,
};
use crate::id::ResourceId;
use crate::resource::ResourceType;
use crate::server::proxies::Proxies;
use crate::server::store::{LogId, SlotId, Store};

/// Effect of a part of a route: an attachment, or a rule of a policy.
#[derive(Debug, Default)]
struct PartState {
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
    /// It changes only with the configuration or with proxies.
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
    by_log: HashMap<LogId, Vec<Follower>>,
    /// Rejections of each resource.
    rejections: HashMap<SlotId, Vec<ProxyRejection>>,
    /// Rejections that name no resource.
    unnamed: Vec<ProxyRejection>,
}

/// A proxy that follows a log. The order is that of acknowledgements.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Follower {
    acknowledged: Option<u64>,
    name: Arc<str>,
}

#[derive(Clone, Debug)]
struct ProxyRejection {
    log: LogId,
    proxy: Arc<str>,
    resource: Arc<str>,
    why: Arc<str>,
}

impl Examination<'_> {
    fn has_rejections(&self) -> bool {
        !self.rejections.is_empty() || !self.unnamed.is_empty()
    }

    /// Time since which a route is pending, in seconds since the Unix epoch.
    fn since(&self, pending: &Pending) -> i64 {
        let age = self.now.saturating_duration_since(pending.since);
        self.unix - i64::try_from(age.as_secs()).unwrap_or(0)
    }
}

impl Store {
    /// Examines some of the routes whose effect may have changed: those after `cursor`, which it advances; `None` at the end.
    pub fn examine(
        &mut self,
        scan: Scan,
        cursor: &mut Option<OwnerId>,
        (proxies, now, unix): (&Proxies, Instant, i64),
        found: &mut EffectChanges,
    ) {
        self.effects.started.get_or_insert(now);
        self.count_overdue(now);
        let gone = std::mem::take(&mut self.effects.gone).into_iter();
        found.changes.extend(gone.map(|key| (key, None)));
        if let Some((time, _)) = self.effects.arriving.first() {
            found.wake_at(*time);
        }
        let from = cursor.unwrap_or(0);
        let due: Vec<OwnerId> = match scan {
            Scan::Changed => std::mem::take(&mut self.effects.new).into_iter().collect(),
            Scan::All => {
                self.effects.new.clear();
                let pending = self.effects.pending.range(from..);
                pending.map(|(id, _)| *id).take(CHUNK).collect()
            }
        };
        *cursor = match scan {
            Scan::All if due.len() == CHUNK => due.last().map(|id| id + 1),
            _ => None,
        };
        let mut examination = self.examination(proxies, now, unix);
        for id in due {
            self.examine_route(id, &mut examination, found);
        }
    }

    /// Counts proxies that should have acknowledged something.
    fn count_overdue(&mut self, now: Instant) {
        while let Some(&(time, proxy)) = self.effects.arriving.first()
            && time <= now
        {
            self.effects.arriving.pop_first();
            self.count_proxy(proxy, now);
        }
    }

    fn examination<'p>(&self, proxies: &'p Proxies, now: Instant, unix: i64) -> Examination<'p> {
        let mut rejections: HashMap<SlotId, Vec<ProxyRejection>> = HashMap::new();
        let mut unnamed = Vec::new();
        for (id, proxy) in proxies.connected() {
            let Some(progress) = self.proxies.get(id) else {
                continue;
            };
            for (resource, why) in &proxy.rejected {
                let rejection = ProxyRejection {
                    log: progress.log,
                    proxy: proxy.name.as_str().into(),
                    resource: resource.as_str().into(),
                    why: why.as_str().into(),
                };
                match self.slots.find(resource) {
                    Some(slot) => rejections.entry(slot).or_default().push(rejection),
                    None if resource == "*" => unnamed.push(rejection),
                    // It does not exist any more.
                    None => {}
                }
            }
        }
        Examination {
            proxies,
            now,
            unix,
            by_log: HashMap::new(),
            rejections,
            unnamed,
        }
    }

    fn examine_route(
        &mut self,
        id: OwnerId,
        examination: &mut Examination<'_>,
        found: &mut EffectChanges,
    ) {
        let (Some(owner), Some(pending)) = (self.effects.owner(id), self.effects.pending.get(&id))
        else {
            return;
        };
        let mut pending = *pending;
        let now = examination.now;
        let local = self.examine_local(owner, &mut pending, examination, found);
        let version = self.version_of(owner);
        let overdue = (now >= pending.since + GRACE).then(|| examination.since(&pending));
        let (reported, agrees) = self.effects.remote.merge(&LocalState {
            key: &owner.key,
            version,
            effect: local.effect.as_ref(),
            overdue,
        });
        if !agrees && overdue.is_none() {
            found.wake_at(pending.since + GRACE);
        }
        match local.is_final && agrees {
            true => drop(self.effects.pending.remove(&id)),
            false => drop(self.effects.pending.insert(id, pending)),
        }
        if let Some(time) = local.in_effect_after {
            self.effects.histogram.record(time);
        }
        let Some(owner) = self.effects.owner_mut(id) else {
            return;
        };
        let has_changes = owner.version != version || owner.local != local.effect;
        owner.version = version;
        owner.local = local.effect;
        let changed = has_changes.then(|| owner.key.clone());
        if owner.reported != reported {
            owner.reported.clone_from(&reported);
            found.changes.push((owner.key.clone(), reported));
        }
        self.effects.changed.extend(changed);
    }

    /// Hash of the parts of a route. It does not depend on the process.
    fn version_of(&self, owner: &Owner) -> u64 {
        let parts = owner.slots.iter();
        let hashes = parts.filter_map(|id| Some(self.slots[*id].fingerprint()?.hash()));
        hashes.fold(0, u64::wrapping_add)
    }

    /// Determines the effect of a route on the proxies of this controller.
    fn examine_local(
        &self,
        owner: &Owner,
        pending: &mut Pending,
        examination: &mut Examination<'_>,
        found: &mut EffectChanges,
    ) -> LocalEffect {
        let now = examination.now;
        let unit = match owner.key.kind.is_mesh_route() {
            true => ResourceType::Rule,
            false => ResourceType::Attachment,
        };
        let units = owner
            .slots
            .iter()
            .filter(|slot| self.slots[**slot].kind == unit);
        // The list of lagging proxies is updated only at intervals.
        let next_list = pending.listed.map(|listed| listed + UPDATE_INTERVAL);
        let wants_list = now >= pending.since + GRACE && next_list.is_none_or(|next| now >= next)
            || examination.has_rejections();
        let states: Vec<(SlotId, PartState)> = units
            .map(|slot| {
                (
                    *slot,
                    self.part_state(*slot, owner, pending, wants_list, examination),
                )
            })
            .collect();
        let is_known = |effect: &Effect| matches!(effect, Effect::Partial(_));
        let keeps_list = !wants_list
            && owner.local.as_deref().is_some_and(|local| match local {
                RouteEffect::Uniform(effect) => is_known(effect),
                RouteEffect::PerFrontend(all) => all.values().any(is_known),
            })
            && states.iter().any(|(_, state)| state.is_lagging);
        if keeps_list {
            if let Some(next) = next_list {
                found.wake_at(next);
            }
            return LocalEffect {
                effect: owner.local.clone(),
                is_final: false,
                in_effect_after: None,
            };
        }
        let effects: Vec<(SlotId, Effect)> = states
            .iter()
            .map(|(slot, state)| (*slot, self.effect_of(state, owner, pending, now)))
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
            effect: (!effects.is_empty()).then(|| self.joined(&owner.key, &effects)),
            is_final,
            in_effect_after,
        }
    }

    fn reconnect_deadline(&self, pending: &Pending) -> Instant {
        let started = self.effects.started.map(|started| started + START_GRACE);
        let disconnected = pending
            .disconnected
            .map(|disconnected| disconnected + RECONNECT_GRACE);
        disconnected.or(started).unwrap_or(pending.since)
    }

    /// Returns the effect to report.
    fn effect_of(
        &self,
        state: &PartState,
        owner: &Owner,
        pending: &Pending,
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
        let is_expected = owner.local.as_deref().is_none_or(|local| match local {
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

    /// Determines the effect of a part on the proxies that receive it. With `wants_list`, lists those that lag.
    fn part_state(
        &self,
        part: SlotId,
        owner: &Owner,
        pending: &Pending,
        wants_list: bool,
        examination: &mut Examination<'_>,
    ) -> PartState {
        let mut state = PartState::default();
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
                list_rejections(&mut state.outdated, log, &related, examination);
            }
            let (entries, _) = self.log(log);
            let newest = entries.changed;
            if followers.lowest() >= Some(owner.changed.min(newest)) {
                continue;
            }
            // The route may have changed for other proxies only.
            let own = related
                .iter()
                .filter(|id| is_part_of_route(self.slots[**id].kind));
            let needed = own.map(|id| self.position_in(log, *id)).max().unwrap_or(0);
            let needed = needed.max(owner.removed.min(newest));
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

    /// Returns the resources on which the effect of a part depends: for an attachment, the route and its rules. With `deep`, also the frontend, the backends,
    /// and everything that these reference.
    fn related(&self, part: SlotId, deep: bool) -> BTreeSet<SlotId> {
        let mut found = BTreeSet::from([part]);
        let mut open = vec![part];
        if deep {
            open.extend(self.slots[part].parent);
        }
        while let Some(id) = open.pop() {
            let slot = &self.slots[id];
            let references = slot.references.iter().copied();
            let rules = slot
                .children
                .iter()
                .filter(|_| slot.kind == ResourceType::Route);
            for other in references.chain(rules) {
                let wanted = deep || is_part_of_route(self.slots[other].kind);
                if wanted && found.insert(other) {
                    open.push(other);
                }
            }
            found.insert(id);
        }
        found
    }

    fn position_in(&self, log: LogId, id: SlotId) -> u64 {
        match log {
            LogId::Everything => self.slots[id].position,
            LogId::Set(set) => self.sets.get(&set).map_or(0, |set| set.position(id)),
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
        let followers = examination.by_log.entry(log).or_insert_with(|| {
            let followers = self.proxies.iter();
            let followers =
                followers.filter(|(_, progress)| progress.log == log && progress.counts);
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

/// Adds the rejections of some resources by followers of a log.
fn list_rejections(
    outdated: &mut OutdatedProxies,
    log: LogId,
    resources: &BTreeSet<SlotId>,
    examination: &Examination<'_>,
) {
    let named = resources
        .iter()
        .filter_map(|id| examination.rejections.get(id));
    let all = named.flatten().chain(&examination.unnamed);
    for rejection in all.filter(|rejection| rejection.log == log) {
        if outdated.rejections.len() == MAX_NAMED {
            outdated.has_more_rejections = true;
            return;
        }
        let ProxyRejection {
            proxy,
            resource,
            why,
            ..
        } = rejection.clone();
        outdated.rejections.insert((proxy, resource, why));
    }
}
