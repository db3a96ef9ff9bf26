//! A client's connection, as those who serve it see it.

use std::net::SocketAddr;
use std::rc::Rc;

use pointsman_binding::bound::FrontendId;

use super::report::Open;
use crate::worker::{Admission, Socket};

/// Where a connection came from, and at which door.
#[derive(Debug)]
pub(crate) struct Passage {
    /// The socket it was accepted at.
    pub(crate) socket: Rc<Socket>,
    /// The other end.
    pub(crate) client: SocketAddr,
    /// Its address, as `x-forwarded-for` has it.
    pub(crate) address: Box<str>,
    /// Whether its word on others is believed.
    pub(crate) trusted: bool,
    /// The listener that the name asked for has chosen, where TLS ends here.
    pub(crate) secured: Option<FrontendId>,
    /// Counts it while it lives.
    pub(crate) _admission: Admission,
    /// Counts it at its listener.
    pub(crate) open: Option<Open>,
}

impl Passage {
    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.secured {
            Some(_) => "https",
            None => "http",
        }
    }
}
