//! One proxy's stream of delta xDS. `control.proto` describes its steps.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status, Streaming};

use super::peer::{CredentialValidity, Grant, Peer, PermissionCheck, Refusal};
use super::proxies::{ConnectedProxy, NAMESAKE_GRACE, UNNAMED};
use super::selector::Subscription;
use super::service::{Server, ServerState};
use super::store::{Batch, Comparison, ProxyId, Resume, Store};
use crate::resource::ResourceType;
use crate::xds::core::ControlPlane;
use crate::xds::discovery::DeltaDiscoveryRequest;
use crate::{own_servers, proto};

/// Type URL of `Snapshot`.
pub const SNAPSHOT_URL: &str = "type.googleapis.com/pointsman.v1.Snapshot";

/// Type URL of `Rejections`.
pub const REJECTIONS_URL: &str = "type.googleapis.com/pointsman.v1.Rejections";

/// Name under which a proxy sends the position of its last commit.
pub const POSITION: &str = "position";

/// Largest request.
pub const MAX_REQUEST: usize = 4 * 1024 * 1024;

/// Bytes of one response, unless a single resource is larger. A stream keeps the buffer in which its last response was encoded.
const RESPONSE_BYTES: usize = 32 * 1024;

/// Maximum number of bytes that are sent without an acknowledgement.
const WINDOW: usize = 512 * 1024;

/// Memory for the resources that a proxy lists when it connects: four bytes each, and the names of those that it has to remove.
const MAX_COMPARISON: usize = 64 * 1024 * 1024;

/// Maximum number of rejected resources whose reasons are kept for a proxy.
const MAX_REASONS: usize = 100;

/// Maximum length of a proxy's name, that of a DNS name.
const MAX_NAME: usize = 253;

/// Maximum number of Gateways and Dataplanes that a proxy may subscribe to.
const MAX_SELECTORS: usize = 1_000;

/// Maximum length of one of them: two names and a kind.
const MAX_SELECTOR: usize = 2 * MAX_NAME + 16;

/// Time between two checks of a proxy's permission.
const PERMISSION_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Time for the last response to reach the proxy.
pub const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the requests with which a stream starts.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A `DeltaDiscoveryResponse` whose resources are already encoded: fields of type bytes and message have the same encoding.
#[derive(Clone, PartialEq, Message)]
pub struct EncodedResponse {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub resources: Vec<Bytes>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
    #[prost(message, optional, tag = "7")]
    pub control_plane: Option<ControlPlane>,
}

/// Responses on their way to the proxy.
type Responses = mpsc::Sender<Result<EncodedResponse, Status>>;

/// A response that was sent and is not acknowledged.
struct Unacknowledged {
    nonce: u64,
    bytes: usize,
    commit: Option<u64>,
}

/// The permission under which a stream was started.
struct StreamPermission {
    /// Subscription that the proxy has requested.
    wanted: Subscription,
    /// Part of it that was permitted.
    permitted: Subscription,
    permission_check: PermissionCheck,
}

impl StreamPermission {
    /// Returns the status with which the stream ends if the permission has changed.
    fn check(&self) -> Result<(), Status> {
        let permitted = match self.permission_check.permitted() {
            Ok(allowed) => self.wanted.restrict(&allowed),
            Err(Refusal::Unavailable(_)) => return Ok(()),
            Err(refusal) => return Err(refusal.into()),
        };
        if permitted == self.permitted {
            return Ok(());
        }
        if permitted.is_empty() {
            return Err(Status::permission_denied(NOTHING_PERMITTED));
        }
        Err(Status::unavailable(
            "the permission of the proxy has changed; reconnect",
        ))
    }

    /// Waits until the permission has changed.
    async fn changed(self) -> Status {
        loop {
            sleep(PERMISSION_CHECK_INTERVAL).await;
            if let Err(status) = self.check() {
                return status;
            }
        }
    }
}

/// Message to a proxy that may not subscribe to anything.
const NOTHING_PERMITTED: &str =
    "the proxy is not permitted to subscribe to any of the requested resources";

/// A connected proxy. Disconnects it when dropped.
struct Session<'s> {
    server: &'s Server,
    id: ProxyId,
    /// Address that the proxy connects from.
    address: SocketAddr,
    responses: &'s Responses,
    nonce: u64,
    unacknowledged: VecDeque<Unacknowledged>,
    /// A batch is being sent.
    is_sending: bool,
    /// Rejections of the next acknowledgement that have been received already.
    rejections: RejectionList,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut state = self.server.state();
        state.store.disconnect(self.id, Instant::now());
        state.proxies.remove(self.id);
        drop(state);
        self.server.wake_controller_streams();
        self.server.notify();
    }
}

