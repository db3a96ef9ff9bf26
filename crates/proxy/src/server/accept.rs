//! Accepts connections and starts a task for the protocol of each.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use pointsman_binding::bound::Protocol;
use pointsman_routing::ConnectionSecurity;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::stream::{self, AcceptedStream};
use super::{http1, overload, proxy_protocol, tls};
use crate::downstream::{ClientConnection, Frontends, ListenerConnectionGuard, ResolvedConnection};
use crate::io::relay::RelayEnd;
use crate::io::stream::split;
use crate::io::task::spawn_within;
use crate::limits::limit_name;
use crate::worker::{Admission, Socket, Worker};

/// Pause after an error of `accept`, for example if file descriptors have run out.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Bound for the size of the future of a connection with TLS; that of its handshake or stream is boxed.
const TLS_BYTES: usize = 928;

/// Bound for the size of a TCP stream's future.
const STREAM_BYTES: usize = 6272;

/// Accepts connections until the socket is closed.
pub(super) async fn accept(worker: Rc<Worker>, socket: Rc<Socket>, listener: TcpListener) {
    let mut error_logged = false;
    loop {
        let mut closed = socket.closed.waiter();
        let accepted = poll_fn(|cx| match listener.poll_accept(cx) {
            Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
            // Connections made before the socket was closed are still served.
            Poll::Pending => closed.poll(cx).map(|()| None),
        })
        .await;
        drop(closed);
        match accepted {
            None => return,
            Some(Ok((stream, client))) => {
                error_logged = false;
                admit(&worker, &socket, stream, client).await;
            }
            Some(Err(error)) => {
                worker.metrics.worker_series().accept_errors.increment();
                if !is_transient(&error) {
                    // Logged once until a connection is accepted again.
                    if !std::mem::replace(&mut error_logged, true) {
                        tracing::warn!(address = %socket.key.address, %error, "accept failed; retrying every {RETRY_DELAY:?}");
                    }
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }
}

/// Returns whether an error concerns a single connection only.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Admits a connection within the limits of the process.
async fn admit(worker: &Rc<Worker>, socket: &Rc<Socket>, stream: TcpStream, peer: SocketAddr) {
    let Some(admission) = worker.admit().await else {
        let snapshot = worker.pin_snapshot();
        let resolved = ResolvedConnection::accepted(worker, socket, peer);
        let frontends = Frontends::of(worker, &snapshot, &resolved);
        return overload::refuse_connection(
            worker,
            &frontends,
            stream,
            peer,
            limit_name::connections,
        );
    };
    let _ = stream.set_nodelay(true);
    if proxy_protocol::is_expected(worker, peer) {
        let (worker, socket) = (worker.clone(), socket.clone());
        spawn_local(proxy_protocol::serve(
            worker, socket, stream, peer, admission,
        ));
        return;
    }
    start_task(worker, socket, stream, peer, admission).await;
}

/// Resolves an admitted connection and starts its task.
pub(super) async fn start_task(
    worker: &Rc<Worker>,
    socket: &Rc<Socket>,
    stream: TcpStream,
    client: SocketAddr,
    admission: Admission,
) {
    let snapshot = worker.pin_snapshot();
    let resolved = ResolvedConnection::accepted(worker, socket, client);
    let frontends = Frontends::of(worker, &snapshot, &resolved);
    let permit = match frontends.connection_limit() {
        None => None,
        // The limit of a MeshGateway.
        Some(limit) => match socket.acquire_permit(worker, limit).await {
            Some(permit) => Some(permit),
            None => {
                let limit = "connectionLimit";
                return overload::refuse_connection(worker, &frontends, stream, client, limit);
            }
        },
    };
    let address = client.ip().to_canonical();
    let networks = &worker.shared.options.trusted_proxies;
    let connection = ClientConnection {
        socket: socket.clone(),
        resolved,
        address: address.to_string().into(),
        trusted: networks.iter().any(|network| network.contains(address)),
        security: ConnectionSecurity::Plaintext,
        admission,
        permit,
        listener_guard: None,
    };
    serve(worker, &frontends, connection, stream);
}

/// Starts a task that serves a connection in the protocol of its frontend. Each protocol has its own type of task, so that each takes only the memory that it
/// needs. A panic ends only the task's connection.
fn serve(
    worker: &Rc<Worker>,
    frontends: &Frontends<'_>,
    mut connection: ClientConnection,
    stream: TcpStream,
) {
    let worker = worker.clone();
    match frontends.protocol() {
        Some(Protocol::Http | Protocol::Tcp) if frontends.requires_mesh_mtls() => {
            spawn_within::<TLS_BYTES, _>(tls::serve(worker, connection, stream));
        }
        Some(Protocol::Http) => {
            let series = |frontend| connection.socket.listener_series(&worker, frontend);
            connection.listener_guard = frontends
                .listener()
                .map(series)
                .map(ListenerConnectionGuard::new);
            let (reader, writer) = split(stream);
            http1::spawn(worker, connection, reader, writer);
        }
        Some(Protocol::Https | Protocol::Tls(_)) => {
            spawn_within::<TLS_BYTES, _>(tls::serve(worker, connection, stream));
        }
        Some(Protocol::Tcp) => {
            let accepted = AcceptedStream {
                protocol: "TCP",
                sni: None,
                listener: None,
            };
            let downstream = RelayEnd::new(split(stream));
            spawn_within::<STREAM_BYTES, _>(stream::serve(
                worker, connection, downstream, accepted,
            ));
        }
        // The listener has been removed.
        Some(Protocol::Udp) | None => {}
    }
}
