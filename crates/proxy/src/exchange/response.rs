//! The backend's response: awaited within its time limits, then passed on to the client.

use std::cell::Cell;
use std::pin::pin;
use std::time::{Duration, Instant};

use super::answer::Answer;
use super::attempt::{Attempt, Ended};
use super::backend::Returning;
use super::client::Client;
use super::failure::{Failure, Timeout, broken};
use super::flow::{FlowError, Progress, carry};
use super::report::{Report, Tally};
use super::upload::{SendBody, Upload};
use crate::http1::Framing;
use crate::io::deadline::{DeadlineTimer, Elapsed};
use crate::upstream::SelectedEndpoint;
use crate::worker::Worker;

/// Interval at which a waiting exchange checks whether its client is still connected.
const LOOK: Duration = Duration::from_secs(1);

/// Time limits of an attempt in progress.
pub(super) struct Timing<'t> {
    /// The end of the attempt or of the whole request, whichever comes first.
    deadline: Option<Instant>,
    stall_time: Duration,
    head_time: Option<Duration>,
    /// When the whole request had been sent; read only if `head_time` is set.
    sent: Cell<Option<Instant>>,
    up: &'t Progress,
    down: Progress,
}

impl<'t> Timing<'t> {
    pub(super) fn new(worker: &Worker, deadline: Option<Instant>, up: &'t Progress) -> Self {
        let limits = worker.limits();
        Timing {
            deadline,
            stall_time: limits.stall_time,
            head_time: limits.backend_head_time,
            sent: Cell::new(None),
            up,
            down: Progress::new(false),
        }
    }

    /// The earliest of the limits that hold throughout.
    fn end(&self) -> Option<Instant> {
        let stalled = |progress: &Progress| progress.moved().map(|at| at + self.stall_time);
        let all = [self.deadline, stalled(self.up), stalled(&self.down)];
        all.into_iter().flatten().min()
    }

    /// The end of `backend-head-time`, which begins when the whole request has been sent.
    fn head_end(&self) -> Option<Instant> {
        let time = self.head_time.filter(|_| self.up.has_ended())?;
        if self.sent.get().is_none() {
            self.sent.set(Some(Instant::now()));
        }
        self.sent.get().map(|sent| sent + time)
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(is_past)
    }

    /// A body of known length has no reason to stand still. One of unknown length may pause as long as it likes once the response has begun.
    pub(super) fn response_begun(&self, request: Framing, response: Framing) {
        if !matches!(request, Framing::Length(_)) {
            self.up.be_patient();
        }
        if !matches!(response, Framing::Length(_)) {
            self.down.be_patient();
        }
    }
}

fn is_past(end: Instant) -> bool {
    end <= Instant::now()
}

/// The response of an attempt, awaited and passed on while the request's body may still be on its way.
pub(super) struct Response<'r, 'a, 'c, 'b> {
    pub(super) attempt: &'r Attempt<'a>,
    pub(super) timing: Timing<'r>,
    pub(super) pick: &'r mut SelectedEndpoint,
    pub(super) client: &'r mut Client<'c>,
    pub(super) alarm: &'r mut DeadlineTimer,
    pub(super) report: &'r mut Report,
    pub(super) returning: &'r mut Returning<'b>,
}

impl Response<'_, '_, '_, '_> {
    /// Waits for the head of the final response; interim ones are passed on.
    pub(super) async fn head<F: SendBody>(
        &mut self,
        upload: &mut Upload<'_, F>,
        reused: bool,
    ) -> Result<(), Failure> {
        let mut look = self.pick.selected_at() + LOOK;
        loop {
            let head = {
                let timing = &self.timing;
                let next = pin!(self.returning.next());
                let end = || {
                    [timing.end(), timing.head_end()]
                        .into_iter()
                        .flatten()
                        .min()
                };
                let watched = || Some(end().map_or(look, |end| end.min(look)));
                let _tally = Tally::new(self.report, timing.up, &timing.down);
                self.alarm.run_until(watched, upload.beside(next)).await
            };
            match head {
                Err(Elapsed) => look = self.elapsed()?,
                Ok(Err(failure)) => return Err(failure),
                Ok(Ok(Err(error))) => return Err(broken(error, self.pick, reused)),
                Ok(Ok(Ok(true))) => return Ok(()),
                Ok(Ok(Ok(false))) => {
                    let came = self.returning.came();
                    // The client was told to go on already.
                    if came.status != 100 {
                        let told = self.client.interim(came.status, &came.lines).await;
                        told.map_err(|_| Failure::Cut)?;
                    }
                }
            }
        }
    }

