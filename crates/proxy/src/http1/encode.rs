//! Encoding of bodies that are sent.

use thiserror::Error;

use super::body::Framing;
use super::grammar::Version;
use super::write::{HeadWriter, WriteError, write_decimal, write_field};

/// A body that does not match its announced framing. The connection has to be closed: the peer would wait for missing bytes, or take excess bytes for
/// another message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// More bytes than Content-Length, or any where there is no body.
    #[error("more bytes than the head announced")]
    TooLong,
    /// Fewer bytes than Content-Length.
    #[error("fewer bytes than the head announced")]
    TooShort,
    /// An invalid trailer.
    #[error(transparent)]
    Trailer(#[from] WriteError),
}

/// Encodes one body: with Content-Length if the length is known, otherwise in chunks, or until the end of the connection for HTTP/1.0 clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoder {
    coding: Coding,
    /// Trailers are sent if the framing supports them.
    trailers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// No body, with the Content-Length to announce, if any.
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

    /// Creates the encoder of a response to a client of version `to`, with the backend's framing.
    pub fn response(framing: Framing, to: Version) -> Self {
        let coding = match framing {
            Framing::None => Coding::None(None),
            Framing::Length(whole) => Coding::Length { whole, left: whole },
            Framing::Chunked | Framing::UntilClose if to == Version::Http11 => Coding::Chunked,
            Framing::Chunked | Framing::UntilClose => Coding::Close,
        };
        Encoder {
            coding,
            trailers: true,
        }
    }

    /// Creates the encoder of a response that has no body but may announce its length: to HEAD, and 304. For 1xx and 204, where RFC 9110 §8.6 forbids
    /// Content-Length, use [`Framing::None`].
    pub fn bodiless(content_length: Option<u64>) -> Self {
        Encoder {
            coding: Coding::None(content_length),
            trailers: false,
        }
    }

    /// Writes the fields that announce this framing.
    pub fn announce(&self, head: &mut HeadWriter<'_>) {
        match self.coding {
            Coding::None(Some(length)) | Coding::Length { whole: length, .. } => {
                head.content_length(length)
            }
            Coding::Chunked => head.chunked(),
            Coding::None(None) | Coding::Close => {}
        }
    }

    /// Returns whether the body is delimited by the end of the connection, so that the head needs `connection: close`.
    pub fn closes(&self) -> bool {
        self.coding == Coding::Close
    }

    /// Returns whether bytes of the body are sent without framing around them.
    pub fn is_plain(&self) -> bool {
        matches!(self.coding, Coding::Length { .. } | Coding::Close)
    }

    /// Accounts for bytes of the body that were transferred without the encoder.
    pub fn record_spliced(&mut self, count: u64) -> Result<(), EncodeError> {
        if let Coding::Length { left, .. } = &mut self.coding {
            *left = left.checked_sub(count).ok_or(EncodeError::TooLong)?;
        }
        Ok(())
    }

    /// Writes the framing in front of `length` bytes of the body. The caller sends the bytes themselves, without a copy, and then
    /// [`write_suffix`](Encoder::write_suffix). Writes nothing if `length` is zero, because an empty chunk ends the body.
    pub fn write_prefix(&mut self, length: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match &mut self.coding {
            _ if length == 0 => {}
            Coding::None(_) => return Err(EncodeError::TooLong),
            Coding::Length { left, .. } => {
                *left = left
                    .checked_sub(length as u64)
                    .ok_or(EncodeError::TooLong)?;
            }
            Coding::Chunked => {
                write_hexadecimal(length as u64, out);
                out.extend_from_slice(b"\r\n");
            }
            Coding::Close => {}
        }
        Ok(())
    }

    /// Writes the framing after the bytes announced with [`write_prefix`](Encoder::write_prefix).
    pub fn write_suffix(&mut self, length: usize, out: &mut Vec<u8>) {
        if length > 0 && self.coding == Coding::Chunked {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Writes bytes of the body with their framing.
    pub fn data(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.write_prefix(data.len(), out)?;
        out.extend_from_slice(data);
        self.write_suffix(data.len(), out);
        Ok(())
    }

    /// Writes the end of the body. Trailers are dropped in requests and if the framing does not support them.
    pub fn end<'f>(
        &mut self,
        trailers: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self.coding {
            Coding::Length { left: 1.., .. } => return Err(EncodeError::TooShort),
            Coding::Chunked => {
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
        self.coding = Coding::None(None);
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