/// Runs a stream until the proxy or this process ends it.
pub async fn run(
    server: &Server,
    peer: Peer,
    mut requests: Streaming<DeltaDiscoveryRequest>,
    responses: &Responses,
) -> Result<(), Status> {
    let timed_out = |_| Status::deadline_exceeded("the first requests were not received in time");
    let start = Session::start(server, peer, &mut requests, responses);
    let (mut session, permission, validity) =
        timeout(START_TIMEOUT, start).await.map_err(timed_out)??;
    let mut closing = server.closing();
    // A proxy that does not read blocks sending, but no revocation.
    let ended = tokio::select! {
        ended = session.exchange(&mut requests) => {
            session.log_end(ended.as_ref().err());
            return ended;
        }
        status = validity.ended() => status,
        status = permission.changed() => status,
        _ = closing.wait_for(|is_closed| *is_closed) => {
            return Err(Status::unavailable("the control plane is shutting down"));
        }
    };
    if ended.code() == Code::PermissionDenied {
        session.send_removals().await?;
    }
    Err(session.revoke(ended))
}

impl<'s> Session<'s> {
    async fn start(
        server: &'s Server,
        peer: Peer,
        requests: &mut Streaming<DeltaDiscoveryRequest>,
        responses: &'s Responses,
    ) -> Result<(Self, StreamPermission, CredentialValidity), Status> {
        let first = requests.message().await?;
        let first = first.ok_or_else(|| Status::invalid_argument("a request is missing"))?;
        if first.type_url != SNAPSHOT_URL {
            let expected = format!("the first request has to be of type {SNAPSHOT_URL}");
            return Err(Status::invalid_argument(expected));
        }
        let node = first.node.unwrap_or_default();
        if node.id.is_empty() {
            return Err(Status::invalid_argument(
                "the proxy has to name itself in node.id",
            ));
        }
        check_name(&node.id)?;
        let selectors = &first.resource_names_subscribe;
        if selectors.len() > MAX_SELECTORS || selectors.iter().any(|s| s.len() > MAX_SELECTOR) {
            return Err(Status::invalid_argument("the subscription is too large"));
        }
        let wanted = Subscription::parse(selectors);
        let wanted = wanted.map_err(Status::invalid_argument)?;
        let address = peer.address;
        let negotiated = negotiate_subscription(server, peer, &node.id, &wanted).await;
        let (grant, subscription) = negotiated?;
        let permission = StreamPermission {
            wanted,
            permitted: subscription.clone(),
            permission_check: grant.permission_check,
        };
        let mut digest = first.initial_resource_versions;
        let position = digest.remove(POSITION);
        let position = position.and_then(|text| {
            let (instance, position) = text.split_once(':')?;
            (instance == server.instance()).then(|| position.parse().ok())?
        });
        let (id, resume) = {
            let mut state = server.state();
            let now = Instant::now();
            let (id, resume) = state.store.connect(&subscription, &digest, position, now);
            let proxy = ConnectedProxy {
                name: grant.name.resolve(&node.id),
                key: grant.name.key(&node.id, &grant.identities),
                software: software(node.user_agent_version_type),
                address,
                identities: grant.identities,
                subscription,
                connected: now,
                bytes: 0,
                rejected: BTreeMap::new(),
                rejected_count: 0,
            };
            let name = &proxy.name;
            tracing::info!("proxy {name} ({address}) connected");
            let progress = state.store.progress(id);
            let has_resources = progress.is_some_and(|progress| progress.resources > 0);
            if !has_resources && let Subscription::Selected(_) = &proxy.subscription {
                let subscription = &proxy.subscription;
                tracing::warn!(
                    "proxy {name} subscribes to {subscription}, for which there is no configuration"
                );
            }
            state.proxies.insert(id, proxy);
            (id, resume)
        };
        // Effects are examined again if the proxy does not acknowledge in time.
        server.wake_controller_streams();
        server.notify();
        let mut session = Session {
            server,
            id,
            address,
            responses,
            nonce: 0,
            unacknowledged: VecDeque::new(),
            is_sending: false,
            rejections: RejectionList::default(),
        };
        if let Resume::Compare(buckets) = resume {
            session.compare(buckets, requests).await?;
        }
        Ok((session, permission, grant.validity))
    }

