//! The bound form as protobuf messages, the contract between a control plane and its proxies.
//!
//! `proto/pointsman/v1/resources.proto` documents the messages and the rules for changing them. Encoding is a `From` conversion and cannot fail. Decoding is a
//! `TryFrom` conversion that fails closed: a case that this version does not know rejects its resource, or makes a rule answer 500 where it is known which
//! requests the rule takes. One bad resource never rejects another: see [`decode`].

mod backend;
mod delta;
mod error;
mod frontend;
mod name;
mod placement;
mod predicate;
mod route;
mod rule;
mod secret;

pub use delta::{Decoded, Rejection, decode, encode};
pub use error::DecodeError;

/// Types generated from `resources.proto`.
#[allow(missing_docs, clippy::all, reason = "documented in the .proto file")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/pointsman.v1.rs"));
}
