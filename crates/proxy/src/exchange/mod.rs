//! Processing of one request: selects a rule, applies its filters, forwards the request with retries, and relays the response.
//! HTTP/1 and HTTP/2 share this code on both sides. The version is hidden behind heads ([`request::DownstreamRequest`], [`head::Head`]), received bodies
//! ([`source::Source`]) and sent bodies ([`sink::Sink`]).

mod attempt;
pub(crate) mod backend;
mod copy;
mod decide;
mod failure;
mod forwarded;
mod head;
pub(crate) mod headers;
pub(crate) mod http2;
pub(crate) mod local_reply;
mod mirror;
mod replay_buffer;
pub(crate) mod report;
pub(crate) mod request;
mod response;
pub(crate) mod response_writer;
mod retry_loop;
pub(crate) mod sink;
pub(crate) mod source;
mod trailers;
mod upload;
mod websocket;
mod websocket_key;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use pointsman_routing::action::Action;

use crate::downstream::ClientConnection;
use crate::io::deadline::DeadlineTimer;
use crate::worker::{RulePlan, Worker};
use decide::decide;
use local_reply::{LocalReply, send_reply};
use report::ExchangeReport;
use request::{DownstreamRequest, NormalizedRequest};
use response_writer::ResponseWriter;
use retry_loop::RetryLoop;
use sink::SinkError;
use source::Source;

/// Processes one request, whose first byte arrived at `started`. Returns the time of its end if the connection can be reused. Arguments are borrowed: a future
/// stores owned ones twice.
pub(crate) async fn run(
    worker: &Rc<Worker>,
    connection: &ClientConnection,
    timer: &mut DeadlineTimer,
    request: &DownstreamRequest<'_>,
    source: &mut Source<'_>,
    client: &mut ResponseWriter<'_>,
    started: Instant,
) -> Option<Instant> {
    let mut guard = ReportGuard {
        worker,
        connection,
        request,
        report: ExchangeReport::new(started),
        completed: false,
    };
    let report = &mut guard.report;
    let reset_watch = client.reset_watch();
    let outcome = {
        let mut processed = pin!(process(
            worker, connection, timer, request, source, client, report,
        ));
        poll_fn(|cx| match (processed.as_mut().poll(cx), reset_watch) {
            (Poll::Pending, Some(watch)) => watch.poll(cx).map(|()| None),
            (outcome, _) => outcome.map(Some),
        })
        .await
    };
    if outcome.is_none() {
        report.abort("ClientGone");
    }
    if let Some(Err(reply)) = outcome
        && !client.has_started()
    {
        // The rest of the body is not read, so the start of the next request is unknown.
        if !source.has_ended() {
            client.close_after_response();
        }
        report.record_local_reply(worker, connection, &reply, request.is_grpc());
        let date = worker.date();
        // Boxed: local replies are rare, and the future of every request would be larger.
        let sending = Box::pin(reply.send(client, request.is_grpc(), &date));
        await_local_reply(worker, timer, report, sending).await;
    }
    let keep = client.keeps_alive() && source.has_ended() && !report.is_aborted();
    let ended = report.end();
    guard.completed = true;
    keep.then_some(ended)
}

/// Records the exchange's access log entry and metrics on drop, also if the worker stops before the exchange completes.
struct ReportGuard<'e> {
    worker: &'e Worker,
    connection: &'e ClientConnection,
    request: &'e DownstreamRequest<'e>,
    report: ExchangeReport,
    completed: bool,
}

impl Drop for ReportGuard<'_> {
    fn drop(&mut self) {
        if !self.completed {
            self.report.abort(self.worker.termination_reason());
        }
        self.report
            .publish(self.worker, self.connection, self.request);
    }
}

/// Selects a rule and executes its action. Returns an error that has to be sent to the client.
async fn process(
    worker: &Rc<Worker>,
    connection: &ClientConnection,
    timer: &mut DeadlineTimer,
    request: &DownstreamRequest<'_>,
    source: &mut Source<'_>,
    client: &mut ResponseWriter<'_>,
    report: &mut ExchangeReport,
) -> Result<(), LocalReply> {
    let paths = worker.shared.options.paths;
    let path = paths
        .normalize(request.path)
        .map_err(|error| LocalReply::new(400, "BadPath", error.to_string()))?;
    let host = request.host();
    let normalized = NormalizedRequest {
        request,
        host: &host,
        path: &path,
    };
    let snapshot = worker.pin_snapshot();
    let decision = decide(worker, &snapshot, connection, &normalized, report)?;
    drop(snapshot);
    let plan = decision.plan;
    report.set_rule(&plan, decision.matched);
    let forward = match plan.action(&normalized, port_offset(worker, connection, &plan)) {
        Action::Fail(fault) => return Err(LocalReply::from_fault(fault)),
        Action::Reply(reply) => {
            // The rest of the body is not read, so the start of the next request is unknown.
            if !source.has_ended() {
                client.close_after_response();
            }
            report.record_filter_reply(reply.status);
            let date = worker.date();
            let sending = Box::pin(send_reply(reply, client, &date));
            await_local_reply(worker, timer, report, sending).await;
            return Ok(());
        }
        Action::Forward(forward) => forward,
    };
    let target = plan.target(forward.backend);
    let upstream = target.upstream.as_ref().map_err(LocalReply::from_fault)?;
    RetryLoop {
        worker,
        connection,
        plan: &plan,
        forward: &forward,
        upstream,
        mirrors: &target.mirrors,
        request,
        path: &path,
    }
    .run(timer, source, client, report)
    .await
}

/// Waits until a locally generated response has been sent.
async fn await_local_reply(
    worker: &Worker,
    timer: &mut DeadlineTimer,
    report: &mut ExchangeReport,
    sending: impl Future<Output = Result<u64, SinkError>> + Unpin,
) {
    match timer.timeout(worker.limits().stall_time, sending).await {
        Ok(Ok(bytes)) => report.set_local_reply_bytes(bytes),
        _ => report.abort("ClientGone"),
    }
}

/// Returns the difference between the port that the listener is bound to and the port in its specification. Redirects name the port that clients connect to.
fn port_offset(worker: &Worker, connection: &ClientConnection, plan: &RulePlan) -> u16 {
    let bound = connection.resolved.destination.address.port();
    let hidden = worker.shared.options.hidden_port_offset;
    visible_offset(bound, plan.origin.frontend.port, hidden)
}

/// Returns the offset that clients see, which is 0 if a load balancer translates ports.
fn visible_offset(bound: u16, own: u16, hidden: u16) -> u16 {
    match bound.saturating_sub(own) {
        offset if offset == hidden => 0,
        offset => offset,
    }
}

#[cfg(test)]
mod tests {
    use super::visible_offset;

    #[test]
    fn clients_see_an_offset_unless_a_load_balancer_translates_ports() {
        assert_eq!(visible_offset(9080, 80, 0), 9000);
        assert_eq!(visible_offset(64592, 80, 64512), 0);
        assert_eq!(visible_offset(8080, 8080, 64512), 0);
    }
}
