//! The difference between a configuration and the one in effect, so that an update costs only what it concerns.

use std::collections::BTreeSet;

use pointsman_binding::Delta;
use pointsman_binding::bound::{BackendId, FrontendId, SecretId};

/// The parts of a configuration that differ from the one in effect.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// Changed frontends.
    pub frontends: BTreeSet<FrontendId>,
    /// Changed certificates.
    pub secrets: BTreeSet<SecretId>,
    /// Backends whose settings changed.
    pub backends: BTreeSet<BackendId>,
    /// Backends whose endpoints changed.
    pub endpoints: BTreeSet<BackendId>,
    /// True if anything but endpoints changed in the tables. Changed workloads, Services and addresses of Gateways are compared by their result instead: the
    /// Pods and sockets of this machine.
    pub beyond_endpoints: bool,
}

impl Changed {
    /// Adds the changes of a delta.
    pub fn record(&mut self, delta: &Delta) {
        let ids = delta.frontends.iter().map(|(id, _)| id.clone());
        self.frontends.extend(ids);
        self.secrets
            .extend(delta.secrets.iter().map(|(id, _)| id.clone()));
        self.backends
            .extend(delta.backends.iter().map(|(id, _)| id.clone()));
        self.endpoints
            .extend(delta.endpoints.iter().map(|(id, _)| id.clone()));
        self.beyond_endpoints |= delta.affects_routing();
    }
}
