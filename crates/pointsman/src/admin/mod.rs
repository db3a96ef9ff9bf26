//! The admin server: a few pages, for people, probes and tools.
//!
//! One thread accepts, one answers each connection: whoever asks for something large keeps nobody waiting. A connection is one
//! request. Everything is bounded: connections, the head and the time for it, the body, which is not looked at.
//!
//! It has no password, so it answers only clients that mean it: none that come through a proxy, this one included, and none that ask under a name that
//! is not its own, as a web page does whose name was made to resolve here (DNS rebinding).

mod config;
mod pages;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pointsman_control::{Snapshots, clock};
use pointsman_proxy::{DataPlane, MetricsReader, SocketsReader};

use crate::cli::Paths;

/// Connections at once.
const CONNECTIONS: usize = 64;
/// Bytes of a head.
const HEAD: usize = 16 * 1024;
/// Bytes of a body that are read, and thrown away.
const BODY: usize = 64 * 1024;
/// Time for a request.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Time for each piece of an answer.
const WRITE_TIME: Duration = Duration::from_secs(10);

/// What the pages show. Nothing here delays the control loop or the data plane.
pub struct AdminState {
    /// What is in effect.
    pub snapshots: Arc<Snapshots>,
    /// Sockets of the data plane.
    pub sockets: SocketsReader,
    /// Metrics of the data plane.
    pub metrics: MetricsReader,
    /// Paths that the data plane serves.
    pub paths: Paths,
    ready: AtomicBool,
}

impl AdminState {
    /// Joins snapshots of the control plane with a data plane.
    pub fn new(snapshots: Arc<Snapshots>, data_plane: &DataPlane, paths: Paths) -> Self {
        AdminState {
            snapshots,
            sockets: data_plane.sockets(),
            metrics: data_plane.metrics(),
            paths,
            ready: AtomicBool::new(false),
        }
    }

    /// Whether the first configuration is in effect and the process is not shutting down.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Sets whether it is.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }
}

/// An admin server that listens and does not answer yet.
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl AdminServer {
    /// Listens on an address.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(AdminServer { listener, address })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to answer, also to these names.
    pub fn start(self, state: Arc<AdminState>, names: &[String]) -> io::Result<()> {
        let names: Arc<[String]> = names.into();
        let accept = move || {
            let open = Arc::new(AtomicUsize::new(0));
            let mut is_failing = false;
            for stream in self.listener.incoming() {
                match stream {
                    Ok(stream) => {
                        is_failing = false;
                        admit(stream, &state, &open, &names);
                    }
                    Err(error) => {
                        // Out of files, most likely: to try at once again would only spin. Logged once until it succeeds.
                        if !std::mem::replace(&mut is_failing, true) {
                            tracing::warn!("the admin server can't accept: {error}");
                        }
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("admin".to_owned());
        thread.spawn(accept).map(drop)
    }
}

/// Counts a connection for as long as it is held.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn admit(
    mut stream: TcpStream,
    state: &Arc<AdminState>,
    open: &Arc<AtomicUsize>,
    names: &Arc<[String]>,
) {
    let guard = Open(open.clone());
    if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
        let _ = stream.set_write_timeout(Some(Duration::from_millis(10)));
        let _ = Answer::text(503, "too many connections\n").write(&mut stream, false);
        return;
    }
    let (state, names) = (state.clone(), names.clone());
    let serve = move || {
        let _guard = guard;
        // A client that goes away is no news.
        let _ = serve(stream, &state, &names);
    };
    let thread = std::thread::Builder::new().name("admin".to_owned());
    if let Err(error) = thread.spawn(serve) {
        tracing::warn!("the admin server can't answer: {error}");
    }
}

fn serve(mut stream: TcpStream, state: &AdminState, names: &[String]) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIME))?;
    stream.set_nodelay(true)?;
    let end = clock::instant() + REQUEST_TIME;
    let mut head_only = false;
    let answer = match read(&mut stream, end) {
        Ok(None) => return Ok(()),
        Ok(Some(request)) => {
            head_only = request.method == "HEAD";
            refusal(&request, names).unwrap_or_else(|| pages::answer(&request.target, state))
        }
        Err(status) => Answer::text(status, ""),
    };
    answer.write(&mut stream, head_only)?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// The answer to a request that gets no page.
