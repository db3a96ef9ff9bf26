//! What is told of an exchange when it is over: figures, and a line in the access log.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pointsman_binding::bound::Frontend;

use super::answer::Answer;
use super::flow::Progress;
use super::request::{Request, Spoken};
use crate::access_log::{LogRecord, LoggedRule};
use crate::downstream::{ClientConnection, Open, Secured};
use crate::metrics::ListenerSeries;
use crate::upstream::Upstream;
use crate::worker::{RulePlan, Worker};

/// What is known so far.
#[derive(Debug)]
pub(crate) struct Report {
    begun: Instant,
    plan: Option<Rc<RulePlan>>,
    matched: usize,
    status: Option<u16>,
    grpc_status: Option<u32>,
    reason: Option<&'static str>,
    cut: bool,
    /// The listener, where no rule took it.
    arrived: Option<(Arc<Frontend>, Arc<ListenerSeries>)>,
    backend: Option<(Rc<Upstream>, SocketAddr)>,
    upstream: Option<Duration>,
    retries: u32,
    request_bytes: u64,
    response_bytes: u64,
    /// Of an answer that was made here.
    own_bytes: u64,
    id: Option<String>,
}

impl Report {
    /// A request has come: its first byte then.
    pub(crate) fn new(begun: Instant) -> Self {
        Report {
            begun,
            plan: None,
            matched: 0,
            status: None,
            grpc_status: None,
            reason: None,
            cut: false,
            arrived: None,
            backend: None,
            upstream: None,
            retries: 0,
            request_bytes: 0,
            response_bytes: 0,
            own_bytes: 0,
            id: None,
        }
    }

    /// When the request had come.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// This rule takes it.
    pub(crate) fn decided(&mut self, plan: &Rc<RulePlan>, matched: usize) {
        self.plan = Some(plan.clone());
        self.matched = matched;
    }

    /// It is answered here.
    pub(crate) fn answered_here(
        &mut self,
        worker: &Worker,
        passage: &ClientConnection,
        answer: &Answer,
        grpc: bool,
    ) {
        self.status = Some(if grpc { 200 } else { answer.status });
        self.grpc_status = grpc.then(|| answer.grpc_status().into());
        self.reason = Some(answer.reason);
        answer.count(worker, passage.resolved.client);
    }

