//! Upstreams: the endpoints of a backend, load balancing, and connection pools. Each worker has its own.

pub(crate) mod connect;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod pool;
pub(crate) mod retry_budget;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_binding::bound::{Backend, BackendId, BackendProtocol, Fault, FaultReason, SecretId};

use crate::balance::{BalancerPolicy, EndpointHandle, LoadBalancer, RequestOutcome};
use crate::metrics::BackendSeries;
use crate::sockets::SocketFactory;
use crate::tls::{BackendConfig, backend_config};
use crate::worker::{EndpointSet, Worker};
use pool::ConnectionPool;
use retry_budget::RetryBudgetTracker;

/// A worker's view of a backend.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) id: BackendId,
    /// Client certificate of the Gateway, presented unless the backend's settings name one.
    certificate: Option<SecretId>,
    backend: RefCell<Arc<Backend>>,
    endpoints: RefCell<LoadBalancer<SocketAddr>>,
    /// Number of changes of the endpoints.
    endpoints_version: Cell<u64>,
    tls: RefCell<Option<Result<Rc<UpstreamTls>, Fault>>>,
    /// Incremented when the protocol or the TLS settings change. Connections of another version get no new requests.
    settings_version: Cell<u64>,
    /// Start of the worker, to which the load balancer's times are relative.
    epoch: Instant,
    /// Time of the last request.
    used: Cell<Instant>,
    /// Idle HTTP/1 connections.
    pub(crate) pool: ConnectionPool,
    /// HTTP/2 connections.
    pub(crate) http2: http2::Http2Pool,
    /// Limits retries to a share of the requests.
    pub(crate) retry_budget: RefCell<RetryBudgetTracker>,
    /// Metrics of the backend.
    pub(crate) series: Arc<BackendSeries>,
}

/// TLS configurations for HTTP/1, HTTP/2, and streams without ALPN.
#[derive(Debug)]
pub(crate) struct UpstreamTls {
    pub(crate) http1: BackendConfig,
    pub(crate) http2: BackendConfig,
    pub(crate) bytes: BackendConfig,
}

/// HTTP version for requests to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamProtocol {
    Http1,
    Http2,
}

impl Upstream {
    /// Creates the upstream of a backend. `certificate` is the client certificate of the Gateway.
    pub(crate) fn new(
        worker: &Worker,
        backend: Arc<Backend>,
        certificate: Option<SecretId>,
    ) -> Self {
        Upstream {
            id: backend.id.clone(),
            certificate,
            endpoints: RefCell::new(LoadBalancer::new(BalancerPolicy::default())),
            endpoints_version: Cell::new(0),
            tls: RefCell::new(None),
            settings_version: Cell::new(0),
            epoch: worker.epoch,
            used: Cell::new(Instant::now()),
            pool: ConnectionPool::default(),
            http2: http2::Http2Pool::default(),
            retry_budget: RefCell::new(RetryBudgetTracker::new(backend.retry_budget)),
            series: worker.metrics.backend(&backend.id),
            backend: RefCell::new(backend),
        }
    }

    /// Returns the client certificate of the Gateway, presented unless the backend's settings name one.
    pub(crate) fn certificate(&self) -> Option<&SecretId> {
        self.certificate.as_ref()
    }

    /// Replaces the backend's settings.
    pub(crate) fn update(&self, backend: &Arc<Backend>) {
        let old = self.backend.replace(backend.clone());
        if old.tls != backend.tls || old.protocol != backend.protocol {
            self.reset_connections();
        }
        if old.retry_budget != backend.retry_budget {
            self.retry_budget
                .replace(RetryBudgetTracker::new(backend.retry_budget));
        }
    }

    /// Uses the new version of the presented certificate if it is among the changed ones.
    pub(crate) fn renew_certificate(&self, changed: &BTreeSet<SecretId>) {
        let backend = self.backend.borrow();
        let presents = backend.secret().or(self.certificate.as_ref());
        if presents.is_some_and(|presents| changed.contains(presents)) {
            self.reset_connections();
        }
    }

    /// Makes new requests use new connections, with the current settings.
    fn reset_connections(&self) {
        self.settings_version.set(self.settings_version.get() + 1);
        self.tls.replace(None);
        self.pool.clear();
        self.http2.clear();
    }

    /// Replaces the endpoints. Those that stay keep their health, load and connections.
    pub(crate) fn set_endpoints(&self, worker: &Worker, endpoints: &EndpointSet) {
        let all = endpoints.addresses(&self.id, &worker.shared.options.location);
        let exists = |address: &SocketAddr| all.iter().any(|(other, _)| other == address);
        self.pool.retain(exists);
        self.http2.retain(exists);
        self.endpoints.borrow_mut().update(worker.now(), all);
        self.endpoints_version.set(self.endpoints_version.get() + 1);
    }

    /// Returns the number of changes of the endpoints.
    pub(crate) fn endpoints_version(&self) -> u64 {
        self.endpoints_version.get()
    }

    /// Closes connections that have been idle for this long.
    pub(crate) fn sweep(&self, oldest: Duration) {
        self.pool.sweep(oldest);
        self.http2.sweep(oldest);
    }

