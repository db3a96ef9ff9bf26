//! A single HTTP/2 connection: opening, driving, and detecting a vanished peer.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::super::connect::{self, ConnectError, KEEPALIVE_IDLE};
use super::super::http1::ConnectionGuard;
use super::super::{Upstream, UpstreamTls};
use super::StreamCount;
use super::transport::{CountedStream, ReadCounter};
use crate::io::deadline::DeadlineTimer;
use crate::io::flood_guard::SMALL_FRAMES;
use crate::limits::Limits;
use crate::sockets::SocketFactory;
use crate::worker::{UpstreamFile, Worker};

/// Minimum interval between PINGs. gRPC servers treat more than one in five minutes as abuse (gRPC proposal A8).
const MIN_PING_INTERVAL: Duration = Duration::from_secs(310);

/// The future that drives a connection.
type ConnectionDriver = h2::client::Connection<CountedStream, Bytes>;

/// A connection. Once it is dropped, it closes after its last stream.
#[derive(Debug)]
pub(super) struct Http2Connection {
    pub(super) sender: RefCell<SendRequest<Bytes>>,
    /// Number of open streams.
    pub(super) streams: StreamCount,
    /// Time when the last stream ended.
    pub(super) idle_since: Cell<Instant>,
    /// Version of the upstream's settings when it was opened.
    settings_version: u64,
}

impl Http2Connection {
    /// Returns whether another stream fits, with at most `max`; `None` if the connection accepts no more streams, or has outdated settings.
    pub(super) fn has_capacity(&self, settings_version: u64, max: usize) -> Option<bool> {
        let mut sender = self.sender.borrow_mut();
        let mut cx = Context::from_waker(Waker::noop());
        // Fails once the connection is broken or the endpoint has sent a GOAWAY.
        let alive = !matches!(sender.poll_ready(&mut cx), Poll::Ready(Err(_)));
        if self.settings_version != settings_version || !alive {
            return None;
        }
        Some(self.streams.get() < max.min(sender.current_max_send_streams()))
    }

    /// Returns whether there was no stream for this long.
    pub(super) fn is_idle(&self, max_idle: Duration) -> bool {
        self.streams.get() == 0 && self.idle_since.get().elapsed() >= max_idle
    }
}

/// Destination and sockets of a new connection. It borrows nothing from the request that needs the connection.
pub(super) struct ConnectTarget {
    pub(super) worker: Rc<Worker>,
    pub(super) upstream: Rc<Upstream>,
    pub(super) address: SocketAddr,
    pub(super) sockets: Rc<SocketFactory>,
}

/// Opens a connection. Ready when the endpoint's SETTINGS have arrived.
pub(super) async fn connect(target: ConnectTarget) -> Result<Rc<Http2Connection>, ConnectError> {
    let ConnectTarget {
        worker,
        upstream,
        address,
        sockets,
    } = target;
    upstream.series.connects.increment();
    let file = UpstreamFile::new(&worker);
    let settings_version = upstream.settings_version();
    let connecting = async {
        let reads = Rc::new(ReadCounter::default());
        let tls = upstream.tls(&worker).map_err(ConnectError::Fault)?;
        let stream = connect::tcp(&sockets, address).await?;
        let io = open(stream, tls, &reads).await?;
        let (sender, driver) = builder(worker.limits())
            .handshake(io)
            .await
            .map_err(|_| ConnectError::Protocol)?;
        let driver = await_settings(driver, &sender).await?;
        Ok((sender, driver, reads))
    };
    let connected = tokio::time::timeout(worker.limits().connect_time, connecting).await;
    let (sender, mut driver, reads) = connect::connect_result(&upstream, connected)?;
    let streams = StreamCount::default();
    let liveness = LivenessCheck {
        streams: streams.clone(),
        reads,
        ping: driver.ping_pong(),
        reads_seen: 0,
        awaiting_pong: false,
        pinged_at: None,
        quiet_since: Instant::now(),
    };
    spawn_local(drive(
        driver,
        liveness,
        ConnectionGuard::new(&upstream, file),
        address,
    ));
    Ok(Rc::new(Http2Connection {
        sender: RefCell::new(sender),
        streams,
        idle_since: Cell::new(Instant::now()),
        settings_version,
    }))
}

