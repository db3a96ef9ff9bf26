//! The data plane: what carries traffic once a rule is chosen.
//!
//! - [`Proxy`] is all that the control side sees of it.
//! - [`http1`] is the HTTP/1 codec, for both sides: bytes come in, events and bytes go out.
//! - [`balance`] chooses an endpoint by load and health.
//! - [`placement`] decides which addresses and sockets Gateways, Services and outbounds get on this machine.
//! - [`tls`] makes what listeners show and ask for, and what backends must show, out of the bound form.
//!
//! Behind [`Proxy`]: `worker` is a thread with all that it owns, `server` tells apart what arrives at its sockets, `exchange` is one request and its
//! response, `downstream` is what both know of a client's connection, `upstream` is where they go, `wire` is bytes and deadlines.

// Futures of exchanges are deep.
#![recursion_limit = "256"]
#![allow(
    clippy::disallowed_methods,
    reason = "traffic has deadlines: here the clock is read"
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
mod metrics;
mod options;
pub mod placement;
mod proxy;
mod server;
mod sockets;
mod sync;
pub mod tls;
mod upstream;
mod worker;

pub use changed::Changed;
pub use data_plane::{DataPlane, Sockets, SocketsReader};
pub use limits::{Limit, Limits};
pub use options::{AccessLogFormat, AccessLogOptions, Options};
pub use pointsman_binding::Network;
pub use proxy::{ApplyOutcome, MetricsReader, Proxy, SocketKey, SocketOwner, Update};
pub use sockets::{NetworkNamespace, SocketFactory};
