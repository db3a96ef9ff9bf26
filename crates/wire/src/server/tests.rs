//! Streams over connections in memory, with time that passes at once.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::session::SNAPSHOT_URL;
use super::*;
use crate::transport::{self, DELTA_PATH};
use crate::xds::core::Node;
use crate::xds::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};

// "A revoked ServiceAccount token (or a deleted ServiceAccount or Pod) ends its proxy's stream"
#[tokio::test(start_paused = true)]
async fn the_stream_of_a_proxy_whose_token_is_revoked_ends_even_if_it_is_busy() {
    let (revoke, revoked) = tokio::sync::watch::channel(false);
    let verify: Verify = Arc::new(move || {
        let result = match *revoked.borrow() {
            true => Err(Refusal::Unauthenticated("it was deleted".to_owned())),
            false => Ok(()),
        };
        Box::pin(std::future::ready(result))
    });
    let authorize: Authorize = Arc::new(move |_| {
        let grant = Grant {
            subscription: Subscription::Everything,
            identities: Vec::new(),
            name: ProxyName::Claimed,
            validity: CredentialValidity {
                expires: None,
                verify: Some(verify.clone()),
            },
            permission_check: PermissionCheck::new(|| Ok(Subscription::Everything)),
        };
        Box::pin(std::future::ready(Ok(grant)))
    });
    let server = Arc::new(Server::new("test".to_owned(), authorize, || {}));
    let (near, far) = tokio::io::duplex(64 * 1024);
    let peer = Peer {
        address: (Ipv4Addr::LOCALHOST, 1).into(),
        identities: None,
        token: None,
    };
    tokio::spawn(server.clone().serve(far, peer));
    let connection = transport::connect(near).await.expect("HTTP/2");
    let origin = http::Uri::from_static("http://control-plane");
    let mut grpc = Grpc::with_origin(connection, origin);
    grpc.ready().await.expect("it is open");
    let (requests, stream) = mpsc::channel(1);
    let first = DeltaDiscoveryRequest {
        node: Some(Node {
            id: "edge-1".to_owned(),
            ..Node::default()
        }),
        type_url: SNAPSHOT_URL.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(first).await.expect("it is open");
    let codec = ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
    let path = http::uri::PathAndQuery::from_static(DELTA_PATH);
    let request = Request::new(ReceiverStream::new(stream));
    let responses = grpc.streaming(request, path, codec).await;
    let mut responses = responses.expect("it is accepted").into_inner();
    let commit = responses.message().await.expect("a response");
    assert!(commit.is_some());
    // Requests that arrive more often than the token is verified.
    let busy = tokio::spawn(async move {
        while requests
            .send(DeltaDiscoveryRequest::default())
            .await
            .is_ok()
        {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    let valid = tokio::time::timeout(Duration::from_secs(300), responses.message()).await;
    assert!(valid.is_err(), "it stays open: {valid:?}");
    revoke.send_replace(true);
    let ended = tokio::time::timeout(Duration::from_secs(61), responses.message()).await;
    let status = ended.expect("within a minute").expect_err("it was revoked");
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(status.message(), "it was deleted");
    busy.await.expect("no panic");
    assert!(server.proxies().is_empty());
}
