//! The backend's response: awaited within its time limits, then passed on to the client.

use std::cell::Cell;
use std::pin::pin;
use std::time::{Duration, Instant};

use super::attempt::{Attempt, AttemptOutcome};
use super::backend::UpstreamResponse;
use super::copy::{CopyError, Progress, copy_body};
use super::failure::{Failure, Timeout, response_failure};
use super::local_reply::LocalReply;
use super::report::{ByteCountGuard, ExchangeReport};
use super::response_writer::ResponseWriter;
use super::upload::{SendBody, Upload};
use crate::http1::Framing;
use crate::io::deadline::{DeadlineTimer, Elapsed};
use crate::upstream::SelectedEndpoint;
use crate::worker::Worker;

/// Interval between checks that the client is still connected while its response is awaited.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time limits of an attempt in progress.
pub(super) struct AttemptTimeouts<'t> {
    /// The end of the attempt or of the whole request, whichever comes first.
    deadline: Option<Instant>,
    stall_time: Duration,
    head_time: Option<Duration>,
    /// Time when the request was completely sent; set only if there is a `head_time`.
    sent: Cell<Option<Instant>>,
    up: &'t Progress,
    down: Progress,
}

impl<'t> AttemptTimeouts<'t> {
    pub(super) fn new(worker: &Worker, deadline: Option<Instant>, up: &'t Progress) -> Self {
        let limits = worker.limits();
        AttemptTimeouts {
            deadline,
            stall_time: limits.stall_time,
            head_time: limits.backend_head_time,
            sent: Cell::new(None),
            up,
            down: Progress::new(false),
        }
    }

    /// Returns the earliest of the time limits that apply throughout.
    fn next_timeout(&self) -> Option<Instant> {
        let stalled = |progress: &Progress| progress.stall_start().map(|at| at + self.stall_time);
        let all = [self.deadline, stalled(self.up), stalled(&self.down)];
        all.into_iter().flatten().min()
    }

    /// Returns the end of `backend-head-time`, which starts when the request has been completely sent.
    fn head_deadline(&self) -> Option<Instant> {
        let time = self.head_time.filter(|_| self.up.has_ended())?;
        if self.sent.get().is_none() {
            self.sent.set(Some(Instant::now()));
        }
        self.sent.get().map(|sent| sent + time)
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(is_past)
    }

    /// Disables the stall timeout for bodies of unknown length, which may be streams with pauses. Called when the response starts.
    pub(super) fn response_started(&self, request: Framing, response: Framing) {
        if !matches!(request, Framing::Length(_)) {
            self.up.allow_idle();
        }
        if !matches!(response, Framing::Length(_)) {
            self.down.allow_idle();
        }
    }
}

fn is_past(end: Instant) -> bool {
    end <= Instant::now()
}

/// Waits for the response of an attempt and forwards it, while the request's body may still be in transfer.
pub(super) struct ResponseForwarder<'r, 'a, 'c, 'b> {
    pub(super) attempt: &'r Attempt<'a>,
    pub(super) timeouts: AttemptTimeouts<'r>,
    pub(super) endpoint: &'r mut SelectedEndpoint,
    pub(super) client: &'r mut ResponseWriter<'c>,
    pub(super) timer: &'r mut DeadlineTimer,
    pub(super) report: &'r mut ExchangeReport,
    pub(super) response: &'r mut UpstreamResponse<'b>,
}

impl ResponseForwarder<'_, '_, '_, '_> {
    /// Waits for the head of the final response and forwards interim ones.
    pub(super) async fn await_head<F: SendBody>(
        &mut self,
        upload: &mut Upload<'_, F>,
        reused: bool,
    ) -> Result<(), Failure> {
        let mut next_check = self.endpoint.selected_at() + CLIENT_CHECK_INTERVAL;
        loop {
            let head = {
                let timeouts = &self.timeouts;
                let next = pin!(self.response.next_head());
                let end = || {
                    [timeouts.next_timeout(), timeouts.head_deadline()]
                        .into_iter()
                        .flatten()
                        .min()
                };
                let deadline = || Some(end().map_or(next_check, |end| end.min(next_check)));
                let _guard = ByteCountGuard::new(self.report, timeouts.up, &timeouts.down);
                self.timer
                    .run_until(deadline, upload.run_alongside(next))
                    .await
            };
            match head {
                Err(Elapsed) => next_check = self.elapsed()?,
                Ok(Err(failure)) => return Err(failure),
                Ok(Ok(Err(error))) => return Err(response_failure(error, self.endpoint, reused)),
                Ok(Ok(Ok(true))) => return Ok(()),
                Ok(Ok(Ok(false))) => {
                    let head = self.response.head();
                    // 100 (Continue) was already sent to the client.
                    if head.status != 100 {
                        let sent = self.client.interim(head.status, &head.headers).await;
                        sent.map_err(|_| Failure::Aborted)?;
                    }
                }
            }
        }
    }

