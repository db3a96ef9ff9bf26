//! One match of one rule, as the table holds it, and whether a request satisfies it.

use std::sync::Arc;

use pointsman_binding::bound::{
    BoundMatch, BoundRoute, BoundRule, GrpcPredicate, Hostname, StringPredicate, ValuePredicate,
};

use crate::expression::{CompiledMatch, Expression, satisfies};
use crate::filters::RuleFilters;
use crate::precedence::Rank;
use crate::request::{Context, Request};
use crate::route::CompiledRoute;
use crate::split::Split;

/// One match of one rule under one of its route's hostnames.
#[derive(Debug)]
pub struct Entry {
    /// How strong it is.
    pub rank: Rank,
    /// The route.
    pub route: Arc<BoundRoute>,
    /// The rule.
    pub rule: Arc<BoundRule>,
    /// The route's hostname that it stands under.
    pub hostname: Option<Hostname>,
    /// The rule's filters, compiled; none if it has none.
    pub filters: Option<Arc<RuleFilters>>,
    /// Which of the rule's backends comes next.
    pub split: Arc<Split>,
    /// The rule's matches, compiled.
    matches: Arc<[CompiledMatch]>,
    /// Index into `matches`.
    position: usize,
    /// Whether it asks nothing beyond host and path, so that neither rule nor match need be looked at.
    plain: bool,
}

impl Entry {
    /// Every entry of a route: each hostname with each match of each rule. `splits` are its rules'.
    pub(crate) fn all(compiled: &CompiledRoute, splits: &[Arc<Split>]) -> Vec<Arc<Entry>> {
        let route = &compiled.bound;
        let mut hostnames: Vec<Option<&Hostname>> = route.hostnames.iter().map(Some).collect();
        hostnames.sort();
        hostnames.dedup();
        if hostnames.is_empty() {
            hostnames.push(None);
        }
        let mut entries = Vec::new();
        for hostname in hostnames {
            for ((rule, compiled), split) in route.rules.iter().zip(&compiled.rules).zip(splits) {
                // A stream's rule has no match and takes everything.
                for position in 0..rule.matches.len().max(1) {
                    let matched = rule.matches.get(position);
                    entries.push(Arc::new(Entry {
                        rank: Rank::of(route, hostname, rule, matched),
                        route: route.clone(),
                        rule: rule.clone(),
                        hostname: hostname.cloned(),
                        filters: compiled.filters.clone(),
                        split: split.clone(),
                        matches: compiled.matches.clone(),
                        position,
                        plain: matched.is_none_or(asks_nothing_more),
                    }));
                }
            }
        }
        entries
    }

    /// The match; none for a stream.
    pub fn matched(&self) -> Option<&CompiledMatch> {
        self.matches.get(self.position)
    }

    /// Whether a request whose host and path fit satisfies the rest. The first thing that it does not is recorded.
    pub(crate) fn admits<R: Request, T: Recorder>(
        &self,
        context: &Context<'_, R>,
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
                Miss::Method {
                    wanted,
                    got: request.method(),
                },
            );
            return false;
        }
        for predicate in &matched.headers {
            if !header_admits(predicate, request) {
                recorder.miss(self, Miss::Header { predicate });
                return false;
            }
        }
        for predicate in &matched.query {
            let got = context.parameter(&predicate.name);
            if !got.is_some_and(|got| satisfies(&predicate.value, got)) {
                recorder.miss(self, Miss::Query { predicate, got });
                return false;
            }
        }
        true
    }
}

fn asks_nothing_more(matched: &BoundMatch) -> bool {
    matched.grpc.is_none()
        && matched.method.is_none()
        && matched.headers.is_empty()
        && matched.query.is_empty()
}

/// What a request did not satisfy.
#[derive(Clone, Copy, Debug)]
pub enum Miss<'a> {
    /// The path is not `/service/method`.
    GrpcPath,
    /// The gRPC service.
    GrpcService {
        /// What the match asks for.
        wanted: &'a StringPredicate<Expression>,
        /// What the request has.
        got: &'a str,
    },
    /// The gRPC method.
    GrpcMethod {
        /// What the match asks for.
        wanted: &'a StringPredicate<Expression>,
        /// What the request has.
        got: &'a str,
    },
    /// The HTTP method.
    Method {
        /// What the match asks for.
        wanted: &'a str,
        /// What the request has.
        got: &'a str,
    },
    /// A header.
    Header {
        /// What the match asks for.
        predicate: &'a ValuePredicate<Expression>,
    },
    /// A query parameter.
    Query {
        /// What the match asks for.
        predicate: &'a ValuePredicate<Expression>,
        /// What the request has.
        got: Option<&'a str>,
    },
}

/// Hears why entries don't take a request. `()` hears nothing and costs nothing.
pub trait Recorder {
    /// This entry's host and path fit, this does not.
    fn miss(&mut self, entry: &Entry, miss: Miss<'_>);
}

impl Recorder for () {
    #[inline(always)]
    fn miss(&mut self, _: &Entry, _: Miss<'_>) {}
}

fn grpc_admits(
    grpc: &GrpcPredicate<Expression>,
    path: &str,
    mut miss: impl FnMut(Miss<'_>),
) -> bool {
    let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/'))
    else {
        miss(Miss::GrpcPath);
        return false;
    };
    if let Some(wanted) = &grpc.service
        && !satisfies(wanted, service)
    {
        miss(Miss::GrpcService {
            wanted,
            got: service,
        });
        return false;
    }
    if let Some(wanted) = &grpc.method
        && !satisfies(wanted, method)
    {
        miss(Miss::GrpcMethod {
            wanted,
            got: method,
        });
        return false;
    }
    true
}

/// A header that is sent on several lines satisfies a predicate if one of its values does, or all of them joined by `,`, which RFC 9110
/// (5.3) says is the same message. A value that is not UTF-8 satisfies no expression.
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

/// The rule that takes a request.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'t> {
    /// The route.
    pub route: &'t Arc<BoundRoute>,
    /// The rule.
    pub rule: &'t Arc<BoundRule>,
    /// Which of the rule's matches, as its `index`; 0 for a stream.
    pub match_index: usize,
    /// The route's hostname that was matched.
    pub hostname: Option<&'t Hostname>,
    /// How strong the match is.
    pub rank: &'t Rank,
    /// The rule's filters, compiled; none if it has none.
    pub filters: Option<&'t Arc<RuleFilters>>,
    /// Which of the rule's backends comes next, whoever asks.
    pub split: &'t Arc<Split>,
}

impl<'t> Hit<'t> {
    /// The match itself; none for a stream.
    pub fn matched(&self) -> Option<&'t BoundMatch> {
        self.rule
            .matches
            .iter()
            .find(|matched| matched.index == self.match_index)
    }
}

impl<'t> From<&'t Entry> for Hit<'t> {
    fn from(entry: &'t Entry) -> Self {
        Hit {
            route: &entry.route,
            rule: &entry.rule,
            match_index: entry.rank.matched,
            hostname: entry.hostname.as_ref(),
            rank: &entry.rank,
            filters: entry.filters.as_ref(),
            split: &entry.split,
        }
    }
}
