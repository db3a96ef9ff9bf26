//! Rules that never get a request, or fewer than they ask for, because others are stronger.
//!
//! Only what is certain is told. Two entries are compared where one can take the other's requests: at the same path; with the regular
//! expressions of the same host; at or above it under a hostname that is tried first for every request. Which of the two takes
//! them is what their ranks say. So the cost follows the tree and not the square of the routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_binding::bound::{
    BoundRoute, BoundRule, Hostname, PathPredicate, StringPredicate, ValuePredicate,
};
use pointsman_resources::ObjectKey;

use crate::entry::{Entry, Hit};
use crate::explain::advantage;
use crate::expression::{CompiledMatch, Expression, satisfies};
use crate::host::{HostTable, Node};
use crate::path;
use crate::precedence::Criterion;
use crate::ranked::Ranked;
use crate::table::FrontendTable;

/// A match of a rule that loses requests to another.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// The route that loses.
    pub route: Arc<BoundRoute>,
    /// The rule that loses.
    pub rule: Arc<BoundRule>,
    /// Which of its matches, as its `index`.
    pub match_index: usize,
    /// The route that wins.
    pub by_route: Arc<BoundRoute>,
    /// The rule that wins.
    pub by: Arc<BoundRule>,
    /// Which of its matches, as its `index`.
    pub by_match: usize,
    /// The hostname that it loses under.
    pub hostname: Option<Hostname>,
    /// How much is lost.
    pub extent: Extent,
    /// The criterion that decides.
    pub criterion: Criterion,
    /// For people.
    pub detail: String,
}

/// How much of a match's requests another takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// All: it never gets one.
    Fully,
    /// Some, and only age, name or order decides; or an expression before a prefix.
    Partly,
}

/// How many of the strongest entries at one place each entry is held against. A path with thousands of header matches is legal, and
/// comparing each with each is not worth its time.
const NEIGHBOURS: usize = 64;

