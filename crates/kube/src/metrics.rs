//! Metrics of the controller's work with the API server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pointsman_control::{Exposition, clock};
use pointsman_resources::Kind;

use crate::collector::WatchScope;

/// A label and a value.
type Sample = (Option<(&'static str, &'static str)>, u64);

/// Counters and gauges. Those of watches are per kind, so their number does not depend on the objects of a cluster.
#[derive(Debug)]
pub struct Metrics {
    watches: Mutex<BTreeMap<Kind, WatchMetrics>>,
    status_queue: AtomicU64,
    status_writes: [AtomicU64; 3],
    dropped_events: AtomicU64,
    endpoint_changes: Mutex<Histogram<10>>,
    reconciles: Mutex<Histogram<10>>,
    /// Time of the last successful response to each watch.
    contacts: Mutex<BTreeMap<WatchScope, Instant>>,
    is_leader: AtomicBool,
}

/// Result of a request that writes a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteResult {
    Written,
    Conflict,
    Failed,
}

impl WriteResult {
    const ALL: [(WriteResult, &'static str); 3] = [
        (WriteResult::Written, "written"),
        (WriteResult::Conflict, "conflict"),
        (WriteResult::Failed, "failed"),
    ];
}

/// Upper bounds of the buckets for changes of endpoints, in microseconds.
const ENDPOINT_CHANGE_BUCKETS: [i64; 10] = [
    50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
    60_000_000,
];
/// Upper bounds of the buckets for the application of changes, in microseconds.
const RECONCILE_BUCKETS: [i64; 10] = [
    100, 500, 1000, 5000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000,
];

/// A histogram of times.
#[derive(Clone, Copy, Debug)]
struct Histogram<const N: usize> {
    /// Upper bounds in microseconds.
    bounds: [i64; N],
    buckets: [u64; N],
    count: u64,
    micros: i64,
}

impl<const N: usize> Histogram<N> {
    fn new(bounds: [i64; N]) -> Self {
        Histogram {
            bounds,
            buckets: [0; N],
            count: 0,
            micros: 0,
        }
    }

