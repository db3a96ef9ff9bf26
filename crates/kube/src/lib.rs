//! The Kubernetes API as the source of configuration and the destination of statuses.
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
//! - [`Settings`] are set by an operator: names and namespaces.
//! - `discovery` determines the kinds that the API server serves, and detects changes.
//! - `object` and `decode` turn the JSON text of a watch event into a document of `crates/resources`.
//! - `requests` limits the time of requests.
//! - `watched_objects` compares delivered objects with those delivered before, `watch` runs one watch, and `collector` merges the changes of all of them.
//! - [`Source`] starts the watches. [`listing`] lists the same objects once.
//! - `status` writes statuses while this process holds the [`lease`].
//! - [`gateways`] generates, applies and watches the objects of each Gateway.
//! - [`permissions`] lists the requests that this crate makes.
//! - [`identity`] is the certificate authority of the control plane, and verifies the tokens of proxies.
//! - `events` reports problems as Events on the objects concerned.
//!
//! All kinds take the same path. Differences between them are data: see [`Kind`](pointsman_resources::Kind) and `watch::field_selector`.

mod cluster;
mod collector;
pub mod connect;
mod decode;
mod discovery;
mod events;
pub mod gateways;
pub mod identity;
pub mod lease;
pub mod listing;
mod metrics;
mod object;
pub mod permissions;
mod rate_limit;
mod requests;
mod settings;
mod source;
mod status;
mod watch;
mod watched_objects;

pub use cluster::Cluster;
pub use metrics::Metrics;
pub use settings::{LeaseName, Settings};
pub use source::Source;
use status::StatusWriter;
