//! The entries of routing tables. An entry is one match of one rule.

use std::sync::Arc;

use pointsman_binding::bound::{
    BoundMatch, BoundRoute, BoundRule, GrpcPredicate, Hostname, StringPredicate, ValuePredicate,
};

use crate::expression::{CompiledMatch, Expression, satisfies};
use crate::filters::RuleFilters;
use crate::precedence::Rank;
use crate::request::{MatchContext, Request};
use crate::route::CompiledRoute;
use crate::weighted_selector::WeightedSelector;

/// One match of one rule under one of its route's hostnames.
#[derive(Debug)]
pub struct MatchEntry {
    /// Precedence of the entry.
    pub rank: Rank,
    /// The route.
    pub route: Arc<BoundRoute>,
    /// The rule.
    pub rule: Arc<BoundRule>,
    /// The hostname of the route that the entry is for.
    pub hostname: Option<Hostname>,
    /// The compiled filters of the rule, if any.
    pub filters: Option<Arc<RuleFilters>>,
    /// Selects one of the rule's backends.
    pub selector: Arc<WeightedSelector>,
    /// The rule's matches, compiled.
    matches: Arc<[CompiledMatch]>,
    /// Index into `matches`.
    position: usize,
    /// True if the match has no conditions besides host and path, so that lookups need not read it.
    plain: bool,
}

impl MatchEntry {
    /// Creates the entries of a route: one for each hostname and each match of each rule. `selectors` are those of its rules.
    pub(crate) fn all(
        compiled: &CompiledRoute,
        selectors: &[Arc<WeightedSelector>],
    ) -> Vec<Arc<MatchEntry>> {
        let route = &compiled.bound;
        let mut hostnames: Vec<Option<&Hostname>> = route.hostnames.iter().map(Some).collect();
        hostnames.sort();
        hostnames.dedup();
        if hostnames.is_empty() {
            hostnames.push(None);
        }
        let mut entries = Vec::new();
        for hostname in hostnames {
            for ((rule, compiled), selector) in
                route.rules.iter().zip(&compiled.rules).zip(selectors)
            {
                // Rules for streams have no matches and match everything.
                for position in 0..rule.matches.len().max(1) {
                    let matched = rule.matches.get(position);
                    entries.push(Arc::new(MatchEntry {
                        rank: Rank::of(route, hostname, rule, matched),
                        route: route.clone(),
                        rule: rule.clone(),
                        hostname: hostname.cloned(),
                        filters: compiled.filters.clone(),
                        selector: selector.clone(),
                        matches: compiled.matches.clone(),
                        position,
                        plain: matched.is_none_or(has_only_host_and_path),
                    }));
                }
            }
        }
        entries
    }

    /// Returns the match; `None` for a stream.
    pub fn matched(&self) -> Option<&CompiledMatch> {
        self.matches.get(self.position)
    }

    /// Returns whether a request with a matching host and path satisfies the other conditions. Records the first condition that it does not satisfy.
    pub(crate) fn admits<R: Request, T: MismatchRecorder>(
        &self,
        context: &MatchContext<'_, R>,
        recorder: &mut T,
    ) -> bool {
        if self.plain {
            return true;
        }
        let Some(matched) = self.matched() else {
            return true;
        };
        let request = context.request;
        if let Some(grpc) = &matched.grpc
            && !grpc_admits(grpc, request.path(), |miss| recorder.miss(self, miss))
        {
            return false;
        }
        if let Some(wanted) = &matched.method
            && **wanted != *request.method()
        {
            recorder.miss(
                self,
                Mismatch::Method {
                    wanted,
                    got: request.method(),
                },
            );
            return false;
        }
        for predicate in &matched.headers {
            if !header_admits(predicate, request) {
                recorder.miss(self, Mismatch::Header { predicate });
                return false;
            }
        }
        for predicate in &matched.query {
            let got = context.parameter(&predicate.name);
            if !got.is_some_and(|got| satisfies(&predicate.value, got)) {
                recorder.miss(self, Mismatch::Query { predicate, got });
                return false;
            }
        }
        true
    }
}

fn has_only_host_and_path(matched: &BoundMatch) -> bool {
    matched.grpc.is_none()
        && matched.method.is_none()
        && matched.headers.is_empty()
        && matched.query.is_empty()
}

