//! HTTP/2 on either side of an exchange: one stream of a connection that the `h2` crate keeps. Heads are put together and taken apart here; frames, windows and
//! header compression are the crate's.

pub(crate) mod backend;
pub(crate) mod client;
mod fields;
pub(crate) mod sink;
pub(crate) mod source;

use std::cell::RefCell;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};

/// The half of a stream that is written: a response that has not begun, a body, or nothing more. Whoever watches over the exchange looks at it too, so
/// it is borrowed for one step at a time.
#[derive(Debug)]
pub(crate) enum Sending {
    /// A response that has not begun.
    Response(SendResponse<Bytes>),
    /// A body.
    Body(SendStream<Bytes>),
    /// All was sent.
    Over,
    /// There is none.
    None,
}

impl Sending {
    /// Ready once the other side takes no interest in the stream any more.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Sending::Response(respond) => respond.poll_reset(cx).map(drop),
            Sending::Body(stream) => stream.poll_reset(cx).map(drop),
            Sending::Over | Sending::None => Poll::Pending,
        }
    }

    /// Ends the stream with an error, unless all was sent.
    pub(crate) fn reset(&mut self, reason: Reason) {
        match self {
            Sending::Response(respond) => respond.send_reset(reason),
            Sending::Body(stream) => stream.send_reset(reason),
            Sending::Over | Sending::None => {}
        }
    }
}

/// Tells when a client is gone, while others write to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gone<'c>(pub(crate) &'c RefCell<Sending>);

impl Gone<'_> {
    /// Ready once it is.
    pub(crate) fn poll(self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.borrow_mut().poll_gone(cx)
    }
}
