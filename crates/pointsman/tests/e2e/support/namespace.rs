//! A host that can become unreachable: a network namespace at the other end of a link.

use std::net::TcpListener;

use pointsman_test_support::link::Link;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A listening socket of the host.
pub fn listener(host: &Link) -> TcpListener {
    let (path, address) = (format!("/run/netns/{}", host.name), host.address);
    // A thread of its own changes its namespace; a socket stays in the one it was created in.
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
pub fn unacknowledged(host: &Link) -> u64 {
    let remote = format!("{:08X}:", u32::from_le_bytes(host.address.octets()));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let rows = table.lines().skip(1).map(|row| row.split_whitespace());
    rows.filter_map(|mut row| {
        let queues = row.nth(2)?.starts_with(&remote).then(|| row.nth(1))??;
        let (unacknowledged, _) = queues.split_once(':')?;
        u64::from_str_radix(unacknowledged, 16).ok()
    })
    .sum()
}
