//! The execution plan of a rule: everything that does not depend on the request, prepared once.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::bound::{
    BackendId, BoundRoute, BoundRule, Fault, Frontend, Mirror, RetryPolicy,
};
use pointsman_resources::{Kind, ObjectKey};
use pointsman_routing::action::{Action, MatchedRule, no_endpoints};
use pointsman_routing::filters::RuleFilters;
use pointsman_routing::{LookupResult, Request, WeightedSelector};

use super::{ConfigSnapshot, Worker};
use crate::metrics::{ListenerSeries, RouteSeries};
use crate::upstream::Upstream;

/// Prepared execution of a rule for requests or streams.
#[derive(Debug)]
pub(crate) struct RulePlan {
    /// Origin in the configuration.
    pub(crate) origin: RuleOrigin,
    /// Filters of the rule and of each backend.
    pub(crate) filters: Option<Arc<RuleFilters>>,
    /// Selects a backend by weight.
    selector: Arc<WeightedSelector>,
    /// Backends, by the selector's index.
    backends: Vec<BackendTarget>,
    /// Timeout of a request, including retries.
    pub(crate) request_timeout: Option<Duration>,
    /// Timeout of an attempt.
    pub(crate) backend_timeout: Option<Duration>,
    /// Conditions and number of retries.
    pub(crate) retry: Option<RetryPolicy>,
    /// True for rules of a GRPCRoute.
    pub(crate) grpc: bool,
}

/// The origin of a rule, and its metrics.
#[derive(Debug)]
pub(crate) struct RuleOrigin {
    pub(crate) frontend: Arc<Frontend>,
    pub(crate) route: Arc<BoundRoute>,
    pub(crate) rule: Arc<BoundRule>,
    /// Metrics of the listener.
    pub(crate) listener: Arc<ListenerSeries>,
    /// Metrics of the rule; `None` if no route applies.
    pub(crate) series: Option<Arc<RouteSeries>>,
}

impl RuleOrigin {
    /// Returns the route and the index under which the rule is logged; `None` if no route applies.
    pub(crate) fn source(&self) -> Option<(&ObjectKey, usize)> {
        (!self.route.is_unrouted()).then(|| self.route.source(&self.rule))
    }
}

/// A backend of a rule.
#[derive(Debug)]
pub(crate) struct BackendTarget {
    /// Upstream, or the error for this backend's share of the requests.
    pub(crate) upstream: Result<Rc<Upstream>, Fault>,
    /// Mirrors of requests to this backend.
    pub(crate) mirrors: Vec<MirrorTarget>,
}

/// A destination of mirrored requests.
#[derive(Debug)]
pub(crate) struct MirrorTarget {
    pub(crate) upstream: Rc<Upstream>,
    /// Selects the requests to mirror.
    pub(crate) selector: Arc<WeightedSelector>,
    /// Host of mirrored requests; that of the original request by default.
    pub(crate) hostname: Option<Arc<str>>,
}

impl RulePlan {
    /// Prepares the rule that a request matched.
    pub(crate) fn new(
        worker: &Worker,
        config: &ConfigSnapshot,
        frontend: &Arc<Frontend>,
        hit: &LookupResult<'_>,
    ) -> Self {
        let rule = hit.rule;
        let upstream = |id: &BackendId| {
            let backend = config.tables.backend(id)?;
            let of_mesh = matches!(&backend.tls, Some(Ok(tls)) if tls.of_mesh);
            let certificate = match of_mesh {
                true => frontend.mesh_certificate.as_ref(),
                false => frontend.client_certificate.as_ref(),
            };
            Some(worker.upstream(backend, certificate))
        };
        let copied = |(mirror, selector): &(Mirror, Arc<WeightedSelector>)| {
            Some(MirrorTarget {
                upstream: upstream(mirror.target.as_ref().ok()?)?,
                selector: selector.clone(),
                hostname: mirror.hostname.clone(),
            })
        };
        let mirrors = |at: usize| match hit.filters {
            Some(filters) => {
                let all = &filters.backend(at).mirrors;
                all.iter().filter_map(copied).collect()
            }
            None => Vec::new(),
        };
        let target =
            |(at, backend): (usize, &pointsman_binding::bound::WeightedBackend)| BackendTarget {
                upstream: match &backend.target {
                    Err(fault) => Err(fault.clone()),
                    Ok(id) => upstream(id).ok_or_else(|| no_endpoints().clone()),
                },
                mirrors: mirrors(at),
            };
        RulePlan {
            filters: hit.filters.cloned(),
            selector: hit.selector.clone(),
            backends: rule.backends.iter().enumerate().map(target).collect(),
            request_timeout: rule.request_timeout.filter(|time| !time.is_zero()),
            backend_timeout: rule.backend_timeout.filter(|time| !time.is_zero()),
            retry: rule.retry.clone(),
            grpc: hit.route.id.route.kind == Kind::GRPCRoute,
            origin: RuleOrigin {
                listener: worker.metrics.listener(&frontend.id),
                series: (!hit.route.is_unrouted()).then(|| {
                    let (route, index) = hit.route.source(rule);
                    worker.metrics.route(route, index)
                }),
                frontend: frontend.clone(),
                route: hit.route.clone(),
                rule: rule.clone(),
            },
        }
    }

    /// Returns whether the plan is also that of the same rule in another version of its route. The rule and the frontend are the same.
    pub(super) fn is_current(&self, hit: &LookupResult<'_>) -> bool {
        let same_filters = match (&self.filters, hit.filters) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        };
        same_filters
            && Arc::ptr_eq(&self.origin.route, hit.route)
            && Arc::ptr_eq(&self.selector, hit.selector)
    }

    /// Returns the rule in the form that the routing crate uses.
    fn rule(&self) -> MatchedRule<'_> {
        MatchedRule {
            frontend: &self.origin.frontend,
            rule: &self.origin.rule,
            filters: self.filters.as_deref(),
        }
    }

    /// Returns the action for a request. `port_offset` is the difference between bound ports and the listeners' own.
    pub(crate) fn action<'p, R: Request>(&'p self, request: &'p R, port_offset: u16) -> Action<'p> {
        self.rule()
            .action(request, port_offset, || self.selector.next())
    }

    /// Selects a backend for a stream, and returns its index in the rule. Fails with the rule's fault.
    pub(crate) fn select_backend(&self) -> Result<(usize, &BackendTarget), Fault> {
        let index = self.rule().backend(|| self.selector.next());
        let index = index.map_err(Fault::clone)?;
        Ok((index, self.target(index)))
    }

    /// Returns the backend with this index in the rule.
    pub(crate) fn target(&self, index: usize) -> &BackendTarget {
        &self.backends[index]
    }

    /// Returns whether the rule forwards to the upstream.
    pub(crate) fn contains(&self, upstream: &Rc<Upstream>) -> bool {
        let mut backends = self.backends.iter();
        self.origin.rule.fault.is_none()
            && backends.any(|target| {
                let upstreams = target.upstream.as_ref();
                upstreams.is_ok_and(|own| Rc::ptr_eq(own, upstream))
            })
    }
}
