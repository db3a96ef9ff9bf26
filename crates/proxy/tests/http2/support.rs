//! Shared test support: a proxy with one listener and one backend, clients and endpoints of both HTTP versions, and handcrafted frames.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use pointsman_binding::bound::Transport;
use pointsman_binding::{Binder, Change};
use pointsman_proxy::{Changed, Limits, Options, Proxy, SocketKey, SocketOwner, Update};
use pointsman_resources::Name;
use pointsman_resources::read::ManifestReader;
use pointsman_routing::Tables;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Deadline of every step, generous for slow machines.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Awaits a future, and panics if it exceeds the deadline.
pub async fn within_deadline<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("timeout waiting for: {what}"),
    }
}

/// Protocol of the endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EndpointProtocol {
    Http1,
    Http2,
}

/// A running proxy.
pub struct TestProxy {
    pub proxy: Proxy,
    pub address: SocketAddr,
}

/// Returns a loopback address that no other test uses.
pub fn unused_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let process = std::process::id();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let ip = [
        127,
        16 + (process % 200) as u8,
        (process / 200 % 250) as u8,
        next as u8,
    ];
    let probe = std::net::TcpListener::bind(SocketAddr::from((ip, 0))).unwrap();
    probe.local_addr().unwrap()
}

/// Starts a proxy whose only rule forwards to these endpoints.
pub fn test_proxy(
    limits: Limits,
    protocol: EndpointProtocol,
    endpoints: &[SocketAddr],
) -> TestProxy {
    test_proxy_with_rule(limits, protocol, endpoints, "")
}

/// Starts a proxy with further fields of the rule.
pub fn test_proxy_with_rule(
    limits: Limits,
    protocol: EndpointProtocol,
    endpoints: &[SocketAddr],
    rule: &str,
) -> TestProxy {
    let protocol = match protocol {
        EndpointProtocol::Http1 => "http",
        EndpointProtocol::Http2 => "kubernetes.io/h2c",
    };
    let mut yaml = format!(
        r#"
{{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {{name: ours}}, spec: {{controllerName: pointsman.io/controller}}}}
---
{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: edge, namespace: shop}}, spec: {{gatewayClassName: ours, listeners: [{{name: http, port: 80, protocol: HTTP}}]}}}}
---
{{apiVersion: v1, kind: Service, metadata: {{name: web, namespace: shop}}, spec: {{clusterIP: 10.0.0.1, ports: [{{name: http, port: 80, appProtocol: {protocol}}}]}}}}
---
{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: all, namespace: shop}}, spec: {{parentRefs: [{{name: edge}}], rules: [{{backendRefs: [{{name: web, port: 80}}]{rule}}}]}}}}
"#
    );
    for (index, endpoint) in endpoints.iter().enumerate() {
        let (ip, port) = (endpoint.ip(), endpoint.port());
        yaml += &format!(
            "\n---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{namespace: shop, name: web-{index}, labels: {{kubernetes.io/service-name: web}}}}, ports: [{{name: http, port: {port}}}], endpoints: [{{addresses: [{ip}]}}]}}"
        );
    }
    let mut reader = ManifestReader::new();
    reader.read("test.yaml", yaml.as_bytes());
    let input = reader.finish();
    let mut binder = Binder::new();
    let mut tables = Tables::default();
    let changes = input
        .documents
        .into_iter()
        .map(|document| Change::Put(document.resource));
    let delta = binder.apply(changes);
    tables.apply(&delta);
    let mut changed = Changed::default();
    changed.record(&delta);
    let address = unused_address();
    let key = SocketKey {
        address,
        transport: Transport::Tcp,
    };
    let owner = SocketOwner::Gateway {
        gateway: Name::new("shop", "edge"),
        port: 80,
    };
    let options = Options {
        workers: Some(1),
        limits,
        ..Options::default()
    };
    let mut proxy = Proxy::start(options).unwrap();
    let outcome = proxy.apply(Update {
        tables,
        sockets: Arc::new(BTreeMap::from([(key, owner)])),
        changed,
        ..Update::default()
    });
    assert!(outcome.unbound.is_empty(), "{:?}", outcome.unbound);
    TestProxy { proxy, address }
}

/// Connects a client.
pub async fn client(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = h2::client::Builder::new().handshake(stream).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    within_deadline("a connection", sender.ready())
        .await
        .unwrap()
}

/// Returns a GET request.
pub fn get(path: &str) -> Request<()> {
    let uri = format!("http://shop.example{path}");
    Request::get(uri).body(()).unwrap()
}

pub fn post(path: &str) -> Request<()> {
    let uri = format!("http://shop.example{path}");
    Request::post(uri).body(()).unwrap()
}

/// A response with its body and trailers.
#[derive(Debug)]
pub struct FullResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: Option<HeaderMap>,
}

