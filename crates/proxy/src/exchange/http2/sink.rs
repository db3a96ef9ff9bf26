//! Sending a body over HTTP/2. Each piece is sent when the next one or the end arrives, so that the last DATA frame carries END_STREAM.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::super::sink::SinkError;
use super::super::source::Trailers;
use super::SendState;
use crate::io::flood_guard::FloodGuard;

/// A body sent over HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2Sink<'c> {
    sending: &'c RefCell<SendState>,
    /// Piece to send when the next one or the end arrives.
    pending: Bytes,
    /// Flood protection of the client's connection.
    flood_guard: Option<&'c FloodGuard>,
}

impl<'c> Http2Sink<'c> {
    /// Creates the sink for the body of the current message.
    pub(crate) fn new(
        sending: &'c RefCell<SendState>,
        flood_guard: Option<&'c FloodGuard>,
    ) -> Self {
        Http2Sink {
            sending,
            pending: Bytes::new(),
            flood_guard,
        }
    }

    /// Sends the pending piece. This one becomes the pending one.
    pub(crate) async fn write(&mut self, piece: Bytes) -> Result<(), SinkError> {
        self.flush().await?;
        self.pending = piece;
        Ok(())
    }

    /// Sends the pending piece, within the flow-control window.
    pub(crate) async fn flush(&mut self) -> Result<(), SinkError> {
        while !self.pending.is_empty() {
            poll_fn(|cx| self.poll_send(cx)).await?;
        }
        Ok(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SinkError>> {
        let mut sending = self.sending.borrow_mut();
        let SendState::Body(stream) = &mut *sending else {
            return Poll::Ready(Err(broken_pipe()));
        };
        stream.reserve_capacity(self.pending.len());
        let capacity = match stream.capacity() {
            0 => match ready!(stream.poll_capacity(cx)) {
                Some(capacity) => capacity?,
                None => return Poll::Ready(Err(broken_pipe())),
            },
            capacity => capacity,
        };
        let piece = self.pending.split_to(capacity.min(self.pending.len()));
        self.count(piece.len());
        stream.send_data(piece, false)?;
        Poll::Ready(Ok(()))
    }

    /// Ends the body. The last piece may be queued in `h2` until the window allows it.
    pub(crate) fn finish(&mut self, trailers: Trailers) -> Result<(), SinkError> {
        let mut sending = self.sending.borrow_mut();
        let stream = match &mut *sending {
            SendState::Body(stream) => stream,
            SendState::Finished => return Ok(()),
            _ => return Err(broken_pipe()),
        };
        let pending = std::mem::take(&mut self.pending);
        match trailers {
            None => {
                self.count(pending.len());
                stream.send_data(pending, true)?;
            }
            Some(trailers) => {
                if !pending.is_empty() {
                    self.count(pending.len());
                    stream.send_data(pending, false)?;
                }
                stream.send_trailers(*trailers)?;
            }
        }
        *sending = SendState::Finished;
        Ok(())
    }

    fn count(&self, length: usize) {
        if let Some(flood_guard) = self.flood_guard {
            flood_guard.record_data(length);
        }
    }
}

fn broken_pipe() -> SinkError {
    SinkError::Io(io::ErrorKind::BrokenPipe.into())
}
