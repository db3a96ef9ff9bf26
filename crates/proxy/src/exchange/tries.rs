//! Sending a request, and sending it again: elsewhere if an endpoint can't be reached, and as often as its rule says.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::header::HOST;
use pointsman_routing::action::Forward;

use super::answer::Answer;
use super::attempt::{Attempt, Near};
use super::backend::Outbound;
use super::client::Client;
use super::failure::{Failure, Timeout};
use super::forwarded::Forwarded;
use super::lines::{Line, Lines};
use super::mirror::Copies;
use super::report::Report;
use super::request::Request;
use super::source::Source;
use super::tap::Tap;
use crate::downstream::ClientConnection;
use crate::io::deadline::DeadlineTimer;
use crate::upstream::Upstream;
use crate::worker::{MirrorTarget, RulePlan, Worker};

/// How often a request of which nothing has left is sent elsewhere, where its rule says nothing.
const UNSENT_TRIES: u32 = 3;

/// A request that is to be forwarded.
pub(crate) struct Tries<'t> {
    pub(crate) worker: &'t Rc<Worker>,
    pub(crate) passage: &'t ClientConnection,
    pub(crate) plan: &'t RulePlan,
    /// What is changed on the way.
    pub(crate) forward: &'t Forward<'t>,
    pub(crate) upstream: &'t Rc<Upstream>,
    pub(crate) mirrors: &'t [MirrorTarget],
    pub(crate) request: &'t Request<'t>,
    /// The path, normalised.
    pub(crate) path: &'t str,
}

impl Tries<'_> {
    /// Sends it until there is a response, or nothing more to try.
    pub(crate) async fn run(
        &self,
        alarm: &mut DeadlineTimer,
        source: &mut Source<'_>,
        client: &mut Client<'_>,
        report: &mut Report,
    ) -> Result<(), Answer> {
        let path = self.forward.path(self.path);
        let forwarded = Forwarded::new(self.worker, self.passage, self.request);
        if self.worker.log.is_some() {
            report.request_id(forwarded.id());
        }
        let outbound = self.outbound(&path, &forwarded);
        let grpc = self.plan.grpc || self.request.is_grpc();
        let speech = self.upstream.protocol(grpc);

        let copies = Copies::start(self.worker, self.mirrors, &outbound, grpc);
        let keeps = if self.request.framing.is_empty() {
            0
        } else {
            self.worker.limits().replay_bytes
        };
        let mut tap = Tap::new(keeps, copies);
        let deadline = self.plan.request_timeout.map(|time| report.begun() + time);
        let mut tried: Vec<SocketAddr> = Vec::new();
        let mut fresh = false;
        let mut begun = Instant::now();
        let now = self.worker.at(begun);
        self.upstream.retry_budget.borrow_mut().record_request(now);
        loop {
            let Some(mut pick) = self.upstream.select(self.worker, &tried, begun) else {
                let message = "no ready endpoint";
                return Err(Answer::new(503, "NoEndpoints", message));
            };
            report.endpoint(self.upstream, pick.address);
            let attempt = Attempt {
                tries: self,
                outbound: &outbound,
                speech,
                fresh,
                deadline,
                may_retry: tried.len() < self.attempts() as usize && tap.can_replay(),
            };
            let mut near = Near {
                source,
                client,
                tap: &mut tap,
                alarm,
                report,
            };
            let failure = match attempt.run(&mut pick, &mut near).await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let again = !client.begun()
                && tap.can_replay()
                && self.may_try_again(&failure, tried.len() as u32, fresh);
            if !again {
                return Err(failure.answer());
            }
            // What was kept of a connection may be stale throughout: the second try at the same endpoint makes a new one. It is no try of
            // the rule's.
            fresh = matches!(failure, Failure::Unanswered { reused: true }) && !fresh;
            if !fresh {
                tried.push(pick.address);
                self.pause(deadline).await;
            }
            begun = Instant::now();
            report.retried();
            self.upstream.series.retries.increment();
        }
    }

    /// The head as it goes out.
    fn outbound<'o>(&'o self, path: &'o str, forwarded: &'o Forwarded<'_>) -> Outbound<'o> {
        let request = self.request;
        let authority = request.authority.unwrap_or_default();
        let host = Line::known(&HOST, authority.as_bytes());
        let mut lines = Lines::new(std::iter::once(host).chain(request.lines.iter()));
        lines.remove("expect");
        forwarded.tell(&mut lines, self.passage, request.authority);
        self.forward.edit_request(lines.fields_mut());
        Outbound {
            method: request.method,
            scheme: self.passage.scheme(),
            path,
            query: request.query,
            lines,
            framing: request.framing,
            websocket: request.websocket,
            takes_trailers: request.takes_trailers,
            uri: request.uri,
        }
    }

    /// Tries beyond the first one that the rule allows.
    fn attempts(&self) -> u32 {
        self.plan.retry.as_ref().map_or(0, |retry| retry.attempts)
    }

    fn may_try_again(&self, failure: &Failure, tried: u32, fresh: bool) -> bool {
        match failure {
            // Nothing has left: nobody has seen the request.
            Failure::Unsent(_) => {
                let most = self.attempts().max(UNSENT_TRIES);
                tried < most && self.spend()
            }
            // The endpoint closed a connection that had waited. That is no failure of the endpoint; it is asked again, once.
            Failure::Unanswered { reused: true } if !fresh => self.request.is_idempotent(),
            Failure::TimedOut(Timeout::Request) => false,
            Failure::Unanswered { .. } | Failure::Broken(_) | Failure::TimedOut(_) => {
                self.request.is_idempotent() && tried < self.attempts() && self.spend()
            }
            // Its share of the budget is spent already.
            Failure::Status => true,
            _ => false,
        }
    }

    /// Whether the backend's budget allows another try.
    pub(crate) fn spend(&self) -> bool {
        self.upstream
            .retry_budget
            .borrow_mut()
            .try_retry(self.worker.now())
    }

    async fn pause(&self, deadline: Option<Instant>) {
        let backoff = self.plan.retry.as_ref().and_then(|retry| retry.backoff);
        let Some(backoff) = backoff.filter(|time| *time > Duration::ZERO) else {
            return;
        };
        let end = Instant::now() + backoff;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        tokio::time::sleep_until(end.into()).await;
    }
}
