//! One try: a connection, the request on its way, the response on its way back.
//!
//! The request's body goes while the response is awaited, and goes on while the response comes: neither waits for the other.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pointsman_routing::filters::Filters;
use pointsman_routing::filters::cors::Verdict;

use super::answer::Answer;
use super::backend::{Backend, BeginError, Outbound, Returning};
use super::client::{Client, Head};
use super::failure::{Failure, broken, client_fault};
use super::flow::{FlowError, Progress, carry};
use super::lines::Lines;
use super::report::{Report, Tally};
use super::request::Spoken;
use super::sink::Sink;
use super::source::Source;
use super::tap::Tap;
use super::tries::Tries;
use super::websocket;
use crate::http1::Framing;
use crate::upstream::connect::ConnectError;
use crate::upstream::{Pick, Speech};
use crate::wire::alarm::{Alarm, Elapsed};
use crate::worker::Worker;

/// How often it is looked whether a client still waits for its response.
const LOOK: Duration = Duration::from_secs(1);

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

/// The client's side, and who watches the exchange.
pub(crate) struct Near<'n, 's, 'c> {
    pub(crate) source: &'n mut Source<'s>,
    pub(crate) client: &'n mut Client<'c>,
    pub(crate) tap: &'n mut Tap,
    pub(crate) alarm: &'n mut Alarm,
    pub(crate) report: &'n mut Report,
}

/// The backend's side.
pub(crate) struct Far<'f> {
    pub(crate) sink: Sink<'f>,
    pub(crate) returning: Returning<'f>,
    /// The connection has carried a request before.
    pub(crate) reused: bool,
    /// When this try has to be over.
    pub(crate) deadline: Option<Instant>,
}

/// How both directions ended.
enum Ended {
    /// The response is with the client. Whether all of the request went.
    Carried { uploaded: bool },
    /// The connection is a WebSocket from here on.
    Switched,
}

