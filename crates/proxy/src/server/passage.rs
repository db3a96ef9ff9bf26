//! A client's connection, as those who serve it see it.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pointsman_binding::bound::FrontendId;

use super::report::Open;
use crate::wire::alarm::{Alarm, Elapsed};
use crate::worker::ports::Place;
use crate::worker::{Admission, Socket};

/// How long who has begun to ask may take once the socket is closed.
const LAST: Duration = Duration::from_secs(1);

/// What a connection came in, before what is spoken there.
#[derive(Debug)]
pub(crate) enum Secured {
    /// Nothing.
    Open,
    /// The mutual TLS of a mesh: it is a proxy's.
    Mesh,
    /// TLS that ended here, at the listener that the name asked for has chosen.
    Listener(FrontendId),
}

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
    /// What it came in.
    pub(crate) secured: Secured,
    /// Counts it while it lives.
    pub(crate) _admission: Admission,
    /// Counts it at its port, where that has a limit.
    pub(crate) _place: Option<Place>,
    /// Counts it at its listener.
    pub(crate) open: Option<Open>,
}

impl Passage {
    /// Waits for a part of something that is no request yet. Once the socket is closed, there is little time left for it.
    pub(crate) async fn until<T>(
        &self,
        alarm: &mut Alarm,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let closed = &self.socket.closed;
        let (mut place, mut work) = (closed.place(), pin!(work));
        let end = Cell::new(None);
        let hurried = poll_fn(|cx| {
            if end.get().is_none() && place.poll(cx).is_ready() {
                end.set(Some(deadline.min(Instant::now() + LAST)));
            }
            work.as_mut().poll(cx)
        });
        let deadline = || Some(end.get().unwrap_or(deadline));
        alarm.watch(deadline, hurried).await
    }

    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.secured {
            Secured::Listener(_) => "https",
            Secured::Open | Secured::Mesh => "http",
        }
    }
}
