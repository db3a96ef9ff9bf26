//! Serves HTTP/2 connections. Each stream is an exchange in its own task.

mod head;
mod task_pool;

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use http::request::Parts;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::spawn_local;

use crate::downstream::ClientConnection;
use crate::exchange;
use crate::exchange::http2::SendState;
use crate::exchange::http2::response_writer::Http2ResponseWriter;
use crate::exchange::http2::source::Http2Source;
use crate::exchange::local_reply::LocalReply;
use crate::exchange::report::{self, RejectedHead};
use crate::exchange::request::{HttpVersion, is_grpc};
use crate::exchange::response_writer::ResponseWriter;
use crate::exchange::source::Source;
use crate::io::deadline::DeadlineTimer;
use crate::io::flood_guard::{FloodGuard, GuardedStream, SMALL_FRAMES, Violation};
use crate::io::signal::Waiter;
use crate::io::task::{assert_size, spawn_within};
use crate::limits::{Limits, limit_name};
use crate::worker::Worker;
use head::HeadError;
use task_pool::{PooledTask, TaskPool};

/// Connection preface (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Time to send GOAWAY on a connection that is being closed, and for an idle client to respond to the PING that precedes it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which the waiting tasks of an idle connection are freed.
const POOL_IDLE_TIME: Duration = Duration::from_secs(1);

/// Maximum number of streams reset because of client errors, over the lifetime of a connection.
const MAX_ERRORS: usize = 1024;

/// Streams that have existed this long do not count as abusive when the client resets them.
const MIN_LIFETIME: Duration = Duration::from_secs(1);

/// Bound for the size of a connection's future.
const CONNECTION_BYTES: usize = 3072;

/// Bound for the size of a stream's future. Those of 256 streams fit into a level-2 cache of 1 MiB.
const STREAM_BYTES: usize = 4096;

/// Starts a task that serves a connection.
pub(crate) fn spawn<I>(worker: Rc<Worker>, downstream: ClientConnection, io: I)
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
{
    spawn_within::<CONNECTION_BYTES, _>(serve(worker, downstream, io));
}

/// Serves a connection until it ends.
async fn serve<I>(worker: Rc<Worker>, downstream: ClientConnection, io: I)
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let limits = worker.limits();
    let flood_guard = Rc::new(FloodGuard::new(
        limits.http2_control_frames,
        limits.http2_resets,
        head_bytes(limits),
    ));
    let handshake =
        builder(limits).handshake::<_, Bytes>(GuardedStream::new(io, flood_guard.clone()));
    let mut timer = DeadlineTimer::new();
    let started = Instant::now();
    // Boxed, so that its memory is freed before the connection ends.
    let handshake = Box::pin(handshake);
    let deadline = started + limits.head_time;
    let connection = match downstream.run_until(&mut timer, deadline, handshake).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            tracing::debug!(client = %downstream.resolved.client, %error, "the HTTP/2 handshake failed");
            return;
        }
        Err(_) => {
            if let Some(count) = worker.limit_log.due(limit_name::head_time) {
                tracing::info!(limit = limit_name::head_time, client = %downstream.resolved.client, count, "HTTP/2 preface timed out");
            }
            return;
        }
    };
    let shared = Rc::new(SharedConnection {
        worker,
        downstream,
        flood_guard,
        active: Cell::new(0),
        idle_since: Cell::new(started),
        pool: TaskPool::default(),
    });
    let _guard = PoolGuard(&shared);
    let mut served = ServedConnection {
        connection,
        closed: shared.downstream.socket.closed.waiter(),
        shared: &shared,
        state: &ConnectionState::default(),
    };
    served.run(&mut timer).await;
}

/// Configures limits and flow control of a connection.
fn builder(limits: &Limits) -> Builder {
    let (stream_window, connection_window) = limits.http2_windows(limits.streams);
    let mut builder = Builder::new();
    builder
        .initial_window_size(stream_window)
        .initial_connection_window_size(connection_window)
        .data_frame_budget(SMALL_FRAMES * connection_window as usize)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(head_bytes(limits)).unwrap_or(u32::MAX))
        .max_send_buffer_size(stream_window as usize)
        .max_pending_accept_reset_streams(limits.http2_resets as usize)
        .max_local_error_reset_streams(Some((limits.http2_resets as usize).max(MAX_ERRORS)))
        .enable_connect_protocol();
    builder
}

/// Returns the maximum size of a head that `h2` accepts. Heads slightly over the limit get a reply with a reason from this crate, larger ones a reply from
/// `h2`.
fn head_bytes(limits: &Limits) -> usize {
    limits.header_bytes + limits.uri_bytes + 32 * limits.headers + 16 * 1024
}

/// State shared by the streams of a connection.
struct SharedConnection {
    worker: Rc<Worker>,
    downstream: ClientConnection,
    flood_guard: Rc<FloodGuard>,
    /// Number of exchanges in progress.
    active: Cell<usize>,
    /// Time when the last one ended, or the connection started.
    idle_since: Cell<Instant>,
    /// Tasks waiting for a stream.
    pool: TaskPool<Stream>,
}

