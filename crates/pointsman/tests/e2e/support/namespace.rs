//! A host that can become unreachable: a network namespace at the other end of a veth pair.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace with one address, deleted on drop.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
}

impl Host {
    /// Creates a host. Prints the reason if network namespaces are not permitted.
    pub fn new() -> Option<Host> {
        let name = format!("pm{}", std::process::id());
        if let Err(reason) = ip(&format!("netns add {name}")) {
            let line = format!("skipped: no network namespace can be created: {reason}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            return None;
        }
        // A /30 of 198.18.0.0/15, which RFC 2544 reserves for tests.
        let network = 0xc612_0000 + (std::process::id() % 0x8000) * 4;
        let (near, address) = (
            Ipv4Addr::from_bits(network + 1),
            Ipv4Addr::from_bits(network + 2),
        );
        let host = Host { name, address };
        let name = &host.name;
        for line in [
            format!("link add {name} type veth peer name eth0 netns {name}"),
            format!("addr add {near}/30 dev {name}"),
            format!("link set {name} up"),
            format!("-n {name} addr add {address}/30 dev eth0"),
            format!("-n {name} link set eth0 up"),
        ] {
            ip(&line).unwrap_or_else(|error| panic!("ip {line}: {error}"));
        }
        Some(host)
    }

    /// A listening socket of the host.
    pub fn listener(&self) -> TcpListener {
        let (path, address) = (format!("/run/netns/{}", self.name), self.address);
        // A separate thread changes its namespace; a socket stays in the one it was created in.
        let bound = std::thread::spawn(move || {
            let namespace = std::fs::File::open(path).expect("a namespace");
            let fd = std::os::fd::AsFd::as_fd(&namespace);
            move_into_link_name_space(fd, Some(LinkNameSpaceType::Network)).expect("entered");
            TcpListener::bind((address, 0)).expect("a port")
        });
        let listener = bound.join().expect("no panic");
        listener.set_nonblocking(true).expect("a socket");
        listener
    }

    /// Bytes sent to the host that it has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        let remote = format!("{:08X}:", u32::from_le_bytes(self.address.octets()));
        let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
        let rows = table.lines().skip(1).map(|row| row.split_whitespace());
        rows.filter_map(|mut row| {
            let queues = row.nth(2)?.starts_with(&remote).then(|| row.nth(1))??;
            let (unacknowledged, _) = queues.split_once(':')?;
            u64::from_str_radix(unacknowledged, 16).ok()
        })
        .sum()
    }

    /// Takes the link down: the host no longer responds, and does not close connections.
    pub fn vanish(&self) {
        ip(&format!("-n {} link set eth0 down", self.name)).expect("down");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Either may have been deleted already.
        let _ = ip(&format!("link del {}", self.name));
        let _ = ip(&format!("netns del {}", self.name));
    }
}

fn ip(line: &str) -> Result<(), String> {
    let run = Command::new("ip").args(line.split(' ')).output();
    let output = run.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