async fn open(
    stream: TcpStream,
    tls: Option<Rc<UpstreamTls>>,
    reads: &Rc<ReadCounter>,
) -> Result<CountedStream, ConnectError> {
    connect::set_keepalive(&stream)?;
    connect::set_user_timeout(&stream, Some(KEEPALIVE_IDLE * 2))?;
    let Some(tls) = tls else {
        return Ok(CountedStream::tcp(stream, reads.clone()));
    };
    let stream = connect::tls(stream, &tls.http2).await?;
    // RFC 9113 §3.2: over TLS, HTTP/2 is negotiated with ALPN.
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(ConnectError::Protocol);
    }
    Ok(CountedStream::tls(stream, reads.clone()))
}

/// Configures limits and flow control of a connection.
fn builder(limits: &Limits) -> Builder {
    let (stream_window, connection_window) = limits.http2_windows(limits.backend_streams);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(stream_window)
        .initial_connection_window_size(connection_window)
        .data_frame_budget(SMALL_FRAMES * connection_window as usize)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(stream_window as usize)
        // None before the endpoint's SETTINGS.
        .initial_max_send_streams(0);
    builder
}

/// Drives a connection until the endpoint's SETTINGS have arrived.
async fn await_settings(
    driver: ConnectionDriver,
    sender: &SendRequest<Bytes>,
) -> Result<ConnectionDriver, ConnectError> {
    let mut driver = Some(driver);
    poll_fn(|cx| {
        let Some(driving) = &mut driver else {
            return Poll::Pending;
        };
        // An endpoint without support for HTTP/2 responds with other bytes, or closes the connection.
        if let Poll::Ready(ended) = Pin::new(driving).poll(cx) {
            tracing::debug!(?ended, "the endpoint does not support HTTP/2");
            return Poll::Ready(Err(ConnectError::Protocol));
        }
        match sender.current_max_send_streams() {
            0 => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    })
    .await?;
    driver.ok_or(ConnectError::Protocol)
}

/// Detects a vanished peer of a connection with open streams.
struct LivenessCheck {
    streams: StreamCount,
    reads: Rc<ReadCounter>,
    ping: Option<PingPong>,
    /// Number of reads at the last update.
    reads_seen: u64,
    awaiting_pong: bool,
    pinged_at: Option<Instant>,
    quiet_since: Instant,
}

impl LivenessCheck {
    /// Restarts the idle time if something was received, or if there is no stream.
    fn update(&mut self, cx: &mut Context<'_>) {
        let reads = self.reads.get();
        if reads != self.reads_seen || self.streams.get() == 0 {
            (self.reads_seen, self.quiet_since, self.awaiting_pong) =
                (reads, Instant::now(), false);
        }
        if let Some(ping) = &mut self.ping {
            // Takes the pong, so that the next PING can be sent.
            let _ = ping.poll_pong(cx);
        }
    }

    /// Returns the time at which a PING has to be sent or the connection is given up; `None` without streams.
    fn deadline(&self) -> Option<Instant> {
        let quiet = self.quiet_since + KEEPALIVE_IDLE;
        let again = self.pinged_at.filter(|_| !self.awaiting_pong);
        let end = again.map_or(quiet, |at| quiet.max(at + MIN_PING_INTERVAL));
        (self.streams.get() > 0).then_some(end)
    }

    /// Sends a PING. Returns true if one was outstanding already.
    fn ping(&mut self) -> bool {
        if std::mem::replace(&mut self.awaiting_pong, true) {
            return true;
        }
        self.quiet_since = Instant::now();
        self.pinged_at = Some(self.quiet_since);
        if let Some(ping) = &mut self.ping {
            let _ = ping.send_ping(Ping::opaque());
        }
        false
    }
}

/// Drives a connection to its end. Dropping the driver ends its streams.
async fn drive(
    mut driver: ConnectionDriver,
    liveness: LivenessCheck,
    guard: ConnectionGuard,
    address: SocketAddr,
) {
    let mut timer = DeadlineTimer::new();
    let liveness = RefCell::new(liveness);
    loop {
        let deadline = || liveness.borrow().deadline();
        let driven = poll_fn(|cx| {
            let ended = Pin::new(&mut driver).poll(cx);
            liveness.borrow_mut().update(cx);
            ended
        });
        match timer.run_until(deadline, driven).await {
            Ok(ended) => {
                if let Err(error) = ended {
                    tracing::debug!(endpoint = %address, %error, "connection error");
                }
                break;
            }
            Err(_) if liveness.borrow_mut().ping() => {
                tracing::info!(endpoint = %address, "no response to a PING; closing the connection");
                break;
            }
            Err(_) => {}
        }
    }
    drop(guard);
}
