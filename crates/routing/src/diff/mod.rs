//! `diff`: the requests that two configurations treat differently.
//!
//! The rules of both sides divide the requests of each frontend group into regions. Regions that both sides have, in the same order and with the same effect,
//! need no examination. For every other one, representative requests are derived: the simplest request of the region, one for each pair with a region of the other
//! side, and near misses. Each is decided on both sides as `explain` decides it, and differences are grouped by their cause.
//!
//! A match without expressions and without absent headers only requires properties; additional properties never break it. If any request belongs to two such
//! regions, one on each side, the simplest request that satisfies both does too, so no difference is missed. Expressions are sampled.

mod effect;
mod frontend_group;
mod group;
mod recorded;
mod region;
mod request;
mod sample;
mod variants;

pub use recorded::{LoggedRequest, RecordError, RecordedRequest, RecordedRequests, parse_recorded};

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use pointsman_binding::bound::{BackendId, BoundRule, Endpoints, Frontend};
use serde::Serialize;

use crate::entry::LookupResult;
use crate::explain::{
    Decision, Directory, FrontendRef, Outcome, Query, ReplyStatus, RuleRef, Scheme, reference,
    rule_ref,
};
use crate::table::FrontendTable;
use crate::tables::Tables;
use frontend_group::{FrontendGroup, GroupTables, frontend_groups, schemes};
use group::{DecisionDifference, Groups};
use region::{Region, changed, regions};
use request::{RepresentativeRequest, UnusedValues};

/// Maximum number of representative requests, which bounds time and memory. Unrelated configurations with thousands of routes for the same host may exceed it.
const MAX_REQUESTS: usize = 500_000;

/// A configuration to compare.
#[derive(Clone, Copy)]
pub struct Side<'s> {
    /// Routing tables.
    pub tables: &'s Tables,
    /// Names and addresses of mesh parents.
    pub directory: &'s Directory,
}

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Differences that representative requests show, by cause.
    pub differences: Vec<Difference>,
    /// Number of representative requests that were decided on both sides.
    pub representative_requests: usize,
    /// False if there were too many representative requests to decide all.
    pub complete: bool,
    /// Matches for which no request was found, because of their expressions.
    pub not_sampled: Vec<RuleRef>,
    /// Backends whose endpoints differ, which is not counted as a difference unless one side has none.
    pub changed_endpoints: Vec<String>,
    /// The result for recorded requests, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedResult>,
}

/// The result for recorded requests.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedResult {
    /// Number of requests.
    pub requests: usize,
    /// Number of requests that are treated differently.
    pub changed: usize,
    /// Their differences, by cause.
    pub differences: Vec<Difference>,
}

/// Requests that are treated differently for one cause.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The cause.
    pub cause: Cause,
    /// The hostname that is new or removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The listeners or mesh destinations that receive the requests.
    pub frontends: Vec<FrontendRef>,
    /// The rules that match, on both sides, without the indices of their matches.
    pub rules: Vec<RulePair>,
    /// One of the requests; missing if the difference is one of the listener itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<SampleRequest>,
    /// The treatment of this request by the old configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Treatment>,
    /// The treatment of this request by the new configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Treatment>,
    /// The differences.
    pub changes: Vec<Change>,
    /// Number of recorded requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<usize>,
    /// Lines of the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<usize>,
}

/// The cause of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A listener is new.
    ListenerAdded,
    /// A listener is removed.
    ListenerRemoved,
    /// A listener has other settings, or gets other requests of its port.
    ListenerChanged,
    /// A hostname is new.
    HostAdded,
    /// A hostname is removed.
    HostRemoved,
    /// A route is new.
    RouteAdded,
    /// A route is removed.
    RouteRemoved,
    /// The rule that matches has another effect.
    RuleChanged,
    /// Another rule matches.
    OtherRule,
    /// A destination without rules is treated differently, such as a Service without routes.
    DestinationChanged,
}

/// The rules that match on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RulePair {
    /// The rule of the old configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<RuleRef>,
    /// The rule of the new configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<RuleRef>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SampleRequest {
    /// The method; missing for a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The URL.
    pub url: String,
    /// Headers in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The Gateway that receives it, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The client in the mesh, as `explain --from` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The SNI, if it differs from the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
}

/// The treatment of a request by one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Treatment {
    /// The kind of result.
    pub outcome: Outcome,
    /// Status of a local reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ReplyStatus>,
    /// gRPC status of a local reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u16>,
    /// Human-readable description.
    pub description: String,
    /// The matching rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleRef>,
}

/// A property of the treatment that differs. A missing value means that there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The property.
    pub field: String,
    /// Its value in the old configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// Its value in the new configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// Compares two configurations.
