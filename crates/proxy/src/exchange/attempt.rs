//! One try: a connection, the request on its way, the response on its way back.
//!
//! The request's body goes while the response is awaited, and goes on while the response comes: neither waits for the other.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use pointsman_routing::filters::Filters;
use pointsman_routing::filters::cors::Verdict;

use super::answer::Answer;
use super::backend::{Backend, BackendError, Came, Outbound, Returning};
use super::client::{Client, Head};
use super::flow::{FlowError, Progress, carry};
use super::lines::Lines;
use super::report::Report;
use super::sink::Sink;
use super::source::{Source, SourceError};
use super::tap::Tap;
use super::tries::Tries;
use super::websocket;
use crate::http1::{self, Fault};
use crate::upstream::connect::ConnectError;
use crate::upstream::{Pick, Speech};
use crate::wire::alarm::{Alarm, Elapsed};

/// Why a try came to nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing of the request has left.
    Unsent { status: u16, reason: &'static str, message: String },
    /// The connection ended without an answer.
    Unanswered { reused: bool },
    /// What came is no response, or it broke off.
    Broken { reason: &'static str, message: String },
    /// It took too long: the whole request, or this try.
    TimedOut { whole: bool },
    /// The response has a status that is tried again.
    Status,
    /// The client's request is at fault.
    Client(Answer),
    /// The client is gone, or the response broke off after it had begun.
    Cut,
}

impl Failure {
    /// What the client is told.
    pub(crate) fn answer(self) -> Answer {
        match self {
            Failure::Unsent {
                status,
                reason,
                message,
            } => Answer::new(status, reason, message),
            Failure::Unanswered { .. } => {
                let message = "the backend ended the connection without an answer";
                Answer::new(502, "Unanswered", message)
            }
            Failure::Broken { reason, message } => Answer::new(502, reason, message),
            Failure::TimedOut { whole: true } => {
                Answer::new(504, "RequestTimeout", "the request took too long")
            }
            Failure::TimedOut { whole: false } => {
                Answer::new(504, "BackendTimeout", "the backend took too long")
            }
            Failure::Client(answer) => answer,
            Failure::Status | Failure::Cut => Answer::new(502, "Broken", "the response broke off"),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let (status, reason) = match &error {
            ConnectError::Io(_) => (503, "ConnectFailed"),
            ConnectError::Elapsed => (503, "ConnectTimeout"),
            ConnectError::Tls(_) => (502, "TlsFailed"),
            ConnectError::Protocol => (502, "ProtocolMismatch"),
            ConnectError::Fault(fault) => (fault.status, fault.reason),
        };
        Failure::Unsent {
            status,
            reason,
            message: error.to_string(),
        }
    }
}

/// One try.
pub(crate) struct Attempt<'a> {
    pub(crate) tries: &'a Tries<'a>,
    pub(crate) outbound: &'a Outbound<'a>,
    /// Of the rule and of the backend.
    pub(crate) filters: &'a [Option<&'a Filters>; 2],
    pub(crate) speech: Speech,
    /// A connection that has waited is not to be used.
    pub(crate) fresh: bool,
    /// When the whole request has to be over.
    pub(crate) deadline: Option<Instant>,
    /// Whether another try may follow because of the response's status.
    pub(crate) may_retry: bool,
}

