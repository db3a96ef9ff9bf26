//! Strict decoder of the chunked transfer coding (RFC 9112 §7.1).
//!
//! Chunk extensions are skipped and never forwarded. White space is accepted only where the grammar allows it: around the ";" of an extension. Every line has
//! to end with CRLF: sizes, data, the last chunk and each trailer.

use super::body::Decoded;
use super::error::MessageFault;
use super::field::{Field, Fields, is_forbidden_trailer};
use super::limits::Limits;
use super::line_endings::{self, HeadSearch};

/// Digits of a 64-bit number. A longer size has leading zeros or overflows.
const MAX_SIZE_DIGITS: u8 = 16;

#[derive(Debug, Clone)]
pub(super) struct ChunkedDecoder {
    state: ChunkState,
    /// Bytes of extensions in excess of the bytes of data so far.
    excess: u64,
    max_excess: u64,
    max_trailer_bytes: usize,
    max_trailers: usize,
    trailers: Vec<Field>,
    trailers_end: usize,
}

#[derive(Debug, Clone, Copy)]
enum ChunkState {
    Size {
        size: u64,
        digits: u8,
    },
    /// White space after the size; an extension has to follow.
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
    Trailers(HeadSearch),
    Done,
}

impl ChunkedDecoder {
    pub(super) fn new(limits: &Limits) -> Self {
        ChunkedDecoder {
            state: ChunkState::Size { size: 0, digits: 0 },
            excess: 0,
            max_excess: limits.chunk_extension_bytes as u64,
            max_trailer_bytes: limits.trailer_bytes,
            max_trailers: limits.trailers.min(Limits::MAX_FIELDS),
            trailers: Vec::new(),
            trailers_end: 0,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state, ChunkState::Done)
    }

    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Decoded, MessageFault> {
        let mut at = 0;
        loop {
            match self.state {
                ChunkState::Data { left } => {
                    let available = bytes.len() - at;
                    if available == 0 {
                        return Ok(Decoded::More { consumed: at });
                    }
                    let length =
                        usize::try_from(left).map_or(available, |left| left.min(available));
                    let left = left - length as u64;
                    self.state = match left {
                        0 => ChunkState::DataCr,
                        left => ChunkState::Data { left },
                    };
                    return Ok(Decoded::Data(at..at + length));
                }
                ChunkState::DataCr if bytes[at..].starts_with(b"\r\n") => {
                    self.state = ChunkState::Size { size: 0, digits: 0 };
                    at += 2;
                }
                ChunkState::Size { digits: 0, .. }
                    if let Some((size, length)) = plain_size(&bytes[at..]) =>
                {
                    self.state = self.after_size(size);
                    at += length;
                }
                ChunkState::Trailers(search) => return self.take_trailers(search, bytes, at),
                ChunkState::Done => return Ok(Decoded::End { consumed: at }),
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

    /// Processes one byte of a line.
    fn step(&mut self, state: ChunkState, byte: u8) -> Result<ChunkState, MessageFault> {
        Ok(match (state, byte) {
            (ChunkState::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == MAX_SIZE_DIGITS {
                    return Err(MessageFault::BadChunkSize);
                }
                ChunkState::Size {
                    size: size << 4
                        | u64::from(hexadecimal(byte).ok_or(MessageFault::BadChunkSize)?),
                    digits: digits + 1,
                }
            }
            (ChunkState::Size { digits: 0, .. }, _) => return Err(MessageFault::BadChunkSize),
            (ChunkState::Size { size, .. } | ChunkState::Extension { size }, b'\r') => {
                ChunkState::SizeLf { size }
            }
            (ChunkState::Size { size, .. } | ChunkState::Space { size }, b';') => {
                self.extension(size)?
            }
            (ChunkState::Size { size, .. } | ChunkState::Space { size }, b' ' | b'\t') => {
                self.extension(size)?;
                ChunkState::Space { size }
            }
            (ChunkState::Size { .. } | ChunkState::Space { .. }, b'\n') => {
                return Err(MessageFault::BareNewline);
            }
            (ChunkState::Size { .. } | ChunkState::Space { .. }, _) => {
                return Err(MessageFault::BadChunkSize);
            }
            (ChunkState::Extension { .. }, b'\n') => return Err(MessageFault::BareNewline),
            (ChunkState::Extension { size }, b'\t' | b' '..=b'~' | 0x80..) => {
                self.extension(size)?
            }
            (ChunkState::Extension { .. }, _) => return Err(MessageFault::BadChunkExtension),
            (ChunkState::SizeLf { size }, b'\n') => self.after_size(size),
            (ChunkState::SizeLf { .. }, _) => return Err(MessageFault::BareNewline),
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => ChunkState::Size { size: 0, digits: 0 },
            (ChunkState::DataCr, b'\n') | (ChunkState::DataLf, _) => {
                return Err(MessageFault::BareNewline);
            }
            // Unreachable: `advance` handles data, trailers and the end.
            _ => return Err(MessageFault::BadChunkEnd),
        })
    }

    /// Returns the state after a chunk's size line.
    fn after_size(&mut self, size: u64) -> ChunkState {
        self.excess = self.excess.saturating_sub(size);
        match size {
            0 => ChunkState::Trailers(HeadSearch::default()),
            left => ChunkState::Data { left },
        }
    }

    fn extension(&mut self, size: u64) -> Result<ChunkState, MessageFault> {
        self.excess += 1;
        match self.excess > self.max_excess {
            true => Err(MessageFault::BadChunkExtension),
            false => Ok(ChunkState::Extension { size }),
        }
    }

    /// Parses the trailer section, which stays in the buffer until it is complete.
    fn take_trailers(
        &mut self,
        mut search: HeadSearch,
        bytes: &[u8],
        at: usize,
    ) -> Result<Decoded, MessageFault> {
        let section = &bytes[at..];
        match section {
            [] | [b'\r'] => return Ok(Decoded::More { consumed: at }),
            [b'\r', b'\n', ..] => {
                self.state = ChunkState::Done;
                self.trailers_end = at;
                return Ok(Decoded::End { consumed: at + 2 });
            }
            [b'\r', ..] => return Err(MessageFault::BareNewline),
            _ => {}
        }
        let Some(length) = search.advance(section)? else {
            if section.len() > self.max_trailer_bytes {
                return Err(MessageFault::TrailersTooLarge);
            }
            self.state = ChunkState::Trailers(search);
            return Ok(Decoded::More { consumed: at });
        };
        if length > self.max_trailer_bytes {
            return Err(MessageFault::TrailersTooLarge);
        }
        let end = at + length;
        let mut headers = [httparse::EMPTY_HEADER; Limits::MAX_FIELDS];
        let parsed =
            match httparse::parse_headers(&section[..length], &mut headers[..self.max_trailers]) {
                Ok(httparse::Status::Complete((_, parsed))) => parsed,
                Ok(httparse::Status::Partial) => return Err(MessageFault::BareNewline),
                Err(httparse::Error::TooManyHeaders) => return Err(MessageFault::TrailersTooLarge),
                Err(error) => {
                    return Err(line_endings::fault(error).unwrap_or(MessageFault::BadFieldName));
                }
            };
        line_endings::take_fields(&bytes[..end], at, end, parsed, &mut self.trailers)?;
        for trailer in &mut self.trailers {
            trailer.connection_option = is_forbidden_trailer(trailer.name.get(bytes));
        }
        self.trailers_end = end - 2;
        self.state = ChunkState::Done;
        Ok(Decoded::End { consumed: end })
    }

    pub(super) fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        Fields {
            bytes,
            fields: if self.is_complete() {
                &self.trailers
            } else {
                &[]
            },
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

/// Parses a complete size line without extensions. Returns the size and the length of the line. This is the fast path of nearly all chunks.
fn plain_size(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0;
    // `step` rejects a line with too many digits.
    for (at, byte) in bytes
        .iter()
        .take(usize::from(MAX_SIZE_DIGITS) + 1)
        .enumerate()
    {
        match hexadecimal(*byte) {
            Some(digit) => size = size << 4 | u64::from(digit),
            None if at > 0 && bytes[at..].starts_with(b"\r\n") => return Some((size, at + 2)),
            None => return None,
        }
    }
    None
}
