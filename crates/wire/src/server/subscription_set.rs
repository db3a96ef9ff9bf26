//! Logs of changes, and the sets of resources that proxies with a restricted subscription receive.
//!
//! The members of a set are the resources reachable from those that a subscription selects, along references and from parents to children. This graph is
//! acyclic, so the set counts the paths to each member, and the cost of a change is proportional to the members that it affects.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::slots::{SlotId, Slots};
use crate::digest::Digest;
use crate::server::Subscription;

/// Identifies a subscription set.
pub(super) type SetId = u32;

/// Changes in order, in which each resource has only its latest position.
#[derive(Debug, Default)]
pub(super) struct SubscriptionLog {
    entries: BTreeMap<u64, SlotId>,
    /// Positions of removals.
    removals: BTreeSet<u64>,
    /// Position up to which removals may have been dropped.
    pub horizon: u64,
    /// Position at which the log was created. It does not contain earlier removals.
    pub start: u64,
    /// Position of the last change.
    pub changed: u64,
}

/// Minimum number of removals that a log keeps for slow proxies.
const MIN_REMOVALS: usize = 10_000;

impl SubscriptionLog {
    /// Moves a resource from its old position, if it has one (not 0), to a new one.
    pub fn record(&mut self, id: SlotId, old: u64, new: u64, is_removal: bool) {
        self.forget(old);
        self.entries.insert(new, id);
        if is_removal {
            self.removals.insert(new);
        }
        self.changed = new;
    }

    /// Removes a position.
    pub fn forget(&mut self, position: u64) {
        self.entries.remove(&position);
        self.removals.remove(&position);
    }

    /// Returns the changes after a position.
    pub fn after(&self, position: u64) -> impl Iterator<Item = (u64, SlotId)> {
        let later = self.entries.range(position + 1..);
        later.map(|(position, id)| (*position, *id))
    }

    /// Returns the number of resources that exist.
    pub fn len(&self) -> usize {
        self.entries.len() - self.removals.len()
    }

    /// Returns true if there are removals that may be dropped.
    pub fn has_removals(&self) -> bool {
        !self.removals.is_empty()
    }

    /// Drops removals that all proxies have received. If there are too many, drops all.
    pub fn expire(&mut self, passed: u64) -> Vec<SlotId> {
        let passed = match self.removals.len() > self.len().max(MIN_REMOVALS) {
            true => u64::MAX,
            false => passed,
        };
        let expired: Vec<u64> = self.removals.range(..=passed).copied().collect();
        self.horizon = expired.last().copied().unwrap_or(self.horizon);
        let expired = expired.into_iter();
        let ids = expired.filter_map(|position| {
            self.removals.remove(&position);
            self.entries.remove(&position)
        });
        ids.collect()
    }
}

/// A resource of a set.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// Number of paths to the resource; 0 if it was removed from the set and its removal is still in the log.
    count: u32,
    /// Position in the log; 0 if it has none because the resource does not exist.
    position: u64,
}

/// The resources that proxies with a restricted subscription receive.
#[derive(Debug)]
pub(super) struct SubscriptionSet {
    pub subscription: Subscription,
    /// Number of connected proxies with this subscription.
    pub subscribers: usize,
    members: HashMap<SlotId, Member>,
    pub log: SubscriptionLog,
    pub digest: Digest,
}

impl SubscriptionSet {
    /// Creates an empty set.
    pub fn new(subscription: Subscription) -> Self {
        SubscriptionSet {
            subscription,
            subscribers: 0,
            members: HashMap::new(),
            log: SubscriptionLog::default(),
            digest: Digest::default(),
        }
    }

    /// Returns whether a resource is in the set.
    pub fn contains(&self, id: SlotId) -> bool {
        self.members.get(&id).is_some_and(|member| member.count > 0)
    }

    /// Returns the position of a resource in the log; 0 if it is not in the set.
    pub fn position(&self, id: SlotId) -> u64 {
        let member = self.members.get(&id).filter(|member| member.count > 0);
        member.map_or(0, |member| member.position)
    }

    /// Returns the resources in the set.
    pub fn members(&self) -> impl Iterator<Item = SlotId> {
        let members = self.members.iter();
        members
            .filter(|(_, member)| member.count > 0)
            .map(|(id, _)| *id)
    }

    /// Returns the number of resources.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Records a new version, or the removal, of a member.
    pub fn record_change(&mut self, id: SlotId, is_removal: bool, position: &mut u64) {
        let member = self.members.entry(id).or_default();
        *position += 1;
        self.log.record(id, member.position, *position, is_removal);
        member.position = *position;
    }

    /// Adds a path to a resource, and everything reachable from it.
    pub fn add_path(&mut self, set_id: SetId, id: SlotId, slots: &mut Slots, position: &mut u64) {
        let member = self.members.entry(id).or_default();
        member.count += 1;
        if member.count > 1 {
            return;
        }
        if member.position == 0 {
            slots.add_reference(id);
        }
        slots[id].sets.push(set_id);
        for reference in slots[id].references.clone().into_iter() {
            self.add_path(set_id, reference, slots, position);
        }
        if let Some(fingerprint) = slots[id].fingerprint() {
            self.digest.add(fingerprint);
            self.record_change(id, false, position);
        }
        for child in slots[id].children.clone().iter() {
            self.add_path(set_id, child, slots, position);
        }
    }

    /// Removes a path to a resource, and everything that is no longer reachable.
    pub fn remove_path(
        &mut self,
        set_id: SetId,
        id: SlotId,
        slots: &mut Slots,
        position: &mut u64,
    ) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        member.count -= 1;
        if member.count > 0 {
            return;
        }
        let was_logged = member.position != 0;
        slots[id].sets.retain(|set| *set != set_id);
        for child in slots[id].children.clone().iter() {
            self.remove_path(set_id, child, slots, position);
        }
        if let Some(fingerprint) = slots[id].fingerprint() {
            self.digest.remove(fingerprint);
            self.record_change(id, true, position);
        }
        for reference in slots[id].references.clone().into_iter() {
            self.remove_path(set_id, reference, slots, position);
        }
        if !was_logged {
            self.members.remove(&id);
            slots.release(id);
        }
    }

    /// Drops removals that all proxies have received.
    pub fn expire(&mut self, passed: u64, slots: &mut Slots) {
        for id in self.log.expire(passed) {
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.position = 0;
            if member.count == 0 {
                self.members.remove(&id);
                slots.release(id);
            }
        }
    }

    /// Removes all members.
    pub fn release_all(self, set_id: SetId, slots: &mut Slots) {
        for id in self.members.into_keys() {
            slots[id].sets.retain(|set| *set != set_id);
            slots.release(id);
        }
    }
}