/// A condition that a request does not satisfy.
#[derive(Clone, Copy, Debug)]
pub enum Mismatch<'a> {
    /// The path is not `/service/method`.
    GrpcPath,
    /// The gRPC service.
    GrpcService {
        /// Value or pattern of the match.
        wanted: &'a StringPredicate<Expression>,
        /// Value of the request.
        got: &'a str,
    },
    /// The gRPC method.
    GrpcMethod {
        /// Value or pattern of the match.
        wanted: &'a StringPredicate<Expression>,
        /// Value of the request.
        got: &'a str,
    },
    /// The HTTP method.
    Method {
        /// Value or pattern of the match.
        wanted: &'a str,
        /// Value of the request.
        got: &'a str,
    },
    /// A header.
    Header {
        /// Value or pattern of the match.
        predicate: &'a ValuePredicate<Expression>,
    },
    /// A query parameter.
    Query {
        /// Value or pattern of the match.
        predicate: &'a ValuePredicate<Expression>,
        /// Value of the request.
        got: Option<&'a str>,
    },
}

/// Records why entries do not match a request. `()` ignores it at no cost.
pub trait MismatchRecorder {
    /// Records a condition that is not satisfied, of an entry whose host and path match.
    fn miss(&mut self, entry: &MatchEntry, miss: Mismatch<'_>);
}

impl MismatchRecorder for () {
    #[inline(always)]
    fn miss(&mut self, _: &MatchEntry, _: Mismatch<'_>) {}
}

pub(crate) fn grpc_admits(
    grpc: &GrpcPredicate<Expression>,
    path: &str,
    mut miss: impl FnMut(Mismatch<'_>),
) -> bool {
    let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/'))
    else {
        miss(Mismatch::GrpcPath);
        return false;
    };
    if let Some(wanted) = &grpc.service
        && !satisfies(wanted, service)
    {
        miss(Mismatch::GrpcService {
            wanted,
            got: service,
        });
        return false;
    }
    if let Some(wanted) = &grpc.method
        && !satisfies(wanted, method)
    {
        miss(Mismatch::GrpcMethod {
            wanted,
            got: method,
        });
        return false;
    }
    true
}

/// Returns whether a header satisfies a predicate. If the header has several lines, one of them has to satisfy it, or all values joined by `,`, which RFC 9110
/// §5.3 defines as equivalent. A value that is not UTF-8 matches no regular expression.
fn header_admits<R: Request>(predicate: &ValuePredicate<Expression>, request: &R) -> bool {
    let holds = |value: &[u8]| match &predicate.value {
        StringPredicate::Exact(wanted) => wanted.as_bytes() == value,
        StringPredicate::Regex(regex) => {
            std::str::from_utf8(value).is_ok_and(|value| regex.is_match(value))
        }
        StringPredicate::Prefix(start) => value.starts_with(start.as_bytes()),
        StringPredicate::Present => true,
        StringPredicate::Absent => false,
    };
    if predicate.value == StringPredicate::Absent {
        return request.header(&predicate.name).next().is_none();
    }
    let mut lines = 0;
    for value in request.header(&predicate.name) {
        lines += 1;
        if holds(value) {
            return true;
        }
    }
    lines > 1
        && holds(
            &request
                .header(&predicate.name)
                .collect::<Vec<_>>()
                .join(&b','),
        )
}

/// The result of a lookup: the rule that matches a request.
#[derive(Clone, Copy, Debug)]
pub struct LookupResult<'t> {
    /// The route.
    pub route: &'t Arc<BoundRoute>,
    /// The rule.
    pub rule: &'t Arc<BoundRule>,
    /// `index` of the match in the rule; 0 for a stream.
    pub match_index: usize,
    /// The route's hostname that was matched.
    pub hostname: Option<&'t Hostname>,
    /// Precedence of the match.
    pub rank: &'t Rank,
    /// The compiled filters of the rule, if any.
    pub filters: Option<&'t Arc<RuleFilters>>,
    /// Selects one of the rule's backends.
    pub selector: &'t Arc<WeightedSelector>,
}

impl<'t> LookupResult<'t> {
    /// Returns the match; `None` for a stream.
    pub fn matched(&self) -> Option<&'t BoundMatch> {
        self.rule
            .matches
            .iter()
            .find(|matched| matched.index == self.match_index)
    }
}

impl<'t> From<&'t MatchEntry> for LookupResult<'t> {
    fn from(entry: &'t MatchEntry) -> Self {
        LookupResult {
            route: &entry.route,
            rule: &entry.rule,
            match_index: entry.rank.matched,
            hostname: entry.hostname.as_ref(),
            rank: &entry.rank,
            filters: entry.filters.as_ref(),
            selector: &entry.selector,
        }
    }
}
