//! A body that goes over HTTP/2. One piece is held back until the next one comes, so that the last one says that it is the last.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::super::sink::SinkError;
use super::super::source::Trailers;
use super::Sending;
use crate::io::flood_guard::FloodGuard;

/// A body that goes over HTTP/2.
#[derive(Debug)]
pub(crate) struct Outgoing<'c> {
    sending: &'c RefCell<Sending>,
    held: Bytes,
    /// Who counts what a client's connection costs.
    account: Option<&'c FloodGuard>,
}

impl<'c> Outgoing<'c> {
    /// The body of what is being sent. If its head said that there is none, nothing is sent.
    pub(crate) fn new(sending: &'c RefCell<Sending>, account: Option<&'c FloodGuard>) -> Self {
        Outgoing {
            sending,
            held: Bytes::new(),
            account,
        }
    }

    /// Sends a piece, after the one that was held back.
    pub(crate) async fn pass(&mut self, piece: Bytes) -> Result<(), SinkError> {
        self.flush().await?;
        self.held = piece;
        Ok(())
    }

    /// Sends what was held back, as the window allows.
    pub(crate) async fn flush(&mut self) -> Result<(), SinkError> {
        while !self.held.is_empty() {
            poll_fn(|cx| self.poll_send(cx)).await?;
        }
        Ok(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SinkError>> {
        let mut sending = self.sending.borrow_mut();
        let Sending::Body(stream) = &mut *sending else {
            return Poll::Ready(Err(gone()));
        };
        stream.reserve_capacity(self.held.len());
        let room = match stream.capacity() {
            0 => match ready!(stream.poll_capacity(cx)) {
                Some(room) => room?,
                None => return Poll::Ready(Err(gone())),
            },
            room => room,
        };
        let piece = self.held.split_to(room.min(self.held.len()));
        self.count(piece.len());
        stream.send_data(piece, false)?;
        Poll::Ready(Ok(()))
    }

    /// Ends the body. What is left of it waits in the stream for the window: it is no more than one piece.
    pub(crate) fn finish(&mut self, trailers: Trailers) -> Result<(), SinkError> {
        let mut sending = self.sending.borrow_mut();
        let stream = match &mut *sending {
            Sending::Body(stream) => stream,
            Sending::Over => return Ok(()),
            _ => return Err(gone()),
        };
        let held = std::mem::take(&mut self.held);
        match trailers {
            None => {
                self.count(held.len());
                stream.send_data(held, true)?;
            }
            Some(trailers) => {
                if !held.is_empty() {
                    self.count(held.len());
                    stream.send_data(held, false)?;
                }
                stream.send_trailers(*trailers)?;
            }
        }
        *sending = Sending::Over;
        Ok(())
    }

    fn count(&self, length: usize) {
        if let Some(account) = self.account {
            account.record_data(length);
        }
    }
}

fn gone() -> SinkError {
    SinkError::Io(io::ErrorKind::BrokenPipe.into())
}
