//! Limits on client connections and open files, shared by all workers.
//!
//! Neither idle clients nor unused upstream connections may lock out new clients. A client connection counts as one file, an open upstream connection as another.
//! Near a limit the longest-idle client connections are closed, on any worker.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;

use super::Worker;
use super::idle::SlotIndex;

/// One in this many files is reserved for upstream connections, so that requests in progress can reach their endpoints.
const HEADROOM: usize = 16;

/// Time that a new client waits for an idle connection to close. An HTTP/2 connection takes up to a second if its client does not react to the GOAWAY.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(2);

/// Evictions that a new client requests: another client may take the freed slot.
const ATTEMPTS: usize = 3;

/// Idle time after which upstream connections are closed when files are scarce.
const UNUSED_AFTER: Duration = Duration::from_secs(1);

/// Value of [`IdleWorker::oldest`] without idle connections.
const NONE_IDLE: u64 = u64::MAX;

/// The limits and current usage.
#[derive(Debug)]
pub(crate) struct Capacity {
    clients: AtomicUsize,
    max_clients: usize,
    /// Files of client and upstream connections.
    files: AtomicUsize,
    max_files: usize,
    workers: Box<[IdleWorker]>,
    /// New clients that wait for an idle connection to close.
    waiting: AtomicUsize,
    freed: Notify,
}

/// A worker's idle connections, as other workers see them. Written with every request, hence on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct IdleWorker {
    /// Second since which its longest-idle connection has been idle, relative to the start of the workers.
    oldest: AtomicU64,
    /// Requests the worker to close idle connections.
    close: Notify,
}

impl Capacity {
    /// Creates the limits for this number of workers.
    pub(crate) fn new(max_clients: Option<usize>, max_files: usize, workers: usize) -> Self {
        let worker = || IdleWorker {
            oldest: AtomicU64::new(NONE_IDLE),
            close: Notify::new(),
        };
        Capacity {
            clients: AtomicUsize::new(0),
            max_clients: max_clients.unwrap_or(usize::MAX),
            files: AtomicUsize::new(0),
            max_files,
            workers: (0..workers).map(|_| worker()).collect(),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        }
    }

    /// Files available to clients; the rest is reserved for upstream connections.
    fn client_files(&self) -> usize {
        self.max_files - self.max_files / HEADROOM
    }

    fn is_short_of_files(&self) -> bool {
        self.files.load(Ordering::Relaxed) >= self.client_files()
    }

    /// Counts a client and its file, unless a limit is reached.
    fn take_client(&self) -> bool {
        if self.files.fetch_add(1, Ordering::SeqCst) >= self.client_files() {
            self.files.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        if self.clients.fetch_add(1, Ordering::SeqCst) >= self.max_clients {
            self.clients.fetch_sub(1, Ordering::SeqCst);
            self.files.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        true
    }

    fn release_client(&self) {
        self.clients.fetch_sub(1, Ordering::SeqCst);
        self.release_file();
    }

    fn release_file(&self) {
        self.files.fetch_sub(1, Ordering::SeqCst);
        self.wake_waiting();
    }

    fn wake_waiting(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.freed.notify_waiters();
        }
    }

    /// Returns the worker with the longest-idle connection; `own` among equals.
    fn longest_idle(&self, own: usize) -> Option<usize> {
        let oldest = |(index, worker): (usize, &IdleWorker)| {
            (worker.oldest.load(Ordering::Relaxed), index != own, index)
        };
        let (oldest, _, index) = self.workers.iter().enumerate().map(oldest).min()?;
        (oldest != NONE_IDLE).then_some(index)
    }
}

impl Worker {
    /// Admits a client connection, unless that requires closing another one.
    pub(crate) fn try_admit(self: &Rc<Self>) -> Option<Admission> {
        let admitted = self.shared.capacity.take_client();
        admitted.then(|| {
            self.open.set(self.open.get() + 1);
            Admission {
                worker: self.clone(),
                slot: Cell::new(None),
            }
        })
    }

    /// Admits a client connection, and closes the longest-idle connections if a limit is reached. Returns `None` if no connection is idle.
    pub(crate) async fn admit(self: &Rc<Self>) -> Option<Admission> {
        if let Some(admission) = self.try_admit() {
            return Some(admission);
        }
        let capacity = &self.shared.capacity;
        capacity.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = WaitingClient(capacity);
        // Connections that were just accepted become idle once their tasks have run.
        tokio::task::yield_now().await;
        for _ in 0..ATTEMPTS {
            let mut freed = pin!(capacity.freed.notified());
            freed.as_mut().enable();
            if !self.make_room() {
                return None;
            }
            let _ = tokio::time::timeout(EVICTION_TIMEOUT, freed).await;
            if let Some(admission) = self.try_admit() {
                return Some(admission);
            }
        }
        None
    }

    /// Closes the longest-idle client connections of any worker, or else unused upstream connections. Returns true if there were any.
    pub(crate) fn make_room(&self) -> bool {
        let capacity = &self.shared.capacity;
        match capacity.longest_idle(self.index) {
            None => return self.close_unused_upstreams(),
            Some(index) if index == self.index => self.close_longest_idle(),
            Some(index) => capacity.workers[index].close.notify_one(),
        }
        true
    }

