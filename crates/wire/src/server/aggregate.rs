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
struct ProxyReports {
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

/// Progress of reports.
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

/// The controller that a proxy is connected to; `None` for this one.
pub type ReceivedBy = Option<Arc<str>>;

/// Reports of all proxies, by the proxies' names and the controllers that received them.
#[derive(Debug, Default)]
pub struct ReportAggregator {
    proxies: BTreeMap<String, BTreeMap<ReceivedBy, ProxyReports>>,
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

impl ReportAggregator {
    /// Starts a stream of a proxy's reports. They replace those of an earlier stream.
    pub fn start(&mut self, proxy: &str, own_servers: OwnServers) -> u64 {
        self.start_at(None, proxy, own_servers)
    }

    fn start_at(&mut self, received_by: ReceivedBy, proxy: &str, own_servers: OwnServers) -> u64 {
        self.streams += 1;
        let stream = self.streams;
        let new = ProxyReports {
            stream,
            own_servers,
            ..ProxyReports::default()
        };
        let reports = self.proxies.entry(proxy.to_owned()).or_default();
        if let Some(old) = reports.insert(received_by, new) {
            self.changed.add(&old);
        }
        self.mark_all_changed(proxy);
        stream
    }

    /// Applies reports.
    pub fn apply(&mut self, proxy: &str, stream: u64, changes: Vec<Change>) {
        self.apply_at(&None, proxy, stream, changes);
    }

