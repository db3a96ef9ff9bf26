//! The server of delta xDS: one set of resources, many proxies.
//!
//! - `encoded_change` encodes each changed resource once, whatever the number of proxies.
//! - `store` holds the encoded resources and the log of changes, in which each resource has only its latest position. For each proxy it keeps a position in
//!   that log. Its submodule `effects` determines which routes are in effect on all proxies, and which proxies lag. `slots` holds the resources and their references.
//! - `subscription_set` computes and maintains the set of resources that some proxies subscribe to; proxies with equal subscriptions share it.
//! - `selector` parses subscriptions.
//! - `service` accepts streams, each of which `session` runs; `codec` sets the size of their buffers; `proxies` holds information about connected proxies.
//! - `listen` accepts connections. `peer` determines the identity and the permissions of a proxy; `authorization` reads permissions from a file.
//! - `sink` passes the reconciler's changes to the server, and reports and effects back to it.
//! - `aggregate` merges the reports of several proxies.
//! - `controllers` exchanges all of this with other controllers of the same cluster.

mod aggregate;
mod authorization;
mod codec;
mod controllers;
mod encoded_change;
mod listen;
mod metrics;
mod peer;
mod proxies;
mod selector;
mod service;
pub(crate) mod session;
mod sink;
mod slots;
mod store;
mod subscription_set;

pub use authorization::{Authorization, AuthorizationError};
pub use controllers::ControllerStatus;
pub use controllers::follow::{FollowOptions, Leader, follow};
pub use encoded_change::{EncodedChange, encode_all};
pub use listen::{accept, bind};
pub use peer::{
    AuthorizationFuture, Authorize, AuthorizeController, ControllerAuthorizationFuture,
    CredentialValidity, Grant, Peer, PermissionCheck, ProxyName, Refusal, Token, Verification,
    Verify, authorize_by_certificate,
};
pub use selector::{Selector, Subscription};
pub use service::{ProxyStatus, Server};
pub use sink::XdsSink;

#[cfg(test)]
mod tests;
