//! Aggregates the reports of several proxies into one observation for each Gateway.
//!
//! A Gateway may be served by several proxies on several machines. Its addresses are those of all of them. An address or a port is reported as unusable only if
//! no proxy can use it; a failure of only some proxies is listed as a problem of these proxies.
//!
//! Reports received by other controllers are treated equally. A proxy that reconnects, to this controller or to another one, has reports of two streams for a
//! while, and so do two proxies that can't be distinguished. Those of all open streams are effective; without any, those of the stream that ended last.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_binding::bound::BackendId;
use pointsman_binding::{Change, Observation, OwnServers};
use pointsman_resources::Name;
use tokio::time::{Duration, Instant};

/// Time for which the reports of a disconnected proxy stay valid: most proxies reconnect, and the statuses of Gateways should not change meanwhile.
const GRACE: Duration = Duration::from_secs(60);

/// Maximum number of Gateways, needed backends and refused DNS names that are kept of a proxy, each.
const MAX_REPORTS: usize = 20_000;

/// Reports of one proxy.
#[derive(Debug, Default)]
struct ProxyReports {
    /// Name of the proxy, for display.
    name: String,
    received_by: ReceivedBy,
    gateways: BTreeMap<Name, Observation>,
    needs: BTreeSet<BackendId>,
    refused: BTreeMap<Arc<str>, Vec<IpAddr>>,
    /// Servers of the proxy itself.
    own_servers: OwnServers,
    /// Number of the stream that delivered them.
    stream: u64,
    /// Time when the stream ended.
    disconnected: Option<Instant>,
    state: ReportState,
}

/// Progress of reports through the reconciler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReportState {
    /// Received or expected.
    #[default]
    Received,
    /// Taken by the reconciler.
    Taken,
    /// Reflected in statuses and configuration.
    Applied,
}

/// The controller that received a proxy's reports; `None` for this one.
pub type ReceivedBy = Option<Arc<str>>;

/// Reports of all proxies.
#[derive(Debug, Default)]
pub struct ReportAggregator {
    /// Reports of each stream, by the keys of proxies; see [`ProxyName::key`](super::peer::ProxyName::key).
    proxies: BTreeMap<String, Vec<ProxyReports>>,
    streams: u64,
    changed: ChangedReports,
    /// Backends that were reported as needed.
    needed: BTreeSet<BackendId>,
}

/// Subjects whose reports have changed since they were last taken.
#[derive(Debug, Default)]
struct ChangedReports {
    gateways: BTreeSet<Name>,
    needs: BTreeSet<BackendId>,
    refused: BTreeSet<Arc<str>>,
}

impl ChangedReports {
    fn add(&mut self, reports: &ProxyReports) {
        self.gateways.extend(reports.gateways.keys().cloned());
        self.needs.extend(reports.needs.iter().cloned());
        self.refused.extend(reports.refused.keys().cloned());
    }
}

/// Everything that a proxy has reported to one controller.
#[derive(Debug, Default)]
pub struct MergedReports {
    /// Name of the proxy, for display.
    pub name: String,
    pub changes: Vec<Change>,
    /// Servers of the proxy itself.
    pub own_servers: OwnServers,
    /// The stream of its reports has ended.
    pub is_disconnected: bool,
}

impl ReportAggregator {
    /// Starts a stream of a proxy's reports. They replace those of streams that have ended.
    pub fn start(&mut self, proxy: &str, name: &str, own_servers: OwnServers) -> u64 {
        self.remove_if(proxy, |reports| {
            reports.received_by.is_none() && reports.disconnected.is_some()
        });
        self.add(proxy, name, None, own_servers)
    }

    fn add(
        &mut self,
        proxy: &str,
        name: &str,
        received_by: ReceivedBy,
        own_servers: OwnServers,
    ) -> u64 {
        self.streams += 1;
        let new = ProxyReports {
            name: name.to_owned(),
            received_by,
            stream: self.streams,
            own_servers,
            ..ProxyReports::default()
        };
        self.proxies.entry(proxy.to_owned()).or_default().push(new);
        self.mark_all_changed(proxy);
        self.streams
    }