pub fn compare(old: &Side<'_>, new: &Side<'_>, recorded: Option<&[RecordedRequest]>) -> Comparison {
    let sides = [old, new];
    let mut comparer = Comparer {
        sides,
        groups: Groups::new(sides),
        requests: 0,
        complete: true,
        not_sampled: Vec::new(),
    };
    for (group, tables) in frontend_groups(sides) {
        comparer.at(&group, &tables);
    }
    Comparison {
        differences: comparer.groups.finish(),
        representative_requests: comparer.requests,
        complete: comparer.complete,
        not_sampled: comparer.not_sampled,
        changed_endpoints: changed_endpoints(sides),
        recorded: recorded.map(|recorded| recorded::compare(sides, recorded)),
    }
}

/// Lists the backends of both sides that have other endpoints.
fn changed_endpoints(sides: [&Side<'_>; 2]) -> Vec<String> {
    let [old, new] = sides.map(|side| side.tables);
    let has_any = |endpoints: &Endpoints| match endpoints {
        Endpoints::Addresses(all) => !all.is_empty(),
        Endpoints::Dns(..) => true,
    };
    let differs = |id: &BackendId| match (old.endpoints(id), new.endpoints(id)) {
        (Some(a), Some(b)) => a != b && has_any(a) && has_any(b),
        _ => false,
    };
    let ids = old.backends().map(|backend| &backend.id);
    let ids: BTreeSet<&BackendId> = ids.filter(|id| differs(id)).collect();
    ids.into_iter().map(ToString::to_string).collect()
}

struct Comparer<'s, 't> {
    sides: [&'s Side<'t>; 2],
    groups: Groups,
    requests: usize,
    complete: bool,
    not_sampled: Vec<RuleRef>,
}

/// The comparison of one frontend group.
struct GroupComparer<'c, 's, 't> {
    all: &'c mut Comparer<'s, 't>,
    group: &'c FrontendGroup,
    schemes: Vec<Scheme>,
    examined: BTreeSet<RepresentativeRequest>,
    /// Pairs of rules whose filters have been compared, by address.
    filters: HashSet<(usize, usize)>,
}

impl<'t> Comparer<'_, 't> {
    fn at(&mut self, group: &FrontendGroup, tables: &GroupTables<'t>) {
        self.compare_settings(tables);
        let regions = tables.each_ref().map(|tables| regions(tables));
        let sides = self.sides;
        let changed = changed(&regions[0], &regions[1], |a, b| {
            has_same_frontend(a.table, b.table)
                && match (&a.entry, &b.entry) {
                    (Some(a), Some(b)) => effect::is_same(
                        (sides[0], &a.route, &a.rule),
                        (sides[1], &b.route, &b.rule),
                    ),
                    (a, b) => a.is_none() && b.is_none(),
                }
        });
        if changed.iter().all(Vec::is_empty) {
            return;
        }
        let unused = UnusedValues::new(regions[0].iter().chain(&regions[1]));
        let mut here = GroupComparer {
            group,
            schemes: schemes(tables),
            examined: BTreeSet::new(),
            filters: HashSet::new(),
            all: self,
        };
        for (index, changed) in changed.iter().enumerate() {
            let others = &regions[1 - index];
            for position in changed {
                here.examine_region(&unused, &regions[index][*position], others);
            }
        }
    }

    /// Compares the settings of listeners that no request shows.
    fn compare_settings(&mut self, [old, new]: &GroupTables<'_>) {
        for a in old {
            let same = |b: &&&Arc<FrontendTable>| b.frontend().id == a.frontend().id;
            let Some(b) = new.iter().find(same) else {
                continue;
            };
            let changes = settings_changes(a.frontend(), b.frontend());
            if !changes.is_empty() {
                self.groups.add_settings(reference(b.frontend()), changes);
            }
        }
    }
}

/// Returns whether two versions of a frontend treat a request that matches the same rule in the same way.
fn has_same_frontend(a: &FrontendTable, b: &FrontendTable) -> bool {
    let (a, b) = (a.frontend(), b.frontend());
    (a.protocol, a.port, a.kind, &a.closed, a.cross_mesh)
        == (b.protocol, b.port, b.kind, &b.closed, b.cross_mesh)
}

