//! Search for the end of a head that arrives in pieces, and strict checks of line endings, which `httparse` lacks.
//!
//! A head is parsed at most twice, whatever the size of its pieces: once with the first bytes, when most heads are already complete, and once after
//! [`HeadSearch`] has found its end. In between each byte is scanned once.

use memchr::memchr_iter;

use super::error::MessageFault;
use super::field::{Field, KnownField, Span};

/// Incremental search for the end of a head or trailer section.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeadSearch {
    searched: usize,
    /// End of the first line.
    first_line: Option<usize>,
}

impl HeadSearch {
    /// Scans the bytes added since the last call. Returns the end of the empty line, if found.
    ///
    /// RFC 9112 §2.2 allows a recipient to accept a lone LF as a line ending. Recipients that differ in this see different messages, so each LF has to
    /// follow a CR here.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, MessageFault> {
        let from = self.searched;
        for at in memchr_iter(b'\n', &bytes[from..]) {
            let end = from + at + 1;
            let line = &bytes[..end];
            if !line.ends_with(b"\r\n") {
                return Err(MessageFault::BareNewline);
            }
            self.first_line.get_or_insert(end);
            if line.ends_with(b"\r\n\r\n") || end == 2 {
                return Ok(Some(end));
            }
        }
        self.searched = bytes.len();
        Ok(None)
    }

    /// Returns the end of the first line, if found.
    pub(super) fn first_line(&self) -> Option<usize> {
        self.first_line
    }
}

/// Converts the fields found by `httparse`. `first` is the start of the first field's line, `end` the end of the section with its empty line. The caller
/// checks the end of the line before the section.
///
/// `httparse` accepts a lone LF as a line ending. This function checks that every line ends with CRLF and contains nothing but its field.
pub(super) fn take_fields(
    bytes: &[u8],
    first: usize,
    end: usize,
    parsed: &[httparse::Header<'_>],
    fields: &mut Vec<Field>,
) -> Result<(), MessageFault> {
    let last_line = end - 2;
    let mut line = first;
    if !bytes[..end].ends_with(b"\r\n") {
        return Err(MessageFault::BareNewline);
    }
    fields.clear();
    fields.reserve(parsed.len());
    for (at, header) in parsed.iter().enumerate() {
        let name = Span::of(header.name.as_bytes(), bytes);
        let next = match parsed.get(at + 1) {
            Some(next) => Span::of(next.name.as_bytes(), bytes).start as usize,
            None => last_line,
        };
        let content = &bytes[line..next];
        let Some(content) = content.strip_suffix(b"\r\n") else {
            return Err(MessageFault::BareNewline);
        };
        let line_end = line + content.len();
        let value = if header.value.is_empty() {
            Span::new(line_end, line_end)
        } else {
            Span::of(header.value, bytes)
        };
        let rest = &bytes[value.end as usize..line_end];
        if name.start as usize != line || !rest.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(MessageFault::BareNewline);
        }
        fields.push(Field {
            name,
            value,
            known: KnownField::of(header.name.as_bytes()),
            connection_option: false,
        });
        line = next;
    }
    if line != last_line {
        return Err(MessageFault::BareNewline);
    }
    Ok(())
}

/// Converts an error of `httparse` within the fields.
pub(super) fn fault(error: httparse::Error) -> Option<MessageFault> {
    match error {
        httparse::Error::HeaderName => Some(MessageFault::BadFieldName),
        httparse::Error::HeaderValue => Some(MessageFault::BadFieldValue),
        httparse::Error::NewLine => Some(MessageFault::BareNewline),
        httparse::Error::TooManyHeaders => Some(MessageFault::TooManyFields),
        _ => None,
    }
}
