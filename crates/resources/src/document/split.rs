//! Splits a file at the lines that begin with `---`. In YAML such a line always ends a document, even within a string.

use super::Position;

/// Splits a file into documents, each with the number of its first line.
pub(super) fn parts(bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let mut parts = Vec::new();
    let (mut start, mut start_line) = (0, 1);
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let end = bytes[at..]
            .iter()
            .position(|&b| b == b'\n')
            .map_or(bytes.len(), |n| at + n + 1);
        if at > start && is_separator(&bytes[at..end]) && !only_preamble(&bytes[start..at]) {
            parts.push((start_line, &bytes[start..at]));
            (start, start_line) = (at, line);
        }
        (at, line) = (end, line + 1);
    }
    if start < bytes.len() {
        parts.push((start_line, &bytes[start..]));
    }
    parts
}

/// Returns the position of a byte in a part of a file.
pub(super) fn position(part: &[u8], offset: usize, first_line: u32) -> Position {
    let before = &part[..offset.min(part.len())];
    let line_start = before
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |n| n + 1);
    let lines = before.iter().filter(|&&b| b == b'\n').count();
    // Columns are counted in characters: continuation bytes of UTF-8 don't count.
    let column = before[line_start..]
        .iter()
        .filter(|&&b| b & 0xc0 != 0x80)
        .count();
    Position {
        line: first_line + number(lines),
        column: number(column) + 1,
    }
}

/// Converts a line or column number, saturating below `u32::MAX` so that 1 can be added.
pub(super) fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX - 1)
}

fn is_separator(line: &[u8]) -> bool {
    line.starts_with(b"---") && line.get(3).is_none_or(|b| b.is_ascii_whitespace())
}

/// Returns whether the text has directives, and otherwise only comments and empty lines. Directives belong to the document that follows.
fn only_preamble(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
    lines.clone().any(|line| line.starts_with(b"%"))
        && lines.all(|line| line.is_empty() || line.starts_with(b"%") || line.starts_with(b"#"))
}
