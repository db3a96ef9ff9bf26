//! The Kubernetes API as a source of configuration and as the place of statuses.
//!
//! ```text
//!  discovery ──► which kinds are served, in which versions
//!      │
//!    watch (one per kind and namespace) ──► Collector ──► Inbox ──► Reconciler (crates/control)
//!                                                                      │ statuses
//!  status subresources ◄── StatusWriter (Lease holder only) ◄──────────┘
//! ```
//!
//! - [`connect`] finds the cluster, and [`Cluster`] starts everything.
//! - [`Settings`] are what an operator decides: names and namespaces.
//! - `discovery` finds out which kinds the API server serves, and notices when that changes.
//! - `object` and `decode` turn the JSON text of a watch event into a document of `crates/resources`.
//! - `known` compares what a watch delivers with what it delivered before, `watch` drives one, and `collector` joins all of them.
//! - [`Source`] starts the watches. [`listing`] lists the same objects once.
//! - `status` writes statuses, while [`lease`] says that this process is the one to do so.
//!
//! - [`gateways`] names the objects that are generated for each Gateway.
//! - [`permissions`] lists the requests that all of this makes.
//! - [`identity`] is the certificate authority of the control plane, and verifies the tokens of proxies.
//! - `events` reports problems as Events on the objects concerned.
//!
//! All kinds take the same path. What differs between them is data: see [`Kind`](pointsman_resources::Kind) and `watch::field_selector`.

mod cluster;
mod collector;
pub mod connect;
mod decode;
mod discovery;
mod events;
pub mod gateways;
pub mod identity;
mod known;
pub mod lease;
mod limit;
pub mod listing;
mod metrics;
mod object;
pub mod permissions;
mod settings;
mod source;
mod status;
mod watch;

pub use cluster::Cluster;
pub use metrics::Metrics;
pub use settings::{LeaseName, Settings};
pub use source::Source;
use status::StatusWriter;
