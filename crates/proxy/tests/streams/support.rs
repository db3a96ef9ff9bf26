//! What these tests share: a data plane fed with manifests, backends, and clients. Every test has an address of its own, so that ports never meet.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pointsman_binding::bound::{Backend, BackendId, FrontendId, Protocol, Transport};
use pointsman_binding::{Binder, Change};
use pointsman_proxy::{ApplyOutcome, Changed, Options, Proxy, SocketKey, SocketOwner, Update};
use pointsman_resources::read::ManifestReader;
use pointsman_resources::{Kind, Name, ObjectKey, Severity};
use pointsman_routing::Tables;

/// Longer than anything takes that works.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// An address of loopback that nobody else uses.
pub fn address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::new(127, 64 | high, low, next as u8)
}

/// A data plane, and what it was told.
pub struct TestProxy {
    pub proxy: Proxy,
    pub outcome: ApplyOutcome,
    address: Ipv4Addr,
    binder: Binder,
    tables: Tables,
    sockets: BTreeMap<SocketKey, SocketOwner>,
    pods: HashMap<IpAddr, ObjectKey>,
    needed: Vec<BackendId>,
    implicit: HashMap<BackendId, Arc<Backend>>,
    changed: Changed,
}

/// One worker, unless told otherwise.
pub fn options() -> Options {
    Options {
        workers: Some(1),
        ..Options::default()
    }
}

impl TestProxy {
    pub fn new(yaml: &str) -> TestProxy {
        TestProxy::with(options(), yaml)
    }

    pub fn with(options: Options, yaml: &str) -> TestProxy {
        let mut proxy = TestProxy {
            proxy: Proxy::start(options).expect("a data plane"),
            outcome: ApplyOutcome::default(),
            address: address(),
            binder: Binder::new(),
            tables: Tables::default(),
            sockets: BTreeMap::new(),
            pods: HashMap::new(),
            needed: Vec::new(),
            implicit: HashMap::new(),
            changed: Changed::default(),
        };
        proxy.apply(&format!("{CLASS}{yaml}"));
        proxy
    }

    /// Adds or replaces what is in these documents.
    pub fn apply(&mut self, yaml: &str) {
        let mut reader = ManifestReader::new();
        reader.read("test.yaml", yaml.as_bytes());
        let input = reader.finish();
        for finding in &input.findings {
            assert!(finding.severity != Severity::Error, "{finding}");
        }
        let put = |document: pointsman_resources::read::Document| Change::Put(document.resource);
        let changes = input.documents.into_iter().map(put).collect();
        self.change(changes);
    }

    pub fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
        let key = ObjectKey {
            kind,
            name: Name::new(namespace, name),
        };
        self.change(vec![Change::Delete(key)]);
    }

    fn change(&mut self, changes: Vec<Change>) {
        let delta = self.binder.apply(changes);
        self.tables.apply(&delta);
        self.changed.record(&delta);
        for (id, backend) in &delta.backends {
            if self.needed.contains(id) {
                match backend {
                    Some(backend) => drop(self.implicit.insert(id.clone(), backend.clone())),
                    None => drop(self.implicit.remove(id)),
                }
            }
        }
        self.update();
    }

    /// A port of a Service is listened on.
    pub fn listen_on_service(
        &mut self,
        service: (&str, &str),
        port: u16,
        transport: Transport,
    ) -> SocketAddr {
        let id = BackendId::new(
            ObjectKey {
                kind: Kind::Service,
                name: Name::new(service.0, service.1),
            },
            port,
            transport,
        );
        let key = self.unused_socket(transport);
        let owner = SocketOwner::Mesh {
            parent: id.object.clone(),
            port,
        };
        self.sockets.insert(key, owner);
        self.needed.push(id.clone());
        self.change(vec![Change::Need(id, true)]);
        key.address
    }

    /// A Pod of this namespace has this address.
    pub fn add_pod(&mut self, address: Ipv4Addr, namespace: &str) {
        let pod = ObjectKey::new(Kind::Pod, namespace, "client");
        self.pods.insert(address.into(), pod);
        self.update();
    }

    fn update(&mut self) {
        let mut wanted = BTreeMap::new();
        for table in self.tables.frontends() {
            let frontend = table.frontend();
            let FrontendId::Listener { gateway, .. } = &frontend.id else {
                continue;
            };
            let transport = match frontend.protocol {
                Protocol::Udp => Transport::Udp,
                _ => Transport::Tcp,
            };
            let owner = SocketOwner::Gateway {
                gateway: gateway.clone(),
                port: frontend.port,
            };
            wanted.insert((frontend.port, transport), owner);
        }
        let known = |owner: &SocketOwner| wanted.values().any(|other| other == owner);
        self.sockets
            .retain(|_, owner| matches!(owner, SocketOwner::Mesh { .. }) || known(owner));
        for ((_, transport), owner) in wanted {
            let there = |(key, other): (&SocketKey, &SocketOwner)| {
                key.transport == transport && *other == owner
            };
            if !self.sockets.iter().any(there) {
                let key = self.unused_socket(transport);
                self.sockets.insert(key, owner);
            }
        }
        self.outcome = self.proxy.apply(Update {
            tables: self.tables.clone(),
            sockets: Arc::new(self.sockets.clone()),
            pods: Arc::new(self.pods.clone()),
            implicit: Arc::new(self.implicit.clone()),
            changed: std::mem::take(&mut self.changed),
        });
        assert!(self.outcome.unbound.is_empty(), "{:?}", self.outcome);
    }

    /// A port of the test's own address that is free.
    fn unused_socket(&self, transport: Transport) -> SocketKey {
        loop {
            let address = match transport {
                Transport::Tcp => TcpListener::bind((self.address, 0)).and_then(|s| s.local_addr()),
                Transport::Udp => UdpSocket::bind((self.address, 0)).and_then(|s| s.local_addr()),
            };
            let key = SocketKey {
                address: address.expect("a port"),
                transport,
            };
            if !self.sockets.contains_key(&key) {
                return key;
            }
        }
    }

    /// Where a listener's port is.
    pub fn tcp_address(&self, port: u16) -> SocketAddr {
        self.find(port, Transport::Tcp)
    }

    /// The same for datagrams.
    pub fn udp_address(&self, port: u16) -> SocketAddr {
        self.find(port, Transport::Udp)
    }

    fn find(&self, port: u16, transport: Transport) -> SocketAddr {
        let of = |(key, owner): (&SocketKey, &SocketOwner)| match owner {
            SocketOwner::Gateway { port: own, .. }
                if *own == port && key.transport == transport =>
            {
                Some(key.address)
            }
            _ => None,
        };
        self.sockets.iter().find_map(of).expect("a listener")
    }

    /// A figure, summed over its labels that contain this.
    pub fn metric(&self, name: &str, labels: &str) -> u64 {
        let text = self.proxy.metrics().render();
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        });
        lines
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
            .sum()
    }

    /// Waits until a figure is this.
    pub fn wait_for_metric(&self, name: &str, labels: &str, wanted: u64) {
        wait_for(&format!("{name} {labels} = {wanted}"), || {
            self.metric(name, labels) == wanted
        });
    }
}

