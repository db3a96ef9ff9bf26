//! Receiving a body over HTTP/2. Flow control bounds the data that is buffered.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;

use super::super::source::{SourceError, Trailers};
use super::fields;
use crate::http1::{Error, MessageFault};

/// A body received over HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2Source {
    stream: RecvStream,
    piece: Bytes,
    ended: bool,
    trailers: Trailers,
    received: u64,
    /// Maximum length of the body.
    max_bytes: Option<u64>,
}

impl Http2Source {
    /// Creates the source of a stream's body, with a maximum length.
    pub(crate) fn new(stream: RecvStream, max_bytes: Option<u64>) -> Self {
        Http2Source {
            ended: stream.is_end_stream(),
            stream,
            piece: Bytes::new(),
            trailers: None,
            received: 0,
            max_bytes,
        }
    }

    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, SourceError>> {
        while self.piece.is_empty() && !self.ended {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(piece)) => {
                    self.received += piece.len() as u64;
                    if self
                        .max_bytes
                        .is_some_and(|max_bytes| self.received > max_bytes)
                    {
                        return Poll::Ready(Err(Error::Client(MessageFault::BodyTooLarge).into()));
                    }
                    self.piece = piece;
                    // No trailers can follow.
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

    /// Takes the current piece and returns its flow-control capacity.
    pub(crate) fn take(&mut self) -> Bytes {
        let piece = std::mem::take(&mut self.piece);
        // Fails only if more capacity is released than was received.
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
