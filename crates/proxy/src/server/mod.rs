//! What arrives at sockets: connections are accepted, told apart, and served; so are datagrams.

mod accept;
mod course;
mod http1;
mod http2;
mod overload;
mod proxy_protocol;
mod report;
mod stream;
mod tls;
mod udp;

pub(crate) use accept::accept;
pub(crate) use overload::Overload;
pub(crate) use udp::datagrams;
