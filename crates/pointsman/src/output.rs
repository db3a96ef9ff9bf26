//! Printing: colour on a terminal, JSON and YAML for tools.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use serde::Serialize;

use crate::cli::Format;
use crate::yaml;

/// How a piece of text is shown on a terminal.
#[derive(Clone, Copy)]
pub enum Style {
    /// Something is refused.
    Bad,
    /// Something is surprising.
    Warn,
    /// Something is well.
    Good,
    /// A heading.
    Strong,
    /// Less important.
    Faint,
}

/// Text for people, in colour if it goes to a terminal.
pub struct Paint {
    colour: bool,
}

impl Paint {
    /// For standard output. `NO_COLOR` turns colour off.
    pub fn new() -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Paint { colour }
    }

    /// Without colour.
    pub fn plain() -> Self {
        Paint { colour: false }
    }

    /// The text in a style.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if !self.colour {
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

/// Prints a value for tools. Text is the caller's own.
pub fn structured(format: Format, value: &impl Serialize) -> Result<()> {
    let text = match format {
        Format::Yaml => yaml::to_string(&serde_json::to_value(value)?),
        Format::Json | Format::Text => serde_json::to_string_pretty(value)? + "\n",
    };
    print(&text)
}

/// Writes to standard output. A reader that has gone away, such as `head`, is no error.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Writes a line to standard error; there is nowhere to report a failure to.
pub fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
