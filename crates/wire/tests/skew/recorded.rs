//! Streams of version 0.1.0, recorded in `tests/data`. Every later version has to read them.
//! - `control-plane.bin`: responses to a proxy without resources: `manifests.yaml`, then a change of a weight and a removal.
//! - `proxy.bin`: requests of a proxy that receives them, and then a resource that it can't use. `proxy-resume.bin`: requests of a proxy that reconnects and
//!   has to list all its resources. `proxy-reports.bin`: its reports.
//! - `control-plane.txt`: the changes in `control-plane.bin`, for people and for the test.
//! - `cache`: the directory that the proxy has stored its configuration in.
//!
//! The `.bin` files are messages in the framing of gRPC. `cargo test -p pointsman-wire --test skew -- --ignored record` records them again; never do so to make
//! a failing test pass.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::bound::{FrontendId, Transport};
use pointsman_binding::{Binder, Change, Delta, Observation, OwnServer, OwnServers};
use pointsman_resources::{Kind, Name, ObjectKey};
use pointsman_routing::Tables;
use pointsman_wire::client::{
    Cache, Client, ClientOptions, Commit, Replica, ReportQueue, StateReader,
};
use pointsman_wire::server::{Server, Subscription, encode_all};
use pointsman_wire::xds::core::{Node, node::UserAgentVersionType};
use pointsman_wire::xds::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use pointsman_wire::{changes, proto};
use prost::Message;
use tokio::sync::{mpsc, watch};

use crate::support::*;

const VERSION: &str = "0.1.0";

/// A resource that no version can decode.
const BROKEN: &str = "rule/HTTPRoute/shop/web/gateway/0/0";

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(data(name)).expect("a recording")
}

fn responses() -> Vec<DeltaDiscoveryResponse> {
    messages(&recorded("control-plane.bin"))
}

/// The recorded state after the first commit, or after all.
fn replica(commits: usize) -> (Replica, Vec<Delta>) {
    let (mut replica, mut deltas) = (Replica::default(), Vec::new());
    for response in responses() {
        match response.type_url == SNAPSHOT_URL {
            true => deltas.push(replica.commit()),
            false => replica.receive(response),
        }
        if deltas.len() == commits {
            break;
        }
    }
    (replica, deltas)
}

/// A server with the recorded state after some commits.
fn server_with(commits: usize) -> (Arc<Server>, std::net::SocketAddr) {
    let (server, address) = control_plane();
    for delta in replica(commits).1 {
        server.apply(encode_all(&delta));
    }
    (server, address)
}

struct Proxy {
    commits: mpsc::Receiver<Commit>,
    state: StateReader,
    reports: Arc<ReportQueue>,
}

impl Proxy {
    fn start(address: std::net::SocketAddr, cache: Option<Cache>) -> Proxy {
        let (sender, commits) = mpsc::channel(1);
        let options = ClientOptions {
            control_planes: vec![format!("http://{address}").parse().expect("a URL")],
            name: "edge-1".to_owned(),
            software: VERSION.to_owned(),
            tls: None,
            token: None,
            cache,
            subscription: Subscription::Everything,
            own_servers: admin_server(),
            control_plane_servers: watch::Sender::default(),
        };
        let reports: Arc<ReportQueue> = Arc::default();
        reports.put(reported());
        let client = Client::new(options, Replica::default(), reports.clone(), sender);
        let state = client.state();
        tokio::spawn(client.run());
        Proxy {
            commits,
            state,
            reports,
        }
    }

    async fn receive(&mut self) -> Delta {
        let commit = tokio::time::timeout(Duration::from_secs(30), self.commits.recv());
        let commit = commit.await.expect("in time").expect("a commit");
        let _ = commit.applied.send(());
        commit.delta
    }
}

fn admin_server() -> OwnServers {
    let mut own = OwnServers::default();
    own.add(OwnServer::Admin, ([127, 0, 0, 1], 15000).into());
    own
}

