//! What arrives at sockets: connections are accepted, told apart, and served.

pub(crate) mod accept;
pub(crate) mod http1;
pub(crate) mod http2;
mod passage;

pub(crate) use accept::{accept, datagrams};
pub(crate) use passage::{Passage, Secured};
