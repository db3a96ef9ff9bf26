//! A body that comes over HTTP/2. The other side may send no more than a window's worth before it is read.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;

use super::super::source::{SourceError, Trailers};
use super::fields;
use crate::http1::{Error, Fault};

/// A body that comes over HTTP/2.
#[derive(Debug)]
pub(crate) struct Incoming {
    stream: RecvStream,
    piece: Bytes,
    ended: bool,
    trailers: Trailers,
    received: u64,
    /// How much of it is taken.
    most: Option<u64>,
}

impl Incoming {
    /// The body of a stream, up to so many bytes.
    pub(crate) fn new(stream: RecvStream, most: Option<u64>) -> Self {
        Incoming {
            ended: stream.is_end_stream(),
            stream,
            piece: Bytes::new(),
            trailers: None,
            received: 0,
            most,
        }
    }

    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SourceError>> {
        while self.piece.is_empty() && !self.ended {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(piece)) => {
                    self.received += piece.len() as u64;
                    if self.most.is_some_and(|most| self.received > most) {
                        return Poll::Ready(Err(Error::Client(Fault::BodyTooLarge).into()));
                    }
                    self.piece = piece;
                    // Then no trailers follow, and nobody has to ask.
                    self.ended = self.stream.is_end_stream();
                }
                Some(Err(error)) => return Poll::Ready(Err(error.into())),
                None => {
                    let trailers = ready!(self.stream.poll_trailers(cx))?;
                    self.trailers = trailers.and_then(fields::trailers).map(Box::new);
                    self.ended = true;
                }
            }
        }
        Poll::Ready(Ok(!self.piece.is_empty()))
    }

    pub(crate) fn piece(&self) -> &[u8] {
        &self.piece
    }

    /// Takes the piece away; the other side may send as much again.
    pub(crate) fn take(&mut self) -> Bytes {
        let piece = std::mem::take(&mut self.piece);
        // It fails only if more is given back than came.
        let _ = self.stream.flow_control().release_capacity(piece.len());
        piece
    }

    pub(crate) fn trailers(&mut self) -> Trailers {
        self.trailers.take()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.piece.is_empty() && (self.ended || self.stream.is_end_stream())
    }
}