    /// Applies reports of a stream.
    pub fn apply(&mut self, proxy: &str, stream: u64, changes: Vec<Change>) {
        let reports = self.proxies.get_mut(proxy).into_iter().flatten();
        let mut reports = reports.filter(|reports| reports.stream == stream);
        let Some(reports) = reports.next() else {
            return;
        };
        reports.state = ReportState::Received;
        let is_full = |len: usize| len >= MAX_REPORTS;
        for change in changes {
            let is_excess = match &change {
                Change::Observe(gateway, Some(_)) => {
                    is_full(reports.gateways.len()) && !reports.gateways.contains_key(gateway)
                }
                Change::Need(id, true) => {
                    is_full(reports.needs.len()) && !reports.needs.contains(id)
                }
                Change::RefusedResolution(name, _) => {
                    is_full(reports.refused.len()) && !reports.refused.contains_key(name)
                }
                _ => false,
            };
            if is_excess {
                continue;
            }
            match change {
                Change::Observe(gateway, observation) => {
                    match observation {
                        Some(observation) => {
                            drop(reports.gateways.insert(gateway.clone(), observation))
                        }
                        None => drop(reports.gateways.remove(&gateway)),
                    }
                    self.changed.gateways.insert(gateway);
                }
                Change::Need(id, needed) => {
                    match needed {
                        true => reports.needs.insert(id.clone()),
                        false => reports.needs.remove(&id),
                    };
                    self.changed.needs.insert(id);
                }
                Change::RefusedResolution(name, refused) => {
                    match refused.is_empty() {
                        true => drop(reports.refused.remove(&name)),
                        false => drop(reports.refused.insert(name.clone(), refused)),
                    }
                    self.changed.refused.insert(name);
                }
                _ => {}
            }
        }
    }

    /// Ends a stream. Its reports expire unless a new one starts.
    pub fn end(&mut self, proxy: &str, stream: u64, now: Instant) {
        let all = self.proxies.get_mut(proxy).into_iter().flatten();
        for reports in all.filter(|reports| reports.stream == stream) {
            reports.disconnected.get_or_insert(now);
        }
        let all = self.proxies.get(proxy).into_iter().flatten();
        let mut local = all.filter(|reports| reports.received_by.is_none());
        if local.any(|reports| reports.disconnected.is_none()) {
            self.remove_if(proxy, |reports| reports.stream == stream);
        }
        self.mark_all_changed(proxy);
    }

    /// Replaces the reports of a proxy of another controller.
    pub fn replace(
        &mut self,
        controller: &Arc<str>,
        proxy: &str,
        reports: MergedReports,
        now: Instant,
    ) {
        self.expire(controller, proxy);
        let received_by = Some(controller.clone());
        let stream = self.add(proxy, &reports.name, received_by, reports.own_servers);
        self.apply(proxy, stream, reports.changes);
        if reports.is_disconnected {
            self.record_disconnect(controller, proxy, now);
        }
    }

    /// Removes the reports of a proxy of another controller.
    pub fn expire(&mut self, controller: &Arc<str>, proxy: &str) {
        self.remove_if(proxy, |reports| {
            reports.received_by.as_ref() == Some(controller)
        });
    }

    /// Records that a proxy of another controller has disconnected.
    fn record_disconnect(&mut self, controller: &Arc<str>, proxy: &str, now: Instant) {
        let all = self.proxies.get_mut(proxy).into_iter().flatten();
        for reports in all.filter(|reports| reports.received_by.as_ref() == Some(controller)) {
            reports.disconnected.get_or_insert(now);
        }
        self.mark_all_changed(proxy);
    }

