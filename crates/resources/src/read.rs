//! Files to resources: documents are parsed, filled with defaults, checked and typed, and every mistake is reported.
//!
//! A document with a mistake is left out and its neighbours are kept. What is refused here is what the API server would
//! refuse from the CRDs; a field that nobody knows is a warning.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::document::{self, Node, Position, Value};
use crate::kuma;
use crate::meta::{GATEWAY_GROUP, GATEWAY_X_GROUP, KUMA_GROUP, Kind, ObjectKey, POINTSMAN_GROUP};
use crate::schema::{self, validate};
use crate::{Finding, Resource, Severity};

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// The documents without mistakes, in the order of the input.
    pub documents: Vec<Document>,
    /// Everything that was found, in the order of the input.
    pub findings: Vec<Finding>,
    /// How many objects of each kind that is not ours were passed over, by `apiVersion/kind`.
    pub ignored: BTreeMap<String, usize>,
    /// Every object that is named, valid or not; of those that share a name, the first.
    pub declared: Vec<DeclaredObject>,
    /// Whether something stands there that can't be told to be a certain object, as it can't be parsed or has no name.
    pub has_unidentified: bool,
}

/// An object that a text names, valid or not.
#[derive(Clone, Debug)]
pub struct DeclaredObject {
    /// Which one.
    pub key: ObjectKey,
    /// Where it begins.
    pub at: Position,
    /// The field of its name, and where that stands.
    pub field: String,
    /// Where its name stands.
    pub name_at: Position,
    /// Where its first error stands, if it was rejected.
    pub rejected_at: Option<Position>,
}

/// A valid object and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The file, as its reader named it.
    pub file: Arc<str>,
    /// The line at which it begins, from 1.
    pub line: usize,
    /// The column at which it begins, from 1.
    pub column: usize,
    /// What it says.
    pub resource: Resource,
    /// The object as written, as JSON text: it is asked for seldom, and there are many.
    text: Box<str>,
    /// The places of all nodes of the object, parents before their parts.
    positions: Box<[Position]>,
}

impl Document {
    /// The object as written, with defaults, fields that nobody knows, and status.
    pub fn object(&self) -> Json {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Line and column of a field such as `spec.rules[0]`, or of the nearest parent that exists.
    pub fn position(&self, field: &str) -> (usize, usize) {
        let object = self.object();
        let mut value = &object;
        let mut index = 0;
        for step in steps(field) {
            let found = match value {
                Json::Object(map) => map.keys().position(|key| key == step),
                Json::Array(items) => step
                    .parse()
                    .ok()
                    .filter(|&place: &usize| place < items.len()),
                _ => None,
            };
            let Some(place) = found else { break };
            index += 1 + parts(value).take(place).map(size).sum::<usize>();
            match parts(value).nth(place) {
                Some(part) => value = part,
                None => break,
            }
        }
        let at = self.positions.get(index).copied().unwrap_or_default();
        (at.line as usize, at.column as usize)
    }
}

/// The steps of a path: names after dots, and indexes or keys in brackets.
fn steps(mut path: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (step, rest) = if let Some(inner) = path.strip_prefix('[') {
            inner.split_once(']').unwrap_or((inner, ""))
        } else {
            let path = path.strip_prefix('.').unwrap_or(path);
            path.split_at(path.find(['.', '[']).unwrap_or(path.len()))
        };
        path = rest;
        (!step.is_empty()).then_some(step)
    })
}