impl Attempt<'_> {
    /// Carries it out. When it returns well, the client has its response.
    pub(crate) async fn run(
        &self,
        pick: &mut Pick,
        alarm: &mut Alarm,
        source: &mut Source<'_>,
        client: &mut Client<'_>,
        tap: &mut Tap,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let worker = self.tries.worker;
        let begun = Instant::now();
        let backend_timeout = self.tries.plan.backend_timeout;
        let try_deadline = backend_timeout.map(|time| begun + time);
        let deadline = [self.deadline, try_deadline].into_iter().flatten().min();
        let opening = Backend::open(worker, pick, self.speech, self.fresh);
        let opened = alarm.watch(|| deadline, opening).await;
        let mut backend = match opened {
            Ok(Ok(backend)) => backend,
            Ok(Err(error)) => {
                pick.failed();
                tracing::debug!(endpoint = %pick.address, %error, "no connection");
                return Err(error.into());
            }
            Err(Elapsed) => return Err(self.timed_out(pick)),
        };
        if self.tries.request.expects_continue && !client.begun() {
            let told = client.go_on().await;
            told.map_err(|_| Failure::Cut)?;
        }
        let reused = backend.is_reused();
        let (sink, mut returning) = backend
            .begin(worker, self.outbound)
            .map_err(|error| Failure::Client(Answer::new(400, "BadHead", error.to_string())))?;
        if self.outbound.websocket {
            return websocket::run(self, pick, alarm, source, client, sink, returning, report).await;
        }
        let reusable = self
            .exchange(
                pick, alarm, source, client, tap, report, sink, &mut returning, deadline, reused,
            )
            .await?;
        drop(returning);
        if reusable {
            backend.keep(worker, pick);
        }
        Ok(())
    }

    /// Both directions. Returns whether all of both was carried, so that the connection may carry another request.
    #[allow(clippy::too_many_arguments, reason = "the two sides of an exchange and who watches it")]
    async fn exchange(
        &self,
        pick: &mut Pick,
        alarm: &mut Alarm,
        source: &mut Source<'_>,
        client: &mut Client<'_>,
        tap: &mut Tap,
        report: &mut Report,
        mut sink: Sink<'_>,
        returning: &mut Returning<'_>,
        deadline: Option<Instant>,
        reused: bool,
    ) -> Result<bool, Failure> {
        let stall = self.tries.worker.limits().stall_time;
        let up = Progress::new();
        let down = Progress::new();
        let result;
        {
            let mut upload = pin!(send(source, &mut sink, tap, &up));
            let mut uploaded = false;
            let watched = || {
                let stalled = |progress: &Progress| progress.moved.get().map(|at| at + stall);
                [deadline, stalled(&up), stalled(&down)]
                    .into_iter()
                    .flatten()
                    .min()
            };
            // Until the response's head is there.
            loop {
                let head = {
                    let mut next = pin!(returning.next());
                    let both = poll_fn(|cx| {
                        if !uploaded && let Poll::Ready(sent) = upload.as_mut().poll(cx) {
                            uploaded = true;
                            // A backend that takes no more may have answered all the same.
                            if let Err(FlowError::Source(error)) = sent {
                                return Poll::Ready(Err(client_fault(error)));
                            }
                            up.moved.set(None);
                        }
                        next.as_mut().poll(cx).map(Ok)
                    });
                    alarm.watch(watched, both).await
                };
                match head {
                    Err(Elapsed) => return Err(self.elapsed(pick, &up, deadline)),
                    Ok(Err(failure)) => return Err(failure),
                    Ok(Ok(Err(error))) => {
                        return Err(broken(error, pick, reused));
                    }
                    Ok(Ok(Ok(true))) => break,
                    Ok(Ok(Ok(false))) => {
                        let came = returning.came();
                        // The client was told to go on already.
                        if came.status != 100 && client.interim(came.status, &came.lines).await.is_err() {
                            return Err(Failure::Cut);
                        }
                    }
                }
            }
            let came = returning.came();
            let took = pick.answered();
            report.came(came.status, took);
            if self.is_tried_again(came.status) && !client.begun() {
                return Err(Failure::Status);
            }
            let (framing, date) = (came.framing, self.tries.worker.date());
            let lines = self.returned(came.lines, &date);
            let begun = client.begin(&Head {
                status: came.status,
                reason: came.reason,
                lines: &lines,
                framing,
                content_length: came.content_length,
            });
            drop(lines);
            let client_sink = match begun {
                Ok(sink) => sink,
                Err(_) => {
                    return Err(Failure::Broken {
                        reason: "BadResponse",
                        message: "the response's head can't be passed on".to_owned(),
                    });
                }
            };
            report.begun_with(came_status(returning));
            let mut body = returning.body(self.tries.worker.limits().buffer_bytes);
            let download = async {
                match client_sink {
                    Some(mut sink) => carry(&mut body, &mut sink, None, &down).await,
                    None => Ok(()),
                }
            };
            let mut download = pin!(download);
            let both = poll_fn(|cx| {
                if !uploaded && let Poll::Ready(sent) = upload.as_mut().poll(cx) {
                    uploaded = true;
                    if let Err(FlowError::Source(error)) = sent {
                        return Poll::Ready(Err(client_fault(error)));
                    }
                    up.moved.set(None);
                }
                download.as_mut().poll(cx).map(Ok)
            });
            result = match alarm.watch(watched, both).await {
                Err(Elapsed) => Err("Stalled"),
                Ok(Err(_)) => Err("ClientGone"),
                Ok(Ok(Err(FlowError::Source(_)))) => Err("BackendBroke"),
                Ok(Ok(Err(FlowError::Sink(_)))) => Err("ClientGone"),
                Ok(Ok(Ok(()))) => Ok(uploaded),
            };
        }
        report.moved(up.bytes.get(), down.bytes.get());
        match result {
            Ok(uploaded) => {
                if client.flush().await.is_err() {
                    report.cut("ClientGone");
                    return Err(Failure::Cut);
                }
                Ok(uploaded)
            }
            Err(reason) => {
                report.cut(reason);
                Err(Failure::Cut)
            }
        }
    }

    /// The response's lines as they go to the client: CORS' own, then what filters say.
    fn returned<'l>(&'l self, mut lines: Lines<'l>, date: &'l [u8]) -> Lines<'l> {
        // RFC 9110 §6.6.1: who passes on a response without a date adds one.
        if lines.get("date").is_none() {
            lines.add(b"date", date);
        }
        if let Some(Verdict::Simple(cors)) = self.tries.verdict {
            for (name, value) in cors {
                match *name {
                    "vary" => lines.add(name.as_bytes(), value.as_bytes()),
                    name => lines.set(name.as_bytes(), value.as_bytes()),
                }
            }
        }
        for filters in self.filters.iter().flatten() {
            lines.edit(&filters.response);
        }
        lines
    }

    fn is_tried_again(&self, status: u16) -> bool {
        let retry = self.tries.plan.retry.as_ref();
        self.may_retry && retry.is_some_and(|retry| retry.codes.contains(&status))
    }

    fn timed_out(&self, pick: &mut Pick) -> Failure {
        pick.failed();
        pick.upstream().series.timeouts.increment();
        let whole = self.deadline.is_some_and(|end| end <= Instant::now());
        Failure::TimedOut { whole }
    }

    /// What it means that nothing moved in time.
    fn elapsed(&self, pick: &mut Pick, up: &Progress, deadline: Option<Instant>) -> Failure {
        if deadline.is_some_and(|end| end <= Instant::now()) {
            return self.timed_out(pick);
        }
        debug_assert!(up.moved.get().is_some());
        let message = "the request's body stood still";
        Failure::Client(Answer::new(408, "Stalled", message))
    }
}

