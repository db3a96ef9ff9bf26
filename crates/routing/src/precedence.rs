//! Precedence between matches: the specification's order, as [`Ord`] on a small summary.
//!
//! A [`Rank`] summarizes how specific a match is, and breaks ties. Lower ranks take precedence. Ranks are meaningful only between matches that a request
//! satisfies. A lookup returns the entry with the lowest rank, and explanations and shadowed rules compare ranks. To change the precedence of regular expressions,
//! move a variant of [`PathRank`]. Only the order of hostnames is stated twice, here and by the walk over them in `hosts.rs`; a property test compares both.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use pointsman_binding::bound::{
    BoundMatch, BoundRoute, BoundRule, Dialect, Hostname, PathPredicate, StringPredicate,
};
use pointsman_resources::{Age, Kind, ObjectKey};
use serde::Serialize;

/// The criterion that decides between two candidates, or excludes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Criterion {
    /// The hostname.
    Host,
    /// The path; for gRPC also the service and method.
    Path,
    /// The HTTP method.
    Method,
    /// A header.
    Header,
    /// A query parameter.
    Query,
    /// The route's age.
    Age,
    /// The route's namespace and name.
    Name,
    /// The order of rules and matches in the route.
    Order,
    /// Another listener, or other clients.
    Scope,
    /// The route's kind.
    Kind,
    /// The route was not allowed to attach.
    Refused,
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Criterion::Host => "host",
            Criterion::Path => "path",
            Criterion::Method => "method",
            Criterion::Header => "header",
            Criterion::Query => "query",
            Criterion::Age => "age",
            Criterion::Name => "name",
            Criterion::Order => "order",
            Criterion::Scope => "scope",
            Criterion::Kind => "kind",
            Criterion::Refused => "refused",
        })
    }
}

/// Specificity of a hostname.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostRank {
    /// An exact name with this number of characters.
    Exact(Reverse<usize>),
    /// A wildcard with this number of characters.
    Wildcard(Reverse<usize>),
    /// The route has no hostname.
    Any,
}

impl HostRank {
    /// Returns the rank of a hostname.
    pub fn of(hostname: Option<&Hostname>) -> Self {
        match hostname {
            None => HostRank::Any,
            Some(name) if name.suffix().is_some() => {
                HostRank::Wildcard(Reverse(name.as_str().len()))
            }
            Some(name) => HostRank::Exact(Reverse(name.as_str().len())),
        }
    }
}

/// Specificity of a path match. The order of the variants is the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathRank {
    /// An exact path.
    Exact,
    /// A regular expression.
    Regex,
    /// A prefix with this number of characters.
    Prefix(Reverse<usize>),
    /// A regular expression of Kuma, with this number of characters.
    LateRegex(Reverse<usize>),
    /// A match of Kuma without a path.
    Any,
}

impl PathRank {
    /// Returns the rank of a prefix. A trailing slash is ignored.
    pub fn prefix(prefix: &str) -> Self {
        Self::prefix_of_length(prefix.strip_suffix('/').unwrap_or(prefix).len())
    }

    /// Returns the rank of a prefix with this length, without trailing slash.
    pub(crate) fn prefix_of_length(length: usize) -> Self {
        PathRank::Prefix(Reverse(length))
    }
}

/// Specificity of a string predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PredicateRank {
    /// One value.
    Exact,
    /// A regular expression.
    Regex,
    /// No predicate.
    Any,
}

impl PredicateRank {
    fn of(predicate: Option<&StringPredicate>) -> Self {
        match predicate {
            Some(StringPredicate::Exact(_)) => PredicateRank::Exact,
            Some(StringPredicate::Regex(_) | StringPredicate::Prefix(_)) => PredicateRank::Regex,
            // Not used for gRPC services and methods.
            Some(StringPredicate::Present | StringPredicate::Absent) | None => PredicateRank::Any,
        }
    }
}

