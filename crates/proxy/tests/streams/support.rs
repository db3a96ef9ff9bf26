//! Shared test support: a proxy configured from manifests, backends and clients. Each test has a loopback address of its own, so that ports never collide.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use pointsman_binding::bound::{BackendId, FrontendId, Protocol, Transport};
use pointsman_binding::{Binder, Change};
use pointsman_proxy::{ApplyOutcome, Changed, Options, Proxy, SocketKey, SocketOwner, Update};
use pointsman_resources::read::ManifestReader;
use pointsman_resources::{Kind, Name, ObjectKey, Severity};
use pointsman_routing::{Map, Tables};
pub use pointsman_test_support::wait::TIMEOUT;
use pointsman_test_support::wait::until;

/// Returns a loopback address that no other test uses.
pub fn address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::new(127, 64 | high, low, next as u8)
}

/// A proxy with its configuration.
pub struct TestProxy {
    pub proxy: Proxy,
    pub outcome: ApplyOutcome,
    address: Ipv4Addr,
    binder: Binder,
    tables: Tables,
    sockets: BTreeMap<SocketKey, SocketOwner>,
    pods: Map<IpAddr, ObjectKey>,
    changed: Changed,
}

/// Default options with one worker.
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
            pods: Map::default(),
            changed: Changed::default(),
        };
        proxy.apply(&format!("{CLASS}{yaml}"));
        proxy
    }

    /// Applies the documents of a manifest.
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
        self.update();
    }

    /// Listens on a port of a Service. Returns the bound address.
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
        self.change(vec![Change::Need(id, true)]);
        key.address
    }

    /// Adds a Pod with this address to a namespace.
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
            pods: self.pods.clone(),
            changed: std::mem::take(&mut self.changed),
            retry: false,
        });
        assert!(self.outcome.unbound.is_empty(), "{:?}", self.outcome);
    }

    /// Finds an unused port of the test's own address.
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

    /// Address at which a TCP listener port is bound.
    pub fn tcp_address(&self, port: u16) -> SocketAddr {
        self.find(port, Transport::Tcp)
    }

    /// Address at which a UDP listener port is bound.
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

    /// Returns the value of a metric, summed over the series whose labels contain `labels`.
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

    /// Waits until a metric has a value.
    pub fn wait_for_metric(&self, name: &str, labels: &str, wanted: u64) {
        wait_for(&format!("{name} {labels} = {wanted}"), || {
            self.metric(name, labels) == wanted
        });
    }
}

/// Waits for a condition.
pub fn wait_for(what: &str, holds: impl Fn() -> bool) {
    until(what, || holds().then_some(()));
}

const CLASS: &str = "
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: ours}, spec: {controllerName: pointsman.io/controller}}
";

/// Returns a Gateway `infra/edge` with these listeners.
pub fn gateway(listeners: &str) -> String {
    doc(
        "Gateway",
        "edge",
        &format!("{{gatewayClassName: ours, listeners: [{listeners}]}}"),
    )
}

/// Returns a Gateway API document in namespace `infra`.
pub fn doc(kind: &str, name: &str, spec: &str) -> String {
    document("gateway.networking.k8s.io/v1", kind, name, spec)
}

pub fn document(version: &str, kind: &str, name: &str, spec: &str) -> String {
    format!(
        "\n---\n{{apiVersion: {version}, kind: {kind}, metadata: {{namespace: infra, name: {name}}}, spec: {spec}}}"
    )
}

/// Returns a route of this kind from a listener of `edge` to these backends.
pub fn route(kind: &str, name: &str, listener: &str, backends: &str) -> String {
    doc(
        kind,
        name,
        &format!(
            "{{parentRefs: [{{name: edge, sectionName: {listener}}}], rules: [{{backendRefs: [{backends}]}}]}}"
        ),
    )
}

/// Returns a Service `infra/NAME` with port 1000 and these endpoints.
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

/// Starts a backend that calls a function for each connection.
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

/// Starts a backend that sends its name, reads to the end, and sends the number of bytes received.
pub fn named_backend(name: &'static str) -> SocketAddr {
    backend(move |mut stream| {
        let _ = stream.write_all(format!("{name} ").as_bytes());
        let mut received = Vec::new();
        if stream.read_to_end(&mut received).is_ok() {
            let _ = stream.write_all(format!("{} bytes", received.len()).as_bytes());
        }
    })
}

/// Returns an address that refuses connections.
pub fn refusing_address() -> SocketAddr {
    // Bound but not listening: connections are refused, and no other process gets the port.
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    socket.bind(&any.into()).expect("bound");
    let address = socket.local_addr().expect("an address");
    std::mem::forget(socket);
    address.as_socket().expect("an address of IP")
}

/// Connects with timeouts.
pub fn connect(address: SocketAddr) -> TcpStream {
    with_timeouts(TcpStream::connect(address).expect("connected"))
}

pub fn with_timeouts(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

/// Sends bytes and half-closes the connection. Returns everything received.
pub fn send_and_read(address: SocketAddr, what: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(what).expect("written");
    stream.shutdown(Shutdown::Write).expect("ended");
    let mut received = String::new();
    stream.read_to_string(&mut received).expect("a response");
    received
}

/// Returns whether a connection ends, with or without a reset, before any data arrives.
pub fn is_refused(mut stream: TcpStream) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
