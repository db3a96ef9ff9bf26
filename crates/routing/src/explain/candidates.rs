//! The candidates: all rules that were not selected, each with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_binding::bound::{
    BoundMatch, BoundRoute, Dialect, FrontendId, PathPredicate, Scope, StringPredicate,
    policy_names,
};
use pointsman_resources::text::counted;
use pointsman_resources::{Name, ObjectKey};

use super::model::{Candidate, RefusedCandidate, RuleRef};
use crate::entry::{LookupResult, MatchEntry, Mismatch, MismatchRecorder};
use crate::expression::{CompiledMatch, Expression};
use crate::path::has_prefix;
use crate::precedence::{Criterion, HostRank, Rank};
use crate::request::{MatchContext, Request};
use crate::route::CompiledRoute;
use crate::table::FrontendTable;
use crate::tables::Tables;
use crate::weighted_selector::WeightedSelector;

/// The traffic to explain: a request, or a stream with or without SNI.
pub(crate) enum Traffic<'r, R> {
    Request(&'r R),
    Stream(Option<&'r str>),
}

impl<R: Request> Traffic<'_, R> {
    fn host(&self) -> &str {
        match self {
            Traffic::Request(request) => request.authority(),
            Traffic::Stream(sni) => sni.unwrap_or_default(),
        }
    }
}