impl Attempt<'_> {
    /// Carries it out. When it returns well, the client has its response.
    pub(crate) async fn run(
        &self,
        pick: &mut Pick,
        near: &mut Near<'_, '_, '_>,
    ) -> Result<(), Failure> {
        let worker = self.tries.worker;
        let backend_timeout = self.tries.plan.backend_timeout;
        let try_deadline = backend_timeout.map(|time| Instant::now() + time);
        let deadline = [self.deadline, try_deadline].into_iter().flatten().min();
        let opening = Backend::open(worker, pick, self.speech, self.fresh);
        let mut backend = match near.alarm.watch(|| deadline, opening).await {
            Ok(Ok(backend)) => backend,
            Ok(Err(error)) => {
                pick.failed();
                match error {
                    ConnectError::Elapsed => {
                        if let Some(count) = worker.overload.due("connect-time") {
                            tracing::info!(limit = "connect-time", endpoint = %pick.address, count, "no connection");
                        }
                    }
                    _ => tracing::debug!(endpoint = %pick.address, %error, "no connection"),
                }
                return Err(error.into());
            }
            Err(Elapsed) => return Err(self.timed_out(pick)),
        };
        if self.tries.request.expects_continue && near.tap.kept().is_empty() {
            let told = near.client.go_on().await;
            told.map_err(|_| Failure::Cut)?;
        }
        let reused = backend.is_reused();
        let (sink, returning) = backend.begin(worker, self.outbound)?;
        let mut far = Far {
            sink,
            returning,
            reused,
            deadline,
        };
        // A call of gRPC may be silent from the beginning.
        let up = Progress::new(self.tries.request.is_grpc());
        let ended = self.exchange(pick, near, &mut far, &up).await;
        near.report.sent(up.bytes.get());
        match ended? {
            // Boxed: it is rare, and every other exchange would pay for its room.
            Ended::Switched => Box::pin(websocket::relay(worker, near, &mut far)).await,
            Ended::Carried { uploaded } => {
                let uploaded = uploaded && near.source.has_ended();
                drop(far);
                if uploaded {
                    backend.keep(worker, pick);
                }
            }
        }
        Ok(())
    }

    /// Both directions, until the response is with the client.
    async fn exchange(
        &self,
        pick: &mut Pick,
        near: &mut Near<'_, '_, '_>,
        far: &mut Far<'_>,
        up: &Progress,
    ) -> Result<Ended, Failure> {
        let Near {
            source,
            client,
            tap,
            alarm,
            report,
        } = near;
        let worker = self.tries.worker;
        let stall = worker.limits().stall_time;
        let deadline = far.deadline;
        let down = Progress::new(false);
        let watched = || {
            let stalled = |progress: &Progress| progress.moved().map(|at| at + stall);
            let all = [deadline, stalled(up), stalled(&down)];
            all.into_iter().flatten().min()
        };
        let mut upload = Upload {
            work: pin!(send(
                worker,
                source,
                &mut far.sink,
                tap,
                up,
                self.outbound.websocket
            )),
            done: false,
            sent: false,
        };
        let mut look = pick.begun() + LOOK;
        loop {
            let head = {
                let mut next = pin!(far.returning.next());
                let both = poll_fn(|cx| {
                    if let Err(failure) = upload.poll(cx) {
                        return Poll::Ready(Err(failure));
                    }
                    next.as_mut().poll(cx).map(Ok)
                });
                let watched = || Some(watched().map_or(look, |end| end.min(look)));
                let _tally = Tally::new(report, up, &down);
                alarm.watch(watched, both).await
            };
            match head {
                Err(Elapsed) if watched().is_none_or(|end| end > Instant::now()) => {
                    if client.is_gone() {
                        report.cut("ClientGone");
                        return Err(Failure::Cut);
                    }
                    look = Instant::now() + LOOK;
                }
                Err(Elapsed) => return Err(self.elapsed(pick, up, deadline)),
                Ok(Err(failure)) => return Err(failure),
                Ok(Ok(Err(error))) => return Err(broken(error, pick, far.reused)),
                Ok(Ok(Ok(true))) => break,
                Ok(Ok(Ok(false))) => {
                    let came = far.returning.came();
                    // The client was told to go on already.
                    if came.status != 100 {
                        let told = client.interim(came.status, &came.lines).await;
                        told.map_err(|_| Failure::Cut)?;
                    }
                }
            }
        }
        let came = far.returning.came();
        report.came(came.status, pick.answered());
        if self.is_tried_again(came.status, up.bytes.get()) {
            return Err(Failure::Status);
        }
        let date = worker.date();
        let lines = self.returned(came.lines, &date);
        let head = Head {
            status: came.status,
            reason: came.reason,
            lines: &lines,
            framing: came.framing,
            content_length: came.content_length,
        };
        if far.returning.is_switch() {
            let switched = client.switch(&head, self.outbound.lines.get("sec-websocket-key"));
            return switched.map(|()| Ended::Switched).map_err(|_| Failure::Cut);
        }
        // RFC 8441 §5: over HTTP/2 every 2xx would say that the WebSocket is open.
        let success = self.outbound.websocket && matches!(head.status, 200..300);
        if success && self.tries.request.spoken == Spoken::Http2 {
            return Err(BeginError::NoWebSocket.into());
        }
        // What has a length has no reason to stand still; what has none goes at its own pace once it is answered.
        if !matches!(self.outbound.framing, Framing::Length(_)) {
            up.be_patient();
        }
        if !matches!(head.framing, Framing::Length(_)) {
            down.be_patient();
        }
        // RFC 9112 §9.6: what is left of a request that nobody takes is not read, and the client is told so.
        let abandoned = !upload.sent && far.returning.is_last();
        if abandoned || self.tries.passage.socket.closed.has_rung() {
            client.close();
        }
        let Ok(mut client_sink) = client.begin(&head) else {
            let message = "the response's head can't be passed on".to_owned();
            return Err(Failure::broken("BadResponse", message));
        };
        drop(lines);
        let carried = {
            let mut body = far.returning.body(worker.limits().buffer_bytes);
            let mut download = pin!(async {
                match &mut client_sink {
                    Some(sink) => carry(worker, &mut body, sink, None, &down).await,
                    None => Ok(()),
                }
            });
            let both = poll_fn(|cx| {
                if let Err(failure) = upload.poll(cx) {
                    return Poll::Ready(Err(failure));
                }
                download.as_mut().poll(cx).map(Ok)
            });
            let _tally = Tally::new(report, up, &down);
            alarm.watch(watched, both).await
        };
        let uploaded = upload.sent;
        if let Ok(Ok(Err(FlowError::Source(error)))) = &carried
            && client_sink.is_some_and(|sink| !sink.has_left())
        {
            client.take_back();
            report.took_back(down.bytes.get());
            return Err(Failure::broken("BackendBroke", error.to_string()));
        }
        let cut = match carried {
            Ok(Ok(Ok(()))) => match alarm.within(stall, client.flush()).await {
                Ok(Ok(())) => return Ok(Ended::Carried { uploaded }),
                _ => "ClientGone",
            },
            Err(Elapsed) if deadline.is_some_and(|end| end <= Instant::now()) => "Timeout",
            Err(Elapsed) => {
                self.log_stall(pick);
                "Stalled"
            }
            Ok(Ok(Err(FlowError::Source(_)))) => "BackendBroke",
            Ok(Err(_)) | Ok(Ok(Err(FlowError::Sink(_)))) => "ClientGone",
        };
        report.cut(cut);
        Err(Failure::Cut)
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

    /// Whether a response of this status is not passed on: there is another try. Of the body so many bytes have gone; the tap, which is
    /// at work, keeps no more than its limit.
    fn is_tried_again(&self, status: u16, sent: u64) -> bool {
        let retry = self.tries.plan.retry.as_ref();
        self.may_retry
            && sent <= self.tries.worker.limits().replay_bytes as u64
            && retry.is_some_and(|retry| retry.codes.contains(&status))
            && self.tries.spend()
    }

    fn timed_out(&self, pick: &mut Pick) -> Failure {
        pick.failed();
        pick.upstream().series.timeouts.increment();
        let whole = self.deadline.is_some_and(|end| end <= Instant::now());
        Failure::TimedOut { whole }
    }

    fn log_stall(&self, pick: &Pick) {
        let client = self.tries.passage.resolved.client;
        if let Some(count) = self.tries.worker.overload.due("stall-time") {
            tracing::info!(limit = "stall-time", %client, endpoint = %pick.address, count, "a body stood still");
        }
    }

    /// What it means that nothing moved in time.
    fn elapsed(&self, pick: &mut Pick, up: &Progress, deadline: Option<Instant>) -> Failure {
        if deadline.is_some_and(|end| end <= Instant::now()) {
            return self.timed_out(pick);
        }
        self.log_stall(pick);
        if up.is_hungry() {
            let message = "the request's body stood still";
            return Failure::Client(Answer::new(408, "Stalled", message));
        }
        pick.failed();
        pick.upstream().series.timeouts.increment();
        let message = "the backend takes nothing of the request's body";
        Failure::Client(Answer::new(504, "BackendStalled", message))
    }
}

