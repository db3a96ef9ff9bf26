//! The streams of one connection: resources and acknowledgements, and reports.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use prost::Message;
use thiserror::Error;
use tokio::sync::mpsc::{self, error::SendTimeoutError};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::token::Credential;
use super::{Client, ControlPlaneUrl, Outage};
use crate::own_servers;
use crate::proto::{self, ProxyReport, ReportSummary, snapshot::State};
use crate::reports::encode_report;
use crate::server::session::{POSITION, REJECTIONS_URL, SNAPSHOT_URL};
use crate::transport::{Connection, DELTA_PATH, MAX_MESSAGE, REPORT_PATH};
use crate::xds::core::{Node, node::UserAgentVersionType};
use crate::xds::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use crate::xds::google::rpc;

/// Bytes after which responses are acknowledged even without a commit.
const ACKNOWLEDGE_BYTES: usize = 256 * 1024;

/// Bytes of one request that has a list, unless a single entry is larger. The control plane accepts 4 MiB.
const REQUEST_BYTES: usize = 256 * 1024;

/// Time without a message after which a connection that has not delivered a configuration yet is closed, and the next control plane is tried.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 30 });

/// `INVALID_ARGUMENT` of gRPC.
const INVALID_ARGUMENT: i32 = 3;

/// End of a connection.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The control plane or the network ended it.
    #[error("{}", describe(.0))]
    Status(Status),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The control plane does not send a configuration, or does not receive requests.
    #[error("no message within {SILENCE_TIMEOUT:?}")]
    Silence,
    /// The control plane ended it without an error.
    #[error("the stream was closed")]
    Closed,
    /// The control plane violated the protocol.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    /// The proxy has another token now.
    #[error("the token was replaced")]
    TokenReplaced,
    /// This process is shutting down.
    #[error("shutting down")]
    Shutdown,
}

fn describe(status: &Status) -> String {
    match status.message() {
        "" => format!("{:?}", status.code()),
        message => message.to_owned(),
    }
}

impl From<Status> for StreamError {
    fn from(status: Status) -> Self {
        StreamError::Status(status)
    }
}

type RequestSender = mpsc::Sender<DeltaDiscoveryRequest>;

impl Client {
    /// Receives resources and sends reports until the connection ends.
    pub(super) async fn receive_from(
        &mut self,
        url: &ControlPlaneUrl,
        connection: Connection,
        token: Option<Credential>,
    ) -> StreamError {
        let token_file = self.options.token.clone();
        let (reports, commits) = (self.reports.clone(), self.commits.clone());
        let name = self.options.name.clone();
        // The control plane uses the address of the connection to determine which of them are on this machine.
        let own_servers =
            own_servers::encode(&self.options.own_servers, Ipv4Addr::LOCALHOST.into());
        let failure = connection.clone();
        let origin = http::Uri::from_static("http://control-plane");
        let grpc = || {
            Grpc::with_origin(connection.clone(), origin.clone())
                .max_decoding_message_size(MAX_MESSAGE)
        };
        let mut report_grpc = grpc();
        let send_reports = async {
            let (sender, stream) = mpsc::channel::<ProxyReport>(1);
            let produce = async {
                let first = ProxyReport {
                    proxy: name,
                    own_servers,
                    ..encode_report(&reports.all())
                };
                let mut next = first;
                while sender.send(next).await.is_ok() {
                    next = encode_report(&reports.changes().await);
                }
                StreamError::Closed
            };
            let codec = ProstCodec::<ProxyReport, ReportSummary>::default();
            let path = http::uri::PathAndQuery::from_static(REPORT_PATH);
            let mut request = Request::new(ReceiverStream::new(stream));
            Credential::attach(token.as_ref(), &mut request);
            let send = report_grpc.client_streaming(request, path, codec);
            tokio::select! {
                error = produce => error,
                result = send => result.map_or_else(StreamError::from, |_| StreamError::Closed),
            }
        };
        let token_replaced = async {
            match (&token_file, &token) {
                (Some(file), Some(token)) => file.wait_for_replacement(token).await,
                _ => std::future::pending().await,
            }
        };
        let receive = self.receive(url, grpc(), token.as_ref());
        let error = tokio::select! {
            result = receive => match result {
                Ok(never) => match never {},
                Err(error) => error,
            },
            error = send_reports => error,
            () = token_replaced => StreamError::TokenReplaced,
            () = commits.closed() => StreamError::Shutdown,
        };
        match error {
            // The stream only knows that the connection has ended.
            StreamError::Status(status) => match failure.failure().await {
                Some(reason) => StreamError::Connection(self.explain_failure(url, reason)),
                None => StreamError::Status(status),
            },
            error => error,
        }
    }

