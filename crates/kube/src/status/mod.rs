//! Statuses on their way to the API server: only own entries change, only the Lease holder writes, and a status that says the same is not written.

mod patch;
mod queue;
mod writer;

pub use writer::StatusWriter;
