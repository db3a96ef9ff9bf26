//! Metrics and access log of exchanges.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pointsman_binding::bound::Frontend;
use pointsman_routing::ConnectionSecurity;

use super::copy::Progress;
use super::local_reply::LocalReply;
use super::request::{DownstreamRequest, HttpVersion};
use crate::access_log::{LogRecord, LoggedRule};
use crate::downstream::{ClientConnection, ListenerConnectionGuard};
use crate::metrics::ListenerSeries;
use crate::upstream::Upstream;
use crate::worker::{RuleOrigin, RulePlan, Worker};

/// Data for the metrics and the access log entry of an exchange, collected while it runs.
#[derive(Debug)]
pub(crate) struct ExchangeReport {
    started: Instant,
    ended: Option<Instant>,
    plan: Option<Rc<RulePlan>>,
    matched: usize,
    status: Option<u16>,
    grpc_status: Option<u32>,
    reason: Option<&'static str>,
    aborted: bool,
    /// The listener of a request that no rule matched.
    listener: Option<(Arc<Frontend>, Arc<ListenerSeries>)>,
    backend: Option<(Rc<Upstream>, SocketAddr)>,
    upstream_time: Option<Duration>,
    retries: u32,
    request_bytes: u64,
    response_bytes: u64,
    /// Length of the body of a local reply.
    local_reply_bytes: u64,
    request_id: Option<String>,
}

impl ExchangeReport {
    /// Creates the report of a request whose first byte arrived at `started`.
    pub(crate) fn new(started: Instant) -> Self {
        ExchangeReport {
            started,
            ended: None,
            plan: None,
            matched: 0,
            status: None,
            grpc_status: None,
            reason: None,
            aborted: false,
            listener: None,
            backend: None,
            upstream_time: None,
            retries: 0,
            request_bytes: 0,
            response_bytes: 0,
            local_reply_bytes: 0,
            request_id: None,
        }
    }

    /// Returns when the request's first byte arrived.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Records the end, unless it was recorded before, and returns its time.
    pub(crate) fn end(&mut self) -> Instant {
        *self.ended.get_or_insert_with(Instant::now)
    }

    pub(crate) fn set_rule(&mut self, plan: &Rc<RulePlan>, matched: usize) {
        self.plan = Some(plan.clone());
        self.matched = matched;
    }

    pub(crate) fn record_local_reply(
        &mut self,
        worker: &Worker,
        connection: &ClientConnection,
        reply: &LocalReply,
        grpc: bool,
    ) {
        self.status = Some(if grpc { 200 } else { reply.status });
        self.grpc_status = grpc.then(|| reply.grpc_status().into());
        self.reason = Some(reply.reason);
        reply.count(worker, connection.resolved.client);
    }

    pub(crate) fn record_filter_reply(&mut self, status: u16) {
        self.status = Some(status);
    }

    pub(crate) fn set_local_reply_bytes(&mut self, bytes: u64) {
        self.local_reply_bytes = bytes;
    }

    /// Sets the listener of a request that no rule matched.
    pub(crate) fn set_listener(&mut self, frontend: &Arc<Frontend>, series: Arc<ListenerSeries>) {
        self.listener = Some((frontend.clone(), series));
    }

    pub(crate) fn set_endpoint(&mut self, upstream: &Rc<Upstream>, address: SocketAddr) {
        self.backend = Some((upstream.clone(), address));
    }

    pub(crate) fn count_retry(&mut self) {
        self.retries += 1;
    }

    /// Sets the generated request id.
    pub(crate) fn set_request_id(&mut self, id: Option<&str>) {
        self.request_id = id.map(str::to_owned);
    }

    /// Records the head of the backend's response, received after the duration `took`.
    pub(crate) fn record_response_head(&mut self, status: u16, took: Duration) {
        self.upstream_time = Some(took);
        self.status = Some(status);
        if let Some((upstream, _)) = &self.backend {
            upstream.series.requests.increment(status);
            upstream.series.latency.observe(took);
        }
    }

    /// Adds to the bytes of the response's body.
    pub(crate) fn add_response_bytes(&mut self, response: u64) {
        self.response_bytes += response;
    }

    /// Subtracts bytes of the response's body that were buffered and never sent.
    pub(crate) fn retract_response_bytes(&mut self, response: u64) {
        self.response_bytes -= response;
    }

    /// Records the bytes of the request's body that an attempt sent. The maximum over all attempts is reported.
    pub(crate) fn record_request_bytes(&mut self, request: u64) {
        self.request_bytes = self.request_bytes.max(request);
    }

    /// Marks the response as incomplete.
    pub(crate) fn abort(&mut self, reason: &'static str) {
        self.aborted = true;
        self.reason = Some(reason);
    }

