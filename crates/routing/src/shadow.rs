//! Detection of shadowed rules: rules that get none or only some of the requests that they match, because others take precedence.
//!
//! Only certain cases are reported. Two entries are compared if one can receive the other's requests: entries at the same path; an entry and the regular
//! expressions of the same host; an entry and those at or above its path under a hostname that is tried first for every request. Their ranks decide which one
//! wins. The cost is proportional to the tree and not quadratic in the number of routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_binding::bound::{
    BoundRoute, BoundRule, Hostname, PathPredicate, StringPredicate, ValuePredicate,
};
use pointsman_resources::ObjectKey;

use crate::entry::{LookupResult, MatchEntry};
use crate::explain::advantage;
use crate::expression::{CompiledMatch, Expression, satisfies};
use crate::host::{HostTable, PathNode};
use crate::path;
use crate::precedence::Criterion;
use crate::ranked::Ranked;
use crate::table::FrontendTable;

/// A shadowed match: some or all of its requests go to another rule.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// The route of the shadowed match.
    pub route: Arc<BoundRoute>,
    /// The rule of the shadowed match.
    pub rule: Arc<BoundRule>,
    /// `index` of the shadowed match in its rule.
    pub match_index: usize,
    /// The route that gets the requests.
    pub by_route: Arc<BoundRoute>,
    /// The rule that gets the requests.
    pub by: Arc<BoundRule>,
    /// `index` of the match in that rule.
    pub by_match: usize,
    /// The hostname under which the match is shadowed.
    pub hostname: Option<Hostname>,
    /// Extent of the overlap.
    pub extent: Extent,
    /// The criterion that decides.
    pub criterion: Criterion,
    /// Human-readable explanation.
    pub detail: String,
}

/// Share of a match's requests that go to another rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// All of them.
    Fully,
    /// Some of them. Reported only if age, name or order decides, or if an expression takes precedence over a prefix.
    Partly,
}

/// Number of entries of highest precedence in a slot that each entry is compared with. It bounds the cost for paths with thousands of header matches.
const MAX_COMPARED: usize = 64;

/// Target of `OPTIONS *`, which no prefix matches.
const ASTERISK: &str = "*";

/// Returns the shadowed matches of a frontend's rules, ordered by route, rule and match; each with the winner of highest precedence.
///
/// A match of a route with several hostnames is reported if it is shadowed under one of them, and as fully shadowed only if it is fully shadowed under all of
/// them.
pub fn shadowed(table: &FrontendTable) -> Vec<Shadow> {
    let mut found = Vec::new();
    for host in table.hosts.values() {
        let expressions: Vec<&MatchEntry> = host
            .expressions
            .iter()
            .take(MAX_COMPARED)
            .map(|entry| &**entry)
            .collect();
        within(&host.expressions, &mut found);
        at_node(&host.root, &expressions, &mut found);
        without_path(host, &expressions, &mut found);
    }
    across_hostnames(table, &mut found);
    not_under_all(table, &mut found);
    let key = |shadow: &Shadow| {
        (
            shadow.route.id.route.clone(),
            shadow.rule.index,
            shadow.match_index,
            shadow.extent,
        )
    };
    found.sort_by_cached_key(key);
    found.dedup_by_key(|shadow| {
        (
            shadow.route.id.route.clone(),
            shadow.rule.index,
            shadow.match_index,
        )
    });
    found
}

/// Downgrades matches to partly shadowed if they are not fully shadowed under each hostname that the frontend serves.
fn not_under_all(table: &FrontendTable, found: &mut [Shadow]) {
    let served = &table.frontend().hostname;
    let mut fully: BTreeMap<(ObjectKey, usize, usize), BTreeSet<Option<Hostname>>> =
        BTreeMap::new();
    let of = |shadow: &Shadow| {
        (
            shadow.route.id.route.clone(),
            shadow.rule.index,
            shadow.match_index,
        )
    };
    for shadow in found.iter().filter(|s| s.extent == Extent::Fully) {
        let hostnames = fully.entry(of(shadow)).or_default();
        hostnames.insert(shadow.hostname.clone());
    }
    for shadow in found.iter_mut().filter(|s| s.extent == Extent::Fully) {
        let meets = |name: &&Hostname| served.as_ref().is_none_or(|own| own.intersects(name));
        let hostnames: BTreeSet<&Hostname> = shadow.route.hostnames.iter().filter(meets).collect();
        let lost = fully.get(&of(shadow)).map_or(0, BTreeSet::len);
        if lost < hostnames.len() {
            shadow.extent = Extent::Partly;
        }
    }
}

