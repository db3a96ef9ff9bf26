//! Eviction of idle connections that count against one limit: that of the process, or of a port. Any worker can close the longest-idle connections of all
//! workers.

use std::cell::Cell;
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

/// Value of [`IdleWorker::oldest`] if no connection was idle.
const NONE_IDLE: u64 = u64::MAX;

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
    /// Second since which its longest-idle connection has been idle, relative to the start of the workers. Updated once a second.
    oldest: AtomicU64,
    /// Requests the worker to close idle connections.
    close: Notify,
}

impl SharedEviction {
    pub(super) fn new(workers: usize) -> Self {
        let worker = || IdleWorker {
            idle: AtomicUsize::new(0),
            oldest: AtomicU64::new(NONE_IDLE),
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

    /// Returns the worker with the longest-idle connection; `own` among equals.
    fn longest_idle(&self, own: usize) -> Option<usize> {
        let oldest = |(index, worker): (usize, &IdleWorker)| {
            (worker.oldest.load(Ordering::Relaxed), index != own, index)
        };
        let has_idle = |(_, worker): &(usize, &IdleWorker)| worker.idle.load(Ordering::Relaxed) > 0;
        let workers = self.workers.iter().enumerate().filter(has_idle);
        workers.map(oldest).min().map(|(_, _, index)| index)
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

    /// Closes the longest-idle connections of any worker.
    pub(super) fn evict(&self) -> Evicted {
        match self.shared.longest_idle(self.worker) {
            None => Evicted::None,
            Some(index) if index == self.worker => Evicted::Own(self.close_longest_idle()),
            Some(index) => {
                self.shared.workers[index].close.notify_one();
                Evicted::Requested
            }
        }
    }

    /// Closes the longest-idle connections of this worker. Returns their number.
    pub(super) fn close_longest_idle(&self) -> usize {
        let count = self.list.close_longest_idle();
        self.publish_count();
        self.publish_oldest();
        count
    }

    /// Waits until another worker requests that connections of this worker close.
    pub(super) async fn close_requested(&self) {
        self.shared.workers[self.worker].close.notified().await;
    }

    /// Publishes the idle time of the longest-idle connection. Called once a second, because it is too costly for every request.
    pub(super) fn publish_oldest(&self) {
        let oldest = self.list.oldest().unwrap_or(NONE_IDLE);
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

    #[test]
    fn the_worker_with_the_longest_idle_connection_is_selected_and_the_own_one_among_equals() {
        let shared = SharedEviction::new(3);
        assert_eq!(shared.longest_idle(0), None);
        let set = |index: usize, second| {
            let worker = &shared.workers[index];
            worker.idle.store(1, Ordering::Relaxed);
            worker.oldest.store(second, Ordering::Relaxed);
        };
        set(1, NONE_IDLE);
        assert_eq!(shared.longest_idle(0), Some(1), "idle since this second");
        set(2, 5);
        assert_eq!(shared.longest_idle(0), Some(2));
        set(0, 5);
        assert_eq!(shared.longest_idle(0), Some(0));
        set(1, 4);
        assert_eq!(shared.longest_idle(0), Some(1));
        shared.workers[1].idle.store(0, Ordering::Relaxed);
        assert_eq!(shared.longest_idle(0), Some(0));
    }
}
