//! The policy for endpoint addresses. With manifests from files all are allowed, since a developer's backends are on loopback. Operators who don't trust the
//! authors of routes can refuse addresses of the proxy's own machine or link, as the API server does for EndpointSlices: "may not be loopback, link-local
//! (169.254.0.0/16, fe80::/10), unspecified or multicast".

mod own;
pub(crate) mod refused;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

pub use own::{OwnServer, OwnServers, is_reached_at};

use crate::bound::Transport;

/// A range of IP addresses in CIDR notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Creates a range from an address and the length of its prefix in bits. Returns `None` if the address has fewer bits.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some(Network { address, prefix })
    }

    /// Returns whether the range contains an address. IPv4-mapped IPv6 addresses count as IPv4 addresses.
    pub fn contains(&self, address: IpAddr) -> bool {
        let shared = |a: u128, b: u128, bits: u32| {
            let rest = bits - u32::from(self.prefix);
            rest == 128 || a >> rest == b >> rest
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => shared(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => shared(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "`{text}` is not a range of addresses; use the form 10.0.0.0/8 or 2001:db8::/32, or a single address"
            )
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| invalid())?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Network::new(address, prefix).ok_or_else(invalid)
    }
}

/// Policy for endpoint addresses. The default allows all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointPolicy {
    /// Ranges that are allowed although their class is refused; `None` refuses no class.
    exceptions: Option<Vec<Network>>,
    /// Pointsman's own servers, which are always refused.
    own: OwnServers,
}

/// Reason for refusing an endpoint address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusedAddress {
    /// 127.0.0.0/8 or ::1.
    Loopback,
    /// 169.254.0.0/16 or fe80::/10.
    LinkLocal,
    /// 0.0.0.0 or ::.
    Unspecified,
    /// 224.0.0.0/4 or ff00::/8.
    Multicast,
    /// A server of Pointsman itself.
    Own(OwnServer),
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefusedAddress::Loopback => "loopback",
            RefusedAddress::LinkLocal => "link-local",
            RefusedAddress::Unspecified => "unspecified",
            RefusedAddress::Multicast => "multicast",
            RefusedAddress::Own(server) => return server.fmt(f),
        })
    }
}

impl EndpointPolicy {
    /// Creates a policy that allows only addresses of other machines, and these ranges.
    pub fn routable(exceptions: Vec<Network>) -> Self {
        EndpointPolicy {
            exceptions: Some(exceptions),
            own: OwnServers::default(),
        }
    }

    /// Refuses Pointsman's own servers too.
    pub fn refuse_own(&mut self, servers: &OwnServers) {
        self.own.extend(servers);
    }

    /// Returns the reason for refusing an address, regardless of its port.
    pub fn refuses(&self, address: IpAddr) -> Option<RefusedAddress> {
        let exceptions = self.exceptions.as_ref()?;
        let class = class(address)?;
        let allowed = exceptions.iter().any(|range| range.contains(address));
        (!allowed).then_some(class)
    }

    /// Returns the reason for refusing an endpoint.
    pub(crate) fn refuses_endpoint(
        &self,
        endpoint: SocketAddr,
        transport: Transport,
    ) -> Option<RefusedAddress> {
        let own = self.own.reached_at(endpoint);
        match own.filter(|_| transport == Transport::Tcp) {
            Some(server) => Some(RefusedAddress::Own(server)),
            None => self.refuses(endpoint.ip()),
        }
    }
}

fn class(address: IpAddr) -> Option<RefusedAddress> {
    // `::ffff:127.0.0.1` connects to 127.0.0.1.
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    Some(match address {
        address if address.is_loopback() => RefusedAddress::Loopback,
        address if address.is_unspecified() => RefusedAddress::Unspecified,
        address if address.is_multicast() => RefusedAddress::Multicast,
        _ if is_link_local => RefusedAddress::LinkLocal,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn classes_are_refused_however_an_address_is_written() {
        use RefusedAddress::*;
        let policy = EndpointPolicy::routable(Vec::new());
        for (address, class) in [
            ("127.0.0.1", Some(Loopback)),
            ("127.255.1.2", Some(Loopback)),
            ("::1", Some(Loopback)),
            ("::ffff:127.0.0.1", Some(Loopback)),
            ("::ffff:7f00:1", Some(Loopback)),
            ("169.254.169.254", Some(LinkLocal)),
            ("::ffff:169.254.169.254", Some(LinkLocal)),
            ("fe80::1", Some(LinkLocal)),
            ("febf::1", Some(LinkLocal)),
            ("0.0.0.0", Some(Unspecified)),
            ("::", Some(Unspecified)),
            ("::ffff:0.0.0.0", Some(Unspecified)),
            ("224.0.0.1", Some(Multicast)),
            ("239.1.2.3", Some(Multicast)),
            ("ff02::1", Some(Multicast)),
            ("10.0.0.1", None),
            ("192.168.1.1", None),
            ("169.253.0.1", None),
            ("fec0::1", None),
            ("2001:db8::1", None),
        ] {
            assert_eq!(policy.refuses(ip(address)), class, "{address}");
            assert_eq!(EndpointPolicy::default().refuses(ip(address)), None);
        }
    }

    #[test]
    fn exceptions_are_allowed() {
        let range = |text: &str| text.parse::<Network>().expect(text);
        let policy = EndpointPolicy::routable(vec![range("127.0.1.0/24"), range("fe80::/10")]);
        for (address, refused) in [
            ("127.0.1.7", false),
            ("::ffff:127.0.1.7", false),
            ("127.0.2.7", true),
            ("fe80::7", false),
            ("::1", true),
        ] {
            assert_eq!(policy.refuses(ip(address)).is_some(), refused, "{address}");
        }
    }

    #[test]
    fn an_own_server_is_never_an_endpoint() {
        let refuses = |server: &str, endpoint: &str, transport| {
            let mut own = OwnServers::default();
            own.add(OwnServer::Admin, server.parse().expect(server));
            let mut policy = EndpointPolicy::default();
            policy.refuse_own(&own);
            let endpoint = endpoint.parse().expect(endpoint);
            policy.refuses_endpoint(endpoint, transport).is_some()
        };
        for (server, endpoint, refused) in [
            ("127.0.0.1:15000", "127.0.0.1:15000", true),
            ("127.0.0.1:15000", "[::ffff:127.0.0.1]:15000", true),
            ("127.0.0.1:15000", "0.0.0.0:15000", true),
            ("127.0.0.1:15000", "[::]:15000", true),
            ("127.0.0.1:15000", "127.0.0.1:15001", false),
            ("127.0.0.1:15000", "127.0.0.2:15000", false),
            ("[::1]:15000", "[::1]:15000", true),
            ("[::ffff:127.0.0.1]:15000", "127.0.0.1:15000", true),
            ("0.0.0.0:15000", "127.0.0.9:15000", true),
            ("[::]:15000", "127.0.0.9:15000", true),
            ("[::]:15000", "[::1]:15000", true),
            ("10.0.0.1:15000", "10.0.0.1:15000", true),
            ("10.0.0.1:15000", "10.0.0.2:15000", false),
        ] {
            assert_eq!(
                refuses(server, endpoint, Transport::Tcp),
                refused,
                "{server} {endpoint}"
            );
            assert!(!refuses(server, endpoint, Transport::Udp), "it serves TCP");
        }
    }
}
