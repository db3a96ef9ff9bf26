//! One request and its response: decided, changed by filters, sent, sent again if need be, answered.
//!
//! Both sides speak either version of HTTP and meet at one seam: a head ([`request::Request`], [`client::Head`]), a body that comes
//! ([`source::Source`]) and a body that goes ([`sink::Sink`]).

pub(crate) mod answer;
mod attempt;
pub(crate) mod backend;
pub(crate) mod client;
mod decide;
mod failure;
mod flow;
mod forwarded;
mod handshake;
pub(crate) mod http2;
pub(crate) mod lines;
mod mirror;
pub(crate) mod report;
pub(crate) mod request;
mod response;
pub(crate) mod sink;
pub(crate) mod source;
mod tap;
mod trailers;
mod tries;
mod upload;
mod websocket;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use pointsman_routing::action::Action;

use crate::downstream::ClientConnection;
use crate::io::deadline::DeadlineTimer;
use crate::worker::{RulePlan, Worker};
use answer::{Answer, give_reply};
use client::Client;
use decide::decide;
use report::Report;
use request::{Request, Seen};
use sink::SinkError;
use source::Source;
use tries::Tries;

/// Carries out one request, whose first byte came at `begun`. Returns whether the connection may carry another one. What it works on is lent: what a future is
/// given has its room twice.
pub(crate) async fn run(
    worker: &Rc<Worker>,
    passage: &ClientConnection,
    alarm: &mut DeadlineTimer,
    request: &Request<'_>,
    source: &mut Source<'_>,
    client: &mut Client<'_>,
    begun: Instant,
) -> bool {
    let mut telling = Telling {
        worker,
        passage,
        request,
        report: Report::new(begun),
        over: false,
    };
    let report = &mut telling.report;
    let gone = client.gone();
    let outcome = {
        let mut answered = pin!(answer(
            worker, passage, alarm, request, source, client, report,
        ));
        poll_fn(|cx| match (answered.as_mut().poll(cx), gone) {
            (Poll::Pending, Some(gone)) => gone.poll(cx).map(|()| None),
            (outcome, _) => outcome.map(Some),
        })
        .await
    };
    if outcome.is_none() {
        report.cut("ClientGone");
    }
    if let Some(Err(answer)) = outcome
        && !client.begun()
    {
        // What is left of the body is not read: the next request could not be found behind it.
        if !source.has_ended() {
            client.close();
        }
        report.answered_here(worker, passage, &answer, request.is_grpc());
        let date = worker.date();
        // Boxed: few requests are answered here, and all others would pay for its room.
        let given = Box::pin(answer.give(client, request.is_grpc(), &date));
        finish(worker, alarm, report, given).await;
    }
    let keep = client.keeps() && source.has_ended() && !report.is_cut();
    telling.over = true;
    keep
}

/// Tells of an exchange when it is dropped: also of one that does not come to its end, because the worker ends first.
struct Telling<'e> {
    worker: &'e Worker,
    passage: &'e ClientConnection,
    request: &'e Request<'e>,
    report: Report,
    over: bool,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.report.cut(self.worker.termination_reason());
        }
        self.report.end(self.worker, self.passage, self.request);
    }
}

/// Decides what is done with a request and does it. An error that the client is to be told of comes back.
async fn answer(
    worker: &Rc<Worker>,
    passage: &ClientConnection,
    alarm: &mut DeadlineTimer,
    request: &Request<'_>,
    source: &mut Source<'_>,
    client: &mut Client<'_>,
    report: &mut Report,
) -> Result<(), Answer> {
    let paths = worker.shared.options.paths;
    let path = paths
        .normalize(request.path)
        .map_err(|error| Answer::new(400, "BadPath", error.to_string()))?;
    let host = request.host();
    let seen = Seen {
        request,
        host: &host,
        path: &path,
    };
    let held = worker.pin_snapshot();
    let decision = decide(worker, &held, passage, &seen, report)?;
    drop(held);
    let plan = decision.plan;
    report.decided(&plan, decision.matched);
    let forward = match plan.action(&seen, port_offset(passage, &plan)) {
        Action::Fail(fault) => return Err(Answer::fault(fault)),
        Action::Reply(reply) => {
            // What is left of the body is not read: the next request could not be found behind it.
            if !source.has_ended() {
                client.close();
            }
            report.replied(reply.status);
            let date = worker.date();
            let given = Box::pin(give_reply(reply, client, &date));
            finish(worker, alarm, report, given).await;
            return Ok(());
        }
        Action::Forward(forward) => forward,
    };
    let target = plan.target(forward.backend);
    let upstream = target.upstream.as_ref().map_err(Answer::fault)?;
    Tries {
        worker,
        passage,
        plan: &plan,
        forward: &forward,
        upstream,
        mirrors: &target.mirrors,
        request,
        path: &path,
    }
    .run(alarm, source, client, report)
    .await
}

/// Waits until a response that is made here is sent.
async fn finish(
    worker: &Worker,
    alarm: &mut DeadlineTimer,
    report: &mut Report,
    given: impl Future<Output = Result<u64, SinkError>> + Unpin,
) {
    match alarm.timeout(worker.limits().stall_time, given).await {
        Ok(Ok(bytes)) => report.gave(bytes),
        _ => report.cut("ClientGone"),
    }
}

/// How much above its own port a listener is bound here: redirects name the port that clients reach.
fn port_offset(passage: &ClientConnection, plan: &RulePlan) -> u16 {
    let bound = passage.resolved.destination.address.port();
    let own = plan.origin.as_ref().map(|origin| origin.frontend.port);
    own.map_or(0, |own| bound.saturating_sub(own))
}
