//! The data plane: executes the decisions of the routing tables.
//!
//! - [`Proxy`] is the interface to the control plane; [`DataPlane`] adds the placement of sockets on this machine.
//! - [`http1`] is the HTTP/1 codec for both sides, without I/O.
//! - [`placement`] assigns addresses and sockets on this machine to Gateways, Services and outbounds.
//! - [`proxy_protocol`] parses the headers in which load balancers send their clients' addresses.
//! - [`tls`] builds the TLS configurations of listeners and backends from the bound form.
//!
//! Internally, `worker` is a thread and everything it owns, `server` accepts connections and detects their protocol, `exchange` handles one request and its
//! response, `downstream` describes client connections, `balance` and `upstream` select and connect to endpoints, and `io` has buffers, streams and deadlines.

// The futures of requests are deeply nested.
#![recursion_limit = "256"]
#![allow(
    clippy::disallowed_methods,
    reason = "the data plane enforces deadlines, so it reads the clock"
)]

mod access_log;
mod balance;
mod bind;
mod changed;
mod data_plane;
mod dns;
mod downstream;
mod exchange;
mod files;
pub mod http1;
mod io;
mod limits;
mod logging;
mod metrics;
mod options;
pub mod placement;
mod proxy;
pub mod proxy_protocol;
mod server;
mod socket_owner;
mod sockets;
mod sync;
pub mod tls;
mod upstream;
mod worker;

pub use access_log::logged_listener;
pub use changed::Changed;
pub use data_plane::{DataPlane, Sockets, SocketsReader};
pub use limits::{Limit, Limits};
pub use options::{AccessLogFormat, AccessLogOptions, Location, Options, TlsVersion};
pub use pointsman_binding::Network;
pub use proxy::{ApplyOutcome, MetricsReader, Proxy, Update};
pub use socket_owner::{SocketKey, SocketOwner};
pub use sockets::{NetworkNamespace, SocketFactory, reachable_at};
