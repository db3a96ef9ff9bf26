//! Builds trees from YAML events. Open collections are kept on an explicit stack instead of recursing.

use std::collections::HashSet;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{
    MAX_ALIASED, MAX_ALIASED_BYTES, MAX_DEPTH, MapEntry, Node, Position, SyntaxError, Value,
    scalar, split,
};

type Result<T> = std::result::Result<T, SyntaxError>;

/// Parses the documents of a text, up to the first error.
pub(super) fn parse(text: &str, first_line: u32, documents: &mut Vec<Result<Node>>) {
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::default();
    let position = |mark: &saphyr_parser::Marker| Position {
        line: first_line + split::number(mark.line().saturating_sub(1)),
        column: split::number(mark.col()) + 1,
    };
    while let Some(event) = parser.next_event() {
        let step = match event {
            Ok((Event::StreamEnd, _)) => return,
            Ok((event, Span { start, .. })) => builder.handle(event, position(&start)),
            Err(error) => Err(SyntaxError::new(
                position(error.marker()),
                message(error.info()),
            )),
        };
        match step {
            Ok(None) => {}
            Ok(Some(Node {
                value: Value::Null, ..
            })) => {}
            Ok(Some(document)) => documents.push(Ok(document)),
            Err(error) => {
                documents.push(Err(error));
                return;
            }
        }
    }
}

/// Adds a hint to the error that an unquoted wildcard hostname such as `*.example.com` causes.
fn message(info: &str) -> String {
    match info.contains("unknown anchor") {
        true => format!("{info}; enclose values that begin with `*` in quotes"),
        false => info.to_owned(),
    }
}

/// A collection whose end event is outstanding.
struct OpenCollection {
    at: Position,
    anchor: usize,
    kind: CollectionKind,
}

enum CollectionKind {
    List(Vec<Node>),
    Map {
        entries: Vec<MapEntry>,
        keys: HashSet<String>,
        key: Option<(String, Position)>,
        merges: Vec<Node>,
    },
}

#[derive(Default)]
struct Builder {
    open: Vec<OpenCollection>,
    anchors: std::collections::HashMap<usize, Node>,
    /// Number of nodes that were copied for anchors and aliases.
    aliased: usize,
    /// Bytes that anchors and aliases have added.
    aliased_bytes: usize,
    root: Option<Node>,
}

impl Builder {
    /// Handles an event. Returns the document when it is complete.
    fn handle(&mut self, event: Event<'_>, at: Position) -> Result<Option<Node>> {
        match event {
            Event::DocumentStart(_) => *self = Builder::default(),
            Event::DocumentEnd => return Ok(self.root.take()),
            Event::Alias(anchor) => {
                let node = self.alias(anchor, at)?;
                self.add(node)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let node = Node {
                    at,
                    value: scalar_value(&text, style, tag.as_deref(), at)?,
                };
                self.store_anchor(anchor, &node)?;
                if self.expects_key() {
                    self.key(&text, style, node)?;
                } else {
                    self.add(node)?;
                }
            }
            Event::SequenceStart(anchor, _) => {
                self.push(OpenCollection {
                    at,
                    anchor,
                    kind: CollectionKind::List(Vec::new()),
                })?;
            }
            Event::MappingStart(anchor, _) => {
                let kind = CollectionKind::Map {
                    entries: Vec::new(),
                    keys: HashSet::new(),
                    key: None,
                    merges: Vec::new(),
                };
                self.push(OpenCollection { at, anchor, kind })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let (anchor, node) = close(open)?;
                    self.store_anchor(anchor, &node)?;
                    self.add(node)?;
                }
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd => {}
        }
        Ok(None)
    }

