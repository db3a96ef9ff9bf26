//! Idle HTTP/1 connections by endpoint and socket factory. The most recently used one is taken first, so that surplus connections grow old and are closed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::SelectedEndpoint;
use super::http1::PersistentConnection;
use crate::sockets::SocketFactory;

/// Identifies interchangeable connections: those to one endpoint for clients with the same mark and network namespace.
#[derive(Debug)]
pub(super) struct PoolKey {
    pub(super) address: SocketAddr,
    sockets: Rc<SocketFactory>,
}

impl PoolKey {
    pub(super) fn of(selected: &SelectedEndpoint) -> Self {
        PoolKey {
            address: selected.address,
            sockets: selected.sockets.clone(),
        }
    }

    pub(super) fn matches(&self, selected: &SelectedEndpoint) -> bool {
        self.address == selected.address
            && (Rc::ptr_eq(&self.sockets, &selected.sockets)
                || self.sockets.is_equivalent(&selected.sockets))
    }
}

/// A pool of idle HTTP/1 connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPool(RefCell<Vec<(PoolKey, IdleQueue)>>);

/// Connections to an endpoint with the time when they became idle, oldest first.
type IdleQueue = VecDeque<(Instant, Box<PersistentConnection>)>;

impl ConnectionPool {
    /// Takes a connection to the selected endpoint.
    pub(crate) fn checkout(
        &self,
        selected: &SelectedEndpoint,
    ) -> Option<Box<PersistentConnection>> {
        let mut all = self.0.borrow_mut();
        let (_, idle) = all.iter_mut().find(|(key, _)| key.matches(selected))?;
        idle.pop_back().map(|(_, idle)| idle)
    }

    /// Adds a connection that is idle since `now`, and drops the oldest one if there are more than `max`.
    pub(crate) fn checkin(
        &self,
        selected: &SelectedEndpoint,
        connection: Box<PersistentConnection>,
        now: Instant,
        max: usize,
    ) {
        let mut all = self.0.borrow_mut();
        let index = match all.iter().position(|(key, _)| key.matches(selected)) {
            Some(index) => index,
            None => {
                all.push((PoolKey::of(selected), VecDeque::new()));
                all.len() - 1
            }
        };
        let idle = &mut all[index].1;
        idle.push_back((now, connection));
        if idle.len() > max {
            idle.pop_front();
        }
    }

    /// Drops connections to endpoints that were removed.
    pub(crate) fn retain(&self, exists: impl Fn(&SocketAddr) -> bool) {
        self.0.borrow_mut().retain(|(key, _)| exists(&key.address));
    }

    /// Drops all connections.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Drops connections that have been idle for this long.
    pub(crate) fn sweep(&self, max_idle: Duration) {
        for (_, idle) in self.0.borrow_mut().iter_mut() {
            while idle
                .front()
                .is_some_and(|(since, _)| since.elapsed() >= max_idle)
            {
                idle.pop_front();
            }
        }
    }
}
