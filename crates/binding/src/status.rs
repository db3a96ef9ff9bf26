//! What is said of each resource: conditions, and the status they make up.
//!
//! A [`Status`] is a pure function of the bound form and carries no times. [`Status::merge`] lays it over what an object's
//! status already says: entries of other controllers and conditions of other types stay as they are, and a condition that
//! says the same as before keeps its time.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_resources::meta::GATEWAY_GROUP;
use pointsman_resources::refs::ParentReference;
use pointsman_resources::{Kind, Name, ObjectKey};
use serde_json::{Map, Value, json};

use crate::refused_endpoints::ENDPOINTS_REFUSED;

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
            "Conflicted" | "PartiallyInvalid" | ENDPOINTS_REFUSED => self.status,
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
    /// Name of the installation that it is said by.
    pub controller: Arc<str>,
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
    /// Of a policy: an entry for each ancestor.
    Policy(Vec<AncestorStatus>),
    /// Of an XBackend: an entry for each ancestor.
    Backend(Vec<AncestorStatus>),
    /// Of a policy of Kuma's.
    Mesh {
        /// The conditions.
        conditions: Vec<Condition>,
        /// What it reaches.
        reaches: Vec<PolicyReach>,
    },
}

/// What a policy of Kuma's reaches: proxies, and what they call or serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReach {
    /// A destination or a MeshGateway.
    pub to: String,
    /// The proxies, in groups that many share.
    pub proxies: Vec<Arc<[ObjectKey]>>,
}

impl PolicyReach {
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
            StatusBody::Policy(ancestors) | StatusBody::Backend(ancestors) => {
                for ancestor in ancestors {
                    let place = format!("ancestor {}", ancestor.ancestor);
                    all.extend(ancestor.conditions.iter().map(|c| (place.clone(), c)));
                }
            }
        }
        all
    }

    /// The `.status` to write to an object in `namespace`, given the one that is there and the time (RFC 3339).
    pub fn merge(&self, namespace: &str, existing: Option<&Value>, now: &str) -> Value {
        let mut status = existing
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let merger = StatusMerger {
            generation: self.generation,
            controller: &self.controller,
            namespace,
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
                merger.conditions(&mut status, conditions);
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
                merger.conditions(&mut status, conditions);
                merger.listeners(&mut status, listeners);
            }
            StatusBody::Route(parents) => {
                let entries = parents
                    .iter()
                    .map(|p| (parent_value(&p.parent), &p.conditions));
                let list = ("parents", "parentRef", MAX_PARENTS);
                merger.entries(&mut status, list, entries);
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
                merger.conditions(&mut status, conditions);
            }
            StatusBody::Policy(ancestors) => {
                merger.ancestors(&mut status, MAX_POLICY_ANCESTORS, ancestors);
            }
            StatusBody::Backend(ancestors) => {
                merger.ancestors(&mut status, MAX_BACKEND_ANCESTORS, ancestors);
            }
        }
        Value::Object(status)
    }
}

/// The number of entries that the CRDs allow in a route's status.
const MAX_PARENTS: usize = 32;
/// The number of entries that the CRDs allow in a policy's status.
const MAX_POLICY_ANCESTORS: usize = 16;
/// The number of entries that the CRD allows in an XBackend's status.
const MAX_BACKEND_ANCESTORS: usize = 32;

struct StatusMerger<'a> {
    generation: i64,
    controller: &'a str,
    /// The object's, which references in its status default to.
    namespace: &'a str,
    now: &'a str,
}

impl StatusMerger<'_> {
    /// Lays our conditions over those that are there. Conditions of our types that no longer hold are removed.
    ///
    /// A condition whose observedGeneration is newer than the generation known here was written for a later version of the object,
    /// so it stays.
    fn conditions(&self, owner: &mut Map<String, Value>, ours: &[Condition]) {
        let mut list = match owner.remove("conditions") {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        let is_newer = |entry: &Value| {
            let observed = entry["observedGeneration"].as_i64();
            observed.is_some_and(|observed| observed > self.generation)
        };
        list.retain(|entry| {
            let kind = entry["type"].as_str().unwrap_or_default();
            let holds = || ours.iter().any(|condition| condition.kind == kind);
            !OWN_TYPES.contains(&kind) || is_newer(entry) || holds()
        });
        for condition in ours {
            let status = if condition.status { "True" } else { "False" };
            let at = list
                .iter()
                .position(|entry| entry["type"] == condition.kind);
            if at.is_some_and(|at| is_newer(&list[at])) {
                continue;
            }
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

    fn ancestors(
        &self,
        status: &mut Map<String, Value>,
        most: usize,
        ancestors: &[AncestorStatus],
    ) {
        let entries = ancestors
            .iter()
            .map(|a| (ancestor_value(&a.ancestor), &a.conditions));
        self.entries(status, ("ancestors", "ancestorRef", most), entries);
    }

    /// Replaces our entries of an atomic list where they are, and adds new ones. Entries of other controllers are kept as they are.
    /// `field` is the list's, `name` that of an entry's reference, and `most` the number of entries that the API allows.
    fn entries<'c>(
        &self,
        status: &mut Map<String, Value>,
        (field, name, most): (&str, &str, usize),
        ours: impl Iterator<Item = (Value, &'c Vec<Condition>)>,
    ) {
        let mut list = match status.remove(field) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        let is_own = |entry: &Value| entry["controllerName"] == self.controller;
        let ours: Vec<(Value, &Vec<Condition>)> = ours.collect();
        let mut seen: Vec<Value> = Vec::new();
        list.retain(|entry| {
            let target = self.target(&entry[name]);
            let mut wanted = ours.iter().map(|(reference, _)| self.target(reference));
            if !is_own(entry) {
                return true;
            }
            let keeps = wanted.any(|wanted| wanted == target) && !seen.contains(&target);
            seen.push(target);
            keeps
        });
        for (reference, conditions) in ours {
            let target = self.target(&reference);
            let same = |entry: &Value| is_own(entry) && self.target(&entry[name]) == target;
            let at = list.iter().position(same);
            let entry = at.and_then(|at| list[at].as_object().cloned());
            let mut entry = entry.unwrap_or_default();
            entry.insert(name.to_owned(), reference);
            entry.insert("controllerName".to_owned(), json!(self.controller));
            self.conditions(&mut entry, conditions);
            match at {
                Some(at) => list[at] = Value::Object(entry),
                None => list.push(Value::Object(entry)),
            }
        }
        // The API server rejects a longer list as a whole. New entries are last, so these are dropped.
        list.truncate(most);
        status.insert(field.to_owned(), Value::Array(list));
    }

    /// A parent or ancestor reference with defaults filled in, so that two spellings of one reference are equal.
    fn target(&self, reference: &Value) -> Value {
        let field = |name: &str, default: Value| match &reference[name] {
            Value::Null => default,
            value => value.clone(),
        };
        json!([
            field("group", json!(GATEWAY_GROUP)),
            field("kind", json!("Gateway")),
            field("namespace", json!(self.namespace)),
            reference["name"],
            reference["sectionName"],
            reference["port"],
        ])
    }
}

/// The types of conditions that are ours to set and to take back.
const OWN_TYPES: [&str; 11] = [
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
    ENDPOINTS_REFUSED,
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
mod tests;