    fn record(&mut self, micros: i64) {
        let bucket = self.bounds.iter().position(|bound| micros <= *bound);
        if let Some(bucket) = bucket {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.micros += micros;
    }

    fn add_to(&self, metrics: &mut Exposition, name: &str, help: &str) {
        let bounds = self.bounds.map(|bound| bound as f64 / 1e6);
        let total = (self.count, self.micros as f64 / 1e6);
        metrics.histogram(name, help, bounds.into_iter().zip(self.buckets), total);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct WatchMetrics {
    events: u64,
    errors: u64,
    /// Time of the last event, in Unix seconds.
    last_event: i64,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            watches: Mutex::default(),
            status_queue: AtomicU64::default(),
            status_writes: Default::default(),
            dropped_events: AtomicU64::default(),
            endpoint_changes: Mutex::new(Histogram::new(ENDPOINT_CHANGE_BUCKETS)),
            reconciles: Mutex::new(Histogram::new(RECONCILE_BUCKETS)),
            contacts: Mutex::default(),
            is_leader: AtomicBool::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn record_watch_event(&self, scope: &WatchScope) {
        let now = clock::unix_seconds();
        self.with_watch(scope, |watch| {
            watch.events += 1;
            watch.last_event = now;
        });
        self.record_watch_contact(scope);
    }

    pub(crate) fn record_watch_error(&self, scope: &WatchScope) {
        self.with_watch(scope, |watch| watch.errors += 1);
    }

    /// Records a successful response to a watch, or an event.
    pub(crate) fn record_watch_contact(&self, scope: &WatchScope) {
        let now = clock::instant();
        let mut contacts = self.contacts.lock().unwrap_or_else(PoisonError::into_inner);
        match contacts.get_mut(scope) {
            Some(contact) => *contact = now,
            None => drop(contacts.insert(scope.clone(), now)),
        }
    }

    /// Records that a watch is not expected to succeed.
    pub(crate) fn forget_watch(&self, scope: &WatchScope) {
        let mut contacts = self.contacts.lock().unwrap_or_else(PoisonError::into_inner);
        contacts.remove(scope);
    }

    /// Records the time that a change of endpoints took to arrive, in microseconds.
    pub(crate) fn record_endpoint_change(&self, micros: i64) {
        let changes = self.endpoint_changes.lock();
        let mut changes = changes.unwrap_or_else(PoisonError::into_inner);
        changes.record(micros);
    }

    /// Records the time that the reconciler took to apply changes.
    pub fn record_reconcile(&self, took: Duration) {
        let reconciles = self.reconciles.lock();
        let mut reconciles = reconciles.unwrap_or_else(PoisonError::into_inner);
        reconciles.record(took.as_micros().try_into().unwrap_or(i64::MAX));
    }

    pub(crate) fn record_status_queue(&self, length: usize) {
        self.status_queue.store(length as u64, Ordering::Relaxed);
    }

    pub(crate) fn record_status_write(&self, result: WriteResult) {
        self.status_writes[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_dropped_event(&self) {
        self.dropped_events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_leadership(&self, is_leader: bool) {
        self.is_leader.store(is_leader, Ordering::Relaxed);
    }

    /// Returns the number of requests that have written a status.
    pub fn status_writes(&self) -> u64 {
        self.status_writes[WriteResult::Written as usize].load(Ordering::Relaxed)
    }

    /// Age of the oldest contact of each kind, in seconds.
    fn contact_ages(&self) -> Vec<Sample> {
        let now = clock::instant();
        let contacts = self.contacts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut oldest: BTreeMap<Kind, Instant> = BTreeMap::new();
        for (scope, contact) in contacts.iter() {
            let oldest = oldest.entry(scope.kind).or_insert(*contact);
            *oldest = (*oldest).min(*contact);
        }
        let ages = oldest.into_iter();
        ages.map(|(kind, contact)| {
            let age = now.saturating_duration_since(contact);
            (Some(("kind", kind.name())), age.as_secs())
        })
        .collect()
    }

    fn with_watch(&self, scope: &WatchScope, record: impl FnOnce(&mut WatchMetrics)) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        record(watches.entry(scope.kind).or_default());
    }

    /// Adds all metrics.
    pub fn add_to(&self, metrics: &mut Exposition) {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let per_kind = |value: fn(&WatchMetrics) -> u64| -> Vec<Sample> {
            let values = watches.iter();
            values
                .map(|(kind, watch)| (Some(("kind", kind.name())), value(watch)))
                .collect()
        };
        let single = |value: u64| vec![(None, value)];
        let writes = WriteResult::ALL.map(|(result, label)| {
            let number = self.status_writes[result as usize].load(Ordering::Relaxed);
            (Some(("result", label)), number)
        });
        let series = [
            (
                "watch_events_total",
                "Events of watches, by kind.",
                per_kind(|watch| watch.events),
            ),
            (
                "watch_errors_total",
                "Errors of watches, by kind.",
                per_kind(|watch| watch.errors),
            ),
            (
                "watch_last_event_timestamp_seconds",
                "Time of the last event of a watch, by kind.",
                per_kind(|watch| watch.last_event.try_into().unwrap_or_default()),
            ),
            (
                "watch_contact_age_seconds",
                "Age of the last event or successful request of a watch, by kind. Connected watches make a request every two minutes.",
                self.contact_ages(),
            ),
            (
                "status_writes_total",
                "Status write requests, by result.",
                writes.to_vec(),
            ),
            (
                "status_queue",
                "Objects waiting for a status write.",
                single(self.status_queue.load(Ordering::Relaxed)),
            ),
            (
                "events_dropped_total",
                "Events dropped because the queue was full.",
                single(self.dropped_events.load(Ordering::Relaxed)),
            ),
            (
                "leader",
                "1 while this process holds the Lease.",
                single(self.is_leader.load(Ordering::Relaxed).into()),
            ),
        ];
        for (name, help, values) in series {
            let name = format!("pointsman_kubernetes_{name}");
            let kind = match name.ends_with("_total") {
                true => "counter",
                false => "gauge",
            };
            metrics.family(&name, help, kind);
            for (label, value) in values {
                metrics.sample(&name, label, value);
            }
        }
        let changes = self.endpoint_changes.lock();
        changes.unwrap_or_else(PoisonError::into_inner).add_to(
            metrics,
            "pointsman_kubernetes_endpoint_change_seconds",
            "Time from the change of a Pod or Service to the arrival of its EndpointSlice.",
        );
        let reconciles = self.reconciles.lock();
        reconciles.unwrap_or_else(PoisonError::into_inner).add_to(
            metrics,
            "pointsman_kubernetes_reconcile_seconds",
            "Time to apply a batch of changes, until statuses and changes for proxies are queued.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(metrics: &Metrics) -> String {
        let mut out = Exposition::default();
        metrics.add_to(&mut out);
        out.finish()
    }

    #[test]
    fn docs_control_plane_md_lists_every_metric() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/control-plane.md");
        let text = std::fs::read_to_string(path).expect("a text");
        let rows = text.lines().filter_map(|line| {
            let row = line.strip_prefix("| `pointsman_kubernetes_")?;
            let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
            let name = cells[0].trim_end_matches('`');
            Some([name, cells[1], cells[2]].map(str::to_owned))
        });
        let page = rendered(&Metrics::default());
        let lines: Vec<&str> = page.lines().collect();
        let served = lines.windows(2).filter_map(|pair| {
            let head = pair[0].strip_prefix("# HELP pointsman_kubernetes_")?;
            let (name, help) = head.split_once(' ')?;
            let (_, kind) = pair[1].strip_prefix("# TYPE ")?.split_once(' ')?;
            Some([name, kind, help].map(str::to_owned))
        });
        let (mut rows, mut served): (Vec<_>, Vec<_>) = (rows.collect(), served.collect());
        rows.sort();
        served.sort();
        assert_eq!(rows, served);
    }

    #[test]
    fn the_contact_of_a_kind_is_that_of_its_oldest_watch() {
        let metrics = Metrics::default();
        let scope = |namespace: &str| WatchScope {
            kind: Kind::Gateway,
            namespace: Some(namespace.to_owned()),
        };
        let name = "pointsman_kubernetes_watch_contact_age_seconds{kind=\"Gateway\"}";
        let age = || {
            let page = rendered(&metrics);
            let value = page.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().parse::<u64>().ok()
        };
        assert_eq!(age(), None);
        let long_ago = clock::instant().checked_sub(Duration::from_secs(90));
        let long_ago = long_ago.expect("the machine has run for that long");
        let contacts = || metrics.contacts.lock().expect("not poisoned");
        contacts().insert(scope("a"), long_ago);
        metrics.record_watch_contact(&scope("b"));
        assert_eq!(age(), Some(90));
        metrics.record_watch_event(&scope("a"));
        assert_eq!(age(), Some(0));
        metrics.forget_watch(&scope("a"));
        metrics.forget_watch(&scope("b"));
        assert_eq!(age(), None);
    }

    #[test]
    fn times_of_endpoint_changes_are_a_histogram() {
        let metrics = Metrics::default();
        for micros in [40_000, 50_000, 700_000, 90_000_000] {
            metrics.record_endpoint_change(micros);
        }
        let text = rendered(&metrics);
        let name = "pointsman_kubernetes_endpoint_change_seconds";
        for line in [
            "_bucket{le=\"0.05\"} 2",
            "_bucket{le=\"0.5\"} 2",
            "_bucket{le=\"1\"} 3",
            "_bucket{le=\"60\"} 3",
            "_bucket{le=\"+Inf\"} 4",
            "_sum 90.79",
            "_count 4",
        ] {
            assert!(
                text.contains(&format!("{name}{line}\n")),
                "{line} in {text}"
            );
        }
    }
}
