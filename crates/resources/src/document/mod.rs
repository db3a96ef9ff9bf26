//! Text to trees: YAML and JSON documents whose every node knows its line and column.
//!
//! A file is cut at its `---` lines before anything is parsed, so a mistake in one document leaves its neighbours whole.
//! Scalars mean what they mean to kubectl (YAML 1.1 booleans, octal numbers). No bytes make it panic or run away:
//! depth is bounded, and so is what aliases expand to.

mod json;
mod scalar;
mod split;
mod yaml;

use serde_json::{Number, Value as Json};

/// How deep a document may be nested. No Kubernetes object comes near; what recurses over a tree relies on it.
pub const MAX_DEPTH: usize = 100;

/// How many nodes the aliases of one document may add to it.
pub const MAX_ALIASED: usize = 100_000;

/// A place in a text, counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub at: Position,
    /// What it is.
    pub value: Value,
}

/// What a [`Node`] is.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "named as in JSON")]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(String),
    List(Vec<Node>),
    /// In the order of the text, without duplicate keys.
    Map(Vec<MapEntry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// The key.
    pub key: String,
    /// Where the key begins.
    pub at: Position,
    /// The value.
    pub node: Node,
}

/// Why a document can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{}: {message}", at.line, at.column)]
pub struct SyntaxError {
    /// Where reading stopped.
    pub at: Position,
    /// What was found there.
    pub message: String,
}

impl SyntaxError {
    fn new(at: Position, message: impl Into<String>) -> Self {
        SyntaxError {
            at,
            message: message.into(),
        }
    }
}

/// All documents of a file in their order, each whole or with the error that spoils it. Empty documents are left out.
pub fn parse(bytes: &[u8]) -> Vec<Result<Node, SyntaxError>> {
    let mut documents = Vec::new();
    for (line, part) in split::parts(bytes) {
        match std::str::from_utf8(part) {
            Ok(text) => parse_part(text, line, &mut documents),
            Err(error) => {
                let at = split::position(part, error.valid_up_to(), line);
                documents.push(Err(SyntaxError::new(
                    at,
                    "the text is not UTF-8 from here on",
                )));
            }
        }
    }
    documents
}

fn parse_part(text: &str, line: u32, documents: &mut Vec<Result<Node, SyntaxError>>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // JSON is YAML but for tabs, surrogate pairs and long keys, so it has a parser of its own; what is not quite JSON
    // may still be YAML in braces.
    if text.trim_start().starts_with(['{', '['])
        && let Ok(nodes) = json::parse(text, line)
    {
        documents.extend(nodes.into_iter().map(Ok));
        return;
    }
    yaml::parse(text, line, documents);
}

impl Node {
    /// The value under a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries()
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.node)
    }

    /// The value under a key, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.value {
            Value::Map(entries) => entries
                .iter_mut()
                .find(|entry| entry.key == key)
                .map(|entry| &mut entry.node),
            _ => None,
        }
    }

    /// The entries of a map; none if this is no map.
    pub fn entries(&self) -> &[MapEntry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none if this is no list.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if this is a whole one.
    pub fn as_int(&self) -> Option<i64> {
        match self.value {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// Puts a value under a key, in place of one that is there.
    pub fn set(&mut self, key: &str, node: Node) {
        if let Some(old) = self.get_mut(key) {
            *old = node;
        } else if let Value::Map(entries) = &mut self.value {
            entries.push(MapEntry {
                key: key.to_owned(),
                at: node.at,
                node,
            });
        }
    }

    /// What this is, in a word with its article.
    pub fn describe(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a number",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "an object",
        }
    }

    /// The value without its places.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::Number((*value).into()),
            // JSON has no infinities; the API server gets none either.
            Value::Float(value) => Number::from_f64(*value).map_or(Json::Null, Json::Number),
            Value::String(value) => Json::String(value.clone()),
            Value::List(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.node.to_json()))
                    .collect(),
            ),
        }
    }

    /// A value that stands nowhere of its own: all of it gets the place `at`.
    pub fn from_json(json: &Json, at: Position) -> Node {
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => scalar::number(number),
            Json::String(text) => Value::String(text.clone()),
            Json::Array(items) => {
                Value::List(items.iter().map(|item| Node::from_json(item, at)).collect())
            }
            Json::Object(map) => Value::Map(
                map.iter()
                    .map(|(key, value)| MapEntry {
                        key: key.clone(),
                        at,
                        node: Node::from_json(value, at),
                    })
                    .collect(),
            ),
        };
        Node { at, value }
    }

    /// How many nodes this is, itself included.
    fn size(&self) -> usize {
        1 + match &self.value {
            Value::List(items) => items.iter().map(Node::size).sum(),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.size()).sum(),
            _ => 0,
        }
    }

    /// How many levels lie below this, itself included.
    fn depth(&self) -> usize {
        1 + match &self.value {
            Value::List(items) => items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| entry.node.depth())
                .max()
                .unwrap_or(0),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
