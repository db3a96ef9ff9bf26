//! A worker: a thread with sockets, tables and connections of its own. What lives here is reached from every connection of the thread, and from no other.

mod capacity;
mod idle;
pub(crate) mod port_connections;
mod rule_plan;

mod snapshot;
pub(crate) mod thread;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pointsman_binding::bound::{Backend, BackendId, SecretId};
use rustls::RootCertStore;

use crate::access_log::{AccessLog, WorkerLog};
use crate::changed::Changed;
use crate::io::buffer::BufferPool;
use crate::io::signal::Signal;
use crate::io::splice::PipePool;
use crate::limits::Limits;
use crate::metrics::WorkerMetrics;
use crate::options::Options;
use crate::proxy::{SocketKey, SocketOwner};
use crate::server::Overload;
use crate::upstream::Upstream;

use idle::IdleConnections;
use port_connections::PortConnections;

pub(crate) use capacity::{Admission, Capacity, UpstreamFile};
pub(crate) use rule_plan::{MirrorTarget, RulePlan};
pub(crate) use snapshot::{ConfigSnapshot, EndpointSet, WorkerSnapshot};

/// What all workers share.
#[derive(Debug)]
pub(crate) struct WorkerShared {
    /// What the operator said.
    pub(crate) options: Options,
    /// Limits of connections and open files.
    pub(crate) capacity: Capacity,
    /// Where requests are logged.
    pub(crate) log: Option<AccessLog>,
    /// Connections of each port.
    pub(crate) ports: PortConnections,
    roots: OnceLock<Arc<RootCertStore>>,
}

impl WorkerShared {
    /// For these settings.
    pub(crate) fn new(options: Options, capacity: Capacity, log: Option<AccessLog>) -> Self {
        WorkerShared {
            options,
            capacity,
            log,
            ports: PortConnections::default(),
            roots: OnceLock::new(),
        }
    }

    /// Whom the system trusts; read when first asked for.
    pub(crate) fn system_roots(&self) -> &Arc<RootCertStore> {
        self.roots.get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::warn!(%error, "authorities of the system");
            }
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(found.certs);
            Arc::new(roots)
        })
    }
}

/// A socket that is listened on, as one worker has it.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Which one.
    pub(crate) key: SocketKey,
    /// Owner of the frontends there, shared with the connections.
    pub(crate) owner: Rc<SharedSocketOwner>,
    /// Its connections, of all workers.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Rings when it is closed, be it alone or because the worker drains. Connections that wait for a request then end.
    pub(crate) closed: Signal,
}

impl Socket {
    /// A socket of this owner.
    pub(crate) fn new(key: SocketKey, owner: SocketOwner, ports: &PortConnections) -> Self {
        Socket {
            key,
            connections: ports.of(key),
            owner: Rc::new(SharedSocketOwner::new(owner)),
            closed: Signal::default(),
        }
    }
}

/// Owner of the frontends at an address. Connections share it with their socket, so that they follow when configuration gives the address to another owner.
#[derive(Debug)]
pub(crate) struct SharedSocketOwner(RefCell<Rc<SocketOwner>>);

impl SharedSocketOwner {
    /// Creates a handle for an owner.
    pub(crate) fn new(owner: SocketOwner) -> Self {
        SharedSocketOwner(RefCell::new(Rc::new(owner)))
    }

    /// Returns the owner of this moment.
    pub(crate) fn get(&self) -> Rc<SocketOwner> {
        self.0.borrow().clone()
    }

    /// Replaces the owner if it is another one.
    fn set(&self, owner: &SocketOwner) {
        if *self.get() != *owner {
            self.0.replace(Rc::new(owner.clone()));
        }
    }
}

/// How long an upstream is kept at least that no rule has used.
const UNUSED_UPSTREAM_TTL: Duration = Duration::from_secs(300);

/// A worker.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Number among the workers.
    index: usize,
    /// What it shares with the others.
    pub(crate) shared: Arc<WorkerShared>,
    /// Its figures.
    pub(crate) metrics: WorkerMetrics,
    /// Where requests are logged.
    pub(crate) log: Option<WorkerLog>,
    /// Buffers that nobody uses.
    pub(crate) buffers: Rc<BufferPool>,
    /// PipePool that nobody uses.
    pub(crate) pipes: Rc<PipePool>,
    /// Rings when the worker drains.
    pub(crate) draining: Signal,
    /// When it began; times in the balancer count from here.
    pub(crate) epoch: Instant,
    /// Who was turned away.
    pub(crate) overload: Overload,
    /// Where a datagram is while it is passed on; nobody keeps it while waiting.
    pub(crate) datagram_buffer: RefCell<Vec<u8>>,
    /// How often what holds has changed.
    generation: Cell<u64>,
    snapshot: RefCell<Rc<WorkerSnapshot>>,
    endpoints: RefCell<Arc<EndpointSet>>,
    /// Upstreams by backend, one for each certificate that frontends present there.
    upstreams: RefCell<HashMap<BackendId, Vec<Rc<Upstream>>, foldhash::fast::RandomState>>,
    sockets: RefCell<HashMap<SocketKey, Rc<Socket>>>,
    /// Connections that are open here.
    open: Cell<usize>,
    /// Those of them that have no request in progress.
    idle: IdleConnections,
    /// Seconds since the worker began, advanced once a second.
    second: Cell<u64>,
    /// Second in which unused connections to endpoints were last closed for want of files.
    trimmed_second: Cell<u64>,
    /// Copies of requests that are on their way to mirrors.
    pub(crate) mirrored_requests: Cell<usize>,
    random: Cell<u64>,
    /// The time as `date` has it.
    date: RefCell<Rc<[u8]>>,
}

