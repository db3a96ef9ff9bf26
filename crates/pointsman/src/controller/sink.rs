//! The sink of `controller`: proxies over the network.

use std::sync::Arc;

use pointsman_binding::{Change, Delta, EndpointPolicy, OwnServers};
use pointsman_control::Sink;
use pointsman_routing::Tables;
use pointsman_wire::server::{Encoded, Server, encode_all};

/// Hands changes to an xDS server. What proxies report arrives later and is taken by `retry`.
pub struct XdsSink {
    server: Arc<Server>,
    /// Changes that were staged and are not committed yet.
    staged: Vec<Encoded>,
    /// Policy for endpoints, without the servers of proxies.
    endpoints: Arc<EndpointPolicy>,
    /// Servers of the proxies themselves.
    own: OwnServers,
}

impl XdsSink {
    /// Creates a sink without staged changes.
    pub fn new(server: Arc<Server>, endpoints: Arc<EndpointPolicy>) -> Self {
        XdsSink {
            server,
            endpoints,
            own: OwnServers::default(),
            staged: Vec::new(),
        }
    }
}

impl Sink for XdsSink {
    fn stage(&mut self, delta: &Delta, _: &Tables) -> Vec<Change> {
        self.staged.extend(encode_all(delta));
        Vec::new()
    }

    fn commit(&mut self, _: &Tables) -> Vec<Change> {
        let staged = std::mem::take(&mut self.staged);
        if !staged.is_empty() {
            self.server.apply(&staged);
        }
        self.server.record_applied_reports();
        Vec::new()
    }

    fn retry(&mut self) -> Vec<Change> {
        let mut reports = self.server.take_reports();
        let own = self.server.proxies_own_servers();
        if own != self.own {
            let mut endpoints = EndpointPolicy::clone(&self.endpoints);
            endpoints.refuse_own(&own);
            reports.push(Change::EndpointPolicy(Arc::new(endpoints)));
            self.own = own;
        }
        reports
    }

    fn wants_retry(&self) -> bool {
        self.server.has_expiring_reports()
    }
}
