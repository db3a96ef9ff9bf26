//! What is counted, and how it is shown.
//!
//! Every worker counts for itself: it asks its [`WorkerMetrics`] for a series once, keeps it, and adds to it without a lock. [`Registry::render`]
//! sums over the workers. Series of what is no longer configured are not shown, and forgotten once no worker holds them: there are never
//! more than the configuration has things.

mod exposition;
mod primitives;
mod process;
mod series;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pointsman_binding::bound::{Backend, BackendId, FrontendId, Scope};
use pointsman_resources::{Kind, ObjectKey};
use pointsman_routing::Tables;

use exposition::{Exposition, LabelSet};
pub(crate) use primitives::Counter;
pub(crate) use series::{BackendSeries, ListenerSeries, RouteSeries, WorkerSeries};

/// A rule of a route.
type RuleKey = (ObjectKey, usize);

/// Every worker's figures.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    workers: Mutex<BTreeMap<usize, Arc<WorkerStores>>>,
}

/// One worker's figures. Its locks are taken to make a series and to show them all, never to count.
#[derive(Debug, Default)]
struct WorkerStores {
    own: Arc<WorkerSeries>,
    listeners: SeriesStore<FrontendId, ListenerSeries>,
    routes: SeriesStore<RuleKey, RouteSeries>,
    backends: SeriesStore<BackendId, BackendSeries>,
    local_replies: SeriesStore<&'static str, Counter>,
    refused_connections: SeriesStore<&'static str, Counter>,
}

/// The series of one kind of thing.
#[derive(Debug)]
struct SeriesStore<K, S>(Mutex<HashMap<K, Arc<S>>>);

