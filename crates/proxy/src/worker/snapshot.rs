//! One version of everything that is decided by configuration, and what a worker has worked out of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use pointsman_binding::bound::{Backend, BackendId, Endpoints, Frontend, FrontendId};
use pointsman_resources::ObjectKey;
use pointsman_routing::{EndpointMap, Hit, PortTable, Tables};
use rustls::ServerConfig;

use super::Worker;
use super::rule_plan::RulePlan;
use crate::balance::Readiness;
use crate::metrics::ListenerSeries;
use crate::proxy::{SocketKey, SocketOwner};

/// What holds, for all workers.
#[derive(Debug, Default)]
pub(crate) struct ConfigSnapshot {
    /// Which rule takes which traffic.
    pub(crate) tables: Tables,
    /// What is listened on.
    pub(crate) sockets: Arc<BTreeMap<SocketKey, SocketOwner>>,
    /// The Pods, by their addresses.
    pub(crate) pods: Arc<HashMap<IpAddr, ObjectKey>>,
    /// Where calls to mesh parents go that no route governs.
    pub(crate) implicit: Arc<HashMap<BackendId, Arc<Backend>>>,
    /// TLS of the listeners that end it.
    pub(crate) tls: Arc<HashMap<FrontendId, Arc<ServerConfig>>>,
}

/// The endpoints of all backends. They change more often than everything else, so they are no part of a [`Version`].
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointSet {
    /// Endpoints by backend.
    pub(crate) bound: EndpointMap,
    /// The addresses of DNS names.
    pub(crate) names: Arc<HashMap<Arc<str>, Vec<IpAddr>>>,
}

impl EndpointSet {
    /// The addresses of a backend.
    pub(crate) fn addresses(&self, id: &BackendId) -> Vec<(SocketAddr, Readiness)> {
        let readiness = |terminating| match terminating {
            true => Readiness::Terminating,
            false => Readiness::Ready,
        };
        match self.bound.get(id).map(|endpoints| &**endpoints) {
            None => Vec::new(),
            Some(Endpoints::Addresses(all)) => {
                let all = all.iter();
                all.map(|endpoint| (endpoint.address, readiness(endpoint.terminating)))
                    .collect()
            }
            Some(Endpoints::Dns(name, port)) => {
                let known = self.names.get(name).into_iter().flatten();
                known
                    .map(|ip| (SocketAddr::new(*ip, *port), Readiness::Ready))
                    .collect()
            }
        }
    }
}

impl ConfigSnapshot {
    /// A backend, be it a rule's or a mesh parent's own.
    pub(crate) fn backend(&self, id: &BackendId) -> Option<&Arc<Backend>> {
        self.tables.backend(id).or_else(|| self.implicit.get(id))
    }
}

/// A version in a worker's hands, with what it has worked out so far.
#[derive(Debug, Default)]
pub(crate) struct WorkerSnapshot {
    /// The version.
    pub(crate) config: Arc<ConfigSnapshot>,
    ports: HashMap<SocketKey, Arc<PortTable>, foldhash::fast::RandomState>,
    /// Plans, by the addresses of rule and frontend. The plans keep both alive, so no address is used twice.
    plans: RefCell<HashMap<(usize, usize), Rc<RulePlan>, foldhash::fast::RandomState>>,
    /// Metrics of frontends, by the addresses of the frontends, which the version keeps alive.
    listeners: RefCell<HashMap<usize, Arc<ListenerSeries>, foldhash::fast::RandomState>>,
    /// Plans of mesh parents that no route governs.
    implicit: RefCell<HashMap<BackendId, Rc<RulePlan>>>,
}

impl WorkerSnapshot {
    /// Nothing is worked out yet but what listens where.
    pub(crate) fn new(config: Arc<ConfigSnapshot>) -> Self {
        let ports = config.sockets.iter().filter_map(|(key, owner)| {
            let (gateway, port) = owner.gateway_port()?;
            Some((*key, config.tables.port(gateway, port)?.clone()))
        });
        WorkerSnapshot {
            ports: ports.collect(),
            plans: RefCell::default(),
            listeners: RefCell::default(),
            implicit: RefCell::default(),
            config,
        }
    }

    /// The listeners of a Gateway's socket.
    pub(crate) fn port(&self, key: &SocketKey) -> Option<&Arc<PortTable>> {
        self.ports.get(key)
    }

    /// Returns the metrics of a frontend of this version.
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

    /// What a rule does at a frontend.
    pub(crate) fn plan(
        &self,
        worker: &Worker,
        frontend: &Arc<Frontend>,
        hit: &Hit<'_>,
    ) -> Rc<RulePlan> {
        let key = (Arc::as_ptr(hit.rule).addr(), Arc::as_ptr(frontend).addr());
        if let Some(plan) = self.plans.borrow().get(&key) {
            return plan.clone();
        }
        let plan = Rc::new(RulePlan::new(worker, &self.config, frontend, hit));
        self.plans.borrow_mut().insert(key, plan.clone());
        plan
    }

    /// What becomes of calls to a mesh parent that no route governs; none if it has no such port.
    pub(crate) fn implicit_plan(&self, worker: &Worker, id: &BackendId) -> Option<Rc<RulePlan>> {
        if let Some(plan) = self.implicit.borrow().get(id) {
            return Some(plan.clone());
        }
        let backend = self.config.backend(id)?;
        let plan = Rc::new(RulePlan::implicit(worker, backend));
        self.implicit.borrow_mut().insert(id.clone(), plan.clone());
        Some(plan)
    }
}
