//! The admin server: a few pages for people, probes and tools.
//!
//! One thread accepts connections, and each connection is served on its own thread, so that a slow client delays no other. A connection carries one request.
//! Connections, the size of a request and the time for it are bounded; a body is discarded.
//!
//! A second server may serve only the pages for kubelets and Prometheus, on an address that can be reached over the network.
//!
//! The server has no authentication. It therefore rejects requests that were forwarded by a proxy, this one included, and requests for a host name that is
//! not its own, which protects it from DNS rebinding.

mod config;
mod pages;
mod peer;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pointsman_control::{Snapshots, clock};
use pointsman_proxy::{DataPlane, MetricsReader, SocketsReader};
use pointsman_wire::client::StateReader;
use pointsman_wire::server::Server;

use crate::cli::Paths;

/// Limit of concurrent connections.
const MAX_CONNECTIONS: usize = 64;
/// Largest request head in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// Largest request body in bytes.
const MAX_BODY: usize = 64 * 1024;
/// Time limit for receiving a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for each write of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The state that the pages show. Reading it delays neither the control loop nor the data plane.
pub struct AdminState {
    /// Snapshots of the configuration in effect.
    pub snapshots: Arc<Snapshots>,
    /// Sockets of the data plane; none in a controller.
    pub sockets: SocketsReader,
    /// Metrics of the data plane, if there is one.
    pub metrics: Option<MetricsReader>,
    /// Paths that the data plane serves.
    pub paths: Paths,
    /// Connection to control plane or data planes in other processes.
    pub peer: PeerState,
    /// Metrics of the work with a cluster; set by a controller of one.
    pub cluster_metrics: OnceLock<Arc<pointsman_kube::Metrics>>,
    ready: AtomicBool,
}

/// Connection between a control plane and data planes in other processes.
pub enum PeerState {
    /// Control plane and data plane are in this process.
    None,
    /// This process is a control plane.
    Proxies(Arc<Server>),
    /// This process is a proxy.
    ControlPlane(StateReader),
}

impl AdminState {
    /// Creates the state of a control plane and a data plane in one process. It is not ready yet.
    pub fn of_run(snapshots: Arc<Snapshots>, data_plane: &DataPlane, paths: Paths) -> Self {
        AdminState {
            snapshots,
            sockets: data_plane.sockets(),
            metrics: Some(data_plane.metrics()),
            paths,
            peer: PeerState::None,
            cluster_metrics: OnceLock::new(),
            ready: AtomicBool::new(false),
        }
    }

    /// Creates the state of a proxy. It is not ready yet.
    pub fn of_proxy(
        snapshots: Arc<Snapshots>,
        data_plane: &DataPlane,
        paths: Paths,
        control_plane: StateReader,
    ) -> Self {
        AdminState {
            peer: PeerState::ControlPlane(control_plane),
            ..AdminState::of_run(snapshots, data_plane, paths)
        }
    }

    /// Creates the state of a control plane whose proxies `peer` describes. It is not ready yet.
    pub fn of_controller(snapshots: Arc<Snapshots>, peer: PeerState) -> Self {
        AdminState {
            snapshots,
            sockets: SocketsReader::default(),
            metrics: None,
            paths: Paths::Any,
            peer,
            cluster_metrics: OnceLock::new(),
            ready: AtomicBool::new(false),
        }
    }

    /// Returns whether the initial configuration is in effect and the process is not shutting down.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Sets the result of [`is_ready`](Self::is_ready).
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }
}

