//! The queue of a proxy's reports: the complete state for a new stream, then changes. Changes of the same subject are merged, which bounds the queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pointsman_binding::Change;
use pointsman_binding::bound::BackendId;
use pointsman_resources::Name;
use tokio::sync::Notify;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReportKey {
    Gateway(Name),
    Need(BackendId),
    Resolution(Arc<str>),
}

impl ReportKey {
    /// Returns the subject of a change, and whether it still has something to report; `None` for changes that are not reports.
    fn of(change: &Change) -> Option<(ReportKey, bool)> {
        match change {
            Change::Observe(gateway, observation) => {
                Some((ReportKey::Gateway(gateway.clone()), observation.is_some()))
            }
            Change::Need(id, needed) => Some((ReportKey::Need(id.clone()), *needed)),
            Change::RefusedResolution(name, refused) => {
                Some((ReportKey::Resolution(name.clone()), !refused.is_empty()))
            }
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct ReportState {
    /// The complete state.
    all: BTreeMap<ReportKey, Change>,
    /// Changes not sent yet.
    changes: BTreeMap<ReportKey, Change>,
}

/// Reports to be sent to the control plane.
#[derive(Debug, Default)]
pub struct ReportQueue {
    state: Mutex<ReportState>,
    changed: Notify,
}

impl ReportQueue {
    /// Adds reports.
    pub fn put(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.lock();
        for change in changes {
            let Some((key, is_set)) = ReportKey::of(&change) else {
                continue;
            };
            match is_set {
                true => drop(state.all.insert(key.clone(), change.clone())),
                false => drop(state.all.remove(&key)),
            }
            state.changes.insert(key, change);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Returns the complete state. Later reports are returned by [`changes`](Self::changes).
    pub(super) fn all(&self) -> Vec<Change> {
        let mut state = self.lock();
        state.changes.clear();
        state.all.values().cloned().collect()
    }

    /// Waits for changes and takes them.
    pub(super) async fn changes(&self) -> Vec<Change> {
        loop {
            let changes = std::mem::take(&mut self.lock().changes);
            if !changes.is_empty() {
                return changes.into_values().collect();
            }
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReportState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
