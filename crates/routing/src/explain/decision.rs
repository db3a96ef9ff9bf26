//! The decision for a request: the frontend, the rule and its effect, without the reasons against other rules.

use std::sync::Arc;

use pointsman_binding::bound::{
    Backend, BackendId, Endpoints, Fault, FrontendId, Mirror, Protocol,
};
use pointsman_resources::Kind;

use super::candidates::rule_ref;
use super::effect::{self, ErrorFormat};
use super::frontend_selection::{SelectedFrontend, reference, select_frontend};
use super::model::{ExplainedResponse, Explanation, FrontendRef, Outcome, ReplyStatus};
use super::query::{Directory, DirectoryEntry, Query, QueryRequest, Scheme};
use crate::action::{Action, Forward, MatchedRule, ReplyKind, no_route};
use crate::entry::LookupResult;
use crate::request::is_http;
use crate::table::FrontendTable;
use crate::tables::Tables;

/// The decision for a request.
pub(crate) struct Decision<'t> {
    /// The explanation, without candidates.
    pub(crate) explanation: Explanation,
    /// The table of the frontend that receives the request.
    pub(crate) table: Option<&'t Arc<FrontendTable>>,
    /// The matching rule.
    pub(crate) hit: Option<LookupResult<'t>>,
    /// The port of a mesh parent that receives the request if no routes apply.
    pub(crate) unrouted: Option<&'t BackendId>,
    /// The reason why rules that match get no traffic, if there is no `hit`.
    pub(crate) obstacle: &'static str,
}

impl<'t> Decision<'t> {
    fn new(explanation: Explanation, table: Option<&'t Arc<FrontendTable>>) -> Self {
        Decision {
            explanation,
            table,
            hit: None,
            unrouted: None,
            obstacle: "the request is rejected before rules are matched",
        }
    }

    /// Creates the decision for a request that no frontend receives.
    pub(crate) fn no_frontend(why: String) -> Self {
        Decision::new(Explanation::new(why, Outcome::NoFrontend), None)
    }
}

/// Decides on a request.
pub(crate) fn decide<'t>(
    tables: &'t Tables,
    directory: &'t Directory,
    query: &Query,
) -> Decision<'t> {
    match select_frontend(tables, directory, query) {
        SelectedFrontend::NoFrontend { why, status } => {
            let mut decision = Decision::no_frontend(why);
            let explanation = &mut decision.explanation;
            let format = ErrorFormat::of(query, false);
            match status {
                Some(ReplyStatus::Http(status)) => {
                    if !explanation.reject(query, format) {
                        explanation.set_status(format, status);
                    }
                }
                status => explanation.status = status,
            }
            decision
        }
        SelectedFrontend::Rejected { table, fault, why } => rejected(table, query, fault, why),
        SelectedFrontend::Closed { table, why } => {
            let mut explanation = Explanation::new(why, Outcome::Respond);
            explanation.frontend = Some(reference(table.frontend()));
            explanation.status = Some(ReplyStatus::Reset);
            explanation.reason = closed_reason(table);
            Decision {
                obstacle: CANNOT_SERVE,
                ..Decision::new(explanation, Some(table))
            }
        }
        SelectedFrontend::Implicit {
            parent,
            backend,
            why,
        } => unrouted(parent, backend, query, why),
        SelectedFrontend::Workload {
            owner,
            address,
            why,
        } => {
            let mut explanation = Explanation::new(why, Outcome::Forward);
            explanation.backends = vec![effect::workload(owner, address)];
            if query.target.scheme.is_http() {
                explanation.request = Some(effect::received(query, None));
            }
            Decision::new(explanation, None)
        }
        SelectedFrontend::WrongProtocol { table, why }
        | SelectedFrontend::Frontend { table, why } => at_table(tables, table, query, why),
    }
}

/// Decides on a request that no listener of the port serves, with the error that the proxy responds with.
fn rejected<'t>(
    table: &'t Arc<FrontendTable>,
    query: &Query,
    fault: &Fault,
    why: String,
) -> Decision<'t> {
    let mut explanation = Explanation::new(why, Outcome::Respond);
    explanation.frontend = Some(reference(table.frontend()));
    let format = ErrorFormat::of(query, false);
    if explanation.reject(query, format) {
        return Decision::new(explanation, Some(table));
    }
    explanation.fail(format, fault);
    let reason = closed_reason(table);
    let obstacle = match reason {
        Some(_) => CANNOT_SERVE,
        None => "the requested host belongs to another listener",
    };
    explanation.reason = reason.or(explanation.reason);
    Decision {
        obstacle,
        ..Decision::new(explanation, Some(table))
    }
}

