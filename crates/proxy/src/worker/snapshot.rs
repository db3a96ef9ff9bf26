//! Snapshots of the configuration: one that all workers share, and for each worker one with its prepared plans.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use pointsman_binding::bound::{BackendId, Endpoints, Frontend, FrontendId};
use pointsman_routing::{EndpointMap, FrontendTable, LookupResult, PortTable, Tables};
use rustls::ServerConfig;

use super::Worker;
use super::rule_plan::RulePlan;
use super::topology;
use crate::balance::Readiness;
use crate::changed::Changed;
use crate::metrics::ListenerSeries;
use crate::options::Location;
use crate::placement::PodMap;
use crate::proxy::{SocketKey, SocketOwner};

/// Tables of mesh parents without routes, by the backend that has their own endpoints.
pub(crate) type UnroutedTables = HashMap<BackendId, Arc<FrontendTable>>;

/// A configuration, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct ConfigSnapshot {
    /// Routing tables.
    pub(crate) tables: Tables,
    /// Sockets to listen on.
    pub(crate) sockets: Arc<BTreeMap<SocketKey, SocketOwner>>,
    /// Tables of the mesh parents with a socket, for clients whose calls no route applies to.
    pub(crate) unrouted: Arc<UnroutedTables>,
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

/// A configuration as pinned by a worker's requests, with plans and metrics that are created on first use.
#[derive(Debug, Default)]
pub(crate) struct WorkerSnapshot {
    pub(crate) config: Arc<ConfigSnapshot>,
    ports: HashMap<SocketKey, Arc<PortTable>, foldhash::fast::RandomState>,
    /// Plans by the pointers to their rule and frontend. A plan keeps both alive, so a pointer is not reused.
    plans: RefCell<HashMap<(usize, usize), Rc<RulePlan>, foldhash::fast::RandomState>>,
    /// Metrics by the pointers to frontends, which the configuration keeps alive.
    listeners: RefCell<HashMap<usize, Arc<ListenerSeries>, foldhash::fast::RandomState>>,
}

impl WorkerSnapshot {
    /// Creates a snapshot without plans.
    pub(crate) fn new(config: Arc<ConfigSnapshot>) -> Self {
        let ports = config.sockets.iter().filter_map(|(key, owner)| {
            let (gateway, port) = owner.gateway_port()?;
            Some((*key, config.tables.port(gateway, port)?.clone()))
        });
        WorkerSnapshot {
            ports: ports.collect(),
            plans: RefCell::default(),
            listeners: RefCell::default(),
            config,
        }
    }

    /// Listeners of a Gateway's socket.
    pub(crate) fn port(&self, key: &SocketKey) -> Option<&Arc<PortTable>> {
        self.ports.get(key)
    }

    /// Metrics of a frontend of this configuration.
    pub(crate) fn listener_series(
        &self,
        worker: &Worker,
        frontend: &Arc<Frontend>,
    ) -> Arc<ListenerSeries> {
        let mut known = self.listeners.borrow_mut();
        let key = Arc::as_ptr(frontend).addr();
        let series = known
            .entry(key)
            .or_insert_with(|| worker.metrics.listener(&frontend.id));
        series.clone()
    }

    /// Returns the plan of a rule at a frontend.
    pub(crate) fn plan(
        &self,
        worker: &Worker,
        frontend: &Arc<Frontend>,
        hit: &LookupResult<'_>,
    ) -> Rc<RulePlan> {
        let key = (Arc::as_ptr(hit.rule).addr(), Arc::as_ptr(frontend).addr());
        if let Some(plan) = self.plans.borrow().get(&key) {
            return plan.clone();
        }
        let plan = Rc::new(RulePlan::new(worker, &self.config, frontend, hit));
        self.plans.borrow_mut().insert(key, plan.clone());
        plan
    }
}
