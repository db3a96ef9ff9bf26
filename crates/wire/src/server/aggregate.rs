//! Aggregates the reports of several proxies into one observation for each Gateway.
//!
//! A Gateway may be served by several proxies on several machines. Its addresses are those of all of them. An address or a port is reported as unusable only if
//! no proxy can use it; a failure of only some proxies is listed as a problem of these proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_binding::bound::BackendId;
use pointsman_binding::{Change, Observation, OwnServers};
use pointsman_resources::Name;
use tokio::time::{Duration, Instant};

/// Time for which the reports of a disconnected proxy stay valid: most proxies reconnect, and the statuses of Gateways should not change meanwhile.
const GRACE: Duration = Duration::from_secs(60);

/// Reports of one proxy.
#[derive(Debug, Default)]
struct Reports {
    gateways: BTreeMap<Name, Observation>,
    needs: BTreeSet<BackendId>,
    refused: BTreeMap<Arc<str>, Vec<IpAddr>>,
    /// Servers of the proxy itself.
    own: OwnServers,
    /// Number of the stream that delivered them.
    stream: u64,
    /// Time when the stream ended.
    disconnected: Option<Instant>,
    stage: Stage,
}

/// Progress of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Received or expected.
    #[default]
    Received,
    /// Taken by the reconciler.
    Taken,
    /// Reflected in statuses and configuration.
    Applied,
}

/// Reports of all proxies, by the proxies' names.
#[derive(Debug, Default)]
pub struct Aggregate {
    proxies: BTreeMap<String, Reports>,
    streams: u64,
    gateways: BTreeSet<Name>,
    needs: BTreeSet<BackendId>,
    refused: BTreeSet<Arc<str>>,
    /// Backends that were reported as needed.
    needed: BTreeSet<BackendId>,
}

impl Aggregate {
    /// Starts a stream of a proxy's reports. They replace those of an earlier stream.
    pub fn start(&mut self, proxy: &str, own: OwnServers) -> u64 {
        self.streams += 1;
        let stream = self.streams;
        let new = Reports {
            stream,
            own,
            ..Reports::default()
        };
        if let Some(old) = self.proxies.insert(proxy.to_owned(), new) {
            self.touch(&old);
        }
        stream
    }

    /// Applies reports.
    pub fn apply(&mut self, proxy: &str, stream: u64, changes: Vec<Change>) {
        let reports = self.proxies.get_mut(proxy);
        let Some(reports) = reports.filter(|reports| reports.stream == stream) else {
            return;
        };
        reports.stage = Stage::Received;
        for change in changes {
            match change {
                Change::Observe(gateway, seen) => {
                    match seen {
                        Some(seen) => drop(reports.gateways.insert(gateway.clone(), seen)),
                        None => drop(reports.gateways.remove(&gateway)),
                    }
                    self.gateways.insert(gateway);
                }
                Change::Need(id, needed) => {
                    match needed {
                        true => reports.needs.insert(id.clone()),
                        false => reports.needs.remove(&id),
                    };
                    self.needs.insert(id);
                }
                Change::RefusedResolution(name, refused) => {
                    match refused.is_empty() {
                        true => drop(reports.refused.remove(&name)),
                        false => drop(reports.refused.insert(name.clone(), refused)),
                    }
                    self.refused.insert(name);
                }
                _ => {}
            }
        }
    }

    /// Ends a stream.
    pub fn end(&mut self, proxy: &str, stream: u64, now: Instant) {
        let reports = self.proxies.get_mut(proxy);
        if let Some(reports) = reports.filter(|reports| reports.stream == stream) {
            reports.disconnected = Some(now);
        }
    }

    /// Servers of the proxies themselves.
    pub fn own_servers(&self) -> OwnServers {
        let mut own = OwnServers::default();
        for reports in self.proxies.values() {
            own.extend(&reports.own);
        }
        own
    }

    /// Returns whether there are reports of disconnected proxies that are still valid.
    pub fn has_lost(&self) -> bool {
        self.proxies
            .values()
            .any(|reports| reports.disconnected.is_some())
    }

    fn touch(&mut self, reports: &Reports) {
        self.gateways.extend(reports.gateways.keys().cloned());
        self.needs.extend(reports.needs.iter().cloned());
        self.refused.extend(reports.refused.keys().cloned());
    }

    /// Records that the taken reports are in effect.
    pub fn record_applied(&mut self) {
        let taken = self.proxies.values_mut();
        let taken = taken.filter(|reports| reports.stage == Stage::Taken);
        taken.for_each(|reports| reports.stage = Stage::Applied);
    }

