//! Addresses of Pointsman's own servers as messages. Control plane and proxy send each other theirs, so that no route can reach them.

use std::net::{IpAddr, SocketAddr};

use pointsman_binding::{OwnServer, OwnServers};

use crate::proto::{self, OwnServerKind};

/// Encodes the servers that a peer may be able to reach. Loopback addresses are omitted for a peer on another machine.
pub fn encode(servers: &OwnServers, peer: IpAddr) -> Vec<proto::OwnServer> {
    let on_peer_machine = peer.to_canonical().is_loopback();
    let reachable = servers.iter().filter(|(_, address)| {
        let ip = address.ip().to_canonical();
        on_peer_machine || !(ip.is_loopback() || ip.is_unspecified())
    });
    let encoded = reachable.map(|(server, address)| proto::OwnServer {
        address: address.to_string(),
        kind: match server {
            OwnServer::Admin => OwnServerKind::Admin,
            OwnServer::Probes => OwnServerKind::Probes,
            OwnServer::ControlPlane => OwnServerKind::ControlPlane,
        }
        .into(),
    });
    encoded.collect()
}

/// Decodes servers. Those of a kind that this version does not know count as control planes; invalid addresses are ignored.
pub fn decode(servers: &[proto::OwnServer]) -> OwnServers {
    let mut decoded = OwnServers::default();
    for server in servers {
        let kind = match server.kind() {
            OwnServerKind::Admin => OwnServer::Admin,
            OwnServerKind::Probes => OwnServer::Probes,
            OwnServerKind::ControlPlane | OwnServerKind::Unknown => OwnServer::ControlPlane,
        };
        if let Ok(address) = server.address.parse() {
            decoded.add(kind, address);
        }
    }
    decoded
}

/// Returns those of a proxy's servers that are on its own machine, judged by the address that it connects from: a proxy must not be able to block endpoints of
/// others by claiming their addresses. Regardless of the result, a proxy never connects to its own servers.
pub fn on_machine(servers: &OwnServers, peer: IpAddr) -> OwnServers {
    let peer = peer.to_canonical();
    let mut on_machine = OwnServers::default();
    for (server, address) in servers.iter() {
        let ip = address.ip().to_canonical();
        if ip.is_loopback() || ip.is_unspecified() || ip == peer {
            on_machine.add(server, address);
        }
        if ip.is_unspecified() {
            on_machine.add(server, SocketAddr::new(peer, address.port()));
        }
    }
    on_machine
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(addresses: &[&str]) -> OwnServers {
        let mut servers = OwnServers::default();
        for address in addresses {
            servers.add(OwnServer::Admin, address.parse().expect(address));
        }
        servers
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn a_peer_on_another_machine_gets_no_loopback_addresses() {
        let own = servers(&[
            "127.0.0.1:1",
            "0.0.0.0:2",
            "10.0.0.1:3",
            "[::1]:4",
            "[2001:db8::1]:5",
        ]);
        let decoded = |peer: &str| decode(&encode(&own, ip(peer)));
        assert_eq!(decoded("127.0.0.1"), own);
        assert_eq!(decoded("::ffff:127.0.0.1"), own);
        assert_eq!(
            decoded("10.0.0.9"),
            servers(&["10.0.0.1:3", "[2001:db8::1]:5"])
        );
    }

    #[test]
    fn a_proxy_cannot_call_the_endpoints_of_others_its_own() {
        let reported = servers(&["127.0.0.1:1", "0.0.0.0:2", "10.0.0.9:3", "10.0.0.7:443"]);
        let expected = servers(&["127.0.0.1:1", "0.0.0.0:2", "10.0.0.9:2", "10.0.0.9:3"]);
        assert_eq!(on_machine(&reported, ip("10.0.0.9")), expected);
        assert_eq!(on_machine(&reported, ip("::ffff:10.0.0.9")), expected);
    }
}
