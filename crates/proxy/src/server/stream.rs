//! TCP and TLS passthrough: selects a route by SNI, if there is one, connects to a backend, and relays bytes in both directions.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use pointsman_binding::bound::{Fault, FaultReason, FrontendId};

use super::report::StreamReport;
use super::stream_route::{StreamRoute, fault};
use crate::downstream::ClientConnection;
use crate::io::relay::{RelayEnd, RelayError, RelayPools, RelayProgress, relay};
use crate::upstream::SelectedEndpoint;
use crate::upstream::connect::{self, ConnectError};
use crate::upstream::http1::ConnectionGuard;
use crate::worker::{RulePlan, UpstreamFile, Worker};

/// Maximum number of endpoints that are tried.
const MAX_ATTEMPTS: usize = 3;

/// Properties of an accepted stream.
#[derive(Debug)]
pub(crate) struct AcceptedStream {
    /// `TCP` or `TLS`.
    pub(crate) protocol: &'static str,
    /// Server name in the ClientHello.
    pub(crate) sni: Option<String>,
    /// The listener selected by the SNI; `None` if the port has only one.
    pub(crate) listener: Option<FrontendId>,
}

/// Relays a stream until it ends. Closes it if there is no route or endpoint.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    connection: ClientConnection,
    downstream: RelayEnd,
    accepted: AcceptedStream,
) {
    let AcceptedStream {
        protocol,
        sni,
        listener,
    } = accepted;
    let snapshot = worker.pin_snapshot();
    let route = StreamRoute::of_stream(
        &worker,
        &snapshot,
        &connection.resolved,
        listener.as_ref(),
        sni.as_deref(),
    );
    drop(snapshot);
    let mut report = StreamReport::new(&worker, connection.resolved.client, protocol, sni);
    report.set_listener(route.listener);
    let progress = RelayProgress::new();
    match select_and_connect(&worker, &connection, route.plan, &mut report).await {
        Ok(UpstreamStreamConnection {
            endpoint,
            stream,
            file,
        }) => {
            let upstream = (stream, file);
            let relayed =
                relay_bytes(&worker, downstream, upstream, &endpoint, &progress, &report).await;
            if let Err(error) = relayed {
                report.set_end_reason(match error {
                    RelayError::Downstream(_) => "ClientGone",
                    RelayError::Upstream(_) => "BackendGone",
                    RelayError::Idle => "Idle",
                });
            }
        }
        Err(fault) => {
            report.set_fault(&fault);
            downstream.close(false);
        }
    }
    report.finish();
}

async fn select_and_connect(
    worker: &Worker,
    connection: &ClientConnection,
    plan: Result<Rc<RulePlan>, Fault>,
    report: &mut StreamReport,
) -> Result<UpstreamStreamConnection, Fault> {
    let plan = plan?;
    report.set_rule(&plan);
    connect(worker, connection, &plan, report).await
}

/// A connection to a selected endpoint.
struct UpstreamStreamConnection {
    endpoint: SelectedEndpoint,
    stream: RelayEnd,
    file: UpstreamFile,
}

/// Connects to an endpoint of the selected backend. Tries others on failure.
async fn connect(
    worker: &Worker,
    connection: &ClientConnection,
    plan: &RulePlan,
    report: &mut StreamReport,
) -> Result<UpstreamStreamConnection, Fault> {
    let (_, target) = plan.select_backend()?;
    let upstream = target.upstream.as_ref().map_err(Clone::clone)?;
    let mut tried: Vec<SocketAddr> = Vec::new();
    let file = UpstreamFile::new(worker);
    loop {
        let sockets = &connection.socket.upstream_sockets;
        let Some(mut endpoint) = upstream.select(worker, sockets, &tried, Instant::now()) else {
            return Err(fault(503, FaultReason::NoEndpoints, "no ready endpoint"));
        };
        report.set_endpoint(upstream, endpoint.address);
        let error = match connect::byte_stream(worker, &endpoint).await {
            Ok(halves) => {
                upstream.series.latency.observe(endpoint.record_connect());
                return Ok(UpstreamStreamConnection {
                    endpoint,
                    stream: RelayEnd::new(halves),
                    file,
                });
            }
            // Invalid settings are not a failure of the endpoint.
            Err(ConnectError::Fault(fault)) => return Err(fault),
            Err(error) => error,
        };
        tracing::debug!(endpoint = %endpoint.address, %error, "connection attempt failed");
        endpoint.record_failure();
        tried.push(endpoint.address);
        if tried.len() == MAX_ATTEMPTS {
            return Err(fault(503, error.fault_reason(), &error.to_string()));
        }
    }
}

async fn relay_bytes(
    worker: &Worker,
    downstream: RelayEnd,
    (upstream, file): (RelayEnd, UpstreamFile),
    endpoint: &SelectedEndpoint,
    progress: &RelayProgress,
    report: &StreamReport,
) -> Result<(), RelayError> {
    let _counted = ConnectionGuard::new(endpoint.upstream(), file);
    let pools = RelayPools {
        buffers: &worker.buffers,
        pipes: &worker.pipes,
    };
    let idle = worker.limits().stream_idle_time;
    let record = |up, down| report.add_bytes(up, down);
    relay(pools, idle, downstream, upstream, progress, record).await
}