    /// Returns whether there was no request for this long.
    pub(crate) fn is_idle(&self, time: Duration) -> bool {
        self.used.get().elapsed() >= time
    }

    /// Selects an endpoint, preferring those not in `tried`. `sockets` will create the connection.
    pub(crate) fn select(
        self: &Rc<Self>,
        worker: &Worker,
        sockets: &Rc<SocketFactory>,
        tried: &[SocketAddr],
        now: Instant,
    ) -> Option<SelectedEndpoint> {
        self.used.set(now);
        let mut endpoints = self.endpoints.borrow_mut();
        let handle = endpoints.select(worker.at(now), tried, || worker.random())?;
        let address = *endpoints.key(handle)?;
        Some(SelectedEndpoint {
            upstream: self.clone(),
            handle: Some(handle),
            address,
            sockets: sockets.clone(),
            selected_at: now,
        })
    }

    /// Returns whether an address is an endpoint of the backend.
    pub(crate) fn contains(&self, address: SocketAddr) -> bool {
        self.endpoints.borrow().contains(&address)
    }

    /// Returns the HTTP version for a request: that of the backend or, if it does not specify one, HTTP/2 for gRPC and HTTP/1.1 otherwise.
    pub(crate) fn protocol(&self, grpc: bool) -> UpstreamProtocol {
        match self.backend.borrow().protocol {
            BackendProtocol::Http2 | BackendProtocol::Grpc => UpstreamProtocol::Http2,
            BackendProtocol::Unspecified if grpc => UpstreamProtocol::Http2,
            _ => UpstreamProtocol::Http1,
        }
    }

    /// Returns the version of the protocol and TLS settings.
    pub(crate) fn settings_version(&self) -> u64 {
        self.settings_version.get()
    }

    /// Returns the TLS configurations; `None` if the backend has no TLS.
    pub(crate) fn tls(&self, worker: &Worker) -> Result<Option<Rc<UpstreamTls>>, Fault> {
        let backend = self.backend.borrow();
        let Some(settings) = &backend.tls else {
            return Ok(None);
        };
        let mut cached = self.tls.borrow_mut();
        let tls = cached.get_or_insert_with(|| {
            let settings = settings.as_ref().map_err(Clone::clone)?;
            let snapshot = worker.pin_snapshot();
            let secret = |id: &SecretId| snapshot.config.tables.secret(id).cloned();
            let make = |alpn: &[&[u8]]| {
                backend_config(
                    settings,
                    self.certificate.as_ref(),
                    secret,
                    worker.shared.system_roots(),
                    alpn,
                )
                .map_err(|error| Fault {
                    status: 500,
                    reason: FaultReason::BackendTlsUnusable,
                    message: error.to_string(),
                })
            };
            Ok(Rc::new(UpstreamTls {
                http1: make(&[b"http/1.1"])?,
                http2: make(&[b"h2"])?,
                bytes: make(&[])?,
            }))
        });
        tls.clone().map(Some)
    }
}

/// An endpoint selected for a request. The load balancer counts the request until an outcome is recorded or this is dropped.
#[derive(Debug)]
pub(crate) struct SelectedEndpoint {
    upstream: Rc<Upstream>,
    handle: Option<EndpointHandle>,
    /// Address of the endpoint.
    pub(crate) address: SocketAddr,
    /// Creates the socket of a new connection.
    pub(crate) sockets: Rc<SocketFactory>,
    selected_at: Instant,
}

impl SelectedEndpoint {
    pub(crate) fn upstream(&self) -> &Rc<Upstream> {
        &self.upstream
    }

    /// Returns the time of the selection.
    pub(crate) fn selected_at(&self) -> Instant {
        self.selected_at
    }

    /// Records a response. Returns the time since the selection.
    pub(crate) fn record_response(&mut self) -> Duration {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.selected_at);
        self.end(RequestOutcome::Success(elapsed), now);
        elapsed
    }

    /// Records a connection for a stream, which stays outstanding until this is dropped. Returns the time since the selection.
    pub(crate) fn record_connect(&mut self) -> Duration {
        let elapsed = self.selected_at.elapsed();
        if let Some(handle) = self.handle {
            let mut endpoints = self.upstream.endpoints.borrow_mut();
            endpoints.record_response(handle, self.upstream.epoch.elapsed(), elapsed);
        }
        elapsed
    }

    /// Records a failure: no connection, an early close, a protocol error or a timeout.
    pub(crate) fn record_failure(&mut self) {
        self.end(RequestOutcome::Failure, Instant::now());
    }

    fn end(&mut self, outcome: RequestOutcome, now: Instant) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        let now = now.saturating_duration_since(self.upstream.epoch);
        let ejected = self
            .upstream
            .endpoints
            .borrow_mut()
            .finish(handle, now, outcome);
        if ejected {
            self.upstream.series.ejections.increment();
            tracing::info!(endpoint = %self.address, backend = %self.upstream.id, "ejected after consecutive failures");
        }
    }
}

impl Drop for SelectedEndpoint {
    fn drop(&mut self) {
        // No outcome was recorded.
        if self.handle.is_some() {
            self.end(RequestOutcome::Cancelled, Instant::now());
        }
    }
}
