//! A server and clients over loopback.

use std::collections::BTreeMap;

use pointsman_binding::bound::{BackendId, Endpoints, Transport};
use pointsman_resources::{Kind, Name, ObjectKey};

use super::*;
use crate::server::{self, Server};
use pointsman_binding::{Change, Observation};

/// Endpoints of Services by number, with the DNS name that is their content.
fn delta(endpoints: &[(usize, Option<&str>)]) -> Delta {
    let endpoints = endpoints.iter().map(|(number, name)| {
        let service = ObjectKey::new(Kind::Service, "shop", format!("s{number}"));
        let endpoints = name.map(|name| Arc::new(Endpoints::Dns(name.into(), 80)));
        (BackendId::new(service, 80, Transport::Tcp), endpoints)
    });
    Delta {
        endpoints: endpoints.collect(),
        ..Delta::default()
    }
}

fn admin_server() -> OwnServers {
    let mut own = OwnServers::default();
    own.add(OwnServer::Admin, ([127, 0, 0, 1], 15000).into());
    own
}

fn options(
    urls: &[std::net::SocketAddr],
    control_plane_servers: watch::Sender<OwnServers>,
) -> ClientOptions {
    let urls = urls
        .iter()
        .map(|address| format!("http://{address}").parse());
    ClientOptions {
        control_planes: urls.collect::<Result<_, _>>().expect("URLs"),
        name: "edge-1".to_owned(),
        software: "0.0.0-test".to_owned(),
        tls: None,
        token: None,
        cache: None,
        subscription: Subscription::Everything,
        own_servers: admin_server(),
        control_plane_servers,
    }
}

struct ControlPlane {
    server: Arc<Server>,
    address: std::net::SocketAddr,
    accept: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl ControlPlane {
    fn start(instance: &str, address: &str) -> ControlPlane {
        let allow = server::authorize_by_certificate(|_| Subscription::Everything);
        let mut own = OwnServers::default();
        own.add(OwnServer::Admin, ([127, 0, 0, 1], 15001).into());
        let server = Server::new(instance.to_owned(), allow, || {}).with_own_servers(own);
        let server = Arc::new(server);
        let listener =
            server::bind(address.parse().expect("an address"), false).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let accept = tokio::spawn(server::accept(listener, server.clone(), None));
        ControlPlane {
            server,
            address,
            accept,
        }
    }

    fn apply(&self, delta: &Delta) {
        self.server.apply(server::encode_all(delta));
    }
}

struct Proxy {
    has: BTreeMap<String, String>,
    commits: mpsc::Receiver<Commit>,
    reports: Arc<ReportQueue>,
    state: StateReader,
    control_plane_servers: watch::Receiver<OwnServers>,
    /// Number of resources in the last commit.
    last: usize,
}

impl Proxy {
    fn start(urls: &[std::net::SocketAddr]) -> Proxy {
        Proxy::with_cache(urls, None)
    }

    fn with_cache(urls: &[std::net::SocketAddr], cache: Option<Cache>) -> Proxy {
        let (sender, commits) = mpsc::channel(1);
        let (servers, control_plane_servers) = watch::channel(OwnServers::default());
        let options = ClientOptions {
            cache,
            ..options(urls, servers)
        };
        let reports: Arc<ReportQueue> = Arc::default();
        let client = Client::new(options, Replica::default(), reports.clone(), sender);
        let state = client.state();
        tokio::spawn(client.run());
        Proxy {
            has: BTreeMap::new(),
            commits,
            reports,
            state,
            control_plane_servers,
            last: 0,
        }
    }

