//! What an operator says when the data plane is started. It stays the same until it ends.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::limits::Limits;
use crate::sockets::SocketFactory;

/// Settings of the data plane.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Threads that carry traffic; one per core if none.
    pub workers: Option<usize>,
    /// What is too much.
    pub limits: Limits,
    /// Whose word on `x-forwarded-*` is believed.
    pub trusted_proxies: Vec<Network>,
    /// Creates the sockets of listeners and to endpoints.
    pub sockets: SocketFactory,
    /// Whether and how requests are logged.
    pub access_log: Option<AccessLogOptions>,
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// How requests are logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLogOptions {
    /// In which form.
    pub format: AccessLogFormat,
    /// Where to; standard output if none.
    pub file: Option<PathBuf>,
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// For people.
    Text,
    /// For tools: an object per line.
    Json,
}