fn settings_changes(old: &Frontend, new: &Frontend) -> Vec<Change> {
    let certificates = |frontend: &Frontend| {
        let tls = frontend.tls.as_ref()?;
        let names: Vec<String> = tls.certificates.iter().map(ToString::to_string).collect();
        Some(names.join(", "))
    };
    let clients = |frontend: &Frontend| {
        let clients = frontend.tls.as_ref()?.clients.as_ref()?;
        let authorities = clients.authorities.len();
        Some(format!(
            "{:?}, {authorities} certificates of authorities",
            clients.mode
        ))
    };
    let limit = |frontend: &Frontend| Some(frontend.connection_limit?.to_string());
    let client = |frontend: &Frontend| Some(frontend.client_certificate.as_ref()?.to_string());
    let mut changes = Vec::new();
    let mut add = |field: &str, old: Option<String>, new: Option<String>| {
        if old != new {
            let field = field.to_owned();
            changes.push(Change { field, old, new });
        }
    };
    add("certificates", certificates(old), certificates(new));
    add(
        "validation of client certificates",
        clients(old),
        clients(new),
    );
    add("connection limit", limit(old), limit(new));
    add("client certificate for backends", client(old), client(new));
    changes
}

impl<'t> GroupComparer<'_, '_, 't> {
    /// Examines the representative requests of a region.
    fn examine_region(
        &mut self,
        unused: &UnusedValues,
        region: &Region<'_>,
        others: &[Region<'_>],
    ) {
        let own = unused.common(&[region]);
        if let (true, Some(entry)) = (own.is_empty(), &region.entry) {
            let rule = rule_ref(&LookupResult::from(&**entry));
            if !self.all.not_sampled.contains(&rule) {
                self.all.not_sampled.push(rule);
            }
        }
        for probe in &own {
            self.examine(probe);
        }
        for other in others.iter().filter(|other| region.may_overlap(other)) {
            for probe in unused.common(&[region, other]) {
                self.examine(&probe);
            }
        }
        for probe in &own {
            for near in unused.near(region, probe) {
                self.examine(&near);
            }
        }
    }

    /// Decides a request on both sides.
    fn examine(&mut self, probe: &RepresentativeRequest) {
        if self.examined.contains(probe) {
            return;
        }
        if self.all.requests >= MAX_REQUESTS {
            self.all.complete = false;
            return;
        }
        self.examined.insert(probe.clone());
        for scheme in self.schemes.clone() {
            let query = self.group.query(probe, scheme);
            let decisions = self.decide(&query);
            let is_different = self.report(&query, &decisions);
            if let Some(rules) = differing_filters(&decisions)
                && self.filters.insert(addresses(rules))
            {
                self.compare_filters(probe, scheme, rules, is_different);
            }
        }
    }

    fn decide(&mut self, query: &Query) -> [Decision<'t>; 2] {
        self.all.requests += 1;
        self.all.sides.map(|side| self.group.decide(side, query))
    }

    /// Adds the difference between two decisions to the result, if there is one.
    fn report(&mut self, query: &Query, decisions: &[Decision<'t>; 2]) -> bool {
        let [old, new] = self.all.sides;
        let changes = effect::changes((old, &decisions[0]), (new, &decisions[1]));
        let is_different = !changes.is_empty();
        if is_different {
            self.add(query, decisions, changes);
        }
        is_different
    }

    fn add(&mut self, query: &Query, decisions: &[Decision<'t>; 2], changes: Vec<Change>) {
        self.all.groups.add(DecisionDifference {
            query,
            decisions,
            changes,
            recorded: None,
            is_port: matches!(self.group, FrontendGroup::Port { .. }),
        });
    }

    /// Compares two rules with different filters by requests on which filters depend. If none of these shows a difference, the filters themselves are reported.
    fn compare_filters(
        &mut self,
        probe: &RepresentativeRequest,
        scheme: Scheme,
        rules: [&'t Arc<BoundRule>; 2],
        mut is_different: bool,
    ) {
        for variant in variants::of_filters(probe, rules) {
            let query = self.group.query(&variant, scheme);
            let decisions = self.decide(&query);
            if differing_filters(&decisions).map(addresses) == Some(addresses(rules)) {
                is_different |= self.report(&query, &decisions);
            }
        }
        if !is_different {
            let query = self.group.query(probe, scheme);
            let decisions = self.decide(&query);
            let change = Change {
                field: "settings of filters".to_owned(),
                old: Some(effect::filter_names(rules[0])),
                new: Some(effect::filter_names(rules[1])),
            };
            self.add(&query, &decisions, vec![change]);
        }
    }
}

/// Returns the rules of both sides if their filters differ.
fn differing_filters<'t>(decisions: &[Decision<'t>; 2]) -> Option<[&'t Arc<BoundRule>; 2]> {
    let [old, new] = decisions.each_ref().map(|decision| decision.hit);
    let (old, new) = (old?.rule, new?.rule);
    (!effect::has_same_filters(old, new)).then_some([old, new])
}

fn addresses(rules: [&Arc<BoundRule>; 2]) -> (usize, usize) {
    let [old, new] = rules.map(|rule| Arc::as_ptr(rule).addr());
    (old, new)
}