    /// Returns whether all reports of a proxy are in effect.
    pub fn is_applied(&self, proxy: &str) -> bool {
        let reports = self.proxies.get(proxy);
        reports.is_some_and(|reports| reports.stage == Stage::Applied)
    }

    /// Returns human-readable failures that one proxy has reported.
    pub fn problems(&self, proxy: &str) -> Vec<String> {
        let Some(reports) = self.proxies.get(proxy) else {
            return Vec::new();
        };
        let mut problems = Vec::new();
        for (gateway, seen) in &reports.gateways {
            let unusable = seen.unusable.iter();
            problems.extend(unusable.map(|(a, why)| format!("{gateway}: {a}: {why}")));
            let unassigned = seen.unassigned.iter();
            problems.extend(unassigned.map(|why| format!("{gateway}: {why}")));
            let listeners = seen.unbound.iter().chain(&seen.faulty);
            problems.extend(listeners.map(|(id, why)| format!("{}: {why}", describe(id))));
        }
        problems
    }

    /// Takes the changes since the last call.
    pub fn take(&mut self, now: Instant) -> Vec<Change> {
        let is_over = |reports: &Reports| {
            reports
                .disconnected
                .is_some_and(|disconnected| now >= disconnected + GRACE)
        };
        let proxies = std::mem::take(&mut self.proxies);
        let (over, rest) = proxies
            .into_iter()
            .partition(|(_, reports)| is_over(reports));
        self.proxies = rest;
        let over: BTreeMap<String, Reports> = over;
        over.values().for_each(|reports| self.touch(reports));
        for reports in self.proxies.values_mut() {
            if reports.stage == Stage::Received {
                reports.stage = Stage::Taken;
            }
        }
        let mut changes = Vec::new();
        for gateway in std::mem::take(&mut self.gateways) {
            let reports = self.proxies.iter();
            let reports: Vec<(&str, &Observation)> = reports
                .filter_map(|(proxy, reports)| Some((&**proxy, reports.gateways.get(&gateway)?)))
                .collect();
            let seen = join(&reports);
            changes.push(Change::Observe(gateway, seen));
        }
        for id in std::mem::take(&mut self.needs) {
            let needed = self
                .proxies
                .values()
                .any(|reports| reports.needs.contains(&id));
            let changed = match needed {
                true => self.needed.insert(id.clone()),
                false => self.needed.remove(&id),
            };
            if changed {
                changes.push(Change::Need(id, needed));
            }
        }
        for name in std::mem::take(&mut self.refused) {
            let refused = self.proxies.values().filter_map(|r| r.refused.get(&name));
            let refused: BTreeSet<IpAddr> = refused.flatten().copied().collect();
            changes.push(Change::RefusedResolution(
                name,
                refused.into_iter().collect(),
            ));
        }
        changes
    }
}

fn describe(id: &pointsman_binding::bound::FrontendId) -> String {
    use pointsman_binding::bound::FrontendId;
    match id {
        FrontendId::Listener {
            owner, listener, ..
        } => format!("{owner} listener {listener}"),
        other => other.parent().to_string(),
    }
}

