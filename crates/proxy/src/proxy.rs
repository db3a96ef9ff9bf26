//! The data plane's interface to the control plane: start, update, metrics and drain.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pointsman_binding::EndpointPolicy;
use pointsman_binding::bound::{BackendId, Endpoints, FrontendId, Transport};
use pointsman_routing::{FrontendTable, Tables};
use tokio::sync::mpsc::UnboundedSender;

use crate::access_log::AccessLog;
use crate::bind::bind;
use crate::changed::Changed;
use crate::dns::Resolver;
use crate::files;
use crate::metrics::Registry;
use crate::options::Options;
use crate::placement::PodMap;
use crate::server::worker_thread::{self, Command, NewSocket};
use crate::socket_owner::{SocketKey, SocketOwner};
use crate::sockets::SocketFactory;
use crate::sync::lock;
use crate::tls::TlsConfigs;
use crate::worker::{
    Capacity, ConfigSnapshot, EndpointSet, Installation, SocketFrontends, UnroutedTables,
    WorkerShared,
};

/// The complete new configuration. Sockets and Pods are those of this machine, derived from the bound form by its placement.
#[derive(Debug, Clone, Default)]
pub struct Update {
    /// Routing tables.
    pub tables: Tables,
    /// Sockets to listen on, with their owners.
    pub sockets: Arc<BTreeMap<SocketKey, SocketOwner>>,
    /// Pods by address, to identify clients.
    pub pods: PodMap,
    /// Difference from the last update.
    pub changed: Changed,
    /// Try again to bind the sockets that could not be bound. A change of the configuration does that too.
    pub retry: bool,
}

/// The result of applying an [`Update`].
#[derive(Debug, Default)]
pub struct ApplyOutcome {
    /// Sockets that could not be bound, with the reason.
    pub unbound: Arc<BTreeMap<SocketKey, String>>,
    /// Listeners whose TLS configuration is invalid, with the error. The others serve.
    pub faulty: BTreeMap<FrontendId, String>,
}

/// A running data plane. Dropping it stops it at once.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<WorkerShared>,
    registry: Arc<Registry>,
    state: Arc<Mutex<ProxyState>>,
    threads: Vec<JoinHandle<()>>,
    /// Resolves DNS names; started when there are any.
    resolver: Option<Resolver>,
}

/// State that changes with an update or with the addresses of a DNS name.
#[derive(Debug, Default)]
struct ProxyState {
    workers: Vec<UnboundedSender<Command>>,
    /// Creates listening sockets.
    sockets: SocketFactory,
    bound: HashSet<SocketKey>,
    tls: TlsConfigs,
    config: Arc<ConfigSnapshot>,
    /// Tables of the mesh parents with a socket, for clients whose calls no route applies to.
    unrouted: UnroutedTables,
    /// Tables with the newest endpoints; those of `config` may have older ones.
    tables: Tables,
    endpoints: Arc<EndpointSet>,
    pods: PodMap,
    /// Sockets that could not be bound, with the reason.
    unbound: Arc<BTreeMap<SocketKey, String>>,
    /// Addresses that DNS names may resolve to.
    endpoint_policy: Arc<EndpointPolicy>,
    /// Refused addresses of DNS names.
    refused: RefusedNames,
    on_refused: RefusalCallback,
}

/// DNS names with those of their addresses that are refused.
pub(crate) type RefusedNames = BTreeMap<Arc<str>, Vec<IpAddr>>;

/// Called when the refused addresses change.
#[derive(Default)]
struct RefusalCallback(Option<Box<dyn Fn() + Send>>);

impl std::fmt::Debug for RefusalCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RefusalCallback")
    }
}

impl Proxy {
    /// Starts the workers. They listen on nothing before the first [`apply`](Self::apply).
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
        let tls = TlsConfigs::new(options.min_tls);
        let mut proxy = Proxy {
            shared: Arc::new(WorkerShared::new(options, capacity, log)),
            registry: Arc::default(),
            state: Arc::new(Mutex::new(ProxyState {
                sockets,
                endpoint_policy,
                tls,
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
                    if let Err(error) = worker_thread::run(shared, metrics, index, seed, commands) {
                        tracing::error!(%error, "can't start a worker");
                    }
                })?;
            lock(&proxy.state).workers.push(sender);
            proxy.threads.push(thread);
        }
        Ok(proxy)
    }

    /// Puts an update in effect before it returns: all workers listen on the new sockets and use the new tables for new requests.
    pub fn apply(&mut self, update: Update) -> ApplyOutcome {
        let mut state = lock(&self.state);
        let names = state.set_endpoints(&update.tables);
        let installation = state.prepare(update);
        if installation.config.is_some() || names.is_some() {
            state.record_own_names();
        }
        state.install(installation);
        let outcome = ApplyOutcome {
            unbound: state.unbound.clone(),
            faulty: state.tls.faulty().clone(),
        };
        drop(state);
        if let Some(names) = names {
            self.set_resolved_names(names);
        }
        outcome
    }

