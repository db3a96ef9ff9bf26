//! A running process, its directory, and requests to its admin server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use pointsman_test_support::process::KilledOnDrop;
pub use pointsman_test_support::wait::{TIMEOUT, free_port, until};
use serde_json::Value;

pub const CLASS: &str = "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: pointsman}, spec: {controllerName: pointsman.io/controller}}\n";

/// Returns a Gateway in `infra` with one HTTP listener.
pub fn gateway(name: &str, port: u16) -> String {
    gateway_with(name, port, "")
}

pub fn gateway_with(name: &str, port: u16, fields: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: {name}, namespace: infra}}, spec: {{gatewayClassName: pointsman, {fields}listeners: [{{name: http, port: {port}, protocol: HTTP}}]}}}}\n"
    )
}

/// Returns an HTTPRoute of the Gateway `edge` that redirects a path.
pub fn route(name: &str, path: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}, namespace: infra}}, spec: {{parentRefs: [{{name: edge}}], rules: [{{matches: [{{path: {{value: {path}}}}}], filters: [{{type: RequestRedirect, requestRedirect: {{statusCode: 302}}}}]}}]}}}}\n"
    )
}

pub fn join(documents: &[&str]) -> String {
    documents.join("---\n")
}

/// Returns a range of loopback addresses that no other test uses.
pub fn pool() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, test) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let second = 128 + process % 120;
    let third = process / 120 % 64 * 4 + test / 16 % 4;
    format!("127.{second}.{third}.{}/28", test % 16 * 16)
}

/// Returns an address that no other test or program uses.
pub fn own_address() -> String {
    let pool = pool();
    let base = pool.split('/').next().and_then(|text| text.parse().ok());
    let base: Ipv4Addr = base.expect("an address");
    Ipv4Addr::from_bits(base.to_bits() + 1).to_string()
}

