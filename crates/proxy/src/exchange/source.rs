//! A body that comes in, from a client or from a backend, over either version of HTTP.
//!
//! It is read piece by piece: [`Source::poll_ready`] says whether there is a piece, [`Source::piece`] shows it, [`Source::advance`] is done with it. A body is never
//! read further than one piece ahead of its reader.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::http2::source as http2;
use crate::http1::{BodyDecoder, Decoded, Fault, Fields, Framing, Limits};
use crate::wire::buffer::Buffer;
use crate::wire::io::Reader;

/// Why a body did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// It was framed wrongly, or ended too early.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The stream broke.
    #[error(transparent)]
    Http2(#[from] h2::Error),
}

/// A body that comes in.
#[derive(Debug)]
pub(crate) enum Source<'c> {
    /// Nothing comes.
    Empty,
    /// Over HTTP/1.
    Http1(Incoming<'c>),
    /// Over HTTP/2.
    Http2(http2::Incoming),
}

/// A body that comes over HTTP/1.
#[derive(Debug)]
pub(crate) struct Incoming<'c> {
    reader: &'c mut Reader,
    buffer: &'c mut Buffer,
    decoder: BodyDecoder,
    /// Bytes of the body at the front of the buffer.
    piece: usize,
    /// How large the buffer may grow.
    most: usize,
    ended: bool,
    /// The bytes are a WebSocket's, which knows itself where it ends.
    switched: bool,
    trailers: Option<HeaderMap>,
}

impl<'c> Incoming<'c> {
    /// A body that this decoder takes out of what is in the buffer and comes from the reader.
    pub(crate) fn new(
        reader: &'c mut Reader,
        buffer: &'c mut Buffer,
        decoder: BodyDecoder,
        most: usize,
    ) -> Self {
        Incoming {
            reader,
            buffer,
            decoder,
            piece: 0,
            most,
            ended: false,
            switched: false,
            trailers: None,
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SourceError>> {
        loop {
            if self.piece > 0 {
                return Poll::Ready(Ok(true));
            }
            if self.ended {
                return Poll::Ready(Ok(false));
            }
            match self.decoder.decode(self.buffer.filled())? {
                Decoded::Data(range) => {
                    self.buffer.consume(range.start);
                    self.piece = range.len();
                }
                Decoded::End { consumed } => {
                    let trailers = self.decoder.trailers(self.buffer.filled());
                    self.trailers = (!trailers.is_empty()).then(|| trailer_map(&trailers));
                    self.buffer.consume(consumed);
                    self.ended = true;
                }
                Decoded::More { consumed } => {
                    self.buffer.consume(consumed);
                    let reader = Pin::new(&mut *self.reader);
                    if ready!(self.buffer.poll_fill(reader, self.most, cx))? == 0 {
                        self.end()?;
                        self.ended = true;
                    }
                }
            }
        }
    }

    /// The connection has ended. RFC 9112 §8: a response that only this ends "is considered complete unless an error was indicated by the underlying connection (e.g.,
    /// an "incomplete close" in TLS would leave the response incomplete".
    fn end(&mut self) -> Result<(), Fault> {
        if self.decoder.ends_with_connection() && !self.switched && !self.reader.has_ended_well() {
            return Err(Fault::IncompleteBody);
        }
        self.decoder.eof()
    }

    /// Bytes from here on belong to a WebSocket.
    fn switch(&mut self) {
        self.switched = true;
        self.decoder = BodyDecoder::new(Framing::UntilClose, &Limits::default());
        self.ended = false;
    }

    /// The connection, for who moves bytes without looking at them, and how many may be moved so: none unless the length is known and nothing is buffered.
    pub(crate) fn bulk(&self) -> Option<(&Reader, u64)> {
        let left = self.decoder.left()?;
        (self.piece == 0 && self.buffer.is_empty()).then_some((&*self.reader, left))
    }

    /// So many bytes were moved so.
    pub(crate) fn moved(&mut self, count: u64) {
        self.decoder.skip(count);
    }
}

impl Source<'_> {
    /// Whether a piece of the body is there; not, if the body has ended.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SourceError>> {
        match self {
            Source::Empty => Poll::Ready(Ok(false)),
            Source::Http1(incoming) => incoming.poll_ready(cx),
            Source::Http2(incoming) => incoming.poll_ready(cx),
        }
    }

    /// As [`poll_ready`](Self::poll_ready).
    pub(crate) async fn ready(&mut self) -> Result<bool, SourceError> {
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// The piece that is there.
    pub(crate) fn piece(&self) -> &[u8] {
        match self {
            Source::Empty => &[],
            Source::Http1(incoming) => &incoming.buffer.filled()[..incoming.piece],
            Source::Http2(incoming) => incoming.piece(),
        }
    }

    /// Done with the piece.
    pub(crate) fn advance(&mut self) {
        match self {
            Source::Empty => {}
            Source::Http1(incoming) => {
                incoming.buffer.consume(incoming.piece);
                incoming.piece = 0;
            }
            Source::Http2(incoming) => drop(incoming.take()),
        }
    }

    /// Takes the piece away, without copying it where that can be.
    pub(crate) fn take(&mut self) -> Bytes {
        match self {
            Source::Empty => Bytes::new(),
            Source::Http1(_) => {
                let piece = Bytes::copy_from_slice(self.piece());
                self.advance();
                piece
            }
            Source::Http2(incoming) => incoming.take(),
        }
    }

    /// Bytes from here on belong to a WebSocket.
    pub(crate) fn switch(&mut self) {
        match self {
            Source::Empty => {}
            Source::Http1(incoming) => incoming.switch(),
            // It was a stream of bytes all along.
            Source::Http2(_) => {}
        }
    }

    /// The trailers, once the body has ended.
    pub(crate) fn trailers(&mut self) -> Option<HeaderMap> {
        match self {
            Source::Empty => None,
            Source::Http1(incoming) => incoming.trailers.take(),
            Source::Http2(incoming) => incoming.trailers(),
        }
    }

    /// Whether all of it was read, so that the next message follows on the connection.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Source::Empty => true,
            Source::Http1(incoming) => {
                incoming.ended || (incoming.piece == 0 && incoming.decoder.is_done())
            }
            Source::Http2(incoming) => incoming.has_ended(),
        }
    }
}

/// Trailers of HTTP/1 that may be passed on. RFC 9110 §6.5.1: fields that frame, route or modify the request are not for trailers.
fn trailer_map(fields: &Fields<'_>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields.forwarded() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            map.append(name, value);
        }
    }
    map
}
