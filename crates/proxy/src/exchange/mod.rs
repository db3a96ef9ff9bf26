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
mod tries;
mod upload;
mod websocket;

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use pointsman_binding::bound::Protocol;
use pointsman_routing::filters::Filters;
use pointsman_routing::filters::cors::{Asked, Verdict};
use pointsman_routing::filters::redirect::{Manner, Requested};
use pointsman_routing::normalize_path;

use crate::downstream::ClientConnection;
use crate::wire::alarm::Alarm;
use crate::worker::{Plan, Worker};
use answer::Answer;
use client::Client;
use decide::decide;
use report::Report;
use request::Request;
use source::Source;
use tries::Tries;

/// Carries out one request, whose first byte came at `begun`. Returns whether the connection may carry another one. What it works on is lent: what a future is
/// given has its room twice.
pub(crate) async fn run(
    worker: &Rc<Worker>,
    passage: &ClientConnection,
    alarm: &mut Alarm,
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
        match alarm.within(worker.limits().stall_time, given).await {
            Ok(Ok(bytes)) => report.gave(bytes),
            _ => report.cut("ClientGone"),
        }
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
            self.report.cut(self.worker.cut_because());
        }
        self.report.end(self.worker, self.passage, self.request);
    }
}

/// Finds what is to be done and does it; an answer that is to be made here comes back as an error.
async fn answer(
    worker: &Rc<Worker>,
    passage: &ClientConnection,
    alarm: &mut Alarm,
    request: &Request<'_>,
    source: &mut Source<'_>,
    client: &mut Client<'_>,
    report: &mut Report,
) -> Result<(), Answer> {
    let path = normalize_path(request.path)
        .map_err(|error| Answer::new(400, "BadPath", error.to_string()))?;
    let host = request.host();
    let held = worker.held();
    let decision = decide(worker, &held, passage, request, &host, &path, report)?;
    drop(held);
    let plan = decision.plan;
    report.decided(&plan, decision.matched);
    if let Some(fault) = &plan.fault {
        return Err(Answer::fault(fault));
    }
    let filters = plan.filters.as_deref().map(|filters| &filters.rule);
    let verdict = filters.and_then(|filters| cors(request, filters));
    if let Some(Verdict::Preflight(lines)) = &verdict {
        return Err(Answer::asked_for(204, owned(lines)));
    }
    if let Some(filters) = filters
        && let Some(answer) = redirect(
            passage,
            &plan,
            request,
            filters,
            verdict.as_ref(),
            &host,
            &path,
        )
    {
        return Err(answer);
    }
    if let Some(filters) = filters
        && let Some(direct) = &filters.direct
    {
        let mut answer = Answer::direct(direct, allowed(verdict.as_ref()));
        answer.edit(&filters.response);
        return Err(answer);
    }
    let (place, target) = plan.choose().map_err(|fault| Answer::fault(&fault))?;
    let upstream = target.upstream.as_ref().map_err(Answer::fault)?;
    Tries {
        worker,
        passage,
        plan: &plan,
        place,
        upstream,
        mirrors: &target.mirrors,
        request,
        path: &path,
        verdict: verdict.as_ref(),
    }
    .run(alarm, source, client, report)
    .await
}

/// What CORS makes of a request.
fn cors(request: &Request<'_>, filters: &Filters) -> Option<Verdict> {
    let text = |name: &str| {
        let value = request.lines.get(name)?;
        std::str::from_utf8(value).ok()
    };
    filters.cors.as_ref()?.judge(&Asked {
        method: request.method,
        origin: text("origin"),
        request_method: text("access-control-request-method"),
        request_headers: text("access-control-request-headers"),
    })
}

/// The answer of a rule that redirects.
fn redirect(
    passage: &ClientConnection,
    plan: &Plan,
    request: &Request<'_>,
    filters: &Filters,
    verdict: Option<&Verdict>,
    host: &str,
    path: &str,
) -> Option<Answer> {
    let redirect = filters.redirect.as_ref()?;
    let frontend = &plan.origin.as_ref()?.frontend;
    let written = request
        .authority
        .and_then(|written| written.rsplit_once(':'));
    let location = redirect.location(&Requested {
        manner: Manner::of(&frontend.id),
        scheme: match frontend.protocol {
            Protocol::Https => "https",
            _ => "http",
        },
        host,
        // The last part of an IPv6 address is no port: it has a bracket behind it.
        written_port: written.and_then(|(_, port)| port.parse().ok()),
        port: frontend.port,
        offset: passage
            .resolved
            .destination
            .address
            .port()
            .saturating_sub(frontend.port),
        path,
        query: request.query,
    });
    let mut lines = allowed(verdict);
    lines.push((Cow::Borrowed("location"), location));
    let mut answer = Answer::asked_for(redirect.status, lines);
    answer.edit(&filters.response);
    Some(answer)
}

/// What CORS adds to an answer that is made here.
fn allowed(verdict: Option<&Verdict>) -> Vec<(Cow<'static, str>, String)> {
    match verdict {
        Some(Verdict::Simple(lines)) => owned(lines),
        _ => Vec::new(),
    }
}

fn owned(lines: &[(&'static str, String)]) -> Vec<(Cow<'static, str>, String)> {
    lines
        .iter()
        .map(|(name, value)| (Cow::Borrowed(*name), value.clone()))
        .collect()
}
