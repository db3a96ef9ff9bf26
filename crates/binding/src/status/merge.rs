//! Merging of a status with the existing `.status` of an object.

use pointsman_resources::meta::GATEWAY_GROUP;
use pointsman_resources::refs::ParentReference;
use pointsman_resources::{Name, ObjectKey};
use serde_json::{Map, Value, json};

use super::effect::IN_EFFECT;
use super::{AncestorStatus, Condition, ListenerStatus, Status, StatusBody};
use crate::endpoint_policy::refused::ENDPOINTS_REFUSED;
use crate::gateway_api::parents::is_service;

impl Status {
    /// Returns the `.status` to write to an object in `namespace`, given the existing one and the current time (RFC 3339).
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
                merger.merge_conditions(&mut status, conditions);
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
                merger.merge_conditions(&mut status, conditions);
                merger.merge_listeners(&mut status, listeners);
            }
            StatusBody::Route(parents) => {
                let entries = parents
                    .iter()
                    .map(|p| (parent_value(&p.parent), &p.conditions));
                let list = ("parents", "parentRef", MAX_PARENTS);
                merger.merge_entries(&mut status, list, entries);
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
                merger.merge_conditions(&mut status, conditions);
            }
            StatusBody::Policy(ancestors) => {
                merger.merge_ancestors(&mut status, MAX_POLICY_ANCESTORS, ancestors);
            }
            StatusBody::Backend(ancestors) => {
                merger.merge_ancestors(&mut status, MAX_BACKEND_ANCESTORS, ancestors);
            }
        }
        Value::Object(status)
    }
}

/// Maximum number of entries in a route's status, by its CRD.
const MAX_PARENTS: usize = 32;
/// Maximum number of entries in a policy's status, by its CRD.
const MAX_POLICY_ANCESTORS: usize = 16;
/// Maximum number of entries in an XBackend's status, by its CRD.
const MAX_BACKEND_ANCESTORS: usize = 32;

struct StatusMerger<'a> {
    generation: i64,
    controller: &'a str,
    /// Namespace of the object, to which references in its status default.
    namespace: &'a str,
    now: &'a str,
}

impl StatusMerger<'_> {
    /// Merges Pointsman's conditions with the existing ones. Existing conditions of its types that it no longer reports are removed.
    ///
    /// A condition with a newer observedGeneration was written for a later version of the object and is kept.
    fn merge_conditions(&self, owner: &mut Map<String, Value>, ours: &[Condition]) {
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
            let status = condition.status.to_string();
            let at = list
                .iter()
                .position(|entry| entry["type"] == condition.kind);
            if at.is_some_and(|at| is_newer(&list[at])) {
                continue;
            }
            let since = at
                .filter(|&at| list[at]["status"] == status.as_str())
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

    fn merge_listeners(&self, status: &mut Map<String, Value>, ours: &[ListenerStatus]) {
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
                self.merge_conditions(&mut entry, &listener.conditions);
                Value::Object(entry)
            })
            .collect();
        status.insert("listeners".to_owned(), Value::Array(list));
    }

    fn merge_ancestors(
        &self,
        status: &mut Map<String, Value>,
        max: usize,
        ancestors: &[AncestorStatus],
    ) {
        let entries = ancestors
            .iter()
            .map(|a| (ancestor_value(&a.ancestor), &a.conditions));
        self.merge_entries(status, ("ancestors", "ancestorRef", max), entries);
    }

    /// Replaces Pointsman's entries of an atomic list in place, and appends new ones. Entries of other controllers are kept unchanged.
    /// `field` is the name of the list, `name` that of the reference in each entry, and `max` the number of entries that the API allows.
    fn merge_entries<'c>(
        &self,
        status: &mut Map<String, Value>,
        (field, name, max): (&str, &str, usize),
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
            let target = self.normalize(&entry[name]);
            let mut wanted = ours.iter().map(|(reference, _)| self.normalize(reference));
            if !is_own(entry) {
                return true;
            }
            let keeps = wanted.any(|wanted| wanted == target) && !seen.contains(&target);
            seen.push(target);
            keeps
        });
        for (reference, conditions) in ours {
            let target = self.normalize(&reference);
            let same = |entry: &Value| is_own(entry) && self.normalize(&entry[name]) == target;
            let at = list.iter().position(same);
            let entry = at.and_then(|at| list[at].as_object().cloned());
            let mut entry = entry.unwrap_or_default();
            entry.insert(name.to_owned(), reference);
            entry.insert("controllerName".to_owned(), json!(self.controller));
            self.merge_conditions(&mut entry, conditions);
            match at {
                Some(at) => list[at] = Value::Object(entry),
                None => list.push(Value::Object(entry)),
            }
        }
        // The API server rejects a longer list as a whole. New entries come last, so they are the ones dropped.
        list.truncate(max);
        status.insert(field.to_owned(), Value::Array(list));
    }

    /// Normalizes a parent or ancestor reference by filling in defaults, so that different spellings of it are equal.
    fn normalize(&self, reference: &Value) -> Value {
        let field = |name: &str, default: Value| match &reference[name] {
            Value::Null => default,
            value => value.clone(),
        };
        let mut group = field("group", json!(GATEWAY_GROUP));
        let kind = field("kind", json!("Gateway"));
        if is_service(
            group.as_str().unwrap_or_default(),
            kind.as_str().unwrap_or_default(),
        ) {
            group = json!("");
        }
        json!([
            group,
            kind,
            field("namespace", json!(self.namespace)),
            reference["name"],
            reference["sectionName"],
            reference["port"],
        ])
    }
}

/// Types of the conditions that Pointsman sets and removes.
const OWN_TYPES: [&str; 12] = [
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
    IN_EFFECT,
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

#[cfg(test)]
mod tests;
