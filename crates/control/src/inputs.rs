//! The inputs of the reconciler's binder, in maps that share structure between versions: a copy takes constant time, and comparing two versions costs only
//! what differs between them.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use pointsman_binding::Change;
use pointsman_binding::bound::BackendId;
use pointsman_resources::kuma::DataSource;
use pointsman_resources::{Name, ObjectKey, Resource};

/// All inputs of a binder.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    objects: OrdMap<ObjectKey, Input<Resource>>,
    /// Inputs that are not objects. There are few.
    facts: OrdMap<FactKey, Input<Change>>,
    version: u64,
}

/// A value with the version in which it was recorded. Equal versions mean equal values.
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
    Infrastructure(Name),
    Rejection(ObjectKey),
    Need(BackendId),
    Content(DataSource),
    Identity(Arc<str>),
    RetainedSecret(Name),
    Controller,
    ServedApi,
    EndpointPolicy,
    Resolution(Arc<str>),
}

impl FactKey {
    /// Returns the change that removes the input.
    fn removal(&self) -> Change {
        match self.clone() {
            FactKey::Observation(gateway) => Change::Observe(gateway, None),
            FactKey::Infrastructure(gateway) => Change::ObserveInfrastructure(gateway, None),
            FactKey::Rejection(key) => Change::Reject(key, None),
            FactKey::Need(id) => Change::Need(id, false),
            FactKey::Content(source) => Change::Content(source, None),
            FactKey::Identity(mesh) => Change::Identity(mesh, None),
            FactKey::RetainedSecret(name) => Change::RetainSecret(name, None),
            FactKey::ServedApi => Change::ServedApi(Arc::default()),
            FactKey::Controller => Change::Controller(Arc::default()),
            FactKey::EndpointPolicy => Change::EndpointPolicy(Arc::default()),
            FactKey::Resolution(name) => Change::RefusedResolution(name, Vec::new()),
        }
    }
}

impl Inputs {
    /// Returns the number of objects.
    pub fn number_of_objects(&self) -> usize {
        self.objects.len()
    }

    /// Records a change.
    pub fn record(&mut self, change: &Change) {
        self.version += 1;
        let version = self.version;
        let (key, is_set) = match change {
            Change::Put(resource) => {
                let value = resource.clone();
                let input = Input { version, value };
                self.objects.insert(resource.key(), input);
                return;
            }
            Change::Delete(key) => return drop(self.objects.remove(key)),
            Change::Observe(gateway, observation) => {
                (FactKey::Observation(gateway.clone()), observation.is_some())
            }
            Change::ObserveInfrastructure(gateway, state) => {
                (FactKey::Infrastructure(gateway.clone()), state.is_some())
            }
            Change::Reject(key, position) => (FactKey::Rejection(key.clone()), position.is_some()),
            Change::Need(id, needed) => (FactKey::Need(id.clone()), *needed),
            Change::Content(source, content) => {
                (FactKey::Content(source.clone()), content.is_some())
            }
            Change::Identity(mesh, identity) => {
                (FactKey::Identity(mesh.clone()), identity.is_some())
            }
            Change::RetainSecret(name, reason) => {
                (FactKey::RetainedSecret(name.clone()), reason.is_some())
            }
            Change::ServedApi(_) => (FactKey::ServedApi, true),
            Change::Controller(_) => (FactKey::Controller, true),
            Change::EndpointPolicy(_) => (FactKey::EndpointPolicy, true),
            Change::RefusedResolution(name, refused) => {
                (FactKey::Resolution(name.clone()), !refused.is_empty())
            }
            // They affect statuses only, which readers take from the journal.
            Change::Effect(..) | Change::EffectOnCommit => return,
        };
        match is_set {
            true => {
                let value = change.clone();
                drop(self.facts.insert(key, Input { version, value }));
            }
            false => drop(self.facts.remove(&key)),
        }
    }

    /// Returns the changes that lead from `old` to these inputs.
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
