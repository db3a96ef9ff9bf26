//! The data plane as the control side sees it: it is started, told what holds from now on, asked for figures, drained.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pointsman_binding::EndpointPolicy;
use pointsman_binding::bound::{Backend, BackendId, FrontendId, Transport};
use pointsman_resources::{Name, ObjectKey};
use pointsman_routing::Tables;
use tokio::sync::mpsc::UnboundedSender;

use crate::access_log::AccessLog;
use crate::bind::bind;
use crate::changed::Changed;
use crate::dns::Resolver;
use crate::files;
use crate::metrics::Registry;
use crate::options::Options;
use crate::sockets::SocketFactory;
use crate::tls::TlsConfigs;
use crate::worker::thread::{self, Command};
use crate::worker::{Capacity, ConfigSnapshot, EndpointSet, WorkerShared};

/// A socket that clients connect or send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketKey {
    /// Where.
    pub address: SocketAddr,
    /// Streams or datagrams.
    pub transport: Transport,
}

/// Whose traffic arrives at a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketOwner {
    /// A port of a Gateway: that number in its listeners, whatever number is bound.
    Gateway {
        /// The Gateway.
        gateway: Name,
        /// The listeners' port.
        port: u16,
    },
    /// A port of a mesh parent.
    Mesh {
        /// The Service or its kin.
        parent: ObjectKey,
        /// Its port.
        port: u16,
    },
    /// An outbound of a Dataplane of Kuma.
    Outbound(FrontendId),
}

impl SocketOwner {
    /// Returns the Gateway and the port of its listeners, if the owner is a Gateway.
    pub(crate) fn gateway_port(&self) -> Option<(&Name, u16)> {
        match self {
            SocketOwner::Gateway { gateway, port } => Some((gateway, *port)),
            SocketOwner::Mesh { .. } | SocketOwner::Outbound(_) => None,
        }
    }
}

/// All that holds from now on.
#[derive(Debug, Clone, Default)]
pub struct Update {
    /// Which rule takes which traffic.
    pub tables: Tables,
    /// Every socket that is to be listened on.
    pub sockets: Arc<BTreeMap<SocketKey, SocketOwner>>,
    /// The Pods, by address: whose calls are whose.
    pub pods: Arc<HashMap<IpAddr, ObjectKey>>,
    /// The backends of mesh parents themselves, for calls that no route governs.
    pub implicit: Arc<HashMap<BackendId, Arc<Backend>>>,
    /// What differs from the last update.
    pub changed: Changed,
}

/// What came of an [`Update`].
#[derive(Debug, Default)]
pub struct ApplyOutcome {
    /// Sockets that could not be bound, and why. They are tried again with each update.
    pub unbound: BTreeMap<SocketKey, io::Error>,
    /// Listeners whose TLS could not be made of what they name, and why. The others serve.
    pub faulty: BTreeMap<FrontendId, String>,
}

/// A running data plane. Dropping it ends it at once.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<WorkerShared>,
    registry: Arc<Registry>,
    state: Arc<Mutex<ProxyState>>,
    threads: Vec<JoinHandle<()>>,
    /// Looks up names, once there are any.
    resolver: Option<Resolver>,
}

/// What the control side changes, be it by an update or because a name has other addresses.
#[derive(Debug, Default)]
struct ProxyState {
    workers: Vec<UnboundedSender<Command>>,
    /// Creates listening sockets.
    sockets: SocketFactory,
    bound: HashSet<SocketKey>,
    tls: TlsConfigs,
    config: Arc<ConfigSnapshot>,
    endpoints: Arc<EndpointSet>,
    /// Whether a socket could not be bound.
    has_unbound: bool,
    /// Addresses that DNS names may resolve to.
    endpoint_policy: Arc<EndpointPolicy>,
    /// Addresses that DNS names resolve to and that are refused.
    refused: RefusedNames,
    on_refused: RefusalCallback,
}

/// DNS names with the addresses of theirs that are refused.
pub(crate) type RefusedNames = BTreeMap<Arc<str>, Vec<IpAddr>>;

/// Called when something has to be reported.
#[derive(Default)]
struct RefusalCallback(Option<Box<dyn Fn() + Send>>);

impl std::fmt::Debug for RefusalCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RefusalCallback")
    }
}