impl FullResponse {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Reads a response to its end.
pub async fn read_response(response: Response<RecvStream>) -> Result<FullResponse, h2::Error> {
    let (parts, mut stream) = response.into_parts();
    let (body, trailers) = drain(&mut stream).await?;
    Ok(FullResponse {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body,
        trailers,
    })
}

/// Reads a body to its end.
pub async fn drain(stream: &mut RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut body = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece?;
        let _ = stream.flow_control().release_capacity(piece.len());
        body.extend_from_slice(&piece);
    }
    Ok((body, stream.trailers().await?))
}

/// Sends a request without a body.
pub async fn fetch(sender: &mut SendRequest<Bytes>, request: Request<()>) -> FullResponse {
    try_fetch(sender, request).await.unwrap()
}

pub async fn try_fetch(
    sender: &mut SendRequest<Bytes>,
    request: Request<()>,
) -> Result<FullResponse, h2::Error> {
    let (response, _) = sender.send_request(request, true)?;
    within_deadline("a response", async { read_response(response.await?).await }).await
}

/// Sends a request with a body and trailers.
pub async fn send_request(
    sender: &mut SendRequest<Bytes>,
    request: Request<()>,
    body: &[u8],
    trailers: Option<HeaderMap>,
) -> Result<FullResponse, h2::Error> {
    let (response, mut stream) = sender.send_request(request, false)?;
    let sent = async {
        send_all(&mut stream, body).await?;
        match trailers {
            Some(trailers) => stream.send_trailers(trailers),
            None => stream.send_data(Bytes::new(), true),
        }
    };
    let received = async { read_response(response.await?).await };
    // The response may arrive before the whole body is sent.
    let (_, received) = within_deadline("a response", async { tokio::join!(sent, received) }).await;
    received
}

/// Sends bytes as flow control allows.
pub async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: &[u8]) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let buf = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(buf) = buf else { return Ok(()) };
        let (now, rest) = bytes.split_at(buf?.min(bytes.len()));
        stream.send_data(Bytes::copy_from_slice(now), false)?;
        bytes = rest;
    }
    Ok(())
}

pub fn trailers(name: &'static str, value: &'static str) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert(name, value.parse().unwrap());
    map
}

/// Starts an HTTP/2 endpoint that calls a function for each request.
pub async fn http2_endpoint<H, F>(handle: H) -> SocketAddr
where
    H: Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let handle = handle.clone();
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                builder.enable_connect_protocol();
                let Ok(mut connection) = builder.handshake(stream).await else {
                    return;
                };
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(handle(request, respond));
                }
            });
        }
    });
    address
}

/// Responds with the request: its head as lines of the body, then its body, then its trailers as trailers.
pub async fn echo(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (parts, mut stream) = request.into_parts();
    let mut seen = format!("{} {}\n", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        seen += &format!("{name}: {}\n", value.to_str().unwrap());
    }
    let Ok((body, trailers)) = drain(&mut stream).await else {
        return;
    };
    seen.push('\n');
    let mut seen = seen.into_bytes();
    seen.extend(body);
    let response = Response::builder()
        .header("x-kind", "mirror")
        .body(())
        .unwrap();
    let Ok(mut stream) = respond.send_response(response, false) else {
        return;
    };
    let _ = send_all(&mut stream, &seen).await;
    let _ = match trailers {
        Some(trailers) => stream.send_trailers(trailers),
        None => stream.send_data(Bytes::new(), true),
    };
}

/// Starts an HTTP/1 endpoint that reads a request with a length or chunks, and responds with it.
pub async fn http1_endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(http1_echo(stream));
        }
    });
    address
}

async fn http1_echo(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    loop {
        let Some(end) = read_until(&mut stream, &mut bytes, b"\r\n\r\n").await else {
            return;
        };
        let head = String::from_utf8(bytes.drain(..end).collect())
            .unwrap()
            .to_ascii_lowercase();
        let mut seen = head.clone().into_bytes();
        if let Some(length) = head.split("content-length: ").nth(1) {
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            while bytes.len() < length {
                if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                    return;
                }
            }
            seen.extend(bytes.drain(..length));
        } else if head.contains("transfer-encoding: chunked") {
            let Some(end) = read_until(&mut stream, &mut bytes, b"0\r\n").await else {
                return;
            };
            // After the last chunk follow trailers and an empty line.
            let mut rest = bytes.split_off(end);
            let Some(more) = read_until(&mut stream, &mut rest, b"\r\n").await else {
                return;
            };
            let _ = more;
            seen.append(&mut bytes);
            seen.append(&mut rest);
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-kind: mirror\r\n\r\n",
            seen.len()
        );
        let response = [head.into_bytes(), seen].concat();
        if stream.write_all(&response).await.is_err() {
            return;
        }
    }
}

