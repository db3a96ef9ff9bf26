//! The inputs of the reconciler's binder, in maps that share structure between versions: a copy takes constant time, and the cost
//! of comparing two versions is proportional to their differences.

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
    objects: OrdMap<ObjectKey, Versioned<Resource>>,
    /// Inputs that are not objects. There are few.
    other_inputs: OrdMap<InputKey, Versioned<Change>>,
    version: u64,
}

/// A value with the version in which it was recorded. Equal versions mean equal values.
#[derive(Clone, Debug)]
struct Versioned<T> {
    version: u64,
    value: T,
}

impl<T> PartialEq for Versioned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

/// Key of an input that is not an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InputKey {
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

impl InputKey {
    /// Returns the change that removes the input.
    fn removal(&self) -> Change {
        match self.clone() {
            InputKey::Observation(gateway) => Change::Observe(gateway, None),
            InputKey::Infrastructure(gateway) => Change::ObserveInfrastructure(gateway, None),
            InputKey::Rejection(key) => Change::Reject(key, None),
            InputKey::Need(id) => Change::Need(id, false),
            InputKey::Content(source) => Change::Content(source, None),
            InputKey::Identity(mesh) => Change::Identity(mesh, None),
            InputKey::RetainedSecret(name) => Change::RetainSecret(name, None),
            InputKey::ServedApi => Change::ServedApi(Arc::default()),
            InputKey::Controller => Change::Controller(Arc::default()),
            InputKey::EndpointPolicy => Change::EndpointPolicy(Arc::default()),
            InputKey::Resolution(name) => Change::RefusedResolution(name, Vec::new()),
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
                let input = Versioned { version, value };
                self.objects.insert(resource.key(), input);
                return;
            }
            Change::Delete(key) => return drop(self.objects.remove(key)),
            Change::Observe(gateway, observation) => (
                InputKey::Observation(gateway.clone()),
                observation.is_some(),
            ),
            Change::ObserveInfrastructure(gateway, state) => {
                (InputKey::Infrastructure(gateway.clone()), state.is_some())
            }
            Change::Reject(key, position) => (InputKey::Rejection(key.clone()), position.is_some()),
            Change::Need(id, needed) => (InputKey::Need(id.clone()), *needed),
            Change::Content(source, content) => {
                (InputKey::Content(source.clone()), content.is_some())
            }
            Change::Identity(mesh, identity) => {
                (InputKey::Identity(mesh.clone()), identity.is_some())
            }
            Change::RetainSecret(name, reason) => {
                (InputKey::RetainedSecret(name.clone()), reason.is_some())
            }
            Change::ServedApi(_) => (InputKey::ServedApi, true),
            Change::Controller(_) => (InputKey::Controller, true),
            Change::EndpointPolicy(_) => (InputKey::EndpointPolicy, true),
            Change::RefusedResolution(name, refused) => {
                (InputKey::Resolution(name.clone()), !refused.is_empty())
            }
            // They affect statuses only, which readers take from the journal.
            Change::Effect(..) | Change::EffectOnCommit => return,
        };
        match is_set {
            true => {
                let value = change.clone();
                drop(self.other_inputs.insert(key, Versioned { version, value }));
            }
            false => drop(self.other_inputs.remove(&key)),
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
        let other_inputs = old
            .other_inputs
            .diff(&self.other_inputs)
            .map(|item| match item {
                DiffItem::Add(_, new) | DiffItem::Update { new: (_, new), .. } => new.value.clone(),
                DiffItem::Remove(key, _) => key.removal(),
            });
        objects.chain(other_inputs).collect()
    }
}
