//! The encoded resources of a control plane, and the progress of each proxy.
//!
//! Each change of a resource gets the next position of one sequence. A proxy has received everything up to its own position. This module does no I/O and never
//! blocks.

mod effects;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::encoded_change::{EncodedChange, EncodedUpdate};
use super::selector::Subscription;
use super::slots::{SlotContent, SlotId, Slots};
use super::subscription_set::{SetId, SubscriptionLog, SubscriptionSet};
use crate::digest::{Digest, Fingerprint};
use crate::resource::ResourceType;
pub use effects::{
    EFFECT_BUCKETS, EffectChanges, EffectHistogram, RemoteEffect, RouteIndex, RoutesToExamine,
};
use effects::{Effects, Rejections};

/// Identifies a connected proxy.
pub type ProxyId = u64;

/// The log that a proxy follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LogId {
    Everything,
    Set(SetId),
}

/// The state of a proxy that has received everything of one log up to a position. Proxies send it when they reconnect. It has no meaning for another log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    log: LogId,
    at: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = match self.log {
            LogId::Everything => 0,
            LogId::Set(set_id) => set_id,
        };
        write!(f, "{log}:{}", self.at)
    }
}

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (log, at) = text.split_once(':').ok_or(())?;
        let log = match log.parse().map_err(drop)? {
            0 => LogId::Everything,
            set_id => LogId::Set(set_id),
        };
        let at = at.parse().map_err(drop)?;
        Ok(Position { log, at })
    }
}

/// Progress of a connected proxy.
#[derive(Debug)]
struct Progress {
    log: LogId,
    /// Everything up to here was sent.
    position: u64,
    /// Resources that differed when the proxy connected and have not been sent yet. Their slots stay as long as the proxy has not passed the position of their removal.
    backlog: VecDeque<SlotId>,
    /// Names of resources that the proxy had when it connected and has to remove.
    gone: Vec<Box<str>>,
    /// A commit must follow: changes were sent since the last one, or none was sent yet.
    is_dirty: bool,
    /// Last commit that is in effect; `None` before the first one.
    acknowledged: Option<u64>,
    /// True if the proxy is considered to serve its subscription: it has its first configuration, or the time to get it has passed.
    is_serving: bool,
    /// The log's horizon when the proxy connected. Removals dropped before then do not affect the proxy.
    horizon: u64,
    /// Removals up to this position are not sent, because the proxy had no resources when it connected.
    skip_removals: u64,
    rejections: Rejections,
}

/// The next changes to send to a proxy.
#[derive(Debug, Default)]
pub struct Batch {
    /// Encoded resources.
    pub updates: Vec<(ResourceType, Bytes)>,
    /// Names of removed resources.
    pub removals: Vec<(ResourceType, Arc<str>)>,
    /// The commit that ends the batch, if the proxy has all changes after it.
    pub commit: Option<u64>,
}

/// The method to bring a newly connected proxy up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Send changes only, or everything to a proxy without resources.
    SendChanges,
    /// Request a list of its resources in these buckets; see [`Store::compare`].
    Compare(Vec<u16>),
}

/// Result of a comparison with the resources that a proxy has listed, without those that differ, whose number may be that of all resources.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Resources that the proxy has in the current version.
    same: Vec<SlotId>,
    /// Names of resources that it has to remove.
    gone: Vec<Box<str>>,
    gone_bytes: usize,
}

impl Comparison {
    /// Memory that it takes, in bytes.
    pub fn size(&self) -> usize {
        self.same.len() * size_of::<SlotId>() + self.gone_bytes
    }
}

/// Progress of a proxy.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgressReport {
    /// Last commit that is in effect; `None` before the first one.
    pub acknowledged: Option<u64>,
    /// Position of the last change of its subscription.
    pub target: u64,
    /// Number of resources that it subscribes to.
    pub resources: usize,
}

/// The resources, and the progress of each proxy.
#[derive(Debug, Default)]
pub struct Store {
    slots: Slots,
    /// Position of the last change.
    position: u64,
    log: SubscriptionLog,
    digest: Digest,
    sets: HashMap<SetId, SubscriptionSet>,
    next_set: SetId,
    /// Resources that subscriptions may select.
    roots: BTreeSet<SlotId>,
    proxies: HashMap<ProxyId, Progress>,
    next_proxy: ProxyId,
    effects: Effects,
}

