//! The source for manifests: watches files and sends changed objects to the reconciler.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_resources::{Finding, ObjectKey, Severity};

use super::{ChangedObjects, Files, watch};
use crate::clock;
use crate::mailbox::{Mailbox, Wake};
use crate::source::{Findings, Inbox, SourceUpdate};

/// A burst of events ends when no event arrives for this long.
const BURST_QUIET_TIME: Duration = Duration::from_millis(1);
/// Longest time for which the events of a burst are collected.
const MAX_BURST_TIME: Duration = Duration::from_millis(10);
/// Time after which an object that no file declares any more is deleted. It may be moved from one file to another, and some editors move a file away before
/// they write the new one.
const DELETE_GRACE: Duration = Duration::from_millis(50);

/// File system events, and reloads requested by an operator.
#[derive(Debug, Default)]
pub(super) struct FileEvents {
    /// Paths that were written, moved or removed.
    pub paths: BTreeSet<PathBuf>,
    /// True if the kernel dropped events, so that everything has to be scanned.
    pub overflow: bool,
    reload: bool,
}

/// Watched files and directories of manifests.
pub struct FileSource {
    files: Files,
    events: Arc<Mailbox<FileEvents>>,
    /// Objects that no file declares any more, with the time at which they count as deleted.
    pending_deletes: BTreeMap<ObjectKey, Instant>,
    /// Objects that were reported as rejected.
    rejected: BTreeSet<ObjectKey>,
    /// Version of the findings that were last reported.
    reported_findings: Option<u64>,
}

/// A handle that makes a running source read all files again.
#[derive(Clone)]
pub struct Reloader(Arc<Mailbox<FileEvents>>);

impl Reloader {
    /// Requests a reload.
    pub fn reload(&self) {
        self.0.merge(|events| events.reload = true);
    }
}

impl FileSource {
    /// Starts to watch files, directories, and `-` for standard input. Reads nothing yet.
    pub fn new(paths: &[PathBuf]) -> io::Result<Self> {
        let events: Arc<Mailbox<FileEvents>> = Arc::default();
        let watcher = watch::start(events.clone())?;
        Ok(FileSource {
            files: Files::new(paths, Some(watcher)),
            events,
            pending_deletes: BTreeMap::new(),
            rejected: BTreeSet::new(),
            reported_findings: None,
        })
    }

    /// Reads everything.
    pub fn read_all(&mut self) -> SourceUpdate {
        let changed = self.files.scan_all(true);
        self.update(changed)
    }

    /// Returns whether at least one path could be read.
    pub fn is_readable(&self) -> bool {
        self.files.is_readable()
    }

    /// Returns the errors found so far.
    pub fn errors(&self) -> Vec<Finding> {
        let mut findings = self.files.findings();
        findings.retain(|finding| finding.severity == Severity::Error);
        findings
    }

    /// Returns a handle for reloads.
    pub fn reloader(&self) -> Reloader {
        Reloader(self.events.clone())
    }

    /// Sends changes from a new thread, until the inbox is closed.
    pub fn start(mut self, inbox: Arc<Inbox>) -> io::Result<()> {
        let run = move || {
            while self.wait_and_send(&inbox) {}
            self.events.close();
        };
        let thread = std::thread::Builder::new().name("file-source".to_owned());
        thread.spawn(run).map(drop)
    }

    /// Waits for the next change and sends it. Returns false once the inbox is closed.
    fn wait_and_send(&mut self, inbox: &Inbox) -> bool {
        let expires = self.pending_deletes.values().min().copied();
        let mut update = SourceUpdate::default();
        let wake = self.events.wait(expires);
        if inbox.is_closed() {
            return false;
        }
        match wake {
            Wake::Closed => return false,
            Wake::Timeout => {}
            Wake::Content => {
                // Files that are written together take effect together.
                self.events
                    .wait_until_quiet(BURST_QUIET_TIME, MAX_BURST_TIME);
                if let Some(events) = self.events.take() {
                    update.merge(self.apply_events(&events));
                }
            }
        }
        update.merge(self.expire_pending_deletes(clock::instant()));
        update.is_empty() || inbox.merge(|pending| pending.merge(update))
    }

    fn apply_events(&mut self, events: &FileEvents) -> SourceUpdate {
        if events.reload {
            tracing::info!("reloading all files");
        }
        let changed = match events.reload || events.overflow {
            true => self.files.scan_all(events.reload),
            false => self.files.reread_changed(&events.paths),
        };
        SourceUpdate {
            reload: events.reload,
            ..self.update(changed)
        }
    }

