//! One try: a connection, the request on its way, the response on its way back.
//!
//! The request's body goes while the response is awaited, and goes on while the response comes: neither waits for the other.

use std::pin::pin;
use std::time::Instant;

use super::backend::{Backend, BeginError, Outbound, Returning};
use super::client::{Client, Head};
use super::failure::{Failure, Timeout};
use super::flow::Progress;
use super::lines::Lines;
use super::report::Report;
use super::request::Spoken;
use super::response::{Response, Timing};
use super::sink::Sink;
use super::source::Source;
use super::tap::Tap;
use super::tries::Tries;
use super::upload::{Upload, send};
use super::websocket;
use crate::io::deadline::{DeadlineTimer, Elapsed};
use crate::upstream::connect::ConnectError;
use crate::upstream::{SelectedEndpoint, UpstreamProtocol};

/// One try.
pub(crate) struct Attempt<'a> {
    pub(crate) tries: &'a Tries<'a>,
    pub(crate) outbound: &'a Outbound<'a>,
    pub(crate) speech: UpstreamProtocol,
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
    pub(crate) alarm: &'n mut DeadlineTimer,
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
pub(super) enum Ended {
    /// The response is with the client. Whether all of the request went.
    Carried { uploaded: bool },
    /// The connection is a WebSocket from here on.
    Switched,
}

impl Attempt<'_> {
    /// Carries it out. When it returns well, the client has its response.
    pub(crate) async fn run(
        &self,
        pick: &mut SelectedEndpoint,
        near: &mut Near<'_, '_, '_>,
    ) -> Result<(), Failure> {
        let worker = self.tries.worker;
        let backend_timeout = self.tries.plan.backend_timeout;
        let try_deadline = backend_timeout.map(|time| Instant::now() + time);
        let deadline = [self.deadline, try_deadline].into_iter().flatten().min();
        let opening = Backend::open(worker, pick, self.speech, self.fresh);
        let mut backend = match near.alarm.run_until(|| deadline, opening).await {
            Ok(Ok(backend)) => backend,
            Ok(Err(error)) => {
                pick.record_failure();
                match error {
                    ConnectError::Timeout => {
                        if let Some(count) = worker.overload.due("connect-time") {
                            tracing::info!(limit = "connect-time", endpoint = %pick.address, count, "no connection");
                        }
                    }
                    _ => tracing::debug!(endpoint = %pick.address, %error, "no connection"),
                }
                return Err(error.into());
            }
            Err(Elapsed) => return Err(self.deadline_passed(pick)),
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
        pick: &mut SelectedEndpoint,
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
        let sink = &mut far.sink;
        let (forward, websocket) = (self.tries.forward, self.outbound.websocket);
        let upload = pin!(send(worker, forward, source, sink, tap, up, websocket));
        let mut upload = Upload::new(upload);
        let mut response = Response {
            attempt: self,
            timing: Timing::new(worker, far.deadline, up),
            pick,
            client,
            alarm,
            report,
            returning: &mut far.returning,
        };
        response.head(&mut upload, far.reused).await?;
        response.pass_on(&mut upload).await
    }

    /// Begins the response to the client with the backend's head. Returns the sink for its body, if a body may follow; `None` if the connection is a
    /// WebSocket from here on.
    pub(super) fn begin<'k>(
        &self,
        returning: &Returning<'_>,
        client: &'k mut Client<'_>,
        timing: &Timing<'_>,
        uploaded: bool,
    ) -> Result<Option<Option<Sink<'k>>>, Failure> {
        let came = returning.came();
        let date = self.tries.worker.date();
        let lines = self.returned(came.lines, &date);
        let head = Head {
            status: came.status,
            reason: came.reason,
            lines: &lines,
            framing: came.framing,
            content_length: came.content_length,
        };
        if returning.is_switch() {
            let switched = client.switch(&head, self.outbound.lines.get("sec-websocket-key"));
            return switched.map(|()| None).map_err(|_| Failure::Cut);
        }
        // RFC 8441 §5: over HTTP/2 every 2xx would say that the WebSocket is open.
        let success = self.outbound.websocket && matches!(head.status, 200..300);
        if success && self.tries.request.spoken == Spoken::Http2 {
            return Err(BeginError::NoWebSocket.into());
        }
        timing.response_begun(self.outbound.framing, head.framing);
        // RFC 9112 §9.6: what is left of a request that nobody takes is not read, and the client is told so.
        let abandoned = !uploaded && returning.is_last();
        if abandoned || self.tries.passage.socket.closed.is_notified() {
            client.close();
        }
        client.begin(&head).map(Some).map_err(|_| {
            let message = "the response's head can't be passed on".to_owned();
            Failure::broken("BadResponse", message)
        })
    }

    /// The response's lines as they go to the client: CORS' own, then what filters say.
    fn returned<'l>(&'l self, mut lines: Lines<'l>, date: &'l [u8]) -> Lines<'l> {
        // RFC 9110 §6.6.1: who passes on a response without a date adds one.
        if lines.get("date").is_none() {
            lines.add(b"date", date);
        }
        self.tries.forward.edit_response(lines.fields_mut());
        lines
    }

    /// Whether a response of this status is not passed on: there is another try. Of the body so many bytes have gone; the tap, which is
    /// at work, keeps no more than its limit.
    pub(super) fn is_tried_again(&self, status: u16, sent: u64) -> bool {
        let retry = self.tries.plan.retry.as_ref();
        self.may_retry
            && sent <= self.tries.worker.limits().replay_bytes as u64
            && retry.is_some_and(|retry| retry.codes.contains(&status))
            && self.tries.spend()
    }

    /// The failure of an attempt that one of the route's timeouts ended.
    pub(super) fn deadline_passed(&self, pick: &mut SelectedEndpoint) -> Failure {
        match self.deadline.is_some_and(|end| end <= Instant::now()) {
            true => Failure::timed_out(pick, Timeout::Request),
            false => Failure::timed_out(pick, Timeout::Backend),
        }
    }

    pub(super) fn log_stall(&self, pick: &SelectedEndpoint) {
        let client = self.tries.passage.resolved.client;
        if let Some(count) = self.tries.worker.overload.due("stall-time") {
            tracing::info!(limit = "stall-time", %client, endpoint = %pick.address, count, "a body stood still");
        }
    }
}