fn refusal(request: &Request, names: &[String]) -> Option<Answer> {
    // Probes ask under any name, and learn nothing that others may not.
    let is_probe = ["/healthz", "/readyz"].contains(&request.target.as_str());
    if request.is_forwarded {
        let message = "requests that came through a proxy are not answered here\n";
        return Some(Answer::text(403, message));
    }
    if !is_probe && !is_own_name(&request.host, names) {
        let message = "this server is asked by address, as localhost, or by a name that --admin-host allows\n";
        return Some(Answer::text(421, message));
    }
    match request.method.as_str() {
        "GET" | "HEAD" => None,
        _ => Some(Answer::text(405, "only GET and HEAD\n")),
    }
}

/// A web page that a browser shows may ask servers on its machine under a name of its own making; such names are not answered to. An address can't be
/// made to resolve elsewhere.
fn is_own_name(host: &str, names: &[String]) -> bool {
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

/// Fields that proxies add. Pointsman itself adds `x-forwarded-*` and, unless the client has sent one, a request id.
fn is_proxys(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("x-forwarded-") || ["forwarded", "via", "x-request-id"].contains(&&*name)
}

struct Request {
    method: String,
    target: String,
    /// Empty if there is none.
    host: String,
    /// Whether it came through a proxy.
    is_forwarded: bool,
}

/// Reads a request; none if the client leaves without one. An error is the status to answer with.
fn read(stream: &mut TcpStream, end: Instant) -> Result<Option<Request>, u16> {
    let mut bytes = Vec::new();
    let (request, head, body) = loop {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(head)) => {
                let body = body_length(request.headers)?;
                let request = Request {
                    method: request.method.unwrap_or_default().to_owned(),
                    target: request.path.unwrap_or_default().to_owned(),
                    host: host(request.headers)?,
                    is_forwarded: request.headers.iter().any(|field| is_proxys(field.name)),
                };
                break (request, head, body);
            }
            Ok(httparse::Status::Partial) if bytes.len() < HEAD => {}
            Ok(httparse::Status::Partial) => return Err(431),
            Err(_) => return Err(400),
        }
        let before = bytes.len();
        more(stream, &mut bytes, end)?;
        if bytes.len() == before {
            return match before {
                0 => Ok(None),
                _ => Err(400),
            };
        }
    };
    // A body is read so that the answer is not lost with what was left unread.
    while bytes.len() < head + body {
        let before = bytes.len();
        more(stream, &mut bytes, end)?;
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
        0..=BODY => Ok(length),
        _ => Err(413),
    }
}

fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>, end: Instant) -> Result<(), u16> {
    let left = end.saturating_duration_since(clock::instant());
    if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
        return Err(408);
    }
    let mut buffer = [0; 4096];
    let number = stream.read(&mut buffer).map_err(|_| 408u16)?;
    bytes.extend_from_slice(&buffer[..number]);
    Ok(())
}

/// An answer.
pub struct Answer {
    status: u16,
    kind: &'static str,
    body: Body,
}

enum Body {
    Own(String),
    Shared(Arc<str>),
    Fixed(&'static str),
}

impl Answer {
    /// A line or two.
    pub fn text(status: u16, body: &'static str) -> Self {
        let kind = "text/plain; charset=utf-8";
        let body = Body::Fixed(body);
        Answer { status, kind, body }
    }

    /// For tools.
    pub fn json(status: u16, body: String) -> Self {
        let kind = "application/json";
        let body = Body::Own(body);
        Answer { status, kind, body }
    }

    fn write(&self, stream: &mut TcpStream, head_only: bool) -> io::Result<()> {
        let body = match &self.body {
            Body::Own(text) => text.as_str(),
            Body::Shared(text) => text,
            Body::Fixed(text) => text,
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
        let policy = match self.kind.starts_with("text/html") {
            true => pages::POLICY,
            false => "",
        };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\ncontent-type: {}\r\ncontent-length: {}\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n{}{allow}connection: close\r\n\r\n",
            self.status,
            self.kind,
            body.len(),
            policy,
        );
        stream.write_all(head.as_bytes())?;
        if !head_only {
            stream.write_all(body.as_bytes())?;
        }
        Ok(())
    }
}