    /// Finds out which limit was exceeded while the head was awaited. If none was, it was time to look whether the client is still there; returns when to
    /// look again.
    fn elapsed(&mut self) -> Result<Instant, Failure> {
        let timing = &self.timing;
        if timing.is_past_deadline() {
            return Err(self.attempt.deadline_passed(self.pick));
        }
        if timing.head_end().is_some_and(is_past) {
            return Err(Failure::timed_out(self.pick, Timeout::Head));
        }
        if timing.end().is_some_and(is_past) {
            return Err(self.stalled());
        }
        if self.client.is_gone() {
            self.report.cut("ClientGone");
            return Err(Failure::Cut);
        }
        Ok(Instant::now() + LOOK)
    }

    /// The failure of a request whose body stood still.
    fn stalled(&mut self) -> Failure {
        self.attempt.log_stall(self.pick);
        if self.timing.up.is_hungry() {
            let message = "the request's body stood still";
            return Failure::Client(Answer::new(408, "Stalled", message));
        }
        self.pick.record_failure();
        self.pick.upstream().series.timeouts.increment();
        let message = "the backend takes nothing of the request's body";
        Failure::Client(Answer::new(504, "BackendStalled", message))
    }

    /// Passes the response on to the client, unless it is one that is retried.
    pub(super) async fn pass_on<F: SendBody>(
        &mut self,
        upload: &mut Upload<'_, F>,
    ) -> Result<Ended, Failure> {
        let status = self.returning.came().status;
        self.report.came(status, self.pick.record_response());
        let timing = &self.timing;
        if self.attempt.is_tried_again(status, timing.up.bytes.get()) {
            return Err(Failure::Status);
        }
        let (attempt, worker) = (self.attempt, self.attempt.tries.worker);
        let begun = attempt.begin(self.returning, self.client, timing, upload.sent)?;
        let Some(mut sink) = begun else {
            return Ok(Ended::Switched);
        };
        let carried = {
            let mut body = self.returning.body(worker.limits().buffer_bytes);
            let download = pin!(async {
                match &mut sink {
                    Some(sink) => carry(worker, &mut body, sink, &timing.down).await,
                    None => Ok(()),
                }
            });
            let _tally = Tally::new(self.report, timing.up, &timing.down);
            let both = upload.beside(download);
            self.alarm.run_until(|| timing.end(), both).await
        };
        let retractable = sink.is_some_and(|sink| !sink.has_left());
        let failed = match carried {
            Ok(Ok(Ok(()))) => {
                let flushed = self.client.flush();
                match self.alarm.timeout(timing.stall_time, flushed).await {
                    Ok(Ok(())) => {
                        let uploaded = upload.sent;
                        return Ok(Ended::Carried { uploaded });
                    }
                    _ => None,
                }
            }
            failed => Some(failed),
        };
        Err(self.broke_off(failed, retractable))
    }

    /// The failure of a response that began and did not reach its end. One of which nothing has left is retracted.
    fn broke_off(&mut self, carried: Option<Carried>, retractable: bool) -> Failure {
        let cut = match carried {
            Some(Ok(Ok(Err(FlowError::Source(error))))) if retractable => {
                self.client.take_back();
                self.report.took_back(self.timing.down.bytes.get());
                return Failure::broken("BackendBroke", error.to_string());
            }
            Some(Ok(Ok(Err(FlowError::Source(_))))) => "BackendBroke",
            Some(Err(Elapsed)) if self.timing.is_past_deadline() => "Timeout",
            Some(Err(Elapsed)) => {
                self.attempt.log_stall(self.pick);
                "Stalled"
            }
            _ => "ClientGone",
        };
        self.report.cut(cut);
        Failure::Cut
    }
}

/// Outcome of carrying the response's body, with the request's beside it.
type Carried = Result<Result<Result<(), FlowError>, Failure>, Elapsed>;
