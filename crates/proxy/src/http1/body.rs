//! Framing and decoding of bodies.

use std::ops::Range;

use super::chunked::ChunkedDecoder;
use super::error::MessageFault;
use super::field::Fields;
use super::limits::Limits;

/// Framing of a body (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// No body.
    #[default]
    None,
    /// A body of known length.
    Length(u64),
    /// Chunks, optionally followed by trailers.
    Chunked,
    /// Until the end of the connection. Responses only.
    UntilClose,
}

impl Framing {
    /// Returns whether the body is known to be empty.
    pub fn is_empty(self) -> bool {
        matches!(self, Framing::None | Framing::Length(0))
    }
}

/// Result of [`BodyDecoder::decode`]. Before the next call, the caller drops the consumed bytes from the front of its buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// Only framing was found; more bytes are needed.
    More {
        /// Number of consumed bytes.
        consumed: usize,
    },
    /// Bytes of the body. Everything up to the end of the range is consumed.
    Data(Range<usize>),
    /// The body is complete. Trailers, if any, are among the consumed bytes ([`BodyDecoder::trailers`]).
    End {
        /// Number of consumed bytes.
        consumed: usize,
    },
}

/// Decodes a body incrementally, without copying.
#[derive(Debug, Clone, Default)]
pub struct BodyDecoder {
    state: DecoderState,
    failed: Option<MessageFault>,
    received: u64,
    max_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default)]
enum DecoderState {
    #[default]
    Done,
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

impl BodyDecoder {
    /// Creates the decoder of a body with this framing.
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        BodyDecoder {
            state: match framing {
                Framing::None => DecoderState::Done,
                Framing::Length(length) => DecoderState::Length(length),
                Framing::Chunked => DecoderState::Chunked(ChunkedDecoder::new(limits)),
                Framing::UntilClose => DecoderState::UntilClose,
            },
            failed: None,
            received: 0,
            max_bytes: limits.body_bytes,
        }
    }

    /// Decodes the bytes that follow those already consumed. After a fault, every further call returns it again.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Decoded, MessageFault> {
        if let Some(fault) = self.failed {
            return Err(fault);
        }
        let decoded = self.advance(bytes);
        self.failed = decoded.as_ref().err().copied();
        decoded
    }

    fn advance(&mut self, bytes: &[u8]) -> Result<Decoded, MessageFault> {
        let decoded = match &mut self.state {
            DecoderState::Done | DecoderState::Length(0) => Decoded::End { consumed: 0 },
            DecoderState::Length(_) | DecoderState::UntilClose if bytes.is_empty() => {
                Decoded::More { consumed: 0 }
            }
            DecoderState::Length(left) => {
                let length =
                    usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= length as u64;
                Decoded::Data(0..length)
            }
            DecoderState::Chunked(chunks) => chunks.advance(bytes)?,
            DecoderState::UntilClose => Decoded::Data(0..bytes.len()),
        };
        if let Decoded::Data(range) = &decoded {
            self.received += range.len() as u64;
            if self
                .max_bytes
                .is_some_and(|max_bytes| self.received > max_bytes)
            {
                return Err(MessageFault::BodyTooLarge);
            }
        }
        Ok(decoded)
    }

    /// Handles the end of the connection. Fails if the body is incomplete.
    pub fn eof(&mut self) -> Result<(), MessageFault> {
        match &self.state {
            DecoderState::UntilClose => self.state = DecoderState::Done,
            DecoderState::Chunked(chunks) if chunks.is_complete() => {}
            DecoderState::Done | DecoderState::Length(0) => {}
            // RFC 9112 §8: "A message body that uses the chunked transfer coding is incomplete if the zero-sized chunk that
            // terminates the encoding has not been received", and one with a length if it is shorter.
            _ => self.failed = Some(MessageFault::IncompleteBody),
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// Returns the number of remaining bytes of a body of known length.
    pub fn left(&self) -> Option<u64> {
        match self.state {
            DecoderState::Length(left) => Some(left),
            _ => None,
        }
    }

    /// Accounts for bytes of a body of known length that were transferred without [`decode`](Self::decode).
    pub fn record_spliced(&mut self, count: u64) {
        if let DecoderState::Length(left) = &mut self.state {
            *left = left.saturating_sub(count);
            self.received += count;
        }
    }

    /// Returns whether the body is delimited by the end of the connection.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.state, DecoderState::UntilClose)
    }

    /// Returns whether the body is complete.
    pub fn is_complete(&self) -> bool {
        match &self.state {
            DecoderState::Done | DecoderState::Length(0) => true,
            DecoderState::Chunked(chunks) => chunks.is_complete(),
            _ => false,
        }
    }

    /// Returns the number of body bytes so far, without framing.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the trailers, once the body is complete. `bytes` are those of the last call to `decode`.
    pub fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        match &self.state {
            DecoderState::Chunked(chunks) => chunks.trailers(bytes),
            _ => Fields {
                bytes,
                fields: &[],
                end: 0,
            },
        }
    }
}