impl Worker {
    /// A worker that holds nothing yet.
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
            shared,
            metrics,
            buffers: Rc::new(BufferPool::default()),
            pipes: Rc::new(PipePool::default()),
            draining: Signal::default(),
            epoch: Instant::now(),
            overload: Overload::default(),
            datagram_buffer: RefCell::default(),
            generation: Cell::new(0),
            snapshot: RefCell::new(Rc::new(WorkerSnapshot::default())),
            endpoints: RefCell::default(),
            upstreams: RefCell::default(),
            sockets: RefCell::default(),
            open: Cell::new(0),
            idle: IdleConnections::default(),
            second: Cell::new(0),
            trimmed_second: Cell::new(0),
            mirrored_requests: Cell::new(0),
            random: Cell::new(seed | 1),
            date: RefCell::new(date()),
        }
    }

    /// What is too much.
    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.options.limits
    }

    /// What holds now. A request asks once and keeps it.
    pub(crate) fn pin_snapshot(&self) -> Rc<WorkerSnapshot> {
        self.snapshot.borrow().clone()
    }

    /// How often that has changed.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// The time since the worker began.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// A time, counted from when the worker began.
    pub(crate) fn at(&self, time: Instant) -> Duration {
        time.saturating_duration_since(self.epoch)
    }

    /// A random number, of no use where it must not be guessed (Vigna's xorshift64*).
    pub(crate) fn random(&self) -> u64 {
        let mut state = self.random.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Installs a version. Requests that come from now on use it.
    pub(crate) fn install(&self, config: Arc<ConfigSnapshot>, changed: &Changed) {
        let snapshot = Rc::new(WorkerSnapshot::new(config));
        let config = &snapshot.config;
        self.upstreams.borrow_mut().retain(|id, upstreams| {
            // A stream may still use one that is gone; nothing new will.
            let Some(backend) = config.backend(id) else {
                return false;
            };
            for upstream in upstreams.iter() {
                upstream.update(backend, &changed.secrets);
            }
            true
        });
        self.generation.set(self.generation.get() + 1);
        self.snapshot.replace(snapshot);
    }

    /// Installs other endpoints. Nothing but the upstreams concerned is touched.
    pub(crate) fn install_endpoints(&self, endpoints: Arc<EndpointSet>, changed: &Changed) {
        let upstreams = self.upstreams.borrow();
        for id in &changed.endpoints {
            for upstream in upstreams.get(id).into_iter().flatten() {
                upstream.set_endpoints(self, &endpoints);
            }
        }
        self.endpoints.replace(endpoints);
        self.generation.set(self.generation.get() + 1);
    }

    /// The upstream of a backend, for connections that present this certificate where the backend's own settings name none.
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

    /// The time as `date` has it, to the second.
    pub(crate) fn date(&self) -> Rc<[u8]> {
        self.date.borrow().clone()
    }

    /// Closes connections to endpoints that have waited too long. Called once a second.
    pub(crate) fn sweep(&self) {
        self.date.replace(date());
        self.second.set(self.now().as_secs());
        let oldest = self.limits().backend_idle_time;
        self.upstreams.borrow_mut().retain(|_, upstreams| {
            upstreams.retain(|upstream| {
                upstream.sweep(oldest);
                // Nobody has asked for it for long: it was for another certificate, or for routes that are gone.
                Rc::strong_count(upstream) > 1 || !upstream.is_idle(oldest.max(UNUSED_UPSTREAM_TTL))
            });
            !upstreams.is_empty()
        });
    }

    /// Why something that runs is dropped before its end.
    pub(crate) fn termination_reason(&self) -> &'static str {
        match self.draining.is_notified() {
            true => "Drained",
            false => "Failed",
        }
    }

    /// Clients' connections that are open here.
    pub(crate) fn open_connections(&self) -> usize {
        self.open.get()
    }
}

fn date() -> Rc<[u8]> {
    httpdate::fmt_http_date(std::time::SystemTime::now())
        .into_bytes()
        .into()
}
