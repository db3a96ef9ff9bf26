//! Output: colored text on a terminal, JSON and YAML for tools.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use serde::Serialize;

use crate::cli::Format;
use crate::yaml;

/// Style of text on a terminal.
#[derive(Clone, Copy)]
pub enum Style {
    /// An error or a problem.
    Bad,
    /// A warning.
    Warn,
    /// A success.
    Good,
    /// A heading.
    Strong,
    /// Less important.
    Faint,
}

/// Applies styles to text, unless colors are disabled.
pub struct Paint {
    color: bool,
}

impl Paint {
    /// Uses colors if standard output is a terminal and `NO_COLOR` is not set.
    pub fn new() -> Self {
        let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Paint { color }
    }

    /// Uses no colors.
    pub fn plain() -> Self {
        Paint { color: false }
    }

    /// Returns text in a style.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let code = match style {
            Style::Bad => "31",
            Style::Warn => "33",
            Style::Good => "32",
            Style::Strong => "1",
            Style::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Prints a value as JSON or YAML. Text output is rendered by the caller.
pub fn structured(format: Format, value: &impl Serialize) -> Result<()> {
    let text = match format {
        Format::Yaml => yaml::to_string(&serde_json::to_value(value)?),
        Format::Json | Format::Text => serde_json::to_string_pretty(value)? + "\n",
    };
    print(&text)
}

/// Writes to standard output. A closed pipe is not an error, so that the output can be piped to `head`.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Writes a line to standard error. A failure can't be reported anywhere and is ignored.
pub fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
