//! The server of delta xDS: one set of resources, many proxies.
//!
//! - `encoded` encodes each changed resource once, whatever the number of proxies.
//! - `store` holds the encoded resources and the log of changes, in which each resource has only its latest position. What it keeps per proxy is a position in
//!   that log. Its part `effects` knows which routes are in effect on all proxies, and which proxies lag.
//! - `scope` computes and maintains the set of resources that some proxies subscribe to; proxies with equal subscriptions share it.
//! - `selector` parses subscriptions.
//! - `service` accepts streams, each of which `session` runs; `codec` sets the size of their buffers; `proxies` is what is known of connected proxies.
//! - `listen` accepts connections. `peer` is the identity of a proxy and the permission that follows from it; `authorization` reads permissions from a file.
//! - `aggregate` joins the reports of several proxies.

mod aggregate;
mod authorization;
mod codec;
mod encoded;
mod listen;
mod peer;
mod proxies;
mod scope;
mod selector;
mod service;
pub(crate) mod session;
mod store;

pub use authorization::{Authorization, AuthorizationError};
pub use encoded::{Encoded, encode_all};
pub use listen::{accept, bind};
pub use peer::{
    Authorize, Decision, Grant, Peer, ProxyName, Recheck, Refusal, Token, authorize_by_certificate,
};
pub use selector::{Selector, Subscription};
pub use service::{ProxyStatus, Server};
pub use store::{EFFECT_BUCKETS, EffectChanges, EffectHistogram, Scan};