/// Compares entries of different hostnames. All requests of a listener are for its hostname. Route hostnames that include all of it are tried in turn for
/// each request, the most specific first, so a less specific one never gets the requests that an earlier one matches.
fn across_hostnames(table: &FrontendTable, found: &mut Vec<Shadow>) {
    let Some(hostname) = &table.frontend().hostname else {
        return;
    };
    let mut earlier: Vec<&HostTable> = Vec::new();
    table.hosts.find(hostname.as_str(), |host| {
        if !earlier.is_empty() {
            let mut judge = |entry: &MatchEntry| {
                let winner = earlier
                    .iter()
                    .find_map(|earlier| covering_entry(earlier, entry));
                found.extend(winner.map(|winner| shadow(winner, entry, Extent::Fully)));
            };
            let others = host.expressions.iter().chain(host.pathless.iter());
            others.for_each(|entry| judge(entry));
            each_entry(&host.root, &mut judge);
        }
        earlier.push(host);
        None::<()>
    });
}

fn each_entry(node: &PathNode, visit: &mut impl FnMut(&MatchEntry)) {
    let entries = node.exact.iter().chain(node.prefix.iter());
    entries.for_each(|entry| visit(entry));
    for child in node.children.values() {
        each_entry(child, visit);
    }
}

/// Returns the entry of highest precedence under another hostname that matches every request that `entry` matches.
fn covering_entry<'h>(host: &'h HostTable, entry: &MatchEntry) -> Option<&'h MatchEntry> {
    let path = entry.matched().map(|matched| &matched.path);
    let (segments, exact): (Vec<&str>, bool) = match path {
        Some(PathPredicate::Exact(path)) => (path::segments(path)?.collect(), true),
        Some(PathPredicate::Prefix(prefix)) => (path::prefix_segments(prefix).collect(), false),
        Some(PathPredicate::Regex(_) | PathPredicate::Any) | None => (Vec::new(), false),
    };
    // Only expressions match `*`.
    let matches_asterisk =
        matches!(path, Some(PathPredicate::Regex(own)) if own.is_match(ASTERISK));
    let mut nodes = vec![&host.root];
    for segment in &segments {
        match nodes.last().and_then(|node| node.children.get(segment)) {
            Some(child) => nodes.push(&**child),
            None => break,
        }
    }
    let own = nodes
        .last()
        .filter(|_| exact && nodes.len() > segments.len());
    let exacts = own.into_iter().flat_map(|node| node.exact.iter());
    let expressions = host
        .expressions
        .iter()
        .filter(|other| path_overlap(other, entry) == Some(Extent::Fully));
    let prefixes = nodes
        .iter()
        .flat_map(|node| node.prefix.iter().take(MAX_COMPARED));
    exacts
        .take(MAX_COMPARED)
        .chain(expressions.take(MAX_COMPARED))
        .chain(prefixes)
        .chain(host.pathless.iter().take(MAX_COMPARED))
        .map(|other| &**other)
        .filter(|other| covers(other, entry))
        .filter(|other| !matches_asterisk || path_overlap(other, entry) == Some(Extent::Fully))
        .min_by(|a, b| a.rank.cmp(&b.rank))
}

/// Returns the share of paths of `entry` that `by` certainly matches too; `None` if nothing is certain. Does not consider precedence.
fn path_overlap(by: &MatchEntry, entry: &MatchEntry) -> Option<Extent> {
    let fully = |all: bool| all.then_some(Extent::Fully);
    match (&by.matched()?.path, &entry.matched()?.path) {
        (PathPredicate::Exact(by), PathPredicate::Exact(path)) => fully(by == path),
        (PathPredicate::Prefix(by), PathPredicate::Exact(path) | PathPredicate::Prefix(path)) => {
            fully(path::has_prefix(path, by))
        }
        (PathPredicate::Regex(by), PathPredicate::Exact(path)) => fully(by.is_match(path)),
        (PathPredicate::Regex(by), PathPredicate::Prefix(prefix)) => by_expression(by, prefix),
        (PathPredicate::Regex(by), PathPredicate::Regex(own)) => fully(by == own),
        // An expression without special characters matches a single path.
        (PathPredicate::Exact(by), PathPredicate::Regex(own)) => {
            fully(own.as_str() == &**by && is_plain(by))
        }
        (PathPredicate::Prefix(by), PathPredicate::Regex(own)) if **by == *"/" => {
            by_every_path(own)
        }
        (PathPredicate::Prefix(_), PathPredicate::Regex(_)) => None,
        (PathPredicate::Any, PathPredicate::Regex(own)) => by_every_path(own),
        (PathPredicate::Any, _) => fully(true),
        (PathPredicate::Prefix(by), PathPredicate::Any) => fully(**by == *"/"),
        (PathPredicate::Regex(by), PathPredicate::Any) => by_expression(by, "/"),
        (PathPredicate::Exact(_), PathPredicate::Prefix(_) | PathPredicate::Any) => None,
    }
}

