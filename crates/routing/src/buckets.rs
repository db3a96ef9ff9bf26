//! A hash map by name whose lookup cost is the same for ten entries and for ten thousand.
//!
//! Names are distributed over a fixed number of buckets, each a short list searched by hash. Versions share buckets: a change copies the list of buckets and
//! one bucket.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// Number of buckets. With ten thousand names each bucket has twenty: three cache lines of hashes.
const BUCKETS: usize = 512;

/// Keys come from configuration, so the hasher need not resist attacks.
const HASHER: FixedState = FixedState::with_seed(0);

/// Values by name.
#[derive(Clone, Debug)]
pub(crate) struct BucketMap<T> {
    /// `None` if the map is empty.
    buckets: Option<Arc<[BucketSlot<T>]>>,
    len: usize,
}

/// A bucket, or `None` if it is empty.
type BucketSlot<T> = Option<Arc<Bucket<T>>>;

#[derive(Clone, Debug)]
struct Bucket<T> {
    /// Hashes of the entries, in their order.
    hashes: Vec<u64>,
    entries: Vec<(Arc<str>, T)>,
}

impl<T> Default for BucketMap<T> {
    fn default() -> Self {
        BucketMap {
            buckets: None,
            len: 0,
        }
    }
}

impl<T> Bucket<T> {
    #[inline]
    fn position(&self, hash: u64, key: &str) -> Option<usize> {
        let mut candidates = self.hashes.iter().enumerate();
        let found = candidates.find(|&(at, &other)| other == hash && *self.entries[at].0 == *key);
        found.map(|(at, _)| at)
    }
}

/// Returns the index of the bucket for a hash.
fn bucket_of(hash: u64) -> usize {
    hash as usize % BUCKETS
}

impl<T: Clone> BucketMap<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all values in unspecified order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        let buckets = self.buckets.iter().flat_map(|buckets| buckets.iter());
        let entries = buckets.flatten().flat_map(|bucket| &bucket.entries);
        entries.map(|(_, value)| value)
    }

    #[inline]
    pub(crate) fn get(&self, key: &str) -> Option<&T> {
        let buckets = self.buckets.as_ref()?;
        let hash = HASHER.hash_one(key);
        let bucket = buckets[bucket_of(hash)].as_ref()?;
        bucket.position(hash, key).map(|at| &bucket.entries[at].1)
    }

    /// Returns the bucket of a hash for modification.
    fn bucket_mut(&mut self, hash: u64) -> &mut BucketSlot<T> {
        let buckets = self
            .buckets
            .get_or_insert_with(|| (0..BUCKETS).map(|_| None).collect());
        &mut Arc::make_mut(buckets)[bucket_of(hash)]
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut T> {
        self.get(key)?;
        let hash = HASHER.hash_one(key);
        let bucket = Arc::make_mut(self.bucket_mut(hash).as_mut()?);
        let at = bucket.position(hash, key)?;
        Some(&mut bucket.entries[at].1)
    }

    /// Inserts a value under a name that is not in the map.
    pub(crate) fn insert(&mut self, key: &str, value: T) {
        let hash = HASHER.hash_one(key);
        let bucket = self.bucket_mut(hash).get_or_insert_with(|| {
            Arc::new(Bucket {
                hashes: Vec::new(),
                entries: Vec::new(),
            })
        });
        let bucket = Arc::make_mut(bucket);
        bucket.hashes.push(hash);
        bucket.entries.push((key.into(), value));
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, key: &str) {
        if self.get(key).is_none() {
            return;
        }
        self.len -= 1;
        if self.len == 0 {
            self.buckets = None;
            return;
        }
        let hash = HASHER.hash_one(key);
        let slot = self.bucket_mut(hash);
        let Some(bucket) = slot else { return };
        if bucket.entries.len() == 1 {
            *slot = None;
            return;
        }
        let bucket = Arc::make_mut(bucket);
        if let Some(at) = bucket.position(hash, key) {
            bucket.hashes.swap_remove(at);
            bucket.entries.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_values_are_found_until_removed_and_versions_are_independent() {
        let mut map = BucketMap::default();
        let names: Vec<String> = (0..2_000).map(|n| format!("host-{n}.example")).collect();
        for (n, name) in names.iter().enumerate() {
            map.insert(name, n);
        }
        let before = map.clone();
        for (n, name) in names.iter().enumerate() {
            assert_eq!(map.get(name), Some(&n));
            if let Some(value) = map.get_mut(name) {
                *value += 1;
            }
            if n % 2 == 0 {
                map.remove(name);
            }
        }
        assert_eq!(map.values().count(), 1_000);
        for (n, name) in names.iter().enumerate() {
            assert_eq!(map.get(name).copied(), (n % 2 == 1).then_some(n + 1));
            assert_eq!(before.get(name), Some(&n));
            map.remove(name);
        }
        assert!(map.is_empty() && map.get("host-1.example").is_none());
        assert_eq!(before.values().count(), 2_000);
    }
}
