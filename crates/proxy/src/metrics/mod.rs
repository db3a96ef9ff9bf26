//! Metrics of the data plane.
//! Every worker has its own series: it looks each one up once with its [`WorkerMetrics`], keeps it, and counts without a lock. [`Registry::render`] sums over
//! the workers. Series of removed objects are not rendered, and are freed once no worker uses them, so their number is bounded by the configuration.

mod exposition;
mod primitives;
mod process;
mod series;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, Weak};

use pointsman_binding::bound::{BackendId, FrontendId, Scope};
use pointsman_resources::{Kind, ObjectKey};
use pointsman_routing::Tables;

use crate::sync::lock;
use exposition::{Exposition, LabelSet};
pub(crate) use primitives::Counter;
pub(crate) use series::{BackendSeries, ListenerSeries, RouteSeries, WorkerSeries};

/// A rule of a route, by its index.
type RuleKey = (ObjectKey, usize);

/// Metrics of all workers.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    workers: Mutex<BTreeMap<usize, Arc<WorkerStores>>>,
}

/// Metrics of one worker. The locks are taken to create a series and to render all of them, never to count.
#[derive(Debug, Default)]
struct WorkerStores {
    own_series: Arc<WorkerSeries>,
    listeners: SeriesStore<FrontendId, ListenerSeries>,
    routes: SeriesStore<RuleKey, RouteSeries>,
    backends: SeriesStore<BackendId, BackendSeries>,
    local_replies: SeriesStore<&'static str, Counter>,
    refused_connections: SeriesStore<&'static str, Counter>,
}

/// The series of one kind of object.
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

    /// Returns the series with the given keys, and removes all others that no worker uses any more.
    fn matching(&self, wanted: impl Fn(&K) -> bool) -> Vec<(K, Arc<S>)> {
        let mut series = lock(&self.0);
        series.retain(|key, series| Arc::strong_count(series) > 1 || wanted(key));
        series
            .iter()
            .filter(|(key, _)| wanted(key))
            .map(|(key, series)| (key.clone(), series.clone()))
            .collect()
    }
}

