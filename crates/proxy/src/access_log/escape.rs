//! What came from elsewhere, made harmless: no line can be forged, no terminal told what to do.

use std::io::Write;

/// For a line of text: printable ASCII stays; spaces, quotes, backslashes and all else are written `\xNN`, so that a value is one word.
pub(crate) fn escape_text(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.is_empty() {
        // A column is never empty.
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
    // A vector can be written to.
    let _ = write!(out, "\\x{byte:02x}");
}

/// For a JSON string. What is not UTF-8 becomes U+FFFD.
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
