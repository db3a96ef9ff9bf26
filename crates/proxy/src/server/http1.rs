//! Serves HTTP/1 connections: consecutive requests.
//!
//! A connection is idle or busy. The state for requests, mainly the future of an exchange, is in a box that is freed when the connection becomes idle. If
//! requests follow each other quickly, the box is kept between them, because it costs as much as a small request. A client that opens thousands of connections
//! and sends one request on each therefore never uses more than a few boxes.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::http2::{self, PREFACE};
use crate::downstream::ClientConnection;
use crate::exchange;
use crate::exchange::headers::{Header, Headers};
use crate::exchange::local_reply::LocalReply;
use crate::exchange::report::{self, RejectedHead};
use crate::exchange::request::{DownstreamRequest, HttpVersion};
use crate::exchange::response_writer::{Http1ResponseWriter, ResponseWriter};
use crate::exchange::source::{Http1Source, Source};
use crate::http1::{Event, RequestReader, Version};
use crate::io::buffer::Buffer;
use crate::io::deadline::DeadlineTimer;
use crate::io::lingering_close::{LINGERING_TIME, lingering_close};
use crate::io::signal::Waiter;
use crate::io::stream::{PrefixedStream, ReadHalf, WriteHalf, unsplit};
use crate::io::task::{assert_size, spawn_within};
use crate::limits::limit_name;
use crate::worker::Worker;

/// Time after which a connection with frequent requests becomes idle if no further request arrives. Other connections become idle after each response.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Grace period for the next request of a client whose last response promised to keep the connection, before the listener was closed.
const NEXT_REQUEST_GRACE: Duration = Duration::from_secs(1);

/// Bound for the size of an idle connection's future.
const IDLE_BYTES: usize = 640;

/// Bound for the size of a busy connection's future.
const BUSY_BYTES: usize = 5120;

/// Starts a task that serves a connection.
pub(crate) fn spawn(
    worker: Rc<Worker>,
    client: ClientConnection,
    reader: ReadHalf,
    writer: WriteHalf,
) {
    // Boxed, because a future stores its arguments twice.
    let connection = Box::new(AcceptedConnection {
        worker,
        client,
        reader,
        writer,
    });
    spawn_within::<IDLE_BYTES, _>(serve(connection));
}

/// An accepted connection.
struct AcceptedConnection {
    worker: Rc<Worker>,
    client: ClientConnection,
    reader: ReadHalf,
    writer: WriteHalf,
}

/// Serves a connection until it ends.
async fn serve(mut accepted: Box<AcceptedConnection>) {
    let AcceptedConnection {
        worker,
        client,
        reader,
        writer,
    } = &mut *accepted;
    let mut connection = DownstreamHttp1Connection {
        worker,
        client,
        closed: client.socket.closed.waiter(),
        reader,
        writer,
        timer: DeadlineTimer::new(),
    };
    let ended = connection.serve().await;
    drop(connection);
    let AcceptedConnection {
        worker,
        client,
        reader,
        writer,
    } = *accepted;
    match (ended, writer) {
        (ConnectionEnd::Http2(read), writer) => {
            if let Some(stream) = unsplit(reader, writer) {
                http2::spawn(worker, client, PrefixedStream::new(read, stream));
            }
        }
        // Dropping both halves closes the socket; the half alone would be shut down first.
        (ConnectionEnd::Closed, WriteHalf::Tcp(half)) => half.forget(),
        (ConnectionEnd::Closed, _) => {}
    }
}

/// Creates the boxed future of a busy period.
fn boxed_busy(
    connection: &mut DownstreamHttp1Connection<'_>,
    buffer: Buffer,
    frequency: RequestFrequency,
) -> Pin<Box<impl Future<Output = BusyOutcome>>> {
    let busy = busy(connection, buffer, frequency);
    assert_size::<BUSY_BYTES, _>(&busy);
    Box::pin(busy)
}