/// An admin server that listens, but does not accept connections yet.
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl AdminServer {
    /// Starts to listen on an address.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(AdminServer { listener, address })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to serve requests.
    pub fn start(self, state: Arc<AdminState>, pages: Pages) -> io::Result<()> {
        let pages = Arc::new(pages);
        let run = move || {
            let open = Arc::new(AtomicUsize::new(0));
            let mut is_failing = false;
            for stream in self.listener.incoming() {
                match stream {
                    Ok(stream) => {
                        is_failing = false;
                        accept(stream, &state, &open, &pages);
                    }
                    Err(error) => {
                        // Most likely the process is out of file descriptors, so wait before the next attempt. Logged once until one succeeds.
                        if !std::mem::replace(&mut is_failing, true) {
                            tracing::warn!("the admin server can't accept connections: {error}");
                        }
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("admin".to_owned());
        thread.spawn(run).map(drop)
    }
}

/// Counts a connection as open until it is dropped.
struct ConnectionGuard(Arc<AtomicUsize>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn accept(
    mut stream: TcpStream,
    state: &Arc<AdminState>,
    open: &Arc<AtomicUsize>,
    pages: &Arc<Pages>,
) {
    let guard = ConnectionGuard(open.clone());
    if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
        let _ = stream.set_write_timeout(Some(Duration::from_millis(10)));
        let _ = AdminResponse::text(503, "too many connections\n").write(&mut stream, false);
        return;
    }
    let (state, pages) = (state.clone(), pages.clone());
    let serve = move || {
        let _guard = guard;
        // An error means that the client closed the connection.
        let _ = serve(stream, &state, &pages);
    };
    let thread = std::thread::Builder::new().name("admin".to_owned());
    if let Err(error) = thread.spawn(serve) {
        tracing::warn!("the admin server can't start a thread: {error}");
    }
}

fn serve(mut stream: TcpStream, state: &AdminState, pages: &Pages) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let end = clock::instant() + REQUEST_TIMEOUT;
    let mut head_only = false;
    let response = match read_request(&mut stream, end) {
        Ok(None) => return Ok(()),
        Ok(Some(request)) => {
            head_only = request.method == "HEAD";
            match pages.rejection(&request) {
                Some(rejection) => rejection,
                None => pages::respond(&request.target, state),
            }
        }
        Err(status) => AdminResponse::text(status, ""),
    };
    response.write(&mut stream, head_only)?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// Pages that contain nothing confidential, and may be requested under any host name.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Pages that an admin server serves.
pub enum Pages {
    /// All, for host names that are given here, addresses and `localhost`.
    All(Box<[String]>),
    /// Those for kubelets and Prometheus. They are meant to be reached over the network, under any host name, and through any proxy.
    Probes,
}

impl Pages {
    /// Returns the response to a request that is not allowed.
    fn rejection(&self, request: &AdminRequest) -> Option<AdminResponse> {
        let target = request.target.as_str();
        match self {
            Pages::Probes if !PROBES.contains(&target) && target != "/metrics" => {
                let message = "not found; the pages are /healthz, /readyz and /metrics\n";
                return Some(AdminResponse::text(404, message));
            }
            Pages::Probes => {}
            Pages::All(_) if request.is_forwarded => {
                let message = "requests that were forwarded by a proxy are not allowed\n";
                return Some(AdminResponse::text(403, message));
            }
            Pages::All(names) => {
                if !PROBES.contains(&target) && !is_own_host(&request.host, names) {
                    let message = "the Host must be an IP address, localhost, or a name given with --admin-host\n";
                    return Some(AdminResponse::text(421, message));
                }
            }
        }
        match request.method.as_str() {
            "GET" | "HEAD" => None,
            _ => Some(AdminResponse::text(405, "only GET and HEAD are allowed\n")),
        }
    }
}

/// Returns whether a host is one of the server's own. A web page in a browser on this machine could let a host name that its author controls resolve to this server; an
/// address or `localhost` can't be abused that way.
fn is_own_host(host: &str, names: &[String]) -> bool {
    let bare = match host.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => bare,
        _ => host,
    };
    let is_address = match bare
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => bare.parse::<Ipv4Addr>().is_ok(),
    };
    let mut own = names.iter().map(String::as_str).chain(["localhost"]);
    host.is_empty() || is_address || own.any(|name| name.eq_ignore_ascii_case(bare))
}

/// Returns whether a header is one that proxies add. Pointsman adds `x-forwarded-*` and, unless the client sent one, a request id.
fn is_proxy_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("x-forwarded-") || ["forwarded", "via", "x-request-id"].contains(&&*name)
}

struct AdminRequest {
    method: String,
    target: String,
    /// Value of the Host header; empty if there is none.
    host: String,
    /// True if a proxy forwarded the request.
    is_forwarded: bool,
}

/// Reads a request. Returns `None` if the client closes the connection without one, and the status to respond with if the request is invalid.
fn read_request(stream: &mut TcpStream, end: Instant) -> Result<Option<AdminRequest>, u16> {
    let mut bytes = Vec::new();
    let (request, head, body) = loop {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(head)) => {
                let body = body_length(request.headers)?;
                let request = AdminRequest {
                    method: request.method.unwrap_or_default().to_owned(),
                    target: request.path.unwrap_or_default().to_owned(),
                    host: host(request.headers)?,
                    is_forwarded: request
                        .headers
                        .iter()
                        .any(|field| is_proxy_header(field.name)),
                };
                break (request, head, body);
            }
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => {}
            Ok(httparse::Status::Partial) => return Err(431),
            Err(_) => return Err(400),
        }
        let before = bytes.len();
        read_more(stream, &mut bytes, end)?;
        if bytes.len() == before {
            return match before {
                0 => Ok(None),
                _ => Err(400),
            };
        }
    };
    // The body is read because closing a socket with unread data resets the connection, and the client would lose the response.
    while bytes.len() < head + body {
        let before = bytes.len();
        read_more(stream, &mut bytes, end)?;
        if bytes.len() == before {
            break;
        }
    }
    Ok(Some(request))
}

