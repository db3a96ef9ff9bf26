//! Writing of heads. Values that would end a line early are rejected, wherever they come from.

use thiserror::Error;

use super::field::{Field, Fields};
use super::grammar::{Version, is_token, standard_reason};

/// An invalid part of a head. Nothing of the head is left in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WriteError {
    /// Not a token.
    #[error("the method is not a token")]
    Method,
    /// Empty, or containing white space, control characters or bytes outside ASCII.
    #[error("the target contains characters that are invalid in a request line")]
    Target,
    /// Not three digits from 100.
    #[error("the status is not three digits from 100")]
    Status,
    /// Not a token.
    #[error("a field name is not a token")]
    Name,
    /// Contains CR, LF or NUL.
    #[error("a field value contains CR, LF or NUL")]
    Value,
}

/// Writes a head at the end of a buffer. The written part is removed if the writer is dropped without [`HeadWriter::finish`].
#[derive(Debug)]
pub struct HeadWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    finished: bool,
}

impl<'o> HeadWriter<'o> {
    /// Starts a request.
    pub fn request(
        out: &'o mut Vec<u8>,
        method: &[u8],
        target: &[u8],
        version: Version,
    ) -> Result<Self, WriteError> {
        if !is_token(method) {
            return Err(WriteError::Method);
        }
        if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
            return Err(WriteError::Target);
        }
        let start = out.len();
        for part in [method, b" ", target, b" ", version.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
        Ok(HeadWriter {
            out,
            start,
            finished: false,
        })
    }

    /// Starts an HTTP/1.1 request for a path and an optional query.
    pub fn request_with_query(
        out: &'o mut Vec<u8>,
        method: &[u8],
        path: &[u8],
        query: Option<&[u8]>,
    ) -> Result<Self, WriteError> {
        let query = query.map(|query| query.iter().all(u8::is_ascii_graphic).then_some(query));
        let query = match query {
            Some(None) => return Err(WriteError::Target),
            Some(Some(query)) => [b"?", query],
            None => [b"", &b""[..]],
        };
        if !is_token(method) {
            return Err(WriteError::Method);
        }
        if path.is_empty() || !path.iter().all(u8::is_ascii_graphic) {
            return Err(WriteError::Target);
        }
        let start = out.len();
        for part in [method, b" ", path, query[0], query[1], b" HTTP/1.1\r\n"] {
            out.extend_from_slice(part);
        }
        Ok(HeadWriter {
            out,
            start,
            finished: false,
        })
    }

    /// Starts a response, always of HTTP/1.1 (RFC 9110 §6.2: a server sends its own version), with the standard reason phrase if none is given.
    pub fn response(
        out: &'o mut Vec<u8>,
        status: u16,
        reason: Option<&[u8]>,
    ) -> Result<Self, WriteError> {
        if !(100..1000).contains(&status) {
            return Err(WriteError::Status);
        }
        let reason = reason.unwrap_or_else(|| standard_reason(status).as_bytes());
        check_value(reason)?;
        let start = out.len();
        out.extend_from_slice(b"HTTP/1.1 ");
        write_decimal(status.into(), out);
        out.push(b' ');
        out.extend_from_slice(reason);
        out.extend_from_slice(b"\r\n");
        Ok(HeadWriter {
            out,
            start,
            finished: false,
        })
    }

    /// Writes a field. The head must not be finished after an error.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), WriteError> {
        write_field(name, value, self.out)
    }

    /// Writes a field whose name and value a parser has validated.
    pub(crate) fn validated_field(&mut self, name: &[u8], value: &[u8]) {
        append_field(name, value, self.out);
    }

    /// Writes fields.
    pub fn fields<'f>(
        &mut self,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Result<(), WriteError> {
        fields
            .into_iter()
            .try_for_each(|(name, value)| self.field(name, value))
    }

    /// Copies the fields of a parsed head for which `keep` returns true, except those that [`Fields::forwarded`] omits. Consecutive lines are copied at once,
    /// without validating them again.
    pub fn forward(&mut self, fields: &Fields<'_>, mut keep: impl FnMut(&Field) -> bool) {
        let entries = fields.entries();
        let mut from = 0;
        for (at, field) in entries.iter().enumerate() {
            if !field.is_forwarded() || !keep(field) {
                self.out.extend_from_slice(fields.lines(from, at));
                from = at + 1;
            }
        }
        self.out
            .extend_from_slice(fields.lines(from, entries.len()));
    }

    /// Ends the head. Returns its length.
    pub fn finish(mut self) -> usize {
        self.out.extend_from_slice(b"\r\n");
        self.finished = true;
        self.out.len() - self.start
    }

    pub(super) fn raw(&mut self) -> &mut Vec<u8> {
        self.out
    }
}

impl Drop for HeadWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}

pub(super) fn write_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), WriteError> {
    if !is_token(name) {
        return Err(WriteError::Name);
    }
    check_value(value)?;
    append_field(name, value, out);
    Ok(())
}

fn append_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.reserve(name.len() + value.len() + 4);
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Checks a field value. RFC 9110 §5.5: "Field values containing CR, LF, or NUL characters are invalid and dangerous".
fn check_value(value: &[u8]) -> Result<(), WriteError> {
    match memchr::memchr3(b'\r', b'\n', 0, value) {
        None => Ok(()),
        Some(_) => Err(WriteError::Value),
    }
}

pub(super) fn write_decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
