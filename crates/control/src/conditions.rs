//! The page `/conditions` of the admin server: conditions of objects, without times and without those of other controllers.
//! `wait` decides by it whether objects have reached a state.

use std::collections::BTreeMap;

use pointsman_binding::status::{Condition, Status, StatusBody};
use pointsman_resources::ObjectKey;
use pointsman_resources::read::Document;
use serde::{Deserialize, Serialize};

use crate::journal::StatusEntry;
use crate::snapshot::Snapshot;

mod unmet;

pub use unmet::ObjectState;

/// Maximum number of proxies that are listed for one destination of a Kuma policy.
const MAX_PROXIES: usize = 10;

/// The page.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedPage {
    /// Number of all objects, including kinds without a status.
    pub resources: usize,
    /// Objects of kinds that have a status, in the order of the input.
    pub objects: Vec<ReportedObject>,
}

/// An object with its conditions.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedObject {
    /// Kind and name, for people.
    pub object: String,
    /// File and line; empty for an object of a cluster.
    pub position: String,
    /// Generation of the object that the conditions refer to.
    pub generation: i64,
    /// Conditions. Empty if it is not managed by Pointsman.
    pub conditions: Vec<ReportedCondition>,
    /// Number of attached routes, by the subject of a listener's conditions.
    #[serde(default)]
    pub attached_routes: BTreeMap<String, usize>,
    /// Traffic to which a Kuma policy applies.
    #[serde(default)]
    pub reaches: Vec<Reach>,
}

/// A condition.
#[derive(Debug, Deserialize, Serialize)]
pub struct ReportedCondition {
    /// A listener, a parent, an ancestor, or empty for the object itself.
    pub subject: String,
    /// Type of the condition, which is unique for a subject.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason, for programs.
    pub reason: String,
    /// Explanation for people; may be empty.
    pub message: String,
    /// True if it reports a problem.
    pub problem: bool,
}

/// A destination or MeshGateway to which a Kuma policy applies.
#[derive(Debug, Deserialize, Serialize)]
pub struct Reach {
    /// Name of the destination or MeshGateway.
    pub to: String,
    /// The first few proxies that call or serve it.
    pub proxies: Vec<String>,
    /// Number of further ones.
    pub more: usize,
}

impl ReportedPage {
    /// Collects the objects that `wanted` selects.
    pub fn new(snapshot: &Snapshot, wanted: impl Fn(&ObjectKey) -> bool) -> Self {
        let entries = snapshot.entries.iter();
        let entries = entries.filter(|((_, key), _)| wanted(key));
        let of_entry = |key: &ObjectKey, entry: &StatusEntry| {
            ReportedObject::new(key, &entry.document, entry.status.as_deref())
        };
        ReportedPage {
            resources: snapshot.number_of_objects(),
            objects: entries
                .map(|((_, key), entry)| of_entry(key, entry))
                .collect(),
        }
    }
}

impl ReportedObject {
    /// Collects the conditions of an object.
    pub fn new(key: &ObjectKey, document: &Document, status: Option<&Status>) -> Self {
        let conditions = status.map(Status::conditions).unwrap_or_default();
        let attached_routes = match status.map(|status| &status.body) {
            Some(StatusBody::Gateway { listeners, .. }) => listeners
                .iter()
                .map(|l| (format!("listener {}", l.name), l.attached_routes))
                .collect(),
            _ => BTreeMap::new(),
        };
        let reaches = match status.map(|status| &status.body) {
            Some(StatusBody::Mesh { reaches, .. }) => reaches.iter().map(Reach::new).collect(),
            _ => Vec::new(),
        };
        ReportedObject {
            object: key.to_string(),
            // Objects of a cluster have no position.
            position: match document.line {
                0 => String::new(),
                line => format!("{}:{line}", document.file),
            },
            generation: document.resource.meta().generation,
            conditions: conditions.into_iter().map(ReportedCondition::new).collect(),
            attached_routes,
            reaches,
        }
    }

    /// Returns whether any condition is a problem.
    pub fn has_problem(&self) -> bool {
        self.conditions.iter().any(|condition| condition.problem)
    }
}

impl ReportedCondition {
    fn new((subject, condition): (String, &Condition)) -> Self {
        ReportedCondition {
            subject,
            kind: condition.kind.to_owned(),
            status: condition.status.to_string(),
            reason: condition.reason.to_owned(),
            message: condition.message.to_string(),
            problem: condition.is_problem(),
        }
    }
}

impl Reach {
    fn new(reach: &pointsman_binding::status::PolicyReach) -> Self {
        let proxies = reach.proxies();
        let named = proxies.iter().take(MAX_PROXIES).map(ToString::to_string);
        Reach {
            to: reach.to.clone(),
            proxies: named.collect(),
            more: proxies.len().saturating_sub(MAX_PROXIES),
        }
    }
}
