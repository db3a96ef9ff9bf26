//! One connection: made, driven by a task of its own, watched while it has streams.

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
use tokio::task::spawn_local;

use super::super::Upstream;
use super::super::connect::{self, ConnectError, SILENCE};
use super::super::http1::Counted;
use super::Streams;
use super::io::{Io, Pulse};
use crate::io::deadline::DeadlineTimer;
use crate::io::flood_guard::SMALL_FRAMES;
use crate::limits::Limits;
use crate::worker::{UpstreamFile, Worker};

/// How often it is asked at most. Servers of gRPC take PINGs for abuse that come more than once in five minutes (gRPC proposal A8).
const BETWEEN_PINGS: Duration = Duration::from_secs(310);

/// The driver of a connection.
type Driver = h2::client::Connection<Io, Bytes>;

/// A connection. When nobody has it any more, it ends with its last stream.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: RefCell<SendRequest<Bytes>>,
    /// Streams that are open.
    pub(super) streams: Streams,
    /// Since when there is none.
    pub(super) idle_since: Cell<Instant>,
    /// The terms that it was made under.
    terms: u64,
}

impl Connection {
    /// Whether there is room for a stream, under these terms and with so many streams at most; none if there will never be any.
    pub(super) fn room(&self, terms: u64, most: usize) -> Option<bool> {
        let mut sender = self.sender.borrow_mut();
        let mut cx = Context::from_waker(Waker::noop());
        // It fails once the connection is broken, or the endpoint has said that it goes away.
        let lives = !matches!(sender.poll_ready(&mut cx), Poll::Ready(Err(_)));
        if self.terms != terms || !lives {
            return None;
        }
        Some(self.streams.get() < most.min(sender.current_max_send_streams()))
    }

    /// Whether it has had no stream for this long.
    pub(super) fn is_idle(&self, oldest: Duration) -> bool {
        self.streams.get() == 0 && self.idle_since.get().elapsed() >= oldest
    }
}

/// Makes a connection. It is there when the endpoint has said what it takes.
pub(super) async fn make(
    worker: &Rc<Worker>,
    upstream: &Rc<Upstream>,
    address: SocketAddr,
) -> Result<Rc<Connection>, ConnectError> {
    upstream.series.connects.increment();
    let file = UpstreamFile::new(worker);
    let terms = upstream.terms();
    let making = async {
        let pulse = Rc::new(Pulse::default());
        let io = open(worker, upstream, address, &pulse).await?;
        let (sender, driver) = builder(worker.limits())
            .handshake(io)
            .await
            .map_err(|_| ConnectError::Protocol)?;
        let driver = until_settled(driver, &sender).await?;
        Ok((sender, driver, pulse))
    };
    let made = tokio::time::timeout(worker.limits().connect_time, making).await;
    let (sender, mut driver, pulse) = match made.unwrap_or(Err(ConnectError::Elapsed)) {
        Ok(made) => made,
        Err(error) => {
            upstream.series.failed_connects.increment();
            return Err(error);
        }
    };
    let streams = Streams::default();
    let watch = Watch {
        streams: streams.clone(),
        pulse,
        ping: driver.ping_pong(),
        heard: 0,
        asked: false,
        asked_at: None,
        since: Instant::now(),
    };
    spawn_local(drive(driver, watch, Counted::new(upstream, file), address));
    Ok(Rc::new(Connection {
        sender: RefCell::new(sender),
        streams,
        idle_since: Cell::new(Instant::now()),
        terms,
    }))
}

async fn open(
    worker: &Worker,
    upstream: &Upstream,
    address: SocketAddr,
    pulse: &Rc<Pulse>,
) -> Result<Io, ConnectError> {
    let tls = upstream.tls(worker).map_err(ConnectError::Fault)?;
    let stream = connect::tcp(upstream, address).await?;
    connect::keepalive(&stream)?;
    connect::user_timeout(&stream, Some(SILENCE * 2))?;
    let Some(tls) = tls else {
        return Ok(Io::tcp(stream, pulse.clone()));
    };
    let stream = connect::tls(stream, &tls.http2).await?;
    // RFC 9113 §3.2: over TLS, HTTP/2 is agreed on by ALPN.
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(ConnectError::Protocol);
    }
    Ok(Io::tls(stream, pulse.clone()))
}

