//! The proxy's side of delta xDS: follows a control plane, reconnects, and reports back.
//! - [`Replica`] holds the received resources, without I/O.
//! - `connection` opens connections to control planes.
//! - `stream` follows one connection.
//! - [`TokenFile`] is the credential of a proxy that has no certificate.
//! - [`Cache`] keeps the last configuration on disk.
//! - [`ReportQueue`] queues reports.
//! - [`ControlLoop`] puts received changes into effect.

mod cache;
mod connection;
mod control_loop;
mod metrics;
mod queue;
mod replica;
mod stream;
mod token;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pointsman_binding::{Delta, OwnServer, OwnServers};
use stream::StreamError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::jitter::jittered;
use crate::server::Subscription;
use crate::tls::ClientTls;

pub use cache::{Cache, CacheError};
pub(crate) use connection::connect;
pub use connection::{ControlPlaneConnectError, ControlPlaneUrl};
pub use control_loop::{ControlLoop, Event};
pub use queue::ReportQueue;
pub use replica::Replica;
pub(crate) use token::Credential;
pub use token::TokenFile;

/// Shortest and longest time between two attempts to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Time after which a connection counts as stable, so that the next loss starts with the shortest delay again. Without it, a control plane that accepts and fails at
/// once would be called by all of its proxies ten times per second.
const STABLE_TIME: Duration = Duration::from_secs(5);

/// Interval of warnings while no control plane can be reached.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Time from a change until it is stored, so that several changes are stored together.
const STORE_DELAY: Duration = Duration::from_secs(1);

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Control planes, which are tried in turn.
    pub control_planes: Vec<ControlPlaneUrl>,
    /// Name of the proxy.
    pub name: String,
    /// Version of the proxy's software.
    pub software: String,
    /// Certificates for control planes with `https`.
    pub tls: Option<Arc<ClientTls>>,
    /// File with the token to present to control planes with `https`, which is read for each connection.
    pub token: Option<TokenFile>,
    /// Directory for the last configuration.
    pub cache: Option<Cache>,
    /// The configuration that the proxy subscribes to.
    pub subscription: Subscription,
    /// Servers of the proxy itself, which no route may reach.
    pub own_servers: OwnServers,
    /// Receives the addresses of control planes' servers.
    pub control_plane_servers: watch::Sender<OwnServers>,
}

/// A consistent update received from the control plane.
#[derive(Debug)]
pub struct Commit {
    /// Changes since the last one.
    pub delta: Delta,
    /// Version of the control plane's state.
    pub version: u64,
    /// Notify when the changes are in effect. Dropping it stops the client.
    pub applied: oneshot::Sender<()>,
}

/// State of a client, for the admin server and metrics.
#[derive(Clone, Debug, Default)]
pub struct ClientState {
    /// Control plane that the client is connected to.
    pub connected: Option<String>,
    /// Time when the last connection was lost, or the client started; `None` while it is connected.
    pub disconnected: Option<Instant>,
    /// Version in effect; `None` before the first one.
    pub version: Option<u64>,
    /// The configuration in effect was read from disk.
    pub is_cached: bool,
    /// Number of resources.
    pub resources: usize,
    /// Names of resources that could not be decoded.
    pub rejected: Vec<String>,
    /// Failed connection attempts and lost connections.
    pub failures: u64,
    /// The last failure.
    pub error: Option<String>,
}

/// Reads the state of a client from other threads.
#[derive(Clone, Debug, Default)]
pub struct StateReader(Arc<Mutex<ClientState>>);

