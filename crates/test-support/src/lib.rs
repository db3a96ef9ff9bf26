//! Manifests and certificates that the tests of several crates use. It is a dev-dependency only and never shipped.

pub mod certificates;
pub mod manifests;
