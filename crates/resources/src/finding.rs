//! What is wrong with a document, and where.

use std::fmt;
use std::sync::Arc;

/// Something that the author of a document should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the document is refused for it.
    pub severity: Severity,
    /// The file, as its reader named it.
    pub file: Arc<str>,
    /// The line, from 1; 0 if the file could not be read at all.
    pub line: usize,
    /// The column in characters, from 1; 0 likewise.
    pub column: usize,
    /// The field, such as `spec.rules[0].matches[1].path.value`; empty for the whole document.
    pub field: String,
    /// What was found and what is allowed.
    pub message: String,
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The document is refused.
    Error,
    /// The document is read all the same.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

impl Finding {
    /// The file, with line and column where there are any.
    pub fn location(&self) -> String {
        match self.line {
            0 => self.file.to_string(),
            line => format!("{}:{line}:{}", self.file, self.column),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.location(), self.severity)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}
