//! One attempt to forward a request: connects to an endpoint, sends the request, relays the response.
//!
//! The request's body is sent concurrently with the response, as bidirectional streaming requires.

use std::pin::pin;
use std::time::Instant;

use http::header::DATE;

use super::backend::{SendError, UpstreamConnection, UpstreamRequest, UpstreamResponse};
use super::copy::Progress;
use super::failure::{Failure, Timeout};
use super::headers::{Header, Headers};
use super::replay_buffer::ReplayBuffer;
use super::report::ExchangeReport;
use super::request::HttpVersion;
use super::response::{AttemptTimeouts, ResponseForwarder};
use super::response_writer::ResponseWriter;
use super::retry_loop::RetryLoop;
use super::sink::Sink;
use super::source::Source;
use super::upload::{Upload, send};
use super::websocket;
use crate::io::deadline::{DeadlineTimer, Elapsed};
use crate::limits::limit_name;
use crate::upstream::connect::ConnectError;
use crate::upstream::{SelectedEndpoint, UpstreamProtocol};

/// One attempt to forward a request.
pub(crate) struct Attempt<'a> {
    pub(crate) retry_loop: &'a RetryLoop<'a>,
    pub(crate) upstream_request: &'a UpstreamRequest<'a>,
    pub(crate) protocol: UpstreamProtocol,
    /// The request is a gRPC call.
    pub(crate) is_grpc: bool,
    /// Use a new connection, not a pooled one.
    pub(crate) new_connection: bool,
    /// Deadline of the whole request, over all attempts.
    pub(crate) deadline: Option<Instant>,
    /// Another attempt is possible if the response's status is retryable.
    pub(crate) may_retry: bool,
}

/// The downstream side of the exchange, with its timer and report.
pub(crate) struct Downstream<'n, 's, 'c> {
    pub(crate) source: &'n mut Source<'s>,
    pub(crate) client: &'n mut ResponseWriter<'c>,
    pub(crate) replay: &'n mut ReplayBuffer,
    pub(crate) timer: &'n mut DeadlineTimer,
    pub(crate) report: &'n mut ExchangeReport,
}

/// The upstream side of one attempt.
pub(crate) struct UpstreamStream<'f> {
    pub(crate) sink: Sink<'f>,
    pub(crate) response: UpstreamResponse<'f>,
    /// The connection has served a request before.
    pub(crate) reused: bool,
    /// Deadline of this attempt.
    pub(crate) deadline: Option<Instant>,
}

/// Outcome of a successful attempt.
pub(super) enum AttemptOutcome {
    /// The response was sent. `uploaded` is false if part of the request was not.
    Completed { uploaded: bool },
    /// The connection was upgraded to a WebSocket.
    Upgraded,
}

