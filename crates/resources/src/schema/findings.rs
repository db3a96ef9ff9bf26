//! Where findings about one document are gathered: the path to the value at hand, and what was said so far.

use std::fmt::Write;

use crate::document::{Node, Position};
use crate::finding::Severity;

/// A step from a value to one of its parts.
#[derive(Clone, Copy)]
pub(crate) enum PathSegment<'a> {
    /// A field of an object.
    Field(&'a str),
    /// A key of a map, where any key may stand.
    Key(&'a str),
    /// An item of a list.
    Index(usize),
}

/// A finding before it is known which file it belongs to.
#[derive(Debug, PartialEq)]
pub(crate) struct FieldFinding {
    pub(crate) severity: Severity,
    pub(crate) at: Position,
    pub(crate) field: String,
    pub(crate) message: String,
}

/// What is found while a document is checked.
#[derive(Default)]
pub(crate) struct Findings<'a> {
    path: Vec<PathSegment<'a>>,
    pub(crate) list: Vec<FieldFinding>,
}

impl<'a> Findings<'a> {
    /// Checks a part of the value at hand.
    pub(crate) fn within(&mut self, step: PathSegment<'a>, check: impl FnOnce(&mut Self)) {
        self.path.push(step);
        check(self);
        self.path.pop();
    }

    /// Refuses the value at hand.
    pub(crate) fn error(&mut self, node: &Node, message: impl Into<String>) {
        self.error_in("", node, message);
    }

    /// Refuses a part of the value at hand; `part` is a path such as `.tls` or `[2].name`.
    pub(crate) fn error_in(&mut self, part: &str, node: &Node, message: impl Into<String>) {
        self.error_at(part, node.at, message);
    }

    /// Refuses a part of the value at hand that stands at this place.
    pub(crate) fn error_at(&mut self, part: &str, at: Position, message: impl Into<String>) {
        self.add(Severity::Error, part, at, message.into());
    }

    /// Warns about a part of the value at hand.
    pub(crate) fn warn(&mut self, part: &str, at: Position, message: impl Into<String>) {
        self.add(Severity::Warning, part, at, message.into());
    }

    fn add(&mut self, severity: Severity, part: &str, at: Position, message: String) {
        let mut field = String::new();
        for step in &self.path {
            // Writing to a string can't fail.
            let _ = match step {
                PathSegment::Field(name) if field.is_empty() => write!(field, "{name}"),
                PathSegment::Field(name) => write!(field, ".{name}"),
                PathSegment::Key(key) => write!(field, "[{key}]"),
                PathSegment::Index(index) => write!(field, "[{index}]"),
            };
        }
        field.push_str(part);
        let field = field.strip_prefix('.').map(str::to_owned).unwrap_or(field);
        self.list.push(FieldFinding {
            severity,
            at,
            field,
            message,
        });
    }
}