/// The request's body on its way.
struct Upload<'u, F> {
    work: Pin<&'u mut F>,
    /// It goes no further.
    done: bool,
    /// All of it went.
    sent: bool,
}

impl<F: Future<Output = Result<(), FlowError>>> Upload<'_, F> {
    /// Moves it on. Fails if the client is at fault; a backend that takes no more may have answered all the same.
    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        if self.done {
            return Ok(());
        }
        match self.work.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(FlowError::Source(error))) => Err(client_fault(error)),
            Poll::Ready(sent) => {
                self.done = true;
                self.sent = sent.is_ok();
                Ok(())
            }
        }
    }
}

/// Sends the request's body: what was kept of it by an earlier try, then the rest. What comes of a WebSocket waits until both sides have agreed; its head is sent.
async fn send(
    worker: &Worker,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    tap: &mut Tap,
    progress: &Progress,
    websocket: bool,
) -> Result<(), FlowError> {
    let sent = async {
        if websocket {
            return Ok(sink.flush().await?);
        }
        // A piece that was kept and not sent by a try that was given up: it is not to be sent twice.
        if tap.is_passing() {
            source.advance();
            tap.passed();
        }
        if !tap.kept().is_empty() {
            let kept = tap.kept().to_vec();
            progress.add(kept.len());
            sink.bytes(&kept).await?;
        }
        match tap.ended() {
            Some(trailers) => Ok(sink.finish(trailers).await?),
            None => carry(worker, source, sink, Some(tap), progress).await,
        }
    }
    .await;
    progress.end();
    sent
}