impl Store {
    /// Applies changed resources. They are sent together. Returns whether anything has changed.
    pub fn apply(&mut self, changes: Vec<EncodedChange>, now: Instant) -> bool {
        let before = self.position;
        for mut change in changes {
            match change.update.take() {
                Some(update) => self.update(&change, update, now),
                None => self.remove(&change, now),
            }
        }
        self.expire();
        self.position != before
    }

    fn update(&mut self, change: &EncodedChange, update: EncodedUpdate, now: Instant) {
        let id = self.slots.acquire(&change.name, change.kind);
        let old = self.slots[id].fingerprint();
        if old == Some(update.fingerprint) {
            return self.slots.release(id);
        }
        let references = self.acquire_all(&update.references);
        let old_references = std::mem::replace(&mut self.slots[id].references, references.clone());
        self.slots[id].content = Some(SlotContent {
            payload: update.payload,
            fingerprint: update.fingerprint,
            root: update.root,
        });
        if let Some(old) = old {
            self.digest.remove(old);
        }
        self.digest.add(update.fingerprint);
        self.enter_references(id, &references, &old_references);
        self.position += 1;
        let position = self.slots[id].position;
        self.log.record(id, position, self.position, false);
        self.slots[id].position = self.position;
        if position == 0 {
            self.slots.add_reference(id);
        }
        for set_id in self.slots[id].sets.clone() {
            if let Some(set) = self.sets.get_mut(&set_id) {
                if let Some(old) = old {
                    set.digest.remove(old);
                }
                set.digest.add(update.fingerprint);
                set.record_change(id, false, &mut self.position);
            }
        }
        if old.is_none() {
            self.add_to_parent_and_sets(id, update.parent.as_ref());
        }
        self.leave_references(id, &references, &old_references);
        old_references
            .into_iter()
            .for_each(|id| self.slots.release(id));
        self.record_resource_change(id, &change.routes, now);
        self.slots.release(id);
    }

    fn acquire_all(&mut self, names: &[Arc<str>]) -> Box<[SlotId]> {
        let mut ids = Vec::with_capacity(names.len());
        for name in names {
            let kind = ResourceType::of_name(name).unwrap_or(ResourceType::Backend);
            let id = self.slots.acquire(name, kind);
            match ids.contains(&id) {
                true => self.slots.release(id),
                false => ids.push(id),
            }
        }
        ids.into()
    }

    /// Adds newly referenced resources to the sets of a resource.
    fn enter_references(&mut self, id: SlotId, new: &[SlotId], old: &[SlotId]) {
        for set_id in self.slots[id].sets.clone() {
            let Some(set) = self.sets.get_mut(&set_id) else {
                continue;
            };
            for added in new.iter().filter(|id| !old.contains(id)) {
                set.add_path(set_id, *added, &mut self.slots, &mut self.position);
            }
        }
    }

    /// Removes resources that a resource no longer references from its sets.
    fn leave_references(&mut self, id: SlotId, new: &[SlotId], old: &[SlotId]) {
        for set_id in self.slots[id].sets.clone() {
            let Some(set) = self.sets.get_mut(&set_id) else {
                continue;
            };
            for gone in old.iter().filter(|id| !new.contains(id)) {
                set.remove_path(set_id, *gone, &mut self.slots, &mut self.position);
            }
        }
    }

    /// Adds a new resource to the children of its parent and to the sets that select it.
    fn add_to_parent_and_sets(&mut self, id: SlotId, parent: Option<&Arc<str>>) {
        if let Some(parent) = parent {
            let kind = ResourceType::of_name(parent).unwrap_or(ResourceType::Frontend);
            let parent = self.slots.acquire(parent, kind);
            self.slots[id].parent = Some(parent);
            self.slots[parent].children.insert(id);
            for set_id in self.slots[parent].sets.clone() {
                if let Some(set) = self.sets.get_mut(&set_id) {
                    set.add_path(set_id, id, &mut self.slots, &mut self.position);
                }
            }
        }
        let content = self.slots[id].content.as_ref();
        if let Some(root) = content.and_then(|content| content.root.clone()) {
            self.roots.insert(id);
            for (set_id, set) in &mut self.sets {
                if set.subscription.selects(&root) {
                    set.add_path(*set_id, id, &mut self.slots, &mut self.position);
                }
            }
        }
    }

