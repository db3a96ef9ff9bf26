//! Information about connected proxies, except for their progress.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::selector::Subscription;
use super::store::ProxyId;

/// Maximum number of recent changes with their times.
const CHANGES: usize = 4096;

/// Time after which two streams of the same name are those of two proxies. It is longer than it takes to detect that a connection is dead.
pub const NAMESAKE_GRACE: Duration = Duration::from_secs(30);

/// Name of a rejection that names no resource.
pub const UNNAMED: &str = "*";

/// A connected proxy.
#[derive(Clone, Debug)]
pub struct ConnectedProxy {
    pub name: String,
    /// Key of its reports; see [`ProxyName::key`](super::peer::ProxyName::key).
    pub key: String,
    pub software: String,
    pub address: SocketAddr,
    /// Proven names.
    pub identities: Vec<String>,
    pub subscription: Subscription,
    pub connected: Instant,
    pub bytes: u64,
    /// The first rejected resources, with reasons.
    pub rejected: BTreeMap<String, String>,
    /// Number of all rejected resources.
    pub rejected_count: usize,
}

impl ConnectedProxy {
    /// Returns whether another proxy of the same name is not its predecessor. Streams that are younger than a grace period may replace one that has not ended yet.
    pub fn is_settled(&self, now: Instant) -> bool {
        now >= self.connected + NAMESAKE_GRACE
    }
}

/// All connected proxies, and the times of recent changes.
#[derive(Debug, Default)]
pub struct Proxies {
    /// Shared, so that readers can copy all of them quickly and use them without the lock.
    connected: HashMap<ProxyId, Arc<ConnectedProxy>>,
    /// Number of connections and disconnections.
    events: u64,
    /// Positions of recent changes and their times.
    changes: VecDeque<(u64, Instant)>,
}

impl Proxies {
    /// Records a change.
    pub fn record_change(&mut self, position: u64, now: Instant) {
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back((position, now));
    }

    /// Returns the time of the first change after a position, if it is known.
    pub fn change_after(&self, position: Option<u64>) -> Option<Instant> {
        let position = position.unwrap_or(0);
        let first = self.changes.partition_point(|(at, _)| *at <= position);
        self.changes.get(first).map(|(_, time)| *time)
    }

    /// Connected proxies.
    pub fn connected(&self) -> &HashMap<ProxyId, Arc<ConnectedProxy>> {
        &self.connected
    }

    /// Address of another proxy of the same name.
    pub fn namesake(&self, id: ProxyId, now: Instant) -> Option<SocketAddr> {
        let is_settled = |proxy: &&Arc<ConnectedProxy>| proxy.is_settled(now);
        let proxy = self.connected.get(&id).filter(is_settled)?;
        let others = self.connected.iter().filter(|(other, _)| **other != id);
        let mut others = others.map(|(_, other)| other).filter(is_settled);
        let other = others.find(|other| other.name == proxy.name)?;
        Some(other.address)
    }

    /// Returns the number of connections and disconnections.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Adds a proxy.
    pub fn insert(&mut self, id: ProxyId, proxy: ConnectedProxy) {
        self.connected.insert(id, Arc::new(proxy));
        self.events += 1;
    }

    /// Returns a connected proxy.
    pub fn get_mut(&mut self, id: ProxyId) -> Option<&mut ConnectedProxy> {
        self.connected.get_mut(&id).map(Arc::make_mut)
    }

    /// Removes a proxy.
    pub fn remove(&mut self, id: ProxyId) {
        self.connected.remove(&id);
        self.events += 1;
    }
}
