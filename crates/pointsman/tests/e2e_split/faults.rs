//! Control plane and proxy are killed, or disconnected from each other, at any moment and under traffic. A running proxy always responds, and once both run and
//! are connected, its responses correspond to the newest manifests.
//!
//! `scripts/faults` runs longer sequences. A failed one is repeated with `FAULTS_SEED`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pointsman_test_support::link::Link;
use pointsman_test_support::process::KilledOnDrop;
use tokio::time::Instant;

use crate::support::certificates::Authority;
use crate::support::gateway::Address;
use crate::support::http1::Http1;
use crate::support::manifests::{plain, route};
use crate::support::message::get;

mod link;
mod relay;

use link::{heal, lose};
use relay::Relay;

const BINARY: &str = env!("CARGO_BIN_EXE_pointsman");

/// Routes that change.
const ROUTES: usize = 6;

/// Routes that never change: they make snapshots large, so that they are interrupted.
const MORE: usize = 400;

/// Time until the newest manifests are in effect. Keepalive needs 20 s to detect a cut link, and attempts to connect are up to 10 s apart.
const CONVERGENCE: Duration = Duration::from_secs(90);

/// Longest delay in each direction, in milliseconds.
const MAX_DELAY: u64 = 300;

/// Ports of the control plane, and of the relay by which the proxy reaches it.
const XDS_PORT: u16 = 15010;
const RELAY_PORT: u16 = 15011;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn millis(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.below(limit))
    }
}

/// A rule that redirects requests for one path, so that the response shows its version.
fn answer(path: &str, version: usize) -> String {
    format!(
        "{{matches: [{{path: {{type: Exact, value: {path}}}}}], filters: [{{type: RequestRedirect, requestRedirect: {{path: {{type: ReplaceFullPath, replaceFullPath: /v{version}}}}}}}]}}"
    )
}

fn answering(name: &str, version: usize) -> String {
    route(name, &[&answer(&format!("/{name}"), version)])
}

/// Requests a path. Returns the version in the response; `None` for 404.
async fn ask(at: std::net::SocketAddr, path: &str) -> Result<Option<usize>, String> {
    let exchange = async {
        let mut client = Http1::try_connect(at)
            .await
            .map_err(|error| error.to_string())?;
        let answer = client
            .try_ask(&get(path).header("Connection", "close"))
            .await;
        let answer = answer.map_err(|error| error.to_string())?;
        let location = answer.header("location");
        match (answer.status, location.and_then(|to| to.rsplit_once("/v"))) {
            (404, None) => Ok(None),
            (302, Some((_, version))) => version.parse().map(Some).map_err(|_| version.to_owned()),
            (status, _) => Err(format!("{path}: {status}")),
        }
    };
    let limited = tokio::time::timeout(Duration::from_secs(10), exchange).await;
    limited.map_err(|_| format!("{path}: no answer"))?
}

