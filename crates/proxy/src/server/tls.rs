//! Connections that start with TLS. The SNI in the ClientHello selects the listener, which terminates TLS or passes it through. For the mutual TLS of a mesh the
//! SNI is ignored: the decrypted request selects the listener, as on a plaintext connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use pointsman_binding::bound::{FrontendId, Protocol, TlsModeKey};
use pointsman_routing::{ConnectionSecurity, is_http};
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream as ServerStream;
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::stream::{self, AcceptedStream};
use super::{http1, http2};
use crate::downstream::{ClientConnection, Frontends, ListenerConnectionGuard};
use crate::io::deadline::{DeadlineTimer, Elapsed};
use crate::io::lingering_close::lingering_close;
use crate::io::relay::RelayEnd;
use crate::io::stream::{
    PrefixedStream, ReadHalf, WriteHalf, has_nothing_to_read, split, split_tls,
};
use crate::limits::limit_name;
use crate::metrics::ListenerSeries;
use crate::tls::client_hello::{self, HelloError};
use crate::worker::Worker;

/// TLS record with the fatal alert `unrecognized_name` (RFC 6066 §3).
const UNRECOGNIZED_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];

/// Response to plaintext HTTP on a TLS port.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 27\r\n\
    connection: close\r\nx-pointsman-reason: NotTls\r\n\r\nthis port accepts only TLS\n";

/// The listener's action for a connection.
enum TlsAction {
    /// Terminate TLS.
    Terminate(Termination),
    /// Pass TLS through.
    Passthrough { listener: Option<FrontendId> },
    /// No listener matches the name, or it can't serve.
    Reject {
        /// Send an alert.
        alert: bool,
        reason: &'static str,
    },
}

/// Termination of TLS by a listener.
struct Termination {
    listener: FrontendId,
    series: Arc<ListenerSeries>,
    config: Arc<ServerConfig>,
    /// The connection carries HTTP, otherwise a stream.
    http: bool,
    /// This is the mutual TLS of a mesh.
    mesh_mtls: bool,
}

/// A connection whose protocol is known.
enum Negotiated {
    /// HTTP/1 over terminated TLS.
    Http1(ClientConnection, ReadHalf, WriteHalf),
    /// HTTP/2 over terminated TLS.
    Http2(ClientConnection, Box<TlsStream<PrefixedStream>>),
    /// A stream, with TLS terminated or passed through.
    Stream(ClientConnection, RelayEnd, AcceptedStream),
}

/// Serves a connection until it ends. The state of the handshake is freed before the stream is relayed.
pub(crate) async fn serve(worker: Rc<Worker>, connection: ClientConnection, stream: TcpStream) {
    match Box::pin(accept_tls(&worker, connection, stream)).await {
        None => {}
        Some(Negotiated::Stream(connection, downstream, accepted)) => {
            Box::pin(stream::serve(worker, connection, downstream, accepted)).await;
        }
        Some(Negotiated::Http1(connection, reader, writer)) => {
            http1::spawn(worker, connection, reader, writer);
        }
        Some(Negotiated::Http2(connection, stream)) => {
            http2::spawn(worker, connection, stream);
        }
    }
}

/// Reads the ClientHello and terminates TLS if required. Returns `None` if the connection has ended.
async fn accept_tls(
    worker: &Worker,
    mut connection: ClientConnection,
    mut stream: TcpStream,
) -> Option<Negotiated> {
    let deadline = Instant::now() + worker.limits().head_time;
    let hello = read_client_hello(worker, &connection, &mut stream);
    let mut timer = DeadlineTimer::new();
    let (sni, bytes) = match connection.run_until(&mut timer, deadline, hello).await {
        Ok(Ok(Some(hello))) => hello,
        // The client sent nothing.
        Ok(Ok(None)) => return None,
        Ok(Err(bytes)) => {
            worker.metrics.count_refused_connection("NotTls");
            if is_http(&bytes) {
                send_and_close(stream, NOT_TLS).await;
            }
            return None;
        }
        Err(_) => {
            log_timeout(worker, &connection, "ClientHello");
            worker.metrics.count_refused_connection("HandshakeTimeout");
            return None;
        }
    };
    let accepted = |sni, listener| AcceptedStream {
        protocol: "TLS",
        sni,
        listener,
    };
    let termination = match tls_action(worker, &connection, sni.as_deref()) {
        TlsAction::Passthrough { listener } => {
            let mut downstream = RelayEnd::new(split(stream));
            downstream.prefix = bytes;
            return Some(Negotiated::Stream(
                connection,
                downstream,
                accepted(sni, listener),
            ));
        }
        TlsAction::Reject { alert, reason } => {
            tracing::debug!(client = %connection.resolved.client, sni, reason, "TLS connection rejected");
            worker.metrics.count_refused_connection(reason);
            if alert {
                send_and_close(stream, UNRECOGNIZED_NAME).await;
            }
            return None;
        }
        TlsAction::Terminate(termination) => termination,
    };
    let stream = PrefixedStream::new(bytes, stream);
    let handshake = TlsAcceptor::from(termination.config)
        .accept(stream)
        .into_fallible();
    let result = connection.run_until(&mut timer, deadline, handshake).await;
    let stream = finish_handshake(worker, &connection, &termination.series, result).await?;
    if !termination.http {
        let downstream = RelayEnd::new(split_tls(stream));
        let sni = sni.filter(|_| !termination.mesh_mtls);
        let accepted = accepted(sni, Some(termination.listener));
        return Some(Negotiated::Stream(connection, downstream, accepted));
    }
    connection.security = match termination.mesh_mtls {
        true => ConnectionSecurity::MeshMtls,
        false => ConnectionSecurity::Tls(termination.listener),
    };
    connection.listener_guard = Some(ListenerConnectionGuard::new(termination.series));
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        return Some(Negotiated::Http2(connection, Box::new(stream)));
    }
    let (reader, writer) = split_tls(stream);
    Some(Negotiated::Http1(connection, reader, writer))
}

