//! The bound form as protobuf messages, and delta xDS: the contract between a control plane and its proxies.
//!
//! `proto/pointsman/v1/resources.proto` documents the messages and the rules for changing them, `control.proto` the protocol. Encoding cannot fail. Decoding
//! fails closed: a case that this version does not know rejects its resource, or makes a rule respond with 500 if it is known which requests the rule matches.
//! An invalid resource never affects another one: see [`decode`].

mod backend;
pub mod client;
mod delta;
mod digest;
mod error;
mod filter;
mod frontend;
mod id;
mod jitter;
mod name;
mod own_servers;
mod placement;
mod predicate;
mod reports;
mod resource;
mod route;
mod rule;
mod secret;
pub mod server;
pub mod tls;
mod transport;
pub mod xds;

pub use delta::{DecodedDelta, Rejection, decode, encode};
pub use error::DecodeError;
pub use id::ResourceId;
pub use resource::{Resource, ResourceChange, ResourceType, changes};

/// Types generated from `resources.proto` and `control.proto`.
#[allow(missing_docs, clippy::all, reason = "documented in the .proto files")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/pointsman.v1.rs"));
}
