use std::net::TcpListener;

use pointsman_binding::Delta;
use pointsman_binding::bound::{BoundEndpoint, Frontend, Protocol};
use pointsman_resources::{Kind, Name, ObjectKey};

use super::*;

/// A proxy with an HTTP listener, whose port may be occupied.
struct TestProxy {
    proxy: Proxy,
    tables: Tables,
    sockets: Arc<BTreeMap<SocketKey, SocketOwner>>,
    pods: PodMap,
}

impl TestProxy {
    fn new(address: SocketAddr) -> TestProxy {
        let gateway = Name::new("infra", "edge");
        let owner = SocketOwner::Gateway {
            gateway: gateway.clone(),
            port: 80,
        };
        let options = Options {
            workers: Some(1),
            ..Options::default()
        };
        let mut proxy = TestProxy {
            proxy: Proxy::start(options).expect("a data plane"),
            tables: Tables::default(),
            sockets: Arc::new(BTreeMap::from([(tcp(address), owner)])),
            pods: PodMap::default(),
        };
        let id = FrontendId::Listener {
            owner: ObjectKey {
                kind: Kind::Gateway,
                name: gateway.clone(),
            },
            gateway,
            listener: "http".into(),
        };
        let frontend = Frontend::new(id.clone(), Protocol::Http, 80);
        proxy.apply(Delta {
            frontends: vec![(id, Some(Arc::new(frontend)))],
            ..endpoint_delta(1)
        });
        proxy
    }

    fn apply(&mut self, delta: Delta) -> ApplyOutcome {
        self.tables.apply(&delta);
        let mut changed = Changed::default();
        changed.record(&delta);
        self.update(changed, false)
    }

    fn update(&mut self, changed: Changed, retry: bool) -> ApplyOutcome {
        self.proxy.apply(Update {
            tables: self.tables.clone(),
            sockets: self.sockets.clone(),
            pods: self.pods.clone(),
            changed,
            retry,
        })
    }

    /// The configuration that the workers use.
    fn config(&self) -> Arc<ConfigSnapshot> {
        lock(&self.proxy.state).config.clone()
    }
}

fn tcp(address: SocketAddr) -> SocketKey {
    SocketKey {
        address,
        transport: Transport::Tcp,
    }
}

fn web() -> BackendId {
    let key = ObjectKey::new(Kind::Service, "infra", "web");
    BackendId::new(key, 80, Transport::Tcp)
}

fn endpoint_delta(port: u16) -> Delta {
    let endpoint = BoundEndpoint::ready(SocketAddr::from(([127, 0, 0, 1], port)));
    let endpoints = Endpoints::Addresses(vec![endpoint]);
    Delta {
        endpoints: vec![(web(), Some(Arc::new(endpoints)))],
        ..Delta::default()
    }
}

fn occupied() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port")
}

// DESIGN.md: "A changed endpoint neither waits for a route nor invalidates anything compiled."
#[test]
fn an_endpoint_change_leaves_the_configuration_alone_even_if_a_port_is_occupied() {
    let other = occupied();
    let address = other.local_addr().expect("an address");
    let mut proxy = TestProxy::new(address);
    let config = proxy.config();
    let outcome = proxy.apply(endpoint_delta(2));
    assert!(
        outcome.unbound.contains_key(&tcp(address)),
        "still reported"
    );
    assert!(Arc::ptr_eq(&proxy.config(), &config));
    // Only a retry or a change of the configuration touches the sockets.
    drop(other);
    let outcome = proxy.apply(endpoint_delta(3));
    assert!(outcome.unbound.contains_key(&tcp(address)));
    assert!(Arc::ptr_eq(&proxy.config(), &config));
    let outcome = proxy.update(Changed::default(), true);
    assert!(outcome.unbound.is_empty(), "{outcome:?}");
}

#[test]
fn a_change_of_pods_and_their_endpoints_leaves_the_configuration_alone() {
    let free = occupied().local_addr().expect("an address");
    let mut proxy = TestProxy::new(free);
    let config = proxy.config();
    let pod = ObjectKey::new(Kind::Pod, "infra", "web-1");
    let workload = pointsman_binding::bound::Workload {
        address: None,
        age: pointsman_resources::Age::InputOrder(0),
    };
    proxy.pods.insert(free.ip(), pod.clone());
    proxy.apply(Delta {
        workloads: vec![(pod, Some(Arc::new(workload)))],
        ..endpoint_delta(2)
    });
    assert!(Arc::ptr_eq(&proxy.config(), &config));
}