/// Returns every rule of the routes with the same parent, except the winner, in order of precedence. If there is no winner, the error says why matching rules
/// get no traffic.
pub(crate) fn candidates<R: Request>(
    tables: &Tables,
    chosen: Option<&FrontendTable>,
    parent: &ObjectKey,
    port: u16,
    traffic: &Traffic<'_, R>,
    winner: Result<&LookupResult<'_>, &str>,
    refused: Vec<RefusedCandidate>,
) -> Vec<Candidate> {
    let mut all: Vec<(Rank, Candidate)> = Vec::new();
    let mut seen = BTreeSet::new();
    // A rule may be attached to several frontends. Each is listed once.
    let mut listed: BTreeSet<CandidateKey> = winner
        .iter()
        .map(|winner| candidate_key(&rule_ref(winner)))
        .collect();
    if let Some(table) = chosen {
        for route in table.routes() {
            seen.insert(route.id.route.clone());
            for entry in nearest(route, traffic.host()) {
                if winner.is_ok_and(|winner| same(winner.rank, &entry.rank)) {
                    continue;
                }
                let (lost_on, detail) = reason_against(&entry, traffic, winner);
                let rule = rule_of(&entry);
                listed.insert(candidate_key(&rule));
                all.push((
                    entry.rank.clone(),
                    Candidate {
                        rule,
                        lost_on,
                        detail,
                    },
                ));
            }
        }
    }
    // Routes that lost to another kind are attached here. Their scope was not decisive, even if they are attached to other ports as well.
    let by_kind = refused
        .iter()
        .filter(|refused| refused.lost_on == Criterion::Kind);
    seen.extend(by_kind.map(|refused| refused.route.clone()));
    for table in tables
        .frontends()
        .filter(|table| table.frontend().id.parent() == parent)
    {
        if chosen.is_some_and(|chosen| chosen.frontend().id == table.frontend().id) {
            continue;
        }
        let (lost_on, detail) = other_frontend(table, chosen, port, traffic.host());
        for route in table
            .routes()
            .filter(|route| !seen.contains(&route.id.route))
        {
            for entry in nearest(route, traffic.host()) {
                let (detail, rule) = (detail.clone(), rule_of(&entry));
                if !listed.insert(candidate_key(&rule)) {
                    continue;
                }
                all.push((
                    entry.rank.clone(),
                    Candidate {
                        rule,
                        lost_on,
                        detail,
                    },
                ));
            }
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let mut candidates: Vec<Candidate> = all.into_iter().map(|(_, candidate)| candidate).collect();
    for refused in refused.into_iter().flat_map(refusals) {
        if listed.insert(candidate_key(&refused.rule)) {
            candidates.push(refused);
        }
    }
    candidates
}

/// Identifies a match of a rule.
type CandidateKey = (
    &'static str,
    String,
    String,
    Option<usize>,
    Option<usize>,
    Option<usize>,
);

fn candidate_key(rule: &RuleRef) -> CandidateKey {
    let (namespace, name) = (rule.namespace.clone(), rule.name.clone());
    (rule.kind, namespace, name, rule.to, rule.rule, rule.matched)
}

/// Creates a candidate for each match of each rule of a route that is not attached.
fn refusals(refused: RefusedCandidate) -> Vec<Candidate> {
    let of = |rule: Option<(usize, &Option<String>)>, matched: Option<usize>| Candidate {
        rule: RuleRef {
            kind: refused.route.kind.name(),
            namespace: refused.route.name.namespace.to_string(),
            name: refused.route.name.name.to_string(),
            to: refused.to,
            rule: rule.map(|(index, _)| index),
            rule_name: rule.and_then(|(_, name)| name.clone()),
            matched,
            from: Vec::new(),
        },
        lost_on: refused.lost_on,
        detail: refused.detail.clone(),
    };
    if refused.rules.is_empty() {
        return vec![of(None, None)];
    }
    let rules = refused.rules.iter();
    rules
        .flat_map(|(index, name, matches)| {
            (0..(*matches).max(1)).map(move |matched| ((*index, name), matched))
        })
        .map(|(rule, matched)| of(Some(rule), Some(matched)))
        .collect()
}

/// Returns whether two ranks are of the same match of the same rule.
fn same(a: &Rank, b: &Rank) -> bool {
    (a.rule, a.matched) == (b.rule, b.matched) && a.route == b.route
}

/// Returns one entry for each match of each rule: that of the most specific hostname for the host, or any if no hostname matches.
fn nearest(route: &Arc<BoundRoute>, host: &str) -> Vec<Arc<MatchEntry>> {
    let mut nearest: BTreeMap<(usize, usize), Arc<MatchEntry>> = BTreeMap::new();
    let strength = |entry: &MatchEntry| (!serves(entry, host), entry.rank.host);
    for entry in MatchEntry::all(
        &CompiledRoute::new(route.clone(), None),
        &WeightedSelector::for_rules(route, None),
    ) {
        let key = (entry.rank.rule, entry.rank.matched);
        match nearest.get(&key) {
            Some(other) if strength(other) <= strength(&entry) => {}
            _ => drop(nearest.insert(key, entry)),
        }
    }
    nearest.into_values().collect()
}

fn serves(entry: &MatchEntry, host: &str) -> bool {
    entry
        .hostname
        .as_ref()
        .is_none_or(|hostname| hostname.matches(host))
}

pub(crate) fn rule_of(entry: &MatchEntry) -> RuleRef {
    let hit = LookupResult::from(entry);
    rule_ref(&hit)
}

/// Returns the reference to a rule for output.
pub(crate) fn rule_ref(hit: &LookupResult<'_>) -> RuleRef {
    let (route, index) = hit.route.source(hit.rule);
    let from = &hit.rule.from;
    RuleRef {
        kind: route.kind.name(),
        namespace: route.name.namespace.to_string(),
        name: route.name.name.to_string(),
        to: from.first().and_then(|source| source.to),
        rule: Some(index),
        rule_name: hit.rule.name.as_deref().map(str::to_owned),
        matched: hit.matched().map(|matched| matched.index),
        from: policy_names(from),
    }
}

/// Explains why routes of another frontend of the same parent do not apply.
fn other_frontend(
    table: &FrontendTable,
    chosen: Option<&FrontendTable>,
    port: u16,
    host: &str,
) -> (Criterion, String) {
    let frontend = table.frontend();
    let chosen = chosen.map(|chosen| &chosen.frontend().id);
    match &frontend.id {
        FrontendId::Mesh { .. } if matches!(chosen, Some(FrontendId::Outbound(_))) => (
            Criterion::Scope,
            "Kuma policies apply to these calls and take precedence over it".to_owned(),
        ),
        FrontendId::Listener { listener, .. } if frontend.port == port => {
            let serves = match &frontend.hostname {
                Some(hostname) => format!("`{hostname}`"),
                None => "hosts without a listener of their own".to_owned(),
            };
            (
                Criterion::Host,
                format!("host: listener {listener} serves {serves}, got `{host}`"),
            )
        }
        FrontendId::Listener { listener, .. } => (
            Criterion::Scope,
            format!("attached to listener {listener} on port {}", frontend.port),
        ),
        FrontendId::Mesh { scope, .. } if frontend.port == port => {
            let detail = match scope {
                Scope::Everyone => {
                    "producer route: the consumer routes of the client's namespace replace it"
                        .to_owned()
                }
                scope => format!("consumer route: applies only to {scope}"),
            };
            (Criterion::Scope, detail)
        }
        FrontendId::Outbound(outbound) => {
            let dataplane = &outbound.dataplane;
            (
                Criterion::Scope,
                format!("it applies to calls of {dataplane}"),
            )
        }
        FrontendId::Mesh { .. } => (
            Criterion::Scope,
            format!("attached to port {}", frontend.port),
        ),
    }
}

/// Returns the first condition that the traffic does not satisfy, otherwise the criterion by which the winner takes precedence.
fn reason_against<R: Request>(
    entry: &MatchEntry,
    traffic: &Traffic<'_, R>,
    winner: Result<&LookupResult<'_>, &str>,
) -> (Criterion, String) {
    if !serves(entry, traffic.host()) {
        let names: Vec<String> = entry
            .route
            .hostnames
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let detail = format!(
            "host: expected {}, got `{}`",
            names.join(" or "),
            traffic.host()
        );
        return (Criterion::Host, detail);
    }
    if let Traffic::Request(request) = traffic {
        if let Some(detail) = entry
            .matched()
            .and_then(|matched| path_miss(matched, request.path()))
        {
            return (Criterion::Path, detail);
        }
        let mut first_miss = FirstMismatch {
            request: *request,
            miss: None,
        };
        if !entry.admits(&MatchContext::new(*request), &mut first_miss)
            && let Some(miss) = first_miss.miss
        {
            return miss;
        }
    }
    match winner {
        Ok(winner) => precedence_of(winner, entry),
        Err(obstacle) => (Criterion::Host, format!("it matches, but {obstacle}")),
    }
}

fn path_miss(matched: &CompiledMatch, path: &str) -> Option<String> {
    match &matched.path {
        PathPredicate::Exact(wanted) => {
            (**wanted != *path).then(|| format!("path: expected exactly `{wanted}`, got `{path}`"))
        }
        PathPredicate::Prefix(prefix) => (!has_prefix(path, prefix))
            .then(|| format!("path: expected prefix `{prefix}`, got `{path}`")),
        PathPredicate::Regex(regex) => (!regex.is_match(path)).then(|| {
            format!(
                "path: expected a full match of `{}`, got `{path}`",
                regex.as_str()
            )
        }),
        PathPredicate::Any => (!path.starts_with('/'))
            .then(|| format!("path: expected a path that begins with `/`, got `{path}`")),
    }
}

/// Describes the first condition that is not satisfied.
struct FirstMismatch<'r, R> {
    request: &'r R,
    miss: Option<(Criterion, String)>,
}

impl<R: Request> MismatchRecorder for FirstMismatch<'_, R> {
    fn miss(&mut self, _: &MatchEntry, miss: Mismatch<'_>) {
        let wanted = |predicate: &StringPredicate<Expression>| match predicate {
            StringPredicate::Exact(text) => format!("expected `{text}`"),
            StringPredicate::Regex(regex) => format!("expected a match of `{}`", regex.as_str()),
            StringPredicate::Prefix(start) => {
                format!("expected a value that begins with `{start}`")
            }
            StringPredicate::Present => "expected it to be present".to_owned(),
            StringPredicate::Absent => "expected it to be absent".to_owned(),
        };
        let got = |got: Option<&str>| {
            got.map_or("it is missing".to_owned(), |got| format!("got `{got}`"))
        };
        let text = match miss {
            Mismatch::GrpcPath => {
                let path = self.request.path();
                (
                    Criterion::Path,
                    format!("path: expected /service/method, got `{path}`"),
                )
            }
            Mismatch::GrpcService {
                wanted: service,
                got,
            } => (
                Criterion::Path,
                format!("service: {}, got `{got}`", wanted(service)),
            ),
            Mismatch::GrpcMethod {
                wanted: method,
                got,
            } => (
                Criterion::Path,
                format!("gRPC method: {}, got `{got}`", wanted(method)),
            ),
            Mismatch::Method { wanted, got } => (
                Criterion::Method,
                format!("method: expected `{wanted}`, got `{got}`"),
            ),
            Mismatch::Header { predicate } => {
                let values: Vec<_> = self
                    .request
                    .header(&predicate.name)
                    .map(String::from_utf8_lossy)
                    .collect();
                let values = (!values.is_empty()).then(|| values.join(","));
                let (name, wanted) = (&predicate.name, wanted(&predicate.value));
                (
                    Criterion::Header,
                    format!("header {name}: {wanted}, {}", got(values.as_deref())),
                )
            }
            Mismatch::Query {
                predicate,
                got: value,
            } => {
                let (name, wanted) = (&predicate.name, wanted(&predicate.value));
                (
                    Criterion::Query,
                    format!("query {name}: {wanted}, {}", got(value)),
                )
            }
        };
        self.miss.get_or_insert(text);
    }
}