const CANNOT_SERVE: &str = "the listener that receives the request can't serve it";

fn closed_reason(table: &FrontendTable) -> Option<String> {
    let why = table.closed()?;
    Some(format!("the listener can't serve: {why}"))
}

/// Decides on a request to a port of a mesh parent to which no routes apply.
fn unrouted<'t>(
    parent: &DirectoryEntry,
    (backend, endpoints): &'t (Backend, Endpoints),
    query: &Query,
    why: String,
) -> Decision<'t> {
    let format = ErrorFormat::of(query, false);
    let mut explanation = Explanation::new(why, Outcome::Forward);
    explanation.frontend = Some(FrontendRef {
        kind: parent.object.kind.name(),
        namespace: parent.object.name.namespace.to_string(),
        name: parent.object.name.name.to_string(),
        section: None,
        port: backend.id.port,
        gateway: None,
        scope: None,
    });
    explanation.backends = vec![effect::parent_backend_share(backend, endpoints, format)];
    if format != ErrorFormat::Stream {
        explanation.request = Some(effect::received(query, None));
    }
    Decision {
        unrouted: Some(&backend.id),
        ..Decision::new(explanation, None)
    }
}

impl Explanation {
    fn new(why: String, outcome: Outcome) -> Self {
        Explanation {
            frontend: None,
            why,
            outcome,
            status: None,
            grpc_status: None,
            reason: None,
            rule: None,
            request: None,
            response: None,
            backends: Vec::new(),
            mirrors: Vec::new(),
            timeouts: None,
            candidates: Vec::new(),
        }
    }

    /// Returns whether every backend with a share of the traffic returns an error.
    pub fn fails(&self) -> bool {
        let mut used = self
            .backends
            .iter()
            .filter(|one| one.share > 0.0)
            .peekable();
        used.peek().is_some() && used.all(|one| one.reason.is_some())
    }

    fn set_status(&mut self, format: ErrorFormat, status: u16) {
        (self.status, self.grpc_status) = format.status(status);
    }

    /// Sets the response to a request that every HTTP frontend rejects. Returns whether it is rejected.
    fn reject(&mut self, query: &Query, format: ErrorFormat) -> bool {
        let Some(reason) = query.rejected() else {
            return false;
        };
        self.outcome = Outcome::Respond;
        self.set_status(format, 400);
        self.reason = Some(reason);
        true
    }

    fn fail(&mut self, format: ErrorFormat, fault: &Fault) {
        self.set_status(format, fault.status);
        self.reason = Some(fault.message.clone());
    }
}

/// Returns whether a frontend forwards streams rather than requests.
pub(crate) fn carries_streams(table: &FrontendTable) -> bool {
    let frontend = table.frontend();
    match (&frontend.id, frontend.kind) {
        (FrontendId::Mesh { .. }, Some(kind)) => !matches!(kind, Kind::HTTPRoute | Kind::GRPCRoute),
        _ => !matches!(frontend.protocol, Protocol::Http | Protocol::Https),
    }
}

/// Decides on a request that a frontend has received.
pub(crate) fn at_table<'t>(
    tables: &'t Tables,
    table: &'t Arc<FrontendTable>,
    query: &Query,
    why: String,
) -> Decision<'t> {
    let streams = carries_streams(table);
    let mut explanation = Explanation::new(why, Outcome::NoRoute);
    explanation.frontend = Some(reference(table.frontend()));
    if let Some((status, reason)) = mismatch(table, query) {
        explanation.outcome = Outcome::Respond;
        explanation.status = Some(status);
        explanation.reason = Some(reason.into());
        return Decision::new(explanation, Some(table));
    }
    let format = ErrorFormat::of(query, streams);
    if !streams && explanation.reject(query, format) {
        return Decision::new(explanation, Some(table));
    }
    let hit = match streams {
        true => table.lookup_stream(query.sni().as_deref()),
        false => table.lookup(&QueryRequest::new(query)),
    };
    match &hit {
        None => explanation.fail(format, no_route()),
        Some(hit) => explain_action(&mut explanation, tables, table, query, hit, format),
    }
    Decision {
        hit,
        ..Decision::new(explanation, Some(table))
    }
}

