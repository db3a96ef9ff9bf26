//! Where streams and datagrams go: the tables decide, by the listener and the name asked for.

use std::rc::Rc;
use std::sync::Arc;

use pointsman_binding::bound::{BackendId, Fault, FaultReason, FrontendId, Scope};
use pointsman_routing::FrontendTable;

use crate::downstream::{Frontends, ResolvedConnection};
use crate::metrics::ListenerSeries;
use crate::worker::{RulePlan, Worker, WorkerSnapshot};

/// What is to be done with a stream or a session.
#[derive(Debug)]
pub(crate) struct Course {
    /// Where it arrived, if that is anywhere.
    pub(crate) listener: Option<(FrontendId, Arc<ListenerSeries>)>,
    /// What is done, or why nothing is.
    pub(crate) plan: Result<Rc<RulePlan>, Fault>,
}

impl Course {
    /// Finds the route of a stream, with the listener that its SNI has selected (else there is but one) and the name that it asked for.
    pub(crate) fn of_stream(
        worker: &Worker,
        held: &WorkerSnapshot,
        connection: &ResolvedConnection,
        listener: Option<&FrontendId>,
        name: Option<&str>,
    ) -> Self {
        let table = match (Frontends::of(held, connection), listener) {
            (Frontends::Single(table), _) => Some(table),
            (Frontends::Unrouted(id), _) => return Course::unrouted(worker, held, id),
            (_, Some(id)) => held.config.tables.frontend(id),
            (Frontends::Listeners(port), None) => port.listener(None),
            (Frontends::None, None) => None,
        };
        Course::by(worker, held, table, name)
    }

    /// Finds the route of a client's datagrams.
    pub(crate) fn of_datagrams(
        worker: &Worker,
        held: &WorkerSnapshot,
        connection: &ResolvedConnection,
    ) -> Self {
        Course::of_stream(worker, held, connection, None, None)
    }

    fn by(
        worker: &Worker,
        held: &WorkerSnapshot,
        table: Option<&Arc<FrontendTable>>,
        name: Option<&str>,
    ) -> Self {
        let Some(table) = table.filter(|table| table.closed().is_none()) else {
            return Course {
                listener: None,
                plan: Err(fault(404, FaultReason::NoListener, "no listener takes it")),
            };
        };
        let hit = table.lookup_stream(name);
        let hit = hit.ok_or_else(|| fault(404, FaultReason::NoRoute, "no rule takes it"));
        Course {
            listener: Some((
                table.frontend().id.clone(),
                held.listener_series(worker, table.frontend()),
            )),
            plan: hit.map(|hit| held.plan(worker, table.frontend(), &hit)),
        }
    }

    /// Traffic to a mesh destination without routes goes to its own endpoints, as if there were no mesh.
    fn unrouted(worker: &Worker, held: &WorkerSnapshot, id: BackendId) -> Self {
        let plan = held.implicit_plan(worker, &id);
        let listener = FrontendId::Mesh {
            parent: id.object,
            port: id.port,
            transport: id.transport,
            scope: Scope::Everyone,
        };
        let series = worker.metrics.listener(&listener);
        Course {
            plan: plan.ok_or_else(|| fault(404, FaultReason::NoListener, "no such port")),
            listener: Some((listener, series)),
        }
    }
}

/// Why something is not carried.
pub(crate) fn fault(status: u16, reason: FaultReason, message: &str) -> Fault {
    Fault {
        status,
        reason,
        message: message.to_owned(),
    }
}
