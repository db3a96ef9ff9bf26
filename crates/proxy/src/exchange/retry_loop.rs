//! The retry loop: forwards a request, tries other endpoints if one can't be reached, and retries as configured by the rule.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::header::HOST;
use pointsman_routing::action::Forward;

use super::attempt::{Attempt, Downstream};
use super::backend::UpstreamRequest;
use super::failure::{Failure, Timeout};
use super::forwarded::ForwardedHeaders;
use super::headers::{Header, Headers};
use super::local_reply::LocalReply;
use super::mirror::MirrorCopies;
use super::replay_buffer::ReplayBuffer;
use super::report::ExchangeReport;
use super::request::DownstreamRequest;
use super::response_writer::ResponseWriter;
use super::source::Source;
use crate::downstream::ClientConnection;
use crate::io::deadline::DeadlineTimer;
use crate::sockets::SocketFactory;
use crate::upstream::{SelectedEndpoint, Upstream};
use crate::worker::{MirrorTarget, RulePlan, Worker};

/// Minimum number of retries of a request of which nothing was sent.
const UNSENT_RETRIES: u32 = 3;

/// Forwards one request.
pub(crate) struct RetryLoop<'t> {
    pub(crate) worker: &'t Rc<Worker>,
    pub(crate) connection: &'t ClientConnection,
    pub(crate) plan: &'t RulePlan,
    /// Edits of the request and response.
    pub(crate) forward: &'t Forward<'t>,
    pub(crate) upstream: &'t Rc<Upstream>,
    pub(crate) mirrors: &'t [MirrorTarget],
    pub(crate) request: &'t DownstreamRequest<'t>,
    /// The normalized path.
    pub(crate) path: &'t str,
}

