//! Connections to endpoints that speak HTTP/2: few of them, each with many streams. While one is being made, all who need it wait for it.

mod driver;
mod transport;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use http::Request;
use tokio::task::spawn_local;

use super::connect::ConnectError;
use super::{SelectedEndpoint, Upstream};
use crate::io::signal::Signal;
use crate::worker::Worker;
use driver::Http2Connection;

/// The connections to the endpoints of a backend.
#[derive(Debug, Default)]
pub(crate) struct Http2Pool(RefCell<Vec<(SocketAddr, Rc<EndpointConnections>)>>);

/// The connections to one endpoint.
#[derive(Debug, Default)]
struct EndpointConnections {
    /// The oldest first: it is used first, so that those which are too many grow idle and go.
    connections: RefCell<Vec<Rc<Http2Connection>>>,
    pending: RefCell<Option<Rc<PendingConnection>>>,
}

/// A connection that is being made.
#[derive(Debug)]
struct PendingConnection {
    done: Signal,
    error: RefCell<Option<ConnectError>>,
}

/// Room for a stream on a connection.
#[derive(Debug)]
pub(crate) struct StreamLease {
    connection: Rc<Http2Connection>,
    reused: bool,
}

impl Http2Pool {
    fn endpoint(&self, address: SocketAddr) -> Rc<EndpointConnections> {
        let mut all = self.0.borrow_mut();
        match all.iter().find(|(other, _)| *other == address) {
            Some((_, endpoint)) => endpoint.clone(),
            None => {
                let endpoint = Rc::new(EndpointConnections::default());
                all.push((address, endpoint.clone()));
                endpoint
            }
        }
    }

    /// Keeps only those to endpoints that are still there. The others end with their last stream.
    pub(crate) fn retain(&self, exists: impl Fn(&SocketAddr) -> bool) {
        self.0.borrow_mut().retain(|(address, _)| exists(address));
    }

    /// Keeps none.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Closes those that have had no stream for this long.
    pub(crate) fn sweep(&self, max_idle: Duration) {
        for (_, endpoint) in self.0.borrow().iter() {
            endpoint
                .connections
                .borrow_mut()
                .retain(|connection| !connection.is_idle(max_idle));
        }
    }
}

/// Room for a stream to an endpoint: on a connection that there is, else on a new one.
pub(crate) async fn acquire_stream(
    worker: &Rc<Worker>,
    selected: &SelectedEndpoint,
) -> Result<StreamLease, ConnectError> {
    let upstream = selected.upstream();
    let endpoint = upstream.http2.endpoint(selected.address);
    let mut reused = true;
    loop {
        if let Some(lease) = endpoint.try_acquire(worker, upstream, reused) {
            return Ok(lease);
        }
        reused = false;
        let pending = endpoint.connect(worker, upstream, selected.address);
        pending.done.wait().await;
        if let Some(error) = &*pending.error.borrow() {
            return Err(error.duplicate());
        }
    }
}

impl EndpointConnections {
    /// Room on one of the connections. Those that take no more streams at all are let go.
    fn try_acquire(
        &self,
        worker: &Worker,
        upstream: &Upstream,
        reused: bool,
    ) -> Option<StreamLease> {
        let mut connections = self.connections.borrow_mut();
        let max = worker.limits().backend_streams as usize;
        let mut index = 0;
        while let Some(connection) = connections.get(index) {
            match connection.has_capacity(upstream.settings_version(), max) {
                None => drop(connections.remove(index)),
                Some(false) => index += 1,
                Some(true) => return Some(StreamLease::new(connection.clone(), reused)),
            }
        }
        None
    }

    /// A connection that is being made, by this call or an earlier one. It is made by a task of its own: who waits for it may go away.
    fn connect(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        upstream: &Rc<Upstream>,
        address: SocketAddr,
    ) -> Rc<PendingConnection> {
        let mut slot = self.pending.borrow_mut();
        if let Some(pending) = &*slot {
            return pending.clone();
        }
        let pending = Rc::new(PendingConnection {
            done: Signal::default(),
            // Until it is known better.
            error: RefCell::new(Some(ConnectError::Timeout)),
        });
        *slot = Some(pending.clone());
        let (endpoint, guard) = (self.clone(), pending.clone());
        let (worker, upstream) = (worker.clone(), upstream.clone());
        spawn_local(async move {
            // Should this task come to nothing, those who wait are told all the same.
            let guard = PendingGuard {
                endpoint,
                pending: guard,
            };
            let outcome = match driver::connect(&worker, &upstream, address).await {
                Ok(connection) => {
                    guard.endpoint.connections.borrow_mut().push(connection);
                    None
                }
                Err(error) => Some(error),
            };
            guard.pending.error.replace(outcome);
        });
        pending
    }
}

/// Tells those who wait for a connection that there is one, or none, when it is dropped.
struct PendingGuard {
    endpoint: Rc<EndpointConnections>,
    pending: Rc<PendingConnection>,
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.endpoint.pending.replace(None);
        self.pending.done.notify();
    }
}

impl StreamLease {
    fn new(connection: Rc<Http2Connection>, reused: bool) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        StreamLease { connection, reused }
    }

    /// Whether the connection was there before it was asked for.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Whether the endpoint has announced that it takes WebSockets (RFC 8441 §3).
    pub(crate) fn supports_websockets(&self) -> bool {
        let sender = self.connection.sender.borrow();
        sender.is_extended_connect_protocol_enabled()
    }

    /// Sends a head. Its stream has no body if it is said to have ended.
    pub(crate) fn send(
        &self,
        request: Request<()>,
        end_stream: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        // A handle of its own: one that has a stream waiting to be opened takes no other.
        let mut sender = self.connection.sender.borrow().clone();
        sender.send_request(request, end_stream)
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        let streams = &self.connection.streams;
        streams.set(streams.get() - 1);
        if streams.get() == 0 {
            self.connection.idle_since.set(Instant::now());
        }
    }
}

/// Streams that are open, for who looks whether the connection is alive.
type StreamCount = Rc<Cell<usize>>;
