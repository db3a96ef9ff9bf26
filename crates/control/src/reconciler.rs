//! The reconciler: applies updates from sources to the binder, passes the resulting changes to the sinks, and publishes statuses and a snapshot.
//!
//! It owns the binder and depends on no particular source or sink: updates arrive in an [`Inbox`], and changes leave through [`Sink`]. Updates are applied one
//! after another, on one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::{Binder, CERTIFICATE_KINDS, Change, Controller, Delta, has_status};
use pointsman_resources::core::Secret;
use pointsman_resources::read::Document;
use pointsman_resources::{Kind, ObjectKey, Resource};
use pointsman_routing::Tables;

use crate::identities::MeshIdentities;
use crate::inputs::Inputs;
use crate::journal::StatusJournal;
use crate::mailbox::Wake;
use crate::retry::RetrySchedule;
use crate::sink::{Sink, StatusSink};
use crate::snapshot::{Snapshot, Snapshots};
use crate::source::{Findings, Inbox, SourceUpdate};
use crate::status_log::StatusLog;
use crate::{ContentAccess, ManifestPermissions, clock, data_sources};

/// Interval between checks whether certificates have expired.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Changed objects. A value of `None` is a deletion.
type ChangedDocuments = BTreeMap<ObjectKey, Option<Arc<Document>>>;

/// The control loop's state.
pub struct Reconciler {
    binder: Binder,
    tables: Tables,
    inputs: Inputs,
    identities: MeshIdentities,
    journal: StatusJournal,
    findings: Findings,
    sinks: Vec<Box<dyn Sink>>,
    status_sinks: Vec<Box<dyn StatusSink>>,
    snapshots: Arc<Snapshots>,
    log: StatusLog,
    content: ContentAccess,
    version: u64,
    /// Called with the time that a batch of changes took.
    on_applied: Box<dyn Fn(Duration) + Send>,
}

impl Reconciler {
    /// Creates a reconciler without objects.
    pub fn new(sinks: Vec<Box<dyn Sink>>, snapshots: Arc<Snapshots>) -> Self {
        Reconciler {
            binder: Binder::new(),
            tables: Tables::default(),
            inputs: Inputs::default(),
            identities: MeshIdentities::default(),
            journal: StatusJournal::default(),
            findings: Findings::default(),
            sinks,
            status_sinks: Vec::new(),
            snapshots,
            log: StatusLog::default(),
            content: ContentAccess::default(),
            version: 0,
            on_applied: Box::new(|_| {}),
        }
    }

    /// Sets the files and addresses that objects may use.
    pub fn with_permissions(mut self, permissions: ManifestPermissions) -> Self {
        self.content = permissions.content;
        self.bind(vec![Change::EndpointPolicy(permissions.endpoints)]);
        self
    }

    /// Sets the identity of this installation.
    pub fn with_controller(mut self, controller: Controller) -> Self {
        self.bind(vec![Change::Controller(Arc::new(controller))]);
        self
    }