impl Proxy {
    /// Starts the workers. They have nothing to listen on before the first [`Proxy::apply`].
    pub fn start(options: Options) -> io::Result<Proxy> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let count = options.workers.unwrap_or_else(cores).max(1);
        let capacity = Capacity::new(options.limits.connections, files::available(), count);
        let log = options
            .access_log
            .as_ref()
            .map(AccessLog::open)
            .transpose()?;
        let sockets = options.sockets.clone();
        let endpoint_policy = options.endpoints.clone();
        let mut proxy = Proxy {
            shared: Arc::new(WorkerShared::new(options, capacity, log)),
            registry: Arc::default(),
            state: Arc::new(Mutex::new(ProxyState {
                sockets,
                endpoint_policy,
                ..ProxyState::default()
            })),
            threads: Vec::new(),
            resolver: None,
        };
        for index in 0..count {
            let (sender, commands) = tokio::sync::mpsc::unbounded_channel();
            let (shared, metrics) = (proxy.shared.clone(), proxy.registry.worker(index));
            let seed = foldhash::quality::RandomState::default().hash_one(index);
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || {
                    if let Err(error) = thread::run(shared, metrics, index, seed, commands) {
                        tracing::error!(%error, "a worker could not start");
                    }
                })?;
            lock(&proxy.state).workers.push(sender);
            proxy.threads.push(thread);
        }
        Ok(proxy)
    }

    /// Puts an update in effect; it is when this returns: every worker listens on the new sockets and uses the new tables for requests that come
    /// from then on.
    pub fn apply(&mut self, update: Update) -> ApplyOutcome {
        let mut outcome = ApplyOutcome::default();
        let wanted: BTreeSet<Arc<str>> = update.tables.names().cloned().collect();
        {
            let mut state = lock(&self.state);
            let mut names = state.endpoints.names.clone();
            if names.keys().any(|name| !wanted.contains(name)) {
                Arc::make_mut(&mut names).retain(|name, _| wanted.contains(name));
            }
            state.refused.retain(|name, _| wanted.contains(name));
            state.endpoints = Arc::new(EndpointSet {
                bound: update.tables.endpoint_map().clone(),
                names,
            });
            let current = &state.config;
            let only_endpoints = !update.changed.beyond_endpoints
                && !state.has_unbound
                && Arc::ptr_eq(&current.sockets, &update.sockets)
                && Arc::ptr_eq(&current.pods, &update.pods)
                && Arc::ptr_eq(&current.implicit, &update.implicit);
            let changed = Arc::new(update.changed);
            if only_endpoints {
                state.install_endpoints(changed);
            } else {
                state.tls.update(&update.tables, &changed);
                state.config = Arc::new(ConfigSnapshot {
                    tables: update.tables,
                    sockets: update.sockets,
                    pods: update.pods,
                    implicit: update.implicit,
                    tls: state.tls.usable(),
                });
                outcome.unbound = state.install(changed);
            }
            outcome.faulty = state.tls.faulty().clone();
        }
        self.set_resolved_names(wanted);
        outcome
    }

    /// These names are to be looked up from now on.
    fn set_resolved_names(&mut self, wanted: BTreeSet<Arc<str>>) {
        if self.resolver.is_none() && !wanted.is_empty() {
            let state = self.state.clone();
            let started = Resolver::start(move |name, addresses| {
                lock(&state).set_name_addresses(name, addresses);
            });
            match started {
                Ok(resolver) => self.resolver = Some(resolver),
                Err(error) => tracing::error!(%error, "names can't be looked up"),
            }
        }
        if let Some(resolver) = &self.resolver {
            resolver.set_names(wanted);
        }
    }

    /// DNS names that resolve to refused addresses.
    pub(crate) fn refused_names(&self) -> RefusedNames {
        lock(&self.state).refused.clone()
    }

    /// Calls this on another thread whenever [`refused_names`](Self::refused_names) has changed.
    pub(crate) fn on_refused(&self, notify: impl Fn() + Send + 'static) {
        lock(&self.state).on_refused = RefusalCallback(Some(Box::new(notify)));
    }

    /// Stops accepting, lets what runs finish, and returns when it has, or at the deadline. Returns how many connections were cut.
    pub fn drain(&mut self, deadline: Duration) -> usize {
        // From here on nothing is published any more.
        self.resolver = None;
        let (done, all) = channel();
        for worker in &lock(&self.state).workers {
            let done = done.clone();
            let _ = worker.send(Command::Drain { deadline, done });
        }
        drop(done);
        all.iter().sum()
    }

    /// The figures, for who asks while this is busy.
    pub fn metrics(&self) -> MetricsReader {
        MetricsReader {
            registry: self.registry.clone(),
            state: self.state.clone(),
        }
    }

    /// Opens the access log's file anew, for who rotates it.
    pub fn reopen_log(&self) -> io::Result<()> {
        self.shared.log.as_ref().map_or(Ok(()), AccessLog::reopen)
    }
}

