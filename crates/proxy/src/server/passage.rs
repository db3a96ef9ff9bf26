//! A client's connection, as those who serve it see it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use pointsman_binding::bound::FrontendId;

use crate::metrics::ListenerSeries;
use crate::worker::{Admission, Socket};

/// Where a connection came from, and at which door.
#[derive(Debug)]
pub(crate) struct Passage {
    /// The socket it was accepted at.
    pub(crate) socket: Rc<Socket>,
    /// The other end.
    pub(crate) client: SocketAddr,
    /// TLS that ends here.
    pub(crate) secured: Option<Secured>,
    /// Counts it.
    pub(crate) admission: Admission,
}

/// What was agreed on in a TLS handshake.
#[derive(Debug)]
pub(crate) struct Secured {
    /// The listener that the name asked for has chosen.
    pub(crate) listener: FrontendId,
    /// The name asked for.
    pub(crate) name: Option<String>,
    /// The listener's figures.
    pub(crate) series: Arc<ListenerSeries>,
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
