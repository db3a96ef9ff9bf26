//! A worker: a thread with its own sockets, tables and connections. Its state is shared by all connections of the thread, without locks.
//!
//! `upstream` is the part of a worker that connects to backends. The two are one unit and import each other: a worker owns its upstreams, and those use the
//! worker's options, clock, buffers and limits of files.

mod capacity;
mod eviction;
mod idle;
mod limit_log;
mod plan_cache;
pub(crate) mod port_connections;
mod rule_plan;
mod snapshot;
mod socket_frontends;
mod topology;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pointsman_binding::bound::{Backend, BackendId, Frontend, SecretId};
use pointsman_resources::ObjectKey;
use pointsman_routing::LookupResult;
use rustls::RootCertStore;

use crate::access_log::{AccessLog, WorkerLog};
use crate::changed::Changed;
use crate::io::buffer::BufferPool;
use crate::io::signal::Signal;
use crate::io::splice::PipePool;
use crate::limits::Limits;
use crate::metrics::{ListenerSeries, WorkerMetrics};
use crate::options::Options;
use crate::placement::PodMap;
use crate::socket_owner::{SocketKey, SocketOwner};
use crate::sockets::SocketFactory;
use crate::upstream::Upstream;

use eviction::IdleGroup;
use limit_log::LimitLog;
use plan_cache::PlanCache;
use port_connections::{LocalPort, PortConnections};

pub(crate) use capacity::{Admission, Capacity, UpstreamFile};
pub(crate) use rule_plan::{MirrorTarget, RuleOrigin, RulePlan};
pub(crate) use snapshot::{ConfigSnapshot, EndpointSet, Installation, WorkerSnapshot};
pub(crate) use socket_frontends::{SocketFrontends, UnroutedTables};

/// State shared by all workers.
#[derive(Debug)]
pub(crate) struct WorkerShared {
    /// Settings of the data plane.
    pub(crate) options: Options,
    /// Limits of connections and open files.
    pub(crate) capacity: Capacity,
    /// Access log, if enabled.
    pub(crate) log: Option<AccessLog>,
    /// Connections per port.
    pub(crate) ports: PortConnections,
    /// Each HTTP/1 response announces the end of its connection, because a shutdown is near.
    announces_close: AtomicBool,
    roots: OnceLock<Arc<RootCertStore>>,
}

impl WorkerShared {
    /// Creates the shared state.
    pub(crate) fn new(options: Options, capacity: Capacity, log: Option<AccessLog>) -> Self {
        WorkerShared {
            options,
            capacity,
            log,
            ports: PortConnections::default(),
            announces_close: AtomicBool::new(false),
            roots: OnceLock::new(),
        }
    }

    /// Makes each HTTP/1 response announce the end of its connection from now on.
    pub(crate) fn announce_close(&self) {
        self.announces_close.store(true, Ordering::Relaxed);
    }

    /// Returns whether HTTP/1 responses announce the end of their connection.
    pub(crate) fn announces_close(&self) -> bool {
        self.announces_close.load(Ordering::Relaxed)
    }

    /// Returns the trust anchors of the operating system, loaded on first use.
    pub(crate) fn system_roots(&self) -> &Arc<RootCertStore> {
        self.roots.get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::warn!(%error, "can't load the system's CA certificates");
            }
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(found.certs);
            Arc::new(roots)
        })
    }
}

/// A listening socket of a worker.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) key: SocketKey,
    /// Creates upstream sockets for the clients of this socket, in their network namespace and with their mark.
    pub(crate) upstream_sockets: Rc<SocketFactory>,
    /// Connections to the port.
    port: LocalPort,
    /// Notified when the socket closes, alone or because the worker drains. Connections without a request in progress close then.
    pub(crate) closed: Signal,
    /// The listener of the last connection, with its metrics.
    listener: RefCell<Option<(Arc<Frontend>, Arc<ListenerSeries>)>>,
}

impl Socket {
    /// Returns the metrics of a listener of this socket. They are looked up when the listener differs from that of the last call.
    pub(crate) fn listener_series(
        &self,
        worker: &Worker,
        frontend: &Arc<Frontend>,
    ) -> Arc<ListenerSeries> {
        let mut last = self.listener.borrow_mut();
        match &*last {
            Some((known, series)) if Arc::ptr_eq(known, frontend) => series.clone(),
            _ => {
                let series = worker.metrics.listener(&frontend.id);
                *last = Some((frontend.clone(), series.clone()));
                series
            }
        }
    }
}

/// Minimum time for which an unused upstream is kept.
const UNUSED_UPSTREAM_TTL: Duration = Duration::from_secs(300);

/// Interval of the removal of unused plans.
const PLAN_TRIM_SECONDS: u64 = 10;

