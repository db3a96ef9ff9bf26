//! Grouping of differences by their cause, so that one change is reported once, whatever the number of matches, hosts and listeners that it concerns.

use std::collections::{BTreeMap, HashSet};

use pointsman_binding::bound::FrontendId;
use pointsman_resources::ObjectKey;

use super::frontend_group::url;
use super::{Cause, Change, Difference, RulePair, SampleRequest, Side, Treatment, effect};
use crate::explain::{Decision, FrontendRef, Query, RuleRef};
use crate::tables::Tables;

/// Maximum number of lines of a record that a difference lists.
const MAX_LINES: usize = 10;

/// A difference between two decisions.
pub(super) struct DecisionDifference<'f, 't> {
    pub(super) query: &'f Query,
    pub(super) decisions: &'f [Decision<'t>; 2],
    pub(super) changes: Vec<Change>,
    /// Line and number of a recorded request.
    pub(super) recorded: Option<(usize, usize)>,
    /// The frontend group is a port of a Gateway, whose listeners are objects of their own.
    pub(super) is_port: bool,
}

/// Cause of a difference, and what distinguishes it from others of the same kind.
type GroupKey = (Cause, String);

/// Differences by cause.
pub(super) struct Groups {
    /// Frontends and routes of each side.
    known: [ConfiguredObjects; 2],
    groups: BTreeMap<GroupKey, Difference>,
}

struct ConfiguredObjects {
    frontends: HashSet<FrontendId>,
    routes: HashSet<ObjectKey>,
}

impl ConfiguredObjects {
    fn new(tables: &Tables) -> Self {
        let mut known = ConfiguredObjects {
            frontends: HashSet::new(),
            routes: HashSet::new(),
        };
        for table in tables.frontends() {
            known.frontends.insert(table.frontend().id.clone());
            for route in table.routes() {
                let rules = route.rules.iter();
                known
                    .routes
                    .extend(rules.map(|rule| route.source(rule).0.clone()));
            }
        }
        known
    }
}

impl Groups {
    pub(super) fn new(sides: [&Side<'_>; 2]) -> Self {
        Groups {
            known: sides.map(|side| ConfiguredObjects::new(side.tables)),
            groups: BTreeMap::new(),
        }
    }

    /// Adds a difference.
    pub(super) fn add(&mut self, found: DecisionDifference<'_, '_>) {
        let (cause, hostname) = self.cause(&found);
        let rules = found.decisions.each_ref().map(rule_without_match);
        // A listener that is new or removed is named alone, not with those that it takes requests from.
        let receivers = match cause {
            Cause::ListenerAdded => &found.decisions[1..],
            Cause::ListenerRemoved => &found.decisions[..1],
            _ => found.decisions,
        };
        let frontends = receivers.iter();
        let frontends = frontends.filter_map(|decision| decision.explanation.frontend.clone());
        let key = match cause {
            Cause::ListenerAdded
            | Cause::ListenerRemoved
            | Cause::ListenerChanged
            | Cause::DestinationChanged => format!("{:?}", frontends.clone().next()),
            Cause::HostAdded | Cause::HostRemoved => hostname.clone().unwrap_or_default(),
            Cause::RouteAdded => route_key(&rules[1], &rules[0]),
            Cause::RouteRemoved => route_key(&rules[0], &rules[1]),
            Cause::RuleChanged | Cause::OtherRule => format!("{rules:?}"),
        };
        let group = self.groups.entry((cause, key));
        let group = group.or_insert_with(|| first(&found, cause, hostname));
        for frontend in frontends {
            if !group.frontends.contains(&frontend) {
                group.frontends.push(frontend);
            }
        }
        let [old, new] = rules;
        let pair = RulePair { old, new };
        if (pair.old.is_some() || pair.new.is_some()) && !group.rules.contains(&pair) {
            group.rules.push(pair);
        }
        for change in found.changes {
            if !group
                .changes
                .iter()
                .any(|known| known.field == change.field)
            {
                group.changes.push(change);
            }
        }
        if let Some((line, count)) = found.recorded {
            *group.requests.get_or_insert(0) += count;
            if group.lines.len() < MAX_LINES {
                group.lines.push(line);
            }
        }
    }

    /// Adds changed settings of a listener.
    pub(super) fn add_settings(&mut self, frontend: FrontendRef, changes: Vec<Change>) {
        let key = (Cause::ListenerChanged, format!("settings of {frontend:?}"));
        let difference = Difference {
            cause: Cause::ListenerChanged,
            hostname: None,
            frontends: vec![frontend],
            rules: Vec::new(),
            request: None,
            old: None,
            new: None,
            changes,
            requests: None,
            lines: Vec::new(),
        };
        self.groups.insert(key, difference);
    }

    /// Returns the cause, and the hostname that is new or removed.
    fn cause(&self, found: &DecisionDifference<'_, '_>) -> (Cause, Option<String>) {
        let [old, new] = found.decisions;
        let is_known = |side: usize, id: &FrontendId| self.known[side].frontends.contains(id);
        let of_listener = match (old.table, new.table) {
            (Some(a), Some(b)) if a.frontend().id == b.frontend().id => {
                let (a, b) = (a.frontend(), b.frontend());
                let is_same = (a.protocol, &a.closed, &a.kind) == (b.protocol, &b.closed, &b.kind);
                (!is_same).then_some(Cause::ListenerChanged)
            }
            (_, Some(table)) if !is_known(0, &table.frontend().id) => Some(Cause::ListenerAdded),
            (Some(table), _) if !is_known(1, &table.frontend().id) => Some(Cause::ListenerRemoved),
            (None, None) => Some(Cause::DestinationChanged),
            _ => Some(Cause::ListenerChanged),
        };
        if let Some(cause) = of_listener.filter(|_| found.is_port) {
            return (cause, None);
        }
        let host = match found.query.target.scheme.is_http() {
            true => Some(found.query.host()),
            false => found.query.sni(),
        };
        // The hostname of a rule that matches on one side only, if the other side has no rules for the host.
        let unknown = |decision: &Decision<'_>, other: &Decision<'_>| {
            let hostname = decision.hit?.hostname?;
            let table = other.table.filter(|_| other.hit.is_none())?;
            let host = host.as_deref().unwrap_or_default();
            let is_served = table.hosts.find(host, |_| Some(())).is_some();
            (!is_served).then(|| hostname.to_string())
        };
        if let Some(hostname) = unknown(new, old) {
            return (Cause::HostAdded, Some(hostname));
        }
        if let Some(hostname) = unknown(old, new) {
            return (Cause::HostRemoved, Some(hostname));
        }
        (self.cause_of_rules(old, new), None)
    }

    fn cause_of_rules(&self, old: &Decision<'_>, new: &Decision<'_>) -> Cause {
        let source = |decision: &Decision<'_>| {
            let hit = decision.hit?;
            Some(hit.route.source(hit.rule).0.clone())
        };
        let (a, b) = (source(old), source(new));
        if b.as_ref()
            .is_some_and(|route| !self.known[0].routes.contains(route))
        {
            return Cause::RouteAdded;
        }
        if a.as_ref()
            .is_some_and(|route| !self.known[1].routes.contains(route))
        {
            return Cause::RouteRemoved;
        }
        match (old.hit, new.hit) {
            (None, None) => Cause::DestinationChanged,
            (Some(x), Some(y)) => {
                let is_same_rule = match (&x.rule.name, &y.rule.name) {
                    (Some(x), Some(y)) => x == y,
                    _ => x.route.source(x.rule).1 == y.route.source(y.rule).1,
                };
                match a == b && is_same_rule {
                    true => Cause::RuleChanged,
                    false => Cause::OtherRule,
                }
            }
            _ => Cause::OtherRule,
        }
    }

