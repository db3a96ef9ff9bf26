//! Reads manifests: parses documents, applies defaults, validates them, and converts them to typed resources.
//!
//! Validation follows the API server and the CRDs; an unknown field is a warning. All errors of all documents are reported, and a rejected
//! document does not affect others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::document::{self, Node, Position, Positions, Value};
use crate::kuma;
use crate::meta::{
    GATEWAY_GROUP, GATEWAY_X_GROUP, KUMA_GROUP, Kind, NamespaceName, ObjectKey, POINTSMAN_GROUP,
};
use crate::schema::{self, MISSING, validate};
use crate::{Finding, Resource, Severity};

/// The contents of manifests.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Valid documents, in the order of the input.
    pub documents: Vec<Document>,
    /// Errors and warnings, in the order of the input.
    pub findings: Vec<Finding>,
    /// Numbers of ignored objects of unsupported kinds, by `apiVersion/kind`.
    pub ignored: BTreeMap<String, usize>,
    /// Objects with a readable name, valid or not. Of several objects with the same name, only the first is listed.
    pub declared: Vec<DeclaredObject>,
    /// True if there are documents that can't be attributed to an object, because they can't be parsed or have no readable name.
    pub has_unidentified: bool,
}

/// An object whose name could be read, valid or not.
#[derive(Clone, Debug)]
pub struct DeclaredObject {
    /// Identity of the object.
    pub key: ObjectKey,
    /// Position of the object.
    pub at: Position,
    /// Field path of the object's name.
    pub field: String,
    /// Position of the object's name.
    pub name_at: Position,
    /// Position of the first error, if the object was rejected.
    pub rejected_at: Option<Position>,
}

/// A valid object and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// File name that was passed to the reader, or the source of an object of an API server.
    pub file: Arc<str>,
    /// Line number, from 1; 0 for objects of an API server.
    pub line: usize,
    /// Column in characters, from 1; 0 for objects of an API server.
    pub column: usize,
    /// The typed object.
    pub resource: Resource,
    /// The object as JSON, or empty if it is not stored. It is needed rarely, and text takes less memory than a parsed value.
    text: Box<str>,
    /// Positions of the object's nodes in pre-order.
    positions: Positions,
}

impl Document {
    /// Creates a document for an object of an API server, which has no position. `text` is the object as JSON, for kinds whose status is
    /// written.
    pub(crate) fn served(source: Arc<str>, resource: Resource, text: Option<String>) -> Document {
        Document {
            file: source,
            line: 0,
            column: 0,
            resource,
            text: text.unwrap_or_default().into(),
            positions: Positions::default(),
        }
    }

    /// Returns the object as written, with defaults, unknown fields and status.
    pub fn object(&self) -> Json {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Returns the object's status as written.
    pub fn status(&self) -> Option<Json> {
        // Most objects in files have none, and parsing takes longer.
        let may_exist = self.text.contains("\"status\"");
        may_exist.then(|| self.object().get("status").cloned())?
    }

    /// Returns the line and column of a field such as `spec.rules[0]`, or of its nearest existing ancestor.
    pub fn position(&self, field: &str) -> (usize, usize) {
        let object = self.object();
        let mut value = &object;
        let mut index = 0;
        for segment in segments(field) {
            let found = match value {
                Json::Object(map) => map.keys().position(|key| key == segment),
                Json::Array(items) => segment.parse().ok().filter(|&at: &usize| at < items.len()),
                _ => None,
            };
            let Some(at) = found else { break };
            index += 1 + children(value).take(at).map(size).sum::<usize>();
            match children(value).nth(at) {
                Some(child) => value = child,
                None => break,
            }
        }
        let at = self.positions.get(index).unwrap_or_default();
        (at.line as usize, at.column as usize)
    }
}

/// Splits a field path into names, indexes and keys in brackets.
fn segments(mut path: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (segment, rest) = if let Some(inner) = path.strip_prefix('[') {
            inner.split_once(']').unwrap_or((inner, ""))
        } else {
            let path = path.strip_prefix('.').unwrap_or(path);
            path.split_at(path.find(['.', '[']).unwrap_or(path.len()))
        };
        path = rest;
        (!segment.is_empty()).then_some(segment)
    })
}

