//! The desired and the observed objects of each Gateway. The reconciler and watches write them, and the applier takes Gateways to reconcile.
//!
//! Every replica keeps a registry, because statuses are derived from it; only the applier of the leader acts on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pointsman_binding::bound::Infrastructure;
use pointsman_binding::{Change, Delta, InfrastructureState};
use pointsman_control::{Inbox, Sink, clock};
use pointsman_resources::{Kind, Name, ObjectKey};
use pointsman_routing::Tables;
use tokio::sync::Notify;

use super::name::object_name;
use super::objects::ObjectKind;
use super::observed::PodFacts;
use super::state::{GatewayObjects, ObservedObject, ObservedObjects};
use crate::status::{Queue, Urgency, WriteOutcome};

/// Kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Watched {
    /// Generated objects.
    Object(ObjectKind),
    /// Pods of generated workloads.
    Pod,
}

/// An object that a watch has delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A generated object.
    Object(ObservedObject),
    /// A Pod of a generated workload.
    Pod(PodFacts),
}

/// Kind and namespace of a watch; all namespaces if there is none.
pub type WatchedScope = (Watched, Option<String>);

/// Desired and observed objects of all Gateways.
pub struct Registry {
    state: Mutex<RegistryState>,
    inbox: Arc<Inbox>,
    changed: Notify,
}

#[derive(Default)]
struct RegistryState {
    desired: HashMap<Name, Arc<Infrastructure>>,
    observed: HashMap<Name, GatewayObjects>,
    /// Gateway of each object that a watch has delivered.
    gateways: HashMap<(Watched, Name), Name>,
    reported: HashMap<Name, InfrastructureState>,
    /// Gateways to reconcile.
    queue: Queue<()>,
    /// Names in the list that a watch receives.
    listings: HashMap<WatchedScope, BTreeSet<Name>>,
    unlisted: BTreeSet<WatchedScope>,
    /// True once the reconciler has applied everything that was listed.
    is_complete: bool,
}

impl Registry {
    /// Creates a registry that waits for these watches.
    pub fn new(inbox: Arc<Inbox>, scopes: impl Iterator<Item = WatchedScope>) -> Self {
        let state = RegistryState {
            unlisted: scopes.collect(),
            ..RegistryState::default()
        };
        Registry {
            state: Mutex::new(state),
            inbox,
            changed: Notify::new(),
        }
    }

    /// Returns the watches that have not delivered a list yet.
    pub fn pending_watches(&self) -> Vec<String> {
        let state = self.state();
        let unlisted = state.unlisted.iter();
        unlisted
            .map(|(watched, _)| match watched {
                Watched::Object(kind) => format!("generated {}", kind.resource().plural),
                Watched::Pod => "pods of proxies".to_owned(),
            })
            .collect()
    }

    /// Starts recording a list.
    pub fn begin_list(&self, scope: &WatchedScope) {
        self.state().listings.insert(scope.clone(), BTreeSet::new());
    }

    /// Records an object. `observed` is `None` if the object was deleted or belongs to no Gateway of this installation; `is_listed` is true if it is an item of
    /// the current list.
    pub fn record(
        &self,
        scope: &WatchedScope,
        name: Name,
        observed: Option<(Name, Observed)>,
        is_listed: bool,
    ) {
        let mut state = self.state();
        if is_listed && let Some(listing) = state.listings.get_mut(scope) {
            listing.insert(name.clone());
        }
        let touched = state.record(scope.0, name, observed);
        self.publish(state, touched);
    }

    /// Completes a list. Objects that it did not contain are removed.
    pub fn end_list(&self, scope: &WatchedScope) {
        let mut state = self.state();
        let listed = state.listings.remove(scope).unwrap_or_default();
        let is_gone = |(watched, name): &(Watched, Name)| {
            *watched == scope.0
                && scope
                    .1
                    .as_ref()
                    .is_none_or(|namespace| **namespace == *name.namespace)
                && !listed.contains(name)
        };
        let gone = state.gateways.keys().filter(|key| is_gone(key));
        let gone: Vec<Name> = gone.map(|(_, name)| name.clone()).collect();
        let mut touched = BTreeSet::new();
        for name in gone {
            touched.extend(state.record(scope.0, name, None));
        }
        state.unlisted.remove(scope);
        self.publish(state, touched);
    }

    /// Reports changed states to the reconciler, and wakes the applier.
    fn publish(&self, mut state: MutexGuard<'_, RegistryState>, touched: BTreeSet<Name>) {
        let mut changes = BTreeMap::new();
        for gateway in touched {
            if let Some(change) = state.changed_state(&gateway) {
                changes.insert(gateway, change);
            }
        }
        drop(state);
        if !changes.is_empty() {
            // Reports are dropped once the inbox is closed.
            let _ = self
                .inbox
                .merge(|update| update.infrastructures.extend(changes));
        }
        self.changed.notify_one();
    }

    /// Waits until a Gateway may have to be reconciled.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes a Gateway to reconcile. [`Registry::finish`] must follow.
    pub fn take(&self, now: Instant) -> Option<Name> {
        let mut state = self.state();
        let (key, ()) = state.queue.take(now)?;
        Some(key.name)
    }

