//! The status journal: every object that may have a status, with that status as Kubernetes would store it, including transition times.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use imbl::OrdMap;
use pointsman_binding::ExpectedChange;
use pointsman_binding::status::Status;
use pointsman_binding::status::effect::IN_EFFECT;
use pointsman_resources::ObjectKey;
use pointsman_resources::read::Document;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::timed_status::TimedStatus;

/// Statuses by the position of their objects in the input. Copies share structure.
pub type StatusEntries = OrdMap<(u64, ObjectKey), Arc<StatusEntry>>;

/// Statuses of all objects. A condition keeps its transition time until it changes.
#[derive(Default)]
pub struct StatusJournal {
    entries: StatusEntries,
    positions: HashMap<ObjectKey, u64>,
}

impl StatusJournal {
    /// Records the status of an object. Without a new document, the recorded one is kept.
    pub fn record(
        &mut self,
        key: &ObjectKey,
        document: Option<&Arc<Document>>,
        status: Option<Arc<Status>>,
        now: &str,
    ) {
        let before = self.remove(key);
        let document = document.or(before.as_ref().map(|entry| &entry.document));
        let Some(document) = document.cloned() else {
            return;
        };
        let entry = StatusEntry::new(document, status, before.as_deref(), now);
        let position = entry.document.resource.meta().input_order;
        self.positions.insert(key.clone(), position);
        self.entries
            .insert((position, key.clone()), Arc::new(entry));
    }

    /// Removes an object.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<StatusEntry>> {
        let position = self.positions.remove(key)?;
        self.entries.remove(&(position, key.clone()))
    }

    /// Returns the entry of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<StatusEntry>> {
        let position = *self.positions.get(key)?;
        self.entries.get(&(position, key.clone()))
    }

    /// Returns all entries, in the order of the input.
    pub fn entries(&self) -> &StatusEntries {
        &self.entries
    }
}

/// An object and its status.
pub struct StatusEntry {
    /// The object as its source provides it.
    pub document: Arc<Document>,
    /// The status without times; `None` if it has none.
    pub status: Option<Arc<Status>>,
    /// The status with times.
    timed: Option<TimedStatus>,
    /// Last settled status, kept while this one is pending. Transition times continue from it.
    settled: Option<TimedStatus>,
    is_settled: bool,
    /// The object with its status, rendered on first use.
    item: OnceLock<Box<RawValue>>,
}

impl StatusEntry {
    /// Merges a new status with the previous one. Conditions that have not changed keep their transition time, and entries of other controllers in the
    /// object's own status are kept.
    fn new(
        document: Arc<Document>,
        status: Option<Arc<Status>>,
        before: Option<&StatusEntry>,
        now: &str,
    ) -> Self {
        // The status in the document may contain entries of other controllers.
        let document_status_unchanged = before.is_some_and(|before| {
            Arc::ptr_eq(&before.document, &document)
                || before.document.status() == document.status()
        });
        // An object whose generation decreased was deleted and created again, so its old status does not apply.
        let generation = |status: Option<&Arc<Status>>| status.map(|status| status.generation);
        let is_replaced = |before: &&StatusEntry| {
            generation(before.status.as_ref()) > generation(status.as_ref())
        };
        let before = before.filter(|before| before.timed.is_some() && !is_replaced(before));
        let entry = |timed, settled, is_settled| StatusEntry {
            document: document.clone(),
            status: status.clone(),
            timed,
            settled,
            is_settled,
            item: OnceLock::new(),
        };
        let Some(new) = &status else {
            return entry(None, None, true);
        };
        if let Some(before) = before
            && document_status_unchanged
            && before.status.as_ref() == Some(new)
        {
            let (timed, settled) = (before.timed.clone(), before.settled.clone());
            return entry(timed, settled, before.is_settled);
        }
        let existing = || document.status().as_ref().map(TimedStatus::from);
        let previous = || before?.last_settled().cloned();
        let base = match document_status_unchanged {
            true => previous().or_else(existing),
            false => existing().or_else(previous),
        };
        let namespace = &document.resource.meta().namespace;
        let base_json = base.as_ref().and_then(|base| base.to_json(namespace));
        let timed = TimedStatus::merge(new, namespace, base_json.as_ref(), now);
        let is_settled = match new.expected_change() {
            ExpectedChange::None => true,
            ExpectedChange::Acknowledgement => false,
            ExpectedChange::Reconnection => !base_json
                .as_ref()
                .is_some_and(|base| has_effect(base, new.generation)),
        };
        let is_final = new.expected_change() == ExpectedChange::None;
        entry(Some(timed), base.filter(|_| !is_final), is_settled)
    }

    /// Returns the last settled status.
    fn last_settled(&self) -> Option<&TimedStatus> {
        match self.status.as_ref()?.expected_change() {
            ExpectedChange::None => self.timed.as_ref(),
            ExpectedChange::Acknowledgement | ExpectedChange::Reconnection => self.settled.as_ref(),
        }
    }

    /// Returns false while the status is expected to change without further input, because proxies have not acknowledged a change yet. Unsettled statuses are not
    /// written, so that a change usually causes one write.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Returns the status as JSON, with times; `None` if there is none.
    pub fn status_json(&self) -> Option<Value> {
        let namespace = &self.document.resource.meta().namespace;
        self.timed.as_ref()?.to_json(namespace)
    }

    /// Returns the object with its status, as JSON.
    pub fn item(&self) -> &RawValue {
        self.item.get_or_init(|| {
            let mut object = self.document.object();
            if let Some(status) = self.status_json() {
                object["status"] = status;
            }
            let text = object.to_string();
            RawValue::from_string(text).unwrap_or_default()
        })
    }
}

/// Returns true if a status contains the effect of this generation of the object.
fn has_effect(status: &Value, generation: i64) -> bool {
    match status {
        Value::Object(fields) if fields.get("type").is_some_and(|kind| kind == IN_EFFECT) => {
            fields.get("observedGeneration") == Some(&generation.into())
        }
        Value::Object(fields) => fields.values().any(|value| has_effect(value, generation)),
        Value::Array(items) => items.iter().any(|item| has_effect(item, generation)),
        _ => false,
    }
}