    /// Returns the differences. Rules that changed in the same way are reported together.
    pub(super) fn finish(self) -> Vec<Difference> {
        let mut differences: Vec<Difference> = Vec::new();
        for (_, difference) in self.groups {
            let same = differences.iter_mut().find(|other| {
                difference.cause == Cause::RuleChanged
                    && other.cause == Cause::RuleChanged
                    && other.changes == difference.changes
            });
            match same {
                Some(other) => merge(other, difference),
                None => differences.push(difference),
            }
        }
        differences
    }
}

fn merge(into: &mut Difference, other: Difference) {
    for frontend in other.frontends {
        if !into.frontends.contains(&frontend) {
            into.frontends.push(frontend);
        }
    }
    into.rules.extend(other.rules);
    if let Some(requests) = other.requests {
        *into.requests.get_or_insert(0) += requests;
    }
    into.lines.extend(other.lines);
    into.lines.sort_unstable();
    into.lines.truncate(MAX_LINES);
}

/// Groups the rules of a new or removed route by the rule that matches on the other side.
fn route_key(route: &Option<RuleRef>, other: &Option<RuleRef>) -> String {
    let route = route
        .as_ref()
        .map(|rule| (rule.kind, &rule.namespace, &rule.name));
    format!("{route:?} {other:?}")
}

fn rule_without_match(decision: &Decision<'_>) -> Option<RuleRef> {
    let rule = decision.explanation.rule.clone();
    rule.map(|rule| RuleRef {
        matched: None,
        ..rule
    })
}

/// Creates the group of a difference, which becomes its sample.
fn first(found: &DecisionDifference<'_, '_>, cause: Cause, hostname: Option<String>) -> Difference {
    let treatments = found.decisions.each_ref().map(treatment);
    let [old, new] = treatments.map(Some);
    Difference {
        cause,
        hostname,
        frontends: Vec::new(),
        rules: Vec::new(),
        request: Some(sample(found.query)),
        old,
        new,
        changes: Vec::new(),
        requests: None,
        lines: Vec::new(),
    }
}

fn treatment(decision: &Decision<'_>) -> Treatment {
    let explanation = &decision.explanation;
    Treatment {
        outcome: explanation.outcome,
        status: explanation.status,
        grpc_status: explanation.grpc_status,
        description: effect::outcome(explanation),
        rule: explanation.rule.clone(),
    }
}

fn sample(query: &Query) -> SampleRequest {
    let scheme = query.target.scheme;
    let headers = query.headers.iter();
    let from = match (&query.dataplane, &query.from) {
        (_, Some((namespace, Some(pod)))) => Some(format!("{namespace}/{pod}")),
        (Some(dataplane), _) => Some(format!("dataplane/{}", dataplane.name)),
        (None, from) => from.as_ref().map(|(namespace, _)| namespace.clone()),
    };
    SampleRequest {
        method: scheme.is_http().then(|| query.method.clone()),
        url: url(query),
        headers: headers
            .map(|(name, value)| format!("{name}: {value}"))
            .collect(),
        gateway: query
            .gateway
            .as_ref()
            .map(|(name, listener)| match listener {
                Some(listener) => format!("{name}/{listener}"),
                None => name.to_string(),
            }),
        from,
        sni: query.sni.clone(),
    }
}
