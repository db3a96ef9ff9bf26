//! Numbers that one thread changes and any thread may read.
//!
//! Each has one writer, so a change is a load and a store: no atomic operation that cores would have to agree on. Nothing is ordered
//! by a figure but itself, so all accesses are relaxed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    #[inline]
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    /// Adds so many.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(more), Ordering::Relaxed);
    }

    /// Adds so many to a counter that several threads add to, all of them by this. For what is rare.
    pub(crate) fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How many there were.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number of what is there now.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    /// One more.
    #[inline]
    pub(crate) fn increment(&self) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(1), Ordering::Relaxed);
    }

    /// One less.
    #[inline]
    pub(crate) fn decrement(&self) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.saturating_sub(1), Ordering::Relaxed);
    }

    /// How many there are.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper ends of a histogram's buckets: in nanoseconds, and in seconds as they are written.
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

/// How long things took.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// How many fell into each bucket, not counting those below; the last is for what took longer than all.
    buckets: [Counter; BUCKETS.len() + 1],
    nanoseconds: Counter,
}

impl Histogram {
    /// Something took so long.
    #[inline]
    pub(crate) fn observe(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Most are fast: found after a step or two.
        let at = BUCKETS
            .iter()
            .position(|(most, _)| nanoseconds <= *most)
            .unwrap_or(BUCKETS.len());
        self.buckets[at].increment();
        self.nanoseconds.add(nanoseconds);
    }

    /// Adds what was observed to a sum.
    pub(crate) fn add_to(&self, sum: &mut HistogramTotals) {
        for (sum, bucket) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.get();
        }
        sum.nanoseconds = sum.nanoseconds.wrapping_add(self.nanoseconds.get());
    }
}

/// What several histograms observed.
#[derive(Debug, Default)]
pub(crate) struct HistogramTotals {
    /// As in [`Histogram`].
    pub(crate) buckets: [u64; BUCKETS.len() + 1],
    /// All of it together.
    pub(crate) nanoseconds: u64,
}

/// Counts by class of status: 1xx to 5xx, and what ended without one.
#[derive(Debug, Default)]
pub(crate) struct StatusClassCounters([Counter; CLASSES.len()]);

/// The classes, as they are written.
pub(crate) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

impl StatusClassCounters {
    /// One ended with this status; 0 if it ended before it had one.
    #[inline]
    pub(crate) fn increment(&self, status: u16) {
        let class = match status {
            100..600 => usize::from(status / 100) - 1,
            _ => CLASSES.len() - 1,
        };
        self.0[class].increment();
    }

    /// How many there were of each class.
    pub(crate) fn get(&self) -> [u64; CLASSES.len()] {
        std::array::from_fn(|class| self.0[class].get())
    }
}
