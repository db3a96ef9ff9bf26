//! Metrics of the controller's work with the API server, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pointsman_control::clock;
use pointsman_resources::Kind;

use crate::collector::WatchScope;

/// Counters and gauges. Those of watches are per kind, so their number does not depend on the objects of a cluster.
#[derive(Debug, Default)]
pub struct Metrics {
    watches: Mutex<BTreeMap<Kind, WatchMetrics>>,
    status_queue: AtomicU64,
    status_writes: [AtomicU64; 3],
    dropped_events: AtomicU64,
    endpoint_changes: Mutex<EndpointChanges>,
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

/// Upper bounds of the buckets of [`EndpointChanges`], in milliseconds.
const BUCKETS: [i64; 10] = [50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000];

/// A histogram of the times that changes of endpoints take to arrive.
#[derive(Clone, Copy, Debug, Default)]
struct EndpointChanges {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    micros: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct WatchMetrics {
    events: u64,
    errors: u64,
    /// Time of the last event, in Unix seconds.
    last_event: i64,
}

impl Metrics {
    pub(crate) fn record_watch_event(&self, scope: &WatchScope) {
        let now = clock::unix_seconds();
        self.with_watch(scope, |watch| {
            watch.events += 1;
            watch.last_event = now;
        });
    }

    pub(crate) fn record_watch_error(&self, scope: &WatchScope) {
        self.with_watch(scope, |watch| watch.errors += 1);
    }

    /// Records the time that a change of endpoints took to arrive, in microseconds.
    pub(crate) fn record_endpoint_change(&self, micros: i64) {
        let changes = self.endpoint_changes.lock();
        let mut changes = changes.unwrap_or_else(PoisonError::into_inner);
        let bucket = BUCKETS.iter().position(|bound| micros <= bound * 1000);
        if let Some(bucket) = bucket {
            changes.buckets[bucket] += 1;
        }
        changes.count += 1;
        changes.micros += micros;
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

    fn with_watch(&self, scope: &WatchScope, record: impl FnOnce(&mut WatchMetrics)) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        record(watches.entry(scope.kind).or_default());
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let per_kind = |value: fn(&WatchMetrics) -> u64| -> Vec<(String, u64)> {
            let values = watches.iter();
            values
                .map(|(kind, watch)| (format!("{{kind=\"{kind}\"}}"), value(watch)))
                .collect()
        };
        let single = |value: u64| vec![(String::new(), value)];
        let writes = WriteResult::ALL.map(|(result, label)| {
            let number = self.status_writes[result as usize].load(Ordering::Relaxed);
            (format!("{{result=\"{label}\"}}"), number)
        });
        let series = [
            (
                "watch_events_total",
                "Events of watches.",
                per_kind(|watch| watch.events),
            ),
            (
                "watch_errors_total",
                "Errors of watches.",
                per_kind(|watch| watch.errors),
            ),
            (
                "watch_last_event_timestamp_seconds",
                "Time of the last event of a watch.",
                per_kind(|watch| watch.last_event.try_into().unwrap_or_default()),
            ),
            (
                "status_writes_total",
                "Requests that write a status.",
                writes.to_vec(),
            ),
            (
                "status_queue",
                "Objects whose status is to be written.",
                single(self.status_queue.load(Ordering::Relaxed)),
            ),
            (
                "events_dropped_total",
                "Events that were not sent because too many waited.",
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
            writeln!(f, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
            for (labels, value) in values {
                writeln!(f, "{name}{labels} {value}")?;
            }
        }
        let changes = self.endpoint_changes.lock();
        changes.unwrap_or_else(PoisonError::into_inner).fmt(f)
    }
}

impl fmt::Display for EndpointChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = "pointsman_kubernetes_endpoint_change_seconds";
        let help = "Time from the change of a Pod or Service to the arrival of its EndpointSlice.";
        writeln!(f, "# HELP {name} {help}\n# TYPE {name} histogram")?;
        let mut cumulative = 0;
        for (bound, number) in BUCKETS.iter().zip(self.buckets) {
            cumulative += number;
            let bound = *bound as f64 / 1000.0;
            writeln!(f, "{name}_bucket{{le=\"{bound}\"}} {cumulative}")?;
        }
        let (count, sum) = (self.count, self.micros as f64 / 1e6);
        writeln!(f, "{name}_bucket{{le=\"+Inf\"}} {count}")?;
        writeln!(f, "{name}_sum {sum}\n{name}_count {count}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_endpoint_changes_are_a_histogram() {
        let metrics = Metrics::default();
        for micros in [40_000, 50_000, 700_000, 90_000_000] {
            metrics.record_endpoint_change(micros);
        }
        let text = metrics.to_string();
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
