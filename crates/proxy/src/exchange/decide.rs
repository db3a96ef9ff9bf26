//! Selects the rule of a request: finds the table of its frontend, looks the request up, and chooses the error if nothing matches.

use std::rc::Rc;
use std::sync::Arc;

use pointsman_binding::bound::Protocol;
use pointsman_routing::action::misdirected;
use pointsman_routing::{FrontendTable, PortTable};

use super::local_reply::LocalReply;
use super::report::ExchangeReport;
use super::request::NormalizedRequest;
use crate::downstream::{ClientConnection, ConnectionSecurity, Frontends};
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
    let table = match Frontends::of(snapshot, &connection.resolved) {
        Frontends::Listeners(port) => listener(port, connection, request.host)?,
        Frontends::Single(table) => table,
        Frontends::None => return Err(LocalReply::no_listener()),
    };
    let Some(hit) = table.lookup(request) else {
        let series = snapshot.listener_series(worker, table.frontend());
        report.set_listener(table.frontend(), series);
        return Err(LocalReply::no_route());
    };
    Ok(Decision {
        plan: snapshot.plan(worker, table.frontend(), &hit),
        matched: hit.match_index,
    })
}

/// Returns the listener of a Gateway's port that serves a request.
fn listener<'h>(
    port: &'h PortTable,
    connection: &ClientConnection,
    host: &str,
) -> Result<&'h Arc<FrontendTable>, LocalReply> {
    let table = port.listener(Some(host));
    let serves_plaintext = |table: &&Arc<FrontendTable>, cross_mesh: bool| {
        let frontend = table.frontend();
        frontend.protocol == Protocol::Http && frontend.cross_mesh == cross_mesh
    };
    let is_open = |table: &&Arc<FrontendTable>| table.closed().is_none();
    let listener = match &connection.security {
        ConnectionSecurity::Tls(listener) => listener,
        // The security of the connection is fixed when it is made, even if the listener changes afterwards.
        security => {
            let cross_mesh = matches!(security, ConnectionSecurity::MeshMtls);
            let table = table.filter(|table| serves_plaintext(table, cross_mesh));
            let table = table.ok_or_else(LocalReply::no_listener)?;
            return Some(table).filter(is_open).ok_or_else(LocalReply::closed);
        }
    };
    // 421 makes the client open a new connection. A listener that can't serve rejects that connection during the handshake.
    table
        .filter(|table| table.frontend().id == *listener)
        .filter(is_open)
        .ok_or_else(|| LocalReply::from_fault(misdirected(listener)))
}
