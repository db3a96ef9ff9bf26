//! Parser for YAML and JSON documents whose nodes carry their line and column.
//!
//! A file is split at its `---` lines before it is parsed, so that a syntax error affects one document only. Scalars have the types that
//! kubectl assigns to them (YAML 1.1 booleans, octal numbers). Input is untrusted: nesting depth and the expansion of aliases are limited.
//! `yaml_writer` converts JSON values to YAML.

mod json;
mod positions;
mod scalar;
mod split;
mod yaml;
mod yaml_writer;

pub use positions::Positions;
use serde_json::{Number, Value as Json};
pub use yaml_writer::to_yaml;

/// Maximum nesting depth of a document, far above that of any Kubernetes object. Recursive functions over nodes rely on it.
pub const MAX_DEPTH: usize = 100;

/// Maximum number of nodes that anchors and aliases may add to a document.
pub const MAX_ALIASED: usize = 100_000;

/// Maximum number of bytes of keys and values that anchors and aliases may add to a document.
pub const MAX_ALIASED_BYTES: usize = 16 * 1024 * 1024;

/// A position in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Position of the first character.
    pub at: Position,
    /// Value of the node.
    pub value: Value,
}

/// The value of a [`Node`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "named as in JSON")]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(String),
    List(Vec<Node>),
    /// Entries in the order of the document, without duplicate keys.
    Map(Vec<MapEntry>),
}

/// A key of a map and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// Key as text.
    pub key: String,
    /// Position of the key.
    pub at: Position,
    /// Value of the entry.
    pub node: Node,
}

/// A document could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{}: {message}", at.line, at.column)]
pub struct SyntaxError {
    /// Position of the error.
    pub at: Position,
    /// Description of the error.
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

/// Parses the documents of a file. Each result is a document or its syntax error; empty documents are omitted.
pub fn parse(bytes: &[u8]) -> Vec<Result<Node, SyntaxError>> {
    let mut documents = Vec::new();
    for (line, part) in split::parts(bytes) {
        match std::str::from_utf8(part) {
            Ok(text) => parse_part(text, line, &mut documents),
            Err(error) => {
                let at = split::position(part, error.valid_up_to(), line);
                documents.push(Err(SyntaxError::new(at, "invalid UTF-8")));
            }
        }
    }
    documents
}

fn parse_part(text: &str, line: u32, documents: &mut Vec<Result<Node, SyntaxError>>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // JSON differs from YAML in tabs, surrogate pairs and long keys, so it has a parser of its own. Text in braces that is not valid JSON
    // may be a YAML flow collection.
    if text.trim_start().starts_with(['{', '['])
        && let Some(nodes) = json::parse(text, line)
    {
        documents.extend(nodes.into_iter().map(Ok));
        return;
    }
    yaml::parse(text, line, documents);
}

impl Node {
    /// Returns the value of a key, if this is a map that has the key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries()
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.node)
    }

    /// Returns the value of a key for modification, if this is a map that has the key.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.value {
            Value::Map(entries) => entries
                .iter_mut()
                .find(|entry| entry.key == key)
                .map(|entry| &mut entry.node),
            _ => None,
        }
    }

    /// Returns the entries of a map; empty for other values.
    pub fn entries(&self) -> &[MapEntry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the items of a list; empty for other values.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number, if this is an integer.
    pub fn as_int(&self) -> Option<i64> {
        match self.value {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// Sets the value of a key of a map.
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

    /// Returns the type of the value with an indefinite article, for messages.
    pub fn type_name(&self) -> &'static str {
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

    /// Converts the value to JSON, without positions.
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::Number((*value).into()),
            // JSON can't represent infinities; kubectl can't send them either.
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

    /// Converts JSON to a node. All nodes get the position `at`.
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

    /// Returns the number of nodes in this tree.
    fn size(&self) -> usize {
        1 + match &self.value {
            Value::List(items) => items.iter().map(Node::size).sum(),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.size()).sum(),
            _ => 0,
        }
    }

    /// Returns the number of bytes of the keys and values of this tree.
    fn bytes(&self) -> usize {
        match &self.value {
            Value::String(text) => text.len(),
            Value::List(items) => items.iter().map(Node::bytes).sum(),
            Value::Map(entries) => {
                let entries = entries.iter();
                entries
                    .map(|entry| entry.key.len() + entry.node.bytes())
                    .sum()
            }
            _ => 0,
        }
    }

    /// Returns the number of levels in this tree.
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