/// A request, and the handle for its response.
type Stream = (Request<RecvStream>, SendResponse<Bytes>);

/// Ends the waiting tasks when the connection ends.
struct PoolGuard<'s>(&'s SharedConnection);

impl Drop for PoolGuard<'_> {
    fn drop(&mut self) {
        self.0.pool.close();
    }
}

/// State of a connection.
#[derive(Default)]
struct ConnectionState {
    /// There has been a request.
    used: Cell<bool>,
    /// A stream is open. Its exchange may have ended, if the client has not received the whole response yet.
    open: Cell<bool>,
    /// Time of the first GOAWAY of a graceful shutdown.
    draining: Cell<Option<Instant>>,
    /// Time of the final GOAWAY.
    closing: Cell<Option<Instant>>,
}

/// A connection being served.
struct ServedConnection<'s, I> {
    connection: Connection<GuardedStream<I>, Bytes>,
    closed: Waiter<'s>,
    shared: &'s Rc<SharedConnection>,
    state: &'s ConnectionState,
}

impl<I: AsyncRead + AsyncWrite + Unpin> ServedConnection<'_, I> {
    async fn run(&mut self, timer: &mut DeadlineTimer) {
        let (shared, state) = (self.shared, self.state);
        let client = shared.downstream.resolved.client;
        loop {
            let deadline = || shared.deadline(state);
            let ended = timer.run_until(deadline, poll_fn(|cx| self.poll(cx))).await;
            match ended {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
                        shared.worker.metrics.count_refused_connection("Http2Abuse");
                        if let Some(count) = shared.worker.limit_log.due("http2") {
                            tracing::warn!(%client, %error, count, "connection closed");
                        }
                    } else {
                        tracing::debug!(%client, %error, "connection closed with an error");
                    }
                    return;
                }
                Err(_) if state.closing.get().is_some() => return,
                Err(_) if !shared.pool.is_empty() => shared.pool.clear(),
                Err(_) => {
                    // Logged at debug level: browsers open connections speculatively.
                    tracing::debug!(%client, "no request was received in time");
                    self.close(Reason::NO_ERROR);
                }
            }
        }
    }

    /// Polls the connection. Ready when it has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if self.state.draining.get().is_none() && self.closed.poll(cx).is_ready() {
            self.state.draining.set(Some(Instant::now()));
            // RFC 9113 §6.8: shuts down in two steps, so that streams in flight are still served.
            self.connection.graceful_shutdown();
        }
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.state.used.set(true);
                    self.shared.active.set(self.shared.active.get() + 1);
                    if let Some(stream) = self.shared.pool.dispatch((request, respond)) {
                        let streams = serve_streams(self.shared.clone(), PooledTask::new(stream));
                        assert_size::<STREAM_BYTES, _>(&streams);
                        // A panic ends only the task's stream. Boxed, because tokio moves futures when tasks start and end.
                        spawn_local(Box::pin(streams));
                    }
                    continue;
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {}
            }
            match self.shared.flood_guard.violation() {
                Some(violation) if self.state.closing.get().is_none() => {
                    self.close_for_violation(violation)
                }
                // GOAWAY contains the last processed stream, so the client can retry later requests elsewhere.
                _ if self.must_close_idle(cx) => self.close(Reason::NO_ERROR),
                _ => break,
            }
        }
        for _ in 0..self.shared.flood_guard.take_oversized_heads() {
            let fault = crate::http1::Error::Client(crate::http1::MessageFault::HeadTooLarge);
            let client = self.shared.downstream.resolved.client;
            LocalReply::from_http1(fault).count(&self.shared.worker, client);
        }
        self.state.open.set(self.connection.has_streams());
        Poll::Pending
    }

    /// Marks the connection as idle or busy. Returns whether it is idle and has to close in favour of others.
    fn must_close_idle(&mut self, cx: &mut Context<'_>) -> bool {
        let downstream = &self.shared.downstream;
        if self.state.closing.get().is_some() {
            return false;
        }
        if self.shared.active.get() > 0 || self.connection.has_streams() {
            downstream.set_busy();
            return false;
        }
        downstream.poll_idle(cx).is_ready()
    }

    /// Closes a connection that violates a flood limit.
    fn close_for_violation(&mut self, violation: Violation) {
        let (reason, limit) = match violation {
            Violation::TooManyControlFrames => {
                ("Http2ControlFrames", Some(limit_name::http2_control_frames))
            }
            Violation::TooManyResets => ("Http2Resets", Some(limit_name::http2_resets)),
            Violation::BadTrailers => ("BadTrailers", None),
        };
        let client = self.shared.downstream.resolved.client;
        self.shared.worker.metrics.count_refused_connection(reason);
        match limit {
            Some(limit) => {
                if let Some(count) = self.shared.worker.limit_log.due(limit) {
                    tracing::warn!(limit, %client, count, "connection closed");
                }
                self.close(Reason::ENHANCE_YOUR_CALM);
            }
            None => {
                tracing::debug!(%client, "pseudo-header fields in trailers");
                self.close(Reason::PROTOCOL_ERROR);
            }
        }
    }

    /// Closes the connection, including active streams.
    fn close(&mut self, reason: Reason) {
        self.state.closing.set(Some(Instant::now()));
        self.connection.abrupt_shutdown(reason);
    }
}