fn children(value: &Json) -> Box<dyn Iterator<Item = &Json> + '_> {
    match value {
        Json::Array(items) => Box::new(items.iter()),
        Json::Object(map) => Box::new(map.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn size(value: &Json) -> usize {
    1 + children(value).map(size).sum::<usize>()
}

/// Reads manifests from any number of files.
#[derive(Default)]
pub struct ManifestReader {
    manifests: Manifests,
    /// File and position of each object, for detecting duplicates.
    seen: HashMap<ObjectKey, (Arc<str>, Position)>,
    input_order: u64,
}

impl ManifestReader {
    /// Creates a reader.
    pub fn new() -> Self {
        ManifestReader::default()
    }

    /// Reads the contents of a file. `file` is its name in findings. The order of calls determines the age of objects without a
    /// `creationTimestamp`.
    pub fn read(&mut self, file: &str, bytes: &[u8]) {
        let file: Arc<str> = file.into();
        for document in document::parse(bytes) {
            match document {
                Ok(node) => self.read_object(&file, node, "", None),
                Err(error) => self.unidentified(&file, error.at, String::new(), error.message),
            }
        }
    }

    /// Returns the contents of all files.
    pub fn finish(self) -> Manifests {
        self.manifests
    }

    /// Reads an object. `prefix` is the field path of an item of a list; `inherited` are the item's apiVersion and kind if the kind of the
    /// list determines them.
    fn read_object(
        &mut self,
        file: &Arc<str>,
        node: Node,
        prefix: &str,
        inherited: Option<(&str, &str)>,
    ) {
        if !matches!(node.value, Value::Map(_)) {
            let message = format!("must be an object, found {}", node.type_name());
            let field = prefix.trim_end_matches('.').to_owned();
            return self.unidentified(file, node.at, field, message);
        }
        if let Some(kind) = universal_type(&node).filter(|_| inherited.is_none()) {
            let kind = kind.to_owned();
            let found = Kind::find_universal(&kind);
            return match found.and_then(|kind| Some((kind, schema::universal(kind)?))) {
                Some((kind, schema)) => self.validate_object(file, node, prefix, kind, schema),
                None => {
                    *self.manifests.ignored.entry(kind.clone()).or_default() += 1;
                    self.suggest_kind(file, &node, prefix, KUMA_GROUP, "type", &kind);
                }
            };
        }
        let api_version = self.type_field(
            file,
            &node,
            prefix,
            "apiVersion",
            inherited.map(|(version, _)| version),
        );
        let kind = self.type_field(file, &node, prefix, "kind", inherited.map(|(_, kind)| kind));
        let (Some(api_version), Some(kind)) = (api_version, kind) else {
            return;
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        if let Some(item) = kind
            .strip_suffix("List")
            .filter(|_| node.get("items").is_some())
        {
            let known = Kind::find(group, item).is_some();
            if known || (item.is_empty() && group.is_empty()) {
                let inherited = known.then_some((api_version.as_str(), item));
                return self.read_list(file, node, prefix, inherited);
            }
        }
        match Kind::find(group, &kind) {
            None => self.ignore(file, &node, prefix, group, &api_version, &kind),
            Some(found) => match schema::of(found, version) {
                Some(schema) => self.validate_object(file, node, prefix, found, schema),
                None => {
                    let at = node.get("apiVersion").map_or(node.at, |node| node.at);
                    let message = schema::unsupported_version(found, &api_version);
                    self.unidentified(file, at, format!("{prefix}apiVersion"), message);
                }
            },
        }
    }

    /// Returns the value of `apiVersion` or `kind`, or reports that it is missing or invalid.
    fn type_field(
        &mut self,
        file: &Arc<str>,
        node: &Node,
        prefix: &str,
        field: &str,
        inherited: Option<&str>,
    ) -> Option<String> {
        let found = node.get(field).filter(|found| found.value != Value::Null);
        let (at, message) = match (found, inherited) {
            (Some(found), _) => match found.as_str() {
                Some(text) if !text.is_empty() => return Some(text.to_owned()),
                Some(_) => (found.at, "must not be empty".to_owned()),
                None => (
                    found.at,
                    format!("must be a string, found {}", found.type_name()),
                ),
            },
            (None, Some(inherited)) => return Some(inherited.to_owned()),
            (None, None) => (node.at, MISSING.to_owned()),
        };
        self.unidentified(file, at, format!("{prefix}{field}"), message);
        None
    }

    /// Reads the items of a List.
    fn read_list(
        &mut self,
        file: &Arc<str>,
        mut node: Node,
        prefix: &str,
        inherited: Option<(&str, &str)>,
    ) {
        let Some(items) = node.get_mut("items") else {
            return;
        };
        let at = items.at;
        match std::mem::replace(&mut items.value, Value::Null) {
            Value::List(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    let prefix = format!("{prefix}items[{index}].");
                    self.read_object(file, item, &prefix, inherited);
                }
            }
            Value::Null => {}
            value => {
                let found = Node { at, value };
                let message = format!("must be a list, found {}", found.type_name());
                self.unidentified(file, at, format!("{prefix}items"), message);
            }
        }
    }

    /// Counts an object of an unsupported kind. Warns if a supported kind was probably meant.
    fn ignore(
        &mut self,
        file: &Arc<str>,
        node: &Node,
        prefix: &str,
        group: &str,
        api_version: &str,
        kind: &str,
    ) {
        *self
            .manifests
            .ignored
            .entry(format!("{api_version}/{kind}"))
            .or_default() += 1;
        // A supported kind in another API group of Kubernetes is most likely a wrong apiVersion.
        let other = Kind::ALL.iter().find(|known| known.name() == kind);
        if let Some(known) = other.filter(|_| group.is_empty() || group.ends_with("k8s.io")) {
            let at = node.get("apiVersion").map_or(node.at, |node| node.at);
            let suggestion = known.api_version();
            let message = format!(
                "unknown kind {kind} in `{api_version}`: the object is ignored; did you mean `{suggestion}`?"
            );
            let field = format!("{prefix}apiVersion");
            self.add(Severity::Warning, file, at, field, message);
        }
        // An unknown kind in a supported group is most likely misspelled.
        if [GATEWAY_GROUP, GATEWAY_X_GROUP, POINTSMAN_GROUP, KUMA_GROUP].contains(&group) {
            self.suggest_kind(file, node, prefix, group, "kind", kind);
        }
    }

    /// Warns about an ignored object if its kind has a replacement or resembles a kind of the group.
    fn suggest_kind(
        &mut self,
        file: &Arc<str>,
        node: &Node,
        prefix: &str,
        group: &str,
        field: &str,
        kind: &str,
    ) {
        let names = Kind::ALL
            .iter()
            .filter(|known| known.group() == group)
            .map(|known| known.name());
        let replacement = kuma::replacement_for(kind).filter(|_| group == KUMA_GROUP);
        let message = match (replacement, validate::closest(kind, names)) {
            (Some(replacement), _) => Some(format!(
                "{kind} is not supported and is ignored; {replacement}"
            )),
            (None, Some(suggestion)) => Some(format!(
                "unknown kind `{kind}`: the object is ignored; did you mean `{suggestion}`?"
            )),
            (None, None) => None,
        };
        if let Some(message) = message {
            let at = node.get(field).map_or(node.at, |node| node.at);
            let field = format!("{prefix}{field}");
            self.add(Severity::Warning, file, at, field, message);
        }
    }

    /// Applies defaults to an object, validates it and stores it if it is valid.
    fn validate_object(
        &mut self,
        file: &Arc<str>,
        mut node: Node,
        prefix: &str,
        kind: Kind,
        schema: &schema::Schema,
    ) {
        self.input_order += 1;
        if universal_type(&node).is_none() {
            self.normalize_namespace(file, &mut node, prefix, kind);
        }
        kuma::spelling::normalize(&mut node, kind);
        validate::apply_defaults(&mut node, schema);
        let mut found = validate::validate(&node, schema);
        found.sort_by_key(|found| found.at);
        let mut errors = found
            .iter()
            .filter(|found| found.severity == Severity::Error);
        let mut rejected_at = errors.next().map(|found| found.at);
        for found in found {
            self.add(
                found.severity,
                file,
                found.at,
                format!("{prefix}{}", found.field),
                found.message,
            );
        }
        let mut declared = declared_object(&node, prefix, kind);
        self.manifests.has_unidentified |= declared.is_none();
        if let Some(second) = declared.take_if(|declared| self.seen.contains_key(&declared.key)) {
            let (first, at) = &self.seen[&second.key];
            let message = second.duplicate_message(first, *at);
            return self.error(file, second.name_at, second.field, message);
        }
        if rejected_at.is_none() {
            rejected_at = self.store_document(file, &node, prefix, kind).err();
        }
        if let Some(declared) = declared {
            let first = (file.clone(), declared.at);
            self.seen.insert(declared.key.clone(), first);
            self.manifests.declared.push(DeclaredObject {
                rejected_at,
                ..declared
            });
        }
    }

    /// Stores a valid document. Returns its position as an error if it can't be deserialized.
    fn store_document(
        &mut self,
        file: &Arc<str>,
        node: &Node,
        prefix: &str,
        kind: Kind,
    ) -> Result<(), Position> {
        let at = node.at;
        let object = node.to_json();
        match Resource::from_json(kind, &object) {
            Ok(mut resource) => {
                resource.meta_mut().input_order = self.input_order;
                let mut positions = Vec::new();
                collect_positions(node, &mut positions);
                self.manifests.documents.push(Document {
                    file: file.clone(),
                    line: at.line as usize,
                    column: at.column as usize,
                    resource,
                    text: object.to_string().into(),
                    positions: positions.into_iter().collect(),
                });
                Ok(())
            }
            Err(error) => {
                let message = format!("this {kind} is valid but can't be deserialized: {error}");
                self.error(file, at, prefix.trim_end_matches('.').to_owned(), message);
                Err(at)
            }
        }
    }

    /// Sets the namespace of an object to `default` if its kind is namespaced and it has none; removes it if its kind is cluster-scoped.
    fn normalize_namespace(&mut self, file: &Arc<str>, node: &mut Node, prefix: &str, kind: Kind) {
        let Some(metadata) = node.get_mut("metadata") else {
            return;
        };
        let Value::Map(entries) = &mut metadata.value else {
            return;
        };
        // Kubernetes treats an empty namespace as unset.
        entries.retain(|entry| {
            entry.key != "namespace"
                || !matches!(entry.node.value, Value::Null) && entry.node.as_str() != Some("")
        });
        let namespace = entries.iter().position(|entry| entry.key == "namespace");
        match (kind.is_cluster_scoped(), namespace) {
            (true, Some(index)) => {
                let at = entries.remove(index).at;
                let message = format!("{kind} is cluster-scoped; the namespace is ignored");
                self.add(
                    Severity::Warning,
                    file,
                    at,
                    format!("{prefix}metadata.namespace"),
                    message,
                );
            }
            (false, None) => {
                let at = metadata.at;
                metadata.set(
                    "namespace",
                    Node {
                        at,
                        value: Value::String("default".to_owned()),
                    },
                );
            }
            _ => {}
        }
    }

    /// Reports an error of a document that can't be attributed to an object.
    fn unidentified(&mut self, file: &Arc<str>, at: Position, field: String, message: String) {
        self.manifests.has_unidentified = true;
        self.error(file, at, field, message);
    }

    fn error(&mut self, file: &Arc<str>, at: Position, field: String, message: String) {
        self.add(Severity::Error, file, at, field, message);
    }

    fn add(
        &mut self,
        severity: Severity,
        file: &Arc<str>,
        at: Position,
        field: String,
        message: String,
    ) {
        let (line, column) = (at.line as usize, at.column as usize);
        self.manifests.findings.push(Finding {
            severity,
            file: file.clone(),
            line,
            column,
            field,
            message,
        });
    }
}

impl DeclaredObject {
    /// Returns the error message for another object with the same name. The first one is in the file `first` at the position `at`.
    pub fn duplicate_message(&self, first: &str, at: Position) -> String {
        let Position { line, column } = at;
        format!("{} is already defined at {first}:{line}:{column}", self.key)
    }
}

/// Returns the identity of an object, or `None` if its name can't be read.
fn declared_object(node: &Node, prefix: &str, kind: Kind) -> Option<DeclaredObject> {
    if universal_type(node).is_some() {
        let name = node.get("name")?;
        let scope = match node.get("mesh") {
            Some(mesh) => NamespaceName::of_mesh(mesh.as_str()?),
            None => NamespaceName::default(),
        };
        return Some(DeclaredObject {
            key: ObjectKey::new(kind, scope, name.as_str()?),
            at: node.at,
            field: format!("{prefix}name"),
            name_at: name.at,
            rejected_at: None,
        });
    }
    let metadata = node.get("metadata")?;
    let name = metadata.get("name")?;
    let namespace = match metadata.get("namespace") {
        Some(namespace) => namespace.as_str()?,
        None => "",
    };
    Some(DeclaredObject {
        key: ObjectKey::new(kind, namespace, name.as_str()?),
        at: node.at,
        field: format!("{prefix}metadata.name"),
        name_at: name.at,
        rejected_at: None,
    })
}

/// Returns the `type` of a Kuma universal document, which has `type` and `name` instead of `apiVersion` and `kind`.
fn universal_type(node: &Node) -> Option<&str> {
    let is_kubernetes = node.get("apiVersion").is_some() || node.get("kind").is_some();
    let kind = node.get("type").filter(|_| !is_kubernetes)?.as_str()?;
    let has_name = node.get("name").is_some_and(|name| name.as_str().is_some());
    (has_name || Kind::find_universal(kind).is_some()).then_some(kind)
}

fn collect_positions(node: &Node, positions: &mut Vec<Position>) {
    positions.push(node.at);
    match &node.value {
        Value::List(items) => items
            .iter()
            .for_each(|item| collect_positions(item, positions)),
        Value::Map(entries) => entries
            .iter()
            .for_each(|entry| collect_positions(&entry.node, positions)),
        _ => {}
    }
}