    /// Records that the proxies of another controller have disconnected.
    pub fn record_controller_disconnect(&mut self, controller: &Arc<str>, now: Instant) {
        let proxies: Vec<String> = self.proxies.keys().cloned().collect();
        for proxy in proxies {
            self.record_disconnect(controller, &proxy, now);
        }
    }

    /// Removes reports of a proxy.
    fn remove_if(&mut self, proxy: &str, is_removed: impl Fn(&ProxyReports) -> bool) {
        let Some(reports) = self.proxies.get_mut(proxy) else {
            return;
        };
        for removed in reports.extract_if(.., |reports| is_removed(reports)) {
            self.changed.add(&removed);
        }
        if reports.is_empty() {
            self.proxies.remove(proxy);
        }
        self.mark_all_changed(proxy);
    }

    /// Keys of the proxies that have reported, and the controllers that have received their reports.
    pub fn received_reports(&self) -> impl Iterator<Item = (ReceivedBy, String)> {
        let proxies = self.proxies.iter();
        proxies.flat_map(|(proxy, reports)| {
            let reports = reports.iter();
            reports.map(|reports| (reports.received_by.clone(), proxy.clone()))
        })
    }

    /// Returns everything that a proxy has reported to a controller.
    pub fn reports_of(&self, received_by: &ReceivedBy, proxy: &str) -> Option<MergedReports> {
        let reports = self.proxies.get(proxy)?.iter();
        let reports = reports.filter(|reports| reports.received_by == *received_by);
        let reports: Vec<&ProxyReports> = effective(reports);
        let first = reports.first()?;
        let mut merged = MergedReports {
            name: first.name.clone(),
            is_disconnected: first.disconnected.is_some(),
            ..MergedReports::default()
        };
        let all = || reports.iter();
        let gateways: BTreeSet<&Name> = all().flat_map(|one| one.gateways.keys()).collect();
        for gateway in gateways {
            let observations = all();
            let observations = observations
                .filter_map(|one| Some((one.name.as_str(), one.gateways.get(gateway)?)));
            let observation = merge_observations(observations);
            let change = Change::Observe(gateway.clone(), observation);
            merged.changes.push(change);
        }
        let needs: BTreeSet<&BackendId> = all().flat_map(|one| &one.needs).collect();
        let needs = needs.into_iter().map(|id| Change::Need(id.clone(), true));
        merged.changes.extend(needs);
        let mut refused: BTreeMap<&Arc<str>, BTreeSet<IpAddr>> = BTreeMap::new();
        for (name, addresses) in all().flat_map(|one| &one.refused) {
            refused.entry(name).or_default().extend(addresses);
        }
        for (name, addresses) in refused {
            let addresses = addresses.into_iter().collect();
            let change = Change::RefusedResolution(name.clone(), addresses);
            merged.changes.push(change);
        }
        for one in all() {
            merged.own_servers.extend(&one.own_servers);
        }
        Some(merged)
    }

    /// Returns the effective reports of all proxies.
    fn effective_reports(&self) -> impl Iterator<Item = &ProxyReports> {
        let proxies = self.proxies.values();
        proxies.flat_map(|reports| effective(reports.iter()))
    }

    /// Returns the effective reports of a proxy.
    fn effective_of(&self, proxy: &str) -> Vec<&ProxyReports> {
        let reports = self.proxies.get(proxy).into_iter().flatten();
        effective(reports)
    }

    /// Returns the servers of the proxies themselves.
    pub fn own_servers(&self) -> OwnServers {
        let mut own_servers = OwnServers::default();
        for reports in self.effective_reports() {
            own_servers.extend(&reports.own_servers);
        }
        own_servers
    }

    /// Returns whether there are reports of disconnected proxies that are still valid.
    pub fn has_disconnected(&self) -> bool {
        let mut all = self.proxies.values().flatten();
        all.any(|reports| reports.disconnected.is_some())
    }

