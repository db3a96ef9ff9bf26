//! What is in effect, as those who ask see it: a snapshot that the control side replaces and never changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use imbl::OrdMap;
use pointsman_binding::Binder;
use pointsman_binding::status::Status;
use pointsman_control::report;
use pointsman_proxy::{Figures, Owner, Proxy, SocketKey};
use pointsman_resources::read::Document;
use pointsman_resources::{Finding, ObjectKey, Severity};
use pointsman_routing::Tables;
use serde_json::Value;
use serde_json::value::RawValue;

/// An object and what is said of it.
pub struct Entry {
    /// The object.
    pub document: Arc<Document>,
    /// What is said of it.
    pub status: Option<Arc<Status>>,
    /// The same as it is written, with times; empty if nothing is said.
    said: Box<str>,
    /// The object with its status, once somebody has asked for it.
    item: OnceLock<Box<RawValue>>,
}

impl Entry {
    /// An object of which this is said from now on. A condition that says the same as before keeps its time; what others have said in the object's own
    /// status stays.
    pub fn new(
        document: Arc<Document>,
        status: Option<Arc<Status>>,
        before: Option<&Entry>,
        now: &str,
    ) -> Self {
        let told = |document: &Document| document.object().get("status").cloned();
        // Whether others have said nothing new.
        let quiet = before.is_some_and(|before| {
            Arc::ptr_eq(&before.document, &document) || told(&before.document) == told(&document)
        });
        let before = before.filter(|before| !before.said.is_empty());
        let said = match (&status, before) {
            (None, _) => Box::default(),
            (Some(status), Some(before)) if quiet && before.status.as_ref() == Some(status) => {
                before.said.clone()
            }
            (Some(status), before) => {
                let said = || serde_json::from_str(&before?.said).ok();
                let existing = match quiet {
                    true => said().or_else(|| told(&document)),
                    false => told(&document).or_else(said),
                };
                let merged = status.merge(existing.as_ref(), now);
                merged.to_string().into()
            }
        };
        Entry {
            document,
            status,
            said,
            item: OnceLock::new(),
        }
    }

    /// The object with its status.
    fn item(&self) -> &RawValue {
        self.item.get_or_init(|| {
            let mut object = self.document.object();
            if !self.said.is_empty() {
                object["status"] = serde_json::from_str(&self.said).unwrap_or_default();
            }
            let text = object.to_string();
            RawValue::from_string(text).unwrap_or_default()
        })
    }
}

/// One version of everything.
#[derive(Default)]
pub struct Snapshot {
    /// Counts versions.
    pub version: u64,
    /// The tables in effect.
    pub tables: Tables,
    /// Every object that something may be said of, by its place in the input.
    pub entries: OrdMap<(u64, ObjectKey), Arc<Entry>>,
    /// What is wrong with the files.
    pub findings: Arc<Vec<Finding>>,
    /// How many objects of other kinds there are.
    pub passed_over: Arc<BTreeMap<String, usize>>,
    /// Who listens where.
    pub sockets: Arc<BTreeMap<SocketKey, Owner>>,
    /// What could not be bound, and why.
    pub unbound: Arc<BTreeMap<SocketKey, String>>,
}

/// What the control side and those who ask share.
#[derive(Default)]
pub struct Shared {
    binder: Mutex<Binder>,
    snapshot: RwLock<Arc<Snapshot>>,
    ready: AtomicBool,
    proxy: Mutex<Option<Proxy>>,
    figures: OnceLock<Figures>,
    /// The last `/status`, and of which version it is.
    status: Mutex<Option<(u64, Arc<str>)>>,
}

impl Shared {
    /// The binder. Who only asks holds it for as long as a change would take.
    pub fn binder(&self) -> MutexGuard<'_, Binder> {
        self.binder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data plane, once it runs.
    pub fn proxy(&self) -> MutexGuard<'_, Option<Proxy>> {
        self.proxy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data plane runs.
    pub fn set_proxy(&self, proxy: Proxy) {
        let _ = self.figures.set(proxy.figures());
        *self.proxy() = Some(proxy);
    }

    /// The data plane's figures, be it busy or not; none before it runs.
    pub fn figures(&self) -> String {
        self.figures.get().map(Figures::render).unwrap_or_default()
    }

    /// What is in effect.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let snapshot = self.snapshot.read();
        snapshot.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a new version in place.
    pub fn publish(&self, snapshot: Snapshot) {
        let mut place = self
            .snapshot
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Arc::new(snapshot);
    }

    /// Whether everything that can be listened on is.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Says whether it is.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// What `check -o json` prints, of what is in effect. Made once per version.
    pub fn status(&self) -> Arc<str> {
        let mut last = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.snapshot();
        if let Some((version, text)) = &*last
            && *version == snapshot.version
        {
            return text.clone();
        }
        let text: Arc<str> = self.render(&snapshot).into();
        *last = Some((snapshot.version, text.clone()));
        text
    }

    fn render(&self, snapshot: &Snapshot) -> String {
        let bound = self.binder().warnings();
        let documents: HashMap<ObjectKey, &Arc<Document>> = snapshot
            .entries
            .values()
            .map(|entry| (entry.document.resource.key(), &entry.document))
            .collect();
        let find = |key: &ObjectKey| documents.get(key).copied();
        let warnings = report::warnings(&snapshot.findings, bound, &snapshot.tables, find);
        let is_error = |finding: &&Finding| finding.severity == Severity::Error;
        let errors: Vec<&Finding> = snapshot.findings.iter().filter(is_error).collect();
        let items: Vec<&RawValue> = snapshot
            .entries
            .values()
            .map(|entry| entry.item())
            .collect();
        let list = report::list(items, &errors, &warnings, &snapshot.passed_over);
        serde_json::to_string(&list).unwrap_or_else(|_| Value::Null.to_string())
    }
}