fn parts(value: &Json) -> Box<dyn Iterator<Item = &Json> + '_> {
    match value {
        Json::Array(items) => Box::new(items.iter()),
        Json::Object(map) => Box::new(map.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn size(value: &Json) -> usize {
    1 + parts(value).map(size).sum::<usize>()
}

/// Reads texts one after another.
#[derive(Default)]
pub struct ManifestReader {
    input: Manifests,
    /// Where each object stands, so that a second one of the same name can be told.
    seen: HashMap<ObjectKey, (Arc<str>, Position)>,
    input_order: u64,
}

impl ManifestReader {
    /// Nothing read yet.
    pub fn new() -> Self {
        ManifestReader::default()
    }

    /// Reads a text. `file` is its name in findings; texts are read in the order in which they stand for age.
    pub fn read(&mut self, file: &str, bytes: &[u8]) {
        let file: Arc<str> = file.into();
        for document in document::parse(bytes) {
            match document {
                Ok(node) => self.take(&file, node, "", None),
                Err(error) => self.unidentified(&file, error.at, String::new(), error.message),
            }
        }
    }

    /// What all texts hold together.
    pub fn finish(self) -> Manifests {
        self.input
    }

    /// Takes an object; `prefix` is its place in a list, `inherited` its apiVersion and kind if the list says it.
    fn take(&mut self, file: &Arc<str>, node: Node, prefix: &str, inherited: Option<(&str, &str)>) {
        if !matches!(node.value, Value::Map(_)) {
            let message = format!("this is {}, not an object", node.describe());
            let field = prefix.trim_end_matches('.').to_owned();
            return self.unidentified(file, node.at, field, message);
        }
        if let Some(kind) = universal(&node).filter(|_| inherited.is_none()) {
            let kind = kind.to_owned();
            let found = Kind::find_universal(&kind);
            return match found.and_then(|kind| Some((kind, schema::universal(kind)?))) {
                Some((kind, schema)) => self.keep(file, node, prefix, kind, schema),
                None => {
                    *self.input.ignored.entry(kind.clone()).or_default() += 1;
                    self.suggest(file, &node, prefix, KUMA_GROUP, "type", &kind);
                }
            };
        }
        let api_version = self.word(
            file,
            &node,
            prefix,
            "apiVersion",
            inherited.map(|(version, _)| version),
        );
        let kind = self.word(file, &node, prefix, "kind", inherited.map(|(_, kind)| kind));
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
                return self.unpack(file, node, prefix, inherited);
            }
        }
        match Kind::find(group, &kind) {
            None => self.pass_over(file, &node, prefix, group, &api_version, &kind),
            Some(found) => match schema::of(found, version) {
                Some(schema) => self.keep(file, node, prefix, found, schema),
                None => {
                    let read: Vec<_> = found
                        .versions()
                        .iter()
                        .map(|known| join(group, known))
                        .collect();
                    let at = node.get("apiVersion").map_or(node.at, |node| node.at);
                    let message = format!(
                        "{kind} is read in {}, not in `{api_version}`",
                        read.join(", ")
                    );
                    self.unidentified(file, at, format!("{prefix}apiVersion"), message);
                }
            },
        }
    }

    /// The text of `apiVersion` or `kind`.
    fn word(
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
                Some(_) => (found.at, "this is empty".to_owned()),
                None => (
                    found.at,
                    format!("this is {}, not a string", found.describe()),
                ),
            },
            (None, Some(inherited)) => return Some(inherited.to_owned()),
            (None, None) => (node.at, "this required field is missing".to_owned()),
        };
        self.unidentified(file, at, format!("{prefix}{field}"), message);
        None
    }

    fn unpack(
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
                    self.take(file, item, &format!("{prefix}items[{index}]."), inherited);
                }
            }
            Value::Null => {}
            value => {
                let message = format!("this is {}, not a list", Node { at, value }.describe());
                self.unidentified(file, at, format!("{prefix}items"), message);
            }
        }
    }

    fn pass_over(
        &mut self,
        file: &Arc<str>,
        node: &Node,
        prefix: &str,
        group: &str,
        api_version: &str,
        kind: &str,
    ) {
        *self
            .input
            .ignored
            .entry(format!("{api_version}/{kind}"))
            .or_default() += 1;
        // A kind that is ours, in a group of Kubernetes that does not have it, is meant to be ours.
        let other = Kind::ALL.iter().find(|known| known.name() == kind);
        if let Some(known) = other.filter(|_| group.is_empty() || group.ends_with("k8s.io")) {
            let at = node.get("apiVersion").map_or(node.at, |node| node.at);
            let meant = known.api_version();
            let message = format!(
                "{kind} is not known in `{api_version}` and passed over; did you mean `{meant}`?"
            );
            let field = format!("{prefix}apiVersion");
            self.add(Severity::Warning, file, at, field, message);
        }
        // Within our groups a kind that nobody knows is probably mistyped.
        if [GATEWAY_GROUP, GATEWAY_X_GROUP, POINTSMAN_GROUP, KUMA_GROUP].contains(&group) {
            self.suggest(file, node, prefix, group, "kind", kind);
        }
    }

    /// Warns of a kind that is passed over if it is nearly one of the group's.
    fn suggest(
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
        let instead = kuma::replacement_for(kind).filter(|_| group == KUMA_GROUP);
        let message = match (instead, validate::closest(kind, names)) {
            (Some(instead), _) => Some(format!("a {kind} is not carried out; {instead}")),
            (None, Some(meant)) => Some(format!(
                "`{kind}` is not known and passed over; did you mean `{meant}`?"
            )),
            (None, None) => None,
        };
        if let Some(message) = message {
            let at = node.get(field).map_or(node.at, |node| node.at);
            let field = format!("{prefix}{field}");
            self.add(Severity::Warning, file, at, field, message);
        }
    }

    fn keep(
        &mut self,
        file: &Arc<str>,
        mut node: Node,
        prefix: &str,
        kind: Kind,
        schema: &schema::Schema,
    ) {
        self.input_order += 1;
        if universal(&node).is_none() {
            self.settle_namespace(file, &mut node, prefix, kind);
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
        let mut named = named(&node, prefix, kind);
        self.input.has_unidentified |= named.is_none();
        if let Some(second) = named.take_if(|named| self.seen.contains_key(&named.key)) {
            let (first, at) = &self.seen[&second.key];
            let message = second.duplicate_message(first, *at);
            return self.error(file, second.name_at, second.field, message);
        }
        if rejected_at.is_none() {
            rejected_at = self.document(file, &node, prefix, kind).err();
        }
        if let Some(named) = named {
            let place = (file.clone(), named.at);
            self.seen.insert(named.key.clone(), place);
            self.input.declared.push(DeclaredObject {
                rejected_at,
                ..named
            });
        }
    }

    /// Keeps a valid document. Returns the place of the error if its type can't hold it.
    fn document(
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
                gather(node, &mut positions);
                self.input.documents.push(Document {
                    file: file.clone(),
                    line: at.line as usize,
                    column: at.column as usize,
                    resource,
                    text: object.to_string().into(),
                    positions: positions.into(),
                });
                Ok(())
            }
            Err(error) => {
                let message = format!("this {kind} is valid but can't be read: {error}");
                self.error(file, at, prefix.trim_end_matches('.').to_owned(), message);
                Err(at)
            }
        }
    }

    /// An object of a namespaced kind is in `default` unless it says otherwise; one of another kind is in none.
    fn settle_namespace(&mut self, file: &Arc<str>, node: &mut Node, prefix: &str, kind: Kind) {
        let Some(metadata) = node.get_mut("metadata") else {
            return;
        };
        let Value::Map(entries) = &mut metadata.value else {
            return;
        };
        // Empty is how Kubernetes writes "none".
        entries.retain(|entry| {
            entry.key != "namespace"
                || !matches!(entry.node.value, Value::Null) && entry.node.as_str() != Some("")
        });
        let stated = entries.iter().position(|entry| entry.key == "namespace");
        match (kind.is_cluster_scoped(), stated) {
            (true, Some(index)) => {
                let at = entries.remove(index).at;
                let message = format!("a {kind} is in no namespace; this is ignored");
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

    /// An error of something that can't be told to be a certain object.
    fn unidentified(&mut self, file: &Arc<str>, at: Position, field: String, message: String) {
        self.input.has_unidentified = true;
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
        self.input.findings.push(Finding {
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
    /// What is said of a second object of the same name.
    pub fn duplicate_message(&self, first: &str, at: Position) -> String {
        let Position { line, column } = at;
        format!("{} stands at {first}:{line}:{column} already", self.key)
    }
}

/// Which object this is; none if its name can't be read.
fn named(node: &Node, prefix: &str, kind: Kind) -> Option<DeclaredObject> {
    if universal(node).is_some() {
        let name = node.get("name")?;
        let mesh = node.get("mesh").map(|mesh| mesh.as_str().map(kuma::scope));
        return Some(DeclaredObject {
            key: ObjectKey::new(kind, mesh.unwrap_or(Some(String::new()))?, name.as_str()?),
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

/// The kind of a document in Kuma's own form: it has `type` and `name` where Kubernetes has `apiVersion` and `kind`.
fn universal(node: &Node) -> Option<&str> {
    let foreign = node.get("apiVersion").is_none() && node.get("kind").is_none();
    let kind = node.get("type").filter(|_| foreign)?.as_str()?;
    let named = node.get("name").is_some_and(|name| name.as_str().is_some());
    (named || Kind::find_universal(kind).is_some()).then_some(kind)
}

fn join(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn gather(node: &Node, positions: &mut Vec<Position>) {
    positions.push(node.at);
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| gather(item, positions)),
        Value::Map(entries) => entries
            .iter()
            .for_each(|entry| gather(&entry.node, positions)),
        _ => {}
    }
}
