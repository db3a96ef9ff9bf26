//! The proxy's side of delta xDS: follows a control plane, reconnects, and reports back.
//! - [`Replica`] holds the received resources, without I/O.
//! - `connection` opens connections to control planes.
//! - `stream` follows one connection.
//! - [`TokenFile`] is the credential of a proxy that has no certificate.
//! - [`Cache`] keeps the last configuration on disk.
//! - [`ReportQueue`] queues reports.

mod cache;
mod connection;
mod queue;
mod replica;
mod stream;
mod token;

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
pub use queue::ReportQueue;
pub use replica::Replica;
pub(crate) use token::Credential;
pub use token::TokenFile;

/// Shortest and longest time between two attempts to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

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
    /// Gets the servers of control planes, as they become known.
    pub control_plane_servers: watch::Sender<OwnServers>,
}

/// A consistent state of the control plane that was received.
#[derive(Debug)]
pub struct Commit {
    /// Changes since the last one.
    pub delta: Delta,
    /// Version of the control plane's state.
    pub version: u64,
    /// Has to be notified when the changes are in effect. If it is dropped instead, the client stops.
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
    /// Attempts to connect that failed, and connections that were lost.
    pub failures: u64,
    /// The last failure.
    pub error: Option<String>,
}

/// Reads the state of a client from other threads.
#[derive(Clone, Debug, Default)]
pub struct StateReader(Arc<Mutex<ClientState>>);

impl StateReader {
    /// The current state.
    pub fn current(&self) -> ClientState {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows a control plane.
pub struct Client {
    options: ClientOptions,
    replica: Replica,
    /// Instance of the control plane and position of the last commit.
    position: Option<String>,
    reports: Arc<ReportQueue>,
    state: StateReader,
    commits: mpsc::Sender<Commit>,
    /// Time at which a changed configuration will be stored.
    store_at: Option<Instant>,
    storing: Option<JoinHandle<()>>,
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
            store_at: None,
            storing: None,
        }
    }

    /// A reader of the client's state.
    pub fn state(&self) -> StateReader {
        self.state.clone()
    }

    /// Follows one control plane after the other, until the receiver of commits is dropped.
    pub async fn run(mut self) {
        self.state.lock().disconnected = Some(Instant::now());
        if !self.replica.is_empty() && self.commit(0).await.is_ok() {
            let mut state = self.state.lock();
            state.is_cached = true;
            state.resources = self.replica.len();
        }
        let mut backoff = BACKOFF.0;
        let mut next = 0;
        while !self.commits.is_closed() {
            let url = &self.options.control_planes[next % self.options.control_planes.len()];
            let url = url.clone();
            let before = self.state.lock().version;
            let error = match self.connect_and_receive(&url).await {
                Ok(StreamError::TokenReplaced) => continue,
                Ok(error) => error.to_string(),
                Err(error) => error.to_string(),
            };
            if self.commits.is_closed() {
                return;
            }
            let was_connected = self.record_failure(&url, &error);
            if self.store_at.is_some() {
                // Without a connection, the next commit may be far away.
                self.store();
            }
            if was_connected && before != self.state.lock().version {
                backoff = BACKOFF.0;
            }
            next += 1;
            // The delay grows only after all control planes have been tried.
            if next % self.options.control_planes.len() == 0 {
                tokio::time::sleep(jittered(backoff, backoff / 2)).await;
                backoff = (backoff * 2).min(BACKOFF.1);
            }
        }
    }

    /// Connects to a control plane and follows it until the connection ends.
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

    /// Records that a connection has failed. Returns whether it had been established.
    fn record_failure(&self, url: &ControlPlaneUrl, error: &str) -> bool {
        let mut state = self.state.lock();
        let was_connected = state.connected.take().is_some();
        state.disconnected.get_or_insert_with(Instant::now);
        state.failures += 1;
        let is_new = state.error.as_deref() != Some(error);
        state.error = Some(error.to_owned());
        drop(state);
        if was_connected || is_new {
            tracing::warn!("control plane {url}: {error}");
        }
        was_connected
    }
}

#[cfg(test)]
mod tests;
