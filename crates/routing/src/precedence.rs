//! Precedence between matches: the specification's order, as [`Ord`] on a small summary.
//!
//! A [`Rank`] says how specific one match of one rule is, and breaks ties. Less is stronger. It is only meaningful between
//! matches that a request satisfies. This order is the only place where precedence is defined: a lookup returns the least of the
//! entries that a request satisfies, explanations and shadowed rules compare ranks. To move regular expressions, move a variant of
//! [`PathRank`]; nothing else has to follow.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use pointsman_binding::bound::{
    BoundMatch, BoundRoute, BoundRule, Dialect, Hostname, PathPredicate, StringPredicate,
};
use pointsman_resources::{Age, Kind, ObjectKey};
use serde::Serialize;

/// What decides between two candidates, or what keeps one from being considered.
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
    /// The route was not let in.
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

/// How specific a hostname is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostRank {
    /// One host: so many characters.
    Exact(Reverse<usize>),
    /// A wildcard: so many characters.
    Wildcard(Reverse<usize>),
    /// The route has no hostname.
    Any,
}

impl HostRank {
    /// How specific this hostname is.
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

/// How specific a path match is. The order of the variants is the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathRank {
    /// One path.
    Exact,
    /// A regular expression.
    Regex,
    /// A prefix: so many characters.
    Prefix(Reverse<usize>),
    /// A regular expression of Kuma's: so many characters.
    LateRegex(Reverse<usize>),
    /// A match of Kuma's without a path.
    Any,
}

impl PathRank {
    /// The rank of a prefix, whose slash at the end counts for nothing.
    pub fn prefix(prefix: &str) -> Self {
        Self::prefix_of_length(prefix.strip_suffix('/').unwrap_or(prefix).len())
    }

    /// The rank of a prefix of so many characters, without a slash at the end.
    pub(crate) fn prefix_of_length(length: usize) -> Self {
        PathRank::Prefix(Reverse(length))
    }
}

/// How specific a predicate on a string is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// One value.
    Exact,
    /// A regular expression.
    Regex,
    /// No predicate.
    Any,
}

impl Precision {
    fn of(predicate: Option<&StringPredicate>) -> Self {
        match predicate {
            Some(StringPredicate::Exact(_)) => Precision::Exact,
            Some(StringPredicate::Regex(_) | StringPredicate::Prefix(_)) => Precision::Regex,
            // Of gRPC's services and methods neither is asked.
            Some(StringPredicate::Present | StringPredicate::Absent) | None => Precision::Any,
        }
    }
}

/// How strong a match is against others that hold too. Less is stronger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// "the most characters in a matching non-wildcard hostname", then "the most characters in a matching hostname": the
    /// route's own hostname, not what is left of it on the listener.
    pub host: HostRank,
    /// "`Exact` path match", then regular expressions (the specification leaves their place open), then "`Prefix` path match with
    /// largest number of characters". Kuma has its expressions after prefixes, the longest first, and a match without a path last: "path
    /// present before absent".
    pub path: PathRank,
    /// GRPCRoute: "characters in a matching service".
    pub grpc_service: Precision,
    /// GRPCRoute: "characters in a matching method".
    pub grpc_method: Precision,
    /// "method match".
    pub method: bool,
    /// "largest number of header matches".
    pub headers: usize,
    /// "largest number of query param matches".
    pub query: usize,
    /// TCPRoute: beside a TLSRoute it takes what that one leaves, even if neither has a hostname.
    pub is_tcp: bool,
    /// "the oldest Route based on creation timestamp".
    pub age: Age,
    /// "the Route appearing first in alphabetical order by {namespace}/{name}". Routes of two kinds may share a name: then the kind.
    pub route: ObjectKey,
    /// "the first matching rule (in list order)".
    pub rule: usize,
    /// Matches of one rule lead to the same place; the first is the one that is reported.
    pub matched: usize,
}

impl Rank {
    /// The rank of one match of a rule, under one of its route's hostnames. Streams have no match.
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
            grpc_service: Precision::of(grpc.and_then(|grpc| grpc.service.as_ref())),
            grpc_method: Precision::of(grpc.and_then(|grpc| grpc.method.as_ref())),
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

    /// How this compares to another, and the criterion that decides.
    pub fn compare(&self, other: &Rank) -> (Ordering, Criterion) {
        let criteria = [
            (self.host.cmp(&other.host), Criterion::Host),
            (self.path.cmp(&other.path), Criterion::Path),
            (self.grpc_service.cmp(&other.grpc_service), Criterion::Path),
            (self.grpc_method.cmp(&other.grpc_method), Criterion::Path),
            // Present, and more, is stronger: hence the other's first.
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

/// The matches of a route's rules under one of its hostnames, in the order in which they are tried: each as the rule and the match's `index`.
pub fn tried_order(route: &BoundRoute) -> Vec<(&BoundRule, usize)> {
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
