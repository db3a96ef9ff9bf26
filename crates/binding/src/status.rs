//! What is said of each resource: conditions, and the status they make up.
//!
//! A [`Status`] is a pure function of the bound form and carries no times. [`Status::merge`] lays it over what an object's
//! status already says: entries of other controllers and conditions of other types stay as they are, and a condition that
//! says the same as before keeps its time.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_resources::refs::ParentReference;
use pointsman_resources::{Kind, Name, ObjectKey};
use serde_json::{Map, Value, json};

/// The name under which we serve GatewayClasses and meshes and sign status entries.
pub const CONTROLLER_NAME: &str = "pointsman.io/controller";

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `Accepted`, `ResolvedRefs` and so on.
    pub kind: &'static str,
    /// `True` or `False`.
    pub status: bool,
    /// Why, for machines.
    pub reason: &'static str,
    /// Why, for people.
    pub message: Cow<'static, str>,
}

impl Condition {
    /// `kind` is `True`.
    pub fn yes(
        kind: &'static str,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Condition {
            kind,
            status: true,
            reason,
            message: message.into(),
        }
    }

    /// `kind` is `False`.
    pub fn no(
        kind: &'static str,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Condition {
            kind,
            status: false,
            reason,
            message: message.into(),
        }
    }

    /// Whether it tells of something that was refused, could not be resolved, or is not in effect.
    pub fn is_problem(&self) -> bool {
        match self.kind {
            "Conflicted" | "PartiallyInvalid" => self.status,
            "OverlappingTLSConfig" | "InsecureFrontendValidationMode" => false,
            _ => !self.status || self.reason == "ListenersNotValid",
        }
    }
}

/// What is said of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The generation that it is said of.
    pub generation: i64,
    /// What is said.
    pub body: StatusBody,
}

/// The parts of a status, by kind of resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusBody {
    /// Of a GatewayClass or an XMesh.
    Class {
        /// The conditions.
        conditions: Vec<Condition>,
        /// The features supported, sorted.
        features: &'static [&'static str],
    },
    /// Of a Gateway or a ListenerSet.
    Gateway {
        /// The conditions.
        conditions: Vec<Condition>,
        /// The addresses, of a Gateway.
        addresses: Vec<(String, String)>,
        /// The listeners.
        listeners: Vec<ListenerStatus>,
        /// How many ListenerSets are attached, of a Gateway that allows them.
        attached_listener_sets: Option<usize>,
    },
    /// Of a route: an entry for each parent.
    Route(Vec<ParentStatus>),
    /// Of a policy or a backend: an entry for each ancestor.
    Policy(Vec<AncestorStatus>),
    /// Of a policy of Kuma's.
    Mesh {
        /// The conditions.
        conditions: Vec<Condition>,
        /// What it reaches.
        reaches: Vec<Reach>,
    },
}

/// What a policy of Kuma's reaches: proxies, and what they call or serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// A destination or a MeshGateway.
    pub to: String,
    /// The proxies, in groups that many share.
    pub proxies: Vec<Arc<[ObjectKey]>>,
}

impl Reach {
    /// The proxies, in order.
    pub fn proxies(&self) -> BTreeSet<&ObjectKey> {
        self.proxies.iter().flat_map(|group| group.iter()).collect()
    }
}

/// What is said of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    /// The listener's name.
    pub name: String,
    /// The kinds of routes that may attach.
    pub supported_kinds: Vec<Kind>,
    /// How many routes are attached.
    pub attached_routes: usize,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// What is said of a route under one of its parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// The reference, as the route has it.
    pub parent: Arc<ParentReference>,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// What is said of a policy under one ancestor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AncestorStatus {
    /// The ancestor.
    pub ancestor: ObjectKey,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