    /// Receives a commit and puts it into effect.
    async fn receive(&mut self) {
        let commit = tokio::time::timeout(Duration::from_secs(30), self.commits.recv()).await;
        let commit = commit.expect("in time").expect("a commit");
        self.last = commit.delta.endpoints.len();
        for (id, endpoints) in commit.delta.endpoints {
            match endpoints.as_deref() {
                Some(Endpoints::Dns(name, _)) => {
                    drop(
                        self.has
                            .insert(id.object.name.name.to_string(), name.to_string()),
                    );
                }
                _ => drop(self.has.remove(&*id.object.name.name)),
            }
        }
        let _ = commit.applied.send(());
    }
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
async fn a_proxy_receives_a_snapshot_in_chunks_and_then_changes() {
    let control_plane = ControlPlane::start("a", "127.0.0.1:0");
    let long = "x".repeat(200);
    let all: Vec<(usize, Option<&str>)> = (0..20_000).map(|n| (n, Some(&*long))).collect();
    control_plane.apply(&delta(&all));
    let mut proxy = Proxy::start(&[control_plane.address]);
    proxy.receive().await;
    assert_eq!(
        proxy.has.len(),
        20_000,
        "more than 4 MiB arrive as one commit"
    );
    control_plane.apply(&delta(&[(7, Some("other")), (8, None)]));
    proxy.receive().await;
    assert_eq!(proxy.last, 2);
    assert_eq!((&*proxy.has["s7"], proxy.has.len()), ("other", 19_999));
    let server = &control_plane.server;
    until("acknowledged", || server.proxies()[0].lag.is_none()).await;
    let status = &server.proxies()[0];
    assert_eq!((&*status.name, &*status.software), ("edge-1", "0.0.0-test"));
    assert_eq!(status.version, Some(status.target));
    assert_eq!(status.resources, 19_999);
}

#[tokio::test]
async fn a_change_is_acknowledged_only_once_it_is_in_effect() {
    let control_plane = ControlPlane::start("a", "127.0.0.1:0");
    let mut proxy = Proxy::start(&[control_plane.address]);
    proxy.receive().await;
    let server = &control_plane.server;
    until("connected", || {
        server.proxies().first().is_some_and(|p| p.lag.is_none())
    })
    .await;
    control_plane.apply(&delta(&[(1, Some("a"))]));
    let commit = proxy.commits.recv().await.expect("a commit");
    assert!(
        server.proxies()[0].lag.is_some(),
        "it was received and is not in effect"
    );
    let _ = commit.applied.send(());
    until("acknowledged", || server.proxies()[0].lag.is_none()).await;
}

#[tokio::test]
async fn a_proxy_that_has_everything_receives_nothing_from_a_restarted_control_plane() {
    let control_plane = ControlPlane::start("a", "127.0.0.1:0");
    let all: Vec<(usize, Option<&str>)> = (0..1000).map(|n| (n, Some("a"))).collect();
    control_plane.apply(&delta(&all));
    let other = ControlPlane::start("b", "127.0.0.1:0");
    other.apply(&delta(&all));
    other.apply(&delta(&[(3, Some("b")), (4, None)]));
    let mut proxy = Proxy::start(&[control_plane.address, other.address]);
    proxy.receive().await;
    assert_eq!(proxy.last, 1000);
    // The next control plane has the positions of another instance, so digests are compared.
    control_plane.accept.abort();
    let sessions = control_plane.server.clone();
    drop(control_plane);
    sessions.shut_down();
    proxy.receive().await;
    assert_eq!(proxy.last, 2);
    assert_eq!((&*proxy.has["s3"], proxy.has.len()), ("b", 999));
    until("connected", || proxy.state.current().connected.is_some()).await;
    let wanted = format!("http://{}", other.address);
    assert_eq!(proxy.state.current().connected, Some(wanted));
    assert!(other.server.proxies()[0].bytes < 4096);
}

// "A proxy survives the loss of all control planes on its last snapshot, stored on disk": on the last one, even if it was received shortly before the loss.
#[tokio::test]
async fn a_change_shortly_before_the_loss_of_the_control_plane_is_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::open(folder.path().to_owned(), true).expect("a cache");
    let control_plane = ControlPlane::start("a", "127.0.0.1:0");
    control_plane.apply(&delta(&[(1, Some("a"))]));
    let mut proxy = Proxy::with_cache(&[control_plane.address], Some(cache.clone()));
    proxy.receive().await;
    let server = control_plane.server.clone();
    until("acknowledged", || server.proxies()[0].lag.is_none()).await;
    control_plane.accept.abort();
    server.shut_down();
    let stored = || cache.load(&Subscription::Everything);
    until("it is stored", || {
        stored().is_ok_and(|replica| replica.len() == 1)
    })
    .await;
}

#[tokio::test]
async fn a_proxy_connects_as_soon_as_there_is_a_control_plane() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = held.local_addr().expect("an address");
    drop(held);
    let mut proxy = Proxy::start(&[address]);
    until("it fails", || proxy.state.current().failures > 1).await;
    assert!(proxy.state.current().disconnected.is_some());
    let control_plane = ControlPlane::start("a", &address.to_string());
    control_plane.apply(&delta(&[(1, Some("a"))]));
    proxy.receive().await;
    until("connected", || proxy.state.current().connected.is_some()).await;
    assert_eq!(proxy.state.current().disconnected, None);
}

