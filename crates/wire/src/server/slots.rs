//! The resources of a control plane and the references between them, in little memory: there are three for each route.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

use super::encoded_change::Payload;
use super::selector::SubscriptionRoot;
use super::store::RouteIndex;
use super::subscription_set::SetId;
use crate::digest::Fingerprint;
use crate::resource::ResourceType;

/// Index of a slot.
pub(super) type SlotId = u32;

/// A resource, or the name of a missing resource that others reference.
#[derive(Debug)]
pub(super) struct ResourceSlot {
    pub name: Arc<str>,
    pub kind: ResourceType,
    pub content: Option<SlotContent>,
    /// Position in the log of everything; 0 if it has none.
    pub position: u64,
    /// Resources that this one references.
    pub references: Box<[SlotId]>,
    /// Resources that name this one as their parent.
    pub children: ChildSet,
    pub parent: Option<SlotId>,
    /// Subscription sets that it is in.
    pub sets: Vec<SetId>,
    /// Routes and policies that it is a part of.
    pub routes: Box<[RouteIndex]>,
    /// Number of logs, subscription sets and resources that need the slot, whether or not the resource exists.
    reference_count: u32,
}

#[derive(Debug)]
pub(super) struct SlotContent {
    pub payload: Payload,
    pub fingerprint: Fingerprint,
    pub root: Option<Box<SubscriptionRoot>>,
}

impl ResourceSlot {
    /// Returns the fingerprint of the resource, if it exists.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.content.as_ref().map(|content| content.fingerprint)
    }
}

/// A set of slots. Most have at most one: a route has many rules rarely, and only frontends have many attachments.
#[derive(Clone, Debug, Default)]
#[allow(clippy::box_collection, reason = "it makes each slot smaller")]
pub(super) enum ChildSet {
    #[default]
    None,
    One(SlotId),
    Many(Box<BTreeSet<SlotId>>),
}

impl ChildSet {
    pub fn insert(&mut self, id: SlotId) {
        match self {
            ChildSet::None => *self = ChildSet::One(id),
            ChildSet::One(only) if *only == id => {}
            ChildSet::One(only) => *self = ChildSet::Many(Box::new([*only, id].into())),
            ChildSet::Many(many) => drop(many.insert(id)),
        }
    }

    pub fn remove(&mut self, id: SlotId) {
        match self {
            ChildSet::One(only) if *only == id => *self = ChildSet::None,
            ChildSet::Many(many) => drop(many.remove(&id)),
            _ => {}
        }
    }

    /// Iterates over the members in order.
    pub fn iter(&self) -> impl Iterator<Item = SlotId> {
        let (one, many) = match self {
            ChildSet::None => (None, None),
            ChildSet::One(only) => (Some(*only), None),
            ChildSet::Many(many) => (None, Some(many)),
        };
        one.into_iter()
            .chain(many.into_iter().flat_map(|many| many.iter().copied()))
    }
}

/// All slots.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<ResourceSlot>,
    free: Vec<SlotId>,
    /// Slots by name.
    names: HashTable<SlotId>,
    hasher: RandomState,
}

impl std::ops::Index<SlotId> for Slots {
    type Output = ResourceSlot;

    fn index(&self, id: SlotId) -> &ResourceSlot {
        &self.slots[id as usize]
    }
}

impl std::ops::IndexMut<SlotId> for Slots {
    fn index_mut(&mut self, id: SlotId) -> &mut ResourceSlot {
        &mut self.slots[id as usize]
    }
}

impl Slots {
    /// Finds the slot of a name.
    pub fn find(&self, name: &str) -> Option<SlotId> {
        let same = |id: &SlotId| &*self[*id].name == name;
        self.names.find(self.hasher.hash_one(name), same).copied()
    }

    /// Finds or creates the slot of a name, and adds a reference to it.
    pub fn acquire(&mut self, name: &Arc<str>, kind: ResourceType) -> SlotId {
        let id = self.find(name).unwrap_or_else(|| self.create(name, kind));
        self.add_reference(id);
        id
    }

    fn create(&mut self, name: &Arc<str>, kind: ResourceType) -> SlotId {
        let slot = ResourceSlot {
            name: name.clone(),
            kind,
            content: None,
            position: 0,
            references: Box::default(),
            children: ChildSet::None,
            parent: None,
            sets: Vec::new(),
            routes: Box::default(),
            reference_count: 0,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self[id] = slot;
                id
            }
            None => {
                if self.slots.len() == self.slots.capacity() {
                    // There may be hundreds of thousands, so doubling would waste memory.
                    self.slots.reserve_exact(self.slots.len() / 8 + 64);
                }
                self.slots.push(slot);
                (self.slots.len() - 1) as SlotId
            }
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash_of = |id: &SlotId| hasher.hash_one(&*slots[*id as usize].name);
        self.names.insert_unique(hash_of(&id), id, hash_of);
        id
    }

    /// Increments the reference count of a slot.
    pub fn add_reference(&mut self, id: SlotId) {
        self[id].reference_count += 1;
    }

    /// Decrements the slot's reference count and frees an unused slot.
    pub fn release(&mut self, id: SlotId) {
        let slot = &mut self[id];
        slot.reference_count -= 1;
        if slot.reference_count == 0 {
            let name = std::mem::replace(&mut slot.name, "".into());
            let hash = self.hasher.hash_one(&*name);
            if let Ok(entry) = self.names.find_entry(hash, |found| *found == id) {
                entry.remove();
            }
            self.free.push(id);
        }
    }

    /// Returns the number of names.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the resources that exist.
    pub fn contents(&self) -> impl Iterator<Item = (SlotId, &SlotContent)> {
        let slots = self.slots.iter().zip(0..);
        slots.filter_map(|(slot, id)| Some((id, slot.content.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_a_set_in_order() {
        let mut children = ChildSet::default();
        for id in [7, 7, 3, 9, 3] {
            children.insert(id);
        }
        children.remove(8);
        assert!(children.iter().eq([3, 7, 9]));
        for id in [3, 9, 7] {
            children.remove(id);
        }
        assert_eq!(children.iter().count(), 0);
        children.insert(1);
        children.insert(1);
        children.remove(2);
        assert!(children.iter().eq([1]));
        children.remove(1);
        assert_eq!(children.iter().count(), 0);
    }

    #[test]
    fn slots_are_found_by_name_until_they_are_released() {
        let mut slots = Slots::default();
        let names: Vec<Arc<str>> = (0..100).map(|n| format!("rule/{n}").into()).collect();
        let acquire = |slots: &mut Slots, name| slots.acquire(name, ResourceType::Rule);
        let ids: Vec<SlotId> = names.iter().map(|name| acquire(&mut slots, name)).collect();
        assert_eq!(acquire(&mut slots, &names[42]), ids[42]);
        slots.release(ids[42]);
        assert_eq!(
            slots.find(&names[42]),
            Some(ids[42]),
            "it is still referenced"
        );
        slots.release(ids[42]);
        assert_eq!(slots.find(&names[42]), None);
        assert_eq!(slots.find(&names[43]), Some(ids[43]));
        assert_eq!(acquire(&mut slots, &"rule/new".into()), ids[42]);
    }

    #[test]
    fn a_slot_is_small() {
        assert!(
            size_of::<ResourceSlot>() <= 160,
            "{}",
            size_of::<ResourceSlot>()
        );
    }
}
