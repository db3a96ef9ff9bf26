//! A client's stream of bytes: where it goes is decided once, by the name that was asked for, if any; then bytes go both ways.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use pointsman_binding::bound::{Fault, FaultReason, FrontendId};

use super::course::{Course, fault};
use super::report::Report;
use crate::downstream::ClientConnection;
use crate::io::relay::{RelayEnd, RelayError, RelayPools, RelayProgress, relay};
use crate::upstream::SelectedEndpoint;
use crate::upstream::connect::{self, ConnectError};
use crate::upstream::http1::ConnectionGuard;
use crate::worker::{RulePlan, UpstreamFile, Worker};

/// Endpoints that are tried before a stream is given up.
const TRIES: usize = 3;

/// How a stream came.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// What is spoken: `TCP` or `TLS`.
    pub(crate) spoken: &'static str,
    /// The name that was asked for.
    pub(crate) name: Option<String>,
    /// The listener that the name has chosen; none where there is but one.
    pub(crate) listener: Option<FrontendId>,
}

/// Carries a stream until it ends. One that can't go anywhere is closed.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    passage: ClientConnection,
    near: RelayEnd,
    arrival: Arrival,
) {
    let Arrival {
        spoken,
        name,
        listener,
    } = arrival;
    let held = worker.pin_snapshot();
    let course = Course::of_stream(
        &worker,
        &held,
        &passage.resolved,
        listener.as_ref(),
        name.as_deref(),
    );
    drop(held);
    let mut report = Report::new(&worker, passage.resolved.client, spoken, name);
    report.listener(course.listener);
    let moved = RelayProgress::new();
    match begin(&worker, course.plan, &mut report).await {
        Ok((pick, far)) => {
            let carried = carry(&worker, near, far, &pick, &moved, &report).await;
            if let Err(error) = carried {
                report.cut(match error {
                    RelayError::Downstream(_) => "ClientGone",
                    RelayError::Upstream(_) => "BackendGone",
                    RelayError::Idle => "Idle",
                });
            }
        }
        Err(fault) => {
            report.refused(&fault);
            near.close(false);
        }
    }
    report.end();
}

async fn begin(
    worker: &Worker,
    plan: Result<Rc<RulePlan>, Fault>,
    report: &mut Report,
) -> Result<Connected, Fault> {
    let plan = plan?;
    report.decided(&plan);
    match &plan.fault {
        Some(fault) => Err(fault.clone()),
        None => connect(worker, &plan, report).await,
    }
}

/// A chosen endpoint, the connection to it, and its file.
type Connected = (SelectedEndpoint, (RelayEnd, UpstreamFile));

/// A connection to an endpoint of the backend whose turn it is; another one is tried when that fails.
async fn connect(
    worker: &Worker,
    plan: &RulePlan,
    report: &mut Report,
) -> Result<Connected, Fault> {
    let (_, target) = plan.select_backend()?;
    let upstream = target.upstream.as_ref().map_err(Clone::clone)?;
    let mut tried: Vec<SocketAddr> = Vec::new();
    let file = UpstreamFile::new(worker);
    loop {
        let Some(mut pick) = upstream.select(worker, &tried, Instant::now()) else {
            return Err(fault(503, FaultReason::NoEndpoints, "no ready endpoint"));
        };
        report.endpoint(upstream, pick.address);
        let error = match connect::byte_stream(worker, &pick).await {
            Ok(halves) => {
                upstream.series.latency.observe(pick.record_connect());
                return Ok((pick, (RelayEnd::new(halves), file)));
            }
            // Settings that can't be used are no endpoint's fault.
            Err(ConnectError::Fault(fault)) => return Err(fault),
            Err(error) => error,
        };
        tracing::debug!(endpoint = %pick.address, %error, "no connection");
        pick.record_failure();
        tried.push(pick.address);
        if tried.len() == TRIES {
            return Err(fault(503, error.fault_reason(), &error.to_string()));
        }
    }
}

async fn carry(
    worker: &Worker,
    near: RelayEnd,
    (far, file): (RelayEnd, UpstreamFile),
    pick: &SelectedEndpoint,
    moved: &RelayProgress,
    report: &Report,
) -> Result<(), RelayError> {
    let _counted = ConnectionGuard::new(pick.upstream(), file);
    let tools = RelayPools {
        buffers: &worker.buffers,
        pipes: &worker.pipes,
    };
    let idle = worker.limits().stream_idle_time;
    let heard = |up, down| report.moved(up, down);
    relay(tools, idle, near, far, moved, heard).await
}
