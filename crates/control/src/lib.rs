//! The control plane: receives changes from sources, and sends statuses and data-plane resources to sinks.
//!
//! ```text
//!  FileSource ──► Inbox ──► Reconciler ──► Sink (a proxy in this process)
//!                               │
//!                               └──► Snapshots ──► admin pages, /status, live explain
//! ```
//!
//! - `reconciler` owns the binder and drives everything else. It depends on no particular source or sink.
//! - [`source`] and [`sink`] are the interfaces on both sides; [`mailbox`] passes values between threads. `retry` determines when sinks are retried.
//! - [`files`] is the source for manifests. Only it reads and watches them.
//! - `safe_read` reads untrusted files. [`ManifestPermissions`] define what manifests may access.
//! - `data_sources` reads files and environment variables that objects name, such as certificates of Kuma's gateways.
//! - `identities` issues the certificates that proxies of a mesh present to each other.
//! - `journal` holds statuses with their transition times, `timed_status` in little memory. [`report`] renders them, with warnings.
//! - [`conditions`] is the page that `wait` and `check --server` read.
//! - [`status_log`] logs each change, and problems as they appear and are resolved.
//! - [`snapshot`] publishes the configuration in effect to readers, which never delay a change; `inputs` makes that cheap. [`explain`] explains requests.
//! - [`graph`] is the topology as nodes and edges, for pictures of it.
//! - [`offline`] reads and binds manifests once, for commands that carry no traffic; [`diff`] compares two sets of them. [`merged_rules`] shows the effective
//!   rules of Kuma's policies.
//! - `exposition` writes metrics.
//! - [`clock`] is the only module that reads the time.
//!
//! This crate carries no traffic and binds no port: it depends on `resources`, `binding` and `routing`, never on `proxy`.

pub mod clock;
pub mod conditions;
mod content_access;
mod data_sources;
pub mod diff;
pub mod explain;
mod exposition;
pub mod files;
pub mod graph;
mod identities;
mod inputs;
mod journal;
pub mod mailbox;
mod manifest_permissions;
pub mod merged_rules;
pub mod offline;
mod reconciler;
pub mod report;
mod retry;
mod safe_read;
pub mod sink;
pub mod snapshot;
pub mod source;
pub mod status_log;
mod timed_status;

pub use content_access::ContentAccess;
pub use exposition::Exposition;
pub use files::FileSource;
pub use journal::{StatusEntry, StatusJournal};
pub use manifest_permissions::ManifestPermissions;
pub use reconciler::Reconciler;
pub use retry::RetrySchedule;
pub use sink::{Sink, StatusSink};
pub use snapshot::{Snapshot, Snapshots};
pub use source::{Inbox, SourceUpdate};