/// Returns the share of an expression that the prefix `/` matches: all, unless the expression also matches the target of `OPTIONS *`, which has no path.
fn by_every_path(expression: &Expression) -> Option<Extent> {
    match expression.is_match(ASTERISK) {
        true => by_expression(expression, "/").map(|_| Extent::Partly),
        false => Some(Extent::Fully),
    }
}

/// Returns the share of a prefix that an expression matches: all if it matches everything below, some if it matches the prefix itself or a path directly
/// below.
fn by_expression(expression: &Expression, prefix: &str) -> Option<Extent> {
    if matches_all_below(expression, prefix) {
        return Some(Extent::Fully);
    }
    let bare = prefix.strip_suffix('/').unwrap_or(prefix);
    let mut some = ["", "/", "/x"].iter();
    some.any(|rest| expression.is_match(&format!("{bare}{rest}")))
        .then_some(Extent::Partly)
}

/// Returns whether an expression certainly matches a path and everything below: it is literal text that the path begins with, followed by `.*`.
fn matches_all_below(regex: &Expression, prefix: &str) -> bool {
    let text = regex.as_str();
    let text = text.strip_prefix('^').unwrap_or(text);
    let text = text.strip_suffix('$').unwrap_or(text);
    text.strip_suffix(".*")
        .is_some_and(|start| is_plain(start) && prefix.starts_with(start))
}

/// Returns whether an expression matches only its own text.
fn is_plain(expression: &str) -> bool {
    expression
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte))
}

fn at_node(node: &PathNode, expressions: &[&MatchEntry], found: &mut Vec<Shadow>) {
    within(&node.exact, found);
    within(&node.prefix, found);
    for entry in node.exact.iter().chain(node.prefix.iter()) {
        compare_with(entry, expressions, found);
    }
    // The depth of the recursion is bounded by the longest path of a rule.
    for child in node.children.values() {
        at_node(child, expressions, found);
    }
}

/// Compares matches without a path with each other, with the prefix `/`, and with the expressions.
fn without_path(host: &HostTable, expressions: &[&MatchEntry], found: &mut Vec<Shadow>) {
    within(&host.pathless, found);
    let roots = host.root.prefix.iter().take(MAX_COMPARED);
    let roots: Vec<&MatchEntry> = roots.map(|root| &**root).collect();
    for entry in host.pathless.iter() {
        if !compare_with(entry, &roots, found) {
            compare_with(entry, expressions, found);
        }
    }
}

/// Compares the entries of a slot, which are in order of precedence.
fn within<C: crate::ranked::CompileChunk>(entries: &Ranked<C>, found: &mut Vec<Shadow>) {
    let mut higher_ranked: Vec<&MatchEntry> = Vec::new();
    for entry in entries.iter() {
        let partly = |other: &&&MatchEntry| {
            let (_, criterion) = other.rank.compare(&entry.rank);
            let tie = matches!(
                criterion,
                Criterion::Age | Criterion::Name | Criterion::Kind | Criterion::Order
            );
            // Matches of the same rule do not shadow each other.
            tie && !Arc::ptr_eq(&other.rule, &entry.rule) && overlaps(other, entry)
        };
        if let Some(winner) = higher_ranked
            .iter()
            .find(|other| same_path(other, entry) && covers(other, entry))
        {
            if !Arc::ptr_eq(&winner.rule, &entry.rule) {
                found.push(shadow(winner, entry, Extent::Fully));
            }
        } else if let Some(winner) = higher_ranked.iter().find(partly) {
            found.push(shadow(winner, entry, Extent::Partly));
        }
        if higher_ranked.len() < MAX_COMPARED {
            higher_ranked.push(entry);
        }
    }
}

/// Compares an entry with others of the same host, which are in order of precedence. Returns whether it is shadowed.
fn compare_with(entry: &MatchEntry, others: &[&MatchEntry], found: &mut Vec<Shadow>) -> bool {
    let mut is_shadowed = false;
    for other in others {
        let is_weaker = entry.rank > other.rank;
        let (winner, loser) = match is_weaker {
            true => (*other, entry),
            false => (entry, *other),
        };
        // Only the winner of highest precedence is reported.
        if is_weaker && is_shadowed
            || Arc::ptr_eq(&winner.rule, &loser.rule)
            || !covers(winner, loser)
        {
            continue;
        }
        if let Some(extent) = path_overlap(winner, loser) {
            found.push(shadow(winner, loser, extent));
            is_shadowed |= is_weaker;
        }
    }
    is_shadowed
}

