//! Receiving of bodies from clients and backends over either version of HTTP.
//!
//! A body is read piece by piece: [`Source::poll_ready`] waits for a piece, [`Source::piece`] returns it, [`Source::advance`] discards it. At most one piece is
//! read ahead.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::http2::source as http2;
use crate::http1::{self, BodyReader, Event, Fields};
use crate::io::buffer::Buffer;
use crate::io::stream::ReadHalf;

/// Trailers. Boxed because they are rare, and the future of every exchange would be larger.
pub(crate) type Trailers = Option<Box<HeaderMap>>;

/// Failure to receive a body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// The framing is malformed, or the body ended early.
    #[error(transparent)]
    Fault(#[from] http1::Error),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The stream failed.
    #[error(transparent)]
    Http2(#[from] h2::Error),
}

/// A body that is received.
#[derive(Debug)]
pub(crate) enum Source<'c> {
    /// There is no body.
    Empty,
    Http1(Http1Source<'c>),
    Http2(http2::Http2Source),
}

/// A body received over HTTP/1.
#[derive(Debug)]
pub(crate) struct Http1Source<'c> {
    reader: &'c mut ReadHalf,
    buffer: &'c mut Buffer,
    body: &'c mut BodyReader,
    /// Length of the current piece, at the front of the buffer.
    piece: usize,
    /// Maximum size of the buffer.
    max_bytes: usize,
    trailers: Trailers,
}

impl<'c> Http1Source<'c> {
    /// Creates the body of the current message, whose bytes are in the buffer and come from the reader.
    pub(crate) fn new(
        reader: &'c mut ReadHalf,
        buffer: &'c mut Buffer,
        body: &'c mut BodyReader,
        max_bytes: usize,
    ) -> Self {
        Http1Source {
            reader,
            buffer,
            body,
            piece: 0,
            max_bytes,
            trailers: None,
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SourceError>> {
        loop {
            if self.piece > 0 {
                return Poll::Ready(Ok(true));
            }
            if !self.body.is_open() {
                return Poll::Ready(Ok(false));
            }
            match self.body.next(self.buffer.filled())? {
                Event::Data(range) => {
                    self.buffer.consume(range.start);
                    self.piece = range.len();
                }
                Event::End { consumed } => {
                    let trailers = self.body.trailers(self.buffer.filled());
                    self.trailers =
                        (!trailers.is_empty()).then(|| Box::new(trailer_map(&trailers)));
                    self.buffer.consume(consumed);
                }
                Event::Switched if !self.buffer.is_empty() => {
                    self.piece = self.buffer.filled().len();
                }
                event => {
                    self.buffer.consume(event.consumed());
                    ready!(self.poll_fill(cx))?;
                }
            }
        }
    }

    /// Reads more bytes, or records the end of the connection.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        let reader = Pin::new(&mut *self.reader);
        if ready!(self.buffer.poll_fill(reader, self.max_bytes, cx))? == 0 {
            let close = self.reader.peer_close();
            self.body.eof(self.buffer.filled(), close)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the connection and the number of bytes that can be spliced from it; `None` if the length is unknown or bytes are buffered.
    pub(crate) fn spliceable(&self) -> Option<(&ReadHalf, u64)> {
        let left = self.body.left()?;
        (self.piece == 0 && self.buffer.is_empty()).then_some((&*self.reader, left))
    }

    /// Accounts for spliced bytes.
    pub(crate) fn record_spliced(&mut self, count: u64) {
        self.body.record_spliced(count);
    }
}

impl Source<'_> {
    /// Waits for a piece of the body. Returns false at its end.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SourceError>> {
        match self {
            Source::Empty => Poll::Ready(Ok(false)),
            Source::Http1(source) => source.poll_ready(cx),
            Source::Http2(source) => source.poll_ready(cx),
        }
    }

    /// Waits for a piece of the body. Returns false at its end.
    pub(crate) async fn ready(&mut self) -> Result<bool, SourceError> {
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// Returns the current piece.
    pub(crate) fn piece(&self) -> &[u8] {
        match self {
            Source::Empty => &[],
            Source::Http1(source) => &source.buffer.filled()[..source.piece],
            Source::Http2(source) => source.piece(),
        }
    }

    /// Discards the current piece.
    pub(crate) fn advance(&mut self) {
        match self {
            Source::Empty => {}
            Source::Http1(source) => {
                source.buffer.consume(source.piece);
                source.piece = 0;
            }
            Source::Http2(source) => drop(source.take()),
        }
    }

    /// Takes the current piece, without a copy over HTTP/2.
    pub(crate) fn take(&mut self) -> Bytes {
        match self {
            Source::Empty => Bytes::new(),
            Source::Http1(_) => {
                let piece = Bytes::copy_from_slice(self.piece());
                self.advance();
                piece
            }
            Source::Http2(source) => source.take(),
        }
    }

    /// Switches from HTTP framing to the bytes of a WebSocket.
    pub(crate) fn switch_to_websocket(&mut self) {
        match self {
            Source::Empty => {}
            Source::Http1(source) => source.body.switch(),
            // DATA frames carry the bytes unchanged.
            Source::Http2(_) => {}
        }
    }

    /// Takes the trailers, once the body has ended.
    pub(crate) fn trailers(&mut self) -> Trailers {
        match self {
            Source::Empty => None,
            Source::Http1(source) => source.trailers.take(),
            Source::Http2(source) => source.trailers(),
        }
    }

    /// Returns whether the body was read completely, so that the next message can follow on the connection.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Source::Empty => true,
            Source::Http1(source) => source.piece == 0 && source.body.is_complete(),
            Source::Http2(source) => source.has_ended(),
        }
    }
}

/// Returns the trailers that may be forwarded. RFC 9110 §6.5.1: fields that frame, route or modify the request are not allowed in trailers.
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
