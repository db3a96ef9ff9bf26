//! Network namespaces that are reached over a link. Both need privileges.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace with one address, and the link to it. Both are deleted on drop.
#[derive(Debug)]
pub struct Link {
    /// Name of the namespace, and of the near end of the link. The far end is `eth0`.
    pub name: String,
    /// Address in the namespace.
    pub address: Ipv4Addr,
}

impl Link {
    /// Creates a namespace and a link. Prints the reason if that is not permitted, and fails if it has to be: for root with `CI` in the environment.
    pub fn new() -> Option<Link> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % 8;
        let name = format!("pm{}-{number}", std::process::id());
        if let Err(reason) = run("ip", &format!("netns add {name}")) {
            let is_required = std::env::var_os("CI").is_some() && is_root();
            assert!(
                !is_required,
                "no network namespace can be created: {reason}"
            );
            let line = format!("skipped: no network namespace can be created: {reason}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            return None;
        }
        // A /30 of 198.18.0.0/15, which RFC 2544 reserves for tests.
        let network = 0xc612_0000 + (std::process::id() % 0x1000) * 32 + number * 4;
        let near = Ipv4Addr::from_bits(network + 1);
        let address = Ipv4Addr::from_bits(network + 2);
        let link = Link { name, address };
        let name = &link.name;
        for line in [
            format!("link add {name} type veth peer name eth0 netns {name}"),
            format!("addr add {near}/30 dev {name}"),
            format!("link set {name} up"),
            format!("-n {name} addr add {address}/30 dev eth0"),
            format!("-n {name} link set eth0 up"),
            format!("-n {name} link set lo up"),
        ] {
            run("ip", &line).unwrap_or_else(|error| panic!("ip {line}: {error}"));
        }
        Some(link)
    }

    /// Takes the link down. Connections are not closed, and nothing arrives.
    pub fn cut(&self) {
        self.ip("link set eth0 down");
    }

    /// Takes the link up.
    pub fn restore(&self) {
        self.ip("link set eth0 up");
    }

    fn ip(&self, line: &str) {
        let line = format!("-n {} {line}", self.name);
        run("ip", &line).unwrap_or_else(|error| panic!("ip {line}: {error}"));
    }

    /// Runs a program in the namespace until it ends.
    pub fn run(&self, program: &str, line: &str) -> Result<(), String> {
        run("ip", &format!("netns exec {} {program} {line}", self.name))
    }

    /// Returns a command that runs in the namespace.
    pub fn command(&self, program: &str) -> Command {
        // nsenter replaces itself, so the process that is killed is the program.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name));
        command.arg(program);
        command
    }
}

/// Returns whether the effective user is root.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

impl Drop for Link {
    fn drop(&mut self) {
        // Either may be gone already.
        let _ = run("ip", &format!("link del {}", self.name));
        let _ = run("ip", &format!("netns del {}", self.name));
    }
}

/// Runs a program until it ends. Returns its errors.
fn run(program: &str, line: &str) -> Result<(), String> {
    let run = Command::new(program).args(line.split_whitespace()).output();
    let output = run.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
