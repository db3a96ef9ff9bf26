//! The parts of a configuration that differ from the one in effect: an update costs what they concern.

use std::collections::BTreeSet;

use pointsman_binding::Delta;
use pointsman_binding::bound::{BackendId, FrontendId, SecretId};

/// The parts of a configuration that differ from the one in effect.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// Frontends.
    pub frontends: BTreeSet<FrontendId>,
    /// Certificates.
    pub secrets: BTreeSet<SecretId>,
    /// Backends with other endpoints.
    pub endpoints: BTreeSet<BackendId>,
    /// Whether anything but endpoints differs.
    pub beyond_endpoints: bool,
}

impl Changed {
    /// Adds the parts that a delta changes.
    pub fn record(&mut self, delta: &Delta) {
        let ids = delta.frontends.iter().map(|(id, _)| id.clone());
        self.frontends.extend(ids);
        self.secrets
            .extend(delta.secrets.iter().map(|(id, _)| id.clone()));
        self.endpoints
            .extend(delta.endpoints.iter().map(|(id, _)| id.clone()));
        self.beyond_endpoints |= delta.affects_more_than_endpoints();
    }
}