/// Reads the ClientHello. Returns the SNI and the bytes read, or `None` if the connection ends; the error has the bytes if they are not a ClientHello. No buffer
/// is held before the first byte, and the wait ends when the listener is closed.
async fn read_client_hello(
    worker: &Worker,
    connection: &ClientConnection,
    stream: &mut TcpStream,
) -> Result<Option<(Option<String>, Vec<u8>)>, Vec<u8>> {
    let mut closed = connection.socket.closed.waiter();
    let first = poll_fn(|cx| {
        let mut buffer = worker.buffers.acquire();
        match buffer.poll_fill(Pin::new(&mut *stream), 0, cx) {
            Poll::Ready(Ok(1..)) => Poll::Ready(Some(buffer)),
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending if connection.poll_idle(cx).is_ready() && has_nothing_to_read(stream) => {
                Poll::Ready(None)
            }
            Poll::Pending => closed.poll(cx).map(|()| None),
        }
    });
    let Some(mut buffer) = first.await else {
        return Ok(None);
    };
    connection.set_busy();
    drop(closed);
    loop {
        let bytes = buffer.filled();
        match client_hello::read(bytes) {
            Ok(hello) => return Ok(Some((hello.server_name, bytes.to_vec()))),
            Err(HelloError::Incomplete) => {}
            Err(error) => {
                tracing::debug!(client = %connection.resolved.client, %error, "not a valid ClientHello");
                return Err(bytes.to_vec());
            }
        }
        match buffer.fill(stream, client_hello::MAX_READ).await {
            Ok(1..) => {}
            _ => return Ok(None),
        }
    }
}

/// Returns the action of the listener that the SNI selects.
fn tls_action(worker: &Worker, connection: &ClientConnection, sni: Option<&str>) -> TlsAction {
    let snapshot = worker.pin_snapshot();
    let reject = |alert, reason| TlsAction::Reject { alert, reason };
    let frontends = Frontends::of(worker, &snapshot, &connection.resolved);
    let port = match frontends {
        Frontends::Listeners(port) => port,
        // TLS is terminated at Gateways only.
        Frontends::Single(_) => return TlsAction::Passthrough { listener: None },
        Frontends::None => return reject(false, "NoListener"),
    };
    if let Some(frontend) = frontends.listener().filter(|frontend| frontend.cross_mesh) {
        let listener = frontend.id.clone();
        return match snapshot.config.tls.get(&listener) {
            Some(config) => TlsAction::Terminate(Termination {
                listener,
                series: connection.socket.listener_series(worker, frontend),
                config: config.clone(),
                http: frontend.protocol == Protocol::Http,
                mesh_mtls: true,
            }),
            None => reject(false, "NoCertificate"),
        };
    }
    let Some(table) = port.listener(sni) else {
        // The proxy does not terminate TLS here, so it can't send an alert.
        return reject(frontends.protocol() == Some(Protocol::Https), "UnknownName");
    };
    if table.closed().is_some() {
        return reject(true, "NoListener");
    }
    let frontend = table.frontend();
    let listener = frontend.id.clone();
    let http = match frontend.protocol {
        Protocol::Https => true,
        Protocol::Tls(TlsModeKey::Terminate) => false,
        Protocol::Tls(TlsModeKey::Passthrough) => {
            return TlsAction::Passthrough {
                listener: Some(listener),
            };
        }
        _ => return reject(false, "NoListener"),
    };
    match snapshot.config.tls.get(&listener) {
        Some(config) => TlsAction::Terminate(Termination {
            listener,
            series: connection.socket.listener_series(worker, frontend),
            config: config.clone(),
            http,
            mesh_mtls: false,
        }),
        None => reject(true, "NoCertificate"),
    }
}

/// Result of a handshake.
type HandshakeResult =
    Result<Result<ServerStream<PrefixedStream>, (io::Error, PrefixedStream)>, Elapsed>;

/// Records the result of a handshake and returns the stream.
async fn finish_handshake(
    worker: &Worker,
    connection: &ClientConnection,
    series: &ListenerSeries,
    result: HandshakeResult,
) -> Option<TlsStream<PrefixedStream>> {
    let reason = match result {
        Ok(Ok(stream)) => {
            series.handshakes.increment();
            return Some(TlsStream::Server(stream));
        }
        Ok(Err((error, stream))) => {
            tracing::debug!(client = %connection.resolved.client, %error, "the TLS handshake failed");
            // rustls has written an alert.
            let (mut reader, mut writer) = split(stream.into_tcp());
            lingering_close(&mut reader, &mut writer).await;
            "HandshakeFailed"
        }
        Err(_) => {
            log_timeout(worker, connection, "TLS handshake");
            "HandshakeTimeout"
        }
    };
    series.failed_handshakes.increment();
    worker.metrics.count_refused_connection(reason);
    None
}

fn log_timeout(worker: &Worker, connection: &ClientConnection, step: &str) {
    if let Some(count) = worker.limit_log.due(limit_name::head_time) {
        tracing::info!(limit = limit_name::head_time, client = %connection.resolved.client, count, "{step} timed out");
    }
}

/// Sends a short response and closes the connection.
async fn send_and_close(stream: TcpStream, response: &[u8]) {
    let (mut reader, mut writer) = split(stream);
    if writer.write(response).await.is_ok() {
        lingering_close(&mut reader, &mut writer).await;
    }
}
