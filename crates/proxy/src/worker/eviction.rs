//! Eviction of idle connections that count against one limit: that of the process, or of a port. Any worker can close the longest-idle connections of all
//! workers.

use std::cell::Cell;
use std::cmp::Reverse;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;

use super::idle::{IdleConnections, SlotIndex};

/// Time that a new client waits for an idle connection to close. An HTTP/2 connection takes up to a second if its client does not react to the GOAWAY.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of evictions for a new client. One may not suffice, because another client may take the freed slot.
const ATTEMPTS: usize = 3;

/// Seconds by which [`IdleWorker::oldest`] may be wrong: it is published once a second, and workers start in different moments.
const TOLERANCE: u64 = 2;

/// Value of [`IdleWorker::oldest`] before it is first published.
const UNKNOWN: u64 = u64::MAX;

/// The idle connections of all workers, and the clients that wait for one of them to close.
#[derive(Debug)]
pub(crate) struct SharedEviction {
    workers: Box<[IdleWorker]>,
    /// New clients that wait for an idle connection to close.
    waiting: AtomicUsize,
    freed: Notify,
}

/// A worker's idle connections, for other workers. It is written with every request and therefore has its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct IdleWorker {
    /// Number of its idle connections.
    idle: AtomicUsize,
    /// Second since which its longest-idle connection has been idle, relative to the start of the workers, or the current second if none is idle. Updated
    /// once a second.
    oldest: AtomicU64,
    /// Requests the worker to close idle connections.
    close: Notify,
}

impl SharedEviction {
    pub(super) fn new(workers: usize) -> Self {
        let worker = || IdleWorker {
            idle: AtomicUsize::new(0),
            oldest: AtomicU64::new(UNKNOWN),
            close: Notify::new(),
        };
        SharedEviction {
            workers: (0..workers).map(|_| worker()).collect(),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        }
    }

    /// Wakes waiting clients: a connection has closed, or they have to select another one.
    pub(super) fn wake_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Returns the worker with the longest-idle connection. Among those that may have it, returns the one with most idle connections, because the longest-idle
    /// one of many is hardly in use; `own` among equals.
    fn longest_idle(&self, own: usize) -> Option<usize> {
        let workers = self.workers.iter().enumerate().map(|(index, worker)| {
            let idle = worker.idle.load(Ordering::Relaxed);
            (index, idle, worker.oldest.load(Ordering::Relaxed))
        });
        let workers = workers.filter(|(_, idle, _)| *idle > 0);
        let oldest = workers.clone().map(|(_, _, oldest)| oldest).min()?;
        workers
            .filter(|(_, _, at)| *at == UNKNOWN || *at <= oldest.saturating_add(TOLERANCE))
            .max_by_key(|(index, idle, _)| (*idle, *index == own, Reverse(*index)))
            .map(|(index, _, _)| index)
    }

    /// Repeats `acquire` while `make_room` closes idle connections. Returns `None` if nothing can be closed.
    pub(super) async fn acquire<T>(
        &self,
        acquire: impl Fn() -> Option<T>,
        make_room: impl Fn() -> bool,
    ) -> Option<T> {
        if let Some(acquired) = acquire() {
            return Some(acquired);
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = WaitingClient(self);
        // Connections that were just accepted become idle once their tasks have run.
        tokio::task::yield_now().await;
        for _ in 0..ATTEMPTS {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if !make_room() {
                return None;
            }
            let _ = tokio::time::timeout(EVICTION_TIMEOUT, freed).await;
            if let Some(acquired) = acquire() {
                return Some(acquired);
            }
        }
        None
    }
}

/// Counts a waiting client.
struct WaitingClient<'e>(&'e SharedEviction);

impl Drop for WaitingClient<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The idle connections of one worker that count against one limit.
#[derive(Debug)]
pub(crate) struct IdleGroup {
    list: IdleConnections,
    shared: Arc<SharedEviction>,
    /// Index of the worker.
    worker: usize,
}

/// A connection's slot in a group, once it has been idle.
pub(super) type IdleSlot = Cell<Option<SlotIndex>>;

