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
use pointsman_wire::xds::discovery::DeltaDiscoveryResponse;
use prost::Message;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A server that counts connections and requests.
struct Backend {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Backend {
    /// Starts a server that responds to requests, or closes every connection at once.
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
        assert_eq!(self.receive_message(&self.message.clone()), [""; 0]);
    }

    /// Decodes and applies resources. Returns the names of those that are rejected.
    fn receive_message(&mut self, message: &[u8]) -> Vec<String> {
        let decoded = pointsman_wire::decode(message).expect("a message");
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
        let rejected = decoded.rejected.into_iter();
        rejected.map(|rejection| rejection.name).collect()
    }

    /// Receives the resources again, with one of them changed.
    fn receive_changed(&mut self, name: &str, change: impl Fn(&mut Vec<u8>)) -> Vec<String> {
        let mut message = DeltaDiscoveryResponse::decode(&*self.message).expect("a message");
        let mut all = message.resources.iter_mut();
        let resource = all.find(|resource| resource.name == name);
        let any = resource.and_then(|resource| resource.resource.as_mut());
        change(&mut any.expect("a resource of this name").value);
        self.receive_message(&message.encode_to_vec())
    }

    /// Sends a request on a separate connection.
    fn get(&self) {
        self.status("/");
    }

    /// Sends a request for a path on a separate connection. Returns the status of the response.
    fn status(&self, path: &str) -> u16 {
        let mut stream = TcpStream::connect(self.listener).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .expect("the request is sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let status = response.split(' ').nth(1);
        status
            .and_then(|status| status.parse().ok())
            .expect("a status")
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

/// A route with two rules, `/a` and `/b`.
fn two_rules(backend: &Backend) -> String {
    let yaml = manifests(&[&[backend.address]]);
    let rule = |path: &str| {
        format!("{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: s0, port: 80}}]}}")
    };
    let rules = format!("rules: [{}, {}]", rule("/a"), rule("/b"));
    let (before, _) = yaml.split_once("rules: [{").expect("rules");
    format!("{before}{rules}}}}}\n")
}

const RULE_A: &str = "rule/HTTPRoute/infra/r/gateway/0/0";

// resources.proto: "A rule with a filter that the receiver does not know responds with 500".
#[test]
fn a_rule_with_an_unknown_filter_answers_500_and_others_are_unaffected() {
    let backend = Backend::start(free(10), true);
    let mut plane = DataPlane::start(free(11), &two_rules(&backend));
    assert_eq!(["/a", "/b"].map(|path| plane.status(path)), [200, 200]);
    // Field 3, `filters`, with a case of number 99.
    let unknown = [3 << 3 | 2, 3, 0x9a, 0x06, 0];
    let rejected = plane.receive_changed(RULE_A, |rule| rule.extend(unknown));
    assert_eq!(rejected, [""; 0]);
    assert_eq!(["/a", "/b"].map(|path| plane.status(path)), [500, 200]);
    plane.receive();
    assert_eq!(["/a", "/b"].map(|path| plane.status(path)), [200, 200]);
}

#[test]
fn a_rejected_rule_keeps_its_last_version_in_effect_and_others_change() {
    let backend = Backend::start(free(12), true);
    let mut plane = DataPlane::start(free(13), &two_rules(&backend));
    plane.message = {
        let mut message = DeltaDiscoveryResponse::decode(&*plane.message).expect("a message");
        message
            .resources
            .retain(|resource| resource.name.starts_with("rule/"));
        message.encode_to_vec()
    };
    // The other rule is changed in the same message: it matches another path.
    let other = "rule/HTTPRoute/infra/r/gateway/1/0";
    let changed = plane.message.clone();
    plane.receive_changed(other, |rule| {
        let at = rule
            .windows(2)
            .position(|two| two == b"/b")
            .expect("a path");
        rule[at + 1] = b'c';
    });
    assert_eq!(
        ["/a", "/b", "/c"].map(|path| plane.status(path)),
        [200, 404, 200]
    );
    plane.message = changed;
    assert_eq!(
        plane.receive_changed(RULE_A, |rule| *rule = vec![0xff]),
        [RULE_A]
    );
    assert_eq!(
        ["/a", "/b", "/c"].map(|path| plane.status(path)),
        [200, 200, 404]
    );
}
