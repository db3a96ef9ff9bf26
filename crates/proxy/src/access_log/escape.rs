//! Escaping of untrusted values, against forged log entries and terminal escape sequences.

use std::io::Write;

/// Escapes a value for the text format: printable ASCII stays; spaces, quotes, backslashes and everything else become `\xNN`, so that a value is one word.
pub(crate) fn escape_text(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.is_empty() {
        // A column must not be empty.
        out.extend_from_slice(b"\"\"");
    }
    for byte in bytes {
        match byte {
            b'"' | b'\\' => push_hex(*byte, out),
            b'!'..=b'~' => out.push(*byte),
            _ => push_hex(*byte, out),
        }
    }
}

fn push_hex(byte: u8, out: &mut Vec<u8>) {
    // Writing to a vector can't fail.
    let _ = write!(out, "\\x{byte:02x}");
}

/// Escapes a value for a JSON string. Invalid UTF-8 becomes U+FFFD.
pub(crate) fn escape_json(bytes: &[u8], out: &mut Vec<u8>) {
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            ' '..='~' => out.push(c as u8),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}