/// State of a worker thread.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Index among the workers.
    index: usize,
    /// State shared with the other workers.
    pub(crate) shared: Arc<WorkerShared>,
    pub(crate) metrics: WorkerMetrics,
    /// Queue of the access log, if enabled.
    pub(crate) log: Option<WorkerLog>,
    /// Unused buffers.
    pub(crate) buffers: Rc<BufferPool>,
    /// Unused pipes.
    pub(crate) pipes: Rc<PipePool>,
    /// Notified when the worker drains.
    pub(crate) draining: Signal,
    /// Start of the worker, to which the load balancer's times are relative.
    pub(crate) epoch: Instant,
    /// Reached limits, for the log.
    pub(crate) limit_log: LimitLog,
    /// Refused connections that linger until their clients have read the response.
    pub(crate) lingering_refusals: Cell<usize>,
    /// Creates upstream sockets for clients that have no network namespace or mark of their own.
    upstream_sockets: Rc<SocketFactory>,
    /// Buffer for the datagram that is being forwarded, never borrowed across an `await`.
    pub(crate) datagram_buffer: RefCell<Vec<u8>>,
    /// Number of installed configurations and Pod maps.
    generation: Cell<u64>,
    snapshot: RefCell<Rc<WorkerSnapshot>>,
    plans: PlanCache,
    endpoints: RefCell<Arc<EndpointSet>>,
    /// Pods by address.
    pods: RefCell<PodMap>,
    /// Upstreams by backend, one for each client certificate presented there.
    upstreams: RefCell<HashMap<BackendId, Vec<Rc<Upstream>>, foldhash::fast::RandomState>>,
    sockets: RefCell<HashMap<SocketKey, Rc<Socket>>>,
    /// Open client connections.
    open: Cell<usize>,
    /// Client connections without a request in progress.
    idle: IdleGroup,
    /// Seconds since the start of the worker, updated once a second.
    second: Cell<u64>,
    /// Second in which unused upstream connections were last closed because files were scarce.
    trimmed_second: Cell<u64>,
    /// Mirrored requests in progress.
    pub(crate) mirrored_requests: Cell<usize>,
    random: Cell<u64>,
    /// Current value of the `date` header.
    date: RefCell<Rc<[u8]>>,
}

