//! Incremental computation: objects, the queries that read them, and the resources derived from their results.

pub(crate) mod attachments;
pub(crate) mod collections;
pub(crate) mod placement;
pub(crate) mod reader;
pub(crate) mod secrets;
pub(crate) mod store;
