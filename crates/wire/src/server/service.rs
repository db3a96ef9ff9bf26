//! The gRPC service: the streams of proxies, and their status.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Request;
use hyper::body::Incoming;
use pointsman_binding::{Change, OwnServers};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::{Response, Status, Streaming};

use super::aggregate::ReportAggregator;
use super::codec::StreamCodec;
use super::controllers::{Controllers, RemoteProxy, reports, stream};
use super::encoded_change::EncodedChange;
use super::peer::{
    Authorize, AuthorizeController, CredentialValidity, Grant, Peer, Refusal, Token,
};
use super::proxies::{ConnectedProxy, Proxies};
use super::selector::{Subscription, SubscriptionRoot};
use super::session::{self, EncodedResponse};
use super::store::{
    EffectChanges, EffectHistogram, ProgressReport, ProxyId, RoutesToExamine, Store,
};
use crate::own_servers;
use crate::proto::{ControllerReport, ProxyReport, ReportSummary};
use crate::transport::{self, CONTROLLERS_PATH, DELTA_PATH, MAX_MESSAGE, REPORT_PATH};
use crate::xds::discovery::DeltaDiscoveryRequest;

/// Changed effects after which [`Server::take_effects`] returns. The last chunk may exceed it.
const MAX_EFFECTS: usize = 5_000;

/// Interval between two messages about the same refusal.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of refusals that are remembered.
const MAX_LOGGED_REFUSALS: usize = 1_000;

/// Largest report of a proxy: the first one has all addresses and listeners of its Gateways.
const MAX_REPORT: usize = 16 * 1024 * 1024;

/// A control plane for many proxies.
///
/// Locks are held for memory operations only, never while sending, so a slow proxy does not delay others.
pub struct Server {
    /// Random name that distinguishes this process from others and from its previous runs.
    instance: String,
    /// Name among the controllers of one cluster.
    name: Arc<str>,
    state: Mutex<ServerState>,
    reports: Mutex<ReportAggregator>,
    /// Position of the last change.
    changed: watch::Sender<u64>,
    is_closed: watch::Sender<bool>,
    authorize: Authorize,
    /// Decides which peers are controllers; `None` if there are no others.
    authorize_controller: Option<AuthorizeController>,
    /// Incremented when there is something to send to other controllers.
    pub(super) controller_changes: watch::Sender<u64>,
    /// Reason why this process has incomplete information on the proxies of other controllers.
    controllers_error: Mutex<Option<String>>,
    /// Servers of this process.
    own_servers: OwnServers,
    refusals: AtomicU64,
    /// Refusals that were logged a moment ago: refused proxies connect again and again.
    logged_refusals: Mutex<HashMap<String, Instant>>,
    rejected_credentials: AtomicU64,
    handshake_failures: AtomicU64,
    /// Called when there are new reports.
    notify: Box<dyn Fn() + Send + Sync>,
}

/// State of all streams.
#[derive(Default)]
pub(super) struct ServerState {
    pub store: Store,
    pub proxies: Proxies,
    pub controllers: Controllers,
}

type MessageStream<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

impl Server {
    /// Creates a control plane without resources. Calls `notify` when [`take_reports`](Self::take_reports) has something new.
    pub fn new(
        instance: String,
        authorize: Authorize,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Server {
            name: instance.as_str().into(),
            instance,
            state: Mutex::default(),
            reports: Mutex::default(),
            changed: watch::channel(0).0,
            is_closed: watch::channel(false).0,
            authorize,
            authorize_controller: None,
            controller_changes: watch::channel(0).0,
            controllers_error: Mutex::default(),
            own_servers: OwnServers::default(),
            refusals: AtomicU64::new(0),
            logged_refusals: Mutex::default(),
            rejected_credentials: AtomicU64::new(0),
            handshake_failures: AtomicU64::new(0),
            notify: Box::new(notify),
        }
    }

    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reports(&self) -> MutexGuard<'_, ReportAggregator> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies changed resources and sends them to the proxies that subscribe to them.
    pub fn apply(&self, changes: Vec<EncodedChange>) {
        let now = Instant::now();
        let mut state = self.state();
        if state.store.apply(changes, now) {
            let position = state.store.position();
            state.proxies.record_change(position, now);
            drop(state);
            self.changed.send_replace(position);
        }
    }

