//! HTTP/2 on either side of an exchange. An exchange uses one stream; the `h2` crate implements frames, flow control and header compression.

pub(crate) mod backend;
mod fields;
pub(crate) mod response_writer;
pub(crate) mod sink;
pub(crate) mod source;

use std::cell::RefCell;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};

/// Sending half of a stream. It is shared by the task that writes and the watch for resets, each of which borrows it only within one poll.
#[derive(Debug)]
pub(crate) enum SendState {
    /// The response has not started.
    Response(SendResponse<Bytes>),
    /// The head was sent, and the body follows.
    Body(SendStream<Bytes>),
    /// Everything was sent.
    Finished,
    /// The request has not started.
    None,
}

impl SendState {
    /// Becomes ready when the peer resets the stream.
    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            SendState::Response(respond) => respond.poll_reset(cx).map(drop),
            SendState::Body(stream) => stream.poll_reset(cx).map(drop),
            SendState::Finished | SendState::None => Poll::Pending,
        }
    }

    /// Resets the stream unless everything was sent.
    pub(crate) fn reset(&mut self, reason: Reason) {
        match self {
            SendState::Response(respond) => respond.send_reset(reason),
            SendState::Body(stream) => stream.send_reset(reason),
            SendState::Finished | SendState::None => {}
        }
    }
}

/// Detects a reset of the stream by the client while the response is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResetWatch<'c>(pub(crate) &'c RefCell<SendState>);

impl ResetWatch<'_> {
    /// Becomes ready on a reset.
    pub(crate) fn poll(self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.borrow_mut().poll_reset(cx)
    }
}
