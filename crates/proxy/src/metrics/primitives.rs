//! Counters, gauges and histograms that one thread writes and any thread reads.
//!
//! With a single writer an update is a load and a store instead of an atomic read-modify-write operation. A value orders nothing else, so all accesses are
//! relaxed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only increases.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    #[inline]
    pub(crate) fn add(&self, count: u64) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(count), Ordering::Relaxed);
    }

    /// Adds to a counter that has several writers, all of which use this method. For rare events.
    pub(crate) fn add_shared(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that increases and decreases.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    #[inline]
    pub(crate) fn increment(&self) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(1), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn decrement(&self) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.saturating_sub(1), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of a histogram's buckets in nanoseconds, and in seconds as rendered.
pub(crate) const BUCKETS: [(u64, &str); 14] = [
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];

/// A distribution of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Counts per bucket, not cumulative; the last is for longer durations.
    buckets: [Counter; BUCKETS.len() + 1],
    nanoseconds: Counter,
}

impl Histogram {
    #[inline]
    pub(crate) fn observe(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // Most durations are short, so the search ends after a step or two.
        let bucket = BUCKETS
            .iter()
            .position(|(bound, _)| nanoseconds <= *bound)
            .unwrap_or(BUCKETS.len());
        self.buckets[bucket].increment();
        self.nanoseconds.add(nanoseconds);
    }

    /// Adds the observations to a total.
    pub(crate) fn add_to(&self, total: &mut HistogramTotals) {
        for (sum, bucket) in total.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.get();
        }
        total.nanoseconds = total.nanoseconds.wrapping_add(self.nanoseconds.get());
    }
}

/// The sum of several histograms.
#[derive(Debug, Default)]
pub(crate) struct HistogramTotals {
    /// Counts per bucket, not cumulative.
    pub(crate) buckets: [u64; BUCKETS.len() + 1],
    /// Sum of the durations.
    pub(crate) nanoseconds: u64,
}

/// Counters by status class, 1xx to 5xx, and for requests without a status.
#[derive(Debug, Default)]
pub(crate) struct StatusClassCounters([Counter; CLASSES.len()]);

/// Values of the label `code`.
pub(crate) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

impl StatusClassCounters {
    /// Counts a request with this status; 0 if there was none.
    #[inline]
    pub(crate) fn increment(&self, status: u16) {
        let class = match status {
            100..600 => usize::from(status / 100) - 1,
            _ => CLASSES.len() - 1,
        };
        self.0[class].increment();
    }

    /// Counts in the order of [`CLASSES`].
    pub(crate) fn get(&self) -> [u64; CLASSES.len()] {
        std::array::from_fn(|class| self.0[class].get())
    }
}
