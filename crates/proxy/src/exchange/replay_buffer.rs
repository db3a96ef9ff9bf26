//! Buffers a request's body for retries and copies it to mirrors.

use http::HeaderMap;

use super::mirror::MirrorCopies;
use super::source::Trailers;

/// Records a body, up to a limit, while it is sent, and passes it to mirrors.
#[derive(Debug)]
pub(crate) struct ReplayBuffer {
    recorded: Vec<u8>,
    max_bytes: usize,
    /// The body has exceeded the limit. The buffer is dropped, and the request can't be retried.
    overflowed: bool,
    /// The trailers, once the whole body has been recorded.
    ended: Option<Trailers>,
    mirrors: MirrorCopies,
    /// The piece recorded last has not been sent and is still held by the source.
    has_unsent: bool,
}

impl ReplayBuffer {
    /// Creates a buffer of at most `max_bytes`.
    pub(crate) fn new(max_bytes: usize, mirrors: MirrorCopies) -> Self {
        ReplayBuffer {
            recorded: Vec::new(),
            max_bytes,
            overflowed: false,
            ended: None,
            mirrors,
            has_unsent: false,
        }
    }

    /// Records a piece that is about to be sent.
    pub(crate) fn record(&mut self, piece: &[u8]) {
        self.has_unsent = true;
        self.mirrors.send(piece);
        if self.overflowed {
            return;
        }
        if self.recorded.len() + piece.len() > self.max_bytes {
            self.overflowed = true;
            self.recorded = Vec::new();
        } else {
            self.recorded.extend_from_slice(piece);
        }
    }

    /// Marks the piece recorded last as sent.
    pub(crate) fn mark_sent(&mut self) {
        self.has_unsent = false;
    }

    /// Returns whether the piece recorded last was not sent because its attempt was cancelled.
    pub(crate) fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// Records the end of the body.
    pub(crate) fn end(&mut self, trailers: Option<&HeaderMap>) {
        self.mirrors.end(trailers);
        self.ended = Some(trailers.cloned().map(Box::new));
    }

    /// Returns whether further pieces are neither recorded nor mirrored.
    pub(crate) fn is_inactive(&self) -> bool {
        self.overflowed && self.mirrors.is_empty()
    }

    /// Returns whether all bytes sent so far can be sent again.
    pub(crate) fn can_replay(&self) -> bool {
        !self.overflowed
    }

    /// Returns the recorded bytes.
    pub(crate) fn recorded(&self) -> &[u8] {
        &self.recorded
    }

    /// Returns the trailers if the whole body was recorded; its source has ended then.
    pub(crate) fn ended(&self) -> Option<Trailers> {
        self.ended.clone()
    }
}
