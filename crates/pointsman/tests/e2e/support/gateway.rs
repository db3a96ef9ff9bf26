//! Runs the real binary on manifests, with unique loopback addresses.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pointsman_test_support::process::KilledOnDrop;

use super::http1::Http1;
use super::http2::Http2;
use super::message::{TestRequest, Response, get};
use super::{eventually, within};

/// The ports that the manifests of the tests use.
pub const HTTP: u16 = 8080;
pub const HTTPS: u16 = 8443;

/// A unique loopback address. Workers share ports (SO_REUSEPORT), so binding a port in use does not fail. Each Gateway has its own address instead, reserved by
/// a socket that is not shared.
#[derive(Debug)]
pub struct Address {
    pub ip: IpAddr,
    _held: TcpListener,
}

impl Address {
    pub fn new() -> Address {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // 127.128.0.0/9: a block of 2048 addresses for each process.
            let host = (std::process::id() % 4096) * 2048 + number % 2048;
            let ip = Ipv4Addr::from_bits(0x7f80_0000 + host);
            if matches!(host & 0xff, 0 | 255) {
                continue;
            }
            if let Ok(held) =
                TcpListener::bind((ip, 19)).or_else(|_| TcpListener::bind((ip, 15019)))
            {
                return Address {
                    ip: ip.into(),
                    _held: held,
                };
            }
        }
    }
}

impl Address {
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }
}

/// A running `pointsman run`, or `pointsman controller` and `pointsman proxy`. Stopped on drop, which prints the log if the test has failed.
#[derive(Debug)]
pub struct Gateway {
    pub address: Address,
    folder: tempfile::TempDir,
    process: KilledOnDrop,
    /// The control plane, if it is a separate process.
    controller: Option<KilledOnDrop>,
}

/// Settings of a Gateway to be started.
#[derive(Debug, Default)]
pub struct Setup {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    manifests: Vec<(String, String)>,
    hosts: Option<String>,
}

impl Setup {
    /// Adds a flag. `ADDRESS` in its value stands for the Gateway's own address.
    pub fn argument(mut self, name: &str, value: &str) -> Setup {
        self.arguments.extend([name.to_owned(), value.to_owned()]);
        self
    }

    pub fn environment(mut self, name: &str, value: &str) -> Setup {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `--limit NAME=VALUE`.
    pub fn limit(self, name: &str, value: &str) -> Setup {
        self.argument("--limit", &format!("{name}={value}"))
    }

    pub fn file(mut self, name: &str, manifest: &str) -> Setup {
        self.manifests.push((name.to_owned(), manifest.to_owned()));
        self
    }

    /// Uses a separate hosts file, in a mount namespace. `ADDRESS` is replaced by the Gateway's address.
    pub fn hosts(mut self, text: &str) -> Setup {
        self.hosts = Some(text.to_owned());
        self
    }

    /// Starts it and waits until it is ready.
    pub async fn start(self) -> Gateway {
        let mut gateway = self.launch();
        gateway.ready().await;
        gateway
    }

    /// Starts it.
    pub fn launch(self) -> Gateway {
        let address = Address::new();
        let folder = tempfile::tempdir().expect("a folder");
        let manifests = folder.path().join("manifests");
        std::fs::create_dir(&manifests).expect("a folder");
        for (name, text) in &self.manifests {
            std::fs::write(manifests.join(name), text).expect("written");
        }
        let log = folder.path().join("log");
        let controller = SPLIT.then(|| {
            let mut command = Command::new(BINARY);
            command.arg("controller").arg("-f").arg(&manifests);
            command.arg("--xds").arg(address.at(XDS).to_string());
            command
                .arg("--admin")
                .arg(address.at(CONTROLLER_ADMIN).to_string());
            command.args(self.arguments_of(&address, |name| !is_of_data_plane(name)));
            self.spawn(command, &log)
        });
        let mut command = self.data_plane_command(&folder, &address);
        match SPLIT {
            false => command.arg("run").arg("-f").arg(&manifests),
            true => command
                .args(["proxy", "--name", "test", "--control-plane"])
                .arg(format!("http://{}", address.at(XDS))),
        };
        command.arg("--admin").arg(address.at(ADMIN).to_string());
        command.arg("--address").arg(address.ip.to_string());
        if !self
            .arguments
            .iter()
            .any(|argument| argument == "--workers")
        {
            command.args(["--workers", "1"]);
        }
        command.args(self.arguments_of(&address, |name| !SPLIT || !is_of_control_plane(name)));
        let process = self.spawn(command, &log);
        Gateway {
            address,
            folder,
            process,
            controller,
        }
    }

    /// Returns the command, possibly with a separate hosts file.
    fn data_plane_command(&self, folder: &tempfile::TempDir, address: &Address) -> Command {
        let Some(hosts) = &self.hosts else {
            return Command::new(BINARY);
        };
        let file = folder.path().join("hosts");
        let text = hosts.replace("ADDRESS", &address.ip.to_string());
        std::fs::write(&file, text).expect("written");
        let mount = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", mount])
            .arg(file)
            .arg(BINARY);
        command
    }

    /// Returns the arguments for whose names `wanted` returns true, with their values.
    fn arguments_of(&self, address: &Address, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let pairs = self.arguments.chunks(2);
        let pairs = pairs.filter(|pair| wanted(&pair[0]));
        let ip = address.ip.to_string();
        pairs.flatten().map(|argument| argument.replace("ADDRESS", &ip)).collect()
    }

    fn spawn(&self, mut command: Command, log: &Path) -> KilledOnDrop {
        KilledOnDrop::with_log(command.envs(self.environment.iter().cloned()), log)
    }
}

/// True if control plane and data plane are separate processes.
pub const SPLIT: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"e2e_split");

