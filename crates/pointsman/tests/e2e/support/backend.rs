//! HTTP backends that record requests and respond as a test specifies.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::http1::Stream;
use super::message::{Fields, field, fields, of_map, to_map};
use super::within;

/// A request received by a backend.
#[derive(Debug, Clone, Default)]
pub struct RecordedRequest {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub host: String,
    pub version: String,
    pub headers: Fields,
    pub body: Vec<u8>,
    pub trailers: Fields,
    /// Number of the backend's connection that carried it, from 0.
    pub connection: usize,
    /// SNI of the TLS handshake.
    pub sni: Option<String>,
    /// The client presented a certificate.
    pub certificate: bool,
}

impl RecordedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        fields(&self.headers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A backend's response to a request.
#[derive(Debug, Clone)]
pub enum BackendResponse {
    /// A complete response.
    Whole {
        status: u16,
        headers: Fields,
        body: Bytes,
        trailers: Fields,
    },
    /// The head at once, then the request's body as it arrives, then its trailers (in gRPC: `grpc-status: 0`).
    Echo,
    /// A 200 once the gate is open.
    Later(Gate),
    /// No response at all.
    Never,
    /// Closes the connection (in HTTP/2: resets the stream).
    Cut,
}

/// Delays responses until a test opens it.
#[derive(Debug, Clone)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    pub fn shut() -> Gate {
        Gate(watch::Sender::new(false))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }
}

pub fn status(status: u16) -> BackendResponse {
    BackendResponse::Whole {
        status,
        headers: Vec::new(),
        body: Bytes::from_static(b"as told"),
        trailers: Vec::new(),
    }
}