impl Status {
    /// Every condition, with the place it is said of: a listener, a parent, an ancestor, or the object itself (empty).
    pub fn conditions(&self) -> Vec<(String, &Condition)> {
        let mut all = Vec::new();
        match &self.body {
            StatusBody::Class { conditions, .. } | StatusBody::Mesh { conditions, .. } => {
                all.extend(conditions.iter().map(|c| (String::new(), c)));
            }
            StatusBody::Gateway {
                conditions,
                listeners,
                ..
            } => {
                all.extend(conditions.iter().map(|c| (String::new(), c)));
                for listener in listeners {
                    let place = format!("listener {}", listener.name);
                    all.extend(listener.conditions.iter().map(|c| (place.clone(), c)));
                }
            }
            StatusBody::Route(parents) => {
                for parent in parents {
                    let place = format!("parent {}", parent_text(&parent.parent));
                    all.extend(parent.conditions.iter().map(|c| (place.clone(), c)));
                }
            }
            StatusBody::Policy(ancestors) => {
                for ancestor in ancestors {
                    let place = format!("ancestor {}", ancestor.ancestor);
                    all.extend(ancestor.conditions.iter().map(|c| (place.clone(), c)));
                }
            }
        }
        all
    }

    /// The `.status` to write, given the one that is there and the time (RFC 3339).
    pub fn merge(&self, existing: Option<&Value>, now: &str) -> Value {
        let mut status = existing
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let writer = Writer {
            generation: self.generation,
            now,
        };
        match &self.body {
            StatusBody::Class {
                conditions,
                features,
            } => {
                status.insert(
                    "supportedFeatures".to_owned(),
                    features
                        .iter()
                        .map(|name| json!({ "name": name }))
                        .collect(),
                );
                writer.conditions(&mut status, conditions);
            }
            StatusBody::Gateway {
                conditions,
                addresses,
                listeners,
                attached_listener_sets,
            } => {
                status.remove("addresses");
                if !addresses.is_empty() {
                    let list = addresses
                        .iter()
                        .map(|(kind, value)| json!({ "type": kind, "value": value }))
                        .collect();
                    status.insert("addresses".to_owned(), list);
                }
                status.remove("attachedListenerSets");
                if let Some(number) = attached_listener_sets {
                    status.insert("attachedListenerSets".to_owned(), json!(number));
                }
                writer.conditions(&mut status, conditions);
                writer.listeners(&mut status, listeners);
            }
            StatusBody::Route(parents) => {
                let entries = parents
                    .iter()
                    .map(|p| ("parentRef", parent_value(&p.parent), &p.conditions));
                writer.entries(&mut status, "parents", MAX_PARENTS, entries);
            }
            StatusBody::Mesh {
                conditions,
                reaches,
            } => {
                let reaches = reaches.iter().map(|reach| {
                    let proxies = reach.proxies().into_iter().map(ToString::to_string);
                    json!({ "to": reach.to, "proxies": proxies.collect::<Vec<_>>() })
                });
                status.insert("reaches".to_owned(), reaches.collect());
                writer.conditions(&mut status, conditions);
            }
            StatusBody::Policy(ancestors) => {
                let entries = ancestors
                    .iter()
                    .map(|a| ("ancestorRef", ancestor_value(&a.ancestor), &a.conditions));
                writer.entries(&mut status, "ancestors", MAX_ANCESTORS, entries);
            }
        }
        Value::Object(status)
    }
}

/// How many entries a route's status may have.
const MAX_PARENTS: usize = 32;
/// How many entries a policy's status may have.
const MAX_ANCESTORS: usize = 16;

struct Writer<'a> {
    generation: i64,
    now: &'a str,
}

