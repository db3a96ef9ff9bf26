//! The control plane: changes come in from sources, statuses and data-plane resources go out to sinks.
//!
//! - [`files`] reads manifests and watches them. It touches the file system and nothing else.
//! - [`contents`] reads the files and environment variables that objects name, such as certificates of Kuma's gateways.
//! - [`identities`] issues the certificates that proxies of a mesh present to each other.
//! - [`offline`] reads and binds manifests once, for commands that carry no traffic.
//! - [`report`] collects warnings and renders the `List` that `check` and `/status` print.
//! - [`clock`] is the only module that reads the time.
//!
//! This crate carries no traffic and binds no port: it depends on `resources`, `binding` and `routing`, never on `proxy`.

pub mod clock;
pub mod contents;
pub mod files;
pub mod identities;
pub mod offline;
pub mod report;
