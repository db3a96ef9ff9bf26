//! Writing of statuses to the API server. Only own entries are changed, only the Lease holder writes, and a status without changes is not written.

mod patch;
mod queue;
mod writer;

pub(crate) use queue::{Queue, Urgency, WriteOutcome};
pub use writer::StatusWriter;