pub const BINARY: &str = env!("CARGO_BIN_EXE_pointsman");
pub const XDS: u16 = 15010;
pub const CONTROLLER_ADMIN: u16 = 15001;

/// Returns whether a flag of `run` is one of `controller` and not of `proxy`.
fn is_of_control_plane(name: &str) -> bool {
    ["--content-dir", "--content-env"].contains(&name)
}

/// Returns whether a flag of `run` is one of `proxy` and not of `controller`.
fn is_of_data_plane(name: &str) -> bool {
    let both = ["--endpoint-addresses", "--allow-endpoint-range", "--admin-host"];
    !is_of_control_plane(name) && !both.contains(&name)
}

const ADMIN: u16 = 15000;

impl Gateway {
    /// Starts a Gateway with these manifests.
    pub async fn of(manifests: &str) -> Gateway {
        Gateway::setup(manifests).start().await
    }

    pub fn setup(manifests: &str) -> Setup {
        Setup::default().file("main.yaml", manifests)
    }

    pub async fn ready(&mut self) {
        let (admin, controller) = (self.admin(), self.address.at(CONTROLLER_ADMIN));
        within("the Gateway is ready", async {
            while ask_page(admin, "/readyz").await.is_none_or(|page| page.status != 200) {
                let ended = |process: &mut KilledOnDrop| process.try_wait().expect("a child");
                let controller = self.controller.as_mut();
                if let Some(status) = ended(&mut self.process).or(controller.and_then(ended)) {
                    panic!("pointsman ended with {status}");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // Statuses depend on the reports of the proxy. Once they are up to date, nothing more changes.
            let mut settled = 0;
            while SPLIT && settled < 2 {
                let page = ask_page(controller, "/proxies").await;
                settled = match page.is_some_and(|page| is_settled(&page)) {
                    true => settled + 1,
                    false => 0,
                };
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    pub fn admin(&self) -> SocketAddr {
        SocketAddr::new(self.address.ip, ADMIN)
    }

    /// Returns the address of the listener with this port.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address.ip, port)
    }

    /// Sends a request to the listener `http` over a new connection.
    pub async fn ask(&self, ask: TestRequest) -> Response {
        Http1::connect(self.at(HTTP)).await.ask(&ask).await
    }

    /// Sends a request over HTTP/2 with prior knowledge.
    pub async fn ask_http2(&self, ask: TestRequest) -> Response {
        Http2::connect(self.at(HTTP)).await.ask(&ask).await
    }

    /// Sends a request to the admin port.
    pub async fn ask_admin(&self, target: &str) -> Response {
        // The control plane knows Namespaces, Gateways and Dataplanes by name; the proxy knows the policy for paths.
        let is_explain = target.starts_with("/explain?");
        let names_objects = ["from=", "gateway="].iter().any(|key| target.contains(key));
        let of_control_plane = ["/status", "/proxies"].iter().any(|page| target.starts_with(page))
            || is_explain && names_objects;
        let address = match SPLIT && of_control_plane {
            true => self.address.at(CONTROLLER_ADMIN),
            false => self.admin(),
        };
        ask_page(address, target).await.expect("an admin server")
    }

    pub fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// Replaces a file atomically, as editors do.
    pub fn write(&self, name: &str, manifest: &str) {
        let beside = self.folder.path().join(format!("{name}.new"));
        std::fs::write(&beside, manifest).expect("written");
        std::fs::rename(beside, self.manifests().join(name)).expect("renamed");
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.manifests().join(name)).expect("removed");
    }

    /// Repeats a request until `wish` accepts the response.
    pub async fn until(&self, what: &str, ask: TestRequest, wish: impl Fn(&Response) -> bool) {
        eventually(what, || async { wish(&self.ask(ask.clone()).await) }).await;
    }

    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal, such as `TERM` or `HUP`.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
        if let Some(controller) = self.controller.as_ref().filter(|_| name == "HUP") {
            controller.signal(name);
        }
    }

    /// Waits for the process to exit.
    pub async fn ended(&mut self) -> ExitStatus {
        within("the Gateway ends", async {
            loop {
                if let Some(status) = self.process.try_wait().expect("a child") {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// Requests a page of an admin server; `None` if it does not respond.
pub async fn ask_page(address: SocketAddr, target: &str) -> Option<Response> {
    let ask = get(target).host("localhost").header("Connection", "close");
    let mut client = Http1::try_connect(address).await.ok()?;
    client.send(ask.bytes()).await;
    client.try_response().await.ok()
}

/// Returns whether the only proxy has the whole configuration, and its reports are in effect.
fn is_settled(page: &Response) -> bool {
    let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap_or_default();
    let proxy = &page["proxies"][0];
    proxy["lagSeconds"].is_null() && proxy["reportsApplied"] == true
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The test harness shows the output of failed tests.
            let log = format!("--- log of pointsman\n{}---\n", self.log());
            let _ = std::io::stderr().write_all(log.as_bytes());
        }
    }
}
