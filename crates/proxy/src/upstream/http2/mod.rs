//! HTTP/2 connections to endpoints. Each carries many streams; requests that need a new connection to an endpoint share one attempt to open it.

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
use super::pool::PoolKey;
use super::{SelectedEndpoint, Upstream};
use crate::io::signal::Signal;
use crate::worker::Worker;
use driver::{ConnectTarget, Http2Connection};

/// Connections to the endpoints of a backend.
#[derive(Debug, Default)]
pub(crate) struct Http2Pool(RefCell<Vec<(PoolKey, Rc<EndpointConnections>)>>);

/// Connections to one endpoint, for clients with the same mark and network namespace.
#[derive(Debug, Default)]
struct EndpointConnections {
    /// Oldest first. The oldest is used first, so that surplus connections become idle and are closed.
    connections: RefCell<Vec<Rc<Http2Connection>>>,
    pending: RefCell<Option<Rc<PendingConnection>>>,
}

/// A connection that is being opened.
#[derive(Debug)]
struct PendingConnection {
    done: Signal,
    error: RefCell<Option<ConnectError>>,
}

/// A reservation for a stream on a connection.
#[derive(Debug)]
pub(crate) struct StreamLease {
    connection: Rc<Http2Connection>,
    reused: bool,
}

impl Http2Pool {
    fn endpoint(&self, selected: &SelectedEndpoint) -> Rc<EndpointConnections> {
        let mut all = self.0.borrow_mut();
        match all.iter().find(|(key, _)| key.matches(selected)) {
            Some((_, endpoint)) => endpoint.clone(),
            None => {
                let endpoint = Rc::new(EndpointConnections::default());
                all.push((PoolKey::of(selected), endpoint.clone()));
                endpoint
            }
        }
    }

    /// Drops connections to endpoints that were removed; they close after their last stream.
    pub(crate) fn retain(&self, exists: impl Fn(&SocketAddr) -> bool) {
        self.0.borrow_mut().retain(|(key, _)| exists(&key.address));
    }

    /// Drops all connections; they close after their last stream.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Closes connections that have had no stream for this long.
    pub(crate) fn sweep(&self, max_idle: Duration) {
        for (_, endpoint) in self.0.borrow().iter() {
            endpoint
                .connections
                .borrow_mut()
                .retain(|connection| !connection.is_idle(max_idle));
        }
    }
}

/// Reserves a stream to an endpoint, on an existing connection or on a new one.
pub(crate) async fn acquire_stream(
    worker: &Rc<Worker>,
    selected: &SelectedEndpoint,
) -> Result<StreamLease, ConnectError> {
    let upstream = selected.upstream();
    let endpoint = upstream.http2.endpoint(selected);
    let mut reused = true;
    loop {
        if let Some(lease) = endpoint.try_acquire(worker, upstream, reused) {
            return Ok(lease);
        }
        reused = false;
        let pending = endpoint.connect(worker, selected);
        pending.done.wait().await;
        if let Some(error) = &*pending.error.borrow() {
            return Err(error.duplicate());
        }
    }
}

impl EndpointConnections {
    /// Reserves a stream on an existing connection, and drops those that accept no more streams.
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

    /// Opens a connection, or returns the pending one. A separate task opens it, because the requests that wait for it may be cancelled.
    fn connect(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        selected: &SelectedEndpoint,
    ) -> Rc<PendingConnection> {
        let mut slot = self.pending.borrow_mut();
        if let Some(pending) = &*slot {
            return pending.clone();
        }
        let pending = Rc::new(PendingConnection {
            done: Signal::default(),
            // Overwritten when the outcome is known.
            error: RefCell::new(Some(ConnectError::Timeout)),
        });
        *slot = Some(pending.clone());
        let (endpoint, guard) = (self.clone(), pending.clone());
        let connecting = driver::connect(ConnectTarget {
            worker: worker.clone(),
            upstream: selected.upstream().clone(),
            address: selected.address,
            sockets: selected.sockets.clone(),
        });
        spawn_local(async move {
            // Notifies the waiters even if this task fails.
            let guard = PendingGuard {
                endpoint,
                pending: guard,
            };
            let outcome = match connecting.await {
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

/// Notifies the waiters of a pending connection when dropped.
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

    /// Returns whether the connection existed before it was requested.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Returns whether the endpoint supports WebSockets over HTTP/2 (RFC 8441 §3).
    pub(crate) fn supports_websockets(&self) -> bool {
        let sender = self.connection.sender.borrow();
        sender.is_extended_connect_protocol_enabled()
    }

    /// Sends the request headers. `end_stream` means that there is no body.
    pub(crate) fn send(
        &self,
        request: Request<()>,
        end_stream: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        // A clone: a handle with a pending stream can't send another request.
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

/// Number of open streams, shared with the connection's driver.
type StreamCount = Rc<Cell<usize>>;
