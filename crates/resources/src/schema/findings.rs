//! Collects the findings about a document, with the field path of the current value.

use std::fmt::Write;

use crate::document::{Node, Position};
use crate::finding::Severity;

/// A segment of a field path.
#[derive(Clone, Copy)]
pub(crate) enum PathSegment<'a> {
    /// A field of an object.
    Field(&'a str),
    /// A key of a map with arbitrary keys.
    Key(&'a str),
    /// An item of a list.
    Index(usize),
}

/// A finding without its file.
#[derive(Debug, PartialEq)]
pub(crate) struct FieldFinding {
    pub(crate) severity: Severity,
    pub(crate) at: Position,
    pub(crate) field: String,
    pub(crate) message: String,
}

/// Findings about a document, in the order in which they are added.
#[derive(Default)]
pub(crate) struct Findings<'a> {
    path: Vec<PathSegment<'a>>,
    pub(crate) list: Vec<FieldFinding>,
}

impl<'a> Findings<'a> {
    /// Runs a validation with the segment appended to the field path.
    pub(crate) fn within(&mut self, segment: PathSegment<'a>, validate: impl FnOnce(&mut Self)) {
        self.path.push(segment);
        validate(self);
        self.path.pop();
    }

    /// Adds an error about the current value.
    pub(crate) fn error(&mut self, node: &Node, message: impl Into<String>) {
        self.error_in("", node, message);
    }

    /// Adds an error about a part of the current value. `part` is a relative path such as `.tls` or `[2].name`.
    pub(crate) fn error_in(&mut self, part: &str, node: &Node, message: impl Into<String>) {
        self.error_at(part, node.at, message);
    }

    /// Adds an error about a part of the current value, at an explicit position.
    pub(crate) fn error_at(&mut self, part: &str, at: Position, message: impl Into<String>) {
        self.add(Severity::Error, part, at, message.into());
    }

    /// Adds a warning about a part of the current value.
    pub(crate) fn warn(&mut self, part: &str, at: Position, message: impl Into<String>) {
        self.add(Severity::Warning, part, at, message.into());
    }

    fn add(&mut self, severity: Severity, part: &str, at: Position, message: String) {
        let mut field = String::new();
        for segment in &self.path {
            // Writing to a string can't fail.
            let _ = match segment {
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
