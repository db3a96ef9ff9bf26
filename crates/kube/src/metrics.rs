//! Metrics of the controller's work with the API server, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pointsman_control::clock;
use pointsman_resources::Kind;

use crate::collector::WatchScope;

/// Counters and gauges. Those of watches are per kind, so their number does not depend on what a cluster holds.
#[derive(Debug, Default)]
pub struct Metrics {
    watches: Mutex<BTreeMap<Kind, WatchMetrics>>,
    status_queue: AtomicU64,
    status_writes: [AtomicU64; 3],
    dropped_events: AtomicU64,
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

    /// Number of requests that have written a status.
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
        Ok(())
    }
}
