//! Merges the changes that watches deliver. The reconciler receives no changes before every kind has been listed, because a Secret that has not arrived yet
//! would be reported as missing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use pointsman_binding::ServedApi;
use pointsman_control::source::Findings;
use pointsman_control::{Inbox, SourceUpdate};
use pointsman_resources::{Finding, Kind, ObjectKey, Severity};
use serde_json::Value;

use crate::decode::SOURCE;
use crate::events::{Events, Problem, ProblemSource, reference};
use crate::watched_objects::{Batch, Rejection};

/// The objects of one watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchScope {
    /// The kind.
    pub kind: Kind,
    /// The namespace, if only one is watched.
    pub namespace: Option<String>,
}

impl fmt::Display for WatchScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Passes changes to the reconciler.
pub struct Collector {
    inbox: Arc<Inbox>,
    events: Arc<Events>,
    state: Mutex<CollectorState>,
}

struct CollectorState {
    /// Watches that have not been listed yet, each with its last error.
    unlisted: BTreeMap<WatchScope, String>,
    /// Changes received before all kinds were listed.
    held: SourceUpdate,
    findings: BTreeMap<ObjectKey, Finding>,
}

impl Collector {
    /// Creates a collector that waits for these watches.
    pub fn new(
        inbox: Arc<Inbox>,
        events: Arc<Events>,
        scopes: impl Iterator<Item = WatchScope>,
    ) -> Self {
        let state = CollectorState {
            unlisted: scopes.map(|scope| (scope, String::new())).collect(),
            // The first update always has findings, so that an empty list is published as well.
            held: SourceUpdate {
                findings: Some(Findings::default()),
                ..SourceUpdate::default()
            },
            findings: BTreeMap::new(),
        };
        Collector {
            inbox,
            events,
            state: Mutex::new(state),
        }
    }

    /// Passes on changes of a watch.
    pub fn forward_changes(&self, batch: Batch) {
        let mut state = self.lock();
        state.merge(batch, &self.events);
        state.forward(&self.inbox);
    }

    /// Passes on the changes of a completed list, and marks the watch as listed.
    pub fn complete(&self, scope: &WatchScope, batch: Batch) {
        let mut state = self.lock();
        state.merge(batch, &self.events);
        if state.unlisted.remove(scope).is_some() && state.unlisted.is_empty() {
            tracing::info!("all kinds have been listed");
        }
        state.forward(&self.inbox);
    }

    /// Passes on the kinds that the cluster serves.
    pub fn put_served_api(&self, api: ServedApi) {
        let mut state = self.lock();
        state.held.served_api = Some(Arc::new(api));
        state.forward(&self.inbox);
    }

    /// Records why a watch has not been listed yet.
    pub fn record_error(&self, scope: &WatchScope, error: &str) {
        if let Some(last) = self.lock().unlisted.get_mut(scope) {
            error.clone_into(last);
        }
    }

    /// Returns the watches that have not been listed yet, with the reason if known; empty once the reconciler has everything.
    pub fn pending_watches(&self) -> Vec<String> {
        let state = self.lock();
        let unlisted = state.unlisted.iter();
        unlisted
            .map(|(scope, error)| match error.is_empty() {
                true => scope.to_string(),
                false => format!("{scope}: {error}"),
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, CollectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CollectorState {
    fn merge(&mut self, batch: Batch, events: &Events) {
        let has_findings = !batch.rejected.is_empty();
        for (key, rejection) in batch.rejected {
            let problem = rejection.iter().map(|rejection| Problem {
                reason: "Rejected",
                note: rejection.why.clone(),
            });
            let regarding = || ObjectReference {
                uid: rejection.as_ref().and_then(|one| one.uid.clone()),
                ..reference(&key, &Value::Null)
            };
            events.replace(
                ProblemSource::Validation,
                &key,
                problem.collect(),
                regarding,
            );
            match rejection {
                Some(rejection) => {
                    let finding = finding(&key, rejection);
                    self.findings.insert(key, finding);
                }
                None => drop(self.findings.remove(&key)),
            }
        }
        self.held.merge(batch.update);
        if has_findings {
            self.held.findings = Some(Findings {
                findings: Arc::new(self.findings.values().cloned().collect()),
                ..Findings::default()
            });
        }
    }

    fn forward(&mut self, inbox: &Inbox) {
        if self.unlisted.is_empty() && !self.held.is_empty() {
            let update = std::mem::take(&mut self.held);
            inbox.merge(|pending| pending.merge(update));
        }
    }
}

fn finding(key: &ObjectKey, rejection: Rejection) -> Finding {
    Finding {
        severity: Severity::Error,
        file: SOURCE.into(),
        line: 0,
        column: 0,
        field: key.to_string(),
        message: format!("rejected as invalid: {}", rejection.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(kind: Kind) -> WatchScope {
        let namespace = None;
        WatchScope { kind, namespace }
    }

    fn batch(name: &str) -> Batch {
        let mut batch = Batch::default();
        let key = ObjectKey::new(Kind::Secret, "shop", name);
        batch.update.objects.insert(key, None);
        batch
    }

    #[test]
    fn nothing_is_passed_on_before_every_kind_has_been_listed() {
        let inbox: Arc<Inbox> = Arc::default();
        let kinds = [Kind::Secret, Kind::Gateway, Kind::Mesh];
        let collector = Collector::new(inbox.clone(), Arc::default(), kinds.into_iter().map(scope));
        collector.complete(&scope(Kind::Secret), batch("a"));
        collector.forward_changes(batch("b"));
        collector.record_error(&scope(Kind::Gateway), "forbidden");
        collector.record_error(&scope(Kind::Secret), "lost");
        assert_eq!(collector.pending_watches(), ["Gateway: forbidden", "Mesh"]);
        collector.complete(&scope(Kind::Gateway), Batch::default());
        assert!(inbox.take().is_none());
        collector.complete(&scope(Kind::Mesh), Batch::default());
        let first = inbox.take().expect("all have been listed");
        assert_eq!(first.objects.len(), 2);
        assert!(
            first.findings.is_some(),
            "an empty list is published as well"
        );
        collector.forward_changes(batch("c"));
        assert_eq!(inbox.take().expect("at once").objects.len(), 1);
        // A relist without changes reports nothing.
        collector.complete(&scope(Kind::Secret), Batch::default());
        assert!(inbox.take().is_none());
    }
}
