//! Framing of our own for the bodies that go out.

use thiserror::Error;

use super::body::Framing;
use super::grammar::Version;
use super::write::{HeadWriter, WriteError, write_decimal, write_field};

/// A body that does not fit the framing that its head announced. The connection has to be closed: the peer waits for bytes that won't
/// come, or would take those in excess for another message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// More bytes than Content-Length says, or bytes where there is no body.
    #[error("more bytes than the head announced")]
    TooLong,
    /// Fewer bytes than Content-Length says.
    #[error("fewer bytes than the head announced")]
    TooShort,
    /// A trailer that can't be written.
    #[error(transparent)]
    Trailer(#[from] WriteError),
}

/// Frames one body: a length that is known stays, anything else becomes chunks, and a peer of HTTP/1.0 gets bytes until the end of the
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoder {
    kind: Kind,
    /// Trailers are sent, where the framing has a place for them.
    trailers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No body; the length that it would have, if the head is to say so.
    None(Option<u64>),
    Length {
        whole: u64,
        left: u64,
    },
    Chunked,
    Close,
}

impl Encoder {
    /// Creates the encoder of a request to an HTTP/1.1 backend, with the client's framing. It drops trailers: some origins merge them into the header
    /// section of this request or of the next one on the connection, others take them for a request. RFC 9112 §7.1.2: "A recipient that removes the
    /// chunked coding from a message MAY selectively retain or discard the received trailer fields."
    pub fn request(framing: Framing) -> Self {
        Encoder {
            trailers: false,
            ..Encoder::response(framing, Version::Http11)
        }
    }

    /// For a response to a client of this version, with the backend's framing.
    pub fn response(framing: Framing, to: Version) -> Self {
        let kind = match framing {
            Framing::None => Kind::None(None),
            Framing::Length(whole) => Kind::Length { whole, left: whole },
            Framing::Chunked | Framing::UntilClose if to == Version::Http11 => Kind::Chunked,
            Framing::Chunked | Framing::UntilClose => Kind::Close,
        };
        Encoder {
            kind,
            trailers: true,
        }
    }

    /// For a response without a body whose head may still say how long one would be: to HEAD, and 304. Not for 1xx and 204, which RFC 9110
    /// §8.6 forbids to: those are [`Framing::None`].
    pub fn bodiless(content_length: Option<u64>) -> Self {
        Encoder {
            kind: Kind::None(content_length),
            trailers: false,
        }
    }

    /// Writes the fields that announce this framing.
    pub fn announce(&self, head: &mut HeadWriter<'_>) {
        match self.kind {
            Kind::None(Some(length)) | Kind::Length { whole: length, .. } => {
                head.content_length(length)
            }
            Kind::Chunked => head.chunked(),
            Kind::None(None) | Kind::Close => {}
        }
    }

    /// Whether only the end of the connection ends the body; the head says `connection: close` then.
    pub fn closes(&self) -> bool {
        self.kind == Kind::Close
    }

    /// Whether trailers can be sent.
    pub fn carries_trailers(&self) -> bool {
        self.trailers && self.kind == Kind::Chunked
    }

    /// Whether bytes of the body need nothing around them.
    pub fn is_plain(&self) -> bool {
        matches!(self.kind, Kind::Length { .. } | Kind::Close)
    }

    /// So many bytes of the body were written another way.
    pub fn skip(&mut self, count: u64) -> Result<(), EncodeError> {
        if let Kind::Length { left, .. } = &mut self.kind {
            *left = left.checked_sub(count).ok_or(EncodeError::TooLong)?;
        }
        Ok(())
    }

    /// Writes what stands before `length` bytes of the body, which the caller sends next, followed by [`Encoder::after`]. So the bytes
    /// themselves need no copy. Nothing is to be written for no bytes: an empty chunk would end the body.
    pub fn before(&mut self, length: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match &mut self.kind {
            _ if length == 0 => {}
            Kind::None(_) => return Err(EncodeError::TooLong),
            Kind::Length { left, .. } => {
                *left = left
                    .checked_sub(length as u64)
                    .ok_or(EncodeError::TooLong)?;
            }
            Kind::Chunked => {
                write_hexadecimal(length as u64, out);
                out.extend_from_slice(b"\r\n");
            }
            Kind::Close => {}
        }
        Ok(())
    }

    /// Writes what stands after the bytes that [`Encoder::before`] announced.
    pub fn after(&mut self, length: usize, out: &mut Vec<u8>) {
        if length > 0 && self.kind == Kind::Chunked {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Writes bytes of the body with what stands around them.
    pub fn data(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.before(data.len(), out)?;
        out.extend_from_slice(data);
        self.after(data.len(), out);
        Ok(())
    }

    /// Writes the end of the body. Trailers of requests are dropped, and those for which the framing has no place.
    pub fn end<'f>(
        &mut self,
        trailers: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self.kind {
            Kind::Length { left: 1.., .. } => return Err(EncodeError::TooShort),
            Kind::Chunked => {
                let start = out.len();
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().take_while(|_| self.trailers) {
                    if let Err(error) = write_field(name, value, out) {
                        out.truncate(start);
                        return Err(error.into());
                    }
                }
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
        self.kind = Kind::None(None);
        Ok(())
    }
}

impl HeadWriter<'_> {
    /// Writes `content-length`.
    fn content_length(&mut self, length: u64) {
        let out = self.raw();
        out.extend_from_slice(b"content-length: ");
        write_decimal(length, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes `transfer-encoding: chunked`.
    fn chunked(&mut self) {
        self.raw()
            .extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
}

fn write_hexadecimal(number: u64, out: &mut Vec<u8>) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for at in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(number >> (4 * at)) as usize & 15]);
    }
}
