//! Streams over connections in memory, with time that passes at once.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::{Binder, Change, Effect, Observation, RouteEffect};
use pointsman_resources::Name;
use pointsman_resources::read::ManifestReader;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::session::{REJECTIONS_URL, SNAPSHOT_URL};
use super::store::RoutesToExamine;
use super::*;
use crate::proto;
use crate::reports::encode_report;
use crate::transport::{self, DELTA_PATH, REPORT_PATH};
use crate::xds::core::Node;
use crate::xds::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use crate::xds::google::rpc;

type Requests = mpsc::Sender<DeltaDiscoveryRequest>;
type Responses = tonic::Streaming<DeltaDiscoveryResponse>;

/// Opens a connection and a stream of a proxy that subscribes to everything and has nothing.
async fn connect(server: &Arc<Server>, name: &str) -> (Requests, Responses) {
    let (requests, responses) = connect_with(server, name, 1024 * 1024).await;
    let responses = responses.await.expect("no panic");
    (requests, responses.expect("it is accepted"))
}

type PendingResponses = tokio::task::JoinHandle<Result<Responses, tonic::Status>>;

/// The same with flow control that stops the server after `window` bytes that are not read.
async fn connect_with(
    server: &Arc<Server>,
    name: &str,
    window: u32,
) -> (Requests, PendingResponses) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let peer = Peer {
        address: (Ipv4Addr::LOCALHOST, 1).into(),
        identities: None,
        certificate_expires: None,
        token: None,
    };
    tokio::spawn(server.clone().serve(far, peer));
    let connection = transport::connect_with_window(near, window).await;
    let origin = http::Uri::from_static("http://control-plane");
    let mut grpc = Grpc::with_origin(connection.expect("HTTP/2"), origin);
    grpc.ready().await.expect("it is open");
    let (requests, stream) = mpsc::channel(1);
    let first = DeltaDiscoveryRequest {
        node: Some(Node {
            id: name.to_owned(),
            ..Node::default()
        }),
        type_url: SNAPSHOT_URL.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(first).await.expect("it is open");
    let codec = ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
    let path = http::uri::PathAndQuery::from_static(DELTA_PATH);
    let request = Request::new(ReceiverStream::new(stream));
    let responses = async move {
        let responses = grpc.streaming(request, path, codec).await?;
        Ok(responses.into_inner())
    };
    (requests, tokio::spawn(responses))
}

/// A Gateway with this many routes.
fn routes(count: usize) -> Vec<EncodedChange> {
    let mut yaml = "
kind: GatewayClass
apiVersion: gateway.networking.k8s.io/v1
metadata: {name: pointsman}
spec: {controllerName: pointsman.io/controller}
---
kind: Gateway
apiVersion: gateway.networking.k8s.io/v1
metadata: {name: edge, namespace: infra}
spec: {gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}
"
    .to_owned();
    for number in 0..count {
        let route = format!(
            "---
kind: HTTPRoute
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: r{number}, namespace: infra}}
spec: {{parentRefs: [{{name: edge}}], hostnames: [r{number}.example]}}
"
        );
        yaml.push_str(&route);
    }
    let mut reader = ManifestReader::new();
    reader.read("test.yaml", yaml.as_bytes());
    let documents = reader.finish().documents.into_iter();
    let changes = documents.map(|document| Change::Put(document.resource));
    encode_all(&Binder::new().apply(changes))
}

/// Receives and acknowledges everything up to a commit. Returns the names of the received resources, and the nonce of the commit, which is not acknowledged.
async fn until_commit(requests: &Requests, responses: &mut Responses) -> (Vec<String>, String) {
    let mut names = Vec::new();
    loop {
        let response = responses.message().await.expect("a response");
        let response = response.expect("a response");
        if response.type_url == SNAPSHOT_URL {
            return (names, response.nonce);
        }
        names.extend(response.resources.into_iter().map(|resource| resource.name));
        let acknowledgement = DeltaDiscoveryRequest {
            type_url: SNAPSHOT_URL.to_owned(),
            response_nonce: response.nonce,
            ..DeltaDiscoveryRequest::default()
        };
        requests.send(acknowledgement).await.expect("it is open");
    }
}

/// An acknowledgement that rejects resources.
fn rejecting<'n>(names: impl Iterator<Item = &'n String>, nonce: &str) -> DeltaDiscoveryRequest {
    let rejections = names.map(|name| proto::Rejection {
        name: name.clone(),
        version: String::new(),
        message: "unknown match".to_owned(),
    });
    let rejections = rejections.collect();
    DeltaDiscoveryRequest {
        type_url: SNAPSHOT_URL.to_owned(),
        response_nonce: nonce.to_owned(),
        error_detail: Some(rpc::Status {
            details: vec![prost_types::Any {
                type_url: REJECTIONS_URL.to_owned(),
                value: proto::Rejections { rejections }.encode_to_vec(),
            }],
            ..rpc::Status::default()
        }),
        ..DeltaDiscoveryRequest::default()
    }
}