    /// Returns the failure for the time limit that was exceeded. If none was, checks that the client is still connected and returns the time of the next check.
    fn elapsed(&mut self) -> Result<Instant, Failure> {
        let timeouts = &self.timeouts;
        if timeouts.is_past_deadline() {
            return Err(self.attempt.deadline_passed(self.endpoint));
        }
        if timeouts.head_deadline().is_some_and(is_past) {
            return Err(Failure::timed_out(self.endpoint, Timeout::Head));
        }
        if timeouts.next_timeout().is_some_and(is_past) {
            return Err(self.stalled());
        }
        if self.client.is_disconnected() {
            self.report.abort("ClientGone");
            return Err(Failure::Aborted);
        }
        Ok(Instant::now() + CLIENT_CHECK_INTERVAL)
    }

    /// Returns the failure of a request whose body made no progress.
    fn stalled(&mut self) -> Failure {
        self.attempt.log_stall(self.endpoint);
        if self.timeouts.up.is_waiting_for_source() {
            let message = "the request's body made no progress";
            return Failure::Client(LocalReply::new(408, "Stalled", message));
        }
        self.endpoint.record_failure();
        self.endpoint.upstream().series.timeouts.increment();
        let message = "the backend does not read the request's body";
        Failure::Client(LocalReply::new(504, "BackendStalled", message))
    }

    /// Forwards the response to the client, unless its status is retried.
    pub(super) async fn forward<F: SendBody>(
        &mut self,
        upload: &mut Upload<'_, F>,
    ) -> Result<AttemptOutcome, Failure> {
        let status = self.response.status();
        self.report
            .record_response_head(status, self.endpoint.record_response());
        let timeouts = &self.timeouts;
        if self.attempt.retries_status(status, timeouts.up.bytes.get()) {
            return Err(Failure::RetryableStatus);
        }
        let (attempt, worker) = (self.attempt, self.attempt.retry_loop.worker);
        let started = attempt.begin(self.response, self.client, timeouts, upload.sent)?;
        let Some(mut sink) = started else {
            return Ok(AttemptOutcome::Upgraded);
        };
        let copied = {
            let mut body = self.response.body(worker.limits().buffer_bytes);
            let download = pin!(async {
                match &mut sink {
                    Some(sink) => copy_body(worker, &mut body, sink, &timeouts.down).await,
                    None => Ok(()),
                }
            });
            let _guard = ByteCountGuard::new(self.report, timeouts.up, &timeouts.down);
            let both = upload.run_alongside(download);
            self.timer.run_until(|| timeouts.next_timeout(), both).await
        };
        let retractable = sink.is_some_and(|sink| !sink.has_written());
        let failed = match copied {
            Ok(Ok(Ok(()))) => {
                let flushed = self.client.flush();
                match self.timer.timeout(timeouts.stall_time, flushed).await {
                    Ok(Ok(())) => {
                        let uploaded = upload.sent;
                        return Ok(AttemptOutcome::Completed { uploaded });
                    }
                    _ => None,
                }
            }
            failed => Some(failed),
        };
        Err(self.interrupted(failed, retractable))
    }

    /// Returns the failure of an interrupted response. If no part of the response has been sent yet, discards the buffered part, so that an error can be sent
    /// instead.
    fn interrupted(&mut self, result: Option<CopyResult>, retractable: bool) -> Failure {
        let reason = match result {
            Some(Ok(Ok(Err(CopyError::Source(error))))) if retractable => {
                self.client.retract();
                self.report
                    .retract_response_bytes(self.timeouts.down.bytes.get());
                return Failure::bad_response("BackendBroke", error.to_string());
            }
            Some(Ok(Ok(Err(CopyError::Source(_))))) => "BackendBroke",
            Some(Err(Elapsed)) if self.timeouts.is_past_deadline() => "Timeout",
            Some(Err(Elapsed)) => {
                self.attempt.log_stall(self.endpoint);
                "Stalled"
            }
            _ => "ClientGone",
        };
        self.report.abort(reason);
        Failure::Aborted
    }
}

/// Outcome of copying the response's body concurrently with the request's.
type CopyResult = Result<Result<Result<(), CopyError>, Failure>, Elapsed>;