fn reported() -> Vec<Change> {
    let gateway = Name::new("shop", "edge");
    let listener = FrontendId::Listener {
        gateway: gateway.clone(),
        owner: ObjectKey::new(Kind::Gateway, "shop", "edge"),
        listener: "http".into(),
    };
    let seen = Observation {
        addresses: vec!["127.0.0.2".parse().expect("an address")],
        unbound: [(listener, "taken".to_owned())].into(),
        ..Observation::default()
    };
    let service = ObjectKey::new(Kind::Service, "shop", "named");
    let backend = pointsman_binding::bound::BackendId::new(service, 80, Transport::Tcp);
    vec![
        Change::Observe(gateway, Some(seen)),
        Change::Need(backend, true),
        Change::RefusedResolution("a.example".into(), vec!["::1".parse().expect("an address")]),
    ]
}

/// Changes as text: `+` before updates, `-` before removals; a line without either ends a commit.
fn describe(deltas: &[Delta]) -> String {
    let mut text = String::new();
    for delta in deltas {
        let mut lines: Vec<String> = changes(delta)
            .map(|(id, resource)| format!("{}{id}", if resource.is_some() { '+' } else { '-' }))
            .collect();
        lines.sort();
        let _ = writeln!(text, "{}\ncommit", lines.join("\n"));
    }
    text
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in time: {what}");
}

#[tokio::test]
async fn a_recorded_control_plane_configures_a_proxy() {
    let mut control_plane = FakeControlPlane::start().await;
    let mut proxy = Proxy::start(control_plane.address, None);
    let ((_requests, responses), _reports) = control_plane.accept().await;
    responses.send(recorded("control-plane.bin")).expect("sent");
    let deltas = [proxy.receive().await, proxy.receive().await];
    assert_eq!(proxy.state.current().rejected, [""; 0]);
    let wanted = std::fs::read_to_string(data("control-plane.txt")).expect("a recording");
    assert_eq!(describe(&deltas), wanted);
    let mut tables = Tables::default();
    deltas.iter().for_each(|delta| tables.apply(delta));
    let rules = || deltas.iter().flat_map(|delta| &delta.rules);
    let weights: Vec<Vec<u32>> = rules()
        .filter(|(id, _)| &*id.route.route.name.name == "web" && id.index == 0)
        .filter_map(|(_, rule)| {
            let backends = rule.as_ref()?.backends.iter();
            Some(backends.map(|backend| backend.weight).collect())
        })
        .collect();
    assert_eq!(weights, [[90, 10], [50, 50]]);
    let faults = rules().filter_map(|(_, rule)| rule.as_ref()?.fault.as_ref());
    assert_eq!(faults.count(), 0, "every filter is known");
    let filters = rules()
        .find(|(id, _)| &*id.route.route.name.name == "web" && id.index == 1)
        .and_then(|(_, rule)| Some(rule.as_ref()?.filters.len()));
    assert_eq!(filters, Some(5));
    let edge = Name::new("shop", "edge");
    let ports = [80, 443, 444].map(|port| tables.port(&edge, port).is_some());
    assert_eq!(ports, [true; 3]);
    let tcp = tables.listener(&edge, 9000, None).expect("a listener");
    assert!(tcp.is_empty(), "its route was removed");
}

/// Receives responses up to a commit. Returns their number.
async fn until_commit(received: &mut Received) -> usize {
    let mut count = 0;
    while let Some(response) = received.next::<DeltaDiscoveryResponse>().await {
        count += 1;
        if response.type_url == SNAPSHOT_URL {
            return count;
        }
    }
    panic!("the stream has ended");
}

#[tokio::test]
async fn a_recorded_proxy_is_understood() {
    let (server, address) = server_with(1);
    let mut requests = messages::<DeltaDiscoveryRequest>(&recorded("proxy.bin")).into_iter();
    let (sender, mut received) = call(address, DELTA_PATH).await;
    let first = requests.next().expect("a request");
    let acknowledgement = requests.next().expect("a request");
    let rejection = requests.next_back().expect("a request");
    sender.send(frame(&first)).expect("sent");
    assert!(until_commit(&mut received).await > 8);
    sender.send(frame(&acknowledgement)).expect("sent");
    server.apply(encode_all(&replica(2).1[1]));
    assert!(until_commit(&mut received).await > 1);
    sender.send(frame(&rejection)).expect("sent");
    until("a rejection", || !server.proxies()[0].rejected.is_empty()).await;
    let proxy = &server.proxies()[0];
    assert_eq!((&*proxy.name, &*proxy.software), ("edge-1", VERSION));
    assert_eq!(proxy.subscription, "*");
    assert_eq!(proxy.version, Some(proxy.target), "it is acknowledged");
    assert_eq!(proxy.rejected.keys().collect::<Vec<_>>(), [BROKEN]);
    assert!(proxy.rejected[BROKEN].contains("not a valid message"));
}