impl BackendResponse {
    pub fn header(mut self, name: &str, value: &str) -> BackendResponse {
        if let BackendResponse::Whole { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub fn trailer(mut self, name: &str, value: &str) -> BackendResponse {
        if let BackendResponse::Whole { trailers, .. } = &mut self {
            trailers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub fn body(mut self, bytes: impl Into<Bytes>) -> BackendResponse {
        if let BackendResponse::Whole { body, .. } = &mut self {
            *body = bytes.into();
        }
        self
    }
}

type Handler = dyn Fn(&RecordedRequest) -> BackendResponse + Send + Sync;

/// State shared by the connections of a backend.
pub struct Record {
    requests: Mutex<Vec<RecordedRequest>>,
    count: watch::Sender<usize>,
    connections: AtomicUsize,
    open: watch::Sender<usize>,
    forgets: std::sync::atomic::AtomicBool,
}

impl Record {
    pub fn new() -> Arc<Record> {
        Arc::new(Record {
            requests: Mutex::default(),
            count: watch::Sender::new(0),
            connections: AtomicUsize::new(0),
            open: watch::Sender::new(0),
            forgets: false.into(),
        })
    }

    pub fn note(&self, saw: RecordedRequest) {
        if !self.forgets.load(Ordering::Relaxed) {
            self.requests.lock().expect("no panic").push(saw);
        }
        self.count.send_modify(|count| *count += 1);
    }

    /// Registers a connection, which counts as open until the guard is dropped. Returns its number.
    pub fn connected(self: &Arc<Self>) -> (usize, OpenConnection) {
        self.open.send_modify(|count| *count += 1);
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        (number, OpenConnection(self.clone()))
    }
}

/// Guard of an open connection.
pub struct OpenConnection(Arc<Record>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.send_modify(|count| *count -= 1);
    }
}

/// A server in this process, which is stopped on drop.
pub struct Backend {
    pub name: String,
    pub address: SocketAddr,
    record: Arc<Record>,
    server: JoinHandle<()>,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn any_port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

impl Backend {
    /// HTTP/1.1 that responds with the received request.
    pub async fn http1(name: &str) -> Backend {
        Backend::http1_with(name, |_| status(200)).await
    }

    /// HTTP/1.1 with responses that the test defines.
    pub async fn http1_with(
        name: &str,
        handler: impl Fn(&RecordedRequest) -> BackendResponse + Send + Sync + 'static,
    ) -> Backend {
        Backend::serve(name, false, None, handler).await
    }

    /// Like [`http1`](Self::http1), at an address.
    pub async fn http1_at(name: &str, address: SocketAddr) -> Backend {
        let listener = TcpListener::bind(address).await.expect("a port");
        Backend::serve_at(listener, name, false, None, |_| status(200))
    }

    /// Like [`http1`](Self::http1), on a listening socket.
    pub fn http1_on(
        name: &str,
        listener: std::net::TcpListener,
        handler: impl Fn(&RecordedRequest) -> BackendResponse + Send + Sync + 'static,
    ) -> Backend {
        let listener = TcpListener::from_std(listener).expect("a listener");
        Backend::serve_at(listener, name, false, None, handler)
    }

    /// HTTP/2 with prior knowledge.
    pub async fn http2_with(
        name: &str,
        handler: impl Fn(&RecordedRequest) -> BackendResponse + Send + Sync + 'static,
    ) -> Backend {
        Backend::serve(name, true, None, handler).await
    }

    /// gRPC that echoes each message as it arrives.
    pub async fn grpc(name: &str) -> Backend {
        Backend::http2_with(name, |_| BackendResponse::Echo).await
    }

    /// HTTP over TLS, version by ALPN.
    pub async fn tls(name: &str, config: Arc<ServerConfig>) -> Backend {
        Backend::serve(name, false, Some(config), |_| status(200)).await
    }

    async fn serve(
        name: &str,
        http2: bool,
        tls: Option<Arc<ServerConfig>>,
        handler: impl Fn(&RecordedRequest) -> BackendResponse + Send + Sync + 'static,
    ) -> Backend {
        Backend::serve_at(any_port().await, name, http2, tls, handler)
    }

    fn serve_at(
        listener: TcpListener,
        name: &str,
        http2: bool,
        tls: Option<Arc<ServerConfig>>,
        handler: impl Fn(&RecordedRequest) -> BackendResponse + Send + Sync + 'static,
    ) -> Backend {
        let handler: Arc<Handler> = Arc::new(handler);
        let name_of_ours = name.to_owned();
        Backend::accepting(listener, name, move |stream, seen| {
            let (handler, tls, name) = (handler.clone(), tls.clone(), name_of_ours.clone());
            async move {
                let (number, _open) = seen.connected();
                let mut about = RecordedRequest {
                    connection: number,
                    ..RecordedRequest::default()
                };
                let Some(config) = tls else {
                    return drive(stream, http2, name, about, seen, handler).await;
                };
                let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else {
                    return;
                };
                let session = stream.get_ref().1;
                about.sni = session.server_name().map(str::to_owned);
                about.certificate = session.peer_certificates().is_some();
                let http2 = session.alpn_protocol() == Some(b"h2");
                drive(stream, http2, name, about, seen, handler).await;
            }
        })
    }

    /// A listener that passes each connection to `connection`.
    pub async fn listening<F: Future<Output = ()> + Send + 'static>(
        name: &str,
        connection: impl Fn(TcpStream, Arc<Record>) -> F + Send + 'static,
    ) -> Backend {
        Backend::accepting(any_port().await, name, connection)
    }

    fn accepting<F: Future<Output = ()> + Send + 'static>(
        listener: TcpListener,
        name: &str,
        connection: impl Fn(TcpStream, Arc<Record>) -> F + Send + 'static,
    ) -> Backend {
        let address = listener.local_addr().expect("an address");
        let record = Record::new();
        let seen = record.clone();
        let server = tokio::spawn(async move {
            // The connections end when this task is aborted.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                connections.spawn(connection(stream, seen.clone()));
            }
        });
        Backend {
            name: name.to_owned(),
            address,
            record,
            server,
        }
    }

    /// A backend implemented by the test's own task.
    pub fn of(
        name: &str,
        address: SocketAddr,
        record: Arc<Record>,
        server: JoinHandle<()>,
    ) -> Backend {
        Backend {
            name: name.to_owned(),
            address,
            record,
            server,
        }
    }

    /// Waits for a number of requests and returns all received ones.
    pub async fn saw(&self, count: usize) -> Vec<RecordedRequest> {
        let mut counter = self.record.count.subscribe();
        within(
            &format!("{count} requests at {}", self.name),
            counter.wait_for(|seen| *seen >= count),
        )
        .await
        .expect("a counter");
        self.record.requests.lock().expect("no panic").clone()
    }

    /// Returns the only request received.
    pub async fn only(&self) -> RecordedRequest {
        let mut all = self.saw(1).await;
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Stops recording requests and only counts them, for long runs.
    pub fn forget(&self) {
        self.record.forgets.store(true, Ordering::Relaxed);
    }

    /// Number of requests received so far.
    pub fn count(&self) -> usize {
        *self.record.count.borrow()
    }

    /// Number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.record.connections.load(Ordering::Relaxed)
    }

    /// Waits until this number of connections is open.
    pub async fn open(&self, count: usize) {
        let mut counter = self.record.open.subscribe();
        within(
            &format!("{count} open connections at {}", self.name),
            counter.wait_for(|open| *open == count),
        )
        .await
        .expect("a counter");
    }
}

async fn drive(
    stream: impl Stream + 'static,
    http2: bool,
    name: String,
    about: RecordedRequest,
    record: Arc<Record>,
    handler: Arc<Handler>,
) {
    let service = service_fn(move |request| {
        answer(
            request,
            name.clone(),
            about.clone(),
            record.clone(),
            handler.clone(),
        )
    });
    let stream = TokioIo::new(stream);
    // Errors of connections are checked by tests, not by the backend.
    if http2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(stream, service)
            .await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .serve_connection(stream, service)
            .await;
    }
}

