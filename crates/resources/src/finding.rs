//! Errors and warnings about a document.

use std::fmt;
use std::sync::Arc;

use crate::text::single_line;

/// An error or warning about a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    #[allow(missing_docs, reason = "documented by its type")]
    pub severity: Severity,
    /// The file name that was passed to the reader.
    pub file: Arc<str>,
    /// Line number, from 1; 0 if the finding is about the whole file, for example because it can't be read.
    pub line: usize,
    /// Column in characters, from 1; 0 if the finding is about the whole file.
    pub column: usize,
    /// Path of the field, such as `spec.rules[0].matches[1].path.value`; empty if the finding is about the whole document.
    pub field: String,
    /// The value that was found, and the values that are allowed.
    pub message: String,
}

/// Effect of a [`Finding`] on its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The document is rejected.
    Error,
    /// The document is accepted.
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
    /// Formats field and message as one line, regardless of the values in them.
    pub fn text(&self) -> String {
        let message = single_line(&self.message);
        match self.field.as_str() {
            "" => message.into_owned(),
            field => format!("{}: {message}", single_line(field)),
        }
    }

    /// Formats the position as `file:line:column`, or only the file name if the finding is about the whole file.
    pub fn location(&self) -> String {
        match self.line {
            0 => self.file.to_string(),
            line => format!("{}:{line}:{}", self.file, self.column),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.severity, self.location())?;
        f.write_str(&self.text())
    }
}
