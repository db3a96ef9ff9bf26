//! What filters do to requests and responses, compiled once per rule: nothing of it is worked out per request that depends on
//! configuration alone.

pub mod cors;
pub mod headers;
pub mod redirect;
pub mod rewrite;

use std::sync::Arc;

use pointsman_binding::bound::{BoundRule, Dialect, DirectResponse, Filter, Mirror, PathPredicate};

use cors::CorsPolicy;
use headers::{Edit, EditedNames, edits};
use redirect::Redirect;
use rewrite::PathRewrite;

use crate::split::Split;

/// The filters of a rule and of its backends.
#[derive(Debug, Default)]
pub struct RuleFilters {
    /// Which origins may use the route. A preflight is answered before anything else is done, a redirect included: browsers don't
    /// follow one there.
    pub cors: Option<CorsPolicy>,
    /// The reply that is made here, instead of a backend's.
    pub reply: Option<ReplyFilter>,
    /// The rule's own filters for what is forwarded.
    pub rule: Arc<Forwarding>,
    /// The same for each backend, its own filters after the rule's. Empty if no backend has filters.
    backends: Box<[Arc<Forwarding>]>,
}

/// A filter that replies without a backend.
#[derive(Clone, Debug)]
pub enum ReplyFilter {
    /// A redirect.
    Redirect(Redirect),
    /// A whole response.
    Direct(Arc<DirectResponse>),
}

/// Filters for what is forwarded, sorted by what they act on. Within a kind their order is kept.
#[derive(Clone, Debug, Default)]
pub struct Forwarding {
    /// Edits of the request's headers. A rewritten host is one: it sets `host`.
    pub request: Vec<Edit>,
    /// Names of the headers that those edits concern.
    pub edited: EditedNames,
    /// A new path for the request. A backend's replaces its rule's.
    pub path: Option<PathRewrite>,
    /// Edits of the response's headers.
    pub response: Vec<Edit>,
    /// Where copies go, and of which requests.
    pub mirrors: Vec<(Mirror, Arc<Split>)>,
}

impl RuleFilters {
    /// Compiles the filters of a rule; none if it has none.
    pub fn compile(rule: &BoundRule, dialect: Dialect) -> Option<Arc<RuleFilters>> {
        let of_backends = rule
            .backends
            .iter()
            .any(|backend| !backend.filters.is_empty());
        if rule.filters.is_empty() && !of_backends {
            return None;
        }
        // A replaced prefix needs a rule with one match, a prefix: what others match is not replaced.
        let prefix = match rule.matches.as_slice() {
            [only] => match &only.path {
                PathPredicate::Prefix(prefix) => Some(&**prefix),
                _ => None,
            },
            _ => None,
        };
        let mut own = Forwarding::default();
        own.extend(&rule.filters, prefix, dialect);
        let own = Arc::new(own);
        let with = |filters: &[Filter]| {
            let mut all = Forwarding::clone(&own);
            all.extend(filters, prefix, dialect);
            Arc::new(all)
        };
        let backends = rule.backends.iter().filter(|_| of_backends);
        Some(Arc::new(RuleFilters {
            cors: rule.filters.iter().rev().find_map(|filter| match filter {
                Filter::Cors(cors) => Some(CorsPolicy::compile(cors)),
                _ => None,
            }),
            reply: ReplyFilter::compile(&rule.filters, prefix, dialect),
            backends: backends
                .map(|backend| match backend.filters.as_slice() {
                    [] => own.clone(),
                    filters => with(filters),
                })
                .collect(),
            rule: own,
        }))
    }

    /// The filters for what goes to the backend at this place in the rule.
    pub fn backend(&self, place: usize) -> &Arc<Forwarding> {
        self.backends.get(place).unwrap_or(&self.rule)
    }
}

impl ReplyFilter {
    /// The redirect of some filters, else their direct response.
    fn compile(filters: &[Filter], prefix: Option<&str>, dialect: Dialect) -> Option<Self> {
        let redirect = filters.iter().rev().find_map(|filter| match filter {
            Filter::Redirect(redirect) => Some(Redirect::compile(redirect, prefix, dialect)),
            _ => None,
        });
        let direct = || {
            filters.iter().rev().find_map(|filter| match filter {
                Filter::DirectResponse(direct) => Some(direct.clone()),
                _ => None,
            })
        };
        match redirect {
            Some(redirect) => Some(ReplyFilter::Redirect(redirect)),
            None => direct().map(ReplyFilter::Direct),
        }
    }
}

impl Forwarding {
    /// Adds the filters of a list after those that are there.
    fn extend(&mut self, filters: &[Filter], prefix: Option<&str>, dialect: Dialect) {
        for filter in filters {
            match filter {
                Filter::RequestHeaders(modifier) => self.request.extend(edits(modifier)),
                Filter::ResponseHeaders(modifier) => self.response.extend(edits(modifier)),
                Filter::Rewrite(rewrite) => {
                    if let Some(hostname) = &rewrite.hostname {
                        let host = Edit::Set("host".into(), hostname.as_str().into());
                        self.request.push(host);
                    }
                    if let Some(path) = &rewrite.path {
                        self.path =
                            PathRewrite::compile(path, prefix, dialect).or(self.path.take());
                    }
                }
                Filter::Mirror(mirror) => {
                    let fraction = mirror.fraction;
                    let split = Split::fraction(fraction.numerator, fraction.denominator);
                    self.mirrors.push((mirror.clone(), Arc::new(split)));
                }
                // They reply, and belong to the rule.
                Filter::Redirect(_) | Filter::DirectResponse(_) | Filter::Cors(_) => {}
            }
        }
        self.edited = EditedNames::of(&self.request);
    }

    /// Whether nothing changes what a backend receives.
    pub fn keeps_request(&self) -> bool {
        self.request.is_empty() && self.path.is_none()
    }
}
