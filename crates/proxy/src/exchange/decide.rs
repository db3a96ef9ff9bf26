//! Which rule takes a request. The tables decide; what is added here is which table, and what is said when none does.

use std::rc::Rc;
use std::sync::Arc;

use pointsman_binding::bound::Protocol;
use pointsman_routing::action::misdirected;
use pointsman_routing::{FrontendTable, PortTable};

use super::answer::Answer;
use super::report::Report;
use super::request::Seen;
use crate::downstream::{ClientConnection, Frontends, Secured};
use crate::worker::{RulePlan, Worker, WorkerSnapshot};

/// The rule that takes a request.
pub(crate) struct Decision {
    /// What it does.
    pub(crate) plan: Rc<RulePlan>,
    /// Which of its matches.
    pub(crate) matched: usize,
}

/// Finds the rule that takes a request, or the answer where none does.
pub(crate) fn decide(
    worker: &Worker,
    held: &WorkerSnapshot,
    passage: &ClientConnection,
    request: &Seen<'_, '_>,
    report: &mut Report,
) -> Result<Decision, Answer> {
    let table = match Frontends::of(held, &passage.resolved) {
        Frontends::Listeners(port) => listener(port, passage, request.host)?,
        Frontends::Single(table) => table,
        Frontends::Unrouted(id) => {
            let plan = held
                .implicit_plan(worker, &id)
                .ok_or_else(Answer::no_listener)?;
            return Ok(Decision { plan, matched: 0 });
        }
        Frontends::None => return Err(Answer::no_listener()),
    };
    let Some(hit) = table.lookup(request) else {
        let series = held.listener_series(worker, table.frontend());
        report.arrived(table.frontend(), series);
        return Err(Answer::no_route());
    };
    Ok(Decision {
        plan: held.plan(worker, table.frontend(), &hit),
        matched: hit.match_index,
    })
}

/// The listener of a Gateway's port that a request belongs to.
fn listener<'h>(
    port: &'h PortTable,
    passage: &ClientConnection,
    host: &str,
) -> Result<&'h Arc<FrontendTable>, Answer> {
    let table = port.listener(Some(host));
    let is_plain = |table: &&Arc<FrontendTable>, of_mesh: bool| {
        let frontend = table.frontend();
        frontend.protocol == Protocol::Http && frontend.cross_mesh == of_mesh
    };
    let is_open = |table: &&Arc<FrontendTable>| table.closed().is_none();
    let secured = match &passage.secured {
        Secured::Listener(listener) => listener,
        // What a connection has shown when it was made counts, whatever the listener has become since.
        open_or_mesh => {
            let of_mesh = matches!(open_or_mesh, Secured::Mesh);
            let table = table.filter(|table| is_plain(table, of_mesh));
            let table = table.ok_or_else(Answer::no_listener)?;
            return Some(table).filter(is_open).ok_or_else(Answer::closed);
        }
    };
    // One that can't serve any more has no requests on new connections either: the client is to make one.
    table
        .filter(|table| table.frontend().id == *secured)
        .filter(is_open)
        .ok_or_else(|| Answer::fault(misdirected(secured)))
}