fn host(fields: &[httparse::Header<'_>]) -> Result<String, u16> {
    let mut hosts = fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("host"));
    let host = hosts.next().map(|field| field.value).unwrap_or_default();
    match hosts.next() {
        Some(_) => Err(400),
        None => Ok(String::from_utf8_lossy(host).trim().to_owned()),
    }
}

fn body_length(fields: &[httparse::Header<'_>]) -> Result<usize, u16> {
    let mut length = 0;
    for field in fields {
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(501);
        }
        if field.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(field.value).map_err(|_| 400u16)?;
            length = text.trim().parse().map_err(|_| 400u16)?;
        }
    }
    match length {
        0..=MAX_BODY => Ok(length),
        _ => Err(413),
    }
}

fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>, end: Instant) -> Result<(), u16> {
    let left = end.saturating_duration_since(clock::instant());
    if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
        return Err(408);
    }
    let mut buffer = [0; 4096];
    let number = stream.read(&mut buffer).map_err(|_| 408u16)?;
    bytes.extend_from_slice(&buffer[..number]);
    Ok(())
}

/// A response of the admin server.
pub struct AdminResponse {
    status: u16,
    content_type: &'static str,
    body: Body,
}

enum Body {
    Owned(String),
    Shared(Arc<str>),
    Static(&'static str),
}

impl AdminResponse {
    /// Creates a plain-text response.
    pub fn text(status: u16, body: &'static str) -> Self {
        let content_type = "text/plain; charset=utf-8";
        let body = Body::Static(body);
        AdminResponse {
            status,
            content_type,
            body,
        }
    }

    /// Creates a JSON response.
    pub fn json(status: u16, body: String) -> Self {
        let content_type = "application/json";
        let body = Body::Owned(body);
        AdminResponse {
            status,
            content_type,
            body,
        }
    }

    fn write(&self, stream: &mut TcpStream, head_only: bool) -> io::Result<()> {
        let body = match &self.body {
            Body::Owned(text) => text.as_str(),
            Body::Shared(text) => text,
            Body::Static(text) => text,
        };
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            413 => "Content Too Large",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            _ => "Service Unavailable",
        };
        let allow = match self.status {
            405 => "allow: GET, HEAD\r\n",
            _ => "",
        };
        let security_policy = match self.content_type.starts_with("text/html") {
            true => pages::POLICY,
            false => "",
        };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\ncontent-type: {}\r\ncontent-length: {}\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n{}{allow}connection: close\r\n\r\n",
            self.status,
            self.content_type,
            body.len(),
            security_policy,
        );
        stream.write_all(head.as_bytes())?;
        if !head_only {
            stream.write_all(body.as_bytes())?;
        }
        Ok(())
    }
}
