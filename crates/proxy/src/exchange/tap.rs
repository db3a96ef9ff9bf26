//! What else becomes of a request's body on its way: it is kept, so that it can be sent again, and copied to mirrors.

use http::HeaderMap;

use super::mirror::Copies;
use super::source::Trailers;

/// Keeps and copies what passes.
#[derive(Debug)]
pub(crate) struct Tap {
    kept: Vec<u8>,
    /// How much may be kept.
    most: usize,
    /// More than that has passed, so nothing can be sent again.
    spilled: bool,
    /// All of it has passed, and these were its trailers.
    ended: Option<Trailers>,
    mirrors: Copies,
    /// The last piece is on its way: its source still has it.
    passing: bool,
}

impl Tap {
    /// Keeps up to so many bytes, and copies to these mirrors.
    pub(crate) fn new(most: usize, mirrors: Copies) -> Self {
        Tap {
            kept: Vec::new(),
            most,
            spilled: false,
            ended: None,
            mirrors,
            passing: false,
        }
    }

    /// A piece passes.
    pub(crate) fn piece(&mut self, piece: &[u8]) {
        self.passing = true;
        self.mirrors.piece(piece);
        if self.spilled {
            return;
        }
        if self.kept.len() + piece.len() > self.most {
            self.spilled = true;
            self.kept = Vec::new();
        } else {
            self.kept.extend_from_slice(piece);
        }
    }

    /// The piece was sent.
    pub(crate) fn passed(&mut self) {
        self.passing = false;
    }

    /// Whether a piece was not.
    pub(crate) fn is_passing(&self) -> bool {
        self.passing
    }

    /// The body is over.
    pub(crate) fn end(&mut self, trailers: Option<&HeaderMap>) {
        self.mirrors.end(trailers);
        self.ended = Some(trailers.cloned().map(Box::new));
    }

    /// Whether nothing more is kept or copied.
    pub(crate) fn is_idle(&self) -> bool {
        self.spilled && self.mirrors.is_empty()
    }

    /// Whether all that has passed is kept.
    pub(crate) fn can_replay(&self) -> bool {
        !self.spilled
    }

    /// What is kept.
    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// The trailers, if the body is over: then nothing more comes from its source.
    pub(crate) fn ended(&self) -> Option<Trailers> {
        self.ended.clone()
    }
}