impl Attempt<'_> {
    /// Forwards the request and relays the response. On success the response has been sent to the client.
    pub(crate) async fn run(
        &self,
        endpoint: &mut SelectedEndpoint,
        downstream: &mut Downstream<'_, '_, '_>,
    ) -> Result<(), Failure> {
        let worker = self.retry_loop.worker;
        let backend_timeout = self.retry_loop.plan.backend_timeout;
        let attempt_deadline = backend_timeout.map(|time| Instant::now() + time);
        let deadline = [self.deadline, attempt_deadline]
            .into_iter()
            .flatten()
            .min();
        let opening =
            UpstreamConnection::open(worker, endpoint, self.protocol, self.new_connection);
        let mut backend = match downstream.timer.run_until(|| deadline, opening).await {
            Ok(Ok(backend)) => backend,
            Ok(Err(error)) => {
                endpoint.record_failure();
                match error {
                    ConnectError::Timeout => {
                        if let Some(count) = worker.limit_log.due(limit_name::connect_time) {
                            tracing::info!(limit = limit_name::connect_time, endpoint = %endpoint.address, count, "connection attempt timed out");
                        }
                    }
                    _ => {
                        tracing::debug!(endpoint = %endpoint.address, %error, "connection attempt failed")
                    }
                }
                return Err(error.into());
            }
            Err(Elapsed) => return Err(self.deadline_passed(endpoint)),
        };
        if self.retry_loop.request.expects_continue && downstream.replay.recorded().is_empty() {
            let sent = downstream.client.send_continue().await;
            sent.map_err(|_| Failure::Aborted)?;
        }
        let reused = backend.is_reused();
        let (sink, response) = backend.begin(worker, self.upstream_request)?;
        let mut stream = UpstreamStream {
            sink,
            response,
            reused,
            deadline,
        };
        // A gRPC call may pause at any time.
        let up = Progress::new(self.is_grpc);
        let ended = self.exchange(endpoint, downstream, &mut stream, &up).await;
        downstream.report.record_request_bytes(up.bytes.get());
        match ended? {
            // Boxed: WebSockets are rare, and the future of every exchange would be larger.
            AttemptOutcome::Upgraded => {
                Box::pin(websocket::relay(worker, downstream, &mut stream)).await
            }
            AttemptOutcome::Completed { uploaded } => {
                let uploaded = uploaded && downstream.source.has_ended();
                drop(stream);
                if uploaded {
                    backend.keep(worker, endpoint, downstream.report.end());
                }
            }
        }
        Ok(())
    }

    /// Transfers request and response concurrently until the response is complete.
    async fn exchange(
        &self,
        endpoint: &mut SelectedEndpoint,
        downstream: &mut Downstream<'_, '_, '_>,
        stream: &mut UpstreamStream<'_>,
        up: &Progress,
    ) -> Result<AttemptOutcome, Failure> {
        let Downstream {
            source,
            client,
            replay,
            timer,
            report,
        } = downstream;
        let worker = self.retry_loop.worker;
        let sink = &mut stream.sink;
        let (forward, websocket) = (self.retry_loop.forward, self.upstream_request.websocket);
        let upload = pin!(send(worker, forward, source, sink, replay, up, websocket));
        let mut upload = Upload::new(upload);
        let mut response = ResponseForwarder {
            attempt: self,
            timeouts: AttemptTimeouts::new(worker, stream.deadline, up),
            endpoint,
            client,
            timer,
            report,
            response: &mut stream.response,
        };
        response.await_head(&mut upload, stream.reused).await?;
        response.forward(&mut upload).await
    }

    /// Starts the response to the client. Returns the sink for its body (an inner `None` if there can be no body), or `None` after an upgrade to WebSocket.
    pub(super) fn begin<'k>(
        &self,
        response: &UpstreamResponse<'_>,
        client: &'k mut ResponseWriter<'_>,
        timeouts: &AttemptTimeouts<'_>,
        uploaded: bool,
    ) -> Result<Option<Option<Sink<'k>>>, Failure> {
        let mut head = response.head();
        let date = self.retry_loop.worker.date();
        head.headers = self.edit_response(head.headers, &date);
        if response.is_websocket_upgrade() {
            let switched = client.accept_websocket(
                &head,
                self.upstream_request.headers.get("sec-websocket-key"),
            );
            return switched.map(|()| None).map_err(|_| Failure::Aborted);
        }
        // RFC 8441 §5: over HTTP/2 any 2xx would signal an open WebSocket.
        let success = self.upstream_request.websocket && matches!(head.status, 200..300);
        if success && self.retry_loop.request.version == HttpVersion::Http2 {
            return Err(SendError::NoWebSocket.into());
        }
        timeouts.response_started(self.upstream_request.framing, head.framing);
        // RFC 9112 §9.6: the rest of a request that the backend does not accept is not read, and `connection: close` announces it.
        let abandoned = !uploaded && response.is_last();
        if abandoned || self.retry_loop.connection.socket.closed.is_notified() {
            client.close_after_response();
        }
        client.begin(&head).map(Some).map_err(|_| {
            let message = "the response's head can't be forwarded".to_owned();
            Failure::bad_response("BadResponse", message)
        })
    }

    /// Returns the response's headers with the edits of CORS and header filters.
    fn edit_response<'l>(&'l self, mut headers: Headers<'l>, date: &'l [u8]) -> Headers<'l> {
        // RFC 9110 §6.6.1: a recipient that forwards a response without Date adds one.
        if headers.get("date").is_none() {
            headers.push(Header::known(&DATE, date));
        }
        self.retry_loop.forward.edit_response(headers.fields_mut());
        headers
    }

    /// Returns whether a response with this status is discarded and the request retried, after `sent` bytes of its body. Spends the retry budget if so.
    pub(super) fn retries_status(&self, status: u16, sent: u64) -> bool {
        let retry = self.retry_loop.plan.retry.as_ref();
        self.may_retry
            && sent <= self.retry_loop.worker.limits().replay_bytes as u64
            && retry.is_some_and(|retry| retry.codes.contains(&status))
            && self.retry_loop.spend_retry_budget()
    }

    /// Returns the failure of an attempt that exceeded one of the route's timeouts.
    pub(super) fn deadline_passed(&self, endpoint: &mut SelectedEndpoint) -> Failure {
        match self.deadline.is_some_and(|end| end <= Instant::now()) {
            true => Failure::timed_out(endpoint, Timeout::Request),
            false => Failure::timed_out(endpoint, Timeout::Backend),
        }
    }

    pub(super) fn log_stall(&self, endpoint: &SelectedEndpoint) {
        let client = self.retry_loop.connection.resolved.client;
        if let Some(count) = self.retry_loop.worker.limit_log.due(limit_name::stall_time) {
            tracing::info!(limit = limit_name::stall_time, %client, endpoint = %endpoint.address, count, "a body made no progress");
        }
    }
}
