//! Client connections as the servers and the request pipeline share them: who is connected to whom, and which frontends apply.
//!
//! `server` accepts connections and reads requests from them; `exchange` carries the requests out. Both depend on this module, and `server` on `exchange`,
//! never the other way round.

mod connection;
mod frontends;
mod resolved;

pub(crate) use connection::{ClientConnection, Open, Secured, until_closed};
pub(crate) use frontends::Frontends;
pub(crate) use resolved::ResolvedConnection;