/// Series that a worker has looked up, so that it locks the store only once for each. The references are weak, so that the store can free the series of removed
/// objects.
#[derive(Debug)]
struct SeriesCache<K, S> {
    known: RefCell<HashMap<K, Weak<S>, foldhash::fast::RandomState>>,
    /// Number of entries at which those of freed series are removed.
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

/// The series of one worker, to be used on its thread only.
#[derive(Debug)]
pub(crate) struct WorkerMetrics {
    worker: Arc<WorkerStores>,
    listeners: SeriesCache<FrontendId, ListenerSeries>,
    routes: SeriesCache<RuleKey, RouteSeries>,
    backends: SeriesCache<BackendId, BackendSeries>,
    local_replies: RefCell<ReasonCounters>,
    refused_connections: RefCell<ReasonCounters>,
}

/// Counters by reason. There are only a few reasons.
type ReasonCounters = Vec<(&'static str, Arc<Counter>)>;

impl WorkerMetrics {
    /// Series of a listener or of a mesh parent's port. The caller should keep it, because the first call for a key takes a lock.
    pub(crate) fn listener(&self, id: &FrontendId) -> Arc<ListenerSeries> {
        self.listeners.get(&self.worker.listeners, id)
    }

    /// Series of a rule, by its index in the route. The caller should keep it, because the first call for a key takes a lock.
    pub(crate) fn route(&self, route: &ObjectKey, rule: usize) -> Arc<RouteSeries> {
        self.routes.get(&self.worker.routes, &(route.clone(), rule))
    }

    /// Series of a backend. The caller should keep it, because the first call for a key takes a lock.
    pub(crate) fn backend(&self, id: &BackendId) -> Arc<BackendSeries> {
        self.backends.get(&self.worker.backends, id)
    }

    /// Series of the worker itself.
    pub(crate) fn worker_series(&self) -> &Arc<WorkerSeries> {
        &self.worker.own_series
    }

    /// Counts a local reply.
    pub(crate) fn count_local_reply(&self, reason: &'static str) {
        count(&self.local_replies, &self.worker.local_replies, reason);
    }

    /// Counts a connection that was closed without being served.
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
    /// Returns the metrics of the worker with this index, for use by one thread at a time.
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

    /// Renders the metrics of all objects in these tables in Prometheus' text format.
    pub(crate) fn render(&self, tables: &Tables) -> String {
        let workers: Vec<Arc<WorkerStores>> = lock(&self.workers).values().cloned().collect();
        let mut text = Exposition::default();
        process_families(&mut text, workers.len());
        let own_series: Vec<&WorkerSeries> =
            workers.iter().map(|worker| &*worker.own_series).collect();
        text.add_table(series::WORKER, &[(String::new(), own_series)]);
        reason_family(
            &mut text,
            &series::LOCAL_REPLIES,
            workers.iter().map(|worker| &worker.local_replies),
        );
        reason_family(
            &mut text,
            &series::REFUSED_CONNECTIONS,
            workers.iter().map(|worker| &worker.refused_connections),
        );

        let stores = workers.iter().map(|worker| &worker.listeners);
        let known = |id: &FrontendId| tables.frontend(id).is_some() || is_mesh_parent(id, tables);
        families(&mut text, series::LISTENER, stores, known, listener_labels);

        let names = rule_names(tables);
        let stores = workers.iter().map(|worker| &worker.routes);
        let labels = |key: &RuleKey| rule_labels(key, names.get(key).copied().flatten());
        families(
            &mut text,
            series::ROUTE,
            stores,
            |key| names.contains_key(key),
            labels,
        );

        let stores = workers.iter().map(|worker| &worker.backends);
        let known = |id: &BackendId| tables.backend(id).is_some();
        families(&mut text, series::BACKEND, stores, known, backend_labels);
        text.finish()
    }
}

fn process_families(text: &mut Exposition, workers: usize) {
    text.family(&series::BUILD, "gauge");
    let version = LabelSet::default().with("version", env!("CARGO_PKG_VERSION"));
    text.sample(series::BUILD.name, &version.finish(), None, 1);
    text.family(&series::WORKERS, "gauge");
    text.sample(series::WORKERS.name, "", None, workers);
    for (family, kind, read) in &process::PROCESS {
        if let Some(value) = read() {
            text.family(family, kind);
            text.sample(family.name, "", None, value);
        }
    }
}

fn reason_family<'w>(
    text: &mut Exposition,
    family: &series::MetricFamily,
    stores: impl Iterator<Item = &'w SeriesStore<&'static str, Counter>>,
) {
    let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (reason, counter) in stores.flat_map(|store| store.matching(|_| true)) {
        *sums.entry(reason).or_default() += counter.get();
    }
    text.family(family, "counter");
    for (reason, count) in sums {
        text.sample(family.name, "", Some(("reason", reason)), count);
    }
}

/// Renders the metrics of a kind of object, ordered by label and summed over the workers.
fn families<'w, K: Eq + Hash + Clone + Ord + 'w, S: Default + 'w>(
    text: &mut Exposition,
    table: &[series::MetricDef<S>],
    stores: impl Iterator<Item = &'w SeriesStore<K, S>>,
    known: impl Fn(&K) -> bool,
    labels: impl Fn(&K) -> LabelSet,
) {
    let mut by_key: BTreeMap<K, Vec<Arc<S>>> = BTreeMap::new();
    for (key, series) in stores.flat_map(|store| store.matching(&known)) {
        by_key.entry(key).or_default().push(series);
    }
    let objects: Vec<(String, Vec<&S>)> = by_key
        .iter()
        .map(|(key, series)| {
            (
                labels(key).finish(),
                series.iter().map(|series| &**series).collect(),
            )
        })
        .collect();
    text.add_table(table, &objects);
}

/// Returns whether a frontend is that of a mesh parent which clients reach without routes.
fn is_mesh_parent(id: &FrontendId, tables: &Tables) -> bool {
    match id {
        FrontendId::Mesh {
            parent,
            port,
            transport,
            scope: Scope::Everyone,
        } => {
            let own = BackendId::new(parent.clone(), *port, *transport);
            tables.backend(&own).is_some()
        }
        _ => false,
    }
}

/// Returns the names of all rules.
fn rule_names(tables: &Tables) -> HashMap<RuleKey, Option<&str>> {
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

fn object_labels(object: &ObjectKey) -> LabelSet {
    LabelSet::default()
        .with("kind", object.kind)
        .with("namespace", object.namespace())
        .with("name", &object.name.name)
}

/// Labels of a listener: the object that declares it and, for a ListenerSet, its Gateway.
fn listener_labels(id: &FrontendId) -> LabelSet {
    let labels = object_labels(id.parent());
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

fn rule_labels((route, rule): &RuleKey, name: Option<&str>) -> LabelSet {
    object_labels(route)
        .with("rule", rule)
        .with("rule_name", name.unwrap_or_default())
}

fn backend_labels(id: &BackendId) -> LabelSet {
    let labels = object_labels(&id.object)
        .with("port", id.port)
        .with("transport", id.transport);
    match id.tags.is_empty() {
        true => labels,
        false => labels.with("tags", &id.tags),
    }
}
