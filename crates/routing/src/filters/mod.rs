//! Filters, compiled once per rule: everything that depends only on configuration is computed here and not per request.

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

use crate::weighted_selector::WeightedSelector;

/// The filters of a rule and of its backends.
#[derive(Debug, Default)]
pub struct RuleFilters {
    /// The CORS policy. Preflights are handled before all other filters, even redirects, which browsers do not follow in a preflight.
    pub cors: Option<CorsPolicy>,
    /// A filter that replies instead of a backend.
    pub reply: Option<ReplyFilter>,
    /// The rule's filters for forwarded requests.
    pub rule: Arc<ForwardFilters>,
    /// For each backend, the rule's filters followed by its own. Empty if no backend has filters.
    backends: Box<[Arc<ForwardFilters>]>,
}

/// A filter that replies without a backend.
#[derive(Clone, Debug)]
pub enum ReplyFilter {
    /// A redirect.
    Redirect(Redirect),
    /// A direct response.
    Direct(Arc<DirectResponse>),
}

/// Filters for forwarded requests, grouped by effect. Within a group their order is kept.
#[derive(Clone, Debug, Default)]
pub struct ForwardFilters {
    /// Edits of the request's headers. A rewritten host is an edit of `host`.
    pub request: Vec<Edit>,
    /// Names of the headers that those edits affect.
    pub edited: EditedNames,
    /// Rewrite of the request's path. A backend's replaces its rule's.
    pub path: Option<PathRewrite>,
    /// Edits of the response's headers.
    pub response: Vec<Edit>,
    /// Mirrors, with the selectors of their requests.
    pub mirrors: Vec<(Mirror, Arc<WeightedSelector>)>,
}

impl RuleFilters {
    /// Compiles the filters of a rule, if any. Mirrors whose fraction is that of the rule's previous version, `old`, keep their selector, so that those with small
    /// fractions get their share even if the rule is edited frequently.
    pub fn compile(
        rule: &BoundRule,
        dialect: Dialect,
        old: Option<&RuleFilters>,
    ) -> Option<Arc<RuleFilters>> {
        let of_backends = rule
            .backends
            .iter()
            .any(|backend| !backend.filters.is_empty());
        if rule.filters.is_empty() && !of_backends {
            return None;
        }
        // ReplacePrefixMatch needs a rule with a single match, which is a prefix.
        let prefix = match rule.matches.as_slice() {
            [only] => match &only.path {
                PathPredicate::Prefix(prefix) => Some(&**prefix),
                _ => None,
            },
            _ => None,
        };
        let mut own = ForwardFilters::default();
        let old_own = old.map_or(&[][..], |old| &old.rule.mirrors);
        own.extend(&rule.filters, prefix, dialect, old_own);
        let own = Arc::new(own);
        let with = |index: usize, filters: &[Filter]| {
            let old = old.map_or(&[][..], |old| &old.backend(index).mirrors[old_own.len()..]);
            let mut all = ForwardFilters::clone(&own);
            all.extend(filters, prefix, dialect, old);
            Arc::new(all)
        };
        let backends = rule.backends.iter().enumerate();
        let backends = backends.filter(|_| of_backends);
        Some(Arc::new(RuleFilters {
            cors: rule.filters.iter().rev().find_map(|filter| match filter {
                Filter::Cors(cors) => Some(CorsPolicy::compile(cors)),
                _ => None,
            }),
            reply: ReplyFilter::compile(&rule.filters, prefix, dialect),
            backends: backends
                .map(|(index, backend)| match backend.filters.as_slice() {
                    [] => own.clone(),
                    filters => with(index, filters),
                })
                .collect(),
            rule: own,
        }))
    }

    /// Returns the filters for the backend with this index in the rule.
    pub fn backend(&self, index: usize) -> &Arc<ForwardFilters> {
        self.backends.get(index).unwrap_or(&self.rule)
    }
}

impl ReplyFilter {
    /// Compiles the redirect of a list of filters, otherwise the direct response.
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

impl ForwardFilters {
    /// Appends the filters of a list. `old` are the mirrors of the list's previous version.
    fn extend(
        &mut self,
        filters: &[Filter],
        prefix: Option<&str>,
        dialect: Dialect,
        old: &[(Mirror, Arc<WeightedSelector>)],
    ) {
        let mut old = old.iter();
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
                    let kept = old.next().filter(|(old, _)| old.fraction == fraction);
                    let new =
                        || WeightedSelector::fraction(fraction.numerator, fraction.denominator);
                    let selector = kept.map_or_else(|| Arc::new(new()), |(_, kept)| kept.clone());
                    self.mirrors.push((mirror.clone(), selector));
                }
                // Handled by `RuleFilters`.
                Filter::Redirect(_) | Filter::DirectResponse(_) | Filter::Cors(_) => {}
            }
        }
        self.edited = EditedNames::of(&self.request);
    }
}
