//! The bound form: what all dialects are lowered into, and what tables are compiled from.
//!
//! A [`Frontend`] is what a client connects to. A [`BoundRoute`] is a route that governs some of its traffic; the pair is an
//! attachment. A [`Backend`] is where traffic goes. Everything has an id and names other things by id: endpoints and certificates change without
//! touching a route.

mod backend;
mod fault;
mod frontend;
mod placement;
mod rule;
mod secret;

pub use backend::*;
pub use fault::*;
pub use frontend::*;
pub use placement::*;
pub use rule::*;
pub use secret::*;
