//! The status journal: every object that may have a status, with the status as it would be written, times included.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use imbl::OrdMap;
use pointsman_binding::status::Status;
use pointsman_resources::ObjectKey;
use pointsman_resources::read::Document;
use serde_json::Value;
use serde_json::value::RawValue;

/// Statuses by the place of their objects in the input. Copies share structure.
pub type Entries = OrdMap<(u64, ObjectKey), Arc<StatusEntry>>;

/// Statuses of all objects. Conditions keep their transition time as long as they stay the same.
#[derive(Default)]
pub struct StatusJournal {
    entries: Entries,
    places: HashMap<ObjectKey, u64>,
}

impl StatusJournal {
    /// Records the status of an object. Without a new document the one recorded before is kept.
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
        let place = entry.document.resource.meta().input_order;
        self.places.insert(key.clone(), place);
        self.entries.insert((place, key.clone()), Arc::new(entry));
    }

    /// Removes an object.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<StatusEntry>> {
        let place = self.places.remove(key)?;
        self.entries.remove(&(place, key.clone()))
    }

    /// The entry of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<&StatusEntry> {
        let place = *self.places.get(key)?;
        let entry = self.entries.get(&(place, key.clone()))?;
        Some(entry)
    }

    /// All entries, in the order of the input.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }
}

/// An object and its status.
pub struct StatusEntry {
    /// The object as its source has it.
    pub document: Arc<Document>,
    /// Its status, without times.
    pub status: Option<Arc<Status>>,
    /// The status as it is written, with times; empty if there is none.
    written: Box<str>,
    /// The object with its status, rendered on first use.
    item: OnceLock<Box<RawValue>>,
}

impl StatusEntry {
    /// Merges a new status with the one before. A condition that has not changed keeps its time, and entries of other controllers in the object's own
    /// status are kept.
    fn new(
        document: Arc<Document>,
        status: Option<Arc<Status>>,
        before: Option<&StatusEntry>,
        now: &str,
    ) -> Self {
        let existing = |document: &Document| document.object().get("status").cloned();
        // Whether the status in the document, which others may have written, is the same as before.
        let is_same_document = before.is_some_and(|before| {
            Arc::ptr_eq(&before.document, &document)
                || existing(&before.document) == existing(&document)
        });
        // An object whose generation went back was replaced by another one: nothing of the old one's status is newer than the new one's.
        let generation = |status: Option<&Arc<Status>>| status.map(|status| status.generation);
        let is_replaced = |before: &&StatusEntry| {
            generation(before.status.as_ref()) > generation(status.as_ref())
        };
        let before = before.filter(|before| !before.written.is_empty() && !is_replaced(before));
        let written = match (&status, before) {
            (None, _) => Box::default(),
            (Some(status), Some(before))
                if is_same_document && before.status.as_ref() == Some(status) =>
            {
                before.written.clone()
            }
            (Some(status), before) => {
                let written = || serde_json::from_str(&before?.written).ok();
                let base: Option<Value> = match is_same_document {
                    true => written().or_else(|| existing(&document)),
                    false => existing(&document).or_else(written),
                };
                let namespace = &document.resource.meta().namespace;
                let merged = status.merge(namespace, base.as_ref(), now);
                merged.to_string().into()
            }
        };
        StatusEntry {
            document,
            status,
            written,
            item: OnceLock::new(),
        }
    }

    /// The object with its status, as JSON.
    pub fn item(&self) -> &RawValue {
        self.item.get_or_init(|| {
            let mut object = self.document.object();
            if !self.written.is_empty() {
                object["status"] = serde_json::from_str(&self.written).unwrap_or_default();
            }
            let text = object.to_string();
            RawValue::from_string(text).unwrap_or_default()
        })
    }
}
