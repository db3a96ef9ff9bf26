//! Connections per port over all workers, for the connection limits of Kuma's listeners. At the limit the longest-idle connections are closed to make room.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::task::spawn_local;

use super::eviction::{Evicted, IdleGroup, IdleSlot, SharedEviction};
use super::{Socket, Worker};
use crate::socket_owner::SocketKey;

/// The connections of all ports.
#[derive(Debug, Default)]
pub(crate) struct PortConnections(Mutex<HashMap<SocketKey, Arc<SharedPort>>>);

/// Connections to a port.
#[derive(Debug)]
struct SharedPort {
    count: AtomicUsize,
    eviction: Arc<SharedEviction>,
}

/// A worker's view of the connections to a port.
#[derive(Debug)]
pub(crate) struct LocalPort {
    shared: Arc<SharedPort>,
    idle: IdleGroup,
    /// True once other workers can request that idle connections close.
    serves_evictions: Cell<bool>,
}

impl PortConnections {
    /// Returns a worker's view of a port. Called when a socket is opened, not per connection.
    pub(super) fn of(&self, key: SocketKey, worker: usize, workers: usize) -> LocalPort {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Drops ports without sockets.
        all.retain(|other, port| *other == key || Arc::strong_count(port) > 1);
        let port = all.entry(key).or_insert_with(|| {
            Arc::new(SharedPort {
                count: AtomicUsize::new(0),
                eviction: Arc::new(SharedEviction::new(workers)),
            })
        });
        LocalPort {
            idle: IdleGroup::new(port.eviction.clone(), worker),
            shared: port.clone(),
            serves_evictions: Cell::new(false),
        }
    }
}

/// A connection counted for its port until dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    socket: Rc<Socket>,
    slot: IdleSlot,
}

impl Socket {
    /// Counts a connection to the port, and closes the longest-idle connections there if the limit is reached. Returns `None` if no connection is idle.
    pub(crate) async fn acquire_permit(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        limit: u32,
    ) -> Option<ConnectionPermit> {
        if !self.port.serves_evictions.replace(true) {
            spawn_local(self.clone().close_idle_on_request(worker.clone()));
        }
        let make_room = || match self.port.idle.evict(worker.second.get()) {
            Evicted::None => false,
            Evicted::Own(count) => {
                self.log_evicted(worker, count);
                true
            }
            Evicted::Requested => true,
        };
        let eviction = &self.port.shared.eviction;
        eviction
            .acquire(|| self.try_acquire_permit(limit), make_room)
            .await
    }

    fn try_acquire_permit(self: &Rc<Self>, limit: u32) -> Option<ConnectionPermit> {
        let count = &self.port.shared.count;
        if count.fetch_add(1, Ordering::SeqCst) >= limit as usize {
            count.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        Some(ConnectionPermit {
            socket: self.clone(),
            slot: Cell::new(None),
        })
    }

    /// Closes idle connections whenever another worker requests it, until the socket is closed.
    async fn close_idle_on_request(self: Rc<Self>, worker: Rc<Worker>) {
        loop {
            tokio::select! {
                () = self.closed.wait() => return,
                () = self.port.idle.close_requested() => {}
            }
            let count = self.port.idle.close_longest_idle(worker.second.get());
            self.log_evicted(&worker, count);
        }
    }

    /// Tells other workers for how long connections of this worker have been idle. Called once a second.
    pub(super) fn publish_idle(&self, second: u64) {
        self.port.idle.publish_oldest(second);
    }

    fn log_evicted(&self, worker: &Worker, count: usize) {
        worker.metrics.worker_series().closed_idle.add(count as u64);
        if count > 0
            && let Some(times) = worker.limit_log.due("connectionLimit-idle")
        {
            let address = self.key.address;
            tracing::info!(%address, times, "closed idle connections to make room: the connectionLimit is reached");
        }
    }
}

impl ConnectionPermit {
    /// Marks the connection as idle. Ready when it has to close to make room.
    pub(crate) fn poll_idle(&self, second: u64, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.port.idle.poll_idle(&self.slot, second, cx)
    }

    /// Marks the connection as busy, so that it is not closed to make room.
    pub(crate) fn set_busy(&self) {
        self.socket.port.idle.set_busy(&self.slot);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let port = &self.socket.port;
        port.idle.remove(&self.slot);
        port.shared.count.fetch_sub(1, Ordering::SeqCst);
        port.shared.eviction.wake_waiting();
    }
}