/// Precedence of a match among those that a request satisfies. Lower ranks take precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// "the most characters in a matching non-wildcard hostname", then "the most characters in a matching hostname": of the route's own hostname, not of its
    /// intersection with the listener's.
    pub host: HostRank,
    /// "`Exact` path match", then regular expressions (whose precedence is implementation-specific), then "`Prefix` path match with largest number of
    /// characters". In Kuma expressions come after prefixes, the longest first, and matches without a path are last: "path present before absent".
    pub path: PathRank,
    /// GRPCRoute: "characters in a matching service".
    pub grpc_service: PredicateRank,
    /// GRPCRoute: "characters in a matching method".
    pub grpc_method: PredicateRank,
    /// "method match".
    pub method: bool,
    /// "largest number of header matches".
    pub headers: usize,
    /// "largest number of query param matches".
    pub query: usize,
    /// The route is a TCPRoute, which comes after TLSRoutes even if neither has a hostname.
    pub is_tcp: bool,
    /// "the oldest Route based on creation timestamp".
    pub age: Age,
    /// "the Route appearing first in alphabetical order by {namespace}/{name}". For routes of different kinds with the same name, the kind decides.
    pub route: ObjectKey,
    /// "the first matching rule (in list order)".
    pub rule: usize,
    /// Index of the match. All matches of a rule have the same effect; the first one is reported.
    pub matched: usize,
}

impl Rank {
    /// Returns the rank of a match of a rule under one of the route's hostnames. Streams have no match.
    pub fn of(
        route: &BoundRoute,
        hostname: Option<&Hostname>,
        rule: &BoundRule,
        matched: Option<&BoundMatch>,
    ) -> Self {
        let grpc = matched.and_then(|matched| matched.grpc.as_ref());
        Rank {
            host: HostRank::of(hostname),
            path: match matched.map(|matched| &matched.path) {
                Some(PathPredicate::Exact(_)) => PathRank::Exact,
                Some(PathPredicate::Regex(regex)) => match route.dialect {
                    Dialect::GatewayApi => PathRank::Regex,
                    Dialect::Kuma => PathRank::LateRegex(Reverse(regex.as_str().len())),
                },
                Some(PathPredicate::Prefix(prefix)) => PathRank::prefix(prefix),
                Some(PathPredicate::Any) => PathRank::Any,
                None => PathRank::prefix("/"),
            },
            grpc_service: PredicateRank::of(grpc.and_then(|grpc| grpc.service.as_ref())),
            grpc_method: PredicateRank::of(grpc.and_then(|grpc| grpc.method.as_ref())),
            method: matched.is_some_and(|matched| matched.method.is_some()),
            headers: matched.map_or(0, |matched| matched.headers.len()),
            query: matched.map_or(0, |matched| matched.query.len()),
            is_tcp: route.id.route.kind == Kind::TCPRoute,
            age: route.age,
            route: route.id.route.clone(),
            rule: rule.index,
            matched: matched.map_or(0, |matched| matched.index),
        }
    }

    /// Compares two ranks and returns the deciding criterion.
    pub fn compare(&self, other: &Rank) -> (Ordering, Criterion) {
        let criteria = [
            (self.host.cmp(&other.host), Criterion::Host),
            (self.path.cmp(&other.path), Criterion::Path),
            (self.grpc_service.cmp(&other.grpc_service), Criterion::Path),
            (self.grpc_method.cmp(&other.grpc_method), Criterion::Path),
            // Operands are swapped: more conditions take precedence.
            (other.method.cmp(&self.method), Criterion::Method),
            (other.headers.cmp(&self.headers), Criterion::Header),
            (other.query.cmp(&self.query), Criterion::Query),
            (self.is_tcp.cmp(&other.is_tcp), Criterion::Kind),
            (self.age.cmp(&other.age), Criterion::Age),
            (self.route.name.cmp(&other.route.name), Criterion::Name),
            (self.route.kind.cmp(&other.route.kind), Criterion::Kind),
            (self.rule.cmp(&other.rule), Criterion::Order),
            (self.matched.cmp(&other.matched), Criterion::Order),
        ];
        criteria
            .into_iter()
            .find(|(order, _)| order.is_ne())
            .unwrap_or((Ordering::Equal, Criterion::Order))
    }
}

/// Returns the matches of a route's rules in order of precedence, each as the rule and the match's `index`.
pub fn evaluation_order(route: &BoundRoute) -> Vec<(&BoundRule, usize)> {
    let hostname = route.hostnames.first();
    let rules = route.rules.iter();
    let matches = rules.flat_map(|rule| rule.matches.iter().map(move |matched| (&**rule, matched)));
    let mut all: Vec<(Rank, (&BoundRule, usize))> = matches
        .map(|(rule, matched)| {
            let rank = Rank::of(route, hostname, rule, Some(matched));
            (rank, (rule, matched.index))
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.into_iter().map(|(_, tried)| tried).collect()
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(other).0
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
