//! Connection counts per port over all workers, for the connection limits of Kuma's listeners.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::proxy::SocketKey;

/// The counters of all ports.
#[derive(Debug, Default)]
pub(crate) struct PortConnections(Mutex<HashMap<SocketKey, Arc<AtomicUsize>>>);

impl PortConnections {
    /// Returns the counter of a port. Called when a socket is opened, not per connection.
    pub(crate) fn of(&self, key: SocketKey) -> Arc<AtomicUsize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Drops counters that no socket uses any more.
        all.retain(|other, count| *other == key || Arc::strong_count(count) > 1);
        all.entry(key).or_default().clone()
    }
}

/// A connection counted for its port until dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<AtomicUsize>);

impl ConnectionPermit {
    /// Counts a connection, unless the limit is reached.
    pub(crate) fn try_acquire(count: &Arc<AtomicUsize>, limit: u32) -> Option<ConnectionPermit> {
        let permit = ConnectionPermit(count.clone());
        let before = count.fetch_add(1, Ordering::Relaxed);
        // If it is not returned, dropping it reverts the count.
        (before < limit as usize).then_some(permit)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_available_again_when_its_connection_ends() {
        let count = Arc::default();
        let first = ConnectionPermit::try_acquire(&count, 1);
        assert!(first.is_some());
        assert!(ConnectionPermit::try_acquire(&count, 1).is_none());
        drop(first);
        assert!(ConnectionPermit::try_acquire(&count, 1).is_some());
    }
}