/// Reads until these bytes are found. Returns the position after them.
pub async fn read_until(stream: &mut TcpStream, bytes: &mut Vec<u8>, what: &[u8]) -> Option<usize> {
    loop {
        if let Some(at) = bytes.windows(what.len()).position(|window| window == what) {
            return Some(at + what.len());
        }
        if stream.read_buf(bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// Starts an endpoint that responds to the first request of each connection with these bytes, and closes it.
pub async fn canned_endpoint(response: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                if read_until(&mut stream, &mut bytes, b"\r\n\r\n")
                    .await
                    .is_some()
                {
                    let _ = stream.write_all(response).await;
                }
            });
        }
    });
    address
}

/// A connection for handcrafted frames.
pub struct RawConnection {
    stream: TcpStream,
    bytes: Vec<u8>,
}

/// A received frame: type, flags, stream and payload.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl RawConnection {
    /// Connects and exchanges the preface and SETTINGS.
    pub async fn new(address: SocketAddr) -> RawConnection {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut raw = RawConnection {
            stream,
            bytes: Vec::new(),
        };
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        raw.frame(4, 0, 0, b"").await;
        raw
    }

    /// Wraps a connection on which the preface was sent already.
    pub fn of(stream: TcpStream) -> RawConnection {
        let bytes = Vec::new();
        RawConnection { stream, bytes }
    }

    /// Sends bytes, ignoring a closed connection.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.send(&frame(kind, flags, stream, payload)).await;
    }

    /// Reads a byte; `None` at the end of the stream.
    pub async fn next_byte(&mut self) -> Option<u8> {
        self.stream.read_u8().await.ok()
    }

    /// Reads a frame; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Frame> {
        within_deadline("a frame", async {
            loop {
                if self.bytes.len() >= 9 {
                    let length =
                        u32::from_be_bytes([0, self.bytes[0], self.bytes[1], self.bytes[2]]);
                    let end = 9 + length as usize;
                    if self.bytes.len() >= end {
                        let frame: Vec<u8> = self.bytes.drain(..end).collect();
                        return Some(Frame {
                            kind: frame[3],
                            flags: frame[4],
                            stream: u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]),
                            payload: frame[9..].to_vec(),
                        });
                    }
                }
                if self.stream.read_buf(&mut self.bytes).await.unwrap_or(0) == 0 {
                    return None;
                }
            }
        })
        .await
    }

    /// Waits for the outcome of a stream: `200`, `reset 1`, `goaway 11` or `closed`.
    pub async fn outcome(&mut self, stream: u32) -> String {
        while let Some(frame) = self.next().await {
            match frame.kind {
                1 if frame.stream == stream => return status(&frame.payload),
                3 if frame.stream == stream => return format!("reset {}", frame.payload[3]),
                7 if frame.payload[7] != 0 => return format!("goaway {}", frame.payload[7]),
                _ => {}
            }
        }
        "closed".to_owned()
    }

    /// Waits for a GOAWAY and returns its error code.
    pub async fn goaway(&mut self) -> Option<u8> {
        while let Some(frame) = self.next().await {
            if frame.kind == 7 {
                return Some(frame.payload[7]);
            }
        }
        None
    }
}

/// Decodes `:status` as the first field of a block: indexed, or with a literal value.
fn status(block: &[u8]) -> String {
    let known = ["200", "204", "206", "304", "400", "404", "500"];
    match block[0] {
        indexed @ 0x88..=0x8e => known[usize::from(indexed - 0x88)].to_owned(),
        // A literal with the indexed name `:status`, usually Huffman-coded.
        0x48 | 0x08 if block[1] & 0x80 == 0 => String::from_utf8(block[2..5].to_vec()).unwrap(),
        0x48 | 0x08 => digits(&block[2..2 + usize::from(block[1] & 0x7f)]),
        other => format!("unknown {other:#x}"),
    }
}

/// Decodes three Huffman-coded digits (RFC 7541, Appendix B): 0 to 2 have five bits, 3 to 9 have six.
fn digits(bytes: &[u8]) -> String {
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1))
        .collect();
    let value = |from: usize, count: usize| {
        bits[from..from + count]
            .iter()
            .fold(0u8, |sum, bit| sum << 1 | bit)
    };
    let (mut at, mut text) = (0, String::new());
    while text.len() < 3 {
        match value(at, 5) {
            short @ 0..=2 => {
                text.push(char::from(b'0' + short));
                at += 5;
            }
            _ => {
                text.push(char::from(b'3' + value(at, 6) - 0b01_1001));
                at += 6;
            }
        }
    }
    text
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Encodes fields as literals without indexing (RFC 7541 §6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            length(text.len(), &mut bytes);
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

fn length(mut count: usize, bytes: &mut Vec<u8>) {
    if count < 127 {
        bytes.push(count as u8);
        return;
    }
    bytes.push(127);
    count -= 127;
    while count >= 128 {
        bytes.push((count % 128) as u8 | 128);
        count /= 128;
    }
    bytes.push(count as u8);
}

/// Encodes the head of a GET request with further fields.
pub fn request_block(more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = vec![
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "shop.example"),
    ];
    fields.extend(more);
    block(&fields)
}
