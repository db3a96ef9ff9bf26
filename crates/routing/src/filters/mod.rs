//! What filters do to requests and responses, compiled once per rule: nothing of it is worked out per request that depends on
//! configuration alone.

pub mod cors;
pub mod headers;
pub mod redirect;
pub mod rewrite;

use std::sync::Arc;

use pointsman_binding::bound::{BoundRule, DirectResponse, Filter, Mirror, PathPredicate};

use cors::CorsPolicy;
use headers::{Edit, edits};
use redirect::Redirect;
use rewrite::PathRewrite;

use crate::split::Split;

/// The filters of a rule, and of each of its backends.
#[derive(Debug, Default)]
pub struct RuleFilters {
    /// The rule's own.
    pub rule: Filters,
    /// Those of each of `rule.backends`, to be done after the rule's own.
    pub backends: Vec<Filters>,
}

/// A list of filters, sorted by what they act on. Within a kind their order is kept.
#[derive(Debug, Default)]
pub struct Filters {
    /// Changes to the request's headers. A rewritten host is one: it sets `host`.
    pub request: Vec<Edit>,
    /// A new path for the request.
    pub path: Option<PathRewrite>,
    /// Changes to the response's headers.
    pub response: Vec<Edit>,
    /// The answer, instead of a backend's.
    pub redirect: Option<Redirect>,
    /// The answer, whole.
    pub direct: Option<Arc<DirectResponse>>,
    /// Which origins may use the route. A preflight is answered before anything else is done, a redirect included: browsers don't
    /// follow one there.
    pub cors: Option<CorsPolicy>,
    /// Where copies go, and of which requests.
    pub mirrors: Vec<(Mirror, Arc<Split>)>,
}

impl RuleFilters {
    /// Compiles the filters of a rule; none if it has none.
    pub fn compile(rule: &BoundRule) -> Option<Arc<RuleFilters>> {
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
        Some(Arc::new(RuleFilters {
            rule: Filters::compile(&rule.filters, prefix),
            backends: rule
                .backends
                .iter()
                .map(|backend| Filters::compile(&backend.filters, prefix))
                .collect(),
        }))
    }
}

impl Filters {
    fn compile(filters: &[Filter], prefix: Option<&str>) -> Self {
        let mut compiled = Filters::default();
        for filter in filters {
            match filter {
                Filter::RequestHeaders(modifier) => compiled.request.extend(edits(modifier)),
                Filter::ResponseHeaders(modifier) => compiled.response.extend(edits(modifier)),
                Filter::Redirect(redirect) => {
                    compiled.redirect = Some(Redirect::compile(redirect, prefix));
                }
                Filter::Rewrite(rewrite) => {
                    if let Some(hostname) = &rewrite.hostname {
                        compiled
                            .request
                            .push(Edit::Set("host".into(), hostname.as_str().into()));
                    }
                    if let Some(path) = &rewrite.path {
                        compiled.path = PathRewrite::compile(path, prefix);
                    }
                }
                Filter::Mirror(mirror) => {
                    let fraction = mirror.fraction;
                    let split = Split::fraction(fraction.numerator, fraction.denominator);
                    compiled.mirrors.push((mirror.clone(), Arc::new(split)));
                }
                Filter::DirectResponse(answer) => compiled.direct = Some(answer.clone()),
                Filter::Cors(cors) => compiled.cors = Some(CorsPolicy::compile(cors)),
            }
        }
        compiled
    }

    /// Whether there is nothing that changes what a backend receives.
    pub fn keeps_request(&self) -> bool {
        self.request.is_empty() && self.path.is_none()
    }
}