    fn apply_at(
        &mut self,
        received_by: &ReceivedBy,
        proxy: &str,
        stream: u64,
        changes: Vec<Change>,
    ) {
        let reports = self.proxies.get_mut(proxy);
        let reports = reports.and_then(|reports| reports.get_mut(received_by));
        let Some(reports) = reports.filter(|reports| reports.stream == stream) else {
            return;
        };
        reports.state = ReportState::Received;
        for change in changes {
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

    /// Ends a stream.
    pub fn end(&mut self, proxy: &str, stream: u64, now: Instant) {
        let is_current = |reports: &ProxyReports| reports.stream == stream;
        if self.local_reports(proxy).is_some_and(is_current) {
            self.record_disconnect(&None, proxy, now);
        }
    }

    /// Records that the stream of a proxy's reports has ended. They expire unless a new one starts.
    fn record_disconnect(&mut self, received_by: &ReceivedBy, proxy: &str, now: Instant) {
        let Some(reports) = self.proxies.get_mut(proxy) else {
            return;
        };
        if let Some(ended) = reports.get_mut(received_by) {
            ended.disconnected.get_or_insert(now);
        }
        self.mark_all_changed(proxy);
    }

    /// Replaces the reports of a proxy of another controller.
    pub fn replace(
        &mut self,
        controller: &Arc<str>,
        proxy: &str,
        own_servers: OwnServers,
        (changes, is_disconnected): (Vec<Change>, bool),
        now: Instant,
    ) {
        let received_by = Some(controller.clone());
        let stream = self.start_at(received_by.clone(), proxy, own_servers);
        self.apply_at(&received_by, proxy, stream, changes);
        if is_disconnected {
            self.record_disconnect(&received_by, proxy, now);
        }
    }

    /// Removes the reports of a proxy of another controller.
    pub fn expire(&mut self, controller: &Arc<str>, proxy: &str) {
        self.remove(proxy, &Some(controller.clone()));
    }

    /// Records that the proxies of another controller have disconnected.
    pub fn record_controller_disconnect(&mut self, controller: &Arc<str>, now: Instant) {
        let received_by = Some(controller.clone());
        let proxies = self.proxies.iter();
        let proxies = proxies.filter(|(_, reports)| reports.contains_key(&received_by));
        let proxies: Vec<String> = proxies.map(|(proxy, _)| proxy.clone()).collect();
        for proxy in proxies {
            self.record_disconnect(&received_by, &proxy, now);
        }
    }

    fn remove(&mut self, proxy: &str, received_by: &ReceivedBy) {
        let Some(reports) = self.proxies.get_mut(proxy) else {
            return;
        };
        let removed = reports.remove(received_by);
        if reports.is_empty() {
            self.proxies.remove(proxy);
        }
        if let Some(removed) = removed {
            self.changed.add(&removed);
        }
        self.mark_all_changed(proxy);
    }

    /// Reports of a proxy that this controller has received.
    fn local_reports(&self, proxy: &str) -> Option<&ProxyReports> {
        self.proxies.get(proxy)?.get(&None)
    }

    /// Names of the proxies that have reported, and the controllers that have received their reports.
    pub fn received_reports(&self) -> impl Iterator<Item = (ReceivedBy, String)> {
        let proxies = self.proxies.iter();
        proxies.flat_map(|(proxy, reports)| {
            let receivers = reports.keys();
            receivers.map(|received_by| (received_by.clone(), proxy.clone()))
        })
    }

    /// Everything that a proxy has reported to a controller, and whether the stream of its reports has ended.
    pub fn reports_of(
        &self,
        received_by: &ReceivedBy,
        proxy: &str,
    ) -> Option<(Vec<Change>, &OwnServers, bool)> {
        let reports = self.proxies.get(proxy)?.get(received_by)?;
        let gateways = reports.gateways.iter();
        let gateways = gateways.map(|(gateway, observation)| {
            Change::Observe(gateway.clone(), Some(observation.clone()))
        });
        let needs = reports.needs.iter();
        let needs = needs.map(|id| Change::Need(id.clone(), true));
        let refused = reports.refused.iter();
        let refused =
            refused.map(|(name, all)| Change::RefusedResolution(name.clone(), all.clone()));
        let changes = gateways.chain(needs).chain(refused).collect();
        Some((
            changes,
            &reports.own_servers,
            reports.disconnected.is_some(),
        ))
    }

    /// The reports of each proxy that count.
    fn effective_reports(&self) -> impl Iterator<Item = (&str, &ProxyReports)> {
        let proxies = self.proxies.iter();
        proxies.filter_map(|(proxy, reports)| Some((proxy.as_str(), effective(reports)?)))
    }

    /// Servers of the proxies themselves.
    pub fn own_servers(&self) -> OwnServers {
        let mut own_servers = OwnServers::default();
        for (_, reports) in self.effective_reports() {
            own_servers.extend(&reports.own_servers);
        }
        own_servers
    }

    /// Returns whether there are reports of disconnected proxies that are still valid.
    pub fn has_disconnected(&self) -> bool {
        let mut all = self.proxies.values().flat_map(BTreeMap::values);
        all.any(|reports| reports.disconnected.is_some())
    }

    /// Marks a proxy's reports at all controllers as changed, because different ones may now be effective.
    fn mark_all_changed(&mut self, proxy: &str) {
        let reports = self.proxies.get(proxy).filter(|reports| reports.len() > 1);
        for reports in reports.into_iter().flat_map(BTreeMap::values) {
            self.changed.add(reports);
        }
    }

    /// Records that the taken reports are in effect.
    pub fn record_applied(&mut self) {
        let taken = self.proxies.values_mut().flat_map(BTreeMap::values_mut);
        let taken = taken.filter(|reports| reports.state == ReportState::Taken);
        taken.for_each(|reports| reports.state = ReportState::Applied);
    }

    /// Returns whether all reports of a proxy are in effect.
    pub fn is_applied(&self, proxy: &str) -> bool {
        let reports = self.proxies.get(proxy).and_then(effective);
        reports.is_some_and(|reports| reports.state == ReportState::Applied)
    }

    /// Returns human-readable failures that one proxy has reported.
    pub fn problems(&self, proxy: &str) -> Vec<String> {
        let Some(reports) = self.proxies.get(proxy).and_then(effective) else {
            return Vec::new();
        };
        let mut problems = Vec::new();
        for (gateway, observation) in &reports.gateways {
            let unusable = observation.unusable.iter();
            problems.extend(unusable.map(|(a, reason)| format!("{gateway}: {a}: {reason}")));
            let unassigned = observation.unassigned.iter();
            problems.extend(unassigned.map(|reason| format!("{gateway}: {reason}")));
            let listeners = observation.unbound.iter().chain(&observation.faulty);
            problems.extend(listeners.map(|(id, reason)| format!("{}: {reason}", describe(id))));
        }
        problems
    }

    /// Removes reports that have expired. Returns the names of those among their proxies whose reports this controller had received.
    pub fn remove_expired(&mut self, now: Instant) -> Vec<String> {
        let is_expired = |reports: &ProxyReports| {
            reports
                .disconnected
                .is_some_and(|since| now >= since + GRACE)
        };
        let mut expired: Vec<(String, ReceivedBy)> = Vec::new();
        for (proxy, reports) in &self.proxies {
            let reports = reports.iter().filter(|(_, reports)| is_expired(reports));
            expired.extend(reports.map(|(received_by, _)| (proxy.clone(), received_by.clone())));
        }
        for (proxy, received_by) in &expired {
            self.remove(proxy, received_by);
        }
        let local = expired
            .into_iter()
            .filter(|(_, received_by)| received_by.is_none());
        local.map(|(proxy, _)| proxy).collect()
    }

    /// Takes the changes since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        for reports in self.proxies.values_mut().flat_map(BTreeMap::values_mut) {
            if reports.state == ReportState::Received {
                reports.state = ReportState::Taken;
            }
        }
        let mut changes = Vec::new();
        for gateway in std::mem::take(&mut self.changed.gateways) {
            let reports = self.effective_reports();
            let reports: Vec<(&str, &Observation)> = reports
                .filter_map(|(proxy, reports)| Some((proxy, reports.gateways.get(&gateway)?)))
                .collect();
            let observation = merge_observations(&reports);
            changes.push(Change::Observe(gateway, observation));
        }
        for id in std::mem::take(&mut self.changed.needs) {
            let needed = self
                .effective_reports()
                .any(|(_, reports)| reports.needs.contains(&id));
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
fn effective(reports: &BTreeMap<ReceivedBy, ProxyReports>) -> Option<&ProxyReports> {
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
fn merge_observations(reports: &[(&str, &Observation)]) -> Option<Observation> {
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
        let stream = aggregator.start(proxy, OwnServers::default());
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
        report(&mut aggregator, "b", observation("192.0.2.2", None));
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
        report(
            &mut aggregator,
            "b",
            observation("192.0.2.2", Some("no privilege")),
        );
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
    async fn a_backend_is_needed_as_long_as_one_proxy_needs_it() {
        let service = ObjectKey::new(Kind::Service, "shop", "web");
        let id = BackendId::new(service, 80, Transport::Tcp);
        let mut aggregator = ReportAggregator::default();
        let streams =
            ["a", "b"].map(|proxy| (proxy, aggregator.start(proxy, OwnServers::default())));
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