    /// Adds a probable cause to the error of a connection on which no configuration was received.
    fn explain_failure(&self, url: &ControlPlaneUrl, reason: String) -> String {
        let hint = match (self.connected_at, url.has_tls()) {
            (Some(_), _) => return reason,
            (None, true) => "the control plane may have refused this proxy's certificate",
            (None, false) => "the control plane may require https://",
        };
        format!("{reason} ({hint})")
    }

    async fn receive(
        &mut self,
        url: &ControlPlaneUrl,
        mut grpc: Grpc<Connection>,
        token: Option<&Credential>,
    ) -> Result<std::convert::Infallible, StreamError> {
        let (requests, stream) = mpsc::channel(16);
        send(&requests, self.first_request()).await?;
        let codec = ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
        let path = http::uri::PathAndQuery::from_static(DELTA_PATH);
        let mut request = Request::new(ReceiverStream::new(stream));
        Credential::attach(token, &mut request);
        let start = async {
            grpc.ready().await.map_err(|error| {
                Status::unavailable(format!("the connection is closed: {error}"))
            })?;
            grpc.streaming(request, path, codec).await
        };
        let responses = timeout(SILENCE_TIMEOUT, start).await;
        let mut responses = responses.map_err(|_| StreamError::Silence)??.into_inner();
        let mut received = 0;
        let mut last_message = Instant::now();
        loop {
            let store_at = self.store_at;
            // With a configuration, silence means that nothing has changed; pings detect a dead control plane.
            let silence = self.connected_at.is_none();
            let silence = silence.then(|| last_message + SILENCE_TIMEOUT);
            let response = tokio::select! {
                response = responses.message() => response?.ok_or(StreamError::Closed)?,
                () = until(silence) => return Err(StreamError::Silence),
                () = until(store_at) => {
                    self.store();
                    continue;
                }
            };
            if response.type_url == SNAPSHOT_URL {
                received = 0;
                self.handle_snapshot(url, response, &requests).await?;
                last_message = Instant::now();
                continue;
            }
            last_message = Instant::now();
            received += response.encoded_len();
            let (nonce, type_url) = (response.nonce.clone(), response.type_url.clone());
            // Until the next commit, the replica does not correspond to a state of the control plane, and a new stream has to compare it.
            self.position = None;
            self.replica.receive(response);
            if received >= ACKNOWLEDGE_BYTES {
                received = 0;
                let request = DeltaDiscoveryRequest {
                    type_url,
                    response_nonce: nonce,
                    ..DeltaDiscoveryRequest::default()
                };
                send(&requests, request).await?;
            }
        }
    }

    fn first_request(&self) -> DeltaDiscoveryRequest {
        let mut versions = self.replica.digest();
        if let Some(position) = &self.position {
            versions.insert(POSITION.to_owned(), position.clone());
        }
        let version = UserAgentVersionType::UserAgentVersion(self.options.software.clone());
        DeltaDiscoveryRequest {
            node: Some(Node {
                id: self.options.name.clone(),
                user_agent_name: "pointsman".to_owned(),
                user_agent_version_type: Some(version),
                ..Node::default()
            }),
            type_url: SNAPSHOT_URL.to_owned(),
            resource_names_subscribe: self.options.subscription.names(),
            initial_resource_versions: versions,
            ..DeltaDiscoveryRequest::default()
        }
    }

    /// Handles a response that concerns the subscription as a whole.
    async fn handle_snapshot(
        &mut self,
        url: &ControlPlaneUrl,
        response: DeltaDiscoveryResponse,
        requests: &RequestSender,
    ) -> Result<(), StreamError> {
        let nonce = response.nonce;
        let resource = response.resources.into_iter().next();
        let resource = resource.ok_or(StreamError::Protocol("an empty snapshot"))?;
        let any = resource.resource.unwrap_or_default();
        let snapshot = proto::Snapshot::decode(&*any.value);
        let snapshot = snapshot.map_err(|_| StreamError::Protocol("a malformed snapshot"))?;
        match snapshot.state {
            // A case of a newer version of the protocol.
            None => Ok(()),
            Some(State::Differing(differing)) => {
                self.send_versions(&differing.buckets, &nonce, requests)
                    .await
            }
            Some(State::Commit(commit)) => {
                let servers = own_servers::decode(&commit.own_servers);
                self.record_servers(|known| known.extend(&servers));
                // Until the commit is in effect, there is no position to resume from.
                self.position = None;
                self.commit(commit.version).await?;
                self.store_soon();
                self.position = Some(resource.version);
                self.record_commit(url, commit.version);
                self.acknowledge(nonce, requests).await
            }
        }
    }

