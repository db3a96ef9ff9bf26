//! Which addresses may be endpoints. In a folder of manifests all may: loopback is where a developer's backends are. A controller whose operator does not
//! trust the authors of routes refuses those that lead to the proxy's own machine or link, as the API server does for EndpointSlices: "may not be
//! loopback, link-local (169.254.0.0/16, fe80::/10), unspecified or multicast".

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::bound::Transport;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// All addresses that share the first `prefix` bits with this one; none if there are not so many bits.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= most).then_some(Network { address, prefix })
    }

    /// Whether an address is one of them. An IPv4 address that is written as an IPv6 one is an IPv4 address.
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

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no range of addresses: write 10.0.0.0/8, 2001:db8::/32 or a single address"
            )
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| wrong())?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Network::new(address, prefix).ok_or_else(wrong)
    }
}

/// Addresses that may be endpoints. The default allows all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointPolicy {
    /// Ranges that are allowed although they are of a refused class; `None` refuses no class.
    exceptions: Option<Vec<Network>>,
    /// Address of this process's own admin server, which is never an endpoint.
    admin: Option<SocketAddr>,
}

/// Why an address may not be an endpoint.
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
    /// The process's own admin server.
    Admin,
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefusedAddress::Loopback => "loopback",
            RefusedAddress::LinkLocal => "link-local",
            RefusedAddress::Unspecified => "unspecified",
            RefusedAddress::Multicast => "multicast",
            RefusedAddress::Admin => "Pointsman's own admin server",
        })
    }
}

impl EndpointPolicy {
    /// Allows addresses that lead to other machines through a router, and these ranges.
    pub fn routable(exceptions: Vec<Network>) -> Self {
        EndpointPolicy {
            exceptions: Some(exceptions),
            admin: None,
        }
    }

    /// Refuses the address of this process's own admin server too.
    pub fn refuse_admin(&mut self, admin: SocketAddr) {
        self.admin = Some(admin);
    }

    /// The class for which an address is refused, whatever its port.
    pub fn refuses(&self, address: IpAddr) -> Option<RefusedAddress> {
        let exceptions = self.exceptions.as_ref()?;
        let class = class(address)?;
        let allowed = exceptions.iter().any(|range| range.contains(address));
        (!allowed).then_some(class)
    }

    /// The reason for which an endpoint is refused.
    pub fn refuses_endpoint(
        &self,
        endpoint: SocketAddr,
        transport: Transport,
    ) -> Option<RefusedAddress> {
        let is_admin = transport == Transport::Tcp
            && self
                .admin
                .is_some_and(|admin| is_reached_at(admin, endpoint));
        match is_admin {
            true => Some(RefusedAddress::Admin),
            false => self.refuses(endpoint.ip()),
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

/// Reports whether a connection to an address reaches a listener on this machine, as far as the addresses alone tell: a listener on a wildcard is also
/// reached at the addresses of the machine's interfaces.
pub fn is_reached_at(listener: SocketAddr, address: SocketAddr) -> bool {
    let (here, there) = (listener.ip().to_canonical(), address.ip().to_canonical());
    listener.port() == address.port()
        && (here == there
            // A connection to 0.0.0.0 or :: goes to this machine.
            || there.is_unspecified()
            || here.is_unspecified() && there.is_loopback())
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
    fn the_admin_server_is_never_an_endpoint() {
        let refuses = |admin: &str, endpoint: &str, transport| {
            let admin: SocketAddr = admin.parse().expect(admin);
            let mut policy = EndpointPolicy::default();
            policy.refuse_admin(admin);
            let endpoint = endpoint.parse().expect(endpoint);
            policy.refuses_endpoint(endpoint, transport).is_some()
        };
        for (admin, endpoint, refused) in [
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
                refuses(admin, endpoint, Transport::Tcp),
                refused,
                "{admin} {endpoint}"
            );
            assert!(!refuses(admin, endpoint, Transport::Udp), "it serves TCP");
        }
    }
}
