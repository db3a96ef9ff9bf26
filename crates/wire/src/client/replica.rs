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
    /// Versions in effect of resources that have changed since the last commit, or whose newest version is held back.
    previous: HashMap<Arc<str>, Resource>,
    /// Resources whose newest version is held back, because it references a resource that was rejected and has no other version.
    held: BTreeMap<Arc<str>, proto::Rejection>,
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
        let was_staged = self.staged.contains(&name);
        if let Some(removed) = self.removed.remove(&name) {
            self.previous.entry(name.clone()).or_insert(removed);
        }
        if resource.is_some() {
            self.staged.insert(name.clone());
        }
        let version: Arc<str> = message.version.into();
        self.digest.add(Fingerprint::new(&name, &version));
        let received = ReceivedResource { version, resource };
        if let Some(old) = self.received.insert(name.clone(), received) {
            self.digest.remove(Fingerprint::new(&name, &old.version));
            // A version that was received after the last commit has never been in effect.
            if let Some(resource) = old.resource.filter(|_| !was_staged) {
                self.previous.entry(name).or_insert(resource);
            }
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
            self.held.remove(&name);
            self.previous.remove(&name);
            self.removed.insert(name, resource);
            self.has_new_removals = true;
        }
    }

    /// Takes the changes since the last commit.
    pub fn commit(&mut self) -> Delta {
        let mut delta = Delta::default();
        self.hold_back();
        self.previous.retain(|name, _| self.held.contains_key(name));
        for name in std::mem::take(&mut self.staged) {
            if self.held.contains_key(&name) {
                self.staged.insert(name);
            } else if let Some(ReceivedResource { resource, .. }) = self.received.get(&name)
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

    /// Determines which changed resources are held back. A new resource is not: without it, its requests would be served by another rule.
    fn hold_back(&mut self) {
        self.held.clear();
        if self.rejected.is_empty() {
            return;
        }
        let absent = self.rejected.keys().map(|name| name.to_string());
        let mut unusable: HashSet<String> = absent
            .filter(|name| !self.received.contains_key(name.as_str()))
            .collect();
        let mut has_changed = !unusable.is_empty();
        while std::mem::take(&mut has_changed) {
            for name in &self.staged {
                let received = self.received.get(name);
                let Some(resource) = received.and_then(|one| one.resource.as_ref()) else {
                    continue;
                };
                let mut references = resource.references().into_iter().map(|id| id.name());
                let Some(missing) = references.find(|name| unusable.contains(name)) else {
                    continue;
                };
                if !self.previous.contains_key(name) {
                    has_changed |= unusable.insert(name.to_string());
                } else if !self.held.contains_key(name) {
                    let rejection = proto::Rejection {
                        name: name.to_string(),
                        version: received.map_or_else(String::new, |one| one.version.to_string()),
                        message: format!("it references {missing}, which can't be used"),
                    };
                    self.held.insert(name.clone(), rejection);
                }
            }
        }
    }

    /// Returns the names of removed resources that versions in effect reference, because newer versions of these were rejected.
    fn retained(&self) -> HashSet<String> {
        let rejected = self.rejected.keys();
        let old = rejected.filter_map(|name| self.received.get(name)?.resource.as_ref());
        let mut open: Vec<&Resource> = old.chain(self.previous.values()).collect();
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

    /// Returns the resources whose newest version could not be decoded, or is held back.
    pub fn rejected(&self) -> impl Iterator<Item = &proto::Rejection> {
        self.rejected.values().chain(self.held.values())
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
        self.staged.len() == self.held.len() && !self.has_new_removals
    }

    /// Encodes everything in effect of the wanted types, as responses of bounded size. None of them is empty.
    pub fn encode(&self, wanted: impl Fn(ResourceType) -> bool) -> Vec<Vec<u8>> {
        const CHUNK: usize = 256 * 1024;
        let mut chunks = Vec::new();
        let mut chunk = DeltaDiscoveryResponse::default();
        let mut size = 0;
        // The control plane sends a version that is held back again.
        let received = self.received.iter().filter_map(|(name, received)| {
            match self
                .previous
                .get(name)
                .filter(|_| self.held.contains_key(name))
            {
                Some(previous) => Some((name, "", previous)),
                None => Some((name, &*received.version, received.resource.as_ref()?)),
            }
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