    /// Sends changes and receives acknowledgements until the proxy ends the stream.
    async fn exchange(
        &mut self,
        requests: &mut Streaming<DeltaDiscoveryRequest>,
    ) -> Result<(), Status> {
        let mut changed = self.server.changes();
        let mut namesake_known = pin!(sleep(NAMESAKE_GRACE));
        let mut is_namesake_known = false;
        loop {
            self.send_changes().await?;
            tokio::select! {
                request = requests.message() => match request? {
                    Some(request) => self.acknowledge(request),
                    None => return Ok(()),
                },
                Ok(()) = changed.changed() => {}
                () = &mut namesake_known, if !is_namesake_known => {
                    is_namesake_known = true;
                    self.warn_of_namesake();
                }
            }
        }
    }

    /// Sends what was removed to a proxy that is not permitted anything any more, perhaps because its Gateway was removed. It gets nothing else.
    async fn send_removals(&mut self) -> Result<(), Status> {
        if self.is_sending {
            // The batch that it has not read is lost, and nothing may be sent after it.
            return Ok(());
        }
        let batch = self.server.state().store.next_batch(self.id, usize::MAX);
        match batch.filter(|batch| batch.updates.is_empty() && !batch.removals.is_empty()) {
            Some(removals) => {
                let sent = timeout(FAREWELL_TIMEOUT, self.send(removals)).await;
                sent.unwrap_or(Ok(()))
            }
            None => Ok(()),
        }
    }

    /// Logs that the proxy has ended the stream, or that its connection was lost.
    fn log_end(&self, error: Option<&Status>) {
        let state = self.server.state();
        if let Some(proxy) = state.proxies.connected().get(&self.id) {
            let ConnectedProxy { name, address, .. } = &**proxy;
            match error.map(Status::message).filter(|text| !text.is_empty()) {
                Some(reason) => tracing::info!("proxy {name} ({address}) disconnected: {reason}"),
                None => tracing::info!("proxy {name} ({address}) disconnected"),
            }
        }
    }

    /// Logs that another proxy has the same name.
    fn warn_of_namesake(&self) {
        let state = self.server.state();
        if let Some(other) = state.proxies.namesake(self.id, Instant::now())
            && let Some(proxy) = state.proxies.connected().get(&self.id)
            && let ConnectedProxy { name, address, .. } = &**proxy
        {
            tracing::warn!("two proxies are named {name}, at {other} and at {address}");
        }
    }

    /// Logs that the stream ends because the proxy's permission has changed.
    fn revoke(&self, status: Status) -> Status {
        let state = self.server.state();
        if let Some(proxy) = state.proxies.connected().get(&self.id) {
            let (name, reason) = (&proxy.name, status.message());
            tracing::info!("closing the stream of proxy {name}: {reason}");
        }
        status
    }

    /// Requests the proxy's resources in some buckets, and compares them.
    async fn compare(
        &mut self,
        buckets: Vec<u16>,
        requests: &mut Streaming<DeltaDiscoveryRequest>,
    ) -> Result<(), Status> {
        let state = proto::snapshot::State::Differing(proto::Buckets {
            buckets: buckets.iter().copied().map(Into::into).collect(),
        });
        self.send_snapshot(state, None).await?;
        let nonce = self.nonce.to_string();
        self.unacknowledged.clear();
        let mut found = Comparison::default();
        loop {
            let request = requests.message().await?;
            let request = request.ok_or_else(|| Status::cancelled("the proxy disconnected"))?;
            if request.response_nonce != nonce {
                return Err(Status::invalid_argument("a list of resources is expected"));
            }
            let listed = request.initial_resource_versions;
            let mut state = self.server.state();
            if listed.is_empty() {
                state.store.finish_comparison(self.id, &buckets, found);
                return Ok(());
            }
            state.store.compare(self.id, listed, &mut found);
            if found.size() > MAX_COMPARISON {
                return Err(Status::resource_exhausted("too many resources are listed"));
            }
        }
    }

    /// Sends changes while the amount of unacknowledged bytes is below the limit.
    async fn send_changes(&mut self) -> Result<(), Status> {
        loop {
            let unacknowledged_bytes: usize =
                self.unacknowledged.iter().map(|sent| sent.bytes).sum();
            if unacknowledged_bytes >= WINDOW {
                return Ok(());
            }
            let batch = {
                let mut state = self.server.state();
                if !state.store.has_changes(self.id) {
                    return Ok(());
                }
                let batch = state.store.next_batch(self.id, RESPONSE_BYTES);
                batch.ok_or_else(|| Status::aborted("too far behind; reconnect"))?
            };
            self.is_sending = true;
            self.send(batch).await?;
            self.is_sending = false;
        }
    }

