//! Bodies: how they are framed, and taking them out of their framing.

use std::ops::Range;

use super::chunked::Chunks;
use super::error::Fault;
use super::field::Fields;
use super::limits::Limits;

/// Where a body ends (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is none.
    #[default]
    None,
    /// After so many bytes.
    Length(u64),
    /// After the last chunk and its trailers.
    Chunked,
    /// Where the connection ends. Responses only.
    UntilClose,
}

impl Framing {
    /// Whether there is nothing to read.
    pub fn is_empty(self) -> bool {
        matches!(self, Framing::None | Framing::Length(0))
    }
}

/// What [`BodyDecoder::decode`] found. The caller drops what is said to be done with from the front of its buffer before it calls
/// again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// Nothing but framing, which is done with; more bytes are needed after the rest.
    More {
        /// Bytes that are done with.
        consumed: usize,
    },
    /// Bytes of the body are here. Everything up to the end of the range is done with.
    Data(Range<usize>),
    /// The body is over. Trailers, if any, stand in what is now done with ([`BodyDecoder::trailers`]).
    End {
        /// Bytes that are done with.
        consumed: usize,
    },
}

/// Takes a body out of its framing, piece by piece, without copying.
#[derive(Debug, Clone, Default)]
pub struct BodyDecoder {
    state: State,
    failed: Option<Fault>,
    received: u64,
    most: Option<u64>,
}

#[derive(Debug, Clone, Default)]
enum State {
    #[default]
    Done,
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

impl BodyDecoder {
    /// For a body framed like this.
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        BodyDecoder {
            state: match framing {
                Framing::None => State::Done,
                Framing::Length(length) => State::Length(length),
                Framing::Chunked => State::Chunked(Chunks::new(limits)),
                Framing::UntilClose => State::UntilClose,
            },
            failed: None,
            received: 0,
            most: limits.body_bytes,
        }
    }

    /// Looks at the bytes that follow those already done with. After a fault every further call returns that fault.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Decoded, Fault> {
        if let Some(fault) = self.failed {
            return Err(fault);
        }
        let decoded = self.advance(bytes);
        self.failed = decoded.as_ref().err().copied();
        decoded
    }

    fn advance(&mut self, bytes: &[u8]) -> Result<Decoded, Fault> {
        let decoded = match &mut self.state {
            State::Done | State::Length(0) => Decoded::End { consumed: 0 },
            State::Length(_) | State::UntilClose if bytes.is_empty() => {
                Decoded::More { consumed: 0 }
            }
            State::Length(left) => {
                let length =
                    usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= length as u64;
                Decoded::Data(0..length)
            }
            State::Chunked(chunks) => chunks.advance(bytes)?,
            State::UntilClose => Decoded::Data(0..bytes.len()),
        };
        if let Decoded::Data(range) = &decoded {
            self.received += range.len() as u64;
            if self.most.is_some_and(|most| self.received > most) {
                return Err(Fault::BodyTooLarge);
            }
        }
        Ok(decoded)
    }

    /// The connection ended: whether the body may end so.
    pub fn eof(&mut self) -> Result<(), Fault> {
        match &self.state {
            State::UntilClose => self.state = State::Done,
            State::Chunked(chunks) if chunks.is_done() => {}
            State::Done | State::Length(0) => {}
            // RFC 9112 §8: "A message body that uses the chunked transfer coding is incomplete if the zero-sized chunk that
            // terminates the encoding has not been received", and one with a length if it is shorter.
            _ => self.failed = Some(Fault::IncompleteBody),
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// How many bytes of the body are still to come, where that is known.
    pub fn left(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            _ => None,
        }
    }

    /// So many bytes of a body of known length went another way than through [`decode`](Self::decode).
    pub fn skip(&mut self, count: u64) {
        if let State::Length(left) = &mut self.state {
            *left = left.saturating_sub(count);
            self.received += count;
        }
    }

    /// Whether only the end of the connection tells where the body ends.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }

    /// Whether the body is over.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Done | State::Length(0) => true,
            State::Chunked(chunks) => chunks.is_done(),
            _ => false,
        }
    }

    /// Bytes of the body so far, without framing.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The trailers, once the body is over; `bytes` are those that the last call was given.
    pub fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        match &self.state {
            State::Chunked(chunks) => chunks.trailers(bytes),
            _ => Fields {
                bytes,
                fields: &[],
                end: 0,
            },
        }
    }
}
