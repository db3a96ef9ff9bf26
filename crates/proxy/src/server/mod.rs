//! Serving of listening sockets: [`worker_thread`] runs a worker and its sockets, `accept` admits connections and detects their protocol, and each protocol has a
//! module.

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
pub(crate) mod worker_thread;
