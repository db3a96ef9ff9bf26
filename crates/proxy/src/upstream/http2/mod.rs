//! Connections to endpoints that speak HTTP/2: few of them, each with many streams. While one is being made, all who need it wait for it.

mod connection;
mod io;

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
use super::{Pick, Upstream};
use crate::io::signal::Signal;
use crate::worker::Worker;
use connection::Connection;

/// The connections to the endpoints of a backend.
#[derive(Debug, Default)]
pub(crate) struct Connections(RefCell<Vec<(SocketAddr, Rc<Endpoint>)>>);

/// The connections to one endpoint.
#[derive(Debug, Default)]
struct Endpoint {
    /// The oldest first: it is used first, so that those which are too many grow idle and go.
    connections: RefCell<Vec<Rc<Connection>>>,
    making: RefCell<Option<Rc<Making>>>,
}

/// A connection that is being made.
#[derive(Debug)]
struct Making {
    done: Signal,
    failed: RefCell<Option<ConnectError>>,
}

/// Room for a stream on a connection.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Rc<Connection>,
    reused: bool,
}

impl Connections {
    fn endpoint(&self, address: SocketAddr) -> Rc<Endpoint> {
        let mut all = self.0.borrow_mut();
        match all.iter().find(|(other, _)| *other == address) {
            Some((_, endpoint)) => endpoint.clone(),
            None => {
                let endpoint = Rc::new(Endpoint::default());
                all.push((address, endpoint.clone()));
                endpoint
            }
        }
    }

    /// Keeps only those to endpoints that are still there. The others end with their last stream.
    pub(crate) fn retain(&self, there: impl Fn(&SocketAddr) -> bool) {
        self.0.borrow_mut().retain(|(address, _)| there(address));
    }

    /// Keeps none.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Closes those that have had no stream for this long.
    pub(crate) fn sweep(&self, oldest: Duration) {
        for (_, endpoint) in self.0.borrow().iter() {
            endpoint
                .connections
                .borrow_mut()
                .retain(|connection| !connection.is_idle(oldest));
        }
    }
}

/// Room for a stream to an endpoint: on a connection that there is, else on a new one.
pub(crate) async fn lease(worker: &Rc<Worker>, pick: &Pick) -> Result<Lease, ConnectError> {
    let upstream = pick.upstream();
    let endpoint = upstream.http2.endpoint(pick.address);
    let mut reused = true;
    loop {
        if let Some(lease) = endpoint.room(worker, upstream, reused) {
            return Ok(lease);
        }
        reused = false;
        let making = endpoint.make(worker, upstream, pick.address);
        making.done.wait().await;
        if let Some(error) = &*making.failed.borrow() {
            return Err(error.again());
        }
    }
}

impl Endpoint {
    /// Room on one of the connections. Those that take no more streams at all are let go.
    fn room(&self, worker: &Worker, upstream: &Upstream, reused: bool) -> Option<Lease> {
        let mut connections = self.connections.borrow_mut();
        let most = worker.limits().backend_streams as usize;
        let mut at = 0;
        while let Some(connection) = connections.get(at) {
            match connection.room(upstream.terms(), most) {
                None => drop(connections.remove(at)),
                Some(false) => at += 1,
                Some(true) => return Some(Lease::new(connection.clone(), reused)),
            }
        }
        None
    }

    /// A connection that is being made, by this call or an earlier one. It is made by a task of its own: who waits for it may go away.
    fn make(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        upstream: &Rc<Upstream>,
        address: SocketAddr,
    ) -> Rc<Making> {
        let mut slot = self.making.borrow_mut();
        if let Some(making) = &*slot {
            return making.clone();
        }
        let making = Rc::new(Making {
            done: Signal::default(),
            // Until it is known better.
            failed: RefCell::new(Some(ConnectError::Elapsed)),
        });
        *slot = Some(making.clone());
        let (endpoint, made) = (self.clone(), making.clone());
        let (worker, upstream) = (worker.clone(), upstream.clone());
        spawn_local(async move {
            // Should this task come to nothing, those who wait are told all the same.
            let made = Made {
                endpoint,
                making: made,
            };
            let outcome = match connection::make(&worker, &upstream, address).await {
                Ok(connection) => {
                    made.endpoint.connections.borrow_mut().push(connection);
                    None
                }
                Err(error) => Some(error),
            };
            made.making.failed.replace(outcome);
        });
        making
    }
}

/// Tells those who wait for a connection that there is one, or none, when it is dropped.
struct Made {
    endpoint: Rc<Endpoint>,
    making: Rc<Making>,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.endpoint.making.replace(None);
        self.making.done.notify();
    }
}

impl Lease {
    fn new(connection: Rc<Connection>, reused: bool) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        Lease { connection, reused }
    }

    /// Whether the connection was there before it was asked for.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Whether the endpoint has announced that it takes WebSockets (RFC 8441 §3).
    pub(crate) fn takes_websockets(&self) -> bool {
        let sender = self.connection.sender.borrow();
        sender.is_extended_connect_protocol_enabled()
    }

    /// Sends a head. Its stream has no body if it is said to have ended.
    pub(crate) fn send(
        &self,
        request: Request<()>,
        ended: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        // A handle of its own: one that has a stream waiting to be opened takes no other.
        let mut sender = self.connection.sender.borrow().clone();
        sender.send_request(request, ended)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let streams = &self.connection.streams;
        streams.set(streams.get() - 1);
        if streams.get() == 0 {
            self.connection.idle_since.set(Instant::now());
        }
    }
}

/// Streams that are open, for who looks whether the connection is alive.
type Streams = Rc<Cell<usize>>;