// A control plane that is restarted often, without a change, is found again within the shortest delay.
#[tokio::test(start_paused = true)]
async fn the_delay_starts_anew_after_a_connection_that_lasted() {
    let address = "127.0.0.1:1".parse().expect("an address");
    let options = options(&[address], watch::channel(OwnServers::default()).0);
    let (commits, _received) = mpsc::channel(1);
    let mut client = Client::new(options, Replica::default(), Arc::default(), commits);
    let lost = |client: &mut Client, lasted| {
        client.connected_at = Some(Instant::now() - lasted);
        client.was_stable()
    };
    assert!(lost(&mut client, STABLE_TIME));
    assert!(!lost(&mut client, STABLE_TIME / 2));
    assert!(!client.was_stable(), "there was no connection");
}

#[tokio::test]
async fn a_control_plane_that_sends_nothing_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let silent = silent.expect("a port");
    let address = silent.local_addr().expect("an address");
    tokio::spawn(async move {
        // Accepts HTTP/2 connections and streams, and never responds.
        while let Ok((stream, _)) = silent.accept().await {
            tokio::spawn(crate::transport::serve(stream, |_| std::future::pending()));
        }
    });
    let healthy = ControlPlane::start("b", "127.0.0.1:0");
    healthy.apply(&delta(&[(1, Some("a"))]));
    let mut proxy = Proxy::start(&[address, healthy.address]);
    proxy.receive().await;
    until("connected", || proxy.state.current().connected.is_some()).await;
    let wanted = format!("http://{}", healthy.address);
    assert_eq!(proxy.state.current().connected, Some(wanted));
}

#[tokio::test]
async fn reports_reach_the_control_plane_and_are_repeated_on_a_new_connection() {
    let control_plane = ControlPlane::start("a", "127.0.0.1:0");
    let other = ControlPlane::start("b", "127.0.0.1:0");
    let mut proxy = Proxy::start(&[control_plane.address, other.address]);
    let observe = |name: &str, address: Option<&str>| {
        let seen = address.map(|address| Observation {
            addresses: vec![address.parse().expect("an address")],
            ..Observation::default()
        });
        Change::Observe(Name::new("infra", name), seen)
    };
    proxy.reports.put(vec![
        observe("a", Some("192.0.2.1")),
        observe("b", Some("192.0.2.2")),
    ]);
    proxy.receive().await;
    let reported = |server: &Server, seen: &Mutex<BTreeMap<String, bool>>| {
        let mut seen = seen.lock().expect("a lock");
        for change in server.take_reports() {
            if let Change::Observe(name, observation) = change {
                seen.insert(name.to_string(), observation.is_some());
            }
        }
        seen.clone()
    };
    let map = |all: &[(&str, bool)]| -> BTreeMap<String, bool> {
        all.iter()
            .map(|(name, is_there)| (format!("infra/{name}"), *is_there))
            .collect()
    };
    let seen = Mutex::default();
    let server = &control_plane.server;
    until("its admin server", || {
        server.own_servers_of_proxies() == admin_server()
    })
    .await;
    let mut learned = OwnServers::default();
    learned.add(OwnServer::Admin, ([127, 0, 0, 1], 15001).into());
    learned.add(OwnServer::ControlPlane, control_plane.address);
    assert_eq!(*proxy.control_plane_servers.borrow(), learned);
    until("first", || {
        reported(server, &seen) == map(&[("a", true), ("b", true)])
    })
    .await;
    proxy.reports.put(vec![observe("b", None)]);
    until("changes", || {
        reported(server, &seen) == map(&[("a", true), ("b", false)])
    })
    .await;
    control_plane.accept.abort();
    control_plane.server.shut_down();
    proxy.receive().await;
    let seen = Mutex::default();
    until("again", || {
        reported(&other.server, &seen) == map(&[("a", true)])
    })
    .await;
}
