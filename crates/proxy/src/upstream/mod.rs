//! Where traffic goes: the endpoints of a backend, who is chosen, and the connections that are kept to them. Each worker has its own.

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

/// A backend as one worker sees it.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Which one.
    pub(crate) id: BackendId,
    /// The certificate that the Gateway presents where the backend's settings name none.
    certificate: Option<SecretId>,
    backend: RefCell<Arc<Backend>>,
    endpoints: RefCell<LoadBalancer<SocketAddr>>,
    tls: RefCell<Option<Result<Rc<UpstreamTls>, Fault>>>,
    /// Counts the changes of how the backend is spoken to. A connection made under other terms carries no more requests.
    settings_version: Cell<u64>,
    /// When something last went there.
    used: Cell<Instant>,
    /// Creates the sockets of its connections, which are pooled here.
    pub(crate) sockets: SocketFactory,
    /// Connections that wait for work.
    pub(crate) pool: ConnectionPool,
    /// Connections that carry many requests at once.
    pub(crate) http2: http2::Http2Pool,
    /// How much may be tried again.
    pub(crate) retry_budget: RefCell<RetryBudgetTracker>,
    /// Its figures.
    pub(crate) series: Arc<BackendSeries>,
}

/// TLS towards a backend, for each version of HTTP and for bytes.
#[derive(Debug)]
pub(crate) struct UpstreamTls {
    pub(crate) http1: BackendConfig,
    pub(crate) http2: BackendConfig,
    pub(crate) bytes: BackendConfig,
}

/// Which version of HTTP is spoken to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Upstream {
    /// The backend, with the certificate that its Gateway shows.
    pub(crate) fn new(
        worker: &Worker,
        backend: Arc<Backend>,
        certificate: Option<SecretId>,
    ) -> Self {
        Upstream {
            id: backend.id.clone(),
            certificate,
            endpoints: RefCell::new(LoadBalancer::new(BalancerPolicy::default())),
            tls: RefCell::new(None),
            settings_version: Cell::new(0),
            used: Cell::new(Instant::now()),
            sockets: worker.shared.options.sockets.clone(),
            pool: ConnectionPool::default(),
            http2: http2::Http2Pool::default(),
            retry_budget: RefCell::new(RetryBudgetTracker::new(backend.retry_budget)),
            series: worker.metrics.backend(&backend.id),
            backend: RefCell::new(backend),
        }
    }

    /// The certificate that the Gateway presents where the backend's settings name none.
    pub(crate) fn certificate(&self) -> Option<&SecretId> {
        self.certificate.as_ref()
    }

    /// Replaces the backend's settings. `secrets` are certificates that changed.
    pub(crate) fn update(&self, backend: &Arc<Backend>, secrets: &BTreeSet<SecretId>) {
        let old = self.backend.replace(backend.clone());
        let same = Arc::ptr_eq(&old, backend);
        let presents = backend.secret().or(self.certificate.as_ref());
        let renewed = presents.is_some_and(|presents| secrets.contains(presents));
        if renewed || !same && (old.tls != backend.tls || old.protocol != backend.protocol) {
            self.settings_version.set(self.settings_version.get() + 1);
            self.tls.replace(None);
            self.pool.clear();
            self.http2.clear();
        }
        if old.retry_budget != backend.retry_budget {
            self.retry_budget
                .replace(RetryBudgetTracker::new(backend.retry_budget));
        }
    }

    /// Replaces the endpoints. Those that stay keep their health, load and connections.
    pub(crate) fn set_endpoints(&self, worker: &Worker, endpoints: &EndpointSet) {
        let all = endpoints.addresses(&self.id);
        let exists = |address: &SocketAddr| all.iter().any(|(other, _)| other == address);
        self.pool.retain(exists);
        self.http2.retain(exists);
        self.endpoints.borrow_mut().update(worker.now(), all);
    }

    /// Closes connections that have waited this long.
    pub(crate) fn sweep(&self, oldest: Duration) {
        self.pool.sweep(oldest);
        self.http2.sweep(oldest);
    }

    /// Whether nothing has gone there for this long.
    pub(crate) fn is_idle(&self, time: Duration) -> bool {
        self.used.get().elapsed() >= time
    }

    /// Chooses an endpoint, one that was not tried if there is one. It is this late now.
    pub(crate) fn select(
        self: &Rc<Self>,
        worker: &Worker,
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
            selected_at: now,
            epoch: worker.epoch,
        })
    }

    /// Reports whether an address is one of its endpoints.
    pub(crate) fn contains(&self, address: SocketAddr) -> bool {
        self.endpoints.borrow().contains(&address)
    }

    /// Which version of HTTP it is spoken to in. Where nothing is said: HTTP/1.1, or HTTP/2 for gRPC.
    pub(crate) fn protocol(&self, grpc: bool) -> UpstreamProtocol {
        match self.backend.borrow().protocol {
            BackendProtocol::Http2 | BackendProtocol::Grpc => UpstreamProtocol::Http2,
            BackendProtocol::Unspecified if grpc => UpstreamProtocol::Http2,
            _ => UpstreamProtocol::Http1,
        }
    }

    /// How often the terms have changed.
    pub(crate) fn settings_version(&self) -> u64 {
        self.settings_version.get()
    }

    /// How TLS is spoken to it; plain text if none.
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

/// An endpoint that was chosen for a request. Until something is said of how it went, nothing is known.
#[derive(Debug)]
pub(crate) struct SelectedEndpoint {
    upstream: Rc<Upstream>,
    handle: Option<EndpointHandle>,
    /// Where it is.
    pub(crate) address: SocketAddr,
    selected_at: Instant,
    epoch: Instant,
}

impl SelectedEndpoint {
    /// The backend.
    pub(crate) fn upstream(&self) -> &Rc<Upstream> {
        &self.upstream
    }

    /// When it was chosen.
    pub(crate) fn selected_at(&self) -> Instant {
        self.selected_at
    }

    /// It answered. Returns how long that took.
    pub(crate) fn record_response(&mut self) -> Duration {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.selected_at);
        self.end(RequestOutcome::Success(elapsed), now);
        elapsed
    }

    /// It took a stream, which counts as its load until this is dropped.
    pub(crate) fn record_connect(&mut self) -> Duration {
        let elapsed = self.selected_at.elapsed();
        if let Some(handle) = self.handle {
            let mut endpoints = self.upstream.endpoints.borrow_mut();
            endpoints.record_response(handle, self.epoch.elapsed(), elapsed);
        }
        elapsed
    }

    /// It could not be reached, or broke off, or took too long.
    pub(crate) fn record_failure(&mut self) {
        self.end(RequestOutcome::Failure, Instant::now());
    }

    fn end(&mut self, outcome: RequestOutcome, now: Instant) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        let now = now.saturating_duration_since(self.epoch);
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
        // Of most it is known by now.
        if self.handle.is_some() {
            self.end(RequestOutcome::Cancelled, Instant::now());
        }
    }
}