impl Writer<'_> {
    /// Lays our conditions over those that are there; what we no longer say of our own types is taken back.
    fn conditions(&self, owner: &mut Map<String, Value>, ours: &[Condition]) {
        let mut list = match owner.remove("conditions") {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        list.retain(|entry| {
            let kind = entry["type"].as_str().unwrap_or_default();
            !OWN_TYPES.contains(&kind) || ours.iter().any(|condition| condition.kind == kind)
        });
        for condition in ours {
            let status = if condition.status { "True" } else { "False" };
            let at = list
                .iter()
                .position(|entry| entry["type"] == condition.kind);
            let since = at
                .filter(|&at| list[at]["status"] == status)
                .and_then(|at| list[at]["lastTransitionTime"].as_str())
                .unwrap_or(self.now);
            let entry = json!({
                "type": condition.kind,
                "status": status,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": self.generation,
                "lastTransitionTime": since,
            });
            match at {
                Some(at) => list[at] = entry,
                None => list.push(entry),
            }
        }
        owner.insert("conditions".to_owned(), Value::Array(list));
    }

    fn listeners(&self, status: &mut Map<String, Value>, ours: &[ListenerStatus]) {
        let existing = match status.remove("listeners") {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        let list = ours
            .iter()
            .map(|listener| {
                let kinds: Vec<Value> = listener
                    .supported_kinds
                    .iter()
                    .map(|kind| json!({ "group": kind.group(), "kind": kind.name() }))
                    .collect();
                let mut entry = existing
                    .iter()
                    .find(|entry| entry["name"] == listener.name.as_str())
                    .and_then(Value::as_object)
                    .cloned()
                    .unwrap_or_default();
                entry.insert("name".to_owned(), json!(listener.name));
                entry.insert("supportedKinds".to_owned(), Value::Array(kinds));
                entry.insert("attachedRoutes".to_owned(), json!(listener.attached_routes));
                self.conditions(&mut entry, &listener.conditions);
                Value::Object(entry)
            })
            .collect();
        status.insert("listeners".to_owned(), Value::Array(list));
    }

    /// Replaces our entries of an atomic list, keeping those of other controllers and their order.
    fn entries<'c>(
        &self,
        status: &mut Map<String, Value>,
        field: &str,
        most: usize,
        ours: impl Iterator<Item = (&'static str, Value, &'c Vec<Condition>)>,
    ) {
        let existing = match status.remove(field) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        let (own, mut list): (Vec<Value>, Vec<Value>) = existing
            .into_iter()
            .partition(|entry| entry["controllerName"] == CONTROLLER_NAME);
        for (name, reference, conditions) in ours {
            let mut entry = own
                .iter()
                .find(|entry| entry[name] == reference)
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            entry.insert(name.to_owned(), reference);
            entry.insert("controllerName".to_owned(), json!(CONTROLLER_NAME));
            self.conditions(&mut entry, conditions);
            list.push(Value::Object(entry));
        }
        // The API server refuses a longer list as a whole; entries of other controllers come first and stay.
        list.truncate(most);
        status.insert(field.to_owned(), Value::Array(list));
    }
}

/// The types of conditions that are ours to set and to take back.
const OWN_TYPES: [&str; 10] = [
    "Accepted",
    "Programmed",
    "ResolvedRefs",
    "Conflicted",
    "OverlappingTLSConfig",
    "InsecureFrontendValidationMode",
    "PartiallyInvalid",
    "SupportedVersion",
    "AddressesAssigned",
    "pointsman.io/Overridden",
];

fn parent_value(parent: &ParentReference) -> Value {
    let mut value = Map::new();
    value.insert("group".to_owned(), json!(parent.group));
    value.insert("kind".to_owned(), json!(parent.kind));
    if let Some(namespace) = &parent.namespace {
        value.insert("namespace".to_owned(), json!(namespace));
    }
    value.insert("name".to_owned(), json!(parent.name));
    if let Some(section) = &parent.section_name {
        value.insert("sectionName".to_owned(), json!(section));
    }
    if let Some(port) = parent.port {
        value.insert("port".to_owned(), json!(port));
    }
    Value::Object(value)
}

fn ancestor_value(ancestor: &ObjectKey) -> Value {
    let Name {
        namespace, name, ..
    } = &ancestor.name;
    json!({
        "group": ancestor.kind.group(),
        "kind": ancestor.kind.name(),
        "namespace": &**namespace,
        "name": &**name,
    })
}

