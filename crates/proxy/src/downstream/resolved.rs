//! Source, destination and owner of a connection. They are resolved once, when the connection is accepted, and stay the same during its lifetime. Tables are
//! looked up in the current snapshot for each request, so that long-lived connections see changed configuration.

use std::cell::OnceCell;
use std::net::SocketAddr;

use pointsman_resources::ObjectKey;

use crate::socket_owner::SocketKey;
use crate::worker::{Socket, Worker};

/// Source, destination and frontend owner of a connection or UDP session.
#[derive(Debug)]
pub(crate) struct ResolvedConnection {
    /// Address of the client.
    pub(crate) client: SocketAddr,
    /// Workload that the client belongs to. Empty while the client's address belongs to no known workload: a new Pod may connect before its address is known.
    source: OnceCell<ObjectKey>,
    /// Address that the client connected to: that of the listening socket or, for captured traffic, the original destination.
    pub(crate) destination: SocketKey,
}

impl ResolvedConnection {
    /// Resolves a connection to a listening socket, whose owner is configured.
    pub(crate) fn accepted(worker: &Worker, socket: &Socket, client: SocketAddr) -> Self {
        let resolved = ResolvedConnection {
            client,
            source: OnceCell::new(),
            destination: socket.key,
        };
        resolved.source(worker);
        resolved
    }

    /// Returns the source workload. Once known it never changes, even if another workload gets the address.
    pub(crate) fn source(&self, worker: &Worker) -> Option<&ObjectKey> {
        if self.source.get().is_none()
            && let Some(pod) = worker.pod_at(self.client.ip())
        {
            return Some(self.source.get_or_init(|| pod));
        }
        self.source.get()
    }
}