    /// Returns the time at which the next delayed Gateway can be reconciled.
    pub fn next_wake(&self) -> Option<Instant> {
        self.state().queue.next_wake()
    }

    /// Records the outcome of an attempt. `failure` is the reason if it requires action by a user.
    pub fn finish(&self, gateway: &Name, outcome: WriteOutcome, failure: Option<String>) {
        let mut state = self.state();
        state
            .queue
            .finish(&key(gateway), (), outcome, clock::instant());
        let is_desired = state.desired.contains_key(gateway);
        let observed = state.observed.get_mut(gateway);
        match observed {
            Some(observed) => observed.failure = failure.filter(|_| is_desired),
            None if is_desired && failure.is_some() => {
                let observed = state.observed.entry(gateway.clone()).or_default();
                observed.failure = failure;
            }
            None => {}
        }
        state.forget_if_empty(gateway);
        self.publish(state, [gateway.clone()].into());
    }

    /// Reconciles all Gateways again.
    pub fn requeue_all(&self) {
        let mut state = self.state();
        let all: Vec<Name> = state.desired.keys().cloned().collect();
        for gateway in &all {
            state.enqueue(gateway, Urgency::Background);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Returns the desired infrastructure of a Gateway and its observed objects.
    pub fn get(&self, gateway: &Name) -> (Option<Arc<Infrastructure>>, ObservedObjects) {
        let state = self.state();
        let observed = state.observed.get(gateway);
        let objects = observed.map(|observed| observed.objects.clone());
        (
            state.desired.get(gateway).cloned(),
            objects.unwrap_or_default(),
        )
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    /// Records an object. Returns the Gateways that it affects.
    fn record(
        &mut self,
        watched: Watched,
        name: Name,
        observed: Option<(Name, Observed)>,
    ) -> BTreeSet<Name> {
        let mut touched = BTreeSet::new();
        let id = (watched, name.clone());
        let gateway = observed.as_ref().map(|(gateway, _)| gateway.clone());
        if let Some(before) = self.gateways.remove(&id)
            && Some(&before) != gateway.as_ref()
        {
            if let Some(observed) = self.observed.get_mut(&before) {
                match watched {
                    Watched::Object(kind) => {
                        observed.objects.remove(&(kind, name.name.to_string()));
                        self.enqueue(&before, Urgency::Background);
                    }
                    Watched::Pod => drop(observed.pods.remove(&*name.name)),
                }
            }
            self.forget_if_empty(&before);
            touched.insert(before);
        }
        let Some((gateway, observed)) = observed else {
            return touched;
        };
        self.gateways.insert(id, gateway.clone());
        let objects = self.observed.entry(gateway.clone()).or_default();
        match (watched, observed) {
            (Watched::Object(kind), Observed::Object(object)) => {
                let object_name = (kind, name.name.to_string());
                let before = objects.objects.insert(object_name, object.clone());
                let is_same = |before: ObservedObject| before.fingerprint == object.fingerprint;
                if !before.is_some_and(is_same) {
                    self.enqueue(&gateway, Urgency::Background);
                }
            }
            (_, Observed::Pod(pod)) => drop(objects.pods.insert(name.name.to_string(), pod)),
            (Watched::Pod, Observed::Object(_)) => {}
        }
        touched.insert(gateway);
        touched
    }

    /// Returns the state of a Gateway's objects if it has changed.
    fn changed_state(&mut self, gateway: &Name) -> Option<Option<InfrastructureState>> {
        let desired = self.desired.get(gateway);
        let name = desired.map(|desired| object_name(gateway, &desired.class));
        let observed = self.observed.get(gateway);
        let state = observed.and_then(|observed| observed.state(name.as_deref()));
        let before = match &state {
            Some(state) => self.reported.insert(gateway.clone(), state.clone()),
            None => self.reported.remove(gateway),
        };
        (before != state).then_some(state)
    }

    /// Queues a Gateway. It is urgent if a user has changed it or its parameters.
    fn enqueue(&mut self, gateway: &Name, urgency: Urgency) {
        // Until then, the desired objects are unknown.
        if self.is_complete {
            self.queue.put(&key(gateway), (), urgency);
        }
    }

    fn forget_if_empty(&mut self, gateway: &Name) {
        let observed = self.observed.get(gateway);
        if observed.is_some_and(|observed| {
            observed.objects.is_empty() && observed.pods.is_empty() && observed.failure.is_none()
        }) {
            self.observed.remove(gateway);
        }
    }
}

fn key(gateway: &Name) -> ObjectKey {
    ObjectKey {
        kind: Kind::Gateway,
        name: gateway.clone(),
    }
}

/// Receives the infrastructure of Gateways from the reconciler.
pub struct InfrastructureSink(pub(crate) Arc<Registry>);

impl Sink for InfrastructureSink {
    fn stage(&mut self, delta: &Delta, _: &Tables) -> Vec<Change> {
        let mut state = self.0.state();
        let mut touched = BTreeSet::new();
        for (gateway, desired) in &delta.infrastructures {
            match desired {
                Some(desired) => drop(state.desired.insert(gateway.clone(), desired.clone())),
                None => drop(state.desired.remove(gateway)),
            }
            state.enqueue(gateway, Urgency::Urgent);
            state.queue.retry_now(&key(gateway));
            touched.insert(gateway.clone());
        }
        self.0.publish(state, touched);
        Vec::new()
    }

    fn commit(&mut self, _: &Tables) -> Vec<Change> {
        let mut state = self.0.state();
        if !std::mem::replace(&mut state.is_complete, true) {
            let desired = state.desired.keys().chain(state.observed.keys());
            let all: BTreeSet<Name> = desired.cloned().collect();
            for gateway in &all {
                state.enqueue(gateway, Urgency::Background);
            }
            self.0.publish(state, all);
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateways::observed::{ObjectFacts, ServiceFacts};

    const SERVICE: Watched = Watched::Object(ObjectKind::Service);

    fn edge() -> Name {
        Name::new("shop", "edge")
    }

    fn desired() -> Delta {
        let infrastructure = Infrastructure {
            gateway: edge(),
            uid: Some("1".into()),
            class: "pointsman".into(),
            ports: [(80, pointsman_binding::bound::Transport::Tcp)].into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            addresses: Vec::new(),
            parameters: Arc::default(),
        };
        Delta {
            infrastructures: vec![(edge(), Some(Arc::new(infrastructure)))],
            ..Delta::default()
        }
    }

    fn service(fingerprint: u64) -> Option<(Name, Observed)> {
        let facts = ServiceFacts {
            kind: "ClusterIP".to_owned(),
            cluster_ips: vec!["10.96.0.1".to_owned()],
            ..ServiceFacts::default()
        };
        let observed = ObservedObject {
            uid: None,
            owners: Vec::new(),
            fingerprint,
            facts: ObjectFacts::Service(facts),
        };
        Some((edge(), Observed::Object(observed)))
    }

    fn registry() -> (Arc<Registry>, Arc<Inbox>, InfrastructureSink) {
        let inbox: Arc<Inbox> = Arc::default();
        let registry = Arc::new(Registry::new(inbox.clone(), [(SERVICE, None)].into_iter()));
        (registry.clone(), inbox, InfrastructureSink(registry))
    }

    fn object_key() -> Name {
        Name::new("shop", "edge-pointsman")
    }

    #[test]
    fn nothing_is_applied_before_all_lists_are_complete() {
        let (registry, _, mut sink) = registry();
        registry.record(&(SERVICE, None), object_key(), service(1), false);
        sink.stage(&desired(), &Tables::default());
        assert_eq!(registry.take(clock::instant()), None);
        sink.commit(&Tables::default());
        assert_eq!(registry.take(clock::instant()), Some(edge()));
    }

    #[test]
    fn a_gateway_is_reconciled_when_its_objects_change_and_not_when_their_status_does() {
        let (registry, _, mut sink) = registry();
        sink.stage(&desired(), &Tables::default());
        sink.commit(&Tables::default());
        let reconciled = |change: &dyn Fn()| {
            change();
            let later = clock::instant() + std::time::Duration::from_secs(60);
            let taken = registry.take(later);
            if let Some(gateway) = &taken {
                registry.finish(gateway, WriteOutcome::Done, None);
            }
            taken.is_some()
        };
        let scope = (SERVICE, None);
        let record = |observed| registry.record(&scope, object_key(), observed, false);
        assert!(reconciled(&|| {}), "it is new");
        assert!(reconciled(&|| record(service(1))));
        assert!(!reconciled(&|| record(service(1))), "its status changed");
        assert!(reconciled(&|| record(service(2))));
        assert!(reconciled(&|| record(None)), "somebody deleted it");
        record(service(3));
        assert!(reconciled(&|| registry.begin_list(&scope)));
        assert!(
            reconciled(&|| registry.end_list(&scope)),
            "it is not in the list"
        );
    }

    #[test]
    fn a_state_is_reported_when_it_changes() {
        let (registry, inbox, mut sink) = registry();
        sink.stage(&desired(), &Tables::default());
        assert!(inbox.take().is_none(), "there is nothing yet");
        registry.record(&(SERVICE, None), object_key(), service(1), false);
        let update = inbox.take().expect("there is a Service");
        let state = update.infrastructures[&edge()].as_ref().expect("a state");
        assert_eq!(state.addresses.len(), 1);
        registry.record(&(SERVICE, None), object_key(), service(2), false);
        assert!(inbox.take().is_none(), "nothing that matters has changed");
        registry.finish(&edge(), WriteOutcome::Failed, Some("quota".to_owned()));
        let update = inbox.take().expect("it failed");
        let state = update.infrastructures[&edge()].as_ref().expect("a state");
        assert_eq!(state.failure.as_deref(), Some("quota"));
        registry.record(&(SERVICE, None), object_key(), None, false);
        registry.finish(&edge(), WriteOutcome::Done, None);
        let update = inbox.take().expect("it is gone");
        assert_eq!(update.infrastructures[&edge()], None);
    }
}
