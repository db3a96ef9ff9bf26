//! Accepts connections and datagrams, detects protocols, and serves them.

mod accept;
mod http1;
mod http2;
mod overload;
mod proxy_protocol;
mod report;
mod stream;
mod stream_route;
mod tls;
mod udp;

pub(crate) use accept::accept;
pub(crate) use overload::Overload;
pub(crate) use udp::datagrams;