/// Waits until something holds.
pub fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come to be");
        thread::sleep(Duration::from_millis(5));
    }
}

const CLASS: &str = "
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: ours}, spec: {controllerName: pointsman.io/controller}}
";

/// A Gateway `infra/edge` with these listeners.
pub fn gateway(listeners: &str) -> String {
    doc(
        "Gateway",
        "edge",
        &format!("{{gatewayClassName: ours, listeners: [{listeners}]}}"),
    )
}

/// A document of the Gateway API in `infra`.
pub fn doc(kind: &str, name: &str, spec: &str) -> String {
    document("gateway.networking.k8s.io/v1", kind, name, spec)
}

pub fn document(version: &str, kind: &str, name: &str, spec: &str) -> String {
    format!(
        "\n---\n{{apiVersion: {version}, kind: {kind}, metadata: {{namespace: infra, name: {name}}}, spec: {spec}}}"
    )
}

/// A route of this kind from a listener of `edge` to these backends.
pub fn route(kind: &str, name: &str, listener: &str, backends: &str) -> String {
    doc(
        kind,
        name,
        &format!(
            "{{parentRefs: [{{name: edge, sectionName: {listener}}}], rules: [{{backendRefs: [{backends}]}}]}}"
        ),
    )
}

/// A Service in `infra` of port 1000 with these endpoints.
pub fn service(name: &str, endpoints: &[SocketAddr]) -> String {
    service_document("TCP", name, endpoints)
}

pub fn udp_service(name: &str, endpoints: &[SocketAddr]) -> String {
    service_document("UDP", name, endpoints)
}

fn service_document(protocol: &str, name: &str, endpoints: &[SocketAddr]) -> String {
    let mut yaml = document(
        "v1",
        "Service",
        name,
        &format!("{{ports: [{{name: p, port: 1000, protocol: {protocol}}}]}}"),
    );
    for (at, endpoint) in endpoints.iter().enumerate() {
        yaml += &format!(
            "\n---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{namespace: infra, name: {name}-{at}, labels: {{kubernetes.io/service-name: {name}}}}}, ports: [{{name: p, port: {}, protocol: {protocol}}}], endpoints: [{{addresses: [{}]}}]}}",
            endpoint.port(),
            endpoint.ip()
        );
    }
    yaml
}

/// A backend that does this with each connection.
pub fn backend(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(with_timeouts(stream)));
        }
    });
    address
}

/// One that says its name, reads to the end, and says how many bytes came.
pub fn named_backend(name: &'static str) -> SocketAddr {
    backend(move |mut stream| {
        let _ = stream.write_all(format!("{name} ").as_bytes());
        let mut received = Vec::new();
        if stream.read_to_end(&mut received).is_ok() {
            let _ = stream.write_all(format!("{} bytes", received.len()).as_bytes());
        }
    })
}

/// An address where nobody is.
pub fn refusing_address() -> SocketAddr {
    // Bound, not listening: it refuses, and nobody else gets the port.
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    socket.bind(&any.into()).expect("bound");
    let address = socket.local_addr().expect("an address");
    std::mem::forget(socket);
    address.as_socket().expect("an address of IP")
}

/// A connection that does not wait for ever.
pub fn connect(address: SocketAddr) -> TcpStream {
    with_timeouts(TcpStream::connect(address).expect("connected"))
}

pub fn with_timeouts(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

/// Sends this and says that it is all; what comes back until the end.
pub fn send_and_read(address: SocketAddr, what: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(what).expect("written");
    stream.shutdown(Shutdown::Write).expect("ended");
    let mut received = String::new();
    stream.read_to_string(&mut received).expect("an answer");
    received
}

/// Whether a connection ends, by an end or a reset, before anything is said.
pub fn is_refused(mut stream: TcpStream) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
