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
use crate::http1::{self, Body, Event, Fields};
use crate::io::buffer::Buffer;
use crate::io::stream::ReadHalf;

/// Trailers, boxed: few bodies have any, and every future that passes them on would have room for them.
pub(crate) type Trailers = Option<Box<HeaderMap>>;

/// Why a body did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// It was framed wrongly, or ended too early.
    #[error(transparent)]
    Fault(#[from] http1::Error),
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
    reader: &'c mut ReadHalf,
    buffer: &'c mut Buffer,
    body: &'c mut Body,
    /// Bytes of the body at the front of the buffer.
    piece: usize,
    /// How large the buffer may grow.
    most: usize,
    trailers: Trailers,
}

impl<'c> Incoming<'c> {
    /// Creates the body of the current message, whose bytes are in the buffer and come from the reader.
    pub(crate) fn new(
        reader: &'c mut ReadHalf,
        buffer: &'c mut Buffer,
        body: &'c mut Body,
        most: usize,
    ) -> Self {
        Incoming {
            reader,
            buffer,
            body,
            piece: 0,
            most,
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

    /// Reads more, or notes the end of the connection.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        let reader = Pin::new(&mut *self.reader);
        if ready!(self.buffer.poll_fill(reader, self.most, cx))? == 0 {
            let close = self.reader.peer_close();
            self.body.eof(self.buffer.filled(), close)?;
        }
        Poll::Ready(Ok(()))
    }

    /// The connection, for who moves bytes without looking at them, and how many may be moved so: none unless the length is known and nothing is buffered.
    pub(crate) fn bulk(&self) -> Option<(&ReadHalf, u64)> {
        let left = self.body.left()?;
        (self.piece == 0 && self.buffer.is_empty()).then_some((&*self.reader, left))
    }

    /// So many bytes were moved so.
    pub(crate) fn moved(&mut self, count: u64) {
        self.body.skip(count);
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
            Source::Http1(incoming) => incoming.body.switch(),
            // It was a stream of bytes all along.
            Source::Http2(_) => {}
        }
    }

    /// The trailers, once the body has ended.
    pub(crate) fn trailers(&mut self) -> Trailers {
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
            Source::Http1(incoming) => incoming.piece == 0 && incoming.body.is_over(),
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