/// Reports the address of a Gateway, as a proxy with a certificate does.
async fn report(server: &Arc<Server>, identity: &str, name: &str, address: &str) -> ReportSender {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let peer = Peer {
        address: (Ipv4Addr::LOCALHOST, 1).into(),
        identities: Some([identity.to_owned()].into()),
        certificate_expires: None,
        token: None,
    };
    tokio::spawn(server.clone().serve(far, peer));
    let connection = transport::connect(near).await.expect("HTTP/2");
    let origin = http::Uri::from_static("http://control-plane");
    let mut grpc = Grpc::with_origin(connection, origin);
    grpc.ready().await.expect("it is open");
    let (sender, stream) = mpsc::channel(1);
    let observation = Observation {
        addresses: vec![address.parse().expect("an address")],
        ..Observation::default()
    };
    let change = Change::Observe(Name::new("infra", "edge"), Some(observation));
    let first = proto::ProxyReport {
        proxy: name.to_owned(),
        ..encode_report([&change])
    };
    sender.send(first).await.expect("it is open");
    tokio::spawn(async move {
        let codec = ProstCodec::<proto::ProxyReport, proto::ReportSummary>::default();
        let path = http::uri::PathAndQuery::from_static(REPORT_PATH);
        let request = Request::new(ReceiverStream::new(stream));
        let _ = grpc.client_streaming(request, path, codec).await;
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    sender
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_does_not_read_is_disconnected_when_its_permission_ends() {
    let (permit, permitted) = tokio::sync::watch::channel(true);
    let authorize = authorize_by_certificate(move |_| match *permitted.borrow() {
        true => Subscription::Everything,
        false => Subscription::Selected(Default::default()),
    });
    let server = Arc::new(Server::new("test".to_owned(), authorize, || {}));
    server.apply(routes(500));
    // The socket takes less than one response.
    let (_requests, _responses) = connect_with(&server, "edge-1", 1024).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.proxies().len(), 1);
    permit.send_replace(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(server.proxies().is_empty());
}

type ReportSender = mpsc::Sender<proto::ProxyReport>;

/// Addresses of the Gateway that the proxies have reported since the last call.
fn addresses(server: &Server) -> Vec<String> {
    let changes = server.take_reports().into_iter();
    let all = changes.filter_map(|change| match change {
        Change::Observe(_, observation) => Some(observation?.addresses),
        _ => None,
    });
    all.flatten().map(|address| address.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn reports_of_a_proxy_do_not_replace_those_of_another_one_with_its_name() {
    let authorize = authorize_by_certificate(|_| Subscription::Everything);
    let server = Arc::new(Server::new("test".to_owned(), authorize, || {}));
    let first = report(&server, "edge-1.example", "edge", "192.0.2.1").await;
    let other = report(&server, "edge-2.example", "edge", "192.0.2.2").await;
    assert_eq!(addresses(&server), ["192.0.2.1", "192.0.2.2"]);
    // The same identity.
    let copy = report(&server, "edge-1.example", "edge", "192.0.2.3").await;
    let all = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
    assert_eq!(addresses(&server), all);
    drop((other, copy));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(addresses(&server), ["192.0.2.1"]);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn two_proxies_of_the_same_name_are_a_problem_unless_one_replaces_the_other() {
    let authorize = authorize_by_certificate(|_| Subscription::Everything);
    let server = Arc::new(Server::new("test".to_owned(), authorize, || {}));
    let first = connect(&server, "edge-1").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let second = connect(&server, "edge-1").await;
    let problems = || {
        let proxies = server.proxies();
        let problems = proxies.iter().map(|proxy| proxy.problems.len());
        problems.collect::<Vec<usize>>()
    };
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(problems(), [0, 0]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(problems(), [1, 1]);
    drop(first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(problems(), [0]);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn every_route_is_not_in_effect_on_a_proxy_that_rejects_hundreds() {
    const ROUTES: usize = 250;
    let authorize = authorize_by_certificate(|_| Subscription::Everything);
    let server = Arc::new(Server::new("test".to_owned(), authorize, || {}));
    server.apply(routes(ROUTES));
    let (requests, mut responses) = connect(&server, "edge-1").await;
    let (names, nonce) = until_commit(&requests, &mut responses).await;
    let rules = names.iter().filter(|name| name.starts_with("rule/"));
    let rules: Vec<&String> = rules.collect();
    // In several requests.
    let (first, last) = rules.split_at(ROUTES / 2);
    for (part, nonce) in [(first, ""), (last, nonce.as_str())] {
        let request = rejecting(part.iter().copied(), nonce);
        requests.send(request).await.expect("it is open");
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let proxy = &server.proxies()[0];
    assert_eq!(proxy.rejected_count, ROUTES);
    assert!(proxy.rejected.len() < ROUTES, "memory is bounded");
    let effects = server
        .take_effects(RoutesToExamine::AllPending, 1_000)
        .changes;
    assert_eq!(effects.len(), ROUTES);
    for (key, effect) in effects {
        let Some(RouteEffect::Uniform(Effect::Partial(outdated))) = effect.as_deref() else {
            panic!("{key}: {effect:?}");
        };
        let (proxy, resource, _) = outdated.rejections.first().expect("a rejection");
        assert_eq!(&**proxy, "edge-1");
        assert!(resource.contains(&*key.name.name), "{resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_or_a_subscription_that_is_too_long_is_refused() {
    let authorize = authorize_by_certificate(|_| Subscription::Everything);
    let server = Arc::new(Server::new("test".to_owned(), authorize, || {}));
    let (_requests, mut responses) = connect(&server, &"e".repeat(254)).await;
    let status = responses.message().await.expect_err("it is too long");
    assert_eq!(status.code(), Code::InvalidArgument);
    let (_requests, mut responses) = connect(&server, &"e".repeat(253)).await;
    assert!(responses.message().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_repeated_refusal_is_logged_once_per_minute() {
    let authorize = authorize_by_certificate(|_| Subscription::Everything);
    let server = Server::new("test".to_owned(), authorize, || {});
    let log = |name: &str| server.log_refusal(format!("proxy {name} is refused"));
    assert!(log("a") && log("b"));
    assert!(!log("a") && !log("b"));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(log("a"));
}

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
    let (requests, mut responses) = connect(&server, "edge-1").await;
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