    /// Sets the DNS names to resolve.
    fn set_resolved_names(&mut self, wanted: BTreeSet<Arc<str>>) {
        if self.resolver.is_none() && !wanted.is_empty() {
            let state = self.state.clone();
            let started = Resolver::start(move |name, addresses| {
                lock(&state).set_name_addresses(name, addresses);
            });
            match started {
                Ok(resolver) => self.resolver = Some(resolver),
                Err(error) => tracing::error!(%error, "can't start the DNS resolver"),
            }
        }
        if let Some(resolver) = &self.resolver {
            resolver.set_names(wanted);
        }
    }

    /// Returns DNS names that resolve to refused addresses.
    pub(crate) fn refused_names(&self) -> RefusedNames {
        lock(&self.state).refused.clone()
    }

    /// Sets a callback for changes of [`refused_names`](Self::refused_names). It is called on another thread.
    pub(crate) fn on_refused(&self, notify: impl Fn() + Send + 'static) {
        lock(&self.state).on_refused = RefusalCallback(Some(Box::new(notify)));
    }

    /// Makes each HTTP/1 response announce the end of its connection, while connections are still accepted.
    pub fn announce_close(&self) {
        self.shared.announce_close();
    }

    /// Stops accepting and waits until connections end, or until the deadline. Returns the number of connections that were still open.
    pub fn drain(&mut self, deadline: Duration) -> usize {
        // Stops installing addresses of DNS names.
        self.resolver = None;
        let (done, replies) = channel();
        for worker in &lock(&self.state).workers {
            let done = done.clone();
            let _ = worker.send(Command::Drain { deadline, done });
        }
        drop(done);
        replies.iter().sum()
    }

    /// Returns a reader of the metrics for other threads.
    pub fn metrics(&self) -> MetricsReader {
        MetricsReader {
            registry: self.registry.clone(),
            state: self.state.clone(),
        }
    }

    /// Reopens the access log's file after a rotation.
    pub fn reopen_log(&self) -> io::Result<()> {
        self.shared.log.as_ref().map_or(Ok(()), AccessLog::reopen)
    }
}

/// Renders the metrics of a running data plane without delaying it.
#[derive(Debug, Clone)]
pub struct MetricsReader {
    registry: Arc<Registry>,
    state: Arc<Mutex<ProxyState>>,
}

impl MetricsReader {
    /// Renders all metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        let config = lock(&self.state).config.clone();
        self.registry.render(&config.tables)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The resolver first: it may still send to the workers.
        self.resolver = None;
        lock(&self.state).workers.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Tables of the mesh parents that have a socket. Those of `old` keep their weighted choices and metrics.
fn unrouted_tables(
    sockets: &BTreeMap<SocketKey, SocketOwner>,
    old: &UnroutedTables,
) -> UnroutedTables {
    let tables = sockets.iter().filter_map(|(key, owner)| {
        let SocketOwner::Mesh { parent, port } = owner else {
            return None;
        };
        let backend = BackendId::new(parent.clone(), *port, key.transport);
        let table = match old.get(&backend) {
            Some(table) => table.clone(),
            None => Arc::new(FrontendTable::unrouted(&backend)),
        };
        Some((backend, table))
    });
    tables.collect()
}

impl ProxyState {
    /// Sets the addresses of a DNS name, unless no backend uses it any more.
    fn set_name_addresses(&mut self, name: &Arc<str>, addresses: Vec<IpAddr>) {
        if !self.tables.names().any(|wanted| wanted == name) {
            return;
        }
        let policy = &self.endpoint_policy;
        let (refused, addresses): (Vec<IpAddr>, Vec<IpAddr>) = addresses
            .into_iter()
            .partition(|address| policy.refuses(*address).is_some());
        self.record_refused(name, refused, &addresses);
        let mut endpoints = (*self.endpoints).clone();
        Arc::make_mut(&mut endpoints.names).insert(name.clone(), addresses);
        self.endpoints = Arc::new(endpoints);
        let named = self.tables.backends_named(name);
        let changed = Changed {
            endpoints: named.cloned().collect(),
            ..Changed::default()
        };
        self.install(Installation {
            config: None,
            endpoints: self.endpoints.clone(),
            pods: None,
            changed,
        });
    }