    /// A filter replies with this status.
    pub(crate) fn replied(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The answer that was made here has a body of so many bytes.
    pub(crate) fn gave(&mut self, bytes: u64) {
        self.own_bytes = bytes;
    }

    /// It came to this listener, and no rule takes it.
    pub(crate) fn arrived(&mut self, frontend: &Arc<Frontend>, series: Arc<ListenerSeries>) {
        self.arrived = Some((frontend.clone(), series));
    }

    /// It goes there.
    pub(crate) fn endpoint(&mut self, upstream: &Rc<Upstream>, address: SocketAddr) {
        self.backend = Some((upstream.clone(), address));
    }

    /// It is tried again.
    pub(crate) fn retried(&mut self) {
        self.retries += 1;
    }

    /// The id that it was given.
    pub(crate) fn request_id(&mut self, id: Option<&str>) {
        self.id = id.map(str::to_owned);
    }

    /// The head of a response came after this time.
    pub(crate) fn came(&mut self, status: u16, took: Duration) {
        self.upstream = Some(took);
        self.status = Some(status);
        if let Some((upstream, _)) = &self.backend {
            upstream.series.requests.increment(status);
            upstream.series.latency.observe(took);
        }
    }

    /// So much of the response's body was carried.
    pub(crate) fn moved(&mut self, response: u64) {
        self.response_bytes += response;
    }

    /// So much of the response's body never left.
    pub(crate) fn took_back(&mut self, response: u64) {
        self.response_bytes -= response;
    }

    /// A try is over, and so much of the request's body went.
    pub(crate) fn sent(&mut self, request: u64) {
        self.request_bytes = self.request_bytes.max(request);
    }

    /// The response did not come to its end.
    pub(crate) fn cut(&mut self, reason: &'static str) {
        self.cut = true;
        self.reason = Some(reason);
    }

    /// Whether it did not.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// It is over.
    pub(crate) fn end(&self, worker: &Worker, passage: &ClientConnection, request: &Request<'_>) {
        let duration = self.begun.elapsed();
        let status = self.status.unwrap_or(0);
        let origin = self.plan.as_ref().and_then(|plan| plan.origin.as_ref());
        let response_bytes = self.response_bytes + self.own_bytes;
        let moved = self.request_bytes | response_bytes != 0;
        let at_listener = |listener: &ListenerSeries| {
            listener.requests.increment(status);
            listener.latency.observe(duration);
            if moved {
                listener.request_bytes.add(self.request_bytes);
                listener.response_bytes.add(response_bytes);
            }
        };
        if let Some(origin) = origin {
            origin.series.requests.increment(status);
            origin.series.latency.observe(duration);
            at_listener(&origin.listener);
        } else if let Some((_, series)) = &self.arrived {
            at_listener(series);
        } else if let Some(Open(listener)) = &passage.open {
            at_listener(listener);
        }
        if let Some((upstream, _)) = self.backend.as_ref().filter(|_| moved) {
            upstream.series.request_bytes.add(self.request_bytes);
            upstream.series.response_bytes.add(self.response_bytes);
        }
        let Some(log) = &worker.log else { return };
        let frontend = origin.map(|origin| &origin.frontend);
        let listener = frontend
            .or(self.arrived.as_ref().map(|(frontend, _)| frontend))
            .map(|frontend| &frontend.id);
        let id = self.id.as_deref().map(str::as_bytes);
        let path = match request.query {
            None => Cow::Borrowed(request.path),
            Some(query) => Cow::Owned(format!("{}?{query}", request.path)),
        };
        log.write(&LogRecord {
            time: SystemTime::now() - duration,
            duration,
            client: Some(passage.resolved.client),
            listener,
            protocol: request.spoken.name(),
            method: Some(request.method.as_bytes()),
            authority: request.authority.map(str::as_bytes),
            path: Some(path.as_bytes()),
            status: self.status,
            grpc_status: self.grpc_status,
            request_bytes: self.request_bytes,
            response_bytes,
            rule: origin.map(|origin| {
                let (route, index) = origin.route.source(&origin.rule);
                LoggedRule {
                    route,
                    index,
                    matched: self.matched,
                }
            }),
            backend: self.backend.as_ref().map(|(upstream, _)| &upstream.id),
            endpoint: self.backend.as_ref().map(|(_, address)| *address),
            upstream: self.upstream,
            retries: self.retries,
            reason: self.reason,
            request_id: id.or_else(|| request.lines.get("x-request-id")),
        });
    }
}

/// Tells how much was carried when it is dropped: who carries it may be dropped in the middle, because the client is gone or the worker ends.
pub(crate) struct Tally<'t> {
    report: &'t mut Report,
    up: &'t Progress,
    down: &'t Progress,
}

impl<'t> Tally<'t> {
    /// Of what goes both ways.
    pub(crate) fn new(report: &'t mut Report, up: &'t Progress, down: &'t Progress) -> Self {
        Tally { report, up, down }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.report.sent(self.up.bytes.get());
        self.report.moved(self.down.bytes.get());
    }
}

/// What a refused head says, as far as it could be read.
#[derive(Debug, Default)]
pub(crate) struct Said<'s> {
    pub(crate) method: Option<&'s [u8]>,
    pub(crate) authority: Option<&'s [u8]>,
    pub(crate) path: Option<&'s [u8]>,
    pub(crate) grpc: bool,
}

/// Tells of a request whose head was refused, with an answer of so many bytes: no listener was looked for, so it counts where its connection does.
pub(crate) fn refused(
    worker: &Worker,
    passage: &ClientConnection,
    spoken: Spoken,
    begun: Instant,
    said: &Said<'_>,
    (answer, bytes): (&Answer, u64),
) {
    let duration = begun.elapsed();
    let status = if said.grpc { 200 } else { answer.status };
    if let Some(Open(listener)) = &passage.open {
        listener.requests.increment(status);
        listener.latency.observe(duration);
        listener.response_bytes.add(bytes);
    }
    let Some(log) = &worker.log else { return };
    log.write(&LogRecord {
        time: SystemTime::now() - duration,
        duration,
        client: Some(passage.resolved.client),
        listener: match &passage.secured {
            Secured::Listener(listener) => Some(listener),
            Secured::Open | Secured::Mesh => None,
        },
        protocol: spoken.name(),
        method: said.method,
        authority: said.authority,
        path: said.path,
        status: Some(status),
        grpc_status: said.grpc.then(|| answer.grpc_status().into()),
        response_bytes: bytes,
        reason: Some(answer.reason),
        ..LogRecord::default()
    });
}
