//! A map by name whose lookup takes the same steps at ten entries and at ten thousand.
//!
//! Names are spread over a fixed number of buckets, each a short list that is searched by hash. Versions share buckets: a change
//! copies the list of buckets and one of them.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// With so many, a bucket holds twenty of ten thousand names: three cache lines of hashes.
const BUCKETS: usize = 512;

/// Its keys come from configuration, so the hasher need not be secret.
const HASHER: FixedState = FixedState::with_seed(0);

/// Things by name.
#[derive(Clone, Debug)]
pub(crate) struct Buckets<T> {
    /// None while there is nothing.
    buckets: Option<Arc<[Place<T>]>>,
    len: usize,
}

/// Where a bucket may be.
type Place<T> = Option<Arc<Bucket<T>>>;

#[derive(Clone, Debug)]
struct Bucket<T> {
    /// Of the entries, in their order.
    hashes: Vec<u64>,
    entries: Vec<(Arc<str>, T)>,
}

impl<T> Default for Buckets<T> {
    fn default() -> Self {
        Buckets {
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

/// Where a hash belongs.
fn bucket_of(hash: u64) -> usize {
    hash as usize % BUCKETS
}

impl<T: Clone> Buckets<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every thing, in no order that means anything.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        let buckets = self.buckets.iter().flat_map(|buckets| buckets.iter());
        let entries = buckets.flatten().flat_map(|bucket| &bucket.entries);
        entries.map(|(_, thing)| thing)
    }

    #[inline]
    pub(crate) fn get(&self, key: &str) -> Option<&T> {
        let buckets = self.buckets.as_ref()?;
        let hash = HASHER.hash_one(key);
        let bucket = buckets[bucket_of(hash)].as_ref()?;
        bucket.position(hash, key).map(|at| &bucket.entries[at].1)
    }

    /// The bucket of a hash, to be changed.
    fn bucket_mut(&mut self, hash: u64) -> &mut Place<T> {
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

    /// Puts a thing under a name that has none.
    pub(crate) fn insert(&mut self, key: &str, thing: T) {
        let hash = HASHER.hash_one(key);
        let bucket = self.bucket_mut(hash).get_or_insert_with(|| {
            Arc::new(Bucket {
                hashes: Vec::new(),
                entries: Vec::new(),
            })
        });
        let bucket = Arc::make_mut(bucket);
        bucket.hashes.push(hash);
        bucket.entries.push((key.into(), thing));
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
        let place = self.bucket_mut(hash);
        let Some(bucket) = place else { return };
        if bucket.entries.len() == 1 {
            *place = None;
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
    fn what_is_put_in_is_found_until_it_is_taken_out_and_versions_stay_apart() {
        let mut map = Buckets::default();
        let names: Vec<String> = (0..2_000).map(|n| format!("host-{n}.example")).collect();
        for (n, name) in names.iter().enumerate() {
            map.insert(name, n);
        }
        let before = map.clone();
        for (n, name) in names.iter().enumerate() {
            assert_eq!(map.get(name), Some(&n));
            if let Some(thing) = map.get_mut(name) {
                *thing += 1;
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
