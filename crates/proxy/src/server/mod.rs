//! What arrives at sockets: connections are accepted, told apart, and served; so are datagrams.

mod accept;
mod course;
pub(crate) mod http1;
pub(crate) mod http2;
mod overload;
mod passage;
mod report;
mod stream;
mod tls;
mod udp;

pub(crate) use accept::accept;
pub(crate) use overload::Overload;
pub(crate) use passage::{Passage, Secured};
pub(crate) use report::Open;
pub(crate) use udp::datagrams;
