//! Accepting connections, and finding out what is spoken on each.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use pointsman_binding::bound::{Protocol, Transport};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::passage::{Passage, Secured};
use super::report::Open;
use super::stream::{self, Arrival};
use super::{http1, overload, tls};
use crate::proxy::Owner;
use crate::wire::io::split;
use crate::wire::relay::End;
use crate::worker::ports::Place;
use crate::worker::{Socket, Worker};

/// How long no connection is accepted after there was no room for one.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the socket is closed.
pub(crate) async fn accept(worker: Rc<Worker>, socket: Rc<Socket>, listener: TcpListener) {
    loop {
        let mut place = socket.closed.place();
        let accepted = poll_fn(|cx| match listener.poll_accept(cx) {
            Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
            // Those who connected before it was closed are served.
            Poll::Pending => place.poll(cx).map(|()| None),
        })
        .await;
        drop(place);
        match accepted {
            None => return,
            Some(Ok((stream, client))) => welcome(&worker, &socket, stream, client),
            Some(Err(error)) => {
                worker.metrics.own().accept_errors.increment();
                if !is_passing(&error) {
                    tracing::warn!(address = %socket.key.address, %error, "accepting; paused for {PAUSE:?}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Whether an error is of one connection, and says nothing of the next.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

fn welcome(worker: &Rc<Worker>, socket: &Rc<Socket>, stream: TcpStream, client: SocketAddr) {
    let Some(admission) = worker.admit() else {
        return overload::turn_away(worker, socket, stream, client, "connections");
    };
    let place = match limit(worker, socket) {
        None => None,
        Some(limit) => match Place::take(&socket.connections, limit) {
            Some(place) => Some(place),
            // A MeshGateway's own.
            None => {
                return overload::turn_away(worker, socket, stream, client, "connectionLimit");
            }
        },
    };
    let _ = stream.set_nodelay(true);
    let address = client.ip().to_canonical();
    let networks = &worker.shared.options.trusted_proxies;
    let passage = Passage {
        socket: socket.clone(),
        client,
        address: address.to_string().into(),
        trusted: networks.iter().any(|network| network.contains(address)),
        secured: Secured::Open,
        _admission: admission,
        _place: place,
        open: None,
    };
    serve(worker.clone(), passage, stream);
}

/// How many connections a port may have at a time. All listeners of a port agree on it.
fn limit(worker: &Worker, socket: &Socket) -> Option<u32> {
    let held = worker.held();
    let port = held.port(&socket.key)?;
    port.any()?.frontend().connection_limit
}

/// Serves a connection in whatever is spoken there, in a task that is no larger than that takes. A task that panics ends its connection, and nothing
/// else.
fn serve(worker: Rc<Worker>, mut passage: Passage, stream: TcpStream) {
    match protocol(&worker, &passage.socket, passage.client) {
        Some(Protocol::Http | Protocol::Tcp) if is_guarded(&worker, &passage.socket) => {
            spawn_local(tls::serve(worker, passage, stream));
        }
        Some(Protocol::Http) => {
            let held = worker.held();
            let listener = held.port(&passage.socket.key).and_then(|port| port.any());
            let series = listener.map(|table| worker.metrics.listener(&table.frontend().id));
            passage.open = series.map(Open::new);
            drop(held);
            let (reader, writer) = split(stream);
            spawn_local(http1::serve(worker, passage, reader, writer));
        }
        Some(Protocol::Https | Protocol::Tls(_)) => {
            spawn_local(tls::serve(worker, passage, stream));
        }
        Some(Protocol::Tcp) => {
            let arrival = Arrival {
                spoken: "TCP",
                name: None,
                listener: None,
            };
            let near = End::new(split(stream));
            spawn_local(stream::serve(worker, passage, near, arrival));
        }
        // The listener is gone since.
        Some(Protocol::Udp) | None => {}
    }
}

/// Whether only proxies of a mesh come in at a socket, with the mesh's own TLS around what is spoken there.
pub(super) fn is_guarded(worker: &Worker, socket: &Socket) -> bool {
    let held = worker.held();
    let listener = held.port(&socket.key).and_then(|port| port.any());
    listener.is_some_and(|table| table.frontend().cross_mesh)
}

/// What is spoken at a socket; in the mesh, what the policies or routes that govern a client's calls say.
pub(super) fn protocol(worker: &Worker, socket: &Socket, client: SocketAddr) -> Option<Protocol> {
    let held = worker.held();
    match &*socket.owner() {
        Owner::Gateway { .. } => held
            .port(&socket.key)
            .and_then(|port| port.any())
            .map(|table| table.frontend().protocol),
        Owner::Outbound(id) => {
            let table = held.version.tables.frontend(id);
            table.map(|table| table.frontend().protocol)
        }
        Owner::Mesh { parent, port } => {
            let table = held.mesh(client, parent, Transport::Tcp, *port);
            Some(table.map_or(Protocol::Tcp, |table| table.frontend().protocol))
        }
    }
}