/// Sends the recorded requests of a proxy that reconnects. Returns the names of the resources that it receives.
async fn resume(address: std::net::SocketAddr) -> Vec<String> {
    let mut requests = messages::<DeltaDiscoveryRequest>(&recorded("proxy-resume.bin")).into_iter();
    let (sender, mut received) = call(address, DELTA_PATH).await;
    let first = requests.next().expect("a request");
    assert!(!first.initial_resource_versions.is_empty());
    sender.send(frame(&first)).expect("sent");
    let mut names = Vec::new();
    loop {
        let response: DeltaDiscoveryResponse = received.next().await.expect("a response");
        if response.type_url != SNAPSHOT_URL {
            names.extend(response.resources.into_iter().map(|one| one.name));
            names.extend(response.removed_resources);
            continue;
        }
        let value = &response.resources[0]
            .resource
            .as_ref()
            .expect("a value")
            .value;
        let snapshot = proto::Snapshot::decode(&**value).expect("a snapshot");
        match snapshot.state.expect("a state") {
            proto::snapshot::State::Differing(_) => {
                requests
                    .by_ref()
                    .for_each(|request| drop(sender.send(frame(&request))));
            }
            proto::snapshot::State::Commit(_) => break,
        }
    }
    names.sort();
    names
}

#[tokio::test]
async fn a_recorded_proxy_that_reconnects_receives_the_missing_resources() {
    let (_server, address) = server_with(2);
    assert_eq!(resume(address).await, [""; 0]);
    let (_server, address) = server_with(1);
    let wanted = [
        "attachment/listener/shop/edge/Gateway/shop/edge/tcp/TCPRoute/shop/tcp/gateway",
        "route/TCPRoute/shop/tcp/gateway",
        "rule/HTTPRoute/shop/web/gateway/0/0",
        "rule/TCPRoute/shop/tcp/gateway/0/0",
    ];
    assert_eq!(resume(address).await, wanted);
}

#[tokio::test]
async fn recorded_reports_are_understood() {
    let (server, address) = server_with(2);
    exchange(address, REPORT_PATH, recorded("proxy-reports.bin")).await;
    assert_eq!(server.own_servers_of_proxies(), admin_server());
    let changes = server.take_reports();
    assert_eq!(format!("{changes:?}"), format!("{:?}", reported()));
}

#[test]
fn a_recorded_cache_is_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["snapshot", "key"] {
        let bytes = recorded(&format!("cache/{name}"));
        std::fs::write(folder.path().join(name), bytes).expect("written");
    }
    let cache = Cache::open(folder.path().to_owned(), true).expect("a cache");
    let loaded = cache.load(&Subscription::Everything).expect("a cache");
    assert_eq!(loaded.digest(), replica(2).0.digest());
}

/// Records what a control plane sends.
async fn record_control_plane() {
    let (server, address) = control_plane();
    let mut binder = Binder::new();
    server.apply(encode_all(&binder.apply(manifests(&[]))));
    let (sender, mut received) = call(address, DELTA_PATH).await;
    let version = UserAgentVersionType::UserAgentVersion(VERSION.to_owned());
    let first = DeltaDiscoveryRequest {
        node: Some(Node {
            id: "edge-1".to_owned(),
            user_agent_name: "pointsman".to_owned(),
            user_agent_version_type: Some(version),
            ..Node::default()
        }),
        type_url: SNAPSHOT_URL.to_owned(),
        resource_names_subscribe: vec!["*".to_owned()],
        ..DeltaDiscoveryRequest::default()
    };
    sender.send(frame(&first)).expect("sent");
    for commit in 0..2 {
        loop {
            let response: DeltaDiscoveryResponse = received.next().await.expect("a response");
            if response.type_url == SNAPSHOT_URL {
                break;
            }
        }
        if commit == 0 {
            let mut changed =
                manifests(&[("weight: 90", "weight: 50"), ("weight: 10", "weight: 50")]);
            // The certificate differs each time.
            changed.retain(
                |change| matches!(change, Change::Put(one) if one.key().kind != Kind::Secret),
            );
            changed.push(Change::Delete(ObjectKey::new(
                Kind::TCPRoute,
                "shop",
                "tcp",
            )));
            changed.retain(
                |change| !matches!(change, Change::Put(one) if one.key().kind == Kind::TCPRoute),
            );
            server.apply(encode_all(&binder.apply(changed)));
        }
    }
    std::fs::write(data("control-plane.bin"), &received.bytes).expect("written");
    std::fs::write(data("control-plane.txt"), describe(&replica(2).1)).expect("written");
}

