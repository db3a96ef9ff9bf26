//! Metrics and access log of streams and UDP sessions. They are recorded on drop, also for streams that are cancelled.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use pointsman_binding::bound::{Fault, FrontendId};

use crate::access_log::{LogRecord, LoggedRule};
use crate::downstream::ListenerConnectionGuard;
use crate::metrics::ListenerSeries;
use crate::upstream::Upstream;
use crate::worker::{RuleOrigin, RulePlan, Worker};

/// Data for the metrics and the access log entry of a stream or UDP session, collected while it runs.
#[derive(Debug)]
pub(crate) struct StreamReport {
    worker: Rc<Worker>,
    started: Instant,
    client: SocketAddr,
    protocol: &'static str,
    sni: Option<String>,
    listener: Option<FrontendId>,
    listener_guard: Option<ListenerConnectionGuard>,
    plan: Option<Rc<RulePlan>>,
    endpoint: Option<(Rc<Upstream>, SocketAddr)>,
    retries: u32,
    status: u16,
    reason: Option<&'static str>,
    request_bytes: Cell<u64>,
    response_bytes: Cell<u64>,
    finished: bool,
}

impl StreamReport {
    /// Creates the report of a stream or session with this SNI.
    pub(crate) fn new(
        worker: &Rc<Worker>,
        client: SocketAddr,
        protocol: &'static str,
        sni: Option<String>,
    ) -> Self {
        StreamReport {
            worker: worker.clone(),
            started: Instant::now(),
            client,
            protocol,
            sni,
            listener: None,
            listener_guard: None,
            plan: None,
            endpoint: None,
            retries: 0,
            status: 0,
            reason: None,
            request_bytes: Cell::new(0),
            response_bytes: Cell::new(0),
            finished: false,
        }
    }

    pub(crate) fn set_listener(&mut self, listener: Option<(FrontendId, Arc<ListenerSeries>)>) {
        let (listener, series) = listener.unzip();
        self.listener_guard = series.map(ListenerConnectionGuard::new);
        self.listener = listener;
    }

    pub(crate) fn set_rule(&mut self, plan: &Rc<RulePlan>) {
        self.plan = Some(plan.clone());
    }

    /// Sets the selected endpoint. If there was another one before, counts a retry.
    pub(crate) fn set_endpoint(&mut self, upstream: &Rc<Upstream>, address: SocketAddr) {
        if self.endpoint.is_some() {
            self.retries += 1;
            upstream.series.retries.increment();
        }
        self.endpoint = Some((upstream.clone(), address));
    }

    /// Sets the fault for which the stream is not forwarded.
    pub(crate) fn set_fault(&mut self, fault: &Fault) {
        self.status = fault.status;
        self.reason = Some(fault.reason.as_str());
        self.worker
            .metrics
            .count_refused_connection(fault.reason.as_str());
    }

    /// Sets the reason for a premature end.
    pub(crate) fn set_end_reason(&mut self, reason: &'static str) {
        self.reason = Some(reason);
    }

    /// Adds transferred bytes, from the client and to the client.
    pub(crate) fn add_bytes(&self, request: u64, response: u64) {
        self.request_bytes.set(self.request_bytes.get() + request);
        self.response_bytes
            .set(self.response_bytes.get() + response);
        if let Some(ListenerConnectionGuard(series)) = &self.listener_guard {
            series.request_bytes.add(request);
            series.response_bytes.add(response);
        }
        if let Some((upstream, _)) = &self.endpoint {
            upstream.series.request_bytes.add(request);
            upstream.series.response_bytes.add(response);
        }
    }

    /// Marks the stream as finished. Without this call, it is recorded as terminated by the worker.
    pub(crate) fn finish(mut self) {
        self.finished = true;
    }

    /// Updates metrics and writes the access log entry.
    fn record(&self) {
        let duration = self.started.elapsed();
        if let Some(ListenerConnectionGuard(series)) = &self.listener_guard {
            series.requests.increment(self.status);
        }
        if let Some((upstream, _)) = &self.endpoint {
            upstream.series.requests.increment(self.status);
        }
        let origin = self.plan.as_ref().map(|plan| &plan.origin);
        if let Some(series) = origin.and_then(|origin| origin.series.as_ref()) {
            series.requests.increment(self.status);
            series.latency.observe(duration);
        }
        let Some(log) = &self.worker.log else { return };
        log.write(&LogRecord {
            time: SystemTime::now() - duration,
            duration,
            client: Some(self.client),
            listener: self.listener.as_ref(),
            protocol: self.protocol,
            authority: self.sni.as_deref().map(str::as_bytes),
            request_bytes: self.request_bytes.get(),
            response_bytes: self.response_bytes.get(),
            rule: origin
                .and_then(RuleOrigin::source)
                .map(|(route, index)| LoggedRule {
                    route,
                    index,
                    matched: 0,
                }),
            backend: self.endpoint.as_ref().map(|(upstream, _)| &upstream.id),
            endpoint: self.endpoint.as_ref().map(|(_, address)| *address),
            retries: self.retries,
            reason: self.reason,
            ..LogRecord::default()
        });
    }
}

impl Drop for StreamReport {
    fn drop(&mut self) {
        if !self.finished {
            self.reason = Some(self.worker.termination_reason());
        }
        self.record();
    }
}
