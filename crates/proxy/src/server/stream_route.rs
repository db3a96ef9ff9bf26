//! Route lookup for streams and datagrams, by listener and SNI.

use std::rc::Rc;
use std::sync::Arc;

use pointsman_binding::bound::{Fault, FaultReason, FrontendId};
use pointsman_routing::FrontendTable;

use crate::downstream::{Frontends, ResolvedConnection};
use crate::metrics::ListenerSeries;
use crate::worker::{RulePlan, Worker, WorkerSnapshot};

/// Result of the lookup for a stream or UDP session.
#[derive(Debug)]
pub(crate) struct StreamRoute {
    /// Listener of the stream, if there is one.
    pub(crate) listener: Option<(FrontendId, Arc<ListenerSeries>)>,
    /// The matched rule, or the fault if no rule matches.
    pub(crate) plan: Result<Rc<RulePlan>, Fault>,
}

impl StreamRoute {
    /// Looks up the route of a stream. `listener` is the one selected by the SNI, if the port has several.
    pub(crate) fn of_stream(
        worker: &Worker,
        snapshot: &WorkerSnapshot,
        connection: &ResolvedConnection,
        listener: Option<&FrontendId>,
        sni: Option<&str>,
    ) -> Self {
        let table = match (Frontends::of(worker, snapshot, connection), listener) {
            (Frontends::Single(table), _) => Some(table),
            (_, Some(id)) => snapshot.config.tables.frontend(id),
            (Frontends::Listeners(port), None) => port.listener(None),
            (Frontends::None, None) => None,
        };
        StreamRoute::look_up(worker, snapshot, table, sni)
    }

    /// Looks up the route of a client's datagrams.
    pub(crate) fn of_datagrams(
        worker: &Worker,
        snapshot: &WorkerSnapshot,
        connection: &ResolvedConnection,
    ) -> Self {
        StreamRoute::of_stream(worker, snapshot, connection, None, None)
    }

    fn look_up(
        worker: &Worker,
        snapshot: &WorkerSnapshot,
        table: Option<&Arc<FrontendTable>>,
        sni: Option<&str>,
    ) -> Self {
        let Some(table) = table.filter(|table| table.closed().is_none()) else {
            return StreamRoute {
                listener: None,
                plan: Err(fault(404, FaultReason::NoListener, "no listener matches")),
            };
        };
        let frontend = table.frontend();
        let hit = table.lookup_stream(sni);
        let plan = hit.map(|hit| worker.plan(snapshot, frontend, &hit));
        let series = match &plan {
            Some(plan) => plan.origin.listener.clone(),
            None => worker.metrics.listener(&frontend.id),
        };
        StreamRoute {
            listener: Some((frontend.id.clone(), series)),
            plan: plan.ok_or_else(|| fault(404, FaultReason::NoRoute, "no rule matches")),
        }
    }
}

/// Creates the fault of a stream or session that can't be forwarded.
pub(crate) fn fault(status: u16, reason: FaultReason, message: &str) -> Fault {
    Fault {
        status,
        reason,
        message: message.to_owned(),
    }
}
