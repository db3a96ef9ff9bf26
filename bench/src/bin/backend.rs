//! Backend of all proxies: an epoll loop for HTTP/1 and TCP, and an HTTP/2 server on a separate thread.
//!
//! `backend ADDRESS` listens on five ports:
//! 7001 HTTP/1 (`/1m` returns 1 MiB, other paths 13 bytes; request bodies are discarded), 7002 HTTP/2, 7003 TCP source, 7004 TCP sink, 7005 TCP echo.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

const SMALL: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nhello, world\n";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    Source,
    Sink,
    Echo,
}

struct Connection {
    stream: TcpStream,
    kind: Kind,
    /// Bytes of an incomplete request head.
    head: Vec<u8>,
    /// Remaining bytes of a request body to discard.
    skip: usize,
    /// Output buffer.
    out: Vec<u8>,
    /// Bytes of `out` that have been written.
    written: usize,
}

fn main() -> std::io::Result<()> {
    let address: IpAddr = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("backend ADDRESS"));
    std::thread::spawn(move || http2(SocketAddr::new(address, 7002)));
    let kinds = [
        (7001, Kind::Http),
        (7003, Kind::Source),
        (7004, Kind::Sink),
        (7005, Kind::Echo),
    ];
    let mut poll = Poll::new()?;
    let mut listeners = Vec::new();
    for (number, (port, kind)) in kinds.into_iter().enumerate() {
        let mut listener = TcpListener::bind(SocketAddr::new(address, port))?;
        poll.registry()
            .register(&mut listener, Token(number), Interest::READABLE)?;
        listeners.push((listener, kind));
    }
    let megabyte = [
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n", 1 << 20).as_bytes(),
        &vec![b'x'; 1 << 20],
    ]
    .concat();
    let mut connections: Slab<Connection> = Slab::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut events = Events::with_capacity(1024);
    loop {
        if let Err(error) = poll.poll(&mut events, None) {
            if error.kind() == ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        for event in &events {
            let token = event.token().0;
            if let Some((listener, kind)) = listeners.get(token) {
                while let Ok((mut stream, _)) = listener.accept() {
                    let _ = stream.set_nodelay(true);
                    let entry = connections.vacant_entry();
                    let token = Token(entry.key() + listeners.len());
                    poll.registry().register(
                        &mut stream,
                        token,
                        Interest::READABLE | Interest::WRITABLE,
                    )?;
                    entry.insert(Connection {
                        stream,
                        kind: *kind,
                        head: Vec::new(),
                        skip: 0,
                        out: Vec::new(),
                        written: 0,
                    });
                }
                continue;
            }
            let key = token - listeners.len();
            if let Some(connection) = connections.get_mut(key)
                && !connection.progress(&mut buffer, &megabyte)
            {
                connections.remove(key);
            }
        }
    }
}

impl Connection {
    /// Reads and writes until the socket would block. Returns false if the connection is closed.
    fn progress(&mut self, buffer: &mut [u8], megabyte: &[u8]) -> bool {
        loop {
            if self.kind == Kind::Source {
                match self.stream.write(buffer) {
                    Ok(_) => continue,
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
            if !self.flush() {
                return false;
            }
            if self.written < self.out.len() {
                return true;
            }
            match self.stream.read(buffer) {
                Ok(0) => return false,
                Ok(length) => match self.kind {
                    Kind::Http => self.http(&buffer[..length], megabyte),
                    Kind::Echo => self.out.extend_from_slice(&buffer[..length]),
                    Kind::Sink | Kind::Source => {}
                },
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn flush(&mut self) -> bool {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(length) => self.written += length,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        self.out.clear();
        self.written = 0;
        true
    }

    /// Responds to all complete requests. Supports only requests as the load generators send them.
    fn http(&mut self, mut bytes: &[u8], megabyte: &[u8]) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                // Responds only after the whole body, because some proxies close the connection after an early response.
                if self.skip == 0 {
                    self.out.extend_from_slice(SMALL);
                }
                continue;
            }
            let before = self.head.len();
            self.head.extend_from_slice(bytes);
            let from = before.saturating_sub(3);
            let end = self.head[from..]
                .windows(4)
                .position(|window| window == b"\r\n\r\n");
            let Some(end) = end.map(|at| from + at + 4) else {
                return;
            };
            bytes = &bytes[end - before..];
            let head = &self.head[..end];
            self.skip = body_length(head);
            if self.skip == 0 {
                let large = head.starts_with(b"GET /1m");
                self.out
                    .extend_from_slice(if large { megabyte } else { SMALL });
            }
            self.head.clear();
        }
    }
}

/// Returns the value of Content-Length. The load generators don't send chunked bodies, and no proxy converts a body of known length to a chunked one.
fn body_length(head: &[u8]) -> usize {
    head.split(|byte| *byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok()?.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

fn http2(address: SocketAddr) {
    use http_body_util::{BodyExt, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let respond = hyper::service::service_fn(
        |mut request: http::Request<hyper::body::Incoming>| async move {
            while let Some(Ok(_)) = request.body_mut().frame().await {}
            let body = Full::new(bytes::Bytes::from_static(b"hello, world\n"));
            Ok::<_, std::convert::Infallible>(
                http::Response::builder()
                    .header("content-type", "text/plain")
                    .body(body)
                    .expect("valid"),
            )
        },
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .expect("a port");
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(1024)
                    .serve_connection(TokioIo::new(stream), respond),
            );
        }
    });
}
