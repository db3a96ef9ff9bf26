//! Summaries of sets of resources. A proxy that reconnects sends one, and only buckets in which it differs are compared resource by resource.
//!
//! A name's bucket is its hash modulo 1024. The digest of a bucket is the sum, modulo 2^64, of the hashes of each resource's name and version, joined by a zero byte; it
//! does not depend on the order. The hash is 64-bit FNV-1a followed by the finalizer of SplitMix64.

use std::collections::HashMap;

/// Number of buckets.
const BUCKETS: u64 = 1024;

/// Digests of all buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest(Box<[u64]>);

impl Default for Digest {
    fn default() -> Self {
        Digest(vec![0; BUCKETS as usize].into())
    }
}

/// Bucket and hash of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    bucket: u16,
    hash: u64,
}

impl Fingerprint {
    /// Hashes a resource.
    pub fn new(name: &str, version: &str) -> Self {
        let state = fnv(FNV_OFFSET, name.as_bytes());
        let hash = fnv(fnv(state, &[0]), version.as_bytes());
        Fingerprint {
            bucket: (splitmix64_finalize(state) % BUCKETS) as u16,
            hash: splitmix64_finalize(hash),
        }
    }

    /// Returns the bucket of the resource.
    pub fn bucket(self) -> u16 {
        self.bucket
    }

    /// Returns the hash of the resource's name and version.
    pub fn hash(self) -> u64 {
        self.hash
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn splitmix64_finalize(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

impl Digest {
    /// Adds a resource.
    pub fn add(&mut self, resource: Fingerprint) {
        let sum = &mut self.0[usize::from(resource.bucket)];
        *sum = sum.wrapping_add(resource.hash);
    }

    /// Removes a resource that was added before.
    pub fn remove(&mut self, resource: Fingerprint) {
        let sum = &mut self.0[usize::from(resource.bucket)];
        *sum = sum.wrapping_sub(resource.hash);
    }

    /// Returns the digests in the form of `initial_resource_versions`. Empty buckets are omitted.
    pub fn to_versions(&self) -> HashMap<String, String> {
        let buckets = self.0.iter().enumerate().filter(|(_, sum)| **sum != 0);
        buckets
            .map(|(bucket, sum)| (bucket.to_string(), format!("{sum:016x}")))
            .collect()
    }

    /// Returns the buckets in which a receiver with these digests differs.
    pub fn differing(&self, versions: &HashMap<String, String>) -> Vec<u16> {
        let mut theirs = Digest::default();
        for (bucket, sum) in versions {
            let bucket = bucket.parse::<usize>().ok();
            let known = bucket.and_then(|bucket| theirs.0.get_mut(bucket));
            if let (Some(known), Ok(sum)) = (known, u64::from_str_radix(sum, 16)) {
                *known = sum;
            }
        }
        let both = self.0.iter().zip(&theirs.0).zip(0..);
        both.filter(|((ours, theirs), _)| ours != theirs)
            .map(|(_, bucket)| bucket)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(name: &str) -> u16 {
        Fingerprint::new(name, "").bucket
    }

    #[test]
    fn digests_differ_exactly_in_the_buckets_of_resources_that_differ() {
        let name = |number: usize| format!("rule/HTTPRoute/shop/r{number}/gateway/0/0");
        let (mut ours, mut theirs) = (Digest::default(), Digest::default());
        for number in (0..5000).rev() {
            ours.add(Fingerprint::new(&name(number), "a"));
        }
        for number in 0..5000 {
            theirs.add(Fingerprint::new(&name(number), "a"));
        }
        assert_eq!(ours.differing(&theirs.to_versions()), [0u16; 0]);
        ours.remove(Fingerprint::new(&name(7), "a"));
        ours.add(Fingerprint::new(&name(7), "b"));
        ours.add(Fingerprint::new(&name(5001), "a"));
        let mut wanted = [bucket(&name(7)), bucket(&name(5001))];
        wanted.sort_unstable();
        assert_eq!(ours.differing(&theirs.to_versions()), wanted);
    }

    #[test]
    fn the_hash_never_changes() {
        // Other versions of Pointsman compute it too.
        let resource = Fingerprint::new("gateway/infra/edge", "0123456789abcdef");
        assert_eq!(
            resource,
            Fingerprint {
                bucket: 179,
                hash: 1_371_479_300_917_932_564
            }
        );
    }

    #[test]
    fn a_digest_of_nothing_is_empty_and_a_malformed_one_differs() {
        assert!(Digest::default().to_versions().is_empty());
        let mut ours = Digest::default();
        ours.add(Fingerprint::new("a", "b"));
        let malformed = [
            ("x".to_owned(), "y".to_owned()),
            ("9999".to_owned(), "1".to_owned()),
        ];
        assert_eq!(
            ours.differing(&malformed.into_iter().collect()),
            [bucket("a")]
        );
    }
}
