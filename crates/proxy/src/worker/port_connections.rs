//! How many connections a port has, over all workers: a listener of Kuma's may say how many there may be at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::proxy::SocketKey;

/// The counts of all ports.
#[derive(Debug, Default)]
pub(crate) struct PortConnections(Mutex<HashMap<SocketKey, Arc<AtomicUsize>>>);

impl PortConnections {
    /// The count of a port. Asked for when a socket is opened, not when a client comes.
    pub(crate) fn of(&self, key: SocketKey) -> Arc<AtomicUsize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A port that no socket counts at any more has no use for its own.
        all.retain(|other, count| *other == key || Arc::strong_count(count) > 1);
        all.entry(key).or_default().clone()
    }
}

/// A connection that its port counts while it lives.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<AtomicUsize>);

impl ConnectionPermit {
    /// A permit among so many; none if all are taken.
    pub(crate) fn try_acquire(count: &Arc<AtomicUsize>, limit: u32) -> Option<ConnectionPermit> {
        let permit = ConnectionPermit(count.clone());
        let before = count.fetch_add(1, Ordering::Relaxed);
        // One that is not given is counted down again by its end.
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
    fn a_place_is_free_again_when_its_connection_ends() {
        let count = Arc::default();
        let first = ConnectionPermit::try_acquire(&count, 1);
        assert!(first.is_some());
        assert!(ConnectionPermit::try_acquire(&count, 1).is_none());
        drop(first);
        assert!(ConnectionPermit::try_acquire(&count, 1).is_some());
    }
}
