//! Snapshots of the configuration, which all workers share.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pointsman_binding::bound::{BackendId, Endpoints, FrontendId};
use pointsman_routing::{EndpointMap, Tables};
use rustls::ServerConfig;

use super::socket_frontends::FrontendMap;
use super::topology;
use crate::balance::Readiness;
use crate::changed::Changed;
use crate::options::Location;
use crate::placement::PodMap;
use crate::socket_owner::{SocketKey, SocketOwner};

/// A configuration, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct ConfigSnapshot {
    /// Routing tables.
    pub(crate) tables: Tables,
    /// Sockets to listen on.
    pub(crate) sockets: Arc<BTreeMap<SocketKey, SocketOwner>>,
    /// Frontends of those sockets.
    pub(crate) frontends: FrontendMap,
    /// TLS configurations of listeners that terminate TLS.
    pub(crate) tls: Arc<HashMap<FrontendId, Arc<ServerConfig>>>,
}

/// Changes for the workers.
#[derive(Debug)]
pub(crate) struct Installation {
    /// The new configuration, if anything but endpoints and Pods changed.
    pub(crate) config: Option<Arc<ConfigSnapshot>>,
    /// Current endpoints.
    pub(crate) endpoints: Arc<EndpointSet>,
    /// Pods by address, if they changed.
    pub(crate) pods: Option<PodMap>,
    /// Difference of the configuration and of the endpoints.
    pub(crate) changed: Changed,
}

impl Installation {
    /// Returns whether nothing changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.config.is_none() && self.pods.is_none() && self.changed.endpoints.is_empty()
    }
}

/// Endpoints of all backends. They change more often than the rest, so they are not part of a [`ConfigSnapshot`].
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointSet {
    /// Endpoints by backend.
    pub(crate) bound: EndpointMap,
    /// Addresses of DNS names.
    pub(crate) names: Arc<HashMap<Arc<str>, Vec<IpAddr>>>,
}

impl EndpointSet {
    /// Addresses of a backend, with their readiness for requests from a location.
    pub(crate) fn addresses(
        &self,
        id: &BackendId,
        location: &Location,
    ) -> Vec<(SocketAddr, Readiness)> {
        match self.bound.get(id).map(|endpoints| &**endpoints) {
            None => Vec::new(),
            Some(Endpoints::Addresses(all)) => topology::readiness(all, location),
            Some(Endpoints::Dns(name, port)) => {
                let known = self.names.get(name).into_iter().flatten();
                known
                    .map(|ip| (SocketAddr::new(*ip, *port), Readiness::Ready))
                    .collect()
            }
        }
    }
}

/// A configuration as pinned by a worker's requests.
#[derive(Debug, Default)]
pub(crate) struct WorkerSnapshot {
    pub(crate) config: Arc<ConfigSnapshot>,
    /// Number of configurations that the worker has installed up to this one.
    pub(crate) version: u64,
}