impl StateReader {
    /// Returns the current state.
    pub fn current(&self) -> ClientState {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client of control planes.
pub struct Client {
    options: ClientOptions,
    replica: Replica,
    /// Instance of the control plane and position of the last commit.
    position: Option<String>,
    reports: Arc<ReportQueue>,
    state: StateReader,
    commits: mpsc::Sender<Commit>,
    /// Time of the first commit of the current connection.
    connected_at: Option<Instant>,
    outage: Outage,
    /// Time at which a changed configuration will be stored.
    store_at: Option<Instant>,
    storing: Option<JoinHandle<()>>,
}

/// Log state since the last connection.
#[derive(Default)]
struct Outage {
    /// Failed attempts.
    attempts: u64,
    /// The last error of each control plane, by its position in the options.
    errors: BTreeMap<usize, String>,
    /// Time of the next warning, if nothing else has been logged by then.
    warn_at: Option<Instant>,
}

impl Client {
    /// Creates a client that starts with the resources of a replica. It sends commits to `commits`, and the contents of `reports` to the control plane.
    pub fn new(
        options: ClientOptions,
        replica: Replica,
        reports: Arc<ReportQueue>,
        commits: mpsc::Sender<Commit>,
    ) -> Self {
        Client {
            options,
            replica,
            position: None,
            reports,
            state: StateReader::default(),
            commits,
            connected_at: None,
            outage: Outage::default(),
            store_at: None,
            storing: None,
        }
    }

    /// Returns a reader of the client's state.
    pub fn state(&self) -> StateReader {
        self.state.clone()
    }

    /// Connects to the control planes in turn, until the receiver of commits is dropped.
    pub async fn run(mut self) {
        self.state.lock().disconnected = Some(Instant::now());
        if !self.replica.is_empty() && self.commit(0).await.is_ok() {
            let mut state = self.state.lock();
            state.is_cached = true;
            state.resources = self.replica.len();
        }
        let mut backoff = BACKOFF.0;
        for number in (0..self.options.control_planes.len()).cycle() {
            if self.commits.is_closed() {
                return;
            }
            let url = self.options.control_planes[number].clone();
            let error = match self.connect_and_receive(&url).await {
                Ok(StreamError::TokenReplaced) => continue,
                Ok(error) => error.to_string(),
                Err(error) => error.to_string(),
            };
            if self.commits.is_closed() {
                return;
            }
            self.record_failure(number, &error);
            if self.store_at.is_some() {
                // Without a connection, the next commit may be far away.
                self.store();
            }
            if self.was_stable() {
                backoff = BACKOFF.0;
            }
            // The delay grows only after all control planes have been tried.
            if number + 1 == self.options.control_planes.len() {
                tokio::time::sleep(jittered(backoff, backoff / 2)).await;
                backoff = (backoff * 2).min(BACKOFF.1);
            }
        }
    }

    /// Returns whether the connection that has ended had lasted for a while.
    fn was_stable(&mut self) -> bool {
        let connected_at = self.connected_at.take();
        connected_at.is_some_and(|at| at.elapsed() >= STABLE_TIME)
    }

    /// Connects to a control plane and receives from it until the connection ends.
    async fn connect_and_receive(
        &mut self,
        url: &ControlPlaneUrl,
    ) -> Result<StreamError, ControlPlaneConnectError> {
        let token = self.options.token.as_ref().filter(|_| url.has_tls());
        let token = token.map(TokenFile::read).transpose()?;
        let addresses = connection::resolve(url).await?;
        self.record_servers(|servers| {
            for address in &addresses {
                servers.add(OwnServer::ControlPlane, *address);
            }
        });
        let tls = self.options.tls.as_deref();
        let connection = connection::connect(url, &addresses, tls).await?;
        Ok(self.receive_from(url, connection, token).await)
    }

    /// Records servers of control planes. They are never removed: an address that a control plane no longer uses may belong to another server of it.
    fn record_servers(&self, add: impl FnOnce(&mut OwnServers)) {
        self.options
            .control_plane_servers
            .send_if_modified(|servers| {
                let before = servers.clone();
                add(servers);
                *servers != before
            });
    }

    /// Applies the received changes. Fails if this process is shutting down.
    async fn commit(&mut self, version: u64) -> Result<(), StreamError> {
        let (applied, is_applied) = oneshot::channel();
        let update = Commit {
            delta: self.replica.commit(),
            version,
            applied,
        };
        let sent = self.commits.send(update).await;
        sent.map_err(|_| StreamError::Shutdown)?;
        is_applied.await.map_err(|_| StreamError::Shutdown)
    }

    /// Schedules the configuration to be stored.
    fn store_soon(&mut self) {
        if self.options.cache.is_some() {
            let at = Instant::now() + STORE_DELAY;
            self.store_at.get_or_insert(at);
        }
    }

    /// Stores the configuration on another thread. If a part of the next version has already been received, the configuration is stored after the next commit.
    fn store(&mut self) {
        let is_storing = self
            .storing
            .as_ref()
            .is_some_and(|task| !task.is_finished());
        if is_storing || !self.replica.is_committed() {
            self.store_at = Some(Instant::now() + STORE_DELAY);
            return;
        }
        self.store_at = None;
        let Some(cache) = self.options.cache.clone() else {
            return;
        };
        let (replica, subscription) = (self.replica.clone(), self.options.subscription.clone());
        self.storing = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = cache.store(&subscription, &replica) {
                tracing::warn!("the configuration can't be stored: {error}");
            }
        }));
    }

    /// Records and logs that a connection, or an attempt to open one, has failed. The same error of a control plane is logged once, and after that a summary in
    /// intervals, so that the proxy is never silent while it has no control plane.
    fn record_failure(&mut self, number: usize, error: &str) {
        let mut state = self.state.lock();
        state.connected = None;
        let disconnected = *state.disconnected.get_or_insert_with(Instant::now);
        state.failures += 1;
        state.error = Some(error.to_owned());
        let in_effect = match (state.version, state.is_cached) {
            (None, _) => "nothing is served",
            (Some(_), true) => "the cached configuration stays in effect",
            (Some(_), false) => "the last configuration stays in effect",
        };
        drop(state);
        let url = &self.options.control_planes[number];
        let outage = &mut self.outage;
        outage.attempts += 1;
        let warn_at = outage
            .warn_at
            .unwrap_or_else(|| disconnected + WARNING_INTERVAL);
        let is_new = outage.errors.insert(number, error.to_owned()).as_deref() != Some(error);
        if is_new {
            tracing::warn!("control plane {url}: {error}; retrying, {in_effect}");
        } else if Instant::now() >= warn_at {
            let time = disconnected.elapsed().as_secs();
            let attempts = outage.attempts;
            tracing::warn!(
                "no control plane for {time}s after {attempts} attempts; {in_effect}; {url}: {error}"
            );
        } else {
            return;
        }
        outage.warn_at = Some(Instant::now() + WARNING_INTERVAL);
    }
}

#[cfg(test)]
mod tests;
