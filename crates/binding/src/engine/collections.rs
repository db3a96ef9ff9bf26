//! Compact collections for per-object data, of which a cluster has tens of thousands.

use std::collections::{BTreeSet, HashMap, hash_map};
use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;

/// A hash map with a fast hasher that does not resist collision attacks: keys come from the API server or from files, so collisions are not an attack by clients.
pub(crate) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Increments or decrements a count. Returns whether it changed from or to zero.
pub(crate) fn adjust_count<K: Hash + Eq>(counts: &mut FastMap<K, usize>, key: K, up: bool) -> bool {
    let number = counts.entry(key);
    match (number, up) {
        (hash_map::Entry::Occupied(mut entry), true) => {
            *entry.get_mut() += 1;
            false
        }
        (hash_map::Entry::Vacant(entry), true) => {
            entry.insert(1);
            true
        }
        (hash_map::Entry::Occupied(mut entry), false) => {
            *entry.get_mut() -= 1;
            let gone = *entry.get() == 0;
            if gone {
                entry.remove();
            }
            gone
        }
        (hash_map::Entry::Vacant(_), false) => false,
    }
}

/// A sorted set that stores up to [`MAX_IN_VECTOR`] members in a vector, which covers most sets.
#[derive(Clone, Debug)]
pub(crate) enum SmallSet<T> {
    /// At most [`MAX_IN_VECTOR`] members, sorted.
    Few(Vec<T>),
    Many(BTreeSet<T>),
}

/// Maximum number of members of a set that is stored in a vector.
const MAX_IN_VECTOR: usize = 8;

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        SmallSet::Few(Vec::new())
    }
}

impl<T: Ord> SmallSet<T> {
    pub fn insert(&mut self, member: T) {
        match self {
            SmallSet::Few(members) => match members.binary_search(&member) {
                Ok(_) => {}
                Err(at) if members.len() < MAX_IN_VECTOR => {
                    members.reserve_exact(1);
                    members.insert(at, member);
                }
                Err(_) => {
                    let mut many: BTreeSet<T> = std::mem::take(members).into_iter().collect();
                    many.insert(member);
                    *self = SmallSet::Many(many);
                }
            },
            SmallSet::Many(members) => {
                members.insert(member);
            }
        }
    }

    pub fn remove(&mut self, member: &T) {
        match self {
            SmallSet::Few(members) => {
                if let Ok(at) = members.binary_search(member) {
                    members.remove(at);
                }
            }
            SmallSet::Many(members) => {
                members.remove(member);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            SmallSet::Few(members) => members.is_empty(),
            SmallSet::Many(members) => members.is_empty(),
        }
    }

    /// Iterates over the members in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (few, many) = match self {
            SmallSet::Few(members) => (Some(members), None),
            SmallSet::Many(members) => (None, Some(members)),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

/// Maps values to numbers, so that each is stored once and compared cheaply. Numbers of released values are reused.
pub(crate) struct Interner<T> {
    table: HashTable<u32>,
    values: Vec<Option<T>>,
    free: Vec<u32>,
    hasher: foldhash::fast::RandomState,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Interner {
            table: HashTable::new(),
            values: Vec::new(),
            free: Vec::new(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl<T: Hash + Eq> Interner<T> {
    /// Returns the number of a value, if it is interned.
    pub fn find(&self, value: &T) -> Option<u32> {
        let same = |&id: &u32| self.values[id as usize].as_ref() == Some(value);
        self.table.find(self.hasher.hash_one(value), same).copied()
    }

    /// Returns the number of a value, interning it if necessary.
    pub fn intern(&mut self, value: T) -> u32 {
        if let Some(id) = self.find(&value) {
            return id;
        }
        let hash = self.hasher.hash_one(&value);
        let id = match self.free.pop() {
            Some(id) => {
                self.values[id as usize] = Some(value);
                id
            }
            None => {
                if self.values.len() == self.values.capacity() {
                    // There may be hundreds of thousands of values, so doubling would waste memory.
                    self.values.reserve_exact(self.values.len() / 8 + 64);
                }
                self.values.push(Some(value));
                (self.values.len() - 1) as u32
            }
        };
        let (values, hasher) = (&self.values, &self.hasher);
        self.table.insert_unique(hash, id, |&id| {
            // Every number in the table has a value.
            values[id as usize]
                .as_ref()
                .map_or(0, |value| hasher.hash_one(value))
        });
        id
    }

    pub fn value(&self, id: u32) -> Option<&T> {
        self.values.get(id as usize)?.as_ref()
    }

    /// Removes a value; its number may be reused.
    pub fn release(&mut self, id: u32) {
        let Some(value) = self.values[id as usize].take() else {
            return;
        };
        let hash = self.hasher.hash_one(&value);
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == id) {
            entry.remove();
        }
        self.free.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_set_stays_sorted_and_grows() {
        let mut set = SmallSet::default();
        for number in (0..20).rev().chain(0..20) {
            set.insert(number);
        }
        assert!(set.iter().copied().eq(0..20));
        for number in 0..19 {
            set.remove(&number);
        }
        assert!(set.iter().copied().eq([19]));
        set.remove(&19);
        assert!(set.is_empty());
    }

    #[test]
    fn numbers_are_stable_and_reused_after_release() {
        let mut interner = Interner::default();
        let ids: Vec<u32> = (0..100).map(|n| interner.intern(n)).collect();
        assert_eq!(interner.intern(42), ids[42]);
        interner.release(ids[42]);
        assert_eq!(interner.find(&42), None);
        assert_eq!(interner.intern(1000), ids[42]);
        assert_eq!(interner.value(ids[42]), Some(&1000));
        assert_eq!(interner.find(&99), Some(ids[99]));
    }
}
