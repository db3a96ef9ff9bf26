//! YAML events to trees, without recursion: open collections lie on a stack.

use std::collections::HashSet;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{MAX_ALIASED, MAX_DEPTH, MapEntry, Node, Position, SyntaxError, Value, scalar, split};

type Result<T> = std::result::Result<T, SyntaxError>;

/// Reads all documents of a text; at the first error its document ends and so does the reading.
pub(super) fn parse(text: &str, first_line: u32, documents: &mut Vec<Result<Node>>) {
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::default();
    let place = |mark: &saphyr_parser::Marker| Position {
        line: first_line + split::number(mark.line().saturating_sub(1)),
        column: split::number(mark.col()) + 1,
    };
    while let Some(event) = parser.next_event() {
        let step = match event {
            Ok((Event::StreamEnd, _)) => return,
            Ok((event, Span { start, .. })) => builder.take(event, place(&start)),
            Err(error) => Err(SyntaxError::new(place(error.marker()), said(error.info()))),
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

/// What the parser says, with a hint where people who mean a hostname such as `*.example.com` end up.
fn said(info: &str) -> String {
    match info.contains("unknown anchor") {
        true => format!("{info}; a text that begins with `*` needs quotes"),
        false => info.to_owned(),
    }
}

/// A collection whose end has not been seen.
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
    /// How many nodes were copied.
    aliased: usize,
    root: Option<Node>,
}

impl Builder {
    /// Takes one event; gives the document when it is complete.
    fn take(&mut self, event: Event<'_>, at: Position) -> Result<Option<Node>> {
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
                self.remember(anchor, &node)?;
                if self.wants_key() {
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
                    self.remember(anchor, &node)?;
                    self.add(node)?;
                }
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd => {}
        }
        Ok(None)
    }

    fn push(&mut self, open: OpenCollection) -> Result<()> {
        if self.wants_key() {
            return Err(SyntaxError::new(
                open.at,
                "a list or an object can't be a key",
            ));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(SyntaxError::new(
                open.at,
                "the document is nested too deeply",
            ));
        }
        self.open.push(open);
        Ok(())
    }

    fn wants_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(OpenCollection {
                kind: CollectionKind::Map { key: None, .. },
                ..
            })
        )
    }

    fn remember(&mut self, anchor: usize, node: &Node) -> Result<()> {
        if anchor > 0 {
            self.count(node)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(())
    }

    /// Copies of nodes are paid for, whether they are kept for aliases or stand in their place.
    fn count(&mut self, node: &Node) -> Result<()> {
        self.aliased += node.size();
        if self.aliased > MAX_ALIASED {
            return Err(SyntaxError::new(
                node.at,
                "anchors and aliases expand to too much",
            ));
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<Node> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(SyntaxError::new(
                at,
                "the alias stands within what it names",
            ));
        };
        if self.open.len() + node.depth() > MAX_DEPTH {
            return Err(SyntaxError::new(at, "the document is nested too deeply"));
        }
        let node = Node {
            at,
            value: node.value.clone(),
        };
        self.count(&node)?;
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
        // A key is a string, as it is in JSON: kubectl writes `on:` as `"true":`.
        let name = match node.value {
            Value::String(text) => text,
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            _ => return Err(SyntaxError::new(node.at, "a key can't be null")),
        };
        if !merge && !keys.insert(name.clone()) {
            return Err(SyntaxError::new(
                node.at,
                format!("the key `{name}` stands here twice"),
            ));
        }
        *key = Some((if merge { MERGE.to_owned() } else { name }, node.at));
        Ok(())
    }

    /// Puts a finished node into what is open.
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

/// Stands for the key `<<`; NUL can't be in a YAML text.
const MERGE: &str = "\0<<";

/// The node of a collection that has ended, with its merge keys carried out: what is written wins over what is merged,
/// and what is merged first over what is merged later.
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
                    return Err(SyntaxError::new(source.at, "`<<` merges objects only"));
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
        // `!` alone says that the text is meant as it stands, and of a foreign tag nobody knows better.
        Some(tag) if !tag.is_yaml_core_schema() => Ok(Value::String(text.to_owned())),
        Some(tag) => scalar::tagged(&tag.suffix, text).ok_or_else(|| {
            SyntaxError::new(
                at,
                format!("`{text}` is not what its tag `!!{}` says", tag.suffix),
            )
        }),
        None if style == ScalarStyle::Plain => Ok(scalar::plain(text)),
        None => Ok(Value::String(text.to_owned())),
    }
}
