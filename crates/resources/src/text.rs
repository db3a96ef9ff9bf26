//! Untrusted text in messages: it can't break out of its line or control a terminal.

use std::borrow::Cow;
use std::fmt::Write;

use serde::{Deserialize, Deserializer};

/// Returns whether a character is a control character, or changes the direction in which the text around it is displayed.
pub fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// Replaces control characters by escapes, line ends included.
pub fn single_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        push_escaped(&mut escaped, letter);
    }
    Cow::Owned(escaped)
}

/// Returns a number with a noun, which is in the plural unless the number is 1.
pub fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Appends a character, or its escape if it is a control character.
pub fn push_escaped(text: &mut String, letter: char) {
    // Writing to a string never fails.
    let _ = match letter {
        '\n' => write!(text, "\\n"),
        '\t' => write!(text, "\\t"),
        letter if !is_control(letter) => write!(text, "{letter}"),
        letter if letter.is_ascii() => write!(text, "\\x{:02x}", u32::from(letter)),
        letter => write!(text, "\\u{{{:x}}}", u32::from(letter)),
    };
}

/// Deserializes the name in a reference. The API server accepts any text there, and messages and suggested manifests repeat it. No object has a name with
/// control characters, so removing them does not make the reference resolve.
pub(crate) fn reference_name<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let name = String::deserialize(d)?;
    Ok(match name.contains(is_control) {
        true => name.replace(is_control, "\u{fffd}"),
        false => name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_text_is_not() {
        assert_eq!(single_line("a ü `b`"), "a ü `b`");
        assert_eq!(single_line("a\n::error::\tb\0"), "a\\n::error::\\tb\\x00");
        assert_eq!(single_line("\u{202e}c\u{9b}"), "\\u{202e}c\\u{9b}");
    }
}