/// A parent reference for people.
pub fn parent_text(parent: &ParentReference) -> String {
    use std::fmt::Write;
    let mut text = format!("{} ", parent.kind);
    if let Some(namespace) = &parent.namespace {
        let _ = write!(text, "{namespace}/");
    }
    text += &parent.name;
    if let Some(section) = &parent.section_name {
        let _ = write!(text, " section {section}");
    }
    if let Some(port) = parent.port {
        let _ = write!(text, " port {port}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route_status(status: bool) -> Status {
        let parent = Arc::new(ParentReference {
            group: "gateway.networking.k8s.io".to_owned(),
            kind: "Gateway".to_owned(),
            namespace: None,
            name: "edge".to_owned(),
            section_name: None,
            port: None,
        });
        let condition = Condition {
            kind: "Accepted",
            status,
            reason: "X",
            message: "".into(),
        };
        let body = StatusBody::Route(vec![ParentStatus {
            parent,
            conditions: vec![condition],
        }]);
        Status {
            generation: 2,
            body,
        }
    }

    #[test]
    fn entries_of_other_controllers_stay_as_they_are() {
        let foreign = json!({"parentRef": {"name": "other"}, "controllerName": "example.com/c",
            "conditions": [{"type": "Accepted", "status": "True", "message": "", "observedGeneration": 1}]});
        let merged = route_status(true).merge(Some(&json!({ "parents": [foreign] })), "T1");
        assert_eq!(merged["parents"][0], foreign);
        assert_eq!(merged["parents"][1]["controllerName"], CONTROLLER_NAME);
        assert_eq!(
            merged["parents"][1]["conditions"][0]["observedGeneration"],
            2
        );
    }

    #[test]
    fn a_policy_under_many_gateways_keeps_to_the_limit() {
        let entry = |at: usize| AncestorStatus {
            ancestor: ObjectKey::new(Kind::Gateway, "infra", format!("g{at}")),
            conditions: vec![Condition::yes("Accepted", "Accepted", "")],
        };
        let status = Status {
            generation: 1,
            body: StatusBody::Policy((0..20).map(entry).collect()),
        };
        let foreign = json!({"ancestorRef": {"name": "other"}, "controllerName": "example.com/c", "conditions": []});
        let merged = status.merge(Some(&json!({ "ancestors": [foreign] })), "T1");
        let list = merged["ancestors"].as_array().expect("a list");
        assert_eq!((list.len(), &list[0]), (16, &foreign));
    }

    #[test]
    fn an_entry_for_a_parent_that_is_gone_is_taken_back() {
        let ours = json!({"parentRef": {"name": "gone"}, "controllerName": CONTROLLER_NAME, "conditions": []});
        let merged = route_status(true).merge(Some(&json!({ "parents": [ours] })), "T1");
        assert_eq!(merged["parents"].as_array().map(Vec::len), Some(1));
        assert_eq!(merged["parents"][0]["parentRef"]["name"], "edge");
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let first = route_status(true).merge(None, "T1");
        let same = route_status(true).merge(Some(&first), "T2");
        assert_eq!(same, first);
        let changed = route_status(false).merge(Some(&first), "T2");
        assert_eq!(
            changed["parents"][0]["conditions"][0]["lastTransitionTime"],
            "T2"
        );
    }

    #[test]
    fn conditions_of_foreign_types_stay_and_own_ones_that_no_longer_hold_go() {
        let existing = json!({"conditions": [
            {"type": "example.com/Stale", "status": "True", "message": ""},
            {"type": "Conflicted", "status": "True"},
        ]});
        let body = StatusBody::Gateway {
            conditions: vec![Condition::yes("Accepted", "Accepted", "")],
            addresses: Vec::new(),
            listeners: Vec::new(),
            attached_listener_sets: None,
        };
        let merged = Status {
            generation: 1,
            body,
        }
        .merge(Some(&existing), "T");
        let kinds: Vec<&str> = merged["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|c| c["type"].as_str())
            .collect();
        assert_eq!(kinds, ["example.com/Stale", "Accepted"]);
    }
}