/// A client's connection while it is idle. Its state is part of every connection, so it is kept small.
struct DownstreamHttp1Connection<'l> {
    worker: &'l Rc<Worker>,
    client: &'l ClientConnection,
    closed: Waiter<'l>,
    reader: &'l mut ReadHalf,
    writer: &'l mut WriteHalf,
    timer: DeadlineTimer,
}

/// Rate at which the requests of a connection follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestFrequency {
    /// No request has been received yet.
    First,
    /// The last request was long ago, or was the first.
    Rare,
    /// The last request was less than [`BUSY_TIMEOUT`] ago.
    Frequent,
}

/// Result of waiting for a request.
enum WaitOutcome {
    /// The first bytes were received.
    Received(Buffer),
    /// The client closed the connection, or the listener was closed.
    Closed,
    Elapsed,
}

impl DownstreamHttp1Connection<'_> {
    /// Serves requests until the connection ends.
    async fn serve(&mut self) -> ConnectionEnd {
        let limits = self.worker.limits();
        let mut wait_time = limits.head_time;
        let mut frequency = RequestFrequency::First;
        loop {
            let waiting_since = Instant::now();
            let buffer = match self.wait(waiting_since + wait_time, frequency).await {
                WaitOutcome::Received(buffer) => buffer,
                WaitOutcome::Closed => return ConnectionEnd::Closed,
                WaitOutcome::Elapsed => {
                    let client = self.client.resolved.client;
                    tracing::debug!(%client, ?wait_time, "no request was received in time");
                    return ConnectionEnd::Closed;
                }
            };
            if frequency != RequestFrequency::First && waiting_since.elapsed() < BUSY_TIMEOUT {
                frequency = RequestFrequency::Frequent;
            }
            match boxed_busy(self, buffer, frequency).await {
                BusyOutcome::Idle => {}
                BusyOutcome::Ended(ended) => return ended,
                BusyOutcome::LastResponse => {
                    lingering_close(self.reader, self.writer).await;
                    return ConnectionEnd::Closed;
                }
            }
            wait_time = match frequency {
                RequestFrequency::Frequent => limits.idle_time.saturating_sub(BUSY_TIMEOUT),
                RequestFrequency::First | RequestFrequency::Rare => limits.idle_time,
            };
            frequency = RequestFrequency::Rare;
        }
    }

    /// Waits for the first bytes of a request until the deadline, without holding a buffer.
    ///
    /// If the listener was closed during the last response, that response promised to keep the connection, and the client may be sending another request
    /// already. It has a short time to do so.
    async fn wait(&mut self, mut deadline: Instant, frequency: RequestFrequency) -> WaitOutcome {
        let (reader, closed, client) = (&mut *self.reader, &mut self.closed, self.client);
        let promised = frequency != RequestFrequency::First && client.socket.closed.is_notified();
        if promised {
            deadline = deadline.min(Instant::now() + NEXT_REQUEST_GRACE);
        }
        // Pinned and borrowed below, because a future stores its arguments twice.
        let received = pin!(poll_fn(|cx| {
            let mut buffer = self.worker.buffers.acquire();
            match buffer.poll_fill(Pin::new(&mut *reader), 0, cx) {
                Poll::Ready(Ok(1..)) => Poll::Ready(WaitOutcome::Received(buffer)),
                Poll::Ready(_) => Poll::Ready(WaitOutcome::Closed),
                // Another connection needs the slot, and no request has arrived.
                Poll::Pending if client.poll_idle(cx).is_ready() && reader.is_drained() => {
                    Poll::Ready(WaitOutcome::Closed)
                }
                Poll::Pending if promised => Poll::Pending,
                // After the listener was closed, no further requests are accepted.
                Poll::Pending => closed.poll(cx).map(|()| WaitOutcome::Closed),
            }
        }));
        let received = self.timer.run_until(|| Some(deadline), received).await;
        // A connection that becomes idle after a timeout counts as idle since the last response.
        if received.is_ok() {
            client.set_busy();
        }
        received.unwrap_or(WaitOutcome::Elapsed)
    }
}

