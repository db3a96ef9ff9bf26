//! A namespace and a GatewayClass on the cluster of `KUBECONFIG`, and controllers and proxies as processes of this machine.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pointsman_test_support::process::KilledOnDrop;
pub use pointsman_test_support::wait::free_port;
use serde_json::Value;

pub const BINARY: &str = env!("CARGO_BIN_EXE_pointsman");

/// Deadline of every step.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs kubectl, and returns what it prints or why it failed.
pub fn try_kubectl(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command = Command::new("kubectl");
    command.args(arguments).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kubectl is installed");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("kubectl reads it");
    drop(stdin);
    let output = child.wait_with_output().expect("kubectl ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

pub fn kubectl(arguments: &[&str], input: &str) -> String {
    let result = try_kubectl(arguments, input);
    result.unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
}

/// A namespace with a GatewayClass of its own. Both are deleted at the end.
pub struct Lab {
    pub namespace: String,
    pub controller_name: String,
    folder: tempfile::TempDir,
}

impl Lab {
    pub fn new(test: &str) -> Self {
        let namespace = format!("pointsman-{test}-{}", std::process::id());
        let lab = Lab {
            controller_name: format!("example.com/{namespace}"),
            folder: tempfile::tempdir().expect("a folder"),
            namespace,
        };
        kubectl(&["create", "namespace", &lab.namespace], "");
        lab.apply(&format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {{name: {}}}, spec: {{controllerName: {}}}}}",
            lab.namespace, lab.controller_name
        ));
        lab
    }

    /// Applies manifests in the namespace.
    pub fn apply(&self, manifests: &str) {
        let arguments = ["apply", "--server-side", "-n", &self.namespace, "-f", "-"];
        kubectl(&arguments, manifests);
    }

    /// Applies a Gateway with one HTTP listener, and the ServiceAccount of its proxies.
    pub fn gateway(&self, name: &str, port: u16) {
        self.apply(&format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: {name}}},
              spec: {{gatewayClassName: {class}, listeners: [{{name: http, port: {port}, protocol: HTTP}}]}}}}
---
{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {account}}}}}
",
            class = self.namespace,
            account = self.account(name),
        ));
    }

    /// Applies a Gateway with one HTTP listener, and nothing for its proxies.
    pub fn gateway_alone(&self, name: &str, port: u16) {
        self.apply(&format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: {name}}},
              spec: {{gatewayClassName: {class}, listeners: [{{name: http, port: {port}, protocol: HTTP}}]}}}}",
            class = self.namespace,
        ));
    }

    /// Applies an HTTPRoute for a host, to a Service of the same name as the route.
    pub fn route(&self, name: &str, gateway: &str, host: &str) {
        self.apply(&format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}}},
              spec: {{parentRefs: [{{name: {gateway}}}], hostnames: [{host}], rules: [{{backendRefs: [{{name: {name}, port: 80}}]}}]}}}}"
        ));
    }

    /// Applies a Service whose endpoint is a socket of this machine.
    pub fn service(&self, name: &str, endpoint: SocketAddr) {
        self.apply(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: 80}}]}}}}
---
{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}},
  addressType: IPv4, ports: [{{port: {port}}}], endpoints: [{{addresses: [{ip}]}}]}}
