//! What a rule does, with everything in place that does not depend on the request: its backends, their figures, its filters.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::bound::{
    Backend, BackendId, BoundRoute, BoundRule, Fault, Frontend, Mirror, RetryPolicy,
};
use pointsman_resources::Kind;
use pointsman_routing::action::{Action, Forward, MatchedRule, no_endpoints};
use pointsman_routing::filters::RuleFilters;
use pointsman_routing::{Hit, Request, Split};

use super::{ConfigSnapshot, Worker};
use crate::metrics::{ListenerSeries, RouteSeries};
use crate::upstream::Upstream;

/// What is done with the requests or streams of a rule.
#[derive(Debug)]
pub(crate) struct RulePlan {
    /// The rule; none where calls go to a mesh parent itself.
    pub(crate) origin: Option<RuleOrigin>,
    /// Why all of it is answered with an error.
    pub(crate) fault: Option<Fault>,
    /// Filters of the rule and of each backend.
    pub(crate) filters: Option<Arc<RuleFilters>>,
    /// Whose turn it is.
    split: Arc<Split>,
    /// Where it goes, by the numbers that the split gives.
    backends: Vec<BackendTarget>,
    /// The longest that a request may take, all tries together.
    pub(crate) request_timeout: Option<Duration>,
    /// The longest that a try may take.
    pub(crate) backend_timeout: Option<Duration>,
    /// What is tried again.
    pub(crate) retry: Option<RetryPolicy>,
    /// It is a GRPCRoute's.
    pub(crate) grpc: bool,
}

/// Where a rule came from, and its figures.
#[derive(Debug)]
pub(crate) struct RuleOrigin {
    /// The frontend.
    pub(crate) frontend: Arc<Frontend>,
    /// The route.
    pub(crate) route: Arc<BoundRoute>,
    /// The rule.
    pub(crate) rule: Arc<BoundRule>,
    /// The listener's figures.
    pub(crate) listener: Arc<ListenerSeries>,
    /// The route's.
    pub(crate) series: Arc<RouteSeries>,
}

/// One of a rule's backends.
#[derive(Debug)]
pub(crate) struct BackendTarget {
    /// Where, or what its share is answered with.
    pub(crate) upstream: Result<Rc<Upstream>, Fault>,
    /// Copies of what goes there.
    pub(crate) mirrors: Vec<MirrorTarget>,
}

/// A mirror of a backend's requests.
#[derive(Debug)]
pub(crate) struct MirrorTarget {
    pub(crate) upstream: Rc<Upstream>,
    /// Chooses the requests that are copied.
    pub(crate) split: Arc<Split>,
    /// Host of the copies; that of the request if none.
    pub(crate) hostname: Option<Arc<str>>,
}

impl RulePlan {
    /// The plan of the rule that took a request.
    pub(crate) fn new(
        worker: &Worker,
        config: &ConfigSnapshot,
        frontend: &Arc<Frontend>,
        hit: &Hit<'_>,
    ) -> Self {
        let rule = hit.rule;
        let upstream = |id: &BackendId| {
            let backend = config.backend(id)?;
            let of_mesh = matches!(&backend.tls, Some(Ok(tls)) if tls.of_mesh);
            let certificate = match of_mesh {
                true => frontend.mesh_certificate.as_ref(),
                false => frontend.client_certificate.as_ref(),
            };
            Some(worker.upstream(backend, certificate))
        };
        let copied = |(mirror, split): &(Mirror, Arc<Split>)| {
            Some(MirrorTarget {
                upstream: upstream(mirror.target.as_ref().ok()?)?,
                split: split.clone(),
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
            fault: rule.fault.clone(),
            filters: hit.filters.cloned(),
            split: hit.split.clone(),
            backends: rule.backends.iter().enumerate().map(target).collect(),
            request_timeout: rule.request_timeout.filter(|time| !time.is_zero()),
            backend_timeout: rule.backend_timeout.filter(|time| !time.is_zero()),
            retry: rule.retry.clone(),
            grpc: hit.route.id.route.kind == Kind::GRPCRoute,
            origin: Some(RuleOrigin {
                listener: worker.metrics.listener(&frontend.id),
                series: {
                    let (route, index) = hit.route.source(rule);
                    worker.metrics.route(route, index)
                },
                frontend: frontend.clone(),
                route: hit.route.clone(),
                rule: rule.clone(),
            }),
        }
    }

    /// Calls to a mesh parent that no route governs: they go to its own endpoints.
    pub(crate) fn implicit(worker: &Worker, backend: &Arc<Backend>) -> Self {
        RulePlan {
            origin: None,
            fault: None,
            filters: None,
            split: Arc::new(Split::new([1])),
            backends: vec![BackendTarget {
                upstream: Ok(worker.upstream(backend, None)),
                mirrors: Vec::new(),
            }],
            request_timeout: None,
            backend_timeout: None,
            retry: None,
            grpc: false,
        }
    }

    /// The rule as routing sees it; none where calls go to a mesh parent itself.
    fn rule(&self) -> Option<MatchedRule<'_>> {
        let origin = self.origin.as_ref()?;
        Some(MatchedRule {
            frontend: &origin.frontend,
            rule: &origin.rule,
            filters: self.filters.as_deref(),
        })
    }

    /// What is done with a request. Listeners are bound so much above their own ports here.
    pub(crate) fn action<'p, R: Request>(&'p self, request: &'p R, port_offset: u16) -> Action<'p> {
        match self.rule() {
            Some(rule) => rule.action(request, port_offset, || self.split.next()),
            None => Action::Forward(Forward::unchanged()),
        }
    }

    /// The backend whose turn it is, for a stream, and its place in the rule; or what is answered.
    pub(crate) fn select_backend(&self) -> Result<(usize, &BackendTarget), Fault> {
        let index = match self.rule() {
            Some(rule) => rule.backend(|| self.split.next()).map_err(Fault::clone)?,
            None => 0,
        };
        Ok((index, self.target(index)))
    }

    /// The backend at a place of the rule.
    pub(crate) fn target(&self, index: usize) -> &BackendTarget {
        &self.backends[index]
    }

    /// Whether a backend is one of its.
    pub(crate) fn contains(&self, upstream: &Rc<Upstream>) -> bool {
        self.backends.iter().any(|target| {
            let upstreams = target.upstream.as_ref();
            upstreams.is_ok_and(|own| Rc::ptr_eq(own, upstream))
        })
    }
}
