//! Assignment of addresses to Gateways and Kuma's builtin gateways: those that they request, or one of the pool.
//!
//! A hash of the Gateway's name selects the address in the pool, so that it survives a restart. If two names collide, the older Gateway gets the address and
//! the younger one the next free address. While running, no Gateway's address changes because another was added or removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::str::FromStr;
use std::sync::Arc;

use pointsman_binding::bound::AddressRequest;
use pointsman_resources::Name;

/// A range of addresses for Gateways that request none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressPool {
    text: String,
    first: u128,
    size: u128,
    is_v4: bool,
}

impl FromStr for AddressPool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error =
            || "write a range of addresses, such as 127.0.64.0/18 or fd00:1::/64".to_owned();
        let (address, prefix) = text.split_once('/').ok_or_else(error)?;
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let prefix: u32 = prefix.parse().map_err(|_| error())?;
        let (bits, number): (u32, u128) = match address {
            IpAddr::V4(address) => (32, u128::from(address.to_bits())),
            IpAddr::V6(address) => (128, address.to_bits()),
        };
        let rest = bits
            .checked_sub(prefix)
            .filter(|rest| *rest < 128)
            .ok_or_else(error)?;
        let (mut first, mut size) = (number >> rest << rest, 1u128 << rest);
        // The first address of a network names the network, the last one of an IPv4 network is the broadcast address.
        if rest > 1 {
            first += 1;
            size -= if address.is_ipv4() { 2 } else { 1 };
        }
        let is_v4 = address.is_ipv4();
        let text = text.to_owned();
        Ok(AddressPool {
            text,
            first,
            size,
            is_v4,
        })
    }
}

/// Maximum number of addresses that are tried for a Gateway.
const MAX_CANDIDATES: u128 = 4096;

impl AddressPool {
    /// Addresses for a Gateway, in the order in which they are tried.
    fn candidates(&self, gateway: &Name) -> impl Iterator<Item = IpAddr> {
        let start = u128::from(hash(gateway)) % self.size;
        (0..self.size.min(MAX_CANDIDATES)).map(move |step| {
            let number = self.first + (start + step) % self.size;
            match (self.is_v4, u32::try_from(number)) {
                (true, Ok(number)) => IpAddr::V4(Ipv4Addr::from_bits(number)),
                _ => IpAddr::V6(Ipv6Addr::from_bits(number)),
            }
        })
    }
}

/// Computes the FNV-1a hash, which is stable across versions and machines.
fn hash(gateway: &Name) -> u64 {
    let text = gateway.to_string();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Source of the addresses of Gateways that request none.
#[derive(Clone, Debug)]
pub enum AddressPolicy {
    /// Each Gateway gets an address of its own.
    Pool(AddressPool),
    /// All Gateways share this address.
    Fixed(IpAddr),
    /// All Gateways listen on all addresses of this machine, whatever addresses they request: those are a load balancer's in front of it.
    All,
}

/// The addresses of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AssignedAddresses {
    /// Addresses to listen on.
    pub(crate) addresses: Vec<IpAddr>,
    /// Requested addresses that are unusable, with the reason.
    pub(crate) unusable: BTreeMap<IpAddr, String>,
    /// The reason why no address was assigned to a Gateway that requests none.
    pub(crate) unassigned: Option<String>,
    /// True if a later attempt may succeed.
    pub(crate) may_retry: bool,
}

/// Assigns addresses to Gateways.
pub(crate) struct AddressAssigner {
    policy: AddressPolicy,
    allocated: HashMap<Name, IpAddr>,
}

impl AddressAssigner {
    /// Creates an assigner without assignments.
    pub(crate) fn new(policy: AddressPolicy) -> Self {
        AddressAssigner {
            policy,
            allocated: HashMap::new(),
        }
    }

    /// Assigns addresses to the requests in their order.
    pub(crate) fn assign(
        &mut self,
        requests: &[Arc<AddressRequest>],
    ) -> BTreeMap<Name, AssignedAddresses> {
        if matches!(self.policy, AddressPolicy::All) {
            let all = AssignedAddresses {
                addresses: wildcards(),
                ..AssignedAddresses::default()
            };
            let names = requests.iter().map(|request| request.gateway.clone());
            return names.map(|name| (name, all.clone())).collect();
        }
        let names: BTreeSet<&Name> = requests.iter().map(|request| &request.gateway).collect();
        self.allocated.retain(|name, _| names.contains(name));
        let mut in_use: BTreeSet<IpAddr> = requests
            .iter()
            .flat_map(|request| &request.addresses)
            .copied()
            .collect();
        in_use.extend(self.allocated.values());
        let mut all = BTreeMap::new();
        for request in requests {
            let mut assigned = AssignedAddresses {
                may_retry: request.any || !request.addresses.is_empty(),
                ..AssignedAddresses::default()
            };
            for address in &request.addresses {
                match check_bindable(*address) {
                    Ok(()) => assigned.addresses.push(*address),
                    Err(reason) => drop(assigned.unusable.insert(*address, reason)),
                }
            }
            if request.any {
                match self.allocate(&request.gateway, &in_use) {
                    Ok(allocated) => {
                        in_use.insert(allocated);
                        assigned.addresses.push(allocated);
                    }
                    Err(reason) => assigned.unassigned = Some(reason),
                }
            }
            assigned.addresses.sort();
            assigned.addresses.dedup();
            all.insert(request.gateway.clone(), assigned);
        }
        all
    }