    fn remove(&mut self, change: &EncodedChange, now: Instant) {
        let Some(id) = self.slots.find(&change.name) else {
            return;
        };
        let Some(content) = self.slots[id].content.take() else {
            return;
        };
        self.digest.remove(content.fingerprint);
        self.position += 1;
        self.log
            .record(id, self.slots[id].position, self.position, true);
        self.slots[id].position = self.position;
        for set_id in self.slots[id].sets.clone() {
            if let Some(set) = self.sets.get_mut(&set_id) {
                set.digest.remove(content.fingerprint);
                set.record_change(id, true, &mut self.position);
            }
        }
        let old_references = std::mem::take(&mut self.slots[id].references);
        self.leave_references(id, &[], &old_references);
        if let Some(parent) = self.slots[id].parent.take() {
            self.slots[parent].children.remove(id);
            for set_id in self.slots[parent].sets.clone() {
                if let Some(set) = self.sets.get_mut(&set_id) {
                    set.remove_path(set_id, id, &mut self.slots, &mut self.position);
                }
            }
            self.slots.release(parent);
        }
        if let Some(root) = &content.root {
            self.roots.remove(&id);
            for (set_id, set) in &mut self.sets {
                if set.subscription.selects(root) {
                    set.remove_path(*set_id, id, &mut self.slots, &mut self.position);
                }
            }
        }
        old_references
            .into_iter()
            .for_each(|id| self.slots.release(id));
        self.record_resource_change(id, &[], now);
    }

    /// Drops removals that every proxy has received.
    fn expire(&mut self) {
        let has_removals = |set: &SubscriptionSet| set.log.has_removals();
        if !self.log.has_removals() && !self.sets.values().any(has_removals) {
            return;
        }
        let mut passed: HashMap<LogId, u64> = HashMap::new();
        for proxy in self.proxies.values() {
            let least = passed.entry(proxy.log).or_insert(u64::MAX);
            *least = proxy.position.min(*least);
        }
        let passed = |log: LogId| passed.get(&log).copied().unwrap_or(u64::MAX);
        for (set_id, set) in &mut self.sets {
            set.expire(passed(LogId::Set(*set_id)), &mut self.slots);
        }
        for id in self.log.expire(passed(LogId::Everything)) {
            self.slots[id].position = 0;
            self.slots.release(id);
        }
    }

    /// Returns the position of the last change.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of resources.
    fn len(&self) -> usize {
        self.log.len()
    }
}

/// Proxies.
impl Store {
    /// Connects a proxy. `digest` summarizes its resources, and `position` is that of its last commit if it was connected to this process before.
    pub fn connect(
        &mut self,
        subscription: &Subscription,
        digest: &HashMap<String, String>,
        position: Option<Position>,
        now: Instant,
    ) -> (ProxyId, Resume) {
        let log = self.find_log(subscription);
        let (follows, ours) = self.log_and_digest(log);
        let known = follows.horizon.max(follows.start)..=self.position;
        // If the proxy's permissions have changed, it followed another log before.
        let is_known = |position: &Position| position.log == log && known.contains(&position.at);
        let resumed = position.filter(is_known).map(|position| position.at);
        let (position, resume) = match resumed {
            Some(position) => (position, Resume::SendChanges),
            None if digest.is_empty() => (0, Resume::SendChanges),
            None => match ours.differing(digest) {
                buckets if buckets.is_empty() => (self.position, Resume::SendChanges),
                buckets => (self.position, Resume::Compare(buckets)),
            },
        };
        let horizon = follows.horizon;
        let skip_removals = match position {
            0 => self.position,
            _ => 0,
        };
        self.next_proxy += 1;
        let progress = Progress {
            log,
            horizon,
            skip_removals,
            position,
            backlog: VecDeque::new(),
            gone: Vec::new(),
            is_dirty: true,
            // Everything up to the position is in effect on the proxy.
            acknowledged: resumed,
            is_serving: false,
            rejections: Rejections::default(),
        };
        if let LogId::Set(set_id) = log
            && let Some(set) = self.sets.get_mut(&set_id)
        {
            set.subscribers += 1;
        }
        self.proxies.insert(self.next_proxy, progress);
        self.record_connect(self.next_proxy, digest.is_empty(), now);
        (self.next_proxy, resume)
    }

