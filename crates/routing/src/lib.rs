//! Compiled routing tables: they match requests to rules, and explain the result.
//!
//! [`Tables`] are built from the bound form and updated by its [`Delta`](pointsman_binding::Delta)s. Versions share structure, so the cost of an update is
//! proportional to what it changes, and a clone is a cheap snapshot. The cost of [`FrontendTable::lookup`] depends on the length of the path, not on the number
//! of routes. This crate does no I/O, reads no clock and depends on no HTTP library.

// rustdoc derives `RefUnwindSafe` through the whole bound form.
#![recursion_limit = "256"]

pub mod action;
mod buckets;
mod children;
pub mod diff;
mod entry;
pub mod explain;
mod expression;
pub mod filters;
mod host;
mod hosts;
mod path;
pub mod precedence;
mod ranked;
mod request;
mod route;
mod shadow;
mod table;
mod tables;
mod weighted_selector;

pub use entry::{LookupResult, MatchEntry, Mismatch, MismatchRecorder};
pub use expression::{CompiledMatch, Expression};
pub use path::{PathError, PathPolicy, normalize_path};
pub use precedence::{Criterion, Rank, evaluation_order};
pub use request::{Parameters, Request, is_http, is_method_in_another_case};
pub use route::CompiledRoute;
pub use shadow::{Extent, Shadow, shadowed};
pub use table::FrontendTable;
pub use tables::{ConnectionSecurity, EndpointMap, MeshClient, MeshPort, PortTable, Tables};
pub use weighted_selector::WeightedSelector;

/// A map that shares structure between versions. Its keys come from configuration, so the hasher need not resist attacks; a fixed one makes tables
/// reproducible.
pub type Map<K, V> =
    imbl::GenericHashMap<K, V, foldhash::fast::FixedState, imbl::shared_ptr::DefaultSharedPtr>;

/// A set that shares structure between versions.
pub(crate) type Set<T> =
    imbl::GenericHashSet<T, foldhash::fast::FixedState, imbl::shared_ptr::DefaultSharedPtr>;
