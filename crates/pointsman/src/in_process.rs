//! The sink of `run` and `proxy`: a data plane in this process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pointsman_binding::{Change, Delta};
use pointsman_control::Sink;
use pointsman_proxy::DataPlane;
use pointsman_routing::Tables;

/// A data plane that the control loop updates and that is drained at the end.
pub struct InProcessSink(pub Arc<Mutex<DataPlane>>);

/// Locks a data plane. Only the control thread does, so the lock is never contended.
pub fn lock(data_plane: &Mutex<DataPlane>) -> MutexGuard<'_, DataPlane> {
    data_plane.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for InProcessSink {
    fn stage(&mut self, delta: &Delta, _: &Tables) -> Vec<Change> {
        lock(&self.0).stage(delta)
    }

    fn commit(&mut self, tables: &Tables) -> Vec<Change> {
        lock(&self.0).commit(tables)
    }

    fn retry(&mut self) -> Vec<Change> {
        lock(&self.0).retry_unbound()
    }

    fn needs_retry(&self) -> bool {
        lock(&self.0).has_unbound()
    }

    fn reload(&mut self) {
        if let Err(error) = lock(&self.0).reopen_log() {
            tracing::warn!("the access log can't be reopened: {error}");
        }
    }
}