    /// Adds a receiver of the bound form.
    pub fn with_sink(mut self, sink: Box<dyn Sink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Treats committed changes as in effect immediately, for sinks in this process.
    pub fn with_effect_on_commit(mut self) -> Self {
        self.bind(vec![Change::EffectOnCommit]);
        self
    }

    /// Adds a receiver of statuses.
    pub fn with_status_sink(mut self, sink: Box<dyn StatusSink>) -> Self {
        self.status_sinks.push(sink);
        self
    }

    /// Sets a function that is called with the time that each batch of changes took.
    pub fn with_timing(mut self, on_applied: impl Fn(Duration) + Send + 'static) -> Self {
        self.on_applied = Box::new(on_applied);
        self
    }

    /// Applies updates as they arrive, until the inbox is closed.
    pub fn run(&mut self, inbox: &Inbox) {
        let mut retries = RetrySchedule::new(clock::instant());
        let mut certificates_at = clock::instant() + CERTIFICATE_INTERVAL;
        loop {
            let until = retries.next(&self.sinks);
            let until = until.map_or(certificates_at, |until| until.min(certificates_at));
            match inbox.wait(Some(until)) {
                Wake::Closed => return,
                Wake::Content => {
                    if let Some(update) = inbox.take() {
                        self.apply_changes(update);
                    }
                }
                Wake::Timeout => {}
            }
            if retries.is_due(&self.sinks, clock::instant()) {
                self.retry_unbound();
            }
            if clock::instant() >= certificates_at {
                self.check_certificates();
                self.log.log_problems();
                certificates_at = clock::instant() + CERTIFICATE_INTERVAL;
            }
        }
    }

    /// Applies changed objects, and publishes the result.
    pub fn apply_changes(&mut self, update: SourceUpdate) {
        let SourceUpdate {
            mut objects,
            rejected,
            findings,
            served_api,
            infrastructures,
            reload,
            has_reports,
        } = update;
        if reload {
            self.sinks.iter_mut().for_each(|sink| sink.reload());
        }
        // A deletion of an unknown object is no change.
        objects.retain(|key, document| document.is_some() || self.binder.object(key).is_some());
        let has_other_changes = findings.is_some() || served_api.is_some();
        if let Some(findings) = findings {
            self.log.record_findings(&findings.findings);
            self.findings = findings;
        }
        let infrastructures = infrastructures.into_iter();
        let infrastructures: Vec<Change> = infrastructures
            .map(|(gateway, state)| Change::ObserveInfrastructure(gateway, state))
            .collect();
        if !objects.is_empty() || !rejected.is_empty() || has_other_changes {
            let mut changes = self.changes(&objects);
            let rejected = rejected.into_iter();
            changes.extend(rejected.map(|(key, position)| Change::Reject(key, position)));
            changes.extend(served_api.map(Change::ServedApi));
            changes.extend(infrastructures);
            self.apply(changes, &objects, true);
        } else if !infrastructures.is_empty() {
            self.apply(infrastructures, &objects, false);
        }
        if reload {
            self.reread_data_sources();
        }
        if reload || has_reports {
            self.retry_unbound();
        }
    }

    /// Translates changed objects into changes of the binder's inputs. Deletions come first, because a new object may name the same data as a deleted one.
    fn changes(&mut self, objects: &ChangedDocuments) -> Vec<Change> {
        let mut changes = Vec::new();
        for (key, _) in objects.iter().filter(|(_, document)| document.is_none()) {
            changes.push(Change::Delete(key.clone()));
            if key.kind == Kind::Secret && self.binder.is_retained(&key.name) {
                changes.push(Change::RetainSecret(key.name.clone(), None));
            }
            if let Some(object) = self.binder.object(key) {
                changes.extend(data_sources::drop_unused(object, &self.binder));
            }
            changes.extend(self.identities.update(key, None));
        }
        for (key, document) in objects {
            let Some(document) = document else { continue };
            let object = &document.resource;
            if let Resource::Secret(secret) = object {
                changes.extend(self.secret_changes(secret));
                continue;
            }
            let read = data_sources::read_all(object, &self.content);
            changes.extend(data_sources::changes(object, read, &self.binder));
            changes.push(Change::Put(object.clone()));
            changes.extend(self.identities.update(key, Some(object)));
        }
        changes
    }

    /// Returns the changes for a new version of a Secret. An invalid certificate does not replace a valid one: the Secret may be half written, and listeners
    /// that use it would stop serving.
    fn secret_changes(&self, secret: &Arc<Secret>) -> Vec<Change> {
        let name = secret.metadata.key();
        match self.binder.invalidates(secret) {
            Some(reason) => vec![Change::RetainSecret(name, Some(reason))],
            None => {
                let was_retained = self.binder.is_retained(&name);
                let newest = was_retained.then_some(Change::RetainSecret(name, None));
                let put = Change::Put(Resource::Secret(secret.clone()));
                newest.into_iter().chain([put]).collect()
            }
        }
    }

    /// Rereads the files and environment variables that objects name.
    fn reread_data_sources(&mut self) {
        let mut changes = Vec::new();
        for (_, object) in self.binder.objects() {
            let read = data_sources::read_all(object, &self.content);
            changes.extend(data_sources::changes(object, read, &self.binder));
        }
        if !changes.is_empty() {
            self.apply(changes, &ChangedDocuments::new(), false);
        }
    }

    /// Retries addresses and ports that could not be bound.
    pub fn retry_unbound(&mut self) {
        let reports = self.sinks.iter_mut().flat_map(|sink| sink.retry());
        let reports = reports.collect();
        self.apply(reports, &ChangedDocuments::new(), false);
    }

    /// Applies changes to the binder and the sinks, and publishes the result. Publishes if anything changed, or if `always` is set.
    fn apply(&mut self, changes: Vec<Change>, objects: &ChangedDocuments, always: bool) {
        let start = clock::instant();
        let mut touched: BTreeSet<ObjectKey> = objects.keys().cloned().collect();
        let mut affects_traffic = self.stage(changes, &mut touched);
        let mut reports = self.commit();
        // Most reports change only statuses. Other changes have to be committed as well.
        while !reports.is_empty() && self.stage(reports, &mut touched) {
            affects_traffic = true;
            reports = self.commit();
        }
        if !always && !affects_traffic && touched.is_empty() {
            return;
        }
        self.publish_status(&touched, objects);
        self.publish_snapshot();
        let took = clock::instant() - start;
        (self.on_applied)(took);
        // Not `touched`, which contains the Gateway of each route that is added or removed.
        let has_certificates = |key: &ObjectKey| CERTIFICATE_KINDS.contains(&key.kind);
        if objects.keys().any(has_certificates) {
            self.check_certificates();
        }
        match self.version {
            1 => self.log.log_start(self.binder.objects().count()),
            // Proxies have acknowledged something.
            _ if !always && !affects_traffic => self.log.log_problems(),
            version => self.log.log_change(version, objects.len(), took),
        }
    }

    /// Records warnings for certificates that have expired or will expire soon.
    fn check_certificates(&mut self) {
        let warnings = self.binder.certificate_warnings(clock::unix_seconds());
        let warnings = warnings.into_iter().map(|warning| {
            let entry = self.journal.get(&warning.object);
            (warning, entry.map(AsRef::as_ref))
        });
        self.log.record_certificates(warnings);
    }

    /// Binds changes and passes the result to the sinks, until they report no further changes. Adds the objects whose status has changed to `touched`.
    /// Returns whether anything but statuses has changed.
    ///
    /// This terminates because reports change only statuses and backends, whereas sinks report only on changed listeners, Services and addresses.
    fn stage(&mut self, mut changes: Vec<Change>, touched: &mut BTreeSet<ObjectKey>) -> bool {
        let mut affects_traffic = false;
        loop {
            let delta = self.bind(changes);
            affects_traffic |= delta.affects_traffic();
            touched.extend(delta.statuses.iter().map(|(key, _)| key.clone()));
            let tables = &self.tables;
            let sinks = self.sinks.iter_mut();
            changes = sinks.flat_map(|sink| sink.stage(&delta, tables)).collect();
            if changes.is_empty() {
                return affects_traffic;
            }
        }
    }

    fn bind(&mut self, changes: Vec<Change>) -> Delta {
        changes.iter().for_each(|change| self.inputs.record(change));
        let delta = self.binder.apply(changes);
        if self.uses_tables() {
            self.tables.apply(&delta);
        }
        delta
    }

    fn uses_tables(&self) -> bool {
        self.sinks.iter().any(|sink| sink.uses_tables())
    }

    fn commit(&mut self) -> Vec<Change> {
        let tables = &self.tables;
        let sinks = self.sinks.iter_mut();
        sinks.flat_map(|sink| sink.commit(tables)).collect()
    }

    /// Records the statuses of the objects in `touched`.
    fn publish_status(&mut self, touched: &BTreeSet<ObjectKey>, objects: &ChangedDocuments) {
        let now = clock::now();
        for key in touched.iter().filter(|key| has_status(key.kind)) {
            if self.binder.object(key).is_some() {
                let document = objects.get(key).and_then(Option::as_ref);
                let status = self.binder.status(key).cloned();
                self.journal.record(key, document, status, &now);
            } else {
                self.journal.remove(key);
            }
            let entry = self.journal.get(key);
            self.log.record_status(key, entry.map(AsRef::as_ref));
            if entry.is_some_and(|entry| !entry.is_settled()) {
                continue;
            }
            for sink in &mut self.status_sinks {
                sink.record(key, entry);
            }
        }
    }

    fn publish_snapshot(&mut self) {
        self.version += 1;
        self.snapshots.publish(Snapshot {
            version: self.version,
            tables: self.uses_tables().then(|| self.tables.clone()),
            entries: self.journal.entries().clone(),
            findings: self.findings.clone(),
            inputs: self.inputs.clone(),
        });
    }
}