/// The matches of a frontend's rules that lose requests, ordered by route, rule and match; for each the strongest that takes them.
///
/// A match of a route with several hostnames is told if it loses under one of them; it loses fully if it does under each.
pub fn shadowed(table: &FrontendTable) -> Vec<Shadow> {
    let mut found = Vec::new();
    for host in table.hosts.values() {
        let expressions: Vec<&Entry> = host
            .expressions
            .iter()
            .take(NEIGHBOURS)
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

/// What is lost fully, but not under each hostname that this frontend has requests for, is lost partly.
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

/// All requests of a listener are for its hostname. So hostnames of routes that take in all of it are tried one after the other for
/// each request, the most specific first, and what one takes the next never gets.
fn across_hostnames(table: &FrontendTable, found: &mut Vec<Shadow>) {
    let Some(hostname) = &table.frontend().hostname else {
        return;
    };
    let mut earlier: Vec<&HostTable> = Vec::new();
    table.hosts.find(hostname.as_str(), |host| {
        if !earlier.is_empty() {
            let mut judge = |entry: &Entry| {
                let winner = earlier.iter().find_map(|earlier| taker(earlier, entry));
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

fn each_entry(node: &Node, visit: &mut impl FnMut(&Entry)) {
    let entries = node.exact.iter().chain(node.prefix.iter());
    entries.for_each(|entry| visit(entry));
    for child in node.children.values() {
        each_entry(child, visit);
    }
}

/// The strongest entry under another hostname that takes every request that an entry asks for, if they come there.
fn taker<'h>(host: &'h HostTable, entry: &Entry) -> Option<&'h Entry> {
    let path = entry.matched().map(|matched| &matched.path);
    let (segments, exact): (Vec<&str>, bool) = match path {
        Some(PathPredicate::Exact(path)) => (path::segments(path)?.collect(), true),
        Some(PathPredicate::Prefix(prefix)) => (path::prefix_segments(prefix).collect(), false),
        Some(PathPredicate::Regex(_) | PathPredicate::Any) | None => (Vec::new(), false),
    };
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
        .filter(|other| taken(other, entry) == Some(Extent::Fully));
    let prefixes = nodes
        .iter()
        .flat_map(|node| node.prefix.iter().take(NEIGHBOURS));
    exacts
        .take(NEIGHBOURS)
        .chain(expressions.take(NEIGHBOURS))
        .chain(prefixes)
        .chain(host.pathless.iter().take(NEIGHBOURS))
        .map(|other| &**other)
        .filter(|other| covers(other, entry))
        .min_by(|a, b| a.rank.cmp(&b.rank))
}

/// How much of what one entry's path matches another's certainly matches too; none where nothing is certain. Neither has to be the
/// stronger one.
fn taken(by: &Entry, entry: &Entry) -> Option<Extent> {
    let fully = |all: bool| all.then_some(Extent::Fully);
    match (&by.matched()?.path, &entry.matched()?.path) {
        (PathPredicate::Exact(by), PathPredicate::Exact(path)) => fully(by == path),
        (PathPredicate::Prefix(by), PathPredicate::Exact(path) | PathPredicate::Prefix(path)) => {
            fully(path::has_prefix(path, by))
        }
        (PathPredicate::Regex(by), PathPredicate::Exact(path)) => fully(by.is_match(path)),
        (PathPredicate::Regex(by), PathPredicate::Prefix(prefix)) => by_expression(by, prefix),
        (PathPredicate::Regex(by), PathPredicate::Regex(own)) => fully(by == own),
        // Written without anything special, an expression is one path.
        (PathPredicate::Exact(by), PathPredicate::Regex(own)) => {
            fully(own.as_str() == &**by && is_plain(by))
        }
        (PathPredicate::Prefix(by), PathPredicate::Regex(_)) => fully(**by == *"/"),
        (PathPredicate::Any, _) => fully(true),
        (PathPredicate::Prefix(by), PathPredicate::Any) => fully(**by == *"/"),
        (PathPredicate::Regex(by), PathPredicate::Any) => by_expression(by, "/"),
        (PathPredicate::Exact(_), PathPredicate::Prefix(_) | PathPredicate::Any) => None,
    }
}

/// How much of a prefix an expression takes: all if it matches all below it, some if it matches what is at the prefix itself or right
/// below it.
fn by_expression(expression: &Expression, prefix: &str) -> Option<Extent> {
    if takes_all_below(expression, prefix) {
        return Some(Extent::Fully);
    }
    let bare = prefix.strip_suffix('/').unwrap_or(prefix);
    let mut some = ["", "/", "/x"].iter();
    some.any(|rest| expression.is_match(&format!("{bare}{rest}")))
        .then_some(Extent::Partly)
}

/// Whether an expression certainly matches a path and all below it: it is plain text that the path begins with, then `.*`.
fn takes_all_below(regex: &Expression, prefix: &str) -> bool {
    let text = regex.as_str();
    let text = text.strip_prefix('^').unwrap_or(text);
    let text = text.strip_suffix('$').unwrap_or(text);
    text.strip_suffix(".*")
        .is_some_and(|start| is_plain(start) && prefix.starts_with(start))
}

/// Whether an expression matches nothing but its own text.
fn is_plain(expression: &str) -> bool {
    expression
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte))
}

fn at_node(node: &Node, expressions: &[&Entry], found: &mut Vec<Shadow>) {
    within(&node.exact, found);
    within(&node.prefix, found);
    for entry in node.exact.iter().chain(node.prefix.iter()) {
        beside_expressions(entry, expressions, found);
    }
    // Recursion is as deep as the longest path of a rule.
    for child in node.children.values() {
        at_node(child, expressions, found);
    }
}

/// Matches without a path: among each other, and after the prefix `/` and the expressions, which are all stronger.
fn without_path(host: &HostTable, expressions: &[&Entry], found: &mut Vec<Shadow>) {
    within(&host.pathless, found);
    for entry in host.pathless.iter() {
        let mut roots = host.root.prefix.iter().take(NEIGHBOURS);
        let winner =
            roots.find(|root| !Arc::ptr_eq(&root.rule, &entry.rule) && covers(root, entry));
        match winner {
            Some(winner) => found.push(shadow(winner, entry, Extent::Fully)),
            None => beside_expressions(entry, expressions, found),
        }
    }
}

/// Entries at one place: the stronger come first.
fn within<C: crate::ranked::Compiled>(entries: &Ranked<C>, found: &mut Vec<Shadow>) {
    let mut stronger: Vec<&Entry> = Vec::new();
    for entry in entries.iter() {
        let partly = |other: &&&Entry| {
            let (_, criterion) = other.rank.compare(&entry.rank);
            let tie = matches!(
                criterion,
                Criterion::Age | Criterion::Name | Criterion::Kind | Criterion::Order
            );
            // Matches of one rule go to the same place: nobody loses.
            tie && !Arc::ptr_eq(&other.rule, &entry.rule) && overlaps(other, entry)
        };
        if let Some(winner) = stronger
            .iter()
            .find(|other| same_path(other, entry) && covers(other, entry))
        {
            if !Arc::ptr_eq(&winner.rule, &entry.rule) {
                found.push(shadow(winner, entry, Extent::Fully));
            }
        } else if let Some(winner) = stronger.iter().find(partly) {
            found.push(shadow(winner, entry, Extent::Partly));
        }
        if stronger.len() < NEIGHBOURS {
            stronger.push(entry);
        }
    }
}

/// An entry of the tree and the expressions of the same host: the stronger of two takes what both match.
fn beside_expressions(entry: &Entry, expressions: &[&Entry], found: &mut Vec<Shadow>) {
    let mut lost = false;
    for expression in expressions {
        let is_weaker = entry.rank > expression.rank;
        let (winner, loser) = match is_weaker {
            true => (*expression, entry),
            false => (entry, *expression),
        };
        // The strongest expression that takes something is told, and no other.
        if is_weaker && lost || Arc::ptr_eq(&winner.rule, &loser.rule) || !covers(winner, loser) {
            continue;
        }
        if let Some(extent) = taken(winner, loser) {
            found.push(shadow(winner, loser, extent));
            lost |= is_weaker;
        }
    }
}

fn shadow(winner: &Entry, loser: &Entry, extent: Extent) -> Shadow {
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
        detail: advantage(&Hit::from(winner), loser, criterion),
    }
}

/// Whether two entries at one place have the same path; expressions stand together and differ.
fn same_path(a: &Entry, b: &Entry) -> bool {
    match (a.matched().map(|a| &a.path), b.matched().map(|b| &b.path)) {
        (Some(PathPredicate::Regex(a)), Some(PathPredicate::Regex(b))) => a.as_str() == b.as_str(),
        _ => true,
    }
}

/// Whether every request that satisfies `narrow` beyond its path satisfies `wide` too.
fn covers(wide: &Entry, narrow: &Entry) -> bool {
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

/// Whether each predicate of `wide` holds where those of `narrow` hold.
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

/// Whether some request certainly satisfies both. Two expressions might exclude each other, so they don't count, nor do two values of one
/// query parameter; two values of one header might come on two lines, which nobody means.
fn overlaps(a: &Entry, b: &Entry) -> bool {
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