/// The end of a connection, or of its use for HTTP/1.
enum ConnectionEnd {
    Closed,
    /// The connection uses HTTP/2 and starts with these bytes.
    Http2(Vec<u8>),
}

/// Outcome of a busy period.
enum BusyOutcome {
    /// All requests got their responses.
    Idle,
    /// A response was sent after which the connection is closed.
    LastResponse,
    Ended(ConnectionEnd),
}

/// Serves requests until the connection becomes idle.
async fn busy(
    connection: &mut DownstreamHttp1Connection<'_>,
    mut buffer: Buffer,
    frequency: RequestFrequency,
) -> BusyOutcome {
    let limits = connection.worker.limits();
    let mut first = frequency == RequestFrequency::First;
    let mut state = RequestState {
        reader: RequestReader::new(limits.for_requests()),
        head: Vec::new(),
        out: Vec::new(),
    };
    loop {
        // Time when the first bytes of the head arrived.
        let started = Instant::now();
        let received = match state
            .read_head(connection, &mut buffer, first, started)
            .await
        {
            NextHead::Request { received } => received,
            NextHead::Http2 => {
                return BusyOutcome::Ended(ConnectionEnd::Http2(buffer.filled().to_vec()));
            }
            NextHead::End => return BusyOutcome::Ended(ConnectionEnd::Closed),
            NextHead::Rejected(reply) => {
                // Boxed: rejections are rare, and the future of every exchange would be larger.
                Box::pin(state.reject(connection, reply, started)).await;
                return BusyOutcome::LastResponse;
            }
        };
        first = false;
        let exchange = state.exchange(connection, &mut buffer, started, received);
        let Some(ended) = exchange.await else {
            return BusyOutcome::LastResponse;
        };
        if buffer.is_empty() {
            drop(buffer);
            if frequency != RequestFrequency::Frequent {
                return BusyOutcome::Idle;
            }
            let end = ended + BUSY_TIMEOUT.min(limits.idle_time);
            buffer = match connection.wait(end, frequency).await {
                WaitOutcome::Received(buffer) => buffer,
                WaitOutcome::Closed => return BusyOutcome::Ended(ConnectionEnd::Closed),
                WaitOutcome::Elapsed if connection.client.socket.closed.is_notified() => {
                    return BusyOutcome::Ended(ConnectionEnd::Closed);
                }
                WaitOutcome::Elapsed => return BusyOutcome::Idle,
            };
        }
    }
}

/// State of a busy connection.
struct RequestState {
    reader: RequestReader,
    /// The bytes of the current head.
    head: Vec<u8>,
    /// Write buffer.
    out: Vec<u8>,
}

/// Result of reading a head.
enum NextHead {
    /// A request, with the time when its head was complete.
    Request { received: Instant },
    /// The preface of HTTP/2.
    Http2,
    /// The end of the connection.
    End,
    /// An invalid request, with the reply.
    Rejected(LocalReply),
}

