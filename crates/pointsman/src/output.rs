//! Output: colored text on a terminal, JSON and YAML for tools.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use anyhow::Result;
use pointsman_resources::text::{is_control, push_escaped};
use pointsman_resources::to_yaml;
use serde::Serialize;

use crate::cli::Format;

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

/// Terminal code that ends a style.
const RESET: &str = "\x1b[0m";

impl Style {
    const ALL: [Style; 5] = [
        Style::Bad,
        Style::Warn,
        Style::Good,
        Style::Strong,
        Style::Faint,
    ];

    /// Returns the terminal code that begins the style.
    fn code(self) -> &'static str {
        match self {
            Style::Bad => "\x1b[31m",
            Style::Warn => "\x1b[33m",
            Style::Good => "\x1b[32m",
            Style::Strong => "\x1b[1m",
            Style::Faint => "\x1b[2m",
        }
    }
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
        format!("{}{text}{RESET}", style.code())
    }
}

/// Prints a value as JSON or YAML. Text output is rendered by the caller.
pub fn structured(format: Format, value: &impl Serialize) -> Result<()> {
    let text = match format {
        Format::Yaml => to_yaml(&serde_json::to_value(value)?),
        Format::Json | Format::Text => serde_json::to_string_pretty(value)? + "\n",
    };
    write(&text)
}

/// Prints text for people.
pub fn print(text: &str) -> Result<()> {
    write(&escape_controls(text))
}

/// Replaces control characters by escapes, except line ends and the codes of [`Paint`], so that names and values of manifests can't control a terminal.
fn escape_controls(text: &str) -> Cow<'_, str> {
    let is_harmless = |letter: char| !is_control(letter) || matches!(letter, '\n' | '\t');
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for (at, letter) in text.char_indices() {
        let mut codes = Style::ALL.map(Style::code).into_iter().chain([RESET]);
        match letter {
            letter if is_harmless(letter) => escaped.push(letter),
            '\x1b' if codes.any(|code| text[at..].starts_with(code)) => escaped.push(letter),
            letter => push_escaped(&mut escaped, letter),
        }
    }
    Cow::Owned(escaped)
}

/// Writes to standard output. A closed pipe is not an error, so that the output can be piped to `head`.
fn write(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Writes a line to standard error. A failure can't be reported anywhere and is ignored.
pub fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", escape_controls(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_manifests_reach_no_terminal() {
        let styled = Paint { color: true }.paint(Style::Bad, "a");
        for (text, wanted) in [
            ("a\n\tb ü\u{202e}", "a\n\tb ü\\u{202e}"),
            (&styled, "\x1b[31ma\x1b[0m"),
            (
                "\x1b[2J\x1b]0;t\x07\x1b[8m",
                "\\x1b[2J\\x1b]0;t\\x07\\x1b[8m",
            ),
            ("a\0\r\u{7f}\u{9b}31m", "a\\x00\\x0d\\x7f\\u{9b}31m"),
        ] {
            assert_eq!(escape_controls(text), wanted);
        }
    }
}