/// Merges the observations of a Gateway by several proxies; `None` if there are none.
fn join(reports: &[(&str, &Observation)]) -> Option<Observation> {
    if let [(_, only)] = reports {
        return Some((*only).clone());
    }
    let addresses = reports.iter().flat_map(|(_, seen)| &seen.addresses);
    let addresses: BTreeSet<IpAddr> = addresses.copied().collect();
    let (first, _) = reports.split_first()?;
    let with_names = |why: &dyn Fn(&Observation) -> Option<String>| -> Option<String> {
        let all: Option<Vec<String>> = reports
            .iter()
            .map(|(proxy, seen)| Some(format!("{proxy}: {}", why(seen)?)))
            .collect();
        Some(all?.join("; "))
    };
    let mut joined = Observation::default();
    for address in first.1.unusable.keys().filter(|a| !addresses.contains(a)) {
        if let Some(why) = with_names(&|seen| seen.unusable.get(address).cloned()) {
            joined.unusable.insert(*address, why);
        }
    }
    if addresses.is_empty() {
        joined.unassigned = with_names(&|seen| seen.unassigned.clone());
    }
    for id in first.1.unbound.keys() {
        if let Some(why) = with_names(&|seen| seen.unbound.get(id).cloned()) {
            joined.unbound.insert(id.clone(), why);
        }
    }
    for id in first.1.faulty.keys() {
        if let Some(why) = with_names(&|seen| seen.faulty.get(id).cloned()) {
            joined.faulty.insert(id.clone(), why);
        }
    }
    for (id, sockets) in reports
        .iter()
        .flat_map(|(_, seen)| &seen.cross_mesh_addresses)
    {
        joined
            .cross_mesh_addresses
            .entry(id.clone())
            .or_default()
            .extend(sockets);
    }
    joined.addresses = addresses.into_iter().collect();
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_binding::bound::{FrontendId, Transport};
    use pointsman_resources::{Kind, ObjectKey};

    fn gateway() -> Name {
        Name::new("infra", "edge")
    }

    fn listener() -> FrontendId {
        FrontendId::Listener {
            gateway: gateway(),
            owner: ObjectKey::new(Kind::Gateway, "infra", "edge"),
            listener: "http".into(),
        }
    }

    fn seen(address: &str, unbound: Option<&str>) -> Observation {
        let mut seen = Observation {
            addresses: vec![address.parse().expect("an address")],
            ..Observation::default()
        };
        seen.unbound
            .extend(unbound.map(|why| (listener(), why.to_owned())));
        seen
    }

    /// The observation among changes.
    fn observed(changes: &[Change]) -> Option<&Observation> {
        changes.iter().find_map(|change| match change {
            Change::Observe(_, seen) => seen.as_ref(),
            _ => None,
        })
    }

    fn report(aggregate: &mut Aggregate, proxy: &str, seen: Observation) -> u64 {
        let stream = aggregate.start(proxy, OwnServers::default());
        aggregate.apply(proxy, stream, vec![Change::Observe(gateway(), Some(seen))]);
        stream
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_is_unavailable_only_if_no_proxy_has_it() {
        let mut aggregate = Aggregate::default();
        report(&mut aggregate, "a", seen("192.0.2.1", Some("taken")));
        let changes = aggregate.take(Instant::now());
        let one = observed(&changes).expect("an observation");
        assert_eq!(one.unbound[&listener()], "taken", "as in one process");
        report(&mut aggregate, "b", seen("192.0.2.2", None));
        let changes = aggregate.take(Instant::now());
        let both = observed(&changes).expect("an observation");
        assert_eq!(both.addresses.len(), 2);
        assert!(both.unbound.is_empty());
        assert_eq!(
            aggregate.problems("a").len(),
            1,
            "it is a problem of that proxy"
        );
        assert_eq!(aggregate.problems("b").len(), 0);
        report(&mut aggregate, "b", seen("192.0.2.2", Some("no privilege")));
        let changes = aggregate.take(Instant::now());
        let both = observed(&changes).expect("an observation");
        assert_eq!(both.unbound[&listener()], "a: taken; b: no privilege");
    }

    #[tokio::test(start_paused = true)]
    async fn reports_outlive_a_short_disconnection() {
        let mut aggregate = Aggregate::default();
        let stream = report(&mut aggregate, "a", seen("192.0.2.1", None));
        aggregate.take(Instant::now());
        aggregate.end("a", stream, Instant::now());
        assert!(aggregate.take(Instant::now() + GRACE / 2).is_empty());
        // The proxy has reconnected: the end of the old stream has no effect.
        let new = report(&mut aggregate, "a", seen("192.0.2.1", None));
        aggregate.end("a", stream, Instant::now());
        assert!(!aggregate.has_lost());
        aggregate.take(Instant::now());
        aggregate.end("a", new, Instant::now());
        let changes = aggregate.take(Instant::now() + GRACE);
        assert_eq!(changes.len(), 1);
        assert!(observed(&changes).is_none(), "nothing is known any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_is_needed_as_long_as_one_proxy_needs_it() {
        let service = ObjectKey::new(Kind::Service, "shop", "web");
        let id = BackendId::new(service, 80, Transport::Tcp);
        let mut aggregate = Aggregate::default();
        let streams =
            ["a", "b"].map(|proxy| (proxy, aggregate.start(proxy, OwnServers::default())));
        let mut needs = |needed: [bool; 2]| {
            for ((proxy, stream), needed) in streams.iter().zip(needed) {
                aggregate.apply(proxy, *stream, vec![Change::Need(id.clone(), needed)]);
            }
            aggregate.take(Instant::now()).len()
        };
        assert_eq!(needs([true, true]), 1);
        assert_eq!(needs([false, true]), 0);
        assert_eq!(needs([false, false]), 1);
    }
}