    /// Returns whether the response is incomplete.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted
    }

    /// Updates the metrics and writes the access log entry.
    pub(crate) fn publish(
        &mut self,
        worker: &Worker,
        connection: &ClientConnection,
        request: &DownstreamRequest<'_>,
    ) {
        let duration = self.end().saturating_duration_since(self.started);
        let status = self.status.unwrap_or(0);
        let origin = self.plan.as_ref().map(|plan| &plan.origin);
        let response_bytes = self.response_bytes + self.local_reply_bytes;
        let has_bytes = self.request_bytes | response_bytes != 0;
        let record_at_listener = |listener: &ListenerSeries| {
            listener.requests.increment(status);
            listener.latency.observe(duration);
            if has_bytes {
                listener.request_bytes.add(self.request_bytes);
                listener.response_bytes.add(response_bytes);
            }
        };
        if let Some(origin) = origin {
            if let Some(series) = &origin.series {
                series.requests.increment(status);
                series.latency.observe(duration);
            }
            record_at_listener(&origin.listener);
        } else if let Some((_, series)) = &self.listener {
            record_at_listener(series);
        } else if let Some(ListenerConnectionGuard(listener)) = &connection.listener_guard {
            record_at_listener(listener);
        }
        if let Some((upstream, _)) = self.backend.as_ref().filter(|_| has_bytes) {
            upstream.series.request_bytes.add(self.request_bytes);
            upstream.series.response_bytes.add(self.response_bytes);
        }
        let Some(log) = &worker.log else { return };
        let frontend = origin.map(|origin| &origin.frontend);
        let listener = frontend
            .or(self.listener.as_ref().map(|(frontend, _)| frontend))
            .map(|frontend| &frontend.id);
        let generated_id = self.request_id.as_deref().map(str::as_bytes);
        let path = match request.query {
            None => Cow::Borrowed(request.path),
            Some(query) => Cow::Owned(format!("{}?{query}", request.path)),
        };
        log.write(&LogRecord {
            time: SystemTime::now() - duration,
            duration,
            client: Some(connection.resolved.client),
            listener,
            protocol: request.version.name(),
            method: Some(request.method.as_bytes()),
            authority: request.authority.map(str::as_bytes),
            path: Some(path.as_bytes()),
            status: self.status,
            grpc_status: self.grpc_status,
            request_bytes: self.request_bytes,
            response_bytes,
            rule: origin
                .and_then(RuleOrigin::source)
                .map(|(route, index)| LoggedRule {
                    route,
                    index,
                    matched: self.matched,
                }),
            backend: self.backend.as_ref().map(|(upstream, _)| &upstream.id),
            endpoint: self.backend.as_ref().map(|(_, address)| *address),
            upstream_time: self.upstream_time,
            retries: self.retries,
            reason: self.reason,
            request_id: generated_id.or_else(|| request.headers.get("x-request-id")),
        });
    }
}

/// Adds the transferred bytes to the report on drop, because the transfer may be cancelled.
pub(crate) struct ByteCountGuard<'t> {
    report: &'t mut ExchangeReport,
    up: &'t Progress,
    down: &'t Progress,
}

impl<'t> ByteCountGuard<'t> {
    /// Observes both directions.
    pub(crate) fn new(
        report: &'t mut ExchangeReport,
        up: &'t Progress,
        down: &'t Progress,
    ) -> Self {
        ByteCountGuard { report, up, down }
    }
}

impl Drop for ByteCountGuard<'_> {
    fn drop(&mut self) {
        self.report.record_request_bytes(self.up.bytes.get());
        self.report.add_response_bytes(self.down.bytes.get());
    }
}

/// Parts of a rejected head that could be parsed.
#[derive(Debug, Default)]
pub(crate) struct RejectedHead<'s> {
    pub(crate) method: Option<&'s [u8]>,
    pub(crate) authority: Option<&'s [u8]>,
    pub(crate) path: Option<&'s [u8]>,
    pub(crate) grpc: bool,
}

/// Records a rejected head. `bytes` is the length of the reply's body. No listener was looked up, so the request counts for the listener of its connection.
pub(crate) fn record_rejected(
    worker: &Worker,
    connection: &ClientConnection,
    version: HttpVersion,
    started: Instant,
    head: &RejectedHead<'_>,
    (reply, bytes): (&LocalReply, u64),
) {
    let duration = started.elapsed();
    let status = if head.grpc { 200 } else { reply.status };
    if let Some(ListenerConnectionGuard(listener)) = &connection.listener_guard {
        listener.requests.increment(status);
        listener.latency.observe(duration);
        listener.response_bytes.add(bytes);
    }
    let Some(log) = &worker.log else { return };
    log.write(&LogRecord {
        time: SystemTime::now() - duration,
        duration,
        client: Some(connection.resolved.client),
        listener: match &connection.security {
            ConnectionSecurity::Tls(listener) => Some(listener),
            ConnectionSecurity::Plaintext | ConnectionSecurity::MeshMtls => None,
        },
        protocol: version.name(),
        method: head.method,
        authority: head.authority,
        path: head.path,
        status: Some(status),
        grpc_status: head.grpc.then(|| reply.grpc_status().into()),
        response_bytes: bytes,
        reason: Some(reply.reason),
        ..LogRecord::default()
    });
}
