//! Compiled tables: which rule takes a request, and why.
//!
//! [`Tables`] are made of the bound form and changed by its [`Delta`](pointsman_binding::Delta)s. They share structure between versions: a
//! change costs what it touches, and a clone is a snapshot. [`FrontendTable::lookup`] costs the length of the path, whatever the
//! number of routes. Nothing here does I/O, reads a clock or knows an HTTP library.

pub mod action;
mod buckets;
mod children;
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
mod split;
mod table;
mod tables;

pub use entry::{Entry, Hit, Miss, Recorder};
pub use expression::{CompiledMatch, Expression};
pub use path::{PathError, PathPolicy, normalize_path};
pub use precedence::{Criterion, Rank, tried_order};
pub use request::{Parameters, Request, is_http, is_method_in_another_case};
pub use route::CompiledRoute;
pub use shadow::{Extent, Shadow, shadowed};
pub use split::Split;
pub use table::FrontendTable;
pub use tables::{Client, EndpointMap, PortTable, Tables};

/// A map that shares structure between versions. Its keys come from configuration, so its hasher need not be secret; a fixed one keeps
/// the same input giving the same table.
pub type Map<K, V> =
    imbl::GenericHashMap<K, V, foldhash::fast::FixedState, imbl::shared_ptr::DefaultSharedPtr>;

/// A set of the same making.
pub(crate) type Set<T> =
    imbl::GenericHashSet<T, foldhash::fast::FixedState, imbl::shared_ptr::DefaultSharedPtr>;
