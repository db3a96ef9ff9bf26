//! Where streams and datagrams go: the tables decide, by the listener and the name asked for.

use std::rc::Rc;
use std::sync::Arc;

use pointsman_binding::bound::{BackendId, Fault, FrontendId, Scope, Transport};
use pointsman_routing::FrontendTable;

use super::passage::Passage;
use crate::proxy::Owner;
use crate::worker::{Held, Plan, Worker};

/// What is to be done with a stream or a session.
#[derive(Debug)]
pub(crate) struct Course {
    /// Where it arrived, if that is anywhere.
    pub(crate) listener: Option<FrontendId>,
    /// What is done, or why nothing is.
    pub(crate) plan: Result<Rc<Plan>, Fault>,
}

impl Course {
    /// That of a stream, with the listener that it has chosen (else there is but one) and the name that it asked for.
    pub(crate) fn of_stream(
        worker: &Worker,
        held: &Held,
        passage: &Passage,
        listener: Option<&FrontendId>,
        name: Option<&str>,
    ) -> Self {
        let key = &passage.socket.key;
        let table = match (&*passage.socket.owner(), listener) {
            (Owner::Mesh { parent, port }, _) => {
                match held.mesh(passage.client, parent, Transport::Tcp, *port) {
                    Some(table) => Some(table),
                    None => return Course::implicit(worker, held, parent, *port, Transport::Tcp),
                }
            }
            (Owner::Outbound(id), _) | (_, Some(id)) => held.version.tables.frontend(id),
            (_, None) => held.port(key).and_then(|port| port.listener(None)),
        };
        Course::by(worker, held, table, name)
    }

    /// That of datagrams of a client.
    pub(crate) fn of_datagrams(
        worker: &Worker,
        held: &Held,
        owner: &Owner,
        client: std::net::SocketAddr,
    ) -> Self {
        let table = match owner {
            Owner::Mesh { parent, port } => {
                match held.mesh(client, parent, Transport::Udp, *port) {
                    Some(table) => Some(table),
                    None => return Course::implicit(worker, held, parent, *port, Transport::Udp),
                }
            }
            Owner::Gateway { gateway, port } => held.version.tables.datagrams(gateway, *port),
            Owner::Outbound(id) => held.version.tables.frontend(id),
        };
        Course::by(worker, held, table, None)
    }

    fn by(
        worker: &Worker,
        held: &Held,
        table: Option<&Arc<FrontendTable>>,
        name: Option<&str>,
    ) -> Self {
        let Some(table) = table else {
            return Course {
                listener: None,
                plan: Err(fault(404, "NoListener", "no listener takes it")),
            };
        };
        let hit = table.lookup_stream(name);
        let hit = hit.ok_or_else(|| fault(404, "NoRoute", "no rule takes it"));
        Course {
            listener: Some(table.frontend().id.clone()),
            plan: hit.map(|hit| held.plan(worker, table.frontend(), &hit)),
        }
    }

    /// No route governs a port of a mesh parent: it is as if there were no mesh.
    fn implicit(
        worker: &Worker,
        held: &Held,
        parent: &pointsman_resources::ObjectKey,
        port: u16,
        transport: Transport,
    ) -> Self {
        let id = BackendId::new(parent.clone(), port, transport);
        let plan = held.implicit(worker, &id);
        Course {
            plan: plan.ok_or_else(|| fault(404, "NoListener", "no such port")),
            listener: Some(FrontendId::Mesh {
                parent: parent.clone(),
                port,
                transport,
                scope: Scope::Everyone,
            }),
        }
    }
}

/// Why something is not carried.
pub(crate) fn fault(status: u16, reason: &'static str, message: &str) -> Fault {
    Fault {
        status,
        reason,
        message: message.to_owned(),
    }
}