    /// Ends all streams. Proxies reconnect, to another control plane if they have several.
    pub fn shut_down(&self) {
        self.is_closed.send_replace(true);
    }

    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.is_closed.subscribe()
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns the number of subscriptions that were refused in part or as a whole.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Returns the number of TLS handshakes that failed.
    pub fn handshake_failures(&self) -> u64 {
        self.handshake_failures.load(Ordering::Relaxed)
    }

    /// Returns the number of streams that were refused because of their credential.
    pub fn rejected_credentials(&self) -> u64 {
        self.rejected_credentials.load(Ordering::Relaxed)
    }

    /// Counts a stream that was refused because of its credential.
    pub(super) fn count_rejected_credential(&self) {
        self.rejected_credentials.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a TLS handshake that failed.
    pub(super) fn count_handshake_failure(&self) {
        self.handshake_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a subscription that was refused in part or as a whole.
    pub(super) fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Logs a refusal, unless the same one was logged within a minute. Returns whether it was logged.
    pub(super) fn log_refusal(&self, message: String) -> bool {
        let now = Instant::now();
        let logged = self.logged_refusals.lock();
        let mut logged = logged.unwrap_or_else(PoisonError::into_inner);
        logged.retain(|_, at| now < *at + REFUSAL_LOG_INTERVAL);
        if logged.contains_key(&message) {
            return false;
        }
        tracing::warn!("{message}");
        // Refused proxies may choose their names.
        if logged.len() < MAX_LOGGED_REFUSALS {
            logged.insert(message, now);
        }
        true
    }

    pub(super) fn notify(&self) {
        (self.notify)();
    }

    /// Returns the reports of proxies since the last call.
    pub fn take_reports(&self) -> Vec<Change> {
        self.expire_reports();
        self.reports().take_changes()
    }

    /// Returns the servers of the proxies themselves. Routes must not use them as endpoints.
    pub fn own_servers_of_proxies(&self) -> OwnServers {
        self.reports().own_servers()
    }

    /// Sets the servers of the control plane itself. Routes must not use them as endpoints.
    pub fn with_own_servers(mut self, own_servers: OwnServers) -> Self {
        self.own_servers = own_servers;
        self
    }

    pub(super) fn own_servers(&self) -> &OwnServers {
        &self.own_servers
    }

    /// Sets the name of this controller among the controllers of one cluster, and decides which peers are other controllers.
    pub fn with_controllers(mut self, name: Arc<str>, authorize: AuthorizeController) -> Self {
        self.name = name;
        self.authorize_controller = Some(authorize);
        self
    }

    /// Returns the name of this controller.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the reason why this controller has incomplete information on the proxies of other controllers.
    pub fn controllers_error(&self) -> Option<String> {
        let error = self.controllers_error.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the result of [`controllers_error`](Self::controllers_error).
    pub fn set_controllers_error(&self, error: Option<String>) {
        let current = self.controllers_error.lock();
        *current.unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Returns the effects of routes that have changed since the last call. `unix` is the time in seconds since the Unix epoch.
    ///
    /// Routes are examined in chunks, between which the lock is released for the streams of proxies. If very many have changed, such as when the first proxy connects, some
    /// are left for the next call, which follows immediately: each needs memory for its new status.
    pub(super) fn take_effects(&self, routes: RoutesToExamine, unix: i64) -> EffectChanges {
        let mut found = EffectChanges::default();
        let mut cursor = None;
        loop {
            let mut state = self.state();
            let ServerState { store, proxies, .. } = &mut *state;
            let now = Instant::now();
            store.examine(routes, &mut cursor, (proxies, now, unix), &mut found);
            if reports::schedule_changed_routes(&mut state) {
                drop(state);
                self.wake_controller_streams();
            }
            if cursor.is_none() {
                return found;
            }
            // The rest stays pending for the next call.
            if found.changes.len() >= MAX_EFFECTS {
                found.next = Some(now);
                return found;
            }
        }
    }

    /// Times from changes of routes to their effect on all proxies that serve them.
    pub(super) fn effect_histogram(&self) -> EffectHistogram {
        self.state().store.effect_histogram().clone()
    }

    /// Number of routes and policies that are not known to be in effect on all proxies that serve them.
    pub(super) fn pending_routes(&self) -> usize {
        self.state().store.pending_routes()
    }

    /// Records that the reports that were taken are in effect.
    pub(super) fn record_applied_reports(&self) {
        self.reports().record_applied();
    }

    /// Returns whether there are reports of disconnected proxies, which expire after a while.
    pub fn has_expiring_reports(&self) -> bool {
        self.reports().has_disconnected() || self.state().controllers.has_disconnected()
    }

    /// Returns the proxies that are connected to this controller.
    pub fn local_proxies(&self) -> Vec<ProxyStatus> {
        let now = Instant::now();
        let mut observed: Vec<ObservedProxy> = {
            let state = self.state();
            let connected = state.proxies.connected().iter();
            let observed = connected.map(|(id, proxy)| ObservedProxy::new(&state, *id, proxy));
            observed.collect()
        };
        observed.sort_unstable_by_key(|proxy| proxy.id);
        let mut settled: HashMap<&str, Vec<&ObservedProxy>> = HashMap::new();
        for observed in observed.iter().filter(|it| it.proxy.is_settled(now)) {
            settled
                .entry(&observed.proxy.name)
                .or_default()
                .push(observed);
        }
        let with_namesake = observed.iter().map(|observed| {
            let proxy = Some(&observed.proxy).filter(|proxy| proxy.is_settled(now));
            let same_name = proxy.and_then(|proxy| settled.get(&*proxy.name));
            let mut others = same_name.into_iter().flatten();
            let other = others.find(|other| other.id != observed.id);
            (observed, other.map(|other| other.proxy.address))
        });
        with_namesake
            .map(|(observed, namesake)| observed.status(&self.name, namesake, now))
            .collect()
    }

    /// Returns the proxies that are connected to any controller, by name.
    pub fn proxies(&self) -> Vec<ProxyStatus> {
        let mut all = self.local_proxies();
        {
            let local: HashSet<&str> = all.iter().map(|proxy| &*proxy.key).collect();
            let state = self.state();
            let others = state.controllers.proxies().map(|(_, proxy)| proxy);
            // Another controller may not know yet that a proxy has moved from it to this one.
            let others = others.filter(|proxy| !local.contains(&*proxy.status.key));
            let others: Vec<RemoteProxy> = others.cloned().collect();
            drop(state);
            all.extend(others.iter().map(RemoteProxy::current));
        }
        let reports = self.reports();
        for proxy in &mut all {
            proxy.problems.extend(reports.problems(&proxy.key));
            proxy.reports_applied = reports.is_applied(&proxy.key);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Serves a connection until the proxy closes it.
    pub async fn serve<I>(self: Arc<Self>, io: I, peer: Peer) -> hyper::Result<()>
    where
        I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let respond = |request: Request<Incoming>| {
            let (server, peer) = (self.clone(), peer.clone());
            async move { server.respond(request, peer).await }
        };
        transport::serve(io, respond).await
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        mut peer: Peer,
    ) -> http::Response<Body> {
        peer.token = Token::from_headers(request.headers());
        match request.uri().path() {
            DELTA_PATH => {
                let codec = StreamCodec::<EncodedResponse, DeltaDiscoveryRequest>::default();
                let mut grpc = tonic::server::Grpc::new(codec)
                    .apply_max_message_size_config(Some(session::MAX_REQUEST), None);
                grpc.streaming(DeltaService { server: self, peer }, request)
                    .await
            }
            REPORT_PATH => {
                let codec = StreamCodec::<ReportSummary, ProxyReport>::default();
                let mut grpc = tonic::server::Grpc::new(codec)
                    .apply_max_message_size_config(Some(MAX_REPORT), None);
                grpc.client_streaming(ReportService { server: self, peer }, request)
                    .await
            }
            CONTROLLERS_PATH if self.authorize_controller.is_some() => {
                let codec = StreamCodec::<ControllerReport, ControllerReport>::default();
                let mut grpc = tonic::server::Grpc::new(codec)
                    .apply_max_message_size_config(Some(MAX_MESSAGE), None);
                grpc.streaming(ControllerService { server: self, peer }, request)
                    .await
            }
            _ => Status::unimplemented("no such method").into_http(),
        }
    }

    /// Returns the subscription that a peer is permitted.
    pub(super) async fn authorize(&self, peer: Peer) -> Result<Grant, Refusal> {
        (self.authorize)(peer).await
    }

    /// Verifies that a peer is another controller.
    async fn authorize_controller(&self, peer: Peer) -> Result<CredentialValidity, Refusal> {
        let address = peer.address;
        let Some(authorize) = &self.authorize_controller else {
            return Err(Refusal::Forbidden(
                "this controller has no replicas".to_owned(),
            ));
        };
        let validity = authorize(peer).await;
        if let Err(refusal) = &validity {
            match refusal {
                Refusal::Unauthenticated(_) => self.count_rejected_credential(),
                Refusal::Forbidden(_) => self.count_refusal(),
                Refusal::Unavailable(_) => {}
            }
            tracing::warn!("connection of replica {address} rejected: {refusal}");
        }
        validity
    }

    async fn receive_reports(
        &self,
        peer: Peer,
        mut reports: Streaming<ProxyReport>,
    ) -> Result<(), Status> {
        // A refusal is logged and counted by the stream of resources.
        let address = peer.address;
        let grant = self.authorize(peer).await?;
        let Some(first) = reports.message().await? else {
            return Ok(());
        };
        if first.proxy.is_empty() {
            return Err(Status::invalid_argument(
                "the first message has to name the proxy",
            ));
        }
        session::check_name(&first.proxy)?;
        let name = grant.name.resolve(&first.proxy);
        let proxy = grant.name.key(&first.proxy, &grant.identities);
        let own_servers = own_servers::decode(&first.own_servers);
        let own_servers = own_servers::on_machine(&own_servers, address.ip());
        let stream = self.reports().start(&proxy, &name, own_servers);
        let mut next = Some(first);
        let mut credential_ended = pin!(grant.validity.ended());
        let result = loop {
            if let Some(report) = next.take() {
                let mut changes = crate::reports::decode_report(report);
                match grant.permission_check.permitted() {
                    Ok(allowed) => changes.retain(|change| is_allowed(&allowed, change)),
                    // The stream of resources will end soon, and this stream with it.
                    Err(_) => changes.clear(),
                }
                self.reports().apply(&proxy, stream, changes);
                self.schedule_reports(std::slice::from_ref(&proxy));
                self.notify();
            }
            tokio::select! {
                message = reports.message() => match message {
                    Ok(Some(report)) => next = Some(report),
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status),
                },
                status = &mut credential_ended => break Err(status),
            }
        };
        self.reports().end(&proxy, stream, Instant::now());
        self.schedule_reports(std::slice::from_ref(&proxy));
        self.notify();
        result
    }
}

/// Returns whether a proxy with this subscription may report a change.
fn is_allowed(allowed: &Subscription, change: &Change) -> bool {
    match (allowed, change) {
        (Subscription::Everything, _) => true,
        (_, Change::Observe(name, _)) => {
            let dataplane = pointsman_resources::ObjectKey {
                kind: pointsman_resources::Kind::Dataplane,
                name: name.clone(),
            };
            allowed.selects(&SubscriptionRoot::Gateway(name.clone()))
                || allowed.selects(&SubscriptionRoot::Dataplane(dataplane))
        }
        (_, Change::Need(..) | Change::RefusedResolution(..)) => true,
        _ => false,
    }
}

/// Status of a connected proxy.
#[derive(Clone, Debug)]
pub struct ProxyStatus {
    /// Name of the controller that it is connected to.
    pub controller: String,
    /// Name of the proxy.
    pub name: String,
    /// Distinguishes proxies of the same name: contains what the proxy has proven.
    pub key: String,
    /// Names proven by its certificate or token; empty without either.
    pub identities: Vec<String>,
    /// Address that it connects from.
    pub address: SocketAddr,
    /// Version of its software.
    pub software: String,
    /// Subscription, as text.
    pub subscription: String,
    /// Time since it connected.
    pub connected: Duration,
    /// Version that is in effect; `None` before the first one.
    pub version: Option<u64>,
    /// Version that it should have.
    pub target: u64,
    /// Time since the oldest change that it has not acknowledged; `None` if there is none.
    pub lag: Option<Duration>,
    /// Number of resources that it subscribes to.
    pub resources: usize,
    /// Bytes of configuration that were sent.
    pub bytes: u64,
    /// The first resources that it can't use, with the reasons.
    pub rejected: BTreeMap<String, String>,
    /// Number of all resources that it can't use.
    pub rejected_count: usize,
    /// Other problems that it has reported.
    pub problems: Vec<String>,
    /// True if statuses reflect all its reports.
    pub reports_applied: bool,
}

/// State of a connected proxy from which its status is built. Copying it takes little time, because an update of the configuration waits for it.
struct ObservedProxy {
    id: ProxyId,
    proxy: Arc<ConnectedProxy>,
    progress: ProgressReport,
    /// Time of the oldest change that it has not acknowledged; `None` if there is none.
    lagging_since: Option<Instant>,
}

impl ObservedProxy {
    fn new(state: &ServerState, id: ProxyId, proxy: &Arc<ConnectedProxy>) -> Self {
        let ServerState { store, proxies, .. } = state;
        let progress = store.progress(id).unwrap_or_default();
        let is_current = progress.acknowledged >= Some(progress.target);
        let lagging = (!is_current).then(|| proxies.change_after(progress.acknowledged));
        let connected = proxy.connected;
        ObservedProxy {
            id,
            proxy: proxy.clone(),
            progress,
            lagging_since: lagging.map(|change| change.unwrap_or(connected).max(connected)),
        }
    }

    /// Builds the status. `namesake` is the address of another proxy of the same name.
    fn status(&self, controller: &str, namesake: Option<SocketAddr>, now: Instant) -> ProxyStatus {
        let (proxy, progress) = (&self.proxy, self.progress);
        let problems = namesake.map(|other| format!("the proxy at {other} has the same name"));
        ProxyStatus {
            controller: controller.to_owned(),
            name: proxy.name.clone(),
            key: proxy.key.clone(),
            identities: proxy.identities.clone(),
            address: proxy.address,
            software: proxy.software.clone(),
            subscription: proxy.subscription.to_string(),
            connected: now - proxy.connected,
            version: progress.acknowledged,
            target: progress.target,
            lag: self.lagging_since.map(|since| now - since),
            resources: progress.resources,
            bytes: proxy.bytes,
            rejected: proxy.rejected.clone(),
            rejected_count: proxy.rejected_count,
            problems: problems.into_iter().collect(),
            reports_applied: false,
        }
    }
}

struct DeltaService {
    server: Arc<Server>,
    peer: Peer,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

impl tonic::server::StreamingService<DeltaDiscoveryRequest> for DeltaService {
    type Response = EncodedResponse;
    type ResponseStream = MessageStream<EncodedResponse>;
    type Future = BoxFuture<Response<Self::ResponseStream>>;

    fn call(&mut self, requests: tonic::Request<Streaming<DeltaDiscoveryRequest>>) -> Self::Future {
        // A small buffer, because changes taken from the log are no longer coalesced.
        let (responses, stream) = mpsc::channel(2);
        let (server, peer) = (self.server.clone(), self.peer.clone());
        tokio::spawn(async move {
            let requests = requests.into_inner();
            if let Err(status) = session::run(&server, peer, requests, &responses).await {
                // The proxy may have gone, or not read.
                let farewell = responses.send(Err(status));
                let _ = tokio::time::timeout(session::FAREWELL_TIMEOUT, farewell).await;
            }
        });
        let stream: Self::ResponseStream = Box::pin(ReceiverStream::new(stream));
        Box::pin(async move { Ok(Response::new(stream)) })
    }
}

struct ReportService {
    server: Arc<Server>,
    peer: Peer,
}

impl tonic::server::ClientStreamingService<ProxyReport> for ReportService {
    type Response = ReportSummary;
    type Future = BoxFuture<Response<ReportSummary>>;

    fn call(&mut self, reports: tonic::Request<Streaming<ProxyReport>>) -> Self::Future {
        let (server, peer) = (self.server.clone(), self.peer.clone());
        Box::pin(async move {
            server.receive_reports(peer, reports.into_inner()).await?;
            Ok(Response::new(ReportSummary {}))
        })
    }
}

struct ControllerService {
    server: Arc<Server>,
    peer: Peer,
}

impl tonic::server::StreamingService<ControllerReport> for ControllerService {
    type Response = ControllerReport;
    type ResponseStream = MessageStream<ControllerReport>;
    type Future = BoxFuture<Response<Self::ResponseStream>>;

    fn call(&mut self, reports: tonic::Request<Streaming<ControllerReport>>) -> Self::Future {
        let (server, peer) = (self.server.clone(), self.peer.clone());
        Box::pin(async move {
            let validity = server.authorize_controller(peer).await?;
            let (responses, stream) = mpsc::channel(1);
            tokio::spawn(async move {
                let reports = reports.into_inner();
                let ended = tokio::select! {
                    result = stream::run(&server, true, reports, &responses, Ok) => result,
                    status = validity.ended() => Err(status),
                };
                if let Err(status) = ended {
                    // The other controller may have disconnected.
                    let _ = responses.send(Err(status)).await;
                }
            });
            let stream: Self::ResponseStream = Box::pin(ReceiverStream::new(stream));
            Ok(Response::new(stream))
        })
    }
}
