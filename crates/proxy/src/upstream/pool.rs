//! Connections that wait for work, by endpoint. The one that was used last is taken first, so that those which are too many grow old and go.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::http1::PersistentConnection;

/// Connections of HTTP/1 that wait for work.
#[derive(Debug, Default)]
pub(crate) struct ConnectionPool(RefCell<Vec<(SocketAddr, IdleQueue)>>);

/// Those to one endpoint, with the time since when they wait; the oldest first.
type IdleQueue = VecDeque<(Instant, Box<PersistentConnection>)>;

impl ConnectionPool {
    /// Takes one to this endpoint.
    pub(crate) fn checkout(&self, address: SocketAddr) -> Option<Box<PersistentConnection>> {
        let mut all = self.0.borrow_mut();
        let (_, idle) = all.iter_mut().find(|(other, _)| *other == address)?;
        idle.pop_back().map(|(_, idle)| idle)
    }

    /// Keeps one, unless there are enough.
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

    /// Keeps only those to endpoints that are still there.
    pub(crate) fn retain(&self, exists: impl Fn(&SocketAddr) -> bool) {
        self.0.borrow_mut().retain(|(address, _)| exists(address));
    }

    /// Closes all.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Closes those that have waited this long.
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
