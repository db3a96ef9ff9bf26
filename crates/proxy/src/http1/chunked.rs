//! The chunked transfer coding (RFC 9112 §7.1), read without lenience.
//!
//! Chunk extensions are read past, never passed on. White space is taken only where the grammar has it: before and after the ";" of
//! an extension. Every line ends with CRLF: after sizes, after data, after the last chunk, after each trailer.

use super::body::Decoded;
use super::error::Fault;
use super::field::{Field, Fields, is_forbidden_trailer};
use super::limits::Limits;
use super::lines::{self, Search};

/// 64 bits in hexadecimal; what is longer has leading zeros or does not fit.
const MOST_DIGITS: u8 = 16;

#[derive(Debug, Clone)]
pub(super) struct Chunks {
    state: State,
    /// Bytes of extensions that no data has paid for.
    excess: u64,
    most_excess: u64,
    most_trailer_bytes: usize,
    most_trailers: usize,
    trailers: Vec<Field>,
    trailers_end: usize,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Size {
        size: u64,
        digits: u8,
    },
    /// White space after the size: an extension has to follow.
    Space {
        size: u64,
    },
    Extension {
        size: u64,
    },
    SizeLf {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    Trailers(Search),
    Done,
}

impl Chunks {
    pub(super) fn new(limits: &Limits) -> Self {
        Chunks {
            state: State::Size { size: 0, digits: 0 },
            excess: 0,
            most_excess: limits.chunk_extension_bytes as u64,
            most_trailer_bytes: limits.trailer_bytes,
            most_trailers: limits.trailers.min(Limits::MOST_FIELDS),
            trailers: Vec::new(),
            trailers_end: 0,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Decoded, Fault> {
        let mut at = 0;
        loop {
            match self.state {
                State::Data { left } => {
                    let here = bytes.len() - at;
                    if here == 0 {
                        return Ok(Decoded::More { consumed: at });
                    }
                    let length = usize::try_from(left).map_or(here, |left| left.min(here));
                    let left = left - length as u64;
                    self.state = match left {
                        0 => State::DataCr,
                        left => State::Data { left },
                    };
                    return Ok(Decoded::Data(at..at + length));
                }
                State::DataCr if bytes[at..].starts_with(b"\r\n") => {
                    self.state = State::Size { size: 0, digits: 0 };
                    at += 2;
                }
                State::Size { digits: 0, .. }
                    if let Some((size, length)) = plain_size(&bytes[at..]) =>
                {
                    self.state = self.sized(size);
                    at += length;
                }
                State::Trailers(search) => return self.take_trailers(search, bytes, at),
                State::Done => return Ok(Decoded::End { consumed: at }),
                state => {
                    let Some(byte) = bytes.get(at) else {
                        return Ok(Decoded::More { consumed: at });
                    };
                    self.state = self.step(state, *byte)?;
                    at += 1;
                }
            }
        }
    }

    /// One byte of a line.
    fn step(&mut self, state: State, byte: u8) -> Result<State, Fault> {
        Ok(match (state, byte) {
            (State::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == MOST_DIGITS {
                    return Err(Fault::BadChunkSize);
                }
                State::Size {
                    size: size << 4 | u64::from(hexadecimal(byte).ok_or(Fault::BadChunkSize)?),
                    digits: digits + 1,
                }
            }
            (State::Size { digits: 0, .. }, _) => return Err(Fault::BadChunkSize),
            (State::Size { size, .. } | State::Extension { size }, b'\r') => State::SizeLf { size },
            (State::Size { size, .. } | State::Space { size }, b';') => self.extension(size)?,
            (State::Size { size, .. } | State::Space { size }, b' ' | b'\t') => {
                self.extension(size)?;
                State::Space { size }
            }
            (State::Size { .. } | State::Space { .. }, b'\n') => return Err(Fault::BareNewline),
            (State::Size { .. } | State::Space { .. }, _) => return Err(Fault::BadChunkSize),
            (State::Extension { .. }, b'\n') => return Err(Fault::BareNewline),
            (State::Extension { size }, b'\t' | b' '..=b'~' | 0x80..) => self.extension(size)?,
            (State::Extension { .. }, _) => return Err(Fault::BadChunkExtension),
            (State::SizeLf { size }, b'\n') => self.sized(size),
            (State::SizeLf { .. }, _) => return Err(Fault::BareNewline),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { size: 0, digits: 0 },
            (State::DataCr, b'\n') | (State::DataLf, _) => return Err(Fault::BareNewline),
            // Not reached with data, trailers or the end: `advance` takes those.
            _ => return Err(Fault::BadChunkEnd),
        })
    }

    /// The line of a size has ended.
    fn sized(&mut self, size: u64) -> State {
        self.excess = self.excess.saturating_sub(size);
        match size {
            0 => State::Trailers(Search::default()),
            left => State::Data { left },
        }
    }

    fn extension(&mut self, size: u64) -> Result<State, Fault> {
        self.excess += 1;
        match self.excess > self.most_excess {
            true => Err(Fault::BadChunkExtension),
            false => Ok(State::Extension { size }),
        }
    }

    /// The trailer section stays in the buffer until its end is there.
    fn take_trailers(
        &mut self,
        mut search: Search,
        bytes: &[u8],
        at: usize,
    ) -> Result<Decoded, Fault> {
        let section = &bytes[at..];
        match section {
            [] | [b'\r'] => return Ok(Decoded::More { consumed: at }),
            [b'\r', b'\n', ..] => {
                self.state = State::Done;
                self.trailers_end = at;
                return Ok(Decoded::End { consumed: at + 2 });
            }
            [b'\r', ..] => return Err(Fault::BareNewline),
            _ => {}
        }
        let Some(length) = search.advance(section)? else {
            if section.len() > self.most_trailer_bytes {
                return Err(Fault::TrailersTooLarge);
            }
            self.state = State::Trailers(search);
            return Ok(Decoded::More { consumed: at });
        };
        if length > self.most_trailer_bytes {
            return Err(Fault::TrailersTooLarge);
        }
        let end = at + length;
        let mut room = [httparse::EMPTY_HEADER; Limits::MOST_FIELDS];
        let parsed =
            match httparse::parse_headers(&section[..length], &mut room[..self.most_trailers]) {
                Ok(httparse::Status::Complete((_, parsed))) => parsed,
                Ok(httparse::Status::Partial) => return Err(Fault::BareNewline),
                Err(httparse::Error::TooManyHeaders) => return Err(Fault::TrailersTooLarge),
                Err(error) => return Err(lines::fault(error).unwrap_or(Fault::BadFieldName)),
            };
        lines::take_fields(&bytes[..end], at, end, parsed, &mut self.trailers)?;
        for trailer in &mut self.trailers {
            trailer.named = is_forbidden_trailer(trailer.name.get(bytes));
        }
        self.trailers_end = end - 2;
        self.state = State::Done;
        Ok(Decoded::End { consumed: end })
    }

    pub(super) fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        Fields {
            bytes,
            fields: if self.is_done() { &self.trailers } else { &[] },
            end: self.trailers_end,
        }
    }
}

fn hexadecimal(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The size and the length of its line, if all of it is here and it is nothing but digits and CRLF: the way nearly all are, without a
/// state for each byte.
fn plain_size(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0;
    // A line with one digit too many ends the loop; `step` refuses it.
    for (at, byte) in bytes.iter().take(usize::from(MOST_DIGITS) + 1).enumerate() {
        match hexadecimal(*byte) {
            Some(digit) => size = size << 4 | u64::from(digit),
            None if at > 0 && bytes[at..].starts_with(b"\r\n") => return Some((size, at + 2)),
            None => return None,
        }
    }
    None
}