",
            port = endpoint.port(),
            ip = endpoint.ip(),
        ));
    }

    /// Name of the ServiceAccount of a Gateway's proxies.
    pub fn account(&self, gateway: &str) -> String {
        format!("{gateway}-{}", self.namespace)
    }

    pub fn get(&self, kind: &str, name: &str) -> Value {
        let text = kubectl(
            &["get", kind, name, "-n", &self.namespace, "-o", "json"],
            "",
        );
        serde_json::from_str(&text).expect("it is JSON")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a token of a ServiceAccount to a file.
    pub fn token(&self, account: &str, audience: &str) -> PathBuf {
        let arguments = [
            "create",
            "token",
            account,
            "-n",
            &self.namespace,
            "--audience",
            audience,
        ];
        let path = self.path(&format!("token-{account}-{}", audience.len()));
        std::fs::write(&path, kubectl(&arguments, "")).expect("written");
        path
    }

    /// Writes the bundle of the control plane's authorities to a file, as soon as there is one.
    pub fn bundle(&self) -> PathBuf {
        let template = "jsonpath={.data.ca\\.crt}";
        let arguments = [
            "get",
            "secret",
            "pointsman-ca",
            "-n",
            &self.namespace,
            "-o",
            template,
        ];
        let text = eventually("the authority is in a Secret", || {
            try_kubectl(&arguments, "").ok()
        });
        use base64::Engine;
        let pem = base64::engine::general_purpose::STANDARD.decode(text);
        let path = self.path("ca.crt");
        std::fs::write(&path, pem.expect("it is base64")).expect("written");
        path
    }

    /// Starts a controller of the namespace's GatewayClass, and waits until it is ready.
    pub fn controller(&self, instance: &str) -> Process {
        self.start_controller(instance, "127.0.0.1", &["--gateway-class", &self.namespace])
    }

    /// Starts a controller that exchanges reports of proxies with its replicas, and waits until it is ready.
    pub fn replica(&self, instance: &str) -> Process {
        self.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: controller}}");
        let token = self.token("controller", "pointsman");
        let token = token.to_str().expect("UTF-8");
        let class = ["--gateway-class", &self.namespace];
        let own = ["--advertise-address", "127.0.0.1", "--token", token];
        self.start_controller(instance, "127.0.0.1", &[&class[..], &own].concat())
    }

    /// Starts a controller of all GatewayClasses with the controller name, and waits until it is ready.
    pub fn controller_without_class(&self, instance: &str) -> Process {
        self.start_controller(instance, "127.0.0.1", &[])
    }

    /// Starts a controller that starts proxies in Pods, which reach it through a Service.
    pub fn generating_controller(&self, instance: &str, image: &str) -> Process {
        let controller = self.start_controller(
            instance,
            "0.0.0.0",
            &["--proxy-image", image, "--proxy-image-pull-policy", "Never"],
        );
        let (port, ip) = (controller.port, own_address());
        self.apply(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: pointsman-controller}}, spec: {{ports: [{{port: 15010}}]}}}}
---
{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: pointsman-controller-1, labels: {{kubernetes.io/service-name: pointsman-controller}}}},
  addressType: IPv4, ports: [{{port: {port}}}], endpoints: [{{addresses: [{ip}]}}]}}
",
        ));
        controller
    }

    fn start_controller(&self, instance: &str, listen: &str, more: &[&str]) -> Process {
        let (xds, admin) = (free_port(), free_port());
        let (xds_address, admin_address) =
            (format!("{listen}:{xds}"), format!("127.0.0.1:{admin}"));
        let arguments = [
            "controller",
            "--namespace",
            &self.namespace,
            "--controller-name",
            &self.controller_name,
            "--instance",
            instance,
            "--xds",
            &xds_address,
            "--admin",
            &admin_address,
        ];
        let arguments = [&arguments[..], more].concat();
        let process = Process::start(&self.path(instance), &arguments, admin, xds);
        process.ready();
        process
    }

    /// Starts a proxy of a Gateway that follows some controllers.
    pub fn proxy(
        &self,
        name: &str,
        gateway: &str,
        token: &Path,
        controllers: &[&Process],
    ) -> Process {
        let (admin, offset) = (free_port(), 20_000);
        let selected = format!("{}/{gateway}", self.namespace);
        let (bundle, admin_address) = (self.bundle(), format!("127.0.0.1:{admin}"));
        let mut arguments = vec!["proxy", "--name", name, "--gateway", &selected];
        arguments.extend([
            "--admin",
            &admin_address,
            "--port-offset",
            "20000",
            "--workers",
            "1",
        ]);
        arguments.extend(["--token", token.to_str().expect("UTF-8")]);
        arguments.extend(["--control-plane-ca", bundle.to_str().expect("UTF-8")]);
        let urls = controllers.iter();
        let urls: Vec<String> = urls
            .map(|one| format!("https://127.0.0.1:{}", one.port))
            .collect();
        for url in &urls {
            arguments.extend(["--control-plane", url]);
        }
        Process::start(&self.path(name), &arguments, admin, offset)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let class = ["delete", "gatewayclass", &self.namespace, "--wait=false"];
        let namespace = ["delete", "namespace", &self.namespace, "--wait=false"];
        for arguments in [class, namespace] {
            let _ = try_kubectl(&arguments, "");
        }
    }
}