fn shadow(winner: &MatchEntry, loser: &MatchEntry, extent: Extent) -> Shadow {
    let (_, criterion) = winner.rank.compare(&loser.rank);
    Shadow {
        route: loser.route.clone(),
        rule: loser.rule.clone(),
        match_index: loser.rank.matched,
        by_route: winner.route.clone(),
        by: winner.rule.clone(),
        by_match: winner.rank.matched,
        hostname: loser.hostname.clone(),
        extent,
        criterion,
        detail: advantage(&LookupResult::from(winner), loser, criterion),
    }
}

/// Returns whether two entries of a slot have the same path. Different expressions share a slot.
fn same_path(a: &MatchEntry, b: &MatchEntry) -> bool {
    match (a.matched().map(|a| &a.path), b.matched().map(|b| &b.path)) {
        (Some(PathPredicate::Regex(a)), Some(PathPredicate::Regex(b))) => a.as_str() == b.as_str(),
        _ => true,
    }
}

/// Returns whether every request that satisfies the conditions of `narrow` besides the path also satisfies those of `wide`.
fn covers(wide: &MatchEntry, narrow: &MatchEntry) -> bool {
    let (Some(wide), Some(narrow)) = (wide.matched(), narrow.matched()) else {
        return wide.matched().is_none();
    };
    let grpc = match (&wide.grpc, &narrow.grpc) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => {
            implied(wide.service.as_ref(), narrow.service.as_ref())
                && implied(wide.method.as_ref(), narrow.method.as_ref())
        }
    };
    grpc && (wide.method.is_none() || wide.method == narrow.method)
        && all_implied(&wide.headers, &narrow.headers)
        && all_implied(&wide.query, &narrow.query)
}

/// Returns whether the predicates of `narrow` imply those of `wide`.
fn all_implied(wide: &[ValuePredicate<Expression>], narrow: &[ValuePredicate<Expression>]) -> bool {
    wide.iter().all(|wide| {
        narrow.iter().any(|narrow| {
            wide.name == narrow.name && implied(Some(&wide.value), Some(&narrow.value))
        })
    })
}

fn implied(
    wide: Option<&StringPredicate<Expression>>,
    narrow: Option<&StringPredicate<Expression>>,
) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(StringPredicate::Exact(value))) => satisfies(wide, value),
        (Some(wide), Some(StringPredicate::Prefix(start))) => match wide {
            StringPredicate::Prefix(wide) => start.starts_with(&**wide),
            wide => *wide == StringPredicate::Present,
        },
        (Some(wide), Some(narrow)) => {
            wide == narrow
                || *wide == StringPredicate::Present && *narrow != StringPredicate::Absent
        }
    }
}

/// Returns whether some request certainly satisfies both. Different expressions may exclude each other and count as disjoint, as do different values of a query
/// parameter or header. (A header could have both values on separate lines, but that is not the intent of either rule.)
fn overlaps(a: &MatchEntry, b: &MatchEntry) -> bool {
    let (Some(a), Some(b)) = (a.matched(), b.matched()) else {
        return true;
    };
    let paths = match (&a.path, &b.path) {
        (PathPredicate::Regex(a), PathPredicate::Regex(b)) => a.as_str() == b.as_str(),
        _ => true,
    };
    let methods = a.method.is_none() || b.method.is_none() || a.method == b.method;
    let values = |a: &[ValuePredicate<Expression>], b: &[ValuePredicate<Expression>]| {
        a.iter().all(|a| {
            b.iter()
                .filter(|b| a.name == b.name)
                .all(|b| compatible(&a.value, &b.value))
        })
    };
    paths
        && methods
        && grpc_compatible(a, b)
        && values(&a.headers, &b.headers)
        && values(&a.query, &b.query)
}

fn grpc_compatible(a: &CompiledMatch, b: &CompiledMatch) -> bool {
    let (Some(a), Some(b)) = (&a.grpc, &b.grpc) else {
        return true;
    };
    let both = |a: &Option<StringPredicate<Expression>>,
                b: &Option<StringPredicate<Expression>>| match (a, b) {
        (Some(a), Some(b)) => compatible(a, b),
        _ => true,
    };
    both(&a.service, &b.service) && both(&a.method, &b.method)
}

fn compatible(a: &StringPredicate<Expression>, b: &StringPredicate<Expression>) -> bool {
    match (a, b) {
        (StringPredicate::Exact(value), other) | (other, StringPredicate::Exact(value)) => {
            satisfies(other, value)
        }
        (StringPredicate::Prefix(a), StringPredicate::Prefix(b)) => {
            a.starts_with(&**b) || b.starts_with(&**a)
        }
        (StringPredicate::Absent, other) | (other, StringPredicate::Absent) => {
            *other == StringPredicate::Absent
        }
        (StringPredicate::Present, _) | (_, StringPredicate::Present) => true,
        (a, b) => a == b,
    }
}