    /// Marks a proxy's reports as changed, because different ones may now be effective.
    fn mark_all_changed(&mut self, proxy: &str) {
        let reports = self.proxies.get(proxy).filter(|reports| reports.len() > 1);
        for reports in reports.into_iter().flatten() {
            self.changed.add(reports);
        }
    }

    /// Records that the taken reports are in effect.
    pub fn record_applied(&mut self) {
        let taken = self.proxies.values_mut().flatten();
        let taken = taken.filter(|reports| reports.state == ReportState::Taken);
        taken.for_each(|reports| reports.state = ReportState::Applied);
    }

    /// Returns whether all reports of a proxy are in effect.
    pub fn is_applied(&self, proxy: &str) -> bool {
        let reports = self.effective_of(proxy);
        let is_applied = |reports: &&ProxyReports| reports.state == ReportState::Applied;
        !reports.is_empty() && reports.iter().all(is_applied)
    }

    /// Returns human-readable failures that one proxy has reported.
    pub fn problems(&self, proxy: &str) -> Vec<String> {
        let mut problems = Vec::new();
        let reports = self.effective_of(proxy);
        for (gateway, observation) in reports.iter().flat_map(|one| &one.gateways) {
            let unusable = observation.unusable.iter();
            problems.extend(unusable.map(|(a, reason)| format!("{gateway}: {a}: {reason}")));
            let unassigned = observation.unassigned.iter();
            problems.extend(unassigned.map(|reason| format!("{gateway}: {reason}")));
            let listeners = observation.unbound.iter().chain(&observation.faulty);
            problems.extend(listeners.map(|(id, reason)| format!("{}: {reason}", describe(id))));
        }
        problems
    }

    /// Removes reports that have expired. Returns the keys of those among their proxies whose reports this controller had received.
    pub fn remove_expired(&mut self, now: Instant) -> Vec<String> {
        let is_expired = |reports: &ProxyReports| {
            let disconnected = reports.disconnected;
            disconnected.is_some_and(|since| now >= since + GRACE)
        };
        let mut local = Vec::new();
        let mut expired = Vec::new();
        for (proxy, reports) in &self.proxies {
            let of_proxy = || reports.iter().filter(|reports| is_expired(reports));
            expired.extend(of_proxy().next().map(|_| proxy.clone()));
            let mut received = of_proxy().filter(|reports| reports.received_by.is_none());
            local.extend(received.next().map(|_| proxy.clone()));
        }
        for proxy in &expired {
            self.remove_if(proxy, is_expired);
        }
        local
    }

    /// Takes the changes since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        for reports in self.proxies.values_mut().flatten() {
            if reports.state == ReportState::Received {
                reports.state = ReportState::Taken;
            }
        }
        let mut changes = Vec::new();
        for gateway in std::mem::take(&mut self.changed.gateways) {
            let reports = self.effective_reports();
            let reports =
                reports.filter_map(|one| Some((one.name.as_str(), one.gateways.get(&gateway)?)));
            let observation = merge_observations(reports);
            changes.push(Change::Observe(gateway, observation));
        }
        for id in std::mem::take(&mut self.changed.needs) {
            let needed = self
                .effective_reports()
                .any(|reports| reports.needs.contains(&id));
            let changed = match needed {
                true => self.needed.insert(id.clone()),
                false => self.needed.remove(&id),
            };
            if changed {
                changes.push(Change::Need(id, needed));
            }
        }
        for name in std::mem::take(&mut self.changed.refused) {
            let refused = self.effective_reports();
            let refused = refused.filter_map(|reports| reports.refused.get(&name));
            let refused: BTreeSet<IpAddr> = refused.flatten().copied().collect();
            changes.push(Change::RefusedResolution(
                name,
                refused.into_iter().collect(),
            ));
        }
        changes
    }
}

