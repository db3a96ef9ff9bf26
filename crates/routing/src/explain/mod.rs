//! `explain`: which rule takes a request and why, and why every other one does not.
//!
//! The winner is found by the very lookup that the proxy runs; the others are held against the same predicates with a recorder that
//! listens.

mod candidates;
mod choose;
mod effect;
mod model;
mod outbound;
mod query;

pub use model::{
    BackendShare, Candidate, Explanation, FrontendRef, MirrorShare, Outcome, Received,
    RefusedCandidate, Response, RuleRef, Status, Timeouts,
};
pub use query::{Directory, MeshParent, Query, QueryError, Scheme, Target};

pub(crate) use candidates::advantage;

use std::sync::Arc;

use pointsman_binding::bound::{BackendId, FrontendId, Protocol, Transport};
use pointsman_resources::Kind;

use crate::entry::Hit;
use crate::filters::cors::Verdict;
use crate::filters::{Filters, RuleFilters};
use crate::table::FrontendTable;
use crate::tables::Tables;
use candidates::{Arrival, candidates, rule_ref};
use choose::{Chosen, choose, reference};
use effect::{Draft, Tongue};
use query::Seen;

/// Says what becomes of a request.
///
/// `refused` gives the routes that name a parent, at a port, or are for what a proxy calls, and were not let in or lost as a whole to another kind.
pub fn explain(
    tables: &Tables,
    directory: &Directory,
    query: &Query,
    refused: impl FnOnce(&BackendId) -> Vec<RefusedCandidate>,
) -> Explanation {
    match choose(tables, directory, query) {
        Chosen::Nowhere { why, status } => {
            let mut explanation = Explanation::new(why, Outcome::NoFrontend);
            match (status, effect::tongue(query, false)) {
                (Some(Status::Http(status)), tongue) => explanation.answer(tongue, status),
                (status, _) => explanation.status = status,
            }
            explanation
        }
        Chosen::Misdirected { table, why } => {
            let mut explanation = Explanation::new(why, Outcome::Respond);
            explanation.frontend = Some(reference(table.frontend()));
            // Kuma: "SNI ≠ Host on HTTPS => 404".
            let of_kuma = table.frontend().id.parent().kind == Kind::MeshGateway;
            explanation.status = Some(Status::Http(if of_kuma { 404 } else { 421 }));
            explanation.reason = Some("the connection's listener does not serve this host".into());
            let others = refused(&called(table));
            explanation.candidates = others_of(tables, table, query, None, others);
            explanation
        }
        Chosen::Implicit {
            parent,
            backend,
            why,
        } => {
            let port = backend.id.port;
            let tongue = effect::tongue(query, false);
            let mut explanation = Explanation::new(why, Outcome::Forward);
            explanation.frontend = Some(FrontendRef {
                kind: parent.object.kind.name(),
                namespace: parent.object.name.namespace.to_string(),
                name: parent.object.name.name.to_string(),
                section: None,
                port,
                gateway: None,
                scope: None,
            });
            explanation.backends = vec![effect::implicit(backend, tongue)];
            if tongue != Tongue::Stream {
                explanation.request = Some(Draft::new(query).received());
            }
            let arrival = Arrival::<Seen<'_>>::Stream(None);
            let others = refused(&backend.id);
            explanation.candidates =
                candidates(tables, None, &parent.object, port, &arrival, None, others);
            explanation
        }
        Chosen::Frontend { table, why } => {
            let others = refused(&called(table));
            at_frontend(tables, table, query, why, others)
        }
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

    /// Whether every share is answered with an error.
    pub fn fails(&self) -> bool {
        let mut used = self
            .backends
            .iter()
            .filter(|one| one.share > 0.0)
            .peekable();
        used.peek().is_some() && used.all(|one| one.reason.is_some())
    }

    fn answer(&mut self, tongue: Tongue, status: u16) {
        (self.status, self.grpc_status) = tongue.tell(status);
    }
}

/// The parent and port that a frontend stands for, or what is called there: an outbound may be listened on at another port.
fn called(table: &FrontendTable) -> BackendId {
    let frontend = table.frontend();
    match &frontend.id {
        FrontendId::Outbound(outbound) => outbound.destination.clone(),
        id => BackendId::new(id.parent().clone(), frontend.port, Transport::Tcp),
    }
}

/// Whether a frontend sees requests, or only streams.
fn carries_streams(table: &FrontendTable) -> bool {
    let frontend = table.frontend();
    match (&frontend.id, frontend.kind) {
        (FrontendId::Mesh { .. }, Some(kind)) => !matches!(kind, Kind::HTTPRoute | Kind::GRPCRoute),
        _ => !matches!(frontend.protocol, Protocol::Http | Protocol::Https),
    }
}

fn others_of(
    tables: &Tables,
    table: &Arc<FrontendTable>,
    query: &Query,
    winner: Option<&Hit<'_>>,
    refused: Vec<RefusedCandidate>,
) -> Vec<Candidate> {
    let seen = Seen::new(query);
    let sni = query.sni();
    let arrival = match carries_streams(table) {
        true => Arrival::Stream(sni.as_deref()),
        false => Arrival::Request(&seen),
    };
    let frontend = table.frontend();
    candidates(
        tables,
        Some(table),
        frontend.id.parent(),
        frontend.port,
        &arrival,
        winner,
        refused,
    )
}

fn at_frontend(
    tables: &Tables,
    table: &Arc<FrontendTable>,
    query: &Query,
    why: String,
    refused: Vec<RefusedCandidate>,
) -> Explanation {
    let streams = carries_streams(table);
    let mut explanation = Explanation::new(why, Outcome::NoRoute);
    explanation.frontend = Some(reference(table.frontend()));
    if !streams && !query.target.scheme.is_http() {
        explanation.status = Some(Status::Reset);
        explanation.reason = Some("HTTP is spoken here, and this is none".into());
        explanation.candidates = others_of(tables, table, query, None, refused);
        return explanation;
    }
    let hit = match streams {
        true => table.lookup_stream(query.sni().as_deref()),
        false => table.lookup(&Seen::new(query)),
    };
    let tongue = effect::tongue(query, streams);
    match &hit {
        None => {
            explanation.answer(tongue, 404);
            explanation.reason = Some("no rule takes it".into());
        }
        Some(hit) => taken(&mut explanation, tables, table, query, hit, tongue),
    }
    explanation.candidates = others_of(tables, table, query, hit.as_ref(), refused);
    explanation
}

/// What the winning rule makes of the request.
fn taken(
    explanation: &mut Explanation,
    tables: &Tables,
    table: &FrontendTable,
    query: &Query,
    hit: &Hit<'_>,
    tongue: Tongue,
) {
    explanation.rule = (!hit.route.is_implicit(hit.rule)).then(|| rule_ref(hit));
    let compiled: Option<&RuleFilters> = hit.filters.map(|filters| &**filters);
    let none = Filters::default();
    let filters = compiled.map_or(&none, |compiled| &compiled.rule);
    let rule = hit.rule;

    if let Some(fault) = &rule.fault {
        explanation.outcome = Outcome::Respond;
        explanation.answer(tongue, fault.status);
        explanation.reason = Some(fault.message.clone());
        return;
    }
    let verdict = effect::cors(query, filters);
    if let Some(Verdict::Preflight(_)) = verdict {
        explanation.outcome = Outcome::Respond;
        explanation.status = Some(Status::Http(204));
        let answer = effect::response(verdict.as_ref(), &[]);
        explanation.response = Some(Response {
            status: Some(204),
            ..answer
        });
        return;
    }
    let mut response = effect::response(verdict.as_ref(), &[filters]);
    let frontend = table.frontend();
    if let Some((status, location)) = effect::redirect(query, filters, frontend) {
        explanation.outcome = Outcome::Redirect;
        explanation.status = Some(Status::Http(status));
        response.status = Some(status);
        response.headers.insert("location".to_owned(), location);
        explanation.response = Some(response);
        return;
    }
    if let Some(direct) = &filters.direct {
        explanation.outcome = Outcome::Respond;
        explanation.status = Some(Status::Http(direct.status));
        response.status = Some(direct.status);
        let body = String::from_utf8_lossy(&direct.body).into_owned();
        response.body = Some(body).filter(|body| !body.is_empty());
        explanation.response = Some(response);
        return;
    }
    let draft = Draft::new(query).after(filters);
    explanation.backends = effect::shares(tables, rule, compiled, &draft, verdict.as_ref(), tongue);
    explanation.mirrors = effect::mirrors(
        filters
            .mirrors
            .iter()
            .chain(
                compiled
                    .iter()
                    .flat_map(|compiled| &compiled.backends)
                    .flat_map(|own| &own.mirrors),
            )
            .map(|(mirror, _)| mirror),
    );
    explanation.timeouts = effect::timeouts(rule);
    let reason = match rule.backends.as_slice() {
        [] => Some((500, "the rule has no backends")),
        all if all.iter().all(|backend| backend.weight == 0) => Some((503, "every weight is 0")),
        _ => None,
    };
    if let Some((status, reason)) = reason {
        explanation.outcome = Outcome::Respond;
        explanation.answer(tongue, status);
        explanation.reason = Some(reason.to_owned());
        return;
    }
    explanation.outcome = Outcome::Forward;
    if tongue != Tongue::Stream {
        explanation.request = Some(draft.received());
        explanation.response = Some(response).filter(|response| *response != Response::default());
    }
}
