//! The bound form: the common representation of all dialects, from which routing tables are compiled.
//!
//! Clients connect to a [`Frontend`]. A [`BoundRoute`] routes some of its traffic; the pair is an [`Attachment`]. Traffic is sent to a [`Backend`].
//! Resources have ids and reference each other by id, so that endpoints and certificates change without changing a route.

mod backend;
mod fault;
mod filter;
mod frontend;
mod infrastructure;
mod placement;
mod rule;
mod secret;

pub use backend::*;
pub use fault::*;
pub use filter::*;
pub use frontend::*;
pub use infrastructure::*;
pub use placement::*;
pub use rule::*;
pub use secret::*;
