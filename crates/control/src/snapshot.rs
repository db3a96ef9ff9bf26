//! Snapshots: immutable views of the configuration in effect. The reconciler publishes one after each change.
//! The maps of a snapshot share structure with those of the previous one, so that the cost of a snapshot is proportional to the change. Readers that need a
//! binder, such as `/status` and live `explain`, share one of their own, which is brought up to the snapshot's inputs on the reader's thread. A slow reader may
//! delay other readers, but never a change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pointsman_binding::Binder;
use pointsman_resources::read::Document;
use pointsman_resources::{Finding, ObjectKey, Severity};
use pointsman_routing::Tables;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::clock;
use crate::inputs::Inputs;
use crate::journal::StatusEntries;
use crate::report;
use crate::source::Findings;

/// The configuration in effect at one time.
#[derive(Default)]
pub struct Snapshot {
    /// Number of this snapshot, starting at 1; 0 before the first one.
    pub version: u64,
    /// Routing tables; `None` if no sink uses them. [`Snapshots::tables`] returns them in either case.
    pub(crate) tables: Option<Tables>,
    /// Statuses, by the position of their objects in the input.
    pub entries: StatusEntries,
    /// Findings of the source.
    pub findings: Findings,
    pub(crate) inputs: Inputs,
}

/// The latest snapshot, and values derived from it for readers.
#[derive(Default)]
pub struct Snapshots {
    latest: RwLock<Arc<Snapshot>>,
    reader: Mutex<ReaderBinder>,
    /// The last rendered `/status`.
    status: Mutex<Option<Rendered>>,
}

/// A rendered `/status`.
struct Rendered {
    version: u64,
    /// Time in minutes since the Unix epoch, on which warnings about certificates depend.
    minute: i64,
    text: Arc<str>,
}

/// The readers' binder. It agrees with the reconciler's because binding is a function of its inputs.
#[derive(Default)]
struct ReaderBinder {
    binder: Binder,
    inputs: Inputs,
    /// Tables of snapshots without tables.
    tables: Tables,
}

impl ReaderBinder {
    /// Applies the differences between this binder and a snapshot.
    fn catch_up(&mut self, snapshot: &Snapshot) {
        let changes = snapshot.inputs.changes_since(&self.inputs);
        let delta = self.binder.apply(changes);
        if snapshot.tables.is_none() {
            self.tables.apply(&delta);
        }
        self.inputs = snapshot.inputs.clone();
    }
}

impl Snapshot {
    /// Returns the number of objects, including kinds without a status.
    pub fn number_of_objects(&self) -> usize {
        self.inputs.number_of_objects()
    }
}

impl Snapshots {
    /// Returns the latest snapshot.
    pub fn latest(&self) -> Arc<Snapshot> {
        let latest = self.latest.read();
        latest.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the latest snapshot.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        let latest = self.latest.write();
        *latest.unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    /// Replaces the latest snapshot with one that has only tables, for a data plane whose statuses are kept elsewhere.
    pub fn publish_tables(&self, tables: Tables) {
        let version = self.latest().version + 1;
        self.publish(Snapshot {
            version,
            tables: Some(tables),
            ..Snapshot::default()
        });
    }

    /// Calls `read` with a binder that has exactly the inputs of a snapshot. Readers block each other.
    pub fn with_binder<T>(&self, snapshot: &Snapshot, read: impl FnOnce(&Binder) -> T) -> T {
        let reader = self.reader.lock();
        let mut reader = reader.unwrap_or_else(PoisonError::into_inner);
        reader.catch_up(snapshot);
        read(&reader.binder)
    }

    /// Returns the routing tables of a snapshot. Those that no sink uses are compiled here. Readers block each other.
    pub fn tables(&self, snapshot: &Snapshot) -> Tables {
        if let Some(tables) = &snapshot.tables {
            return tables.clone();
        }
        let reader = self.reader.lock();
        let mut reader = reader.unwrap_or_else(PoisonError::into_inner);
        reader.catch_up(snapshot);
        reader.tables.clone()
    }

    /// Returns the body of `/status`: the output of `check -o json` for the configuration in effect. Rendered at most once per version and minute.
    pub fn status(&self) -> Arc<str> {
        let mut last = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.latest();
        let now = clock::unix_seconds();
        let (version, minute) = (snapshot.version, now / 60);
        if let Some(rendered) = &*last
            && (rendered.version, rendered.minute) == (version, minute)
        {
            return rendered.text.clone();
        }
        let text: Arc<str> = self.render(&snapshot, now).into();
        *last = Some(Rendered {
            version,
            minute,
            text: text.clone(),
        });
        text
    }

    fn render(&self, snapshot: &Snapshot, now: i64) -> String {
        let bound = self.with_binder(snapshot, |binder| {
            let mut warnings = binder.warnings();
            warnings.extend(binder.certificate_warnings(now));
            warnings
        });
        let entries = || snapshot.entries.values();
        let documents: HashMap<ObjectKey, &Arc<Document>> = entries()
            .map(|entry| (entry.document.resource.key(), &entry.document))
            .collect();
        let find = |key: &ObjectKey| documents.get(key).copied();
        let Findings {
            findings,
            ignored_kinds,
        } = &snapshot.findings;
        let tables = self.tables(snapshot);
        let warnings = report::warnings(findings, bound, &tables, find);
        let is_error = |finding: &&Finding| finding.severity == Severity::Error;
        let errors: Vec<&Finding> = findings.iter().filter(is_error).collect();
        let items: Vec<&RawValue> = entries().map(|entry| entry.item()).collect();
        let list = report::list(items, &errors, &warnings, ignored_kinds);
        serde_json::to_string(&list).unwrap_or_else(|_| Value::Null.to_string())
    }
}