    /// Closes upstream connections that have been unused for a while, if files are scarce. Returns true if there were any.
    fn close_unused_upstreams(&self) -> bool {
        let capacity = &self.shared.capacity;
        let second = self.second.get();
        // At most once a second, because it visits all upstreams.
        if !capacity.is_short_of_files() || self.trimmed_second.replace(second) == second {
            return false;
        }
        let before = capacity.files.load(Ordering::SeqCst);
        for upstream in self.upstreams.borrow().values().flatten() {
            upstream.sweep(UNUSED_AFTER);
        }
        capacity.files.load(Ordering::SeqCst) < before
    }

    /// Closes the longest-idle client connections of this worker.
    fn close_longest_idle(&self) {
        self.close_unused_upstreams();
        let count = self.idle.close_longest_idle();
        self.publish_oldest();
        self.metrics.worker_series().closed_idle.add(count as u64);
        if count > 0
            && let Some(times) = self.overload.due("idle")
        {
            tracing::info!(
                times,
                "closed idle connections to make room: the limit of connections or open files is near"
            );
        }
    }

    /// Closes idle connections whenever another worker requests it.
    pub(super) async fn close_idle_on_request(self: Rc<Self>) {
        loop {
            let own = &self.shared.capacity.workers[self.index];
            own.close.notified().await;
            self.close_longest_idle();
        }
    }

    fn publish_oldest(&self) {
        let oldest = self.idle.oldest().unwrap_or(NONE_IDLE);
        let own = &self.shared.capacity.workers[self.index];
        own.oldest.store(oldest, Ordering::Relaxed);
    }
}

/// Counts a waiting client.
struct WaitingClient<'c>(&'c Capacity);

impl Drop for WaitingClient<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An admitted client connection, counted until dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    worker: Rc<Worker>,
    /// Slot in the list of idle connections, once it has been idle.
    slot: Cell<Option<SlotIndex>>,
}

impl Admission {
    /// Marks the connection as idle: no byte of a request has arrived. Ready when it has to close to make room.
    pub(crate) fn poll_idle(&self, cx: &mut Context<'_>) -> Poll<()> {
        let worker = &self.worker;
        let (slot, polled) = worker.idle.poll(self.slot.get(), worker.second.get(), cx);
        self.slot.set(Some(slot));
        worker.publish_oldest();
        polled
    }

    /// Marks the connection as busy, so that it is not closed to make room.
    pub(crate) fn set_busy(&self) {
        let Some(slot) = self.slot.get() else { return };
        let worker = &self.worker;
        if worker.idle.set_busy(slot) {
            // It had been selected to close but stays, so waiting clients have to select another one.
            worker.shared.capacity.wake_waiting();
        }
        worker.publish_oldest();
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let worker = &self.worker;
        if let Some(slot) = self.slot.get() {
            worker.idle.remove(slot);
            worker.publish_oldest();
        }
        worker.open.set(worker.open.get() - 1);
        worker.shared.capacity.release_client();
    }
}

/// The file of an upstream connection, counted until dropped. It is always granted, because clients leave a reserve.
#[derive(Debug)]
pub(crate) struct UpstreamFile(Arc<super::WorkerShared>);

impl UpstreamFile {
    /// Counts a file. Near the limit, closes idle client connections.
    pub(crate) fn new(worker: &Worker) -> Self {
        let capacity = &worker.shared.capacity;
        let before = capacity.files.fetch_add(1, Ordering::SeqCst);
        if before >= capacity.client_files() {
            worker.make_room();
        }
        UpstreamFile(worker.shared.clone())
    }
}

impl Drop for UpstreamFile {
    fn drop(&mut self) {
        self.0.capacity.release_file();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_open_upstream_connections_count_as_one_file_each() {
        let capacity = Capacity::new(None, 32, 1);
        let clients = (0..40).filter(|_| capacity.take_client()).count();
        assert_eq!(clients, 30, "two are reserved for endpoints");
        for _ in 0..10 {
            capacity.release_client();
        }
        capacity.files.fetch_add(4, Ordering::SeqCst);
        let clients = (0..40).filter(|_| capacity.take_client()).count();
        assert_eq!(clients, 6);
        for _ in 0..4 {
            capacity.release_file();
        }
        let clients = (0..40).filter(|_| capacity.take_client()).count();
        assert_eq!(clients, 4);
    }

    #[test]
    fn the_worker_with_the_longest_idle_connection_is_selected_and_the_own_one_among_equals() {
        let capacity = Capacity::new(Some(1), 32, 3);
        assert_eq!(capacity.longest_idle(0), None);
        let set = |index: usize, second| {
            capacity.workers[index]
                .oldest
                .store(second, Ordering::Relaxed);
        };
        set(2, 5);
        assert_eq!(capacity.longest_idle(0), Some(2));
        set(0, 5);
        assert_eq!(capacity.longest_idle(0), Some(0));
        set(1, 4);
        assert_eq!(capacity.longest_idle(0), Some(1));
    }
}