    /// Compares resources that a proxy has listed with the actual ones. A list may arrive in several parts.
    pub fn compare(&self, proxy: ProxyId, listed: HashMap<String, String>, found: &mut Comparison) {
        let Some(progress) = self.proxies.get(&proxy) else {
            return;
        };
        for (name, version) in listed {
            let id = self.slots.find(&name);
            match id.filter(|id| self.is_sent(progress.log, *id)) {
                Some(id) => {
                    let listed = Fingerprint::new(&name, &version);
                    if self.slots[id].fingerprint() == Some(listed) {
                        found.same.push(id);
                    }
                }
                None => {
                    found.gone_bytes += name.len();
                    found.gone.push(name.into());
                }
            }
        }
    }

    /// Sends the differences in some buckets, which are sorted, first. A slot that has been given to another resource since the comparison has a later position.
    pub fn finish_comparison(&mut self, proxy: ProxyId, buckets: &[u16], mut found: Comparison) {
        let Some(progress) = self.proxies.get(&proxy) else {
            return;
        };
        let (log, position) = (progress.log, progress.position);
        found.same.sort_unstable();
        let differs = |id: &SlotId| {
            let fingerprint = self.slots[*id].fingerprint();
            fingerprint.is_some_and(|own| buckets.binary_search(&own.bucket()).is_ok())
                && self.position_in(log, *id) <= position
                && found.same.binary_search(id).is_err()
        };
        let mut backlog = self.resources(log);
        backlog.retain(differs);
        backlog.sort_unstable_by_key(|id| self.slots[*id].position);
        backlog.shrink_to_fit();
        if let Some(progress) = self.proxies.get_mut(&proxy) {
            progress.backlog = backlog.into();
            progress.gone = found.gone;
        }
    }

    /// Returns the existing resources that followers of a log receive.
    fn resources(&self, log: LogId) -> Vec<SlotId> {
        let contents = self.slots.contents().map(|(id, _)| id);
        match log {
            LogId::Everything => contents.collect(),
            LogId::Set(set_id) => {
                let members = self
                    .sets
                    .get(&set_id)
                    .into_iter()
                    .flat_map(SubscriptionSet::members);
                let exists = |id: &SlotId| self.slots[*id].content.is_some();
                members.filter(exists).collect()
            }
        }
    }

    /// Returns whether followers of a log receive an existing resource.
    fn is_sent(&self, log: LogId, id: SlotId) -> bool {
        let is_in_set = match log {
            LogId::Everything => true,
            LogId::Set(set_id) => self.sets.get(&set_id).is_some_and(|set| set.contains(id)),
        };
        is_in_set && self.slots[id].content.is_some()
    }

    fn log_and_digest(&self, log: LogId) -> (&SubscriptionLog, &Digest) {
        let set = match log {
            LogId::Everything => None,
            LogId::Set(set_id) => self.sets.get(&set_id),
        };
        match set {
            Some(set) => (&set.log, &set.digest),
            None => (&self.log, &self.digest),
        }
    }

    /// Finds or creates the log of a subscription.
    fn find_log(&mut self, subscription: &Subscription) -> LogId {
        if *subscription == Subscription::Everything {
            return LogId::Everything;
        }
        let mut sets = self.sets.iter();
        if let Some((set_id, _)) = sets.find(|(_, set)| set.subscription == *subscription) {
            return LogId::Set(*set_id);
        }
        self.next_set += 1;
        let set_id = self.next_set;
        let mut set = SubscriptionSet::new(subscription.clone());
        let is_selected = |id: &SlotId| {
            let content = self.slots[*id].content.as_ref();
            let root = content.and_then(|content| content.root.as_deref());
            root.is_some_and(|root| subscription.selects(root))
        };
        let mut selected: Vec<SlotId> = self.roots.iter().copied().filter(is_selected).collect();
        selected.sort_by_key(|id| self.slots[*id].position);
        for id in selected {
            set.add_path(set_id, id, &mut self.slots, &mut self.position);
        }
        set.log.start = self.position;
        self.sets.insert(set_id, set);
        LogId::Set(set_id)
    }

