//! A data plane keeps its connections and statistics when it receives resources again. These tests resend every resource after each request.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pointsman_binding::bound::Transport;
use pointsman_binding::{Binder, Change};
use pointsman_proxy::{Changed, Options, Proxy, SocketKey, SocketOwner, Update};
use pointsman_resources::Name;
use pointsman_resources::read::ManifestReader;
use pointsman_routing::Tables;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A server that counts connections and requests.
struct Backend {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Backend {
    /// Starts a server that answers requests, or closes every connection at once.
    fn start(address: SocketAddr, answers: bool) -> Backend {
        let listener = TcpListener::bind(address).expect("a free port");
        let backend = Backend {
            address: listener.local_addr().expect("an address"),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, requests) = (backend.connections.clone(), backend.requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::SeqCst);
                if answers {
                    let requests = requests.clone();
                    std::thread::spawn(move || answer(stream, &requests));
                }
            }
        });
        backend
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, requests: &AtomicUsize) {
    while read_head(&mut stream) {
        requests.fetch_add(1, Ordering::SeqCst);
        if stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .is_err()
        {
            return;
        }
    }
}

/// Reads to the end of a message head. Returns false at the end of the stream.
fn read_head(stream: &mut TcpStream) -> bool {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// A data plane that receives the same resources repeatedly.
struct DataPlane {
    proxy: Proxy,
    tables: Tables,
    message: Vec<u8>,
    listener: SocketAddr,
}

impl DataPlane {
    fn start(listener: SocketAddr, yaml: &str) -> DataPlane {
        let mut reader = ManifestReader::new();
        reader.read("test.yaml", yaml.as_bytes());
        let input = reader.finish();
        assert!(input.findings.is_empty(), "{:?}", input.findings);
        let documents = input.documents.into_iter();
        let changes = documents.map(|document| Change::Put(document.resource));
        let delta = Binder::new().apply(changes);
        let options = Options {
            workers: Some(1),
            ..Options::default()
        };
        let mut plane = DataPlane {
            proxy: Proxy::start(options).expect("a data plane"),
            tables: Tables::default(),
            message: pointsman_wire::encode(&delta),
            listener,
        };
        plane.receive();
        plane
    }

    /// Decodes and applies all resources.
    fn receive(&mut self) {
        let decoded = pointsman_wire::decode(&self.message).expect("a message");
        assert_eq!(decoded.rejected, []);
        let mut changed = Changed::default();
        changed.record(&decoded.delta);
        self.tables.apply(&decoded.delta);
        let owner = SocketOwner::Gateway {
            gateway: Name::new("infra", "edge"),
            port: 80,
        };
        let key = SocketKey {
            address: self.listener,
            transport: Transport::Tcp,
        };
        let outcome = self.proxy.apply(Update {
            tables: self.tables.clone(),
            sockets: Arc::new(BTreeMap::from([(key, owner)])),
            changed,
            ..Update::default()
        });
        assert!(outcome.unbound.is_empty() && outcome.faulty.is_empty());
    }

    /// Sends a request on a connection of its own.
    fn get(&self) {
        let mut stream = TcpStream::connect(self.listener).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let request = b"GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n";
        stream.write_all(request).expect("the request is sent");
        assert!(read_head(&mut stream), "no response");
    }
}

/// Returns a free address on a loopback address of this test.
fn free(host: u8) -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 192 | (high & 31), low, host);
    let probe = TcpListener::bind((address, 0)).expect("a loopback address");
    probe.local_addr().expect("an address")
}

/// Returns a Gateway whose route forwards to Services with these endpoints, each with the same weight.
fn manifests(services: &[&[SocketAddr]]) -> String {
    let mut yaml = r#"
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: pointsman}, spec: {controllerName: pointsman.io/controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: infra}, spec: {gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}}
"#
    .to_owned();
    let mut references = Vec::new();
    for (index, endpoints) in services.iter().enumerate() {
        references.push(format!("{{name: s{index}, port: 80}}"));
        yaml += &format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: s{index}, namespace: infra}}, spec: {{ports: [{{name: http, port: 80}}]}}}}\n"
        );
        for (slice, endpoint) in endpoints.iter().enumerate() {
            yaml += &format!(
                "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: s{index}-{slice}, namespace: infra, labels: {{kubernetes.io/service-name: s{index}}}}}, addressType: IPv4, ports: [{{name: http, port: {}}}], endpoints: [{{addresses: [{}]}}]}}\n",
                endpoint.port(),
                endpoint.ip()
            );
        }
    }
    yaml + &format!(
        "---\n{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: r, namespace: infra}}, spec: {{parentRefs: [{{name: edge}}], rules: [{{backendRefs: [{}]}}]}}}}\n",
        references.join(", ")
    )
}

#[test]
fn resent_resources_do_not_close_connections_to_backends() {
    let backend = Backend::start(free(1), true);
    let mut plane = DataPlane::start(free(2), &manifests(&[&[backend.address]]));
    for _ in 0..20 {
        plane.get();
        plane.receive();
    }
    assert_eq!((backend.requests(), backend.connections()), (20, 1));
}

#[test]
fn resent_resources_do_not_reset_weighted_selection() {
    let backends = [3, 4, 5].map(|host| Backend::start(free(host), true));
    let endpoints = backends.each_ref().map(|backend| [backend.address]);
    let services = endpoints.each_ref().map(|endpoints| endpoints.as_slice());
    let mut plane = DataPlane::start(free(6), &manifests(&services));
    for _ in 0..30 {
        plane.get();
        plane.receive();
    }
    for backend in &backends {
        assert!(
            (8..=12).contains(&backend.requests()),
            "{}",
            backend.requests()
        );
    }
}

#[test]
fn resent_resources_do_not_reset_ejected_endpoints() {
    let (good, bad) = (
        Backend::start(free(7), true),
        Backend::start(free(8), false),
    );
    let mut plane = DataPlane::start(free(9), &manifests(&[&[good.address, bad.address]]));
    for _ in 0..100 {
        plane.get();
        plane.receive();
    }
    // Without ejection every second request would go to the failing endpoint first.
    assert!(bad.connections() < 25, "{}", bad.connections());
    assert!(good.requests() > 75, "{}", good.requests());
}
