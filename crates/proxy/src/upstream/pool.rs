//! Idle HTTP/1 connections by endpoint. The most recently used one is taken first, so that surplus connections grow old and are closed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::http1::PersistentConnection;

/// A pool of idle HTTP/1 connections.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPool(RefCell<Vec<(SocketAddr, IdleQueue)>>);

/// Connections to an endpoint with the time since which they are idle, oldest first.
type IdleQueue = VecDeque<(Instant, Box<PersistentConnection>)>;

impl ConnectionPool {
    /// Takes a connection to this endpoint.
    pub(crate) fn checkout(&self, address: SocketAddr) -> Option<Box<PersistentConnection>> {
        let mut all = self.0.borrow_mut();
        let (_, idle) = all.iter_mut().find(|(other, _)| *other == address)?;
        idle.pop_back().map(|(_, idle)| idle)
    }

    /// Adds a connection, and drops the oldest one if there are more than `max`.
    pub(crate) fn checkin(
        &self,
        address: SocketAddr,
        connection: Box<PersistentConnection>,
        max: usize,
    ) {
        let mut all = self.0.borrow_mut();
        let index = match all.iter().position(|(other, _)| *other == address) {
            Some(index) => index,
            None => {
                all.push((address, VecDeque::new()));
                all.len() - 1
            }
        };
        let idle = &mut all[index].1;
        idle.push_back((Instant::now(), connection));
        if idle.len() > max {
            idle.pop_front();
        }
    }

    /// Drops connections to endpoints that were removed.
    pub(crate) fn retain(&self, exists: impl Fn(&SocketAddr) -> bool) {
        self.0.borrow_mut().retain(|(address, _)| exists(address));
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