type HyperResponse = http::Response<BoxBody<Bytes, hyper::Error>>;

async fn answer(
    request: Request<Incoming>,
    name: String,
    about: RecordedRequest,
    record: Arc<Record>,
    handler: Arc<Handler>,
) -> io::Result<HyperResponse> {
    let (head, body) = request.into_parts();
    let mut saw = RecordedRequest {
        method: head.method.to_string(),
        target: head
            .uri
            .path_and_query()
            .map_or_else(|| head.uri.to_string(), ToString::to_string),
        version: format!("{:?}", head.version),
        headers: of_map(&head.headers),
        ..about
    };
    let authority = head.uri.authority().map(ToString::to_string);
    let host = saw.header("host").map(str::to_owned);
    saw.host = authority.or(host).unwrap_or_default();
    let response = http::Response::builder().header("x-backend", &name);
    let response = response.header("x-connection", saw.connection);
    let answer = handler(&saw);
    if matches!(answer, BackendResponse::Echo) {
        let grpc = saw
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("application/grpc"));
        let mut response = response.status(200);
        if grpc {
            response = response.header("content-type", "application/grpc");
        }
        record.note(saw);
        let echo = Echo {
            body,
            grpc,
            ended: false,
        };
        return Ok(response.body(echo.boxed()).expect("a response"));
    }
    // A request with an incomplete body is not recorded.
    let whole = body.collect().await.map_err(io::Error::other)?;
    saw.trailers = whole.trailers().map(of_map).unwrap_or_default();
    saw.body = whole.to_bytes().to_vec();
    let http2 = head.version == Version::HTTP_2;
    let said = serde_json::json!({
        "backend": name, "method": saw.method, "target": saw.target, "host": saw.host, "http2": http2,
    });
    record.note(saw);
    let answer = match answer {
        BackendResponse::Later(gate) => {
            let opened = gate.0.subscribe().wait_for(|open| *open).await.is_ok();
            if opened {
                self::status(200)
            } else {
                BackendResponse::Cut
            }
        }
        other => other,
    };
    match answer {
        BackendResponse::Whole {
            status,
            headers,
            body,
            trailers,
        } => {
            let mut response = response.status(status).body(()).expect("a response");
            response.headers_mut().extend(to_map(&headers));
            let body = if body == "as told" {
                Bytes::from(said.to_string())
            } else {
                body
            };
            let body = Full::new(body).map_err(|never: Infallible| match never {});
            let body = if trailers.is_empty() {
                body.boxed()
            } else {
                let trailers = to_map(&trailers);
                body.with_trailers(async move { Some(Ok(trailers)) })
                    .boxed()
            };
            Ok(response.map(|()| body))
        }
        BackendResponse::Never => pending().await,
        BackendResponse::Cut => Err(io::Error::other("as told")),
        BackendResponse::Echo | BackendResponse::Later(_) => unreachable!("answered above"),
    }
}

/// A request's body, sent back.
struct Echo {
    body: Incoming,
    grpc: bool,
    ended: bool,
}

impl Body for Echo {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(None) => {
                self.ended = true;
                if !self.grpc {
                    return Poll::Ready(None);
                }
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            other => other,
        }
    }
}