/// Requests that must get a response while the proxy runs.
#[derive(Default)]
struct Traffic {
    /// Counts starts and exits of the proxy. Requests in between are ignored.
    epoch: AtomicUsize,
    answered: AtomicUsize,
    lost: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Traffic {
    async fn run(self: Arc<Self>, at: std::net::SocketAddr) {
        let mut answers_since = None;
        while !self.is_over.load(Ordering::SeqCst) {
            let epoch = self.epoch.load(Ordering::SeqCst);
            let answer = ask(at, "/stable").await;
            if self.epoch.load(Ordering::SeqCst) != epoch {
                continue;
            }
            match answer {
                Ok(Some(1)) => {
                    answers_since = Some(epoch);
                    self.answered.fetch_add(1, Ordering::SeqCst);
                }
                // It has not started yet.
                _ if answers_since != Some(epoch) => {}
                other => self
                    .lost
                    .lock()
                    .expect("no panic")
                    .push(format!("{other:?}")),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A control plane and a proxy.
struct SplitPlane {
    folder: tempfile::TempDir,
    address: Address,
    /// The network between them, if it is not loopback.
    link: Option<Link>,
    /// Delay of the bytes in both directions.
    relay: Relay,
    controller: Option<KilledOnDrop>,
    proxy: Option<KilledOnDrop>,
    traffic: Arc<Traffic>,
    /// Version of each route in the manifests; `None` if there is none.
    wanted: BTreeMap<usize, Option<usize>>,
    next: usize,
    /// Steps so far, for the message of a failed test.
    history: Vec<String>,
}

impl SplitPlane {
    fn new(link: Option<Link>) -> SplitPlane {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("manifests")).expect("a folder");
        let address = Address::new();
        let controller = link.as_ref().map_or(address.ip, |link| link.address.into());
        let mut split = SplitPlane {
            folder,
            relay: Relay::new(
                (address.ip, RELAY_PORT).into(),
                (controller, XDS_PORT).into(),
            ),
            address,
            link,
            controller: None,
            proxy: None,
            traffic: Arc::default(),
            wanted: (0..ROUTES).map(|number| (number, None)).collect(),
            next: 1,
            history: Vec::new(),
        };
        if let Some(link) = &split.link {
            let authority = Authority::new();
            let names = [split.address.ip.to_string(), link.address.to_string()];
            let identity = authority.issue(&names.each_ref().map(String::as_str));
            let files = [
                ("ca", &authority.pem),
                ("cert", &identity.certificate),
                ("key", &identity.key),
            ];
            for (name, text) in files {
                fs::write(split.folder.path().join(name), text).expect("written");
            }
        }
        let more: Vec<String> = (0..MORE)
            .map(|number| answering(&format!("more-{number}"), 1))
            .collect();
        split.write(
            "base",
            &(plain() + &answering("stable", 1) + &more.concat()),
        );
        split.start_controller();
        split.start_proxy();
        split
    }

    fn write(&self, name: &str, text: &str) {
        let beside = self.folder.path().join("new");
        fs::write(&beside, text).expect("written");
        let manifest = format!("manifests/{name}.yaml");
        fs::rename(beside, self.folder.path().join(manifest)).expect("renamed");
    }

    fn with_tls(&self, command: &mut Command) {
        for (flag, file) in [
            ("--tls-cert", "cert"),
            ("--tls-key", "key"),
            ("--client-ca", "ca"),
        ] {
            command.arg(flag).arg(self.folder.path().join(file));
        }
    }

    fn spawn(&self, mut command: Command) -> KilledOnDrop {
        KilledOnDrop::with_log(&mut command, &self.folder.path().join("log"))
    }

    fn start_controller(&mut self) {
        let mut command = match &self.link {
            Some(link) => link.command(BINARY),
            None => Command::new(BINARY),
        };
        let ip = self
            .link
            .as_ref()
            .map_or(self.address.ip, |link| link.address.into());
        command
            .arg("controller")
            .arg("-f")
            .arg(self.folder.path().join("manifests"));
        command.args([
            "--xds",
            &format!("{ip}:{XDS_PORT}"),
            "--admin",
            &format!("{}:15001", self.admin_ip()),
        ]);
        if self.link.is_some() {
            self.with_tls(&mut command);
        }
        self.controller = Some(self.spawn(command));
    }

    /// The admin server of the control plane is on loopback, in the control plane's own namespace if it has one.
    fn admin_ip(&self) -> std::net::IpAddr {
        match &self.link {
            Some(_) => [127, 0, 0, 1].into(),
            None => self.address.ip,
        }
    }

    fn start_proxy(&mut self) {
        let mut command = Command::new(BINARY);
        let scheme = if self.link.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}:{RELAY_PORT}", self.address.ip);
        let ip = self.address.ip.to_string();
        command.args([
            "proxy",
            "--name",
            "faults",
            "--control-plane",
            &url,
            "--address",
            &ip,
        ]);
        command.args([
            "--workers",
            "1",
            "--admin",
            &format!("{ip}:15000"),
            "--cache",
        ]);
        command.arg(self.folder.path().join("cache"));
        if self.link.is_some() {
            self.with_tls(&mut command);
        }
        self.traffic.epoch.fetch_add(1, Ordering::SeqCst);
        self.proxy = Some(self.spawn(command));
    }

    fn kill_controller(&mut self) {
        // With SIGKILL.
        self.controller = None;
    }

    fn kill_proxy(&mut self) {
        self.traffic.epoch.fetch_add(1, Ordering::SeqCst);
        self.proxy = None;
    }

    /// Changes or removes some routes.
    fn change(&mut self, random: &mut Random) {
        for _ in 0..=random.below(2) {
            let number = random.below(ROUTES as u64) as usize;
            let name = format!("route-{number}");
            let version = match random.below(5) {
                0 => None,
                _ => {
                    self.next += 1;
                    Some(self.next)
                }
            };
            match version {
                Some(version) => self.write(&name, &answering(&name, version)),
                // It may not exist.
                None => drop(fs::remove_file(
                    self.folder.path().join(format!("manifests/{name}.yaml")),
                )),
            }
            self.wanted.insert(number, version);
        }
    }

    /// Performs a random step, which may kill a process.
    async fn step(&mut self, random: &mut Random) {
        let what = random.below(if self.link.is_some() { 18 } else { 12 });
        self.history.push(what.to_string());
        match what {
            0..=4 => self.change(random),
            5..=7 => {
                self.change(random);
                tokio::time::sleep(random.millis(40)).await;
                self.kill_controller();
                tokio::time::sleep(random.millis(200)).await;
                self.change(random);
                self.start_controller();
            }
            8 | 9 => {
                self.change(random);
                tokio::time::sleep(random.millis(40)).await;
                self.kill_proxy();
                self.change(random);
                tokio::time::sleep(random.millis(200)).await;
                self.start_proxy();
            }
            10 | 11 => self.relay.delay(random.millis(MAX_DELAY)),
            other => {
                let link = self.link.as_ref().expect("a link");
                match other {
                    12 | 13 => link.cut(),
                    14..=16 => heal(link),
                    _ => lose(link, 20),
                }
            }
        }
        tokio::time::sleep(random.millis(300)).await;
    }

    /// Restores processes and network, and waits until the responses of all routes correspond to the manifests.
    async fn converge(&mut self) {
        if let Some(link) = &self.link {
            heal(link);
        }
        self.relay.delay(Duration::ZERO);
        let at = (self.address.ip, 8080).into();
        let end = Instant::now() + CONVERGENCE;
        let mut found = BTreeMap::new();
        while Instant::now() < end {
            for number in 0..ROUTES {
                found.insert(number, ask(at, &format!("/route-{number}")).await);
            }
            let all = self.wanted.iter();
            let is_wanted =
                |(number, version): (&usize, &Option<usize>)| found[number].as_ref() == Ok(version);
            if { all }.all(is_wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!(
            "after {CONVERGENCE:?}: found {found:?}, wanted {:?}",
            self.wanted
        );
    }
}

impl Drop for SplitPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let text = format!("--- steps {}\n--- log\n{log}---\n", self.history.join(" "));
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}

/// Seed and duration of a test. `scripts/faults` sets the duration, and uses another seed for each sequence.
fn plan(default: u64) -> (u64, Duration) {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let seconds = number("FAULTS_SECONDS");
    let random = std::process::id().into();
    let seed = number("FAULTS_SEED").unwrap_or(if seconds.is_some() { random } else { default });
    (seed, Duration::from_secs(seconds.unwrap_or(6)))
}

/// Prints the progress of a long run.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

async fn run(link: Option<Link>, default_seed: u64) {
    let (seed, duration) = plan(default_seed);
    say(&format!("FAULTS_SEED={seed}"));
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut split = SplitPlane::new(link);
    split.history.push(format!("FAULTS_SEED={seed}"));
    let traffic = split.traffic.clone();
    let client = tokio::spawn(traffic.clone().run((split.address.ip, 8080).into()));
    split.converge().await;
    let end = Instant::now() + duration;
    let mut sequences = 0;
    while sequences == 0 || Instant::now() < end {
        for _ in 0..12 {
            split.step(&mut random).await;
        }
        split.converge().await;
        sequences += 1;
    }
    traffic.is_over.store(true, Ordering::SeqCst);
    client.await.expect("no panic");
    let answered = traffic.answered.load(Ordering::SeqCst);
    say(&format!("{sequences} sequences, {answered} requests"));
    let lost = traffic.lost.lock().expect("no panic").clone();
    assert_eq!(lost, [""; 0], "of {answered}");
    assert!(answered > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_either_side_is_killed_at_any_moment_and_nothing_is_lost() {
    run(None, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_the_network_is_cut_and_loses_packets_and_nothing_is_lost() {
    let Some(link) = Link::new() else { return };
    run(Some(link), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_changes_arrive_over_a_network_that_delays_and_loses_packets() {
    let Some(link) = Link::new() else { return };
    lose(&link, 20);
    let mut split = SplitPlane::new(Some(link));
    split.relay.delay(Duration::from_millis(MAX_DELAY / 2));
    let mut random = Random(3);
    let at = (split.address.ip, 8080).into();
    let traffic = split.traffic.clone();
    let client = tokio::spawn(traffic.clone().run(at));
    for _ in 0..20 {
        split.change(&mut random);
        tokio::time::sleep(random.millis(100)).await;
    }
    let end = Instant::now() + CONVERGENCE;
    for (number, version) in split.wanted.clone() {
        while ask(at, &format!("/route-{number}")).await != Ok(version) {
            assert!(Instant::now() < end, "route {number} is not at {version:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    traffic.is_over.store(true, Ordering::SeqCst);
    client.await.expect("no panic");
    assert_eq!(*traffic.lost.lock().expect("no panic"), [""; 0]);
}
