//! Finding the end of a head that arrives in pieces, and closing the holes that `httparse` leaves.
//!
//! A head is parsed at most twice, whatever the size of its pieces: once on the first bytes, where most heads are already whole, and
//! once when [`Search`] has seen its end. In between each byte is looked at once.

use memchr::memchr_iter;

use super::error::Fault;
use super::field::{Field, Known, Span};

/// How far the end of a head or of a trailer section was looked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Search {
    searched: usize,
    /// Where the first line ended.
    first_line: Option<usize>,
}

impl Search {
    /// Looks through the bytes that came since the last call. Returns where the empty line ends, if it is there.
    ///
    /// RFC 9112 §2.2 lets a recipient take a lone LF for a line's end. Two readers that differ in this see two different messages, so
    /// here each LF must follow a CR.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let from = self.searched;
        for at in memchr_iter(b'\n', &bytes[from..]) {
            let end = from + at + 1;
            let line = &bytes[..end];
            if !line.ends_with(b"\r\n") {
                return Err(Fault::BareNewline);
            }
            self.first_line.get_or_insert(end);
            if line.ends_with(b"\r\n\r\n") || end == 2 {
                return Ok(Some(end));
            }
        }
        self.searched = bytes.len();
        Ok(None)
    }

    /// Where the first line ended, if it did.
    pub(super) fn first_line(&self) -> Option<usize> {
        self.first_line
    }
}

/// Takes over what `httparse` found: `first` is where the first field's line begins, `end` where the section ends, its empty line
/// included. How the line before it ends is the caller's to check.
///
/// `httparse` takes a lone LF for a line's end. Every line is checked here to end with CRLF and to hold nothing beside its field.
pub(super) fn take_fields(
    bytes: &[u8],
    first: usize,
    end: usize,
    parsed: &[httparse::Header<'_>],
    fields: &mut Vec<Field>,
) -> Result<(), Fault> {
    let last_line = end - 2;
    let mut line = first;
    if !bytes[..end].ends_with(b"\r\n") {
        return Err(Fault::BareNewline);
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
            return Err(Fault::BareNewline);
        };
        let line_end = line + content.len();
        let value = if header.value.is_empty() {
            Span::new(line_end, line_end)
        } else {
            Span::of(header.value, bytes)
        };
        let rest = &bytes[value.end as usize..line_end];
        if name.start as usize != line || !rest.iter().all(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(Fault::BareNewline);
        }
        fields.push(Field {
            name,
            value,
            known: Known::of(header.name.as_bytes()),
            named: false,
        });
        line = next;
    }
    if line != last_line {
        return Err(Fault::BareNewline);
    }
    Ok(())
}

/// What an error of `httparse` among the fields means.
pub(super) fn fault(error: httparse::Error) -> Option<Fault> {
    match error {
        httparse::Error::HeaderName => Some(Fault::BadFieldName),
        httparse::Error::HeaderValue => Some(Fault::BadFieldValue),
        httparse::Error::NewLine => Some(Fault::BareNewline),
        httparse::Error::TooManyHeaders => Some(Fault::TooManyFields),
        _ => None,
    }
}