impl RequestState {
    /// Reads a request's head, whose first bytes are in the buffer.
    async fn read_head(
        &mut self,
        connection: &mut DownstreamHttp1Connection<'_>,
        buffer: &mut Buffer,
        first: bool,
        started: Instant,
    ) -> NextHead {
        let deadline = started + connection.worker.limits().head_time;
        let mut received = started;
        let max_bytes = self.reader.max_head_bytes();
        loop {
            // RFC 9113 §3.3: a client with prior knowledge starts with the preface of HTTP/2, no part of which is a valid HTTP/1 request.
            if first && buffer.filled().starts_with(PREFACE) {
                return NextHead::Http2;
            }
            if !first || !PREFACE.starts_with(buffer.filled()) {
                match self.reader.next(buffer.filled()) {
                    Err(_) if first && !is_http(buffer.filled()) => return NextHead::End,
                    Err(error) => return NextHead::Rejected(LocalReply::from_http1(error)),
                    Ok(Event::Head(length)) => {
                        self.head.clear();
                        self.head.extend_from_slice(&buffer.filled()[..length]);
                        buffer.consume(length);
                        return NextHead::Request { received };
                    }
                    // The end of the previous request, which had no body.
                    Ok(Event::End { consumed }) => {
                        buffer.consume(consumed);
                        continue;
                    }
                    Ok(event) => buffer.consume(event.consumed()),
                }
            }
            let filling = buffer.fill(connection.reader, max_bytes);
            match connection
                .client
                .run_until(&mut connection.timer, deadline, filling)
                .await
            {
                Err(_) => {
                    let message = "the head of the request took too long";
                    let reply = LocalReply::new(408, "HeadTimeout", message);
                    return NextHead::Rejected(
                        match connection.client.socket.closed.is_notified() {
                            true => reply,
                            false => reply.with_limit(limit_name::head_time),
                        },
                    );
                }
                Ok(Ok(0)) => {
                    let close = connection.reader.peer_close();
                    return match self.reader.eof(buffer.filled(), close) {
                        Ok(_) => NextHead::End,
                        Err(error) => NextHead::Rejected(LocalReply::from_http1(error)),
                    };
                }
                Ok(Ok(_)) => received = Instant::now(),
                Ok(Err(_)) => return NextHead::End,
            }
        }
    }

    /// Processes the request whose head was read. Returns the time of its end if the connection can be reused.
    async fn exchange(
        &mut self,
        connection: &mut DownstreamHttp1Connection<'_>,
        buffer: &mut Buffer,
        started: Instant,
        received: Instant,
    ) -> Option<Instant> {
        let (head, body) = self.reader.message();
        let view = head.view(&self.head);
        let version = match head.version() {
            Version::Http10 => HttpVersion::Http10,
            Version::Http11 => HttpVersion::Http11,
        };
        let request = DownstreamRequest {
            version,
            method: view.method(),
            authority: view.authority(),
            path: view.path(),
            query: view.query(),
            headers: Headers::new(view.fields().forwarded().map(Header::parsed)),
            framing: head.framing(),
            websocket: view.opens_websocket(),
            expects_continue: head.expects_continue() && buffer.is_empty(),
            accepts_trailers: head.accepts_trailers(),
            uri: None,
            received,
        };
        let max_bytes = connection.worker.limits().buffer_bytes;
        let mut source =
            Source::Http1(Http1Source::new(connection.reader, buffer, body, max_bytes));
        let is_closing = connection.client.socket.closed.is_notified()
            || connection.worker.shared.announces_close();
        let keep = head.keep_alive() && !is_closing;
        let head_only = request.method == "HEAD";
        let mut client = ResponseWriter::Http1(Http1ResponseWriter::new(
            connection.writer,
            &mut self.out,
            version,
            head_only,
            keep,
        ));
        exchange::run(
            connection.worker,
            connection.client,
            &mut connection.timer,
            &request,
            &mut source,
            &mut client,
            started,
        )
        .await
    }

    /// Replies to an invalid request.
    async fn reject(
        &mut self,
        connection: &mut DownstreamHttp1Connection<'_>,
        reply: LocalReply,
        started: Instant,
    ) {
        let (worker, client) = (connection.worker, connection.client);
        reply.count(worker, client.resolved.client);
        let out = &mut self.out;
        let response =
            Http1ResponseWriter::new(connection.writer, out, HttpVersion::Http11, false, false);
        let mut response = ResponseWriter::Http1(response);
        let date = worker.date();
        let sent = reply.send(&mut response, false, &date);
        let sent = connection.timer.timeout(LINGERING_TIME, sent).await;
        let bytes = sent.ok().and_then(Result::ok).unwrap_or(0);
        let (head, sent) = (RejectedHead::default(), (&reply, bytes));
        report::record_rejected(worker, client, HttpVersion::Http11, started, &head, sent);
    }
}

/// Returns whether a first line resembles HTTP/1. Clients of other protocols, such as HTTP/2 with a malformed preface, would not understand a response.
fn is_http(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    match (words.next(), words.next()) {
        (Some(version), None) => version.contains(&b'/'),
        _ => true,
    }
}
