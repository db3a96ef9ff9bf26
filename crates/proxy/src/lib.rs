//! The data plane: what carries traffic once a rule is chosen.
//!
//! - [`Proxy`] is all that the control side sees of it.
//! - [`http1`] is the HTTP/1 codec, for both sides: bytes come in, events and bytes go out.
//! - [`balance`] chooses an endpoint by load and health.
//! - [`tls`] makes what listeners show and ask for, and what backends must show, out of the bound form.

#[allow(dead_code, unused_imports, reason = "the workers are not there yet")]
mod access_log;
pub mod balance;
#[allow(dead_code, reason = "the workers are not there yet")]
mod dns;
pub mod http1;
mod limits;
#[allow(dead_code, reason = "the workers are not there yet")]
mod metrics;
mod options;
mod proxy;
pub mod tls;

pub use limits::{Limit, Limits};
pub use options::{AccessLogFormat, AccessLogOptions, Network, Options};
pub use proxy::{Outcome, Owner, Proxy, SocketKey, Update};
