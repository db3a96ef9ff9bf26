//! The queue of a proxy's reports: the complete state for a new stream, then changes. Changes of the same subject are merged, which bounds the queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pointsman_binding::Change;
use pointsman_binding::bound::BackendId;
use pointsman_resources::Name;
use tokio::sync::Notify;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Gateway(Name),
    Need(BackendId),
    Resolution(Arc<str>),
}

impl Subject {
    /// Returns the subject of a change, and whether it still has something to report; `None` for changes that are not reports.
    fn of(change: &Change) -> Option<(Subject, bool)> {
        match change {
            Change::Observe(gateway, observation) => {
                Some((Subject::Gateway(gateway.clone()), observation.is_some()))
            }
            Change::Need(id, needed) => Some((Subject::Need(id.clone()), *needed)),
            Change::RefusedResolution(name, refused) => {
                Some((Subject::Resolution(name.clone()), !refused.is_empty()))
            }
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct ReportState {
    /// The complete state.
    all: BTreeMap<Subject, Change>,
    /// Changes not sent yet.
    changes: BTreeMap<Subject, Change>,
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
            let Some((subject, is_there)) = Subject::of(&change) else {
                continue;
            };
            match is_there {
                true => drop(state.all.insert(subject.clone(), change.clone())),
                false => drop(state.all.remove(&subject)),
            }
            state.changes.insert(subject, change);
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