    fn push(&mut self, open: OpenCollection) -> Result<()> {
        if self.expects_key() {
            return Err(SyntaxError::new(
                open.at,
                "a key must be a scalar, found a list or an object",
            ));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(open.at));
        }
        self.open.push(open);
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(OpenCollection {
                kind: CollectionKind::Map { key: None, .. },
                ..
            })
        )
    }

    fn store_anchor(&mut self, anchor: usize, node: &Node) -> Result<()> {
        if anchor > 0 {
            self.count_copy(node)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(())
    }

    /// Counts a copy, stored for an anchor or inserted for an alias, towards [`MAX_ALIASED`] and [`MAX_ALIASED_BYTES`].
    fn count_copy(&mut self, node: &Node) -> Result<()> {
        self.aliased += node.size();
        if self.aliased > MAX_ALIASED {
            return Err(SyntaxError::new(
                node.at,
                format!("anchors and aliases expand to more than {MAX_ALIASED} nodes"),
            ));
        }
        self.aliased_bytes += node.bytes();
        if self.aliased_bytes > MAX_ALIASED_BYTES {
            let mebibytes = MAX_ALIASED_BYTES >> 20;
            return Err(SyntaxError::new(
                node.at,
                format!("anchors and aliases expand to more than {mebibytes} MiB"),
            ));
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<Node> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(SyntaxError::new(
                at,
                "an alias can't refer to a node that contains it",
            ));
        };
        if self.open.len() + node.depth() > MAX_DEPTH {
            return Err(too_deep(at));
        }
        let node = Node {
            at,
            value: node.value.clone(),
        };
        self.count_copy(&node)?;
        Ok(node)
    }

    fn key(&mut self, text: &str, style: ScalarStyle, node: Node) -> Result<()> {
        let Some(OpenCollection {
            kind: CollectionKind::Map { keys, key, .. },
            ..
        }) = self.open.last_mut()
        else {
            return Ok(());
        };
        let merge = text == "<<" && style == ScalarStyle::Plain;
        // Keys are strings, as in JSON: kubectl converts `on:` to `"true":`.
        let name = match node.value {
            Value::String(text) => text,
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            _ => return Err(SyntaxError::new(node.at, "a key must not be null")),
        };
        if !merge && !keys.insert(name.clone()) {
            return Err(SyntaxError::new(node.at, format!("duplicate key `{name}`")));
        }
        *key = Some((if merge { MERGE.to_owned() } else { name }, node.at));
        Ok(())
    }

    /// Adds a complete node to the innermost open collection, or makes it the root.
    fn add(&mut self, node: Node) -> Result<()> {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(OpenCollection {
                kind: CollectionKind::List(items),
                ..
            }) => items.push(node),
            Some(OpenCollection {
                kind:
                    CollectionKind::Map {
                        entries,
                        key,
                        merges,
                        ..
                    },
                ..
            }) => match key.take() {
                None => return Err(SyntaxError::new(node.at, "an alias can't be a key")),
                Some((name, _)) if name == MERGE => merges.push(node),
                Some((name, at)) => entries.push(MapEntry {
                    key: name,
                    at,
                    node,
                }),
            },
        }
        Ok(())
    }
}

/// Internal representation of the merge key `<<`. A YAML text can't contain NUL, so no other key is equal to it.
const MERGE: &str = "\0<<";

fn too_deep(at: Position) -> SyntaxError {
    let message = format!("the document exceeds the maximum nesting depth of {MAX_DEPTH}");
    SyntaxError::new(at, message)
}

/// Completes a collection and resolves its merge keys. Its own keys take precedence over merged ones, and earlier merges over later ones.
fn close(open: OpenCollection) -> Result<(usize, Node)> {
    let value = match open.kind {
        CollectionKind::List(items) => Value::List(items),
        CollectionKind::Map {
            mut entries,
            mut keys,
            merges,
            ..
        } => {
            let sources = merges.into_iter().flat_map(|node| match node.value {
                Value::List(items) => items,
                value => vec![Node { at: node.at, value }],
            });
            for source in sources {
                let Value::Map(merged) = source.value else {
                    return Err(SyntaxError::new(
                        source.at,
                        "the value of `<<` must be an object",
                    ));
                };
                for entry in merged {
                    if keys.insert(entry.key.clone()) {
                        entries.push(entry);
                    }
                }
            }
            Value::Map(entries)
        }
    };
    Ok((open.anchor, Node { at: open.at, value }))
}

fn scalar_value(text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Position) -> Result<Value> {
    match tag {
        // The tag `!` marks a string, and the values of application-specific tags are kept as strings.
        Some(tag) if !tag.is_yaml_core_schema() => Ok(Value::String(text.to_owned())),
        Some(tag) => scalar::tagged(&tag.suffix, text).ok_or_else(|| {
            SyntaxError::new(
                at,
                format!(
                    "`{text}` does not have the type of its tag `!!{}`",
                    tag.suffix
                ),
            )
        }),
        None if style == ScalarStyle::Plain => Ok(scalar::plain(text)),
        None => Ok(Value::String(text.to_owned())),
    }
}
