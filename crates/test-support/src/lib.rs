//! Code that the tests of several crates use. It is a dev-dependency only and never shipped.

pub mod certificates;
pub mod link;
pub mod manifests;
pub mod process;
pub mod tls;
pub mod wait;