impl RetryLoop<'_> {
    /// Attempts to forward the request until there is a response or no attempt is left.
    pub(crate) async fn run(
        &self,
        timer: &mut DeadlineTimer,
        source: &mut Source<'_>,
        client: &mut ResponseWriter<'_>,
        report: &mut ExchangeReport,
    ) -> Result<(), LocalReply> {
        let path = self.forward.path(self.path);
        let forwarded = ForwardedHeaders::new(self.worker, self.connection, self.request);
        if self.worker.log.is_some() {
            report.set_request_id(forwarded.id());
        }
        let upstream_request = self.upstream_request(&path, &forwarded);
        let is_grpc = self.request.is_grpc();
        let grpc = self.plan.grpc || is_grpc;
        let protocol = self.upstream.protocol(grpc);

        let mut replay = self.replay_buffer(&upstream_request, grpc);
        let deadline = self
            .plan
            .request_timeout
            .map(|time| report.started() + time);
        let mut tried: Vec<SocketAddr> = Vec::new();
        let mut new_connection = false;
        let mut started = self.request.received;
        let now = self.worker.at(started);
        self.upstream.retry_budget.borrow_mut().record_request(now);
        loop {
            let mut endpoint = self.select(&tried, started)?;
            report.set_endpoint(self.upstream, endpoint.address);
            let attempt = Attempt {
                retry_loop: self,
                upstream_request: &upstream_request,
                protocol,
                is_grpc,
                new_connection,
                deadline,
                may_retry: tried.len() < self.max_retries() as usize && replay.can_replay(),
            };
            let mut downstream = Downstream {
                source,
                client,
                replay: &mut replay,
                timer,
                report,
            };
            let failure = match attempt.run(&mut endpoint, &mut downstream).await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let again = !client.has_started()
                && replay.can_replay()
                && self.may_retry_after(&failure, tried.len() as u32, new_connection);
            if !again {
                return Err(failure.local_reply());
            }
            // All pooled connections may be stale, so the next attempt at the same endpoint uses a new one. It does not count as a retry of the rule.
            new_connection =
                matches!(failure, Failure::NoResponse { reused: true }) && !new_connection;
            if !new_connection {
                tried.push(endpoint.address);
                self.pause(deadline).await;
            }
            started = Instant::now();
            report.count_retry();
            self.upstream.series.retries.increment();
        }
    }

    /// Starts the mirrored copies, and returns the buffer that passes the body to them and keeps it for retries.
    fn replay_buffer(&self, upstream_request: &UpstreamRequest<'_>, grpc: bool) -> ReplayBuffer {
        let copies = MirrorCopies::start(
            self.worker,
            self.sockets(),
            self.mirrors,
            upstream_request,
            grpc,
        );
        let max_bytes = match self.request.framing.is_empty() {
            true => 0,
            false => self.worker.limits().replay_bytes,
        };
        ReplayBuffer::new(max_bytes, copies)
    }

    /// Selects an endpoint, preferably one that was not tried.
    fn select(
        &self,
        tried: &[SocketAddr],
        started: Instant,
    ) -> Result<SelectedEndpoint, LocalReply> {
        self.upstream
            .select(self.worker, self.sockets(), tried, started)
            .ok_or_else(|| LocalReply::new(503, "NoEndpoints", "no ready endpoint"))
    }

    /// Returns the factory of the sockets to endpoints for this client.
    fn sockets(&self) -> &Rc<SocketFactory> {
        &self.connection.socket.upstream_sockets
    }

    /// Returns the head to send to the backend.
    fn upstream_request<'o>(
        &'o self,
        path: &'o str,
        forwarded: &'o ForwardedHeaders<'_>,
    ) -> UpstreamRequest<'o> {
        let request = self.request;
        let authority = request.authority.unwrap_or_default();
        let host = Header::known(&HOST, authority.as_bytes());
        let is_trusted = self.connection.trusted;
        let kept = request.headers.iter();
        let kept = kept.filter(|header| self.forward.keeps_client_field(header.name, is_trusted));
        let mut headers = Headers::new(std::iter::once(host).chain(kept));
        forwarded.apply_to(&mut headers, self.connection, request.authority);
        self.forward.edit_request(headers.fields_mut());
        UpstreamRequest {
            method: request.method,
            scheme: self.connection.scheme(),
            path,
            query: request.query,
            headers,
            framing: request.framing,
            websocket: request.websocket,
            accepts_trailers: request.accepts_trailers,
            uri: request.uri,
        }
    }

    /// Returns the number of retries that the rule allows.
    fn max_retries(&self) -> u32 {
        self.plan.retry.as_ref().map_or(0, |retry| retry.attempts)
    }

    fn may_retry_after(&self, failure: &Failure, tried: u32, new_connection: bool) -> bool {
        match failure {
            // Nothing was sent, so a retry is safe for any method.
            Failure::Unsent(_) => {
                let max_retries = self.max_retries().max(UNSENT_RETRIES);
                tried < max_retries && self.spend_retry_budget()
            }
            // The endpoint closed an idle connection. That is not a failure; it gets one more attempt.
            Failure::NoResponse { reused: true } if !new_connection => self.request.is_idempotent(),
            Failure::TimedOut(Timeout::Request) => false,
            Failure::NoResponse { .. } | Failure::BadResponse(_) | Failure::TimedOut(_) => {
                self.request.is_idempotent()
                    && tried < self.max_retries()
                    && self.spend_retry_budget()
            }
            // `retries_status` has already spent the budget.
            Failure::RetryableStatus => true,
            _ => false,
        }
    }

    /// Takes a retry from the backend's budget. Returns false if none is left.
    pub(crate) fn spend_retry_budget(&self) -> bool {
        self.upstream
            .retry_budget
            .borrow_mut()
            .try_retry(self.worker.now())
    }

    async fn pause(&self, deadline: Option<Instant>) {
        let backoff = self.plan.retry.as_ref().and_then(|retry| retry.backoff);
        let Some(backoff) = backoff.filter(|time| *time > Duration::ZERO) else {
            return;
        };
        let end = Instant::now() + backoff;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        tokio::time::sleep_until(end.into()).await;
    }
}