/// A stream may hold as much as a body's buffer; the connection as much as all of its streams, so that a slow one is in no other's way.
fn builder(limits: &Limits) -> Builder {
    let window = u32::try_from(limits.buffer_bytes).unwrap_or(u32::MAX >> 1);
    let window = window.clamp(16 * 1024, MOST_WINDOW);
    let all = u64::from(window) * u64::from(limits.backend_streams);
    let all = u32::try_from(all).unwrap_or(MOST_WINDOW);
    let all = all.clamp(1 << 20, MOST_WINDOW);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(window)
        .initial_connection_window_size(all)
        .data_frame_budget(SMALL_FRAMES * all as usize)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(window as usize)
        // None, until the endpoint has said how many.
        .initial_max_send_streams(0);
    builder
}

/// RFC 9113 §6.9.1.
const MOST_WINDOW: u32 = (1 << 31) - 1;

/// Drives a connection until the endpoint's SETTINGS are there.
async fn until_settled(
    driver: Driver,
    sender: &SendRequest<Bytes>,
) -> Result<Driver, ConnectError> {
    let mut driver = Some(driver);
    poll_fn(|cx| {
        let Some(driving) = &mut driver else {
            return Poll::Pending;
        };
        // An endpoint that answers the preface with something else, or with nothing, does not speak HTTP/2.
        if let Poll::Ready(ended) = Pin::new(driving).poll(cx) {
            tracing::debug!(?ended, "no HTTP/2");
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

/// Looks after a connection that has streams: a peer that is gone without a word is found out.
struct Watch {
    streams: Streams,
    pulse: Rc<Pulse>,
    ping: Option<PingPong>,
    /// What had been heard when it was last looked at, and whether a PING went out since.
    heard: u64,
    asked: bool,
    asked_at: Option<Instant>,
    since: Instant,
}

impl Watch {
    /// Something was heard, or nobody waits for anything: then the time counts from now.
    fn look(&mut self, cx: &mut Context<'_>) {
        let heard = self.pulse.heard();
        if heard != self.heard || self.streams.get() == 0 {
            (self.heard, self.since, self.asked) = (heard, Instant::now(), false);
        }
        if let Some(ping) = &mut self.ping {
            // What was asked before is answered, so that it can be asked again.
            let _ = ping.poll_pong(cx);
        }
    }

    /// When silence has lasted too long; never, if nobody waits for anything.
    fn deadline(&self) -> Option<Instant> {
        let silent = self.since + SILENCE;
        let again = self.asked_at.filter(|_| !self.asked);
        let end = again.map_or(silent, |at| silent.max(at + BETWEEN_PINGS));
        (self.streams.get() > 0).then_some(end)
    }

    /// Silence has lasted too long: asks. Returns whether it was asked already.
    fn ask(&mut self) -> bool {
        if std::mem::replace(&mut self.asked, true) {
            return true;
        }
        self.since = Instant::now();
        self.asked_at = Some(self.since);
        if let Some(ping) = &mut self.ping {
            let _ = ping.send_ping(Ping::opaque());
        }
        false
    }
}

/// Drives a connection to its end. Dropping the driver ends its streams.
async fn drive(mut driver: Driver, watch: Watch, counted: Counted, address: SocketAddr) {
    let mut timer = DeadlineTimer::new();
    let watch = RefCell::new(watch);
    loop {
        let deadline = || watch.borrow().deadline();
        let driven = poll_fn(|cx| {
            let ended = Pin::new(&mut driver).poll(cx);
            watch.borrow_mut().look(cx);
            ended
        });
        match timer.run_until(deadline, driven).await {
            Ok(ended) => {
                if let Err(error) = ended {
                    tracing::debug!(endpoint = %address, %error, "a connection ended");
                }
                break;
            }
            Err(_) if watch.borrow_mut().ask() => {
                tracing::info!(endpoint = %address, "silent for too long: the connection is given up");
                break;
            }
            Err(_) => {}
        }
    }
    drop(counted);
}
