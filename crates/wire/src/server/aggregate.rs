//! Aggregates the reports of several proxies into one observation for each Gateway.
//!
//! A Gateway may be served by several proxies on several machines. Its addresses are those of all of them. An address or a port is reported as unusable only if
//! no proxy can use it; a failure of only some proxies is listed as a problem of these proxies.
//!
//! Reports of proxies of other controllers count as those of the own ones do. A proxy that has moved from one controller to another has reports at both for a while: those of
//! an open stream count.

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

/// The controller that a proxy is connected to; `None` for this one.
pub type Origin = Option<Arc<str>>;

/// Reports of all proxies, by the proxies' names and the controllers that received them.
#[derive(Debug, Default)]
pub struct Aggregate {
    proxies: BTreeMap<String, BTreeMap<Origin, Reports>>,
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
        self.start_at(None, proxy, own)
    }

    fn start_at(&mut self, origin: Origin, proxy: &str, own: OwnServers) -> u64 {
        self.streams += 1;
        let stream = self.streams;
        let new = Reports {
            stream,
            own,
            ..Reports::default()
        };
        let reports = self.proxies.entry(proxy.to_owned()).or_default();
        if let Some(old) = reports.insert(origin, new) {
            self.touch(&old);
        }
        self.touch_others(proxy);
        stream
    }

    /// Applies reports.
    pub fn apply(&mut self, proxy: &str, stream: u64, changes: Vec<Change>) {
        self.apply_at(&None, proxy, stream, changes);
    }

    fn apply_at(&mut self, origin: &Origin, proxy: &str, stream: u64, changes: Vec<Change>) {
        let reports = self.proxies.get_mut(proxy);
        let reports = reports.and_then(|reports| reports.get_mut(origin));
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
        let is_current = |reports: &Reports| reports.stream == stream;
        if self.own(proxy).is_some_and(is_current) {
            self.lose(&None, proxy, now);
        }
    }

    /// Records that the stream of a proxy's reports has ended. They expire unless a new one starts.
    fn lose(&mut self, origin: &Origin, proxy: &str, now: Instant) {
        let Some(reports) = self.proxies.get_mut(proxy) else {
            return;
        };
        if let Some(lost) = reports.get_mut(origin) {
            lost.disconnected.get_or_insert(now);
        }
        self.touch_others(proxy);
    }

    /// Replaces the reports of a proxy of another controller.
    pub fn replace(
        &mut self,
        controller: &Arc<str>,
        proxy: &str,
        own: OwnServers,
        (changes, is_lost): (Vec<Change>, bool),
        now: Instant,
    ) {
        let origin = Some(controller.clone());
        let stream = self.start_at(origin.clone(), proxy, own);
        self.apply_at(&origin, proxy, stream, changes);
        if is_lost {
            self.lose(&origin, proxy, now);
        }
    }

    /// Removes the reports of a proxy of another controller.
    pub fn expire(&mut self, controller: &Arc<str>, proxy: &str) {
        self.remove(proxy, &Some(controller.clone()));
    }

    /// Records that the proxies of another controller have disconnected.
    pub fn lose_all(&mut self, controller: &Arc<str>, now: Instant) {
        let origin = Some(controller.clone());
        let proxies = self.proxies.iter();
        let proxies = proxies.filter(|(_, reports)| reports.contains_key(&origin));
        let proxies: Vec<String> = proxies.map(|(proxy, _)| proxy.clone()).collect();
        for proxy in proxies {
            self.lose(&origin, &proxy, now);
        }
    }

    fn remove(&mut self, proxy: &str, origin: &Origin) {
        let Some(reports) = self.proxies.get_mut(proxy) else {
            return;
        };
        let removed = reports.remove(origin);
        if reports.is_empty() {
            self.proxies.remove(proxy);
        }
        if let Some(removed) = removed {
            self.touch(&removed);
        }
        self.touch_others(proxy);
    }

    /// Reports of a proxy that this controller has received.
    fn own(&self, proxy: &str) -> Option<&Reports> {
        self.proxies.get(proxy)?.get(&None)
    }

    /// Names of the proxies that have reported, and the controllers that have received their reports.
    pub fn origins(&self) -> impl Iterator<Item = (Origin, String)> {
        let proxies = self.proxies.iter();
        proxies.flat_map(|(proxy, reports)| {
            let origins = reports.keys();
            origins.map(|origin| (origin.clone(), proxy.clone()))
        })
    }

    /// Everything that a proxy has reported to a controller, and whether the stream of its reports has ended.
    pub fn reports_of(
        &self,
        origin: &Origin,
        proxy: &str,
    ) -> Option<(Vec<Change>, &OwnServers, bool)> {
        let reports = self.proxies.get(proxy)?.get(origin)?;
        let gateways = reports.gateways.iter();
        let gateways =
            gateways.map(|(gateway, seen)| Change::Observe(gateway.clone(), Some(seen.clone())));
        let needs = reports.needs.iter();
        let needs = needs.map(|id| Change::Need(id.clone(), true));
        let refused = reports.refused.iter();
        let refused =
            refused.map(|(name, all)| Change::RefusedResolution(name.clone(), all.clone()));
        let changes = gateways.chain(needs).chain(refused).collect();
        Some((changes, &reports.own, reports.disconnected.is_some()))
    }

    /// The reports of each proxy that count.
    fn counted(&self) -> impl Iterator<Item = (&str, &Reports)> {
        let proxies = self.proxies.iter();
        proxies.filter_map(|(proxy, reports)| Some((proxy.as_str(), counted(reports)?)))
    }

    /// Servers of the proxies themselves.
    pub fn own_servers(&self) -> OwnServers {
        let mut own = OwnServers::default();
        for (_, reports) in self.counted() {
            own.extend(&reports.own);
        }
        own
    }

    /// Returns whether there are reports of disconnected proxies that are still valid.
    pub fn has_disconnected(&self) -> bool {
        let mut all = self.proxies.values().flat_map(BTreeMap::values);
        all.any(|reports| reports.disconnected.is_some())
    }

    fn touch(&mut self, reports: &Reports) {
        self.gateways.extend(reports.gateways.keys().cloned());
        self.needs.extend(reports.needs.iter().cloned());
        self.refused.extend(reports.refused.keys().cloned());
    }

    /// Has the reports of a proxy to several controllers taken again: others of them may count now.
    fn touch_others(&mut self, proxy: &str) {
        let reports = self.proxies.get(proxy).filter(|reports| reports.len() > 1);
        for reports in reports.into_iter().flat_map(BTreeMap::values) {
            self.gateways.extend(reports.gateways.keys().cloned());
            self.needs.extend(reports.needs.iter().cloned());
            self.refused.extend(reports.refused.keys().cloned());
        }
    }

    /// Records that the taken reports are in effect.
    pub fn record_applied(&mut self) {
        let taken = self.proxies.values_mut().flat_map(BTreeMap::values_mut);
        let taken = taken.filter(|reports| reports.stage == Stage::Taken);
        taken.for_each(|reports| reports.stage = Stage::Applied);
    }

    /// Returns whether all reports of a proxy are in effect.
    pub fn is_applied(&self, proxy: &str) -> bool {
        let reports = self.proxies.get(proxy).and_then(counted);
        reports.is_some_and(|reports| reports.stage == Stage::Applied)
    }

    /// Returns human-readable failures that one proxy has reported.
    pub fn problems(&self, proxy: &str) -> Vec<String> {
        let Some(reports) = self.proxies.get(proxy).and_then(counted) else {
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

    /// Removes reports that have expired. Returns the names of those among their proxies whose reports this controller had received.
    pub fn remove_expired(&mut self, now: Instant) -> Vec<String> {
        let is_over =
            |reports: &Reports| reports.disconnected.is_some_and(|lost| now >= lost + GRACE);
        let mut over: Vec<(String, Origin)> = Vec::new();
        for (proxy, reports) in &self.proxies {
            let reports = reports.iter().filter(|(_, reports)| is_over(reports));
            over.extend(reports.map(|(origin, _)| (proxy.clone(), origin.clone())));
        }
        for (proxy, origin) in &over {
            self.remove(proxy, origin);
        }
        let own = over.into_iter().filter(|(_, origin)| origin.is_none());
        own.map(|(proxy, _)| proxy).collect()
    }

    /// Takes the changes since the last call.
    pub fn take(&mut self) -> Vec<Change> {
        for reports in self.proxies.values_mut().flat_map(BTreeMap::values_mut) {
            if reports.stage == Stage::Received {
                reports.stage = Stage::Taken;
            }
        }
        let mut changes = Vec::new();
        for gateway in std::mem::take(&mut self.gateways) {
            let reports = self.counted();
            let reports: Vec<(&str, &Observation)> = reports
                .filter_map(|(proxy, reports)| Some((proxy, reports.gateways.get(&gateway)?)))
                .collect();
            let seen = join(&reports);
            changes.push(Change::Observe(gateway, seen));
        }
        for id in std::mem::take(&mut self.needs) {
            let needed = self
                .counted()
                .any(|(_, reports)| reports.needs.contains(&id));
            let changed = match needed {
                true => self.needed.insert(id.clone()),
                false => self.needed.remove(&id),
            };
            if changed {
                changes.push(Change::Need(id, needed));
            }
        }
        for name in std::mem::take(&mut self.refused) {
            let refused = self.counted();
            let refused = refused.filter_map(|(_, reports)| reports.refused.get(&name));
            let refused: BTreeSet<IpAddr> = refused.flatten().copied().collect();
            changes.push(Change::RefusedResolution(
                name,
                refused.into_iter().collect(),
            ));
        }
        changes
    }
}

/// The reports of a proxy that count: those of an open stream, preferably one to this controller.
fn counted(reports: &BTreeMap<Origin, Reports>) -> Option<&Reports> {
    let open = reports
        .values()
        .find(|reports| reports.disconnected.is_none());
    open.or_else(|| reports.values().next())
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

    /// Takes the changes after a time.
    fn take(aggregate: &mut Aggregate, later: std::time::Duration) -> Vec<Change> {
        aggregate.remove_expired(Instant::now() + later);
        aggregate.take()
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
        let changes = aggregate.take();
        let one = observed(&changes).expect("an observation");
        assert_eq!(one.unbound[&listener()], "taken", "as in one process");
        report(&mut aggregate, "b", seen("192.0.2.2", None));
        let changes = aggregate.take();
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
        let changes = aggregate.take();
        let both = observed(&changes).expect("an observation");
        assert_eq!(both.unbound[&listener()], "a: taken; b: no privilege");
    }

    #[tokio::test(start_paused = true)]
    async fn reports_outlive_a_short_disconnection() {
        let mut aggregate = Aggregate::default();
        let stream = report(&mut aggregate, "a", seen("192.0.2.1", None));
        aggregate.take();
        aggregate.end("a", stream, Instant::now());
        assert!(take(&mut aggregate, GRACE / 2).is_empty());
        // The proxy has reconnected: the end of the old stream has no effect.
        let new = report(&mut aggregate, "a", seen("192.0.2.1", None));
        aggregate.end("a", stream, Instant::now());
        assert!(!aggregate.has_disconnected());
        aggregate.take();
        aggregate.end("a", new, Instant::now());
        let changes = take(&mut aggregate, GRACE);
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
            aggregate.take().len()
        };
        assert_eq!(needs([true, true]), 1);
        assert_eq!(needs([false, true]), 0);
        assert_eq!(needs([false, false]), 1);
    }
}
