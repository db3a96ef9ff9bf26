//! A client's connection.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pointsman_routing::ConnectionSecurity;

use super::ResolvedConnection;
use crate::io::deadline::{DeadlineTimer, Elapsed};
use crate::io::signal::Signal;
use crate::metrics::ListenerSeries;
use crate::worker::port_connections::ConnectionPermit;
use crate::worker::{Admission, Socket};

/// Grace period for partially received requests after the listener closes.
const PARTIAL_REQUEST_GRACE: Duration = Duration::from_secs(1);

/// A client's connection.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    /// Listening socket that accepted the connection.
    pub(crate) socket: Rc<Socket>,
    /// Source, destination and frontend owner.
    pub(crate) resolved: ResolvedConnection,
    /// The client's address, as `x-forwarded-for` shows it.
    pub(crate) address: Box<str>,
    /// The client is a trusted proxy: its `x-forwarded-*` headers are kept.
    pub(crate) trusted: bool,
    pub(crate) security: ConnectionSecurity,
    /// Counts the connection against the limits of the process.
    pub(crate) admission: Admission,
    /// Counts the connection against the limit of its port, if there is one.
    pub(crate) permit: Option<ConnectionPermit>,
    /// Counts the connection in the metrics of its listener.
    pub(crate) listener_guard: Option<ListenerConnectionGuard>,
}

/// A connection or session at a listener, counted in its metrics until dropped.
#[derive(Debug)]
pub(crate) struct ListenerConnectionGuard(pub(crate) Arc<ListenerSeries>);

impl ListenerConnectionGuard {
    /// Counts a connection or session.
    pub(crate) fn new(series: Arc<ListenerSeries>) -> Self {
        series.connections.increment();
        series.open.increment();
        ListenerConnectionGuard(series)
    }
}

impl Drop for ListenerConnectionGuard {
    fn drop(&mut self) {
        self.0.open.decrement();
    }
}

impl ClientConnection {
    /// Awaits a part of a request head or handshake until the deadline, or for a short grace period once the listener is closed.
    pub(crate) async fn run_until<T>(
        &self,
        timer: &mut DeadlineTimer,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        run_until_closed(&self.socket.closed, timer, deadline, work).await
    }

    /// Marks the connection as idle: no byte of a request has arrived. Ready when it must close to free capacity.
    pub(crate) fn poll_idle(&self, cx: &mut Context<'_>) -> Poll<()> {
        let process_limit = self.admission.poll_idle(cx);
        match &self.permit {
            None => process_limit,
            Some(permit) => match permit.poll_idle(self.admission.second(), cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => process_limit,
            },
        }
    }

    /// Marks the connection as busy, so that it is not closed to free capacity.
    pub(crate) fn set_busy(&self) {
        self.admission.set_busy();
        if let Some(permit) = &self.permit {
            permit.set_busy();
        }
    }

    /// Returns the scheme of the connection's requests, `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.security {
            ConnectionSecurity::Tls(_) => "https",
            ConnectionSecurity::Plaintext | ConnectionSecurity::MeshMtls => "http",
        }
    }
}

/// Awaits a part of a request head or handshake until the deadline, or for a short grace period once the listener is closed.
pub(crate) async fn run_until_closed<T>(
    closed: &Signal,
    timer: &mut DeadlineTimer,
    deadline: Instant,
    work: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    let (mut waiter, mut work) = (closed.waiter(), pin!(work));
    let end = Cell::new(None);
    let with_grace = poll_fn(|cx| {
        if end.get().is_none() && waiter.poll(cx).is_ready() {
            end.set(Some(deadline.min(Instant::now() + PARTIAL_REQUEST_GRACE)));
        }
        work.as_mut().poll(cx)
    });
    let deadline = || Some(end.get().unwrap_or(deadline));
    timer.run_until(deadline, with_grace).await
}
