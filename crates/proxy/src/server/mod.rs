//! Serving of listening sockets: [`thread`] runs a worker and its sockets, `accept` admits connections and detects their protocol, and each protocol has a module.

mod accept;
mod http1;
mod http2;
mod overload;
mod proxy_protocol;
mod report;
mod stream;
mod stream_route;
pub(crate) mod thread;
mod tls;
mod udp;