    /// Disconnects a proxy. A set without subscribers is removed.
    pub fn disconnect(&mut self, proxy: ProxyId, now: Instant) {
        self.record_disconnect(proxy, now);
        let Some(progress) = self.proxies.remove(&proxy) else {
            return;
        };
        self.forget_rejections(progress.rejections);
        let LogId::Set(set_id) = progress.log else {
            return;
        };
        let Some(set) = self.sets.get_mut(&set_id) else {
            return;
        };
        set.subscribers -= 1;
        if set.subscribers == 0
            && let Some(set) = self.sets.remove(&set_id)
        {
            set.release_all(set_id, &mut self.slots);
        }
    }

    /// Takes the next batch of about `bytes` for a proxy. Fails if changes that the proxy has not received were dropped, so that it has to reconnect.
    pub fn next_batch(&mut self, proxy: ProxyId, bytes: usize) -> Option<Batch> {
        let mut progress = self.proxies.remove(&proxy)?;
        let batch = self.fill(&mut progress, bytes);
        self.proxies.insert(proxy, progress);
        batch
    }

    fn fill(&self, progress: &mut Progress, bytes: usize) -> Option<Batch> {
        let (log, _) = self.log_and_digest(progress.log);
        if progress.position < log.horizon && progress.horizon < log.horizon {
            return None;
        }
        let mut batch = Batch::default();
        let mut size = 0;
        // Those that have been removed or created meanwhile are in the log.
        while size < bytes
            && let Some(id) = progress.backlog.pop_front()
        {
            if self.is_sent(progress.log, id) {
                size += self.push(&mut batch, id, true);
            }
        }
        while size < bytes
            && let Some(name) = progress.gone.pop()
        {
            let id = self.slots.find(&name);
            if !id.is_some_and(|id| self.is_sent(progress.log, id)) {
                let kind = ResourceType::of_name(&name).unwrap_or(ResourceType::Backend);
                size += name.len();
                batch.removals.push((kind, name.into()));
            }
        }
        if progress.backlog.is_empty() && progress.gone.is_empty() {
            (progress.backlog, progress.gone) = Default::default();
        }
        for (position, id) in log.after(progress.position) {
            if size >= bytes {
                break;
            }
            let exists = self.is_sent(progress.log, id);
            if exists || position > progress.skip_removals {
                size += self.push(&mut batch, id, exists);
            }
            progress.position = position;
        }
        let is_complete = progress.backlog.is_empty() && progress.gone.is_empty() && size < bytes;
        progress.is_dirty |= size > 0;
        if is_complete {
            progress.position = self.position;
            batch.commit = std::mem::take(&mut progress.is_dirty).then_some(self.position);
        }
        Some(batch)
    }

    fn push(&self, batch: &mut Batch, id: SlotId, exists: bool) -> usize {
        let slot = &self.slots[id];
        match slot.content.as_ref().filter(|_| exists) {
            Some(content) => {
                let message = content.payload.message(&slot.name, slot.kind);
                let size = message.len();
                batch.updates.push((slot.kind, message));
                size
            }
            None => {
                batch.removals.push((slot.kind, slot.name.clone()));
                slot.name.len()
            }
        }
    }

    /// Returns whether there is something to send to a proxy.
    pub fn has_changes(&self, proxy: ProxyId) -> bool {
        self.proxies.get(&proxy).is_some_and(|progress| {
            let (log, _) = self.log_and_digest(progress.log);
            progress.is_dirty
                || !progress.backlog.is_empty()
                || !progress.gone.is_empty()
                || log.changed > progress.position
        })
    }

    /// Returns the progress of a proxy.
    pub fn progress(&self, proxy: ProxyId) -> Option<ProgressReport> {
        let progress = self.proxies.get(&proxy)?;
        let (log, _) = self.log_and_digest(progress.log);
        Some(ProgressReport {
            acknowledged: progress.acknowledged,
            target: log.changed,
            resources: match progress.log {
                LogId::Everything => self.len(),
                LogId::Set(set_id) => self.sets.get(&set_id).map_or(0, SubscriptionSet::len),
            },
        })
    }

    /// Returns the position that a commit leads to.
    pub fn position_of(&self, proxy: ProxyId, commit: u64) -> Option<Position> {
        let log = self.proxies.get(&proxy)?.log;
        Some(Position { log, at: commit })
    }
}

#[cfg(test)]
mod tests;