    /// Sends the versions of the resources in some buckets.
    async fn send_versions(
        &self,
        buckets: &[u32],
        nonce: &str,
        requests: &RequestSender,
    ) -> Result<(), StreamError> {
        let request = |versions: HashMap<String, String>| DeltaDiscoveryRequest {
            type_url: SNAPSHOT_URL.to_owned(),
            response_nonce: nonce.to_owned(),
            initial_resource_versions: versions,
            ..DeltaDiscoveryRequest::default()
        };
        let versions = self.replica.versions(buckets);
        for part in split(versions, |(name, version)| name.len() + version.len()) {
            send(requests, request(part.into_iter().collect())).await?;
        }
        send(requests, request(HashMap::new())).await
    }

    fn record_commit(&mut self, url: &ControlPlaneUrl, version: u64) {
        let mut state = self.state.lock();
        if self.connected_at.is_none() {
            self.connected_at = Some(Instant::now());
            self.outage = Outage::default();
            tracing::info!("connected to control plane {url}");
            state.connected = Some(url.to_string());
            state.disconnected = None;
            state.error = None;
        }
        state.version = Some(version);
        state.is_cached = false;
        state.resources = self.replica.len();
        let rejected = self.replica.rejected();
        state.rejected = rejected.map(|rejection| rejection.name.clone()).collect();
    }

    /// Acknowledges a commit, with all resources that are rejected now. Those that don't fit into one request precede it.
    async fn acknowledge(
        &self,
        nonce: String,
        requests: &RequestSender,
    ) -> Result<(), StreamError> {
        let rejections: Vec<proto::Rejection> = self.replica.rejected().cloned().collect();
        let message = format!("{} resources can't be used", rejections.len());
        let request = |nonce: String, rejections: Vec<proto::Rejection>| DeltaDiscoveryRequest {
            type_url: SNAPSHOT_URL.to_owned(),
            response_nonce: nonce,
            error_detail: (!rejections.is_empty()).then(|| rpc::Status {
                code: INVALID_ARGUMENT,
                message: message.clone(),
                details: vec![prost_types::Any {
                    type_url: REJECTIONS_URL.to_owned(),
                    value: proto::Rejections { rejections }.encode_to_vec(),
                }],
            }),
            ..DeltaDiscoveryRequest::default()
        };
        let mut parts = split(rejections, Message::encoded_len);
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            send(requests, request(String::new(), part)).await?;
        }
        send(requests, request(nonce, last)).await
    }
}

/// Splits a list for requests of about [`REQUEST_BYTES`] each.
fn split<T>(items: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut parts, mut total) = (Vec::new(), REQUEST_BYTES);
    for item in items {
        if total >= REQUEST_BYTES {
            parts.push(Vec::new());
            total = 0;
        }
        total += size(&item);
        if let Some(part) = parts.last_mut() {
            part.push(item);
        }
    }
    parts
}

/// Waits until a time; forever if there is none.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn send(requests: &RequestSender, request: DeltaDiscoveryRequest) -> Result<(), StreamError> {
    let sent = requests.send_timeout(request, SILENCE_TIMEOUT).await;
    sent.map_err(|error| match error {
        SendTimeoutError::Timeout(_) => StreamError::Silence,
        SendTimeoutError::Closed(_) => StreamError::Closed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_into_requests_of_bounded_size() {
        let names: Vec<String> = (0..30_000).map(|n| format!("rule/{n:0>100}")).collect();
        let parts = split(names.clone(), String::len);
        assert!(parts.len() > 5);
        for part in &parts {
            let size: usize = part.iter().map(String::len).sum();
            assert!((1..300 * 1024).contains(&size), "{size}");
        }
        assert_eq!(parts.concat(), names);
        assert!(split(Vec::<String>::new(), String::len).is_empty());
    }
}
