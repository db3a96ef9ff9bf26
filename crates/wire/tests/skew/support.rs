//! A configuration with every type of resource, and both sides of the protocol in bytes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pointsman_binding::{Binder, Change, Delta};
use pointsman_resources::read::ManifestReader;
use pointsman_wire::server::{self, Server, Subscription};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub const DELTA_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
pub const REPORT_PATH: &str = "/pointsman.v1.ProxyReports/Report";
pub const SNAPSHOT_URL: &str = "type.googleapis.com/pointsman.v1.Snapshot";

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Reads `manifests.yaml`, with some parts of its text replaced, and adds a certificate.
pub fn manifests(replacements: &[(&str, &str)]) -> Vec<Change> {
    let mut text = std::fs::read_to_string(data("manifests.yaml")).expect("a file");
    for (from, to) in replacements {
        assert!(text.contains(from), "manifests.yaml contains {from}");
        text = text.replace(from, to);
    }
    let names = vec!["shop.example".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    text += &format!(
        "---\n{{apiVersion: v1, kind: Secret, metadata: {{namespace: shop, name: tls}}, type: kubernetes.io/tls, stringData: {{tls.crt: {certificate:?}, tls.key: {key:?}}}}}\n"
    );
    let mut reader = ManifestReader::new();
    reader.read("manifests.yaml", text.as_bytes());
    let input = reader.finish();
    assert!(input.findings.is_empty(), "{:?}", input.findings);
    let documents = input.documents.into_iter();
    documents
        .map(|document| Change::Put(document.resource))
        .collect()
}

/// Binds `manifests.yaml`.
pub fn bind() -> Delta {
    Binder::new().apply(manifests(&[]))
}

/// A message as gRPC frames it.
pub fn frame(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}

/// Removes and returns the first message; `None` if it is incomplete.
pub fn unframe<M: Message + Default>(frames: &mut BytesMut) -> Option<M> {
    let length: [u8; 4] = frames.get(1..5)?.try_into().expect("four bytes");
    let end = 5 + u32::from_be_bytes(length) as usize;
    if frames.len() < end {
        return None;
    }
    let frame = frames.split_to(end);
    Some(M::decode(&frame[5..]).expect("a message"))
}

/// All messages of a recording.
pub fn messages<M: Message + Default>(bytes: &[u8]) -> Vec<M> {
    let mut rest = BytesMut::from(bytes);
    std::iter::from_fn(|| unframe(&mut rest)).collect()
}

/// A body whose bytes come through a channel.
pub struct Stream(mpsc::UnboundedReceiver<Vec<u8>>);

pub type Sender = mpsc::UnboundedSender<Vec<u8>>;

pub fn stream() -> (Sender, Stream) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Stream(receiver))
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = ready!(self.0.poll_recv(context));
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes.into()))))
    }
}

/// Messages that are received, and their bytes.
pub struct Received {
    body: Incoming,
    buffer: BytesMut,
    pub bytes: Vec<u8>,
}

impl Received {
    pub fn new(body: Incoming) -> Received {
        Received {
            body,
            buffer: BytesMut::new(),
            bytes: Vec::new(),
        }
    }

    /// The next message; `None` at the end of the stream.
    pub async fn next<M: Message + Default>(&mut self) -> Option<M> {
        loop {
            if let Some(message) = unframe(&mut self.buffer) {
                return Some(message);
            }
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let frame = tokio::time::timeout(Duration::from_secs(30), frame);
            let frame = frame.await.expect("in time")?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.bytes.extend(&data);
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

fn request(path: &str, body: Stream) -> Request<Stream> {
    Request::post(format!("http://control-plane{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .expect("a request")
}

/// A proxy that sends raw bytes: opens a stream to a control plane.
pub async fn call(address: SocketAddr, path: &str) -> (Sender, Received) {
    let (sender, body) = stream();
    let response = send(address, path, body).await.expect("a response");
    (sender, Received::new(response.into_body()))
}

/// Sends bytes as a whole stream, and waits for the end of the other side's.
pub async fn exchange(address: SocketAddr, path: &str, bytes: Vec<u8>) {
    let (sender, body) = stream();
    let _ = sender.send(bytes);
    drop(sender);
    if let Ok(response) = send(address, path, body).await {
        let mut body = response.into_body();
        let frame = |context: &mut Context<'_>| Pin::new(&mut body).poll_frame(context);
        let mut frame = frame;
        while std::future::poll_fn(&mut frame)
            .await
            .is_some_and(|frame| frame.is_ok())
        {}
    }
}

async fn send(address: SocketAddr, path: &str, body: Stream) -> hyper::Result<Response<Incoming>> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut client, connection) = builder.handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    client.send_request(request(path, body)).await
}

/// A control plane that sends raw bytes: accepts one connection, and returns its streams.
pub struct FakeControlPlane {
    pub address: SocketAddr,
    streams: mpsc::UnboundedReceiver<(String, Received, Sender)>,
}

impl FakeControlPlane {
    pub async fn start() -> FakeControlPlane {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (opened, streams) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let opened = opened.clone();
                tokio::spawn(serve(stream, opened));
            }
        });
        FakeControlPlane { address, streams }
    }

    /// The next stream of configuration, and that of reports.
    pub async fn accept(&mut self) -> ((Received, Sender), (Received, Sender)) {
        let (mut delta, mut reports) = (None, None);
        while delta.is_none() || reports.is_none() {
            let next = tokio::time::timeout(Duration::from_secs(30), self.streams.recv());
            let (path, received, sender) = next.await.expect("in time").expect("a stream");
            match path == DELTA_PATH {
                true => delta = Some((received, sender)),
                false => reports = Some((received, sender)),
            }
        }
        (delta.expect("a stream"), reports.expect("a stream"))
    }
}

async fn serve(stream_: TcpStream, opened: mpsc::UnboundedSender<(String, Received, Sender)>) {
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let path = request.uri().path().to_owned();
        let (sender, body) = stream();
        let _ = opened.send((path, Received::new(request.into_body()), sender));
        let response = Response::builder()
            .header("content-type", "application/grpc")
            .body(body);
        std::future::ready(response)
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder
        .serve_connection(TokioIo::new(stream_), service)
        .await;
}

/// A control plane that permits everything, with an address for proxies.
pub fn control_plane() -> (Arc<Server>, SocketAddr) {
    let allow = server::authorize_by_certificate(|_| Subscription::Everything);
    let server = Arc::new(Server::new("recorded".to_owned(), allow, || {}));
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = server::bind(any, false).expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(server::accept(listener, server.clone(), None));
    (server, address)
}