fn came_status(returning: &Returning<'_>) -> u16 {
    returning.status()
}

/// Sends the request's body: what was kept of it by an earlier try, then the rest.
async fn send(
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    tap: &mut Tap,
    progress: &Progress,
) -> Result<(), FlowError> {
    if !tap.kept().is_empty() {
        let kept = tap.kept().to_vec();
        progress.add(kept.len());
        sink.bytes(&kept).await?;
    }
    match tap.ended() {
        Some(trailers) => sink.finish(trailers).await?,
        None => carry(source, sink, Some(tap), progress).await?,
    }
    progress.moved.set(None);
    Ok(())
}

/// What is wrong with a request whose body did not come to its end.
fn client_fault(error: SourceError) -> Failure {
    match error {
        SourceError::Fault(Fault::IncompleteBody) | SourceError::Io(_) => Failure::Cut,
        SourceError::Fault(fault) => {
            Failure::Client(Answer::refused(http1::Error::Client(fault)))
        }
    }
}

fn broken(error: BackendError, pick: &mut Pick, reused: bool) -> Failure {
    tracing::debug!(endpoint = %pick.address, %error, reused, "no response");
    match error {
        BackendError::Unanswered | BackendError::Io(_) if reused => {
            Failure::Unanswered { reused }
        }
        BackendError::Unanswered | BackendError::Io(_) => {
            pick.failed();
            Failure::Unanswered { reused }
        }
        BackendError::Fault(error) => {
            pick.failed();
            Failure::Broken {
                reason: error.reason(),
                message: error.to_string(),
            }
        }
    }
}
