//! A network namespace for the control plane, behind a link that can be cut and can lose packets.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A namespace with one address, and the link to it. Both are deleted with this value.
pub struct Link {
    name: String,
    pub address: Ipv4Addr,
}

impl Link {
    /// Creates a link, or prints why it can't: network namespaces need privileges.
    pub fn new() -> Option<Link> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % 8;
        let name = format!("pf{}-{number}", std::process::id());
        if let Err(reason) = run("ip", &format!("netns add {name}")) {
            let line = format!("skipped: no network namespace can be created: {reason}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            return None;
        }
        // A /30 of 198.19.0.0/16, which RFC 2544 reserves for tests.
        let network = 0xc613_0000 + (std::process::id() % 0x800) * 32 + number * 4;
        let (near, address) = (
            Ipv4Addr::from_bits(network + 1),
            Ipv4Addr::from_bits(network + 2),
        );
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

    /// A command that runs in the namespace.
    pub fn command(&self, program: &str) -> Command {
        // nsenter replaces itself, so the process that is killed is the program.
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.name))
            .arg(program);
        command
    }

    /// Takes the link down. Connections are not closed, and no packets arrive.
    pub fn cut(&mut self) {
        self.ip("link set eth0 down");
    }

    /// Takes the link up, and ends losses.
    pub fn heal(&mut self) {
        // There may be none.
        let _ = self.inside("nft", "delete table inet faults");
        self.ip("link set eth0 up");
    }

    /// Drops a share of the packets in both directions, in percent.
    pub fn lose(&mut self, percent: u32) {
        let _ = self.inside("nft", "delete table inet faults");
        let rules = format!(
            "add table inet faults; \
             add chain inet faults in {{ type filter hook input priority 0; }}; \
             add chain inet faults out {{ type filter hook output priority 0; }}; \
             add rule inet faults in iifname eth0 numgen random mod 100 < {percent} drop; \
             add rule inet faults out oifname eth0 numgen random mod 100 < {percent} drop"
        );
        if let Err(reason) = self.inside("nft", &rules) {
            let line = format!("no packets are lost, because nft fails: {reason}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn ip(&self, line: &str) {
        let line = format!("-n {} {line}", self.name);
        run("ip", &line).unwrap_or_else(|error| panic!("ip {line}: {error}"));
    }

    fn inside(&self, program: &str, line: &str) -> Result<(), String> {
        run("ip", &format!("netns exec {} {program} {line}", self.name))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Either may have been deleted already.
        let _ = run("ip", &format!("link del {}", self.name));
        let _ = run("ip", &format!("netns del {}", self.name));
    }
}

fn run(program: &str, line: &str) -> Result<(), String> {
    let run = Command::new(program).args(line.split_whitespace()).output();
    let output = run.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
