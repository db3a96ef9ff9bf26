//! A data plane keeps connections, health of endpoints and counters of weights when it receives resources again or other ones change.

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
use pointsman_routing::{Tables, WeightedSelector};
use pointsman_test_support::wait::until;
use pointsman_wire::xds::discovery::DeltaDiscoveryResponse;
use proptest::prelude::*;
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
        let delta = Binder::new().apply(documents(yaml));
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

/// Returns manifests as changes.
fn documents(yaml: &str) -> Vec<Change> {
    let mut reader = ManifestReader::new();
    reader.read("test.yaml", yaml.as_bytes());
    let input = reader.finish();
    assert!(input.findings.is_empty(), "{:?}", input.findings);
    let documents = input.documents.into_iter();
    documents
        .map(|document| Change::Put(document.resource))
        .collect()
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

/// A configuration with three weighted backends and a mirror.
#[derive(Clone, Debug)]
struct State {
    weights: [u32; 3],
    /// Mirrored requests in percent.
    percent: u32,
    /// Timeout in the rule of the weights.
    timeout: u32,
    /// Timeout in another rule of the route.
    other: u32,
}

/// A change between two requests.
#[derive(Clone, Debug)]
enum Step {
    /// All resources are received again.
    Resend,
    /// Another rule of the route changes.
    EditOther,
    /// The rule changes, but not its weights.
    EditTimeout,
    EditWeights([u32; 3]),
    EditMirror(u32),
}

impl State {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Resend => {}
            Step::EditOther => self.other += 1,
            Step::EditTimeout => self.timeout += 1,
            Step::EditWeights(weights) => self.weights = *weights,
            Step::EditMirror(percent) => self.percent = *percent,
        }
    }

    /// Returns the Gateway of [`manifests`], with a route for this state. The Services are the three backends and the mirror.
    fn manifests(&self, services: &[&[SocketAddr]]) -> String {
        let yaml = manifests(services);
        let (before, _) = yaml.split_once("rules: [{").expect("rules");
        let backends: Vec<String> = (0..3)
            .map(|at| format!("{{name: s{at}, port: 80, weight: {}}}", self.weights[at]))
            .collect();
        let State {
            percent,
            timeout,
            other,
            ..
        } = self;
        format!(
            "{before}rules: [\
             {{matches: [{{path: {{value: /other}}}}], timeouts: {{request: {other}s}}, backendRefs: [{{name: s0, port: 80}}]}}, \
             {{timeouts: {{request: {timeout}s}}, filters: [{{type: RequestMirror, requestMirror: {{backendRef: {{name: s3, port: 80}}, percent: {percent}}}}}], backendRefs: [{}]}}]}}}}\n",
            backends.join(", ")
        )
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let weights = (0..3u32, 0..3u32, 4..7u32).prop_map(|(a, b, c)| [a, b, c]);
    let step = prop_oneof![
        8 => Just(Step::Resend),
        4 => Just(Step::EditOther),
        4 => Just(Step::EditTimeout),
        1 => weights.prop_map(Step::EditWeights),
        1 => (1..100u32).prop_map(Step::EditMirror),
    ];
    proptest::collection::vec(step, 80)
}

/// Sends a request after each step. Returns the requests that each backend and the mirror got, those that the weights demand, the connections, and the
/// connections to an endpoint of the third backend that closes them.
fn requests_after(steps: &[Step], host: u8) -> ([usize; 4], [usize; 4], [usize; 4], usize) {
    let addresses = [host, host + 1, host + 2, host + 3].map(free);
    let backends = addresses.map(|address| Backend::start(address, true));
    let bad = Backend::start(free(host + 4), false);
    let endpoints = backends.each_ref().map(|backend| backend.address);
    let weighted = [endpoints[2], bad.address];
    let services = [
        &endpoints[..1],
        &endpoints[1..2],
        &weighted,
        &endpoints[3..],
    ];
    let mut state = State {
        weights: [1, 1, 4],
        percent: 30,
        timeout: 100,
        other: 100,
    };
    let mut binder = Binder::new();
    let mut plane = DataPlane::start(free(host + 5), &state.manifests(&services));
    binder.apply(documents(&state.manifests(&services)));
    let mut selector = WeightedSelector::new(state.weights);
    let mut mirror = WeightedSelector::fraction(state.percent, 100);
    let mut expected = [0; 4];
    for step in steps {
        let old = state.clone();
        state.apply(step);
        let documents = documents(&state.manifests(&services));
        let message = match step {
            Step::Resend => pointsman_wire::encode(&Binder::new().apply(documents)),
            _ => pointsman_wire::encode(&binder.apply(documents)),
        };
        assert_eq!(plane.receive_message(&message), [""; 0]);
        if state.weights != old.weights {
            selector = WeightedSelector::new(state.weights);
        }
        if state.percent != old.percent {
            mirror = WeightedSelector::fraction(state.percent, 100);
        }
        plane.get();
        expected[selector.next().expect("a weight")] += 1;
        expected[3] += usize::from(mirror.is_selected());
        until("the mirror gets its copy", || {
            (backends[3].requests() >= expected[3]).then_some(())
        });
    }
    let requests = backends.each_ref().map(Backend::requests);
    let connections = backends.each_ref().map(Backend::connections);
    (requests, expected, connections, bad.connections())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn resent_and_changed_resources_keep_connections_health_and_weights(steps in steps()) {
        let (requests, expected, connections, failed) = requests_after(&steps, 20);
        let [one, two, three, mirror] = requests;
        prop_assert_eq!([one, two, three + failed, mirror], expected);
        for (connections, requests) in connections.iter().zip(requests).take(3) {
            prop_assert_eq!(*connections, requests.min(1));
        }
        // Without ejection every second request to the third backend would go to its failing endpoint.
        prop_assert!(failed <= 12 && expected[2] > 30, "{} of {}", failed, expected[2]);
    }
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
