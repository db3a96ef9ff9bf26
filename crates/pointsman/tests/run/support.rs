//! A running process, its folder, and questions to its admin server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long enough for any machine; nobody waits so long when all is well.
const LONG: Duration = Duration::from_secs(30);

pub const CLASS: &str = "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: pointsman}, spec: {controllerName: pointsman.io/controller}}\n";

/// A Gateway of ours in `infra` with one HTTP listener.
pub fn gateway(name: &str, port: u16) -> String {
    gateway_with(name, port, "")
}

pub fn gateway_with(name: &str, port: u16, fields: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: {name}, namespace: infra}}, spec: {{gatewayClassName: pointsman, {fields}listeners: [{{name: http, port: {port}, protocol: HTTP}}]}}}}\n"
    )
}

/// An HTTPRoute of the Gateway `edge`, for a path.
pub fn route(name: &str, path: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}, namespace: infra}}, spec: {{parentRefs: [{{name: edge}}], rules: [{{matches: [{{path: {{value: {path}}}}}], filters: [{{type: RequestRedirect, requestRedirect: {{statusCode: 302}}}}]}}]}}}}\n"
    )
}

pub fn join(documents: &[&str]) -> String {
    documents.join("---\n")
}

/// A port that is free now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A range of loopback addresses for one test alone.
pub fn pool() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, test) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let second = 128 + process % 120;
    let third = process / 120 % 64 * 4 + test / 16 % 4;
    format!("127.{second}.{third}.{}/28", test % 16 * 16)
}

/// An address for one test alone: no other program's connections have ports there.
pub fn own_address() -> String {
    let pool = pool();
    let base = pool.split('/').next().and_then(|text| text.parse().ok());
    let base: Ipv4Addr = base.expect("an address");
    Ipv4Addr::from_bits(base.to_bits() + 1).to_string()
}

/// Waits until something holds.
#[allow(clippy::disallowed_methods, reason = "a test waits in real time")]
pub fn until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs the binary to its end.
pub fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

pub struct Running {
    pub child: Child,
    pub folder: tempfile::TempDir,
    pub admin: SocketAddr,
    /// What was printed at the start.
    pub lines: Vec<String>,
    said: Arc<Mutex<String>>,
}

impl Running {
    /// Starts on a folder with these files.
    pub fn start(files: &[(&str, &str)]) -> Running {
        Running::with(files, &["--address-pool", &pool()])
    }

    pub fn with(files: &[(&str, &str)], arguments: &[&str]) -> Running {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("m")).expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join("m").join(name), text).expect("written");
        }
        Running::on(folder, arguments)
    }

    /// Starts on what is in the folder `m` of this one.
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
        let said = Arc::new(Mutex::new(String::new()));
        let mut errors = child.stderr.take().expect("a pipe");
        let all = said.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(number @ 1..) = errors.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..number]);
                all.lock().expect("a lock").push_str(&text);
            }
        });
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut lines = Vec::new();
        let admin = loop {
            let mut line = String::new();
            let read = out.read_line(&mut line).expect("text");
            let heard = || said.lock().expect("a lock").clone();
            assert!(read > 0, "it ended: {}", heard());
            let line = line.trim_end().to_owned();
            if let Some(rest) = line.strip_prefix("admin on http://") {
                break rest.trim_end_matches('/').parse().expect("an address");
            }
            lines.push(line);
        };
        // What it prints later is read too, so that it never waits for us.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let running = Running {
            child,
            folder,
            admin,
            lines,
            said,
        };
        until("ready", || (running.get("/readyz").0 == 200).then_some(()));
        running
    }

    /// What it logged so far.
    pub fn said(&self) -> String {
        self.said.lock().expect("a lock").clone()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a file in the folder in one step.
    pub fn write(&self, name: &str, text: &str) {
        let beside = self.path("new");
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(beside, self.path("m").join(name)).expect("renamed");
    }

    pub fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.path(from), self.path(to)).expect("renamed");
    }

    pub fn get(&self, target: &str) -> (u16, String) {
        let (status, _, body) = self.ask(&format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.admin
        ));
        (status, body)
    }

    /// Whether it says that it is ready; none if it does not answer.
    pub fn is_ready(&self) -> Option<bool> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        let _ = stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.get(9..12)? == "200")
    }

    /// Sends these bytes and reads the answer: status, head, body.
    pub fn ask(&self, bytes: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.admin).expect("the admin server");
        stream.set_read_timeout(Some(LONG)).expect("a time limit");
        stream.write_all(bytes.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        (
            status.unwrap_or_else(|| panic!("no status: {answer:?}")),
            head.to_owned(),
            body.to_owned(),
        )
    }

    pub fn json(&self, target: &str) -> Value {
        let (status, body) = self.get(target);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// An object of `/status`.
    pub fn object(&self, kind: &str, name: &str) -> Option<Value> {
        let status = self.json("/status");
        let items = status["items"].as_array().expect("a list");
        let found = items
            .iter()
            .find(|item| item["kind"] == kind && item["metadata"]["name"] == name);
        found.cloned()
    }

    /// The paths that are routed, as `/config` has them.
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

    pub fn until_paths(&self, wanted: &[&str]) {
        until(&format!("paths {wanted:?}"), || {
            (self.paths() == wanted).then_some(())
        });
    }

    /// The messages of `errors` or `warnings` in `/status`.
    pub fn told(&self, list: &str) -> Vec<String> {
        let status = self.json("/status");
        let all = status[list].as_array().into_iter().flatten();
        all.map(|finding| {
            let text = |field: &str| finding[field].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("file"), text("message"))
        })
        .collect()
    }

    pub fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        let done = Command::new("kill").args([name, &process]).status();
        assert!(done.expect("kill").success());
    }

    pub fn exit(&mut self) -> Option<i32> {
        until("it ends", || self.child.try_wait().expect("a child")).code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A condition of an object or of one of its listeners, as `False/PortUnavailable`.
pub fn condition(of: &Value, kind: &str) -> String {
    let all = of["conditions"].as_array().into_iter().flatten();
    let mut found = all.filter(|condition| condition["type"] == kind);
    found.next().map_or("not set".to_owned(), |condition| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("status"), text("reason"))
    })
}

/// The first address of a Gateway's status.
pub fn address(gateway: &Value) -> String {
    let value = gateway["status"]["addresses"][0]["value"].as_str();
    value.unwrap_or_default().to_owned()
}

/// Makes the link `to` lead to `target` in one step.
pub fn relink(target: &str, to: &Path) {
    let mut beside = to.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    std::os::unix::fs::symlink(target, &beside).expect("linked");
    std::fs::rename(beside, to).expect("renamed");
}
