//! Manifests and certificates that the tests of several crates use. Only a dev-dependency: nothing of it is shipped.

pub mod certificates;
pub mod manifests;