    async fn send(&mut self, batch: Batch) -> Result<(), Status> {
        let mut types: BTreeMap<ResourceType, (Vec<Bytes>, Vec<String>)> = BTreeMap::new();
        for (kind, message) in batch.updates {
            types.entry(kind).or_default().0.push(message);
        }
        for (kind, name) in batch.removals {
            types.entry(kind).or_default().1.push(name.to_string());
        }
        for (kind, (resources, removed_resources)) in types {
            let response = EncodedResponse {
                resources,
                removed_resources,
                type_url: kind.url().to_owned(),
                ..EncodedResponse::default()
            };
            self.send_response(response, None).await?;
        }
        if let Some(position) = batch.commit {
            let version = position;
            let own_servers = own_servers::encode(self.server.own_servers(), self.address.ip());
            let state = proto::snapshot::State::Commit(proto::Commit {
                version,
                own_servers,
            });
            self.send_snapshot(state, Some(position)).await?;
        }
        Ok(())
    }

    async fn send_snapshot(
        &mut self,
        state: proto::snapshot::State,
        commit: Option<u64>,
    ) -> Result<(), Status> {
        let snapshot = proto::Snapshot { state: Some(state) };
        let commit_position = commit.and_then(|commit| {
            let state = self.server.state();
            state.store.position_of(self.id, commit)
        });
        let version = commit_position.map_or_else(String::new, |position| {
            format!("{}:{position}", self.server.instance())
        });
        let resource = crate::xds::discovery::Resource {
            name: "snapshot".to_owned(),
            version,
            resource: Some(prost_types::Any {
                type_url: SNAPSHOT_URL.to_owned(),
                value: snapshot.encode_to_vec(),
            }),
        };
        let response = EncodedResponse {
            resources: vec![resource.encode_to_vec().into()],
            type_url: SNAPSHOT_URL.to_owned(),
            control_plane: Some(ControlPlane {
                identifier: self.server.instance().to_owned(),
            }),
            ..EncodedResponse::default()
        };
        self.send_response(response, commit).await
    }

    async fn send_response(
        &mut self,
        mut response: EncodedResponse,
        commit: Option<u64>,
    ) -> Result<(), Status> {
        self.nonce += 1;
        response.nonce = self.nonce.to_string();
        let bytes = response.encoded_len();
        self.unacknowledged.push_back(Unacknowledged {
            nonce: self.nonce,
            bytes,
            commit,
        });
        if let Some(proxy) = self.server.state().proxies.get_mut(self.id) {
            proxy.bytes += bytes as u64;
        }
        let sent = self.responses.send(Ok(response)).await;
        sent.map_err(|_| Status::cancelled("the proxy disconnected"))
    }

    /// Records an acknowledgement.
    fn acknowledge(&mut self, request: DeltaDiscoveryRequest) {
        let Ok(nonce) = request.response_nonce.parse::<u64>() else {
            // A part of the rejections of the next acknowledgement.
            let mut state = self.server.state();
            self.rejections.add(&request, self.id, &mut state.store);
            return;
        };
        let mut commit = None;
        while let Some(sent) = self.unacknowledged.front()
            && sent.nonce <= nonce
        {
            commit = sent.commit.or(commit);
            self.unacknowledged.pop_front();
        }
        let Some(commit) = commit else { return };
        let mut rejections = std::mem::take(&mut self.rejections);
        let now = Instant::now();
        let mut state = self.server.state();
        let ServerState { store, proxies, .. } = &mut *state;
        rejections.add(&request, self.id, store);
        if rejections.count == 0
            && let Some(error) = &request.error_detail
        {
            let reason = shortened(error.message.clone());
            rejections.reasons.insert(UNNAMED.to_owned(), reason);
            rejections.count = 1;
        }
        let mut has_changes = store.acknowledge(self.id, commit, now);
        if let Some(proxy) = proxies.get_mut(self.id) {
            has_changes |= rejections.record(self.id, proxy, store, now);
        }
        drop(state);
        if has_changes {
            self.server.notify();
        }
    }
}