    /// Records the refused addresses of a name: those that the policy refuses, and those at which the port of a backend is a server of Pointsman itself, which
    /// sockets refuse to connect to.
    fn record_refused(&mut self, name: &Arc<str>, mut refused: Vec<IpAddr>, allowed: &[IpAddr]) {
        let tables = &self.tables;
        let ports = tables
            .backends_named(name)
            .filter_map(|id| match &**tables.endpoints(id)? {
                Endpoints::Dns(_, port) if id.transport == Transport::Tcp => Some(*port),
                _ => None,
            });
        let ports: BTreeSet<u16> = ports.collect();
        let sockets = &self.sockets;
        let is_own = |ip: &IpAddr| {
            let mut endpoints = ports.iter().map(|port| SocketAddr::new(*ip, *port));
            endpoints.any(|endpoint| sockets.own_server(endpoint).is_some())
        };
        refused.extend(allowed.iter().copied().filter(is_own));
        let known = self
            .refused
            .get(name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if known == refused {
            return;
        }
        if !refused.is_empty() {
            tracing::warn!(%name, ?refused, "a backend's DNS name resolves to addresses that are not allowed; they get no traffic");
        }
        match refused.is_empty() {
            true => self.refused.remove(name),
            false => self.refused.insert(name.clone(), refused),
        };
        if let Some(notify) = &self.on_refused.0 {
            notify();
        }
    }

    /// Records which addresses of resolved names are refused because of the ports of their backends.
    fn record_own_names(&mut self) {
        let resolved = self.endpoints.names.clone();
        for (name, allowed) in &*resolved {
            let known = self.refused.get(name).into_iter().flatten();
            let by_policy = known.filter(|ip| !allowed.contains(ip)).copied().collect();
            self.record_refused(name, by_policy, allowed);
        }
    }

    /// Uses the tables' endpoints. Returns the DNS names to resolve if they may have changed.
    fn set_endpoints(&mut self, tables: &Tables) -> Option<BTreeSet<Arc<str>>> {
        let mut names = self.endpoints.names.clone();
        let wanted = (!tables.has_same_names(&self.tables)).then(|| {
            let wanted: BTreeSet<Arc<str>> = tables.names().cloned().collect();
            if names.keys().any(|name| !wanted.contains(name)) {
                Arc::make_mut(&mut names).retain(|name, _| wanted.contains(name));
            }
            self.refused.retain(|name, _| wanted.contains(name));
            wanted
        });
        self.endpoints = Arc::new(EndpointSet {
            bound: tables.endpoint_map().clone(),
            names,
        });
        self.tables = tables.clone();
        wanted
    }

    /// Returns what the workers have to install for an update.
    fn prepare(&mut self, update: Update) -> Installation {
        let same_sockets = Arc::ptr_eq(&self.config.sockets, &update.sockets);
        let same_config = !update.changed.beyond_endpoints && same_sockets;
        let retry = update.retry && !self.unbound.is_empty();
        let pods = (!self.pods.ptr_eq(&update.pods)).then(|| update.pods.clone());
        self.pods = update.pods;
        if !same_config || retry {
            self.tls.update(&update.tables, &update.changed);
            if !same_sockets {
                self.unrouted = unrouted_tables(&update.sockets, &self.unrouted);
            }
            self.config = Arc::new(ConfigSnapshot {
                frontends: SocketFrontends::all(&update.sockets, &update.tables, &self.unrouted),
                tables: update.tables,
                sockets: update.sockets,
                tls: self.tls.usable(),
            });
        }
        Installation {
            config: (!same_config || retry).then(|| self.config.clone()),
            endpoints: self.endpoints.clone(),
            pods,
            changed: update.changed,
        }
    }

    /// Sends an installation to the workers, with new sockets if it has a configuration.
    fn install(&mut self, installation: Installation) {
        if installation.is_empty() {
            return;
        }
        let sockets = match installation.config.is_some() {
            true => self.bind_sockets(),
            false => Vec::new(),
        };
        let mut sockets = sockets.into_iter();
        let installation = Arc::new(installation);
        self.send_and_wait(|done| Command::Install {
            installation: installation.clone(),
            sockets: sockets.next().unwrap_or_default(),
            done,
        });
    }

    /// Binds the sockets of the configuration that are not bound yet. Returns them by worker.
    fn bind_sockets(&mut self) -> Vec<Vec<NewSocket>> {
        let wanted = self.config.sockets.clone();
        self.bound.retain(|key| wanted.contains_key(key));
        let mut unbound = BTreeMap::new();
        let mut new_sockets: Vec<Vec<_>> = self.workers.iter().map(|_| Vec::new()).collect();
        for key in wanted.keys() {
            if self.bound.contains(key) {
                continue;
            }
            match bind(&self.sockets, key, self.workers.len()) {
                Ok(sockets) => {
                    self.bound.insert(*key);
                    for (of_worker, socket) in new_sockets.iter_mut().zip(sockets) {
                        of_worker.push((*key, socket));
                    }
                }
                Err(error) => drop(unbound.insert(*key, reason(&error))),
            }
        }
        if *self.unbound != unbound {
            self.unbound = Arc::new(unbound);
        }
        new_sockets
    }

    /// Sends each worker a command, and waits until all workers have replied or stopped.
    fn send_and_wait(&self, mut command: impl FnMut(Sender<()>) -> Command) {
        let (done, replies) = channel();
        for worker in &self.workers {
            let _ = worker.send(command(done.clone()));
        }
        drop(done);
        replies.iter().count();
    }
}

/// Explains to a user why a socket could not be bound.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "{error}: ports below 1024 require a privilege; with --port-offset 8000, port 80 is bound as 8080"
        ),
        io::ErrorKind::AddrInUse => "the address is in use by another program".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
