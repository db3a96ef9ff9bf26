//! Faults of the link to the control plane, which runs in a network namespace.

use std::io::Write as _;

use pointsman_test_support::link::Link;

/// Takes the link up, and ends losses.
pub fn heal(link: &Link) {
    // There may be none.
    let _ = link.run("nft", "delete table inet faults");
    link.restore();
}

/// Drops a share of the packets in both directions, in percent.
pub fn lose(link: &Link, percent: u32) {
    let _ = link.run("nft", "delete table inet faults");
    let rules = format!(
        "add table inet faults; \
         add chain inet faults in {{ type filter hook input priority 0; }}; \
         add chain inet faults out {{ type filter hook output priority 0; }}; \
         add rule inet faults in iifname eth0 numgen random mod 100 < {percent} drop; \
         add rule inet faults out oifname eth0 numgen random mod 100 < {percent} drop"
    );
    if let Err(reason) = link.run("nft", &rules) {
        let line = format!("no packets are lost, because nft fails: {reason}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