    fn allocate(&mut self, name: &Name, in_use: &BTreeSet<IpAddr>) -> Result<IpAddr, String> {
        let pool = match &self.policy {
            AddressPolicy::Fixed(address) => {
                return match check_bindable(*address) {
                    Ok(()) => Ok(*address),
                    Err(reason) => Err(format!("{address}: {reason}")),
                };
            }
            AddressPolicy::Pool(pool) => pool,
            AddressPolicy::All => return Err("it listens on all addresses".to_owned()),
        };
        if let Some(address) = self.allocated.get(name) {
            return Ok(*address);
        }
        let mut free = pool
            .candidates(name)
            .filter(|address| !in_use.contains(address));
        let Some(found) = free.find(|address| check_bindable(*address).is_ok()) else {
            let range = &pool.text;
            return Err(format!(
                "no address of {range} is free and can be bound on this machine"
            ));
        };
        self.allocated.insert(name.clone(), found);
        Ok(found)
    }
}

/// Returns the wildcard addresses of the address families that this machine has.
fn wildcards() -> Vec<IpAddr> {
    let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let bindable = |address: &IpAddr| check_bindable(*address).is_ok();
    all.into_iter().filter(bindable).collect()
}

/// Fails if no socket can be bound to an address on this machine.
pub(super) fn check_bindable(address: IpAddr) -> Result<(), String> {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
            Err("this machine does not have that address".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_resources::meta::Age;

    fn request(name: &str, addresses: &[&str]) -> Arc<AddressRequest> {
        let numbers = addresses.iter().filter_map(|text| text.parse().ok());
        Arc::new(AddressRequest {
            gateway: Name::new("a", name),
            proxy: None,
            age: Age::At(0),
            addresses: numbers.collect(),
            any: addresses.is_empty(),
            invalid: None,
        })
    }

    fn pool(text: &str) -> AddressAssigner {
        AddressAssigner::new(AddressPolicy::Pool(text.parse().expect("a pool")))
    }

    fn assign(
        addresses: &mut AddressAssigner,
        requests: &[Arc<AddressRequest>],
    ) -> Vec<(String, Vec<IpAddr>)> {
        let all = addresses.assign(requests).into_iter();
        all.map(|(name, a)| (name.to_string(), a.addresses))
            .collect()
    }

    #[test]
    fn a_pool_excludes_the_network_and_broadcast_addresses() {
        let pool: AddressPool = "127.0.64.77/30".parse().expect("a pool");
        let name = Name::new("a", "b");
        let all: BTreeSet<String> = pool.candidates(&name).map(|a| a.to_string()).collect();
        assert_eq!(
            all.into_iter().collect::<Vec<_>>(),
            ["127.0.64.77", "127.0.64.78"]
        );
        for (text, size) in [
            ("10.0.0.0/32", 1),
            ("10.0.0.0/31", 2),
            ("fd00::/126", 3),
            ("10.0.0.0/8", (1 << 24) - 2),
        ] {
            assert_eq!(
                text.parse::<AddressPool>().map(|pool| pool.size),
                Ok(size),
                "{text}"
            );
        }
        for invalid in ["10.0.0.0", "10.0.0.0/33", "::/0", "x/8", "10.0.0.0/-1"] {
            assert!(invalid.parse::<AddressPool>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn addresses_depend_on_names_only_and_are_distinct() {
        let all: Vec<_> = (0..6).map(|n| request(&format!("g{n}"), &[])).collect();
        let first = assign(&mut pool("127.0.99.0/29"), &all);
        assert_eq!(first, assign(&mut pool("127.0.99.0/29"), &all));
        let distinct: BTreeSet<_> = first.iter().flat_map(|(_, a)| a).collect();
        assert_eq!(distinct.len(), 6);
    }

    #[test]
    fn no_address_changes_when_other_gateways_are_added_or_removed() {
        let all: Vec<_> = (0..6).map(|n| request(&format!("g{n}"), &[])).collect();
        let mut addresses = pool("127.0.99.0/29");
        let before = assign(&mut addresses, &all);
        let after = assign(&mut addresses, &all[2..]);
        assert_eq!(after, before[2..]);
        let mut full = pool("127.0.99.0/30");
        let allocated = assign(&mut full, &all);
        let empty = allocated
            .iter()
            .filter(|(_, addresses)| addresses.is_empty());
        assert_eq!(empty.count(), 4, "a pool of two addresses");
    }

    #[test]
    fn with_all_addresses_the_requested_ones_are_ignored() {
        let mut addresses = AddressAssigner::new(AddressPolicy::All);
        let all = addresses.assign(&[request("a", &["192.0.2.1"]), request("b", &[])]);
        for assigned in all.values() {
            assert!(assigned.addresses.contains(&IpAddr::from([0, 0, 0, 0])));
            assert!(assigned.unusable.is_empty() && !assigned.may_retry);
        }
    }

    #[test]
    fn bindable_requested_addresses_are_assigned_and_others_come_from_the_pool() {
        let requests_two = request("a", &["127.0.98.1", "192.0.2.1"]);
        let any = request("b", &[]);
        let mut addresses = pool("127.0.98.0/30");
        let all = addresses.assign(&[requests_two, any]);
        let of = |name: &str| &all[&Name::new("a", name)];
        assert_eq!(of("a").addresses, [IpAddr::from([127, 0, 98, 1])]);
        let unusable: Vec<_> = of("a").unusable.keys().collect();
        assert_eq!(unusable, [&IpAddr::from([192, 0, 2, 1])]);
        assert_eq!(
            of("b").addresses,
            [IpAddr::from([127, 0, 98, 2])],
            "the other is in_use"
        );
    }
}
