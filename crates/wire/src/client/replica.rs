//! The resources that a proxy has received. This module does no I/O.
//!
//! Responses are collected until a commit, which converts them into one change of the bound form. A resource that can't be decoded affects no other: its last
//! valid version stays in effect, together with the resources that it references, until a valid version arrives.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use imbl::HashMap as SharedMap;
use pointsman_binding::Delta;
use prost::Message;

use crate::delta::decode_resource;
use crate::digest::{Digest, Fingerprint};
use crate::id::ResourceId;
use crate::proto;
use crate::resource::{Resource, ResourceType};
use crate::xds::discovery::{self, DeltaDiscoveryResponse};

/// The version of a resource received last.
#[derive(Clone, Debug)]
struct ReceivedResource {
    version: Arc<str>,
    /// `None` for a type that this version does not know.
    resource: Option<Resource>,
}

/// The received resources.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    /// Shares structure with copies: one is made whenever the configuration is stored.
    received: SharedMap<Arc<str>, ReceivedResource>,
    digest: Digest,
    /// Names whose resource has changed since the last commit.
    staged: BTreeSet<Arc<str>>,
    /// Removed resources that are still in effect, because they were removed since the last commit or a retained version references them.
    removed: HashMap<Arc<str>, Resource>,
    /// A resource was removed since the last commit.
    has_new_removals: bool,
    /// Resources whose newest version could not be decoded.
    rejected: BTreeMap<Arc<str>, proto::Rejection>,
}

impl Replica {
    /// Records a response. It takes effect with the next commit.
    pub fn receive(&mut self, response: DeltaDiscoveryResponse) {
        for resource in response.resources {
            self.receive_resource(resource);
        }
        for name in response.removed_resources {
            self.receive_removal(&name);
        }
    }

    fn receive_resource(&mut self, message: discovery::Resource) {
        let name: Arc<str> = message.name.as_str().into();
        let resource = match decode_resource(&message).transpose() {
            Ok(resource) => resource,
            Err(error) => {
                let rejection = proto::Rejection {
                    name: message.name,
                    version: message.version,
                    message: error.to_string(),
                };
                self.rejected.insert(name, rejection);
                return;
            }
        };
        self.rejected.remove(&name);
        self.removed.remove(&name);
        if resource.is_some() {
            self.staged.insert(name.clone());
        }
        let version: Arc<str> = message.version.into();
        self.digest.add(Fingerprint::new(&name, &version));
        let received = ReceivedResource { version, resource };
        if let Some(old) = self.received.insert(name.clone(), received) {
            self.digest.remove(Fingerprint::new(&name, &old.version));
        }
    }

    fn receive_removal(&mut self, name: &str) {
        self.rejected.remove(name);
        let Some((name, received)) = self.received.remove_with_key(name) else {
            return;
        };
        self.digest
            .remove(Fingerprint::new(&name, &received.version));
        if let Some(resource) = received.resource {
            self.staged.remove(&name);
            self.removed.insert(name, resource);
            self.has_new_removals = true;
        }
    }

    /// Takes the changes since the last commit.
    pub fn commit(&mut self) -> Delta {
        let mut delta = Delta::default();
        for name in std::mem::take(&mut self.staged) {
            if let Some(ReceivedResource { resource, .. }) = self.received.get(&name)
                && let Some(resource) = resource.clone()
            {
                resource.record(&mut delta);
            }
        }
        self.has_new_removals = false;
        let retained = self.retained();
        let (keep, gone): (HashMap<_, _>, HashMap<_, _>) = std::mem::take(&mut self.removed)
            .into_iter()
            .partition(|(name, _)| retained.contains(&**name));
        self.removed = keep;
        for resource in gone.into_values() {
            resource.id().record_removal(&mut delta);
        }
        delta
    }

    /// Returns the names of removed resources that versions in effect reference, because newer versions of these were rejected.
    fn retained(&self) -> HashSet<String> {
        let rejected = self.rejected.keys();
        let old = rejected.filter_map(|name| self.received.get(name)?.resource.as_ref());
        let mut open: Vec<&Resource> = old.collect();
        let mut retained = HashSet::new();
        while let Some(resource) = open.pop() {
            for name in resource.references().iter().map(ResourceId::name) {
                if let Some(removed) = self.removed.get(name.as_str())
                    && retained.insert(name)
                {
                    open.push(removed);
                }
            }
        }
        retained
    }

    /// Returns the resources whose newest version could not be decoded.
    pub fn rejected(&self) -> impl Iterator<Item = &proto::Rejection> {
        self.rejected.values()
    }

    /// Returns the number of resources.
    pub fn len(&self) -> usize {
        self.received.len()
    }

    /// Returns whether nothing was received.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Returns a summary of the received resources.
    pub fn digest(&self) -> HashMap<String, String> {
        self.digest.to_versions()
    }

    /// Returns the versions of the resources in some buckets.
    pub fn versions(&self, buckets: &[u32]) -> Vec<(String, String)> {
        let received = self.received.iter().filter(|(name, received)| {
            let bucket = Fingerprint::new(name, &received.version).bucket();
            buckets.contains(&bucket.into())
        });
        received
            .map(|(name, received)| (name.to_string(), received.version.to_string()))
            .collect()
    }

    /// Returns whether nothing was received since the last commit.
    pub fn is_committed(&self) -> bool {
        self.staged.is_empty() && !self.has_new_removals
    }

    /// Encodes everything in effect of the wanted types, as responses of bounded size. None of them is empty.
    pub fn encode(&self, wanted: impl Fn(ResourceType) -> bool) -> Vec<Vec<u8>> {
        const CHUNK: usize = 256 * 1024;
        let mut chunks = Vec::new();
        let mut chunk = DeltaDiscoveryResponse::default();
        let mut size = 0;
        let received = self.received.iter().filter_map(|(name, received)| {
            let resource = received.resource.as_ref()?;
            Some((name, &*received.version, resource))
        });
        // Resources that retained versions reference. The control plane will report that they were removed.
        let removed = self.removed.iter();
        let removed = removed.map(|(name, resource)| (name, "", resource));
        for (name, version, resource) in received.chain(removed) {
            let kind = resource.id().resource_type();
            if !wanted(kind) {
                continue;
            }
            let value = resource.encode();
            size += value.len();
            chunk.resources.push(discovery::Resource {
                name: name.to_string(),
                version: version.to_owned(),
                resource: Some(prost_types::Any {
                    type_url: kind.url().to_owned(),
                    value,
                }),
            });
            if size >= CHUNK {
                chunks.push(std::mem::take(&mut chunk).encode_to_vec());
                size = 0;
            }
        }
        if !chunk.resources.is_empty() {
            chunks.push(chunk.encode_to_vec());
        }
        chunks
    }
}

#[cfg(test)]
mod tests;