/// Returns the response to a client whose protocol is not the frontend's, and the reason.
fn mismatch(table: &FrontendTable, query: &Query) -> Option<(ReplyStatus, &'static str)> {
    let scheme = query.target.scheme;
    let protocol = table.frontend().protocol;
    let expects_tls = matches!(protocol, Protocol::Https | Protocol::Tls(_));
    let reset = |reason| Some((ReplyStatus::Reset, reason));
    match scheme {
        // HTTP clients get an HTTP response, others a reset.
        Scheme::Http if expects_tls && is_http(format!("{} ", query.method).as_bytes()) => {
            Some((ReplyStatus::Http(400), EXPECTS_TLS))
        }
        Scheme::Http | Scheme::Tcp if expects_tls => reset(EXPECTS_TLS),
        _ if carries_streams(table) => None,
        Scheme::Https if protocol == Protocol::Http => {
            reset("this port accepts only HTTP without TLS")
        }
        scheme if scheme.is_http() => None,
        _ => reset("this port accepts only HTTP"),
    }
}

const EXPECTS_TLS: &str = "this port accepts only TLS";

/// Explains the action of the winning rule.
fn explain_action(
    explanation: &mut Explanation,
    tables: &Tables,
    table: &FrontendTable,
    query: &Query,
    hit: &LookupResult<'_>,
    format: ErrorFormat,
) {
    explanation.rule = (!hit.route.is_implicit(hit.rule)).then(|| rule_ref(hit));
    let rule = MatchedRule::new(table.frontend(), hit);
    let seen = QueryRequest::new(query);
    let backends = &rule.rule.backends;
    let first = backends.iter().position(|backend| backend.weight > 0);
    match rule.action(&seen, 0, || first) {
        Action::Fail(fault) => {
            explanation.outcome = Outcome::Respond;
            explanation.fail(format, fault);
            if rule.rule.fault.is_none() {
                explanation.backends = effect::shares(tables, rule.rule, format);
            }
        }
        Action::Reply(reply) => {
            explanation.outcome = match reply.kind {
                ReplyKind::Redirect => Outcome::Redirect,
                ReplyKind::Preflight | ReplyKind::Direct => Outcome::Respond,
            };
            explanation.status = Some(ReplyStatus::Http(reply.status));
            explanation.response = Some(effect::reply(&reply));
        }
        Action::Forward(forward) => {
            explanation.outcome = Outcome::Forward;
            explanation.backends = effect::shares(tables, rule.rule, format);
            explanation.timeouts = effect::timeouts(rule.rule);
            if format != ErrorFormat::Stream {
                explain_forward(explanation, query, rule, &seen, &forward);
            }
        }
    }
}

/// Explains the request that backends receive, the changes to their responses, and the mirrors. Differences for single backends are listed with them.
fn explain_forward(
    explanation: &mut Explanation,
    query: &Query,
    rule: MatchedRule<'_>,
    seen: &QueryRequest<'_>,
    forward: &Forward<'_>,
) {
    let shown = |forward: &Forward<'_>| {
        let changes = effect::changes(forward);
        let changes = Some(changes).filter(|changes| *changes != ExplainedResponse::default());
        (Some(effect::received(query, Some(forward))), changes)
    };
    let of_rule = rule.filters.map(|filters| forward.with(&filters.rule));
    let common = of_rule.as_ref().unwrap_or(forward);
    let (request, response) = shown(common);
    let mut mirrors: Vec<&Mirror> = common.mirrors().map(|(mirror, _)| mirror).collect();
    let of_all = mirrors.len();
    for (index, share) in explanation.backends.iter_mut().enumerate() {
        let Action::Forward(own) = rule.action(seen, 0, || Some(index)) else {
            continue;
        };
        let (own_request, own_response) = shown(&own);
        share.request = own_request.filter(|own| Some(own) != request.as_ref());
        share.response = own_response.filter(|own| Some(own) != response.as_ref());
        mirrors.extend(own.mirrors().skip(of_all).map(|(mirror, _)| mirror));
    }
    explanation.mirrors = effect::mirrors(mirrors.into_iter());
    (explanation.request, explanation.response) = (request, response);
}