impl SharedConnection {
    /// Returns the current deadline of the connection.
    fn deadline(&self, state: &ConnectionState) -> Option<Instant> {
        let limits = self.worker.limits();
        if let Some(closing) = state.closing.get() {
            return Some(closing + CLOSE_TIMEOUT);
        }
        if self.active.get() > 0 {
            return None;
        }
        if !self.pool.is_empty() {
            return Some(self.idle_since.get() + POOL_IDLE_TIME);
        }
        if state.open.get() {
            return Some(
                self.flood_guard.last_write().max(self.idle_since.get()) + limits.stall_time,
            );
        }
        if let Some(draining) = state.draining.get() {
            return Some(draining.max(self.idle_since.get()) + CLOSE_TIMEOUT);
        }
        Some(match state.used.get() {
            true => self.idle_since.get() + limits.idle_time,
            false => self.idle_since.get() + limits.head_time,
        })
    }
}

/// Counts an exchange in progress.
struct ActiveStream<'s>(&'s SharedConnection);

impl Drop for ActiveStream<'_> {
    fn drop(&mut self) {
        let active = self.0.active.get() - 1;
        self.0.active.set(active);
        if active == 0 {
            self.0.idle_since.set(Instant::now());
        }
    }
}

/// Serves one stream after another while the connection is busy.
async fn serve_streams(shared: Rc<SharedConnection>, task: Rc<PooledTask<Stream>>) {
    let mut timer = DeadlineTimer::new();
    while serve_stream(&shared, &mut timer, &task).await {
        if !shared.pool.wait(&task).await {
            break;
        }
    }
}

/// Serves one stream. Returns false if there was none.
async fn serve_stream(
    shared: &SharedConnection,
    timer: &mut DeadlineTimer,
    task: &PooledTask<Stream>,
) -> bool {
    let Some((request, respond)) = task.take() else {
        return false;
    };
    let (parts, body) = request.into_parts();
    let _active = ActiveStream(shared);
    let started = Instant::now();
    let sending = RefCell::new(SendState::Response(respond));
    run_exchange(shared, timer, &parts, body, &sending, started).await;
    let mut sending = sending.into_inner();
    if matches!(sending, SendState::Finished | SendState::Body(_))
        || started.elapsed() > MIN_LIFETIME
    {
        shared.flood_guard.record_end();
    }
    // Resets a stream whose response is incomplete. One whose response never started was reset with its own reason.
    sending.reset(Reason::INTERNAL_ERROR);
    true
}

async fn run_exchange(
    shared: &SharedConnection,
    timer: &mut DeadlineTimer,
    parts: &Parts,
    body: RecvStream,
    sending: &RefCell<SendState>,
    started: Instant,
) {
    let SharedConnection {
        worker,
        downstream,
        flood_guard,
        ..
    } = shared;
    let limits = worker.limits();
    let cookies = OnceCell::new();
    let ended = body.is_end_stream();
    let head_only = parts.method == http::Method::HEAD;
    let client = Http2ResponseWriter::new(sending, flood_guard, head_only);
    let mut client = ResponseWriter::Http2(client);
    let request = match head::read(parts, ended, &cookies, limits, started) {
        Ok(request) => request,
        // Boxed: rejections are rare, and the future of every exchange would be larger.
        Err(error) => {
            let client = &mut client;
            let rejected = Box::pin(reject_head(shared, parts, client, sending, error, started));
            return rejected.await;
        }
    };
    let max_bytes = limits.body_bytes.filter(|_| !request.websocket);
    let mut source = Source::Http2(Http2Source::new(body, max_bytes));
    let (source, client) = (&mut source, &mut client);
    exchange::run(worker, downstream, timer, &request, source, client, started).await;
}

/// Rejects a request with an invalid head.
async fn reject_head(
    shared: &SharedConnection,
    parts: &Parts,
    client: &mut ResponseWriter<'_>,
    sending: &RefCell<SendState>,
    error: HeadError,
    started: Instant,
) {
    let SharedConnection {
        worker, downstream, ..
    } = shared;
    let reply = match error {
        HeadError::Malformed => return sending.borrow_mut().reset(Reason::PROTOCOL_ERROR),
        HeadError::LocalReply(reply) => reply,
    };
    reply.count(worker, downstream.resolved.client);
    let kind = parts.headers.get(http::header::CONTENT_TYPE);
    let grpc = kind.is_some_and(|kind| is_grpc(kind.as_bytes()));
    let date = worker.date();
    let bytes = reply.send(client, grpc, &date).await.unwrap_or(0);
    let target = parts.uri.path_and_query();
    let head = RejectedHead {
        method: Some(parts.method.as_str().as_bytes()),
        authority: parts.uri.authority().map(|name| name.as_str().as_bytes()),
        path: target.map(|target| target.as_str().as_bytes()),
        grpc,
    };
    let sent = (&reply, bytes);
    report::record_rejected(worker, downstream, HttpVersion::Http2, started, &head, sent);
}
