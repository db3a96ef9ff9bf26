//! Limits on client connections and open files, shared by all workers.
//! Neither idle clients nor unused upstream connections may lock out new clients. Each client connection and each open upstream connection counts as one file.
//! Near a limit, the longest-idle client connections of all workers are closed.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use super::Worker;
use super::eviction::{Evicted, IdleGroup, IdleSlot, SharedEviction};

/// One in this many files is reserved for upstream connections, so that requests in progress can reach their endpoints.
const HEADROOM: usize = 16;

/// Idle time after which upstream connections are closed when files are scarce.
const UNUSED_TIMEOUT: Duration = Duration::from_secs(1);

/// The limits and current usage.
#[derive(Debug)]
pub(crate) struct Capacity {
    clients: AtomicUsize,
    max_clients: usize,
    /// Files of client and upstream connections.
    files: AtomicUsize,
    max_files: usize,
    eviction: Arc<SharedEviction>,
    workers: usize,
}

impl Capacity {
    /// Creates the limits for this number of workers.
    pub(crate) fn new(max_clients: Option<usize>, max_files: usize, workers: usize) -> Self {
        Capacity {
            clients: AtomicUsize::new(0),
            max_clients: max_clients.unwrap_or(usize::MAX),
            files: AtomicUsize::new(0),
            max_files,
            eviction: Arc::new(SharedEviction::new(workers)),
            workers,
        }
    }

    /// Returns the number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// Creates the list of idle connections of a worker.
    pub(super) fn idle_group(&self, worker: usize) -> IdleGroup {
        IdleGroup::new(self.eviction.clone(), worker)
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
        self.eviction.wake_waiting();
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
        let eviction = &self.shared.capacity.eviction;
        let make_room = || self.make_room();
        eviction.acquire(|| self.try_admit(), make_room).await
    }

    /// Closes the longest-idle client connections of any worker, or else unused upstream connections. Returns true if there were any.
    pub(crate) fn make_room(&self) -> bool {
        match self.idle.evict(self.second.get()) {
            Evicted::None => self.close_unused_upstreams(),
            Evicted::Own(count) => {
                self.close_unused_upstreams();
                self.log_evicted(count);
                true
            }
            Evicted::Requested => true,
        }
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
            upstream.sweep(UNUSED_TIMEOUT);
        }
        capacity.files.load(Ordering::SeqCst) < before
    }

    fn log_evicted(&self, count: usize) {
        self.metrics.worker_series().closed_idle.add(count as u64);
        if count > 0
            && let Some(times) = self.limit_log.due("idle")
        {
            tracing::info!(
                times,
                "closed idle connections to make room: the limit of connections or open files is near"
            );
        }
    }

    /// Closes idle connections whenever another worker requests it.
    pub(crate) async fn close_idle_on_request(self: Rc<Self>) {
        loop {
            self.idle.close_requested().await;
            self.close_unused_upstreams();
            self.log_evicted(self.idle.close_longest_idle(self.second.get()));
        }
    }
}

/// An admitted client connection, counted until dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    worker: Rc<Worker>,
    /// Slot in the list of idle connections, once it has been idle.
    slot: IdleSlot,
}

impl Admission {
    /// Marks the connection as idle: no byte of a request has arrived. Ready when it has to close to make room.
    pub(crate) fn poll_idle(&self, cx: &mut Context<'_>) -> Poll<()> {
        let worker = &self.worker;
        worker.idle.poll_idle(&self.slot, worker.second.get(), cx)
    }

    /// Marks the connection as busy, so that it is not closed to make room.
    pub(crate) fn set_busy(&self) {
        self.worker.idle.set_busy(&self.slot);
    }

    /// Returns the number of seconds since the start of the worker.
    pub(crate) fn second(&self) -> u64 {
        self.worker.second.get()
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let worker = &self.worker;
        worker.idle.remove(&self.slot);
        worker.open.set(worker.open.get() - 1);
        worker.shared.capacity.release_client();
    }
}

/// The file of an upstream connection, counted until dropped. It is always granted, because some files are reserved for upstream connections.
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
}
