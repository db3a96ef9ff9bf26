//! A controller with any number of proxies, each in its own process, and the commands that query the controller.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Output};

use pointsman_test_support::process::KilledOnDrop;
use serde_json::Value;

use crate::support::gateway::{Address, BINARY, ask_page};
use crate::support::{eventually, within};

const XDS: u16 = 15010;
const ADMIN: u16 = 15000;

/// A process with its admin server.
#[derive(Debug)]
pub struct Process {
    child: KilledOnDrop,
    address: Address,
}

impl Process {
    fn start(arguments: &[&str], folder: &std::path::Path, address: Address) -> Process {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .args(["--admin", &address.at(ADMIN).to_string()])
            .current_dir(folder);
        let child = KilledOnDrop::with_log(&mut command, &folder.join("log"));
        Process { child, address }
    }

    /// Sends a signal, such as `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        self.child.signal(name);
    }

    /// A port at the address of this process.
    pub fn at(&self, port: u16) -> SocketAddr {
        self.address.at(port)
    }

    pub fn admin(&self) -> SocketAddr {
        self.address.at(ADMIN)
    }

    /// A page of the admin server.
    pub async fn page(&self, target: &str) -> (u16, String) {
        let page = ask_page(self.admin(), target).await.expect("a page");
        (page.status, page.text())
    }

    pub async fn ready(&self) {
        let admin = self.admin();
        eventually("the process is ready", || async move {
            ask_page(admin, "/readyz")
                .await
                .is_some_and(|page| page.status == 200)
        })
        .await;
    }
}

/// A controller whose manifests a test writes.
#[derive(Debug)]
pub struct Plane {
    pub controller: Process,
    folder: tempfile::TempDir,
}

impl Plane {
    /// Starts a controller.
    pub async fn start(manifests: &str) -> Plane {
        Plane::with(manifests, &[]).await
    }

    /// Starts a controller with more arguments.
    pub async fn with(manifests: &str, arguments: &[&str]) -> Plane {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("m")).expect("a folder");
        std::fs::write(folder.path().join("m/main.yaml"), manifests).expect("written");
        let address = Address::new();
        let xds = address.at(XDS).to_string();
        let mut all = vec!["controller", "-f", "m", "--xds", &xds];
        all.extend(arguments);
        let controller = Process::start(&all, folder.path(), address);
        controller.ready().await;
        Plane { controller, folder }
    }

    /// Address of the xDS server.
    pub fn xds(&self) -> SocketAddr {
        self.controller.address.at(XDS)
    }

    /// Replaces the manifests atomically.
    pub fn write(&self, manifests: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, manifests).expect("written");
        std::fs::rename(new, self.folder.path().join("m/main.yaml")).expect("renamed");
    }

    /// Starts a proxy and waits until it serves.
    pub async fn proxy(&self, name: &str, arguments: &[&str]) -> Process {
        let proxy = self.launch_proxy(name, arguments);
        proxy.ready().await;
        proxy
    }

    /// Starts a proxy.
    pub fn launch_proxy(&self, name: &str, arguments: &[&str]) -> Process {
        let address = Address::new();
        let (url, own) = (format!("http://{}", self.xds()), address.ip.to_string());
        let mut all = vec!["proxy", "--name", name, "--address", &own, "--workers", "1"];
        if !arguments.contains(&"--control-plane") {
            all.extend(["--control-plane", &url]);
        }
        all.extend(arguments);
        Process::start(&all, self.folder.path(), address)
    }

    /// URL of the controller's admin server.
    pub fn server(&self) -> String {
        format!("http://{}", self.controller.admin())
    }

    /// Runs a command that queries the controller.
    pub async fn command(&self, arguments: &[&str]) -> Output {
        let server = self.server();
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--server", &server]);
        let run = tokio::task::spawn_blocking(move || command.output().expect("the binary runs"));
        within("the end of a command", run).await.expect("no panic")
    }

    /// A condition of a route with respect to its only parent.
    pub async fn condition(&self, route: &str, kind: &str) -> Value {
        let (_, page) = self.controller.page("/status").await;
        let page: Value = serde_json::from_str(&page).expect("JSON");
        let items = page["items"].as_array().expect("a list");
        let item = items.iter().find(|item| item["metadata"]["name"] == route);
        let parents = &item.expect("the route")["status"]["parents"];
        let conditions = parents[0]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        conditions
            .find(|condition| condition["type"] == kind)
            .unwrap_or_default()
    }

    /// Waits until the condition `InEffect` of a route has a status and reason. Returns it.
    pub async fn until_effect(&self, route: &str, status: &str, reason: &str) -> Value {
        let what = format!("{route}: InEffect={status} {reason}");
        within(&what, async {
            loop {
                let condition = self.condition(route, "pointsman.io/InEffect").await;
                if condition["status"] == status && condition["reason"] == reason {
                    return condition;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// Value of a metric of the controller.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, page) = self.controller.page("/metrics").await;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}"))
            .parse()
            .expect("a number")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The output of a failed test is shown with it.
            let log = format!("--- log\n{}---\n", self.log());
            let _ = std::io::stderr().write_all(log.as_bytes());
        }
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