/// Runs the binary until it exits. Returns its status and standard error.
pub fn run_to_exit(arguments: &[&str]) -> (Option<i32>, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

/// A running `pointsman run`, which is killed on drop.
pub struct Running {
    pub child: KilledOnDrop,
    pub folder: tempfile::TempDir,
    pub admin: SocketAddr,
    /// Lines that were printed at startup.
    pub lines: Vec<String>,
    stderr: Arc<Mutex<String>>,
}

impl Running {
    /// Starts with these manifests.
    pub fn start(files: &[(&str, &str)]) -> Running {
        Running::with(files, &["--address-pool", &pool()])
    }

    /// Starts with these manifests and additional arguments.
    pub fn with(files: &[(&str, &str)], arguments: &[&str]) -> Running {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(folder.path().join("m")).expect("a directory");
        for (name, text) in files {
            std::fs::write(folder.path().join("m").join(name), text).expect("written");
        }
        Running::on(folder, arguments)
    }

    /// Starts with the manifests in the directory `m` of this one.
    pub fn on(folder: tempfile::TempDir, arguments: &[&str]) -> Running {
        let admin: &[&str] = match arguments.contains(&"--admin") {
            true => &[],
            false => &["--admin", "127.0.0.1:0"],
        };
        let mut child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .args(["run", "-f", "m", "--workers", "1"])
            .args(admin)
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stderr = Arc::new(Mutex::new(String::new()));
        let mut errors = child.stderr.take().expect("a pipe");
        let log = stderr.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(number @ 1..) = errors.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..number]);
                log.lock().expect("a lock").push_str(&text);
            }
        });
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = Vec::new();
        let admin = loop {
            let mut line = String::new();
            let read = out.read_line(&mut line).expect("text");
            let log = || stderr.lock().expect("a lock").clone();
            assert!(read > 0, "the process exited: {}", log());
            let line = line.trim_end().to_owned();
            if let Some(rest) = line.strip_prefix("admin on http://") {
                break rest.trim_end_matches('/').parse().expect("an address");
            }
            lines.push(line);
        };
        // Later output is read as well, so that the process never blocks on the pipe.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let running = Running {
            child: KilledOnDrop(child),
            folder,
            admin,
            lines,
            stderr,
        };
        until("ready", || (running.get("/readyz").0 == 200).then_some(()));
        running
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.stderr.lock().expect("a lock").clone()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a manifest atomically.
    pub fn write(&self, name: &str, text: &str) {
        let beside = self.path("new");
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(beside, self.path("m").join(name)).expect("renamed");
    }

    pub fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.path(from), self.path(to)).expect("renamed");
    }

    pub fn get(&self, target: &str) -> (u16, String) {
        let (status, _, body) = self.exchange(&format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.admin
        ));
        (status, body)
    }

    /// Returns whether the process reports that it is ready. `None` if it does not respond.
    pub fn is_ready(&self) -> Option<bool> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        let _ = stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n");
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        Some(response.get(9..12)? == "200")
    }

    /// Sends bytes and reads the response: status, head and body.
    pub fn exchange(&self, bytes: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.admin).expect("the admin server");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a time limit");
        stream.write_all(bytes.as_bytes()).expect("sent");
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("a response");
        let response = String::from_utf8(response).expect("text");
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        (
            status.unwrap_or_else(|| panic!("no status: {response:?}")),
            head.to_owned(),
            body.to_owned(),
        )
    }

    pub fn json(&self, target: &str) -> Value {
        let (status, body) = self.get(target);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// Returns an object of `/status`.
    pub fn object(&self, kind: &str, name: &str) -> Option<Value> {
        let status = self.json("/status");
        let items = status["items"].as_array().expect("a list");
        let found = items
            .iter()
            .find(|item| item["kind"] == kind && item["metadata"]["name"] == name);
        found.cloned()
    }

    /// Returns the paths of all rules in `/config`.
    pub fn paths(&self) -> Vec<String> {
        let config = self.json("/config");
        let mut all = Vec::new();
        for frontend in config["frontends"].as_array().into_iter().flatten() {
            for host in frontend["hosts"].as_array().into_iter().flatten() {
                let rules = host["rules"].as_array().into_iter().flatten();
                let paths = rules.filter_map(|rule| rule["match"]["path"]["value"].as_str());
                all.extend(paths.map(str::to_owned));
            }
        }
        all.sort();
        all
    }

    pub fn until_paths(&self, expected: &[&str]) {
        until(&format!("paths {expected:?}"), || {
            (self.paths() == expected).then_some(())
        });
    }

    /// Returns the messages of `errors` or `warnings` in `/status`.
    pub fn findings(&self, list: &str) -> Vec<String> {
        let status = self.json("/status");
        let all = status[list].as_array().into_iter().flatten();
        all.map(|finding| {
            let text = |field: &str| finding[field].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("file"), text("message"))
        })
        .collect()
    }

    pub fn signal(&self, name: &str) {
        self.child.signal(name);
    }

    pub fn exit(&mut self) -> Option<i32> {
        until("the process exits", || {
            self.child.try_wait().expect("a child")
        })
        .code()
    }
}

/// Returns a condition of an object or of one of its listeners, as `False/PortUnavailable`.
pub fn condition(owner: &Value, kind: &str) -> String {
    let all = owner["conditions"].as_array().into_iter().flatten();
    let mut found = all.filter(|condition| condition["type"] == kind);
    found.next().map_or("not set".to_owned(), |condition| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("status"), text("reason"))
    })
}

/// Returns the first address of a Gateway's status.
pub fn address(gateway: &Value) -> String {
    let value = gateway["status"]["addresses"][0]["value"].as_str();
    value.unwrap_or_default().to_owned()
}

/// Replaces the symbolic link `link` atomically.
pub fn relink(target: &str, link: &Path) {
    let mut beside = link.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    std::os::unix::fs::symlink(target, &beside).expect("linked");
    std::fs::rename(beside, link).expect("renamed");
}
