//! A controller's stream to the leader.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::stream;
use crate::client::{ControlPlaneConnectError, ControlPlaneUrl, Credential, TokenFile, connect};
use crate::proto::ControllerReport;
use crate::server::service::Server;
use crate::tls::ClientTls;
use crate::transport::{CONTROLLERS_PATH, MAX_MESSAGE};

/// Shortest and longest time between connection attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The leader: the controller that holds the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its name.
    pub name: Arc<str>,
    /// Address at which it serves proxies; `None` if it publishes none.
    pub address: Option<SocketAddr>,
}

/// Settings of a controller's connection to the leader.
pub struct FollowOptions {
    /// URL by which proxies connect, whose host is in the certificates of all controllers.
    pub url: ControlPlaneUrl,
    /// Returns the trust anchors for these certificates. Called for each connection.
    pub tls: Box<dyn Fn() -> Option<Arc<ClientTls>> + Send + Sync>,
    /// The controller's own token.
    pub token: Option<TokenFile>,
}

/// Exchanges reports with the leader until the sender of `leader` is dropped.
pub async fn follow(
    server: Arc<Server>,
    options: FollowOptions,
    mut leader: watch::Receiver<Option<Leader>>,
) {
    let (mut logged, mut backoff) = (String::new(), BACKOFF.0);
    loop {
        let current = leader.borrow_and_update().clone();
        let Some(current) = current else {
            if leader.changed().await.is_err() {
                return;
            }
            continue;
        };
        if current.name == *server.name() {
            server.set_controllers_error(None);
            if leader.changed().await.is_err() {
                return;
            }
            continue;
        }
        let (local, leading) = (server.name().clone(), &current.name);
        server.set_controllers_error(Some(format!(
            "replica {local} is connecting to the leader {leading}"
        )));
        let attempt = async {
            let start = Instant::now();
            let error = connect_and_exchange(&server, &options, &current).await;
            let Err(error) = error else { return };
            backoff = match start.elapsed() > BACKOFF.1 {
                true => BACKOFF.0,
                false => (backoff * 2).min(BACKOFF.1),
            };
            let error =
                format!("replica {local} has no reports from the leader {leading}: {error}");
            if logged != error {
                tracing::warn!("{error}");
                logged.clone_from(&error);
            }
            server.set_controllers_error(Some(error));
            tokio::time::sleep(backoff).await;
        };
        tokio::select! {
            () = attempt => {}
            changed = leader.changed() => {
                backoff = BACKOFF.0;
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// Error of a stream to the leader.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("the Lease contains no address; set --advertise-address on the leader")]
    NoAddress,
    #[error(transparent)]
    Connect(#[from] ControlPlaneConnectError),
    #[error("{}", .0.message())]
    Status(#[from] Status),
}

async fn connect_and_exchange(
    server: &Server,
    options: &FollowOptions,
    leader: &Leader,
) -> Result<(), FollowError> {
    let address = leader.address.ok_or(FollowError::NoAddress)?;
    let token = options.token.as_ref().map(TokenFile::read).transpose()?;
    let tls = (options.tls)();
    let connection = connect(&options.url, &[address], tls.as_deref()).await?;
    let origin = http::Uri::from_static("http://control-plane");
    let mut grpc = Grpc::with_origin(connection, origin).max_decoding_message_size(MAX_MESSAGE);
    let (sender, stream) = mpsc::channel(1);
    let mut request = Request::new(ReceiverStream::new(stream));
    Credential::attach(token.as_ref(), &mut request);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(format!("the connection is closed: {error}")))?;
    let codec = ProstCodec::<ControllerReport, ControllerReport>::default();
    let path = PathAndQuery::from_static(CONTROLLERS_PATH);
    let responses = grpc.streaming(request, path, codec).await?;
    tracing::info!(
        "exchanging reports of proxies with the leader {}",
        leader.name
    );
    let run = stream::run(server, false, responses.into_inner(), &sender, |report| {
        report
    });
    let replaced = async {
        match (&options.token, &token) {
            (Some(file), Some(token)) => file.wait_for_replacement(token).await,
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        result = run => {
            result?;
            Err(Status::unavailable("the stream was closed").into())
        }
        () = replaced => Ok(()),
    }
}