impl Worker {
    /// Creates a worker without a configuration.
    pub(crate) fn new(
        shared: Arc<WorkerShared>,
        metrics: WorkerMetrics,
        index: usize,
        seed: u64,
    ) -> Self {
        let log = shared.log.as_ref();
        Worker {
            log: log.map(|log| log.worker(metrics.worker_series())),
            index,
            metrics,
            buffers: Rc::new(BufferPool::default()),
            pipes: Rc::new(PipePool::default()),
            draining: Signal::default(),
            epoch: Instant::now(),
            limit_log: LimitLog::default(),
            lingering_refusals: Cell::new(0),
            upstream_sockets: Rc::new(shared.options.sockets.clone()),
            datagram_buffer: RefCell::default(),
            generation: Cell::new(0),
            snapshot: RefCell::default(),
            plans: PlanCache::default(),
            endpoints: RefCell::default(),
            pods: RefCell::default(),
            upstreams: RefCell::default(),
            sockets: RefCell::default(),
            open: Cell::new(0),
            idle: shared.capacity.idle_group(index),
            second: Cell::new(0),
            trimmed_second: Cell::new(0),
            mirrored_requests: Cell::new(0),
            random: Cell::new(seed | 1),
            date: RefCell::new(date()),
            shared,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.options.limits
    }

    /// Pins the current configuration: a request calls this once and uses the same snapshot throughout.
    pub(crate) fn pin_snapshot(&self) -> Rc<WorkerSnapshot> {
        self.snapshot.borrow().clone()
    }

    /// Returns the number of installed configurations and Pod maps, to detect changes. Endpoints have versions of their own, in their upstreams.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Returns the time since the start of the worker.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Converts a time to the time since the start of the worker.
    pub(crate) fn at(&self, time: Instant) -> Duration {
        time.saturating_duration_since(self.epoch)
    }

    /// Returns a pseudo-random number (Vigna's xorshift64*), not for cryptographic use.
    pub(crate) fn random(&self) -> u64 {
        let mut state = self.random.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Installs a configuration for new requests.
    pub(crate) fn install(&self, config: Arc<ConfigSnapshot>, changed: &Changed) {
        if !changed.backends.is_empty() {
            self.plans.clear();
        }
        let mut upstreams = self.upstreams.borrow_mut();
        for id in &changed.backends {
            match config.tables.backend(id) {
                Some(backend) => {
                    let of_backend = upstreams.get(id).into_iter().flatten();
                    of_backend.for_each(|upstream| upstream.update(backend));
                }
                // A removed upstream may still have streams, but gets no new ones.
                None => drop(upstreams.remove(id)),
            }
        }
        if !changed.secrets.is_empty() {
            let all = upstreams.values().flatten();
            all.for_each(|upstream| upstream.renew_certificate(&changed.secrets));
        }
        drop(upstreams);
        self.generation.set(self.generation.get() + 1);
        let version = self.snapshot.borrow().version + 1;
        let snapshot = WorkerSnapshot { config, version };
        self.snapshot.replace(Rc::new(snapshot));
    }

    /// Returns the plan of a rule at a frontend.
    pub(crate) fn plan(
        &self,
        snapshot: &WorkerSnapshot,
        frontend: &Arc<Frontend>,
        hit: &LookupResult<'_>,
    ) -> Rc<RulePlan> {
        let create = || RulePlan::new(self, &snapshot.config, frontend, hit);
        self.plans.get(snapshot.version, frontend, hit, create)
    }

    /// Installs endpoints. Only the upstreams of changed backends are updated.
    pub(crate) fn install_endpoints(&self, endpoints: &Arc<EndpointSet>, changed: &Changed) {
        let upstreams = self.upstreams.borrow();
        for id in &changed.endpoints {
            for upstream in upstreams.get(id).into_iter().flatten() {
                upstream.set_endpoints(self, endpoints);
            }
        }
        self.endpoints.replace(endpoints.clone());
    }

    /// Installs the addresses of Pods, by which clients are identified.
    pub(crate) fn install_pods(&self, pods: PodMap) {
        self.pods.replace(pods);
        self.generation.set(self.generation.get() + 1);
    }

    /// Returns the Pod with an address.
    pub(crate) fn pod_at(&self, address: IpAddr) -> Option<ObjectKey> {
        self.pods.borrow().get(&address.to_canonical()).cloned()
    }

    /// Adds a listening socket.
    pub(crate) fn add_socket(&self, key: SocketKey) -> Rc<Socket> {
        let socket = Rc::new(Socket {
            key,
            upstream_sockets: self.upstream_sockets.clone(),
            port: self
                .shared
                .ports
                .of(key, self.index, self.shared.capacity.workers()),
            closed: Signal::default(),
            listener: RefCell::default(),
        });
        self.sockets.borrow_mut().insert(key, socket.clone());
        socket
    }

    /// Closes the listening sockets that have no owner any more.
    pub(crate) fn close_sockets(&self, owners: &BTreeMap<SocketKey, SocketOwner>) {
        let mut sockets = self.sockets.borrow_mut();
        sockets.retain(|key, socket| {
            let is_kept = owners.contains_key(key);
            if !is_kept {
                socket.closed.notify();
            }
            is_kept
        });
    }

    /// Closes all listening sockets, and connections that have no request in progress.
    pub(crate) fn start_draining(&self) {
        self.draining.notify();
        for (_, socket) in self.sockets.borrow_mut().drain() {
            socket.closed.notify();
        }
    }

    /// Returns the upstream of a backend. `certificate` is presented there unless the backend's own settings name one.
    pub(crate) fn upstream(
        &self,
        backend: &Arc<Backend>,
        certificate: Option<&SecretId>,
    ) -> Rc<Upstream> {
        let mut upstreams = self.upstreams.borrow_mut();
        let of_backend = upstreams.entry(backend.id.clone()).or_default();
        let mut known = of_backend.iter();
        if let Some(known) = known.find(|known| known.certificate() == certificate) {
            return known.clone();
        }
        let upstream = Upstream::new(self, backend.clone(), certificate.cloned());
        upstream.set_endpoints(self, &self.endpoints.borrow());
        let upstream = Rc::new(upstream);
        of_backend.push(upstream.clone());
        upstream
    }

    /// Returns the value of the `date` header, updated once a second.
    pub(crate) fn date(&self) -> Rc<[u8]> {
        self.date.borrow().clone()
    }

    /// Closes upstream connections that have been idle for too long, drops unused upstreams, and updates values that may be a second old. Called once a second.
    pub(crate) fn sweep(&self) {
        self.date.replace(date());
        let second = self.now().as_secs();
        self.second.set(second);
        if second.is_multiple_of(PLAN_TRIM_SECONDS) {
            self.plans.trim(self.snapshot.borrow().version);
        }
        self.idle.publish_oldest(second);
        for socket in self.sockets.borrow().values() {
            socket.publish_idle(second);
        }
        let oldest = self.limits().backend_idle_time;
        self.upstreams.borrow_mut().retain(|_, upstreams| {
            upstreams.retain(|upstream| {
                upstream.sweep(oldest);
                // Unused: it was for another certificate, or for routes that were removed.
                Rc::strong_count(upstream) > 1 || !upstream.is_idle(oldest.max(UNUSED_UPSTREAM_TTL))
            });
            !upstreams.is_empty()
        });
    }

    /// Returns the reason to log for requests and streams that are dropped before their end.
    pub(crate) fn termination_reason(&self) -> &'static str {
        match self.draining.is_notified() {
            true => "Drained",
            false => "Failed",
        }
    }

    /// Returns the number of open client connections.
    pub(crate) fn open_connections(&self) -> usize {
        self.open.get()
    }
}

fn date() -> Rc<[u8]> {
    httpdate::fmt_http_date(std::time::SystemTime::now())
        .into_bytes()
        .into()
}