/// Returns the criterion by which the winner takes precedence over an entry that also matches.
fn precedence_of(winner: &LookupResult<'_>, entry: &MatchEntry) -> (Criterion, String) {
    let (_, criterion) = winner.rank.compare(&entry.rank);
    (criterion, advantage(winner, entry, criterion))
}

/// Describes why a match takes precedence over an entry.
pub(crate) fn advantage(
    hit: &LookupResult<'_>,
    entry: &MatchEntry,
    criterion: Criterion,
) -> String {
    let (winner, matched, loser) = (hit.rank, hit.matched(), &entry.rank);
    let (route, index) = hit.route.source(hit.rule);
    let (own, _) = entry.route.source(&entry.rule);
    let (kind, route) = (route.kind, &route.name);
    match criterion {
        Criterion::Host => match (&entry.hostname, winner.host) {
            (Some(hostname), HostRank::Exact(_)) => {
                format!("host: {route} has the exact hostname, this one has `{hostname}`")
            }
            (Some(hostname), _) => {
                format!("host: {route} has a longer hostname than `{hostname}`")
            }
            (None, _) => format!("host: {route} has a hostname that matches, this one has none"),
        },
        Criterion::Path => path_advantage(winner, route, matched, entry),
        Criterion::Method => format!("method: {route} matches on the method, this one does not"),
        Criterion::Header => {
            format!(
                "header: {route} matches on {}, this one on {}",
                counted(winner.headers, "header"),
                loser.headers
            )
        }
        Criterion::Query => format!(
            "query: {route} matches on {}, this one on {}",
            counted(winner.query, "query parameter"),
            loser.query
        ),
        // Rules for streams have no matches.
        Criterion::Age if matched.is_none() => format!("route {route} is older"),
        Criterion::Name if matched.is_none() => {
            format!("route {route} of the same age comes first by name")
        }
        Criterion::Age => format!("older route {route} has the same match"),
        Criterion::Name => {
            format!("route {route} of the same age has the same match and comes first by name")
        }
        Criterion::Kind if loser.is_tcp => {
            format!(
                "{kind} {route} takes precedence over TCPRoutes, which get connections that no TLSRoute matches"
            )
        }
        Criterion::Kind => format!("{kind} {route} has the same match"),
        _ if (kind, route) != (own.kind, &own.name) => {
            format!("{kind} {route} is the more specific policy, and its match is equally specific")
        }
        // In Kuma, rules of equal specificity are possible. The Gateway API's criteria leave no such case.
        _ if winner.rule != loser.rule && entry.route.dialect == Dialect::Kuma => {
            let to = hit.rule.from.first().and_then(|source| source.to);
            let to = to.map(|to| format!("to[{to}] ")).unwrap_or_default();
            format!(
                "{to}rule {index} of the same policy comes first, and its match is equally specific"
            )
        }
        _ if winner.rule != loser.rule && matched.is_none() => {
            format!("rule {index} of the same route comes first")
        }
        _ if winner.rule != loser.rule => {
            format!("rule {index} of the same route has the same match and comes first")
        }
        _ => format!(
            "match {} of the same rule also matches and comes first",
            winner.matched
        ),
    }
}

/// Returns the kind of a path match and its text.
fn described<P: AsRef<str>>(matched: Option<&BoundMatch<P>>) -> (&'static str, &str) {
    match matched.map(|matched| &matched.path) {
        Some(PathPredicate::Exact(path)) => ("exact path", path),
        Some(PathPredicate::Prefix(prefix)) => ("prefix", prefix),
        Some(PathPredicate::Regex(regex)) => ("expression", regex.as_ref()),
        Some(PathPredicate::Any) => ("any path", ""),
        None => ("prefix", ""),
    }
}

fn path_advantage(
    winner: &Rank,
    route: &Name,
    matched: Option<&BoundMatch>,
    entry: &MatchEntry,
) -> String {
    if winner.path == entry.rank.path {
        return format!("path: {route} is more specific about the gRPC service or method");
    }
    let ((kind, strong), (other, weak)) = (described(matched), described(entry.matched()));
    if kind == other && strong.len() > weak.len() {
        return format!("path: `{strong}` is a longer {kind} than `{weak}`");
    }
    if other == "any path" {
        return format!("path: a match without a path comes after the {kind} `{strong}`");
    }
    format!("path: the {kind} `{strong}` comes before the {other} `{weak}`")
}
