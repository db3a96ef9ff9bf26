//! Everything that the reconciler has told its binder, as maps that share structure between versions: a copy is made in constant time, and the
//! difference of two costs what differs.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use pointsman_binding::Change;
use pointsman_binding::bound::BackendId;
use pointsman_resources::kuma::DataSource;
use pointsman_resources::{Name, ObjectKey, Resource};

/// Input of a binder.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    objects: OrdMap<ObjectKey, Input<Resource>>,
    /// The rest, which is little.
    facts: OrdMap<FactKey, Input<Change>>,
    version: u64,
}

/// A value with the version that it came with. Equal versions mean equal values.
#[derive(Clone, Debug)]
struct Input<T> {
    version: u64,
    value: T,
}

impl<T> PartialEq for Input<T> {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

/// Key of an input that is not an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FactKey {
    Observation(Name),
    Rejection(ObjectKey),
    Need(BackendId),
    Content(DataSource),
    Identity(Arc<str>),
    RetainedSecret(Name),
    EndpointPolicy,
    Resolution(Arc<str>),
}

impl FactKey {
    /// The change that takes the input away.
    fn removal(&self) -> Change {
        match self.clone() {
            FactKey::Observation(gateway) => Change::Observe(gateway, None),
            FactKey::Rejection(key) => Change::Reject(key, None),
            FactKey::Need(id) => Change::Need(id, false),
            FactKey::Content(source) => Change::Content(source, None),
            FactKey::Identity(mesh) => Change::Identity(mesh, None),
            FactKey::RetainedSecret(name) => Change::RetainSecret(name, None),
            FactKey::EndpointPolicy => Change::EndpointPolicy(Arc::default()),
            FactKey::Resolution(name) => Change::RefusedResolution(name, Vec::new()),
        }
    }
}

impl Inputs {
    /// Records a change.
    pub fn record(&mut self, change: &Change) {
        self.version += 1;
        let version = self.version;
        let (key, is_there) = match change {
            Change::Put(resource) => {
                let value = resource.clone();
                let input = Input { version, value };
                self.objects.insert(resource.key(), input);
                return;
            }
            Change::Delete(key) => return drop(self.objects.remove(key)),
            Change::Observe(gateway, seen) => {
                (FactKey::Observation(gateway.clone()), seen.is_some())
            }
            Change::Reject(key, place) => (FactKey::Rejection(key.clone()), place.is_some()),
            Change::Need(id, needed) => (FactKey::Need(id.clone()), *needed),
            Change::Content(source, content) => {
                (FactKey::Content(source.clone()), content.is_some())
            }
            Change::Identity(mesh, identity) => {
                (FactKey::Identity(mesh.clone()), identity.is_some())
            }
            Change::RetainSecret(name, why) => {
                (FactKey::RetainedSecret(name.clone()), why.is_some())
            }
            Change::EndpointPolicy(_) => (FactKey::EndpointPolicy, true),
            Change::RefusedResolution(name, refused) => {
                (FactKey::Resolution(name.clone()), !refused.is_empty())
            }
        };
        match is_there {
            true => {
                let value = change.clone();
                drop(self.facts.insert(key, Input { version, value }));
            }
            false => drop(self.facts.remove(&key)),
        }
    }

    /// Changes that lead from `old` to these inputs.
    pub fn changes_since(&self, old: &Inputs) -> Vec<Change> {
        let objects = old.objects.diff(&self.objects).map(|item| match item {
            DiffItem::Add(_, new) | DiffItem::Update { new: (_, new), .. } => {
                Change::Put(new.value.clone())
            }
            DiffItem::Remove(key, _) => Change::Delete(key.clone()),
        });
        let facts = old.facts.diff(&self.facts).map(|item| match item {
            DiffItem::Add(_, new) | DiffItem::Update { new: (_, new), .. } => new.value.clone(),
            DiffItem::Remove(key, _) => key.removal(),
        });
        objects.chain(facts).collect()
    }
}