    fn update(&mut self, changed: ChangedObjects) -> SourceUpdate {
        let mut update = SourceUpdate::default();
        let expires = clock::instant() + DELETE_GRACE;
        for key in changed {
            let rejected = self.files.rejected_at(&key);
            if rejected.is_some() {
                self.rejected.insert(key.clone());
                update.rejected.insert(key.clone(), rejected);
            } else if self.rejected.remove(&key) {
                update.rejected.insert(key.clone(), None);
            }
            match self.files.document(&key) {
                Some(document) => {
                    self.pending_deletes.remove(&key);
                    update.objects.insert(key, Some(document.clone()));
                }
                None => drop(self.pending_deletes.entry(key).or_insert(expires)),
            }
        }
        if self.reported_findings != Some(self.files.findings_version()) {
            self.reported_findings = Some(self.files.findings_version());
            update.findings = Some(Findings {
                findings: Arc::new(self.files.findings()),
                ignored_kinds: Arc::new(self.files.ignored_kinds()),
            });
        }
        update
    }

    /// Removes objects whose grace period has expired.
    fn expire_pending_deletes(&mut self, now: Instant) -> SourceUpdate {
        let expired = self
            .pending_deletes
            .extract_if(.., |_, expires| *expires <= now);
        SourceUpdate {
            objects: expired.map(|(key, _)| (key, None)).collect(),
            ..SourceUpdate::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pointsman_resources::Kind;

    use super::*;

    const SERVICE: &str =
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}";

    /// Creates a directory with a Service in `a.yaml`, and a source that has read it.
    fn source() -> (tempfile::TempDir, FileSource) {
        let folder = tempfile::tempdir().expect("a directory");
        write(folder.path(), "a.yaml", SERVICE);
        let mut source = FileSource::new(&[folder.path().to_owned()]).expect("it is watched");
        let update = source.read_all();
        assert_eq!(update.objects.len(), 1);
        assert!(update.findings.is_some(), "the first update has findings");
        (folder, source)
    }

    fn write(folder: &Path, name: &str, text: &str) {
        std::fs::write(folder.join(name), text).expect("written");
    }

    fn refresh(source: &mut FileSource, path: PathBuf) -> SourceUpdate {
        source.apply_events(&FileEvents {
            paths: [path].into(),
            ..FileEvents::default()
        })
    }

    fn service() -> ObjectKey {
        ObjectKey::new(Kind::Service, "default", "web")
    }

    #[test]
    fn an_object_is_deleted_once_its_grace_period_has_expired() {
        let (folder, mut source) = source();
        let path = folder.path().join("a.yaml");
        std::fs::remove_file(&path).expect("removed");
        assert!(refresh(&mut source, path).objects.is_empty());
        let expires = source.pending_deletes[&service()];
        let before = expires - Duration::from_millis(1);
        assert!(source.expire_pending_deletes(before).is_empty());
        let update = source.expire_pending_deletes(expires);
        assert!(matches!(update.objects.get(&service()), Some(None)));
        assert!(source.expire_pending_deletes(expires).is_empty(), "once");
    }

    #[test]
    fn an_object_that_comes_back_in_another_file_is_not_deleted() {
        let (folder, mut source) = source();
        let path = folder.path().join("a.yaml");
        std::fs::remove_file(&path).expect("removed");
        refresh(&mut source, path);
        write(folder.path(), "b.yaml", SERVICE);
        let update = refresh(&mut source, folder.path().join("b.yaml"));
        assert!(matches!(update.objects.get(&service()), Some(Some(_))));
        assert!(source.pending_deletes.is_empty());
    }

    #[test]
    fn a_rejected_object_is_reported_with_its_position_until_it_is_valid() {
        let (folder, mut source) = source();
        let path = folder.path().join("b.yaml");
        let broken = "{apiVersion: v1, kind: Service, metadata: {name: other},\n spec: {ports: [{port: 0}]}}";
        let key = ObjectKey::new(Kind::Service, "default", "other");
        let position =
            |line: u32, column: u32| Some(format!("{}:{line}:{column}", path.display()).into());
        write(folder.path(), "b.yaml", broken);
        let update = refresh(&mut source, path.clone());
        assert_eq!(update.rejected, [(key.clone(), position(2, 24))].into());
        write(folder.path(), "b.yaml", &format!("\n{broken}"));
        let update = refresh(&mut source, path.clone());
        assert_eq!(update.rejected, [(key.clone(), position(3, 24))].into());
        write(
            folder.path(),
            "b.yaml",
            &broken.replace("port: 0", "port: 1"),
        );
        let update = refresh(&mut source, path.clone());
        assert_eq!(update.rejected, [(key.clone(), None)].into());
        // The valid version stays in effect, so the object is not reported as rejected.
        write(folder.path(), "b.yaml", broken);
        assert!(refresh(&mut source, path).rejected.is_empty());
    }

    #[test]
    fn a_reload_is_forwarded_and_findings_are_reported_once() {
        let (folder, mut source) = source();
        let reload = FileEvents {
            reload: true,
            ..FileEvents::default()
        };
        let update = source.apply_events(&reload);
        assert!(update.reload && update.findings.is_none() && update.objects.is_empty());
        write(folder.path(), "b.yaml", "{kind: }");
        let update = refresh(&mut source, folder.path().join("b.yaml"));
        let findings = update.findings.expect("the findings have changed");
        assert!(!findings.findings.is_empty());
        assert!(!source.errors().is_empty());
    }
}