/// Result of [`IdleGroup::evict`].
pub(super) enum Evicted {
    /// No connection is idle on any worker.
    None,
    /// Connections of this worker were selected to close.
    Own(usize),
    /// Another worker was requested to close its longest-idle connections.
    Requested,
}

impl IdleGroup {
    pub(super) fn new(shared: Arc<SharedEviction>, worker: usize) -> Self {
        IdleGroup {
            list: IdleConnections::default(),
            shared,
            worker,
        }
    }

    /// Marks a connection as idle. Ready when it has to close to make room.
    pub(super) fn poll_idle(&self, slot: &IdleSlot, second: u64, cx: &mut Context<'_>) -> Poll<()> {
        let (index, polled) = self.list.poll(slot.get(), second, cx);
        slot.set(Some(index));
        self.publish_count();
        polled
    }

    /// Marks a connection as busy, so that it is not closed to make room.
    pub(super) fn set_busy(&self, slot: &IdleSlot) {
        let Some(slot) = slot.get() else { return };
        if self.list.set_busy(slot) {
            // It was selected to close but stays open, so waiting clients have to select another one.
            self.shared.wake_waiting();
        }
        self.publish_count();
    }

    /// Removes a closed connection.
    pub(super) fn remove(&self, slot: &IdleSlot) {
        if let Some(slot) = slot.take() {
            self.list.remove(slot);
            self.publish_count();
        }
    }

    /// Closes the longest-idle connections of any worker. `second` is the worker's current second.
    pub(super) fn evict(&self, second: u64) -> Evicted {
        match self.shared.longest_idle(self.worker) {
            None => Evicted::None,
            Some(index) if index == self.worker => Evicted::Own(self.close_longest_idle(second)),
            Some(index) => {
                self.shared.workers[index].close.notify_one();
                Evicted::Requested
            }
        }
    }

    /// Closes the longest-idle connections of this worker. Returns their number.
    pub(super) fn close_longest_idle(&self, second: u64) -> usize {
        let count = self.list.close_longest_idle();
        self.publish_count();
        self.publish_oldest(second);
        count
    }

    /// Waits until another worker requests that connections of this worker close.
    pub(super) async fn close_requested(&self) {
        self.shared.workers[self.worker].close.notified().await;
    }

    /// Publishes the idle time of the longest-idle connection. Called once a second, because it is too costly for every request.
    pub(super) fn publish_oldest(&self, second: u64) {
        let oldest = self.list.oldest().unwrap_or(second);
        self.own().oldest.store(oldest, Ordering::Relaxed);
    }

    fn publish_count(&self) {
        self.own().idle.store(self.list.len(), Ordering::Relaxed);
    }

    fn own(&self) -> &IdleWorker {
        &self.shared.workers[self.worker]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets the number of idle connections of each worker, and the second since which the first of them has been idle.
    fn set(shared: &SharedEviction, workers: &[(usize, u64)]) {
        for (worker, (idle, oldest)) in shared.workers.iter().zip(workers) {
            worker.idle.store(*idle, Ordering::Relaxed);
            worker.oldest.store(*oldest, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_worker_with_the_longest_idle_connection_is_selected() {
        let shared = SharedEviction::new(3);
        assert_eq!(shared.longest_idle(0), None);
        set(&shared, &[(0, 0), (9, 9), (1, 5)]);
        assert_eq!(shared.longest_idle(0), Some(2));
        set(&shared, &[(3, 5), (9, 9), (3, 5)]);
        assert_eq!(shared.longest_idle(0), Some(0), "own among equals");
        assert_eq!(shared.longest_idle(2), Some(2), "own among equals");
        assert_eq!(shared.longest_idle(1), Some(0));
    }

    #[test]
    fn the_longest_list_is_selected_if_times_are_too_close_to_compare() {
        let shared = SharedEviction::new(2);
        // The first worker's only connection may have been in use since the time was published.
        set(&shared, &[(1, 5), (40, 7)]);
        assert_eq!(shared.longest_idle(0), Some(1));
        set(&shared, &[(1, 5), (40, UNKNOWN)]);
        assert_eq!(shared.longest_idle(0), Some(1));
        set(&shared, &[(1, 5), (40, 8)]);
        assert_eq!(shared.longest_idle(0), Some(0));
    }
}