/// Authorizes a proxy. Returns its grant, and the permitted part of the subscription that it wants.
async fn negotiate_subscription(
    server: &Server,
    peer: Peer,
    proxy: &str,
    wanted: &Subscription,
) -> Result<(Grant, Subscription), Status> {
    let address = peer.address;
    let has_no_name = peer.identities.as_deref().is_some_and(<[_]>::is_empty);
    let grant = match server.authorize(peer).await {
        Ok(grant) => grant,
        Err(refusal) => return Err(refuse(server, proxy, address, refusal)),
    };
    let refused = wanted.refused(&grant.subscription);
    let subscription = wanted.restrict(&grant.subscription);
    let identity = match has_no_name {
        true => "its certificate has no DNS or URI name".to_owned(),
        false => grant.identities.join(", "),
    };
    if !refused.is_empty() {
        let names: Vec<String> = refused.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        server.count_refusal();
        server.log_refusal(format!(
            "proxy {proxy} ({identity}) may not subscribe to {names}"
        ));
    } else if subscription.is_empty() {
        server.count_refusal();
        server.log_refusal(format!(
            "proxy {proxy} ({identity}) may not subscribe to anything; it asked for {wanted}"
        ));
    }
    match subscription.is_empty() {
        true => Err(Status::permission_denied(NOTHING_PERMITTED)),
        false => Ok((grant, subscription)),
    }
}

/// Returns an error if the name that a proxy gives itself is too long.
pub fn check_name(name: &str) -> Result<(), Status> {
    match name.len() > MAX_NAME {
        true => Err(Status::invalid_argument(
            "the name of the proxy is too long",
        )),
        false => Ok(()),
    }
}

/// Logs and counts a refusal.
fn refuse(server: &Server, proxy: &str, address: SocketAddr, refusal: Refusal) -> Status {
    match &refusal {
        Refusal::Unauthenticated(_) => server.count_rejected_credential(),
        Refusal::Forbidden(_) => server.count_refusal(),
        // The verification itself failed, so the proxy is not at fault.
        Refusal::Unavailable(_) => {}
    }
    // Each attempt has another port.
    let ip = address.ip();
    server.log_refusal(format!("proxy {proxy} ({ip}) is refused: {refusal}"));
    refusal.into()
}

/// Resources that an acknowledgement rejects, of which the store keeps the names.
#[derive(Default)]
struct RejectionList {
    count: usize,
    /// Reasons of the first ones.
    reasons: BTreeMap<String, String>,
}

impl RejectionList {
    /// Adds the rejections of a request.
    fn add(&mut self, request: &DeltaDiscoveryRequest, id: ProxyId, store: &mut Store) {
        let details = request.error_detail.iter().flat_map(|error| &error.details);
        for detail in details.filter(|any| any.type_url == REJECTIONS_URL) {
            let Ok(part) = proto::Rejections::decode(&*detail.value) else {
                continue;
            };
            store.reject(id, part.rejections.iter().map(|one| one.name.as_str()));
            self.count += part.rejections.len();
            for rejection in part.rejections {
                if self.reasons.len() < MAX_REASONS {
                    let reason = shortened(rejection.message);
                    self.reasons.insert(shortened(rejection.name), reason);
                }
            }
        }
    }

    /// Records what a proxy rejects. Returns whether it has changed.
    fn record(
        self,
        id: ProxyId,
        proxy: &mut ConnectedProxy,
        store: &mut Store,
        now: Instant,
    ) -> bool {
        if self.count == 0 && proxy.rejected_count == 0 {
            return false;
        }
        let (old, new) = (&proxy.rejected, &self.reasons);
        for (name, reason) in new
            .iter()
            .filter(|(name, reason)| old.get(*name) != Some(*reason))
        {
            tracing::warn!("proxy {} can't use {name}: {reason}", proxy.name);
        }
        let more = self.count - new.len();
        if more > 0 && self.count != proxy.rejected_count {
            tracing::warn!("proxy {} can't use {more} more resources", proxy.name);
        }
        let names = old.keys().chain(new.keys());
        let changed = names.filter(|name| old.get(*name) != new.get(*name));
        let changed: Vec<&str> = changed.map(String::as_str).collect();
        store.finish_rejections(id, changed.into_iter(), now);
        proxy.rejected = self.reasons;
        proxy.rejected_count = self.count;
        true
    }
}

/// Maximum length of a text of a proxy that is kept, in bytes.
const MAX_TEXT: usize = 1024;

fn shortened(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}

fn software(version: Option<crate::xds::core::node::UserAgentVersionType>) -> String {
    use crate::xds::core::node::UserAgentVersionType;
    match version {
        Some(UserAgentVersionType::UserAgentVersion(version)) => version,
        None => "unknown".to_owned(),
    }
}