/// Returns the effective ones of a proxy's reports: those of open streams, otherwise those of the stream that ended last.
fn effective<'r>(reports: impl IntoIterator<Item = &'r ProxyReports>) -> Vec<&'r ProxyReports> {
    let all: Vec<&ProxyReports> = reports.into_iter().collect();
    let is_open = |reports: &&ProxyReports| reports.disconnected.is_none();
    match all.iter().any(is_open) {
        true => all.into_iter().filter(is_open).collect(),
        false => {
            let last = all.into_iter().max_by_key(|reports| reports.disconnected);
            last.into_iter().collect()
        }
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
fn merge_observations<'r>(
    reports: impl Iterator<Item = (&'r str, &'r Observation)>,
) -> Option<Observation> {
    // A proxy that reconnects has reported the same twice.
    let mut distinct: Vec<(&str, &Observation)> = Vec::new();
    for report in reports {
        if !distinct.contains(&report) {
            distinct.push(report);
        }
    }
    let reports = &distinct[..];
    if let [(_, only)] = reports {
        return Some((*only).clone());
    }
    let addresses = reports
        .iter()
        .flat_map(|(_, observation)| &observation.addresses);
    let addresses: BTreeSet<IpAddr> = addresses.copied().collect();
    let (first, _) = reports.split_first()?;
    let with_names = |reason: &dyn Fn(&Observation) -> Option<String>| -> Option<String> {
        let all: Option<Vec<String>> = reports
            .iter()
            .map(|(proxy, observation)| Some(format!("{proxy}: {}", reason(observation)?)))
            .collect();
        Some(all?.join("; "))
    };
    let mut merged = Observation::default();
    for address in first.1.unusable.keys().filter(|a| !addresses.contains(a)) {
        if let Some(reason) = with_names(&|observation| observation.unusable.get(address).cloned())
        {
            merged.unusable.insert(*address, reason);
        }
    }
    if addresses.is_empty() {
        merged.unassigned = with_names(&|observation| observation.unassigned.clone());
    }
    for id in first.1.unbound.keys() {
        if let Some(reason) = with_names(&|observation| observation.unbound.get(id).cloned()) {
            merged.unbound.insert(id.clone(), reason);
        }
    }
    for id in first.1.faulty.keys() {
        if let Some(reason) = with_names(&|observation| observation.faulty.get(id).cloned()) {
            merged.faulty.insert(id.clone(), reason);
        }
    }
    for (id, sockets) in reports
        .iter()
        .flat_map(|(_, observation)| &observation.cross_mesh_addresses)
    {
        merged
            .cross_mesh_addresses
            .entry(id.clone())
            .or_default()
            .extend(sockets);
    }
    for sockets in merged.cross_mesh_addresses.values_mut() {
        sockets.sort_unstable();
        sockets.dedup();
    }
    merged.addresses = addresses.into_iter().collect();
    Some(merged)
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

    fn observation(address: &str, unbound: Option<&str>) -> Observation {
        let mut observation = Observation {
            addresses: vec![address.parse().expect("an address")],
            ..Observation::default()
        };
        observation
            .unbound
            .extend(unbound.map(|reason| (listener(), reason.to_owned())));
        observation
    }

    /// The observation among changes.
    fn observed(changes: &[Change]) -> Option<&Observation> {
        changes.iter().find_map(|change| match change {
            Change::Observe(_, observation) => observation.as_ref(),
            _ => None,
        })
    }

    /// Takes the changes after a time.
    fn take(aggregator: &mut ReportAggregator, later: std::time::Duration) -> Vec<Change> {
        aggregator.remove_expired(Instant::now() + later);
        aggregator.take_changes()
    }

    fn report(aggregator: &mut ReportAggregator, proxy: &str, observation: Observation) -> u64 {
        let stream = aggregator.start(proxy, proxy, OwnServers::default());
        aggregator.apply(
            proxy,
            stream,
            vec![Change::Observe(gateway(), Some(observation))],
        );
        stream
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_is_unavailable_only_if_no_proxy_has_it() {
        let mut aggregator = ReportAggregator::default();
        report(
            &mut aggregator,
            "a",
            observation("192.0.2.1", Some("taken")),
        );
        let changes = aggregator.take_changes();
        let one = observed(&changes).expect("an observation");
        assert_eq!(one.unbound[&listener()], "taken", "as in one process");
        let b = report(&mut aggregator, "b", observation("192.0.2.2", None));
        let changes = aggregator.take_changes();
        let both = observed(&changes).expect("an observation");
        assert_eq!(both.addresses.len(), 2);
        assert!(both.unbound.is_empty());
        assert_eq!(
            aggregator.problems("a").len(),
            1,
            "it is a problem of that proxy"
        );
        assert_eq!(aggregator.problems("b").len(), 0);
        let unbound = observation("192.0.2.2", Some("no privilege"));
        aggregator.apply("b", b, vec![Change::Observe(gateway(), Some(unbound))]);
        let changes = aggregator.take_changes();
        let both = observed(&changes).expect("an observation");
        assert_eq!(both.unbound[&listener()], "a: taken; b: no privilege");
    }

    #[tokio::test(start_paused = true)]
    async fn reports_outlive_a_short_disconnection() {
        let mut aggregator = ReportAggregator::default();
        let stream = report(&mut aggregator, "a", observation("192.0.2.1", None));
        aggregator.take_changes();
        aggregator.end("a", stream, Instant::now());
        assert!(take(&mut aggregator, GRACE / 2).is_empty());
        // The proxy has reconnected: the end of the old stream has no effect.
        let new = report(&mut aggregator, "a", observation("192.0.2.1", None));
        aggregator.end("a", stream, Instant::now());
        assert!(!aggregator.has_disconnected());
        aggregator.take_changes();
        aggregator.end("a", new, Instant::now());
        let changes = take(&mut aggregator, GRACE);
        assert_eq!(changes.len(), 1);
        assert!(observed(&changes).is_none(), "nothing is known any more");
    }

    #[tokio::test(start_paused = true)]
    async fn reports_of_two_proxies_with_the_same_key_count_until_they_disconnect() {
        let mut aggregator = ReportAggregator::default();
        let addresses = |aggregator: &mut ReportAggregator| {
            let changes = aggregator.take_changes();
            let observation = observed(&changes).expect("an observation");
            observation.addresses.len()
        };
        let first = report(&mut aggregator, "a", observation("192.0.2.1", None));
        let second = report(&mut aggregator, "a", observation("192.0.2.2", None));
        assert_eq!(addresses(&mut aggregator), 2);
        let changed = Change::Observe(gateway(), Some(observation("192.0.2.3", None)));
        aggregator.apply("a", first, vec![changed]);
        assert_eq!(addresses(&mut aggregator), 2);
        aggregator.end("a", second, Instant::now());
        let changes = aggregator.take_changes();
        let left = &observed(&changes).expect("an observation").addresses;
        assert_eq!(left[0].to_string(), "192.0.2.3");
        assert_eq!(left.len(), 1);
        assert!(take(&mut aggregator, GRACE).is_empty(), "it still serves");
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_is_needed_as_long_as_one_proxy_needs_it() {
        let service = ObjectKey::new(Kind::Service, "shop", "web");
        let id = BackendId::new(service, 80, Transport::Tcp);
        let mut aggregator = ReportAggregator::default();
        let streams =
            ["a", "b"].map(|proxy| (proxy, aggregator.start(proxy, proxy, OwnServers::default())));
        let mut needs = |needed: [bool; 2]| {
            for ((proxy, stream), needed) in streams.iter().zip(needed) {
                aggregator.apply(proxy, *stream, vec![Change::Need(id.clone(), needed)]);
            }
            aggregator.take_changes().len()
        };
        assert_eq!(needs([true, true]), 1);
        assert_eq!(needs([false, true]), 0);
        assert_eq!(needs([false, false]), 1);
    }
}