/// The figures of a data plane.
#[derive(Debug, Clone)]
pub struct MetricsReader {
    registry: Arc<Registry>,
    state: Arc<Mutex<ProxyState>>,
}

impl MetricsReader {
    /// All of them, in Prometheus' text format.
    pub fn render(&self) -> String {
        let config = lock(&self.state).config.clone();
        self.registry.render(&config.tables, &config.implicit)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // First who might still publish something.
        self.resolver = None;
        lock(&self.state).workers.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The state is whole between any two steps, so a panic elsewhere does not spoil it.
fn lock(state: &Mutex<ProxyState>) -> MutexGuard<'_, ProxyState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProxyState {
    /// A name has these addresses. Nothing is said of names that nobody wants any more.
    fn set_name_addresses(&mut self, name: &Arc<str>, addresses: Vec<IpAddr>) {
        if !self.config.tables.names().any(|wanted| wanted == name) {
            return;
        }
        let addresses = self.filter_refused(name, addresses);
        let mut endpoints = (*self.endpoints).clone();
        Arc::make_mut(&mut endpoints.names).insert(name.clone(), addresses);
        self.endpoints = Arc::new(endpoints);
        let named = self.config.tables.backends_named(name);
        self.install_endpoints(Arc::new(Changed {
            endpoints: named.cloned().collect(),
            ..Changed::default()
        }));
    }

    /// Leaves out the addresses of a name that are refused.
    fn filter_refused(&mut self, name: &Arc<str>, addresses: Vec<IpAddr>) -> Vec<IpAddr> {
        let policy = &self.endpoint_policy;
        let (refused, allowed): (Vec<IpAddr>, Vec<IpAddr>) = addresses
            .into_iter()
            .partition(|address| policy.refuses(*address).is_some());
        let known = self
            .refused
            .get(name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if known != refused {
            if !refused.is_empty() {
                tracing::warn!(%name, ?refused, "a backend's name resolves to addresses that are not allowed; they get no traffic");
            }
            match refused.is_empty() {
                true => self.refused.remove(name),
                false => self.refused.insert(name.clone(), refused),
            };
            if let Some(notify) = &self.on_refused.0 {
                notify();
            }
        }
        allowed
    }

    /// Sends other endpoints to the workers, and waits until all have installed them.
    fn install_endpoints(&self, changed: Arc<Changed>) {
        let (done, all) = channel();
        for worker in &self.workers {
            let _ = worker.send(Command::InstallEndpoints {
                endpoints: self.endpoints.clone(),
                changed: changed.clone(),
                done: done.clone(),
            });
        }
        drop(done);
        all.iter().count();
    }

    /// Gives the version to the workers, with sockets that it wants and that are not there yet. Returns those that can't be had.
    fn install(&mut self, changed: Arc<Changed>) -> BTreeMap<SocketKey, io::Error> {
        let wanted = self.config.sockets.clone();
        self.bound.retain(|key| wanted.contains_key(key));
        let mut unbound = BTreeMap::new();
        let mut new_sockets: Vec<Vec<_>> = self.workers.iter().map(|_| Vec::new()).collect();
        for (key, owner) in &*wanted {
            if self.bound.contains(key) {
                continue;
            }
            match bind(&self.sockets, key, self.workers.len()) {
                Ok(sockets) => {
                    self.bound.insert(*key);
                    for (new_sockets, socket) in new_sockets.iter_mut().zip(sockets) {
                        new_sockets.push((*key, owner.clone(), socket));
                    }
                }
                Err(error) => drop(unbound.insert(*key, error)),
            }
        }
        let (done, all) = channel();
        for (worker, sockets) in self.workers.iter().zip(new_sockets) {
            let _ = worker.send(Command::Install {
                config: self.config.clone(),
                endpoints: self.endpoints.clone(),
                changed: changed.clone(),
                sockets,
                done: done.clone(),
            });
        }
        drop(done);
        // Ends when every worker has said so, or is gone.
        all.iter().count();
        self.has_unbound = !unbound.is_empty();
        unbound
    }
}