impl<K, S> Default for SeriesStore<K, S> {
    fn default() -> Self {
        SeriesStore(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, S: Default> SeriesStore<K, S> {
    fn get(&self, key: &K) -> Arc<S> {
        let mut series = lock(&self.0);
        match series.get(key) {
            Some(series) => series.clone(),
            None => series.entry(key.clone()).or_default().clone(),
        }
    }

    /// All whose key is wanted. Of the others only those stay that someone still adds to.
    fn wanted(&self, wanted: impl Fn(&K) -> bool) -> Vec<(K, Arc<S>)> {
        let mut series = lock(&self.0);
        series.retain(|key, series| Arc::strong_count(series) > 1 || wanted(key));
        series
            .iter()
            .filter(|(key, _)| wanted(key))
            .map(|(key, series)| (key.clone(), series.clone()))
            .collect()
    }
}

/// A map of series is whole between any two steps, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The series that a worker's thread has asked for, so that its store is locked once for each. They do not keep a series alive: the store forgets what is no longer configured.
#[derive(Debug)]
struct SeriesCache<K, S> {
    known: RefCell<HashMap<K, Weak<S>, foldhash::fast::RandomState>>,
    /// Number of handles at which those of forgotten series are removed.
    full: Cell<usize>,
}

impl<K, S> Default for SeriesCache<K, S> {
    fn default() -> Self {
        SeriesCache {
            known: RefCell::default(),
            full: Cell::new(64),
        }
    }
}

impl<K: Eq + Hash + Clone, S: Default> SeriesCache<K, S> {
    fn get(&self, store: &SeriesStore<K, S>, key: &K) -> Arc<S> {
        let mut known = self.known.borrow_mut();
        if let Some(series) = known.get(key).and_then(Weak::upgrade) {
            return series;
        }
        if known.len() >= self.full.get() {
            known.retain(|_, series| series.strong_count() > 0);
            self.full.set((2 * known.len()).max(64));
        }
        let series = store.get(key);
        known.insert(key.clone(), Arc::downgrade(&series));
        series
    }
}

/// What a worker counts with. It stays on the worker's thread.
#[derive(Debug)]
pub(crate) struct WorkerMetrics {
    worker: Arc<WorkerStores>,
    listeners: SeriesCache<FrontendId, ListenerSeries>,
    routes: SeriesCache<RuleKey, RouteSeries>,
    backends: SeriesCache<BackendId, BackendSeries>,
    local_replies: RefCell<ReasonCounters>,
    refused_connections: RefCell<ReasonCounters>,
}

/// Counters by reason. There are few of them.
type ReasonCounters = Vec<(&'static str, Arc<Counter>)>;

impl WorkerMetrics {
    /// The figures of a listener or of a port of a mesh parent. To be kept: the first time this takes a lock.
    pub(crate) fn listener(&self, id: &FrontendId) -> Arc<ListenerSeries> {
        self.listeners.get(&self.worker.listeners, id)
    }

    /// The figures of a rule of a route, by its index there. To be kept: the first time this takes a lock.
    pub(crate) fn route(&self, route: &ObjectKey, rule: usize) -> Arc<RouteSeries> {
        self.routes.get(&self.worker.routes, &(route.clone(), rule))
    }

    /// The figures of a backend. To be kept: the first time this takes a lock.
    pub(crate) fn backend(&self, id: &BackendId) -> Arc<BackendSeries> {
        self.backends.get(&self.worker.backends, id)
    }

    /// The worker's own.
    pub(crate) fn worker_series(&self) -> &Arc<WorkerSeries> {
        &self.worker.own
    }

    /// An answer was made here, for this reason.
    pub(crate) fn count_local_reply(&self, reason: &'static str) {
        count(&self.local_replies, &self.worker.local_replies, reason);
    }

    /// A connection was refused, for this reason.
    pub(crate) fn count_refused_connection(&self, reason: &'static str) {
        count(
            &self.refused_connections,
            &self.worker.refused_connections,
            reason,
        );
    }
}

fn count(
    known: &RefCell<ReasonCounters>,
    store: &SeriesStore<&'static str, Counter>,
    reason: &'static str,
) {
    let mut known = known.borrow_mut();
    match known.iter().find(|(other, _)| *other == reason) {
        Some((_, counter)) => counter.increment(),
        None => {
            let counter = store.get(&reason);
            counter.increment();
            known.push((reason, counter));
        }
    }
}

impl Registry {
    /// What the worker of this number counts with. Only one thread may use it at a time.
    pub(crate) fn worker(&self, index: usize) -> WorkerMetrics {
        WorkerMetrics {
            worker: lock(&self.workers).entry(index).or_default().clone(),
            listeners: SeriesCache::default(),
            routes: SeriesCache::default(),
            backends: SeriesCache::default(),
            local_replies: RefCell::default(),
            refused_connections: RefCell::default(),
        }
    }

    /// All figures in Prometheus' text format, of what is in these tables or is a mesh parent that no route governs.
    pub(crate) fn render(
        &self,
        tables: &Tables,
        implicit: &HashMap<BackendId, Arc<Backend>>,
    ) -> String {
        let workers: Vec<Arc<WorkerStores>> = lock(&self.workers).values().cloned().collect();
        let mut text = Exposition::default();
        build(&mut text, workers.len());
        let own: Vec<&WorkerSeries> = workers.iter().map(|worker| &*worker.own).collect();
        text.all(series::WORKER, &[(String::new(), own)]);
        reasons(
            &mut text,
            &series::LOCAL_REPLIES,
            workers.iter().map(|worker| &worker.local_replies),
        );
        reasons(
            &mut text,
            &series::REFUSED_CONNECTIONS,
            workers.iter().map(|worker| &worker.refused_connections),
        );

        let stores = workers.iter().map(|worker| &worker.listeners);
        let known = |id: &FrontendId| tables.frontend(id).is_some() || is_implicit(id, implicit);
        things(&mut text, series::LISTENER, stores, known, of_listener);

        let names = rules(tables);
        let stores = workers.iter().map(|worker| &worker.routes);
        let labels = |key: &RuleKey| of_rule(key, names.get(key).copied().flatten());
        things(
            &mut text,
            series::ROUTE,
            stores,
            |key| names.contains_key(key),
            labels,
        );

        let stores = workers.iter().map(|worker| &worker.backends);
        let known = |id: &BackendId| tables.backend(id).is_some() || implicit.contains_key(id);
        things(&mut text, series::BACKEND, stores, known, of_backend);
        text.finish()
    }
}

fn build(text: &mut Exposition, workers: usize) {
    text.family(&series::BUILD, "gauge");
    let version = LabelSet::default().with("version", env!("CARGO_PKG_VERSION"));
    text.sample(series::BUILD.name, &version.finish(), None, 1);
    text.family(&series::WORKERS, "gauge");
    text.sample(series::WORKERS.name, "", None, workers);
    for (family, kind, find) in &process::PROCESS {
        if let Some(found) = find() {
            text.family(family, kind);
            text.sample(family.name, "", None, found);
        }
    }
}

fn reasons<'w>(
    text: &mut Exposition,
    family: &series::MetricFamily,
    stores: impl Iterator<Item = &'w SeriesStore<&'static str, Counter>>,
) {
    let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (reason, counter) in stores.flat_map(|store| store.wanted(|_| true)) {
        *sums.entry(reason).or_default() += counter.get();
    }
    text.family(family, "counter");
    for (reason, count) in sums {
        text.sample(family.name, "", Some(("reason", reason)), count);
    }
}

/// The families of a kind of thing, ordered by their labels, summed over the workers' stores.
fn things<'w, K: Eq + Hash + Clone + Ord + 'w, S: Default + 'w>(
    text: &mut Exposition,
    table: &[series::MetricDef<S>],
    stores: impl Iterator<Item = &'w SeriesStore<K, S>>,
    known: impl Fn(&K) -> bool,
    labels: impl Fn(&K) -> LabelSet,
) {
    let mut held: BTreeMap<K, Vec<Arc<S>>> = BTreeMap::new();
    for (key, series) in stores.flat_map(|store| store.wanted(&known)) {
        held.entry(key).or_default().push(series);
    }
    let things: Vec<(String, Vec<&S>)> = held
        .iter()
        .map(|(key, series)| {
            (
                labels(key).finish(),
                series.iter().map(|series| &**series).collect(),
            )
        })
        .collect();
    text.all(table, &things);
}

/// A mesh parent that no route governs is listened on for everyone.
fn is_implicit(id: &FrontendId, implicit: &HashMap<BackendId, Arc<Backend>>) -> bool {
    match id {
        FrontendId::Mesh {
            parent,
            port,
            transport,
            scope: Scope::Everyone,
        } => implicit.contains_key(&BackendId::new(parent.clone(), *port, *transport)),
        _ => false,
    }
}

/// The rules of every route, with their names.
fn rules(tables: &Tables) -> HashMap<RuleKey, Option<&str>> {
    tables
        .frontends()
        .flat_map(|table| table.routes())
        .flat_map(|route| {
            route.rules.iter().map(|rule| {
                let (source, index) = route.source(rule);
                ((source.clone(), index), rule.name.as_deref())
            })
        })
        .collect()
}

fn of_object(object: &ObjectKey) -> LabelSet {
    LabelSet::default()
        .with("kind", object.kind)
        .with("namespace", object.namespace())
        .with("name", &object.name.name)
}

/// A listener is named by who declares it. One of a ListenerSet names its Gateway too.
fn of_listener(id: &FrontendId) -> LabelSet {
    let labels = of_object(id.parent());
    match id {
        FrontendId::Listener {
            gateway,
            owner,
            listener,
        } => {
            let labels = labels.with("listener", listener);
            match owner.kind == Kind::Gateway {
                true => labels,
                false => labels.with("gateway", gateway),
            }
        }
        FrontendId::Mesh {
            port,
            transport,
            scope,
            ..
        } => {
            let labels = labels.with("port", port).with("transport", transport);
            match scope {
                Scope::Everyone => labels,
                Scope::Namespace(namespace) => labels.with("scope", namespace),
            }
        }
        FrontendId::Outbound(outbound) => labels
            .with("port", outbound.destination.port)
            .with("transport", outbound.destination.transport)
            .with("scope", &outbound.dataplane.name),
    }
}

fn of_rule((route, rule): &RuleKey, name: Option<&str>) -> LabelSet {
    of_object(route)
        .with("rule", rule)
        .with("rule_name", name.unwrap_or_default())
}

fn of_backend(id: &BackendId) -> LabelSet {
    let labels = of_object(&id.object)
        .with("port", id.port)
        .with("transport", id.transport);
    match id.tags.is_empty() {
        true => labels,
        false => labels.with("tags", &id.tags),
    }
}