fn response(type_url: &str, nonce: &str, resource: Resource) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse {
        resources: vec![resource],
        type_url: type_url.to_owned(),
        nonce: nonce.to_owned(),
        ..DeltaDiscoveryResponse::default()
    }
}

fn any(name: &str, type_url: &str, value: Vec<u8>) -> Resource {
    Resource {
        name: name.to_owned(),
        version: "1".to_owned(),
        resource: Some(prost_types::Any {
            type_url: type_url.to_owned(),
            value,
        }),
    }
}

fn snapshot(nonce: &str, state: proto::snapshot::State) -> DeltaDiscoveryResponse {
    let snapshot = proto::Snapshot { state: Some(state) };
    let resource = any("snapshot", SNAPSHOT_URL, snapshot.encode_to_vec());
    response(SNAPSHOT_URL, nonce, resource)
}

/// Records what a proxy sends, and stores.
async fn record_proxy() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut control_plane = FakeControlPlane::start().await;
    let cache = Cache::open(folder.path().join("cache"), true).expect("a cache");
    let mut proxy = Proxy::start(control_plane.address, Some(cache));
    let ((mut requests, responses), (mut reports, report_end)) = control_plane.accept().await;
    responses.send(recorded("control-plane.bin")).expect("sent");
    proxy.receive().await;
    proxy.receive().await;
    while !folder.path().join("cache/snapshot").exists() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rule = "type.googleapis.com/pointsman.v1.Rule";
    let broken = response(rule, "900", any(BROKEN, rule, vec![0xff]));
    let commit = proto::snapshot::State::Commit(proto::Commit {
        version: 900,
        own_servers: Vec::new(),
    });
    for message in [broken, snapshot("901", commit)] {
        responses.send(frame(&message)).expect("sent");
    }
    proxy.receive().await;
    while let Some(request) = requests.next::<DeltaDiscoveryRequest>().await {
        if request.error_detail.is_some() {
            break;
        }
    }
    std::fs::write(data("proxy.bin"), &requests.bytes).expect("written");
    let _: Option<proto::ProxyReport> = reports.next().await;
    std::fs::write(data("proxy-reports.bin"), &reports.bytes).expect("written");
    std::fs::create_dir_all(data("cache")).expect("a folder");
    for name in ["snapshot", "key"] {
        let stored = folder.path().join("cache").join(name);
        std::fs::copy(stored, data("cache").join(name)).expect("copied");
    }
    // The stream ends, and the proxy connects again.
    drop((requests, responses, reports, report_end));
    let ((mut requests, responses), _reports) = control_plane.accept().await;
    let _: Option<DeltaDiscoveryRequest> = requests.next().await;
    let buckets = (0..1024).collect();
    let differing = proto::snapshot::State::Differing(proto::Buckets { buckets });
    responses
        .send(frame(&snapshot("1", differing)))
        .expect("sent");
    while let Some(request) = requests.next::<DeltaDiscoveryRequest>().await {
        if request.initial_resource_versions == HashMap::new() {
            break;
        }
    }
    std::fs::write(data("proxy-resume.bin"), &requests.bytes).expect("written");
    drop(proxy.reports);
}

#[tokio::test]
#[ignore = "writes the recordings of this version"]
async fn record() {
    record_control_plane().await;
    record_proxy().await;
}
