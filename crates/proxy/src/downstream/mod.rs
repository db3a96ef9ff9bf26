//! Client connections, shared by the servers and the request pipeline: source, destination and applicable frontends.
//!
//! `server` accepts connections and reads requests from them; `exchange` processes the requests. Both depend on this module, and `server` depends on
//! `exchange`, never the other way round.

mod connection;
mod frontends;
mod resolved;

pub(crate) use connection::{ClientConnection, ListenerConnectionGuard, run_until_closed};
pub(crate) use frontends::Frontends;
pub(crate) use resolved::ResolvedConnection;
