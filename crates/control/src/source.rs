//! The interface to sources. A source watches the origin of the configuration, such as files, and puts a [`SourceUpdate`] into the reconciler's [`Inbox`]
//! whenever something changes. The source decides which changes form one update, and when a missing object counts as deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_binding::{InfrastructureState, ServedApi};
use pointsman_resources::read::Document;
use pointsman_resources::{Finding, Name, ObjectKey};

use crate::mailbox::Mailbox;

/// Pending updates for the reconciler. They are merged per object, so their number is bounded by that of the objects.
pub type Inbox = Mailbox<SourceUpdate>;

/// Changes that a source reports together and that take effect together.
#[derive(Clone, Debug, Default)]
pub struct SourceUpdate {
    /// Changed objects. A value of `None` is a deletion.
    pub objects: BTreeMap<ObjectKey, Option<Arc<Document>>>,
    /// Positions at which validation rejected objects that have no valid version in effect, and Secrets. A value of `None` means that the object is no longer
    /// rejected.
    pub rejected: BTreeMap<ObjectKey, Option<Arc<str>>>,
    /// Findings, if they have changed.
    pub findings: Option<Findings>,
    /// Kinds that the cluster serves, if that has changed.
    pub served_api: Option<Arc<ServedApi>>,
    /// State of the objects that are generated for Gateways, where it has changed. A value of `None` means that there are none.
    pub infrastructures: BTreeMap<Name, Option<InfrastructureState>>,
    /// True if an operator requested a reload: data that objects name is read again, and sockets that could not be bound are retried.
    pub reload: bool,
    /// True if a sink has something to report.
    pub has_reports: bool,
}

/// Findings about a source's input as a whole.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Errors and warnings, in the order of the input.
    pub findings: Arc<Vec<Finding>>,
    /// Number of ignored objects of each kind that Pointsman does not use.
    pub ignored_kinds: Arc<BTreeMap<String, usize>>,
}

impl SourceUpdate {
    /// Adds a later update to this one.
    pub fn merge(&mut self, later: SourceUpdate) {
        self.objects.extend(later.objects);
        self.rejected.extend(later.rejected);
        self.findings = later.findings.or(self.findings.take());
        self.served_api = later.served_api.or(self.served_api.take());
        self.infrastructures.extend(later.infrastructures);
        self.reload |= later.reload;
        self.has_reports |= later.has_reports;
    }

    /// Returns whether the update changes nothing.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
            && self.rejected.is_empty()
            && self.findings.is_none()
            && self.served_api.is_none()
            && self.infrastructures.is_empty()
            && !self.reload
            && !self.has_reports
    }
}