/// A process of the binary. It ends with the test; if the test failed, its log is shown.
pub struct Process {
    child: KilledOnDrop,
    log: PathBuf,
    admin: u16,
    /// Port for proxies, of a controller.
    pub port: u16,
}

impl Process {
    pub fn start(path: &Path, arguments: &[&str], admin: u16, port: u16) -> Process {
        let log = path.with_extension("log");
        // A restarted process has a new log.
        std::fs::write(&log, "").expect("a file");
        let child = KilledOnDrop::with_log(Command::new(BINARY).args(arguments), &log);
        Process {
            child,
            log,
            admin,
            port,
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the process is ready.
    pub fn ready(&self) {
        eventually("the process is ready", || self.is_ready().then_some(()));
    }

    pub fn is_ready(&self) -> bool {
        self.page("/readyz")
            .is_some_and(|(status, _)| status == 200)
    }

    /// Status and body of a page of the admin server.
    pub fn page(&self, path: &str) -> Option<(u16, String)> {
        http_get(([127, 0, 0, 1], self.admin).into(), "localhost", path)
    }

    /// Value of a metric, with its labels.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let (_, text) = self.page("/metrics")?;
        let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(value)
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Stops the process gracefully, and waits until it has exited.
    pub fn stop(&mut self) {
        self.child.signal("TERM");
        self.child.wait().expect("it ends");
    }
}

#[allow(clippy::print_stderr, reason = "a failed test shows the logs")]
impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

/// Waits until a function returns a value.
pub fn eventually<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let end = now() + LIMIT;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(now() < end, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[allow(clippy::disallowed_methods, reason = "a test measures real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Status and body of a response; `None` if there is none.
pub fn http_get(address: SocketAddr, host: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Starts a backend that answers every request with a text. Its address can be reached from pods too.
pub fn backend(text: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || respond(stream, text));
        }
    });
    SocketAddr::new(own_address(), port)
}

fn respond(mut stream: TcpStream, text: &str) {
    let mut bytes = [0; 4096];
    while let Ok(number) = stream.read(&mut bytes)
        && number > 0
    {
        let length = text.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{text}");
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
    }
}

/// An address of this machine that the API server accepts in EndpointSlices.
fn own_address() -> IpAddr {
    let server = kubectl(
        &[
            "config",
            "view",
            "--minify",
            "-o",
            "jsonpath={.clusters[0].cluster.server}",
        ],
        "",
    );
    let host = server.trim_start_matches("https://");
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // This sends nothing.
    socket.connect(host).expect("a route to the API server");
    socket.local_addr().expect("an address").ip()
}

/// The entry of a controller in a route's status.
pub fn parent<'a>(route: &'a Value, controller: &str) -> Option<&'a Value> {
    let parents = route["status"]["parents"].as_array()?;
    parents
        .iter()
        .find(|parent| parent["controllerName"] == controller)
}

/// Status and reason of a condition.
pub fn condition<'a>(owner: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = owner["conditions"].as_array()?;
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind)?;
    Some((found["status"].as_str()?, found["reason"].as_str()?))
}
