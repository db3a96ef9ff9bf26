//! Selects the rule of a request: finds the table of its frontend, looks the request up, and chooses the error if nothing matches.

use std::rc::Rc;

use super::local_reply::LocalReply;
use super::report::ExchangeReport;
use super::request::NormalizedRequest;
use crate::downstream::{ClientConnection, Frontends};
use crate::worker::{RulePlan, Worker, WorkerSnapshot};

/// The selected rule.
pub(crate) struct Decision {
    pub(crate) plan: Rc<RulePlan>,
    /// Index of the match within the rule.
    pub(crate) matched: usize,
}

/// Selects the rule of a request. Returns the error reply if there is none.
pub(crate) fn decide(
    worker: &Worker,
    snapshot: &WorkerSnapshot,
    connection: &ClientConnection,
    request: &NormalizedRequest<'_, '_>,
    report: &mut ExchangeReport,
) -> Result<Decision, LocalReply> {
    let table = match Frontends::of(worker, snapshot, &connection.resolved) {
        Frontends::Listeners(port) => port
            .for_request(&connection.security, request.host)
            .map_err(LocalReply::from_fault)?,
        Frontends::Single(table) => table,
        Frontends::None => return Err(LocalReply::no_listener()),
    };
    let Some(hit) = table.lookup(request) else {
        let series = connection.socket.listener_series(worker, table.frontend());
        report.set_listener(table.frontend(), series);
        return Err(LocalReply::no_route());
    };
    Ok(Decision {
        plan: worker.plan(snapshot, table.frontend(), &hit),
        matched: hit.match_index,
    })
}
