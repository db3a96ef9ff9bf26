//! `explain`: the rule that matches a request, and the reasons why the others do not.
//!
//! The winner is determined by the same lookup as in the proxy. All other rules are evaluated with the same predicates, and a recorder notes the reasons.

mod candidates;
mod decision;
mod effect;
mod frontend_selection;
mod model;
mod outbound;
mod query;

pub use model::{
    BackendShare, Candidate, ExplainedResponse, Explanation, FrontendRef, MirrorShare, Outcome,
    ReceivedRequest, RefusedCandidate, ReplyStatus, RuleRef, Timeouts,
};
pub use query::{Directory, DirectoryEntry, ParsedUrl, Query, QueryError, Scheme};

pub(crate) use candidates::{advantage, rule_ref};
pub(crate) use decision::{Decision, at_table, carries_streams, decide};
pub(crate) use frontend_selection::reference;
pub(crate) use query::{QueryRequest, cluster_domain};

use std::sync::Arc;

use pointsman_binding::bound::{BackendId, FrontendId, Transport};

use crate::entry::LookupResult;
use crate::table::FrontendTable;
use crate::tables::Tables;
use candidates::{Traffic, candidates};

/// Explains the routing of a request.
///
/// `refused` returns the routes with a given parent and port that were not allowed to attach, or that lost as a whole to another kind.
pub fn explain(
    tables: &Tables,
    directory: &Directory,
    query: &Query,
    refused: impl FnOnce(&BackendId) -> Vec<RefusedCandidate>,
) -> Explanation {
    let decision = decide(tables, directory, query);
    let mut explanation = decision.explanation;
    explanation.candidates = match (decision.table, decision.unrouted) {
        (Some(table), _) => {
            let others = refused(&destination(table));
            let winner = decision.hit.as_ref().ok_or(decision.obstacle);
            other_candidates(tables, table, query, winner, others)
        }
        (None, Some(called)) => {
            let traffic = Traffic::<QueryRequest<'_>>::Stream(None);
            let (parent, port) = (&called.object, called.port);
            let others = refused(called);
            candidates(
                tables,
                None,
                parent,
                port,
                &traffic,
                Err(decision.obstacle),
                others,
            )
        }
        (None, None) => Vec::new(),
    };
    explanation
}

/// Returns the parent and port of a frontend. For an outbound this is the destination, whose port may differ from that of the socket.
fn destination(table: &FrontendTable) -> BackendId {
    let frontend = table.frontend();
    match &frontend.id {
        FrontendId::Outbound(outbound) => outbound.destination.clone(),
        id => BackendId::new(id.parent().clone(), frontend.port, Transport::Tcp),
    }
}

fn other_candidates(
    tables: &Tables,
    table: &Arc<FrontendTable>,
    query: &Query,
    winner: Result<&LookupResult<'_>, &str>,
    refused: Vec<RefusedCandidate>,
) -> Vec<Candidate> {
    let seen = QueryRequest::new(query);
    let sni = query.sni();
    let traffic = match carries_streams(table) {
        true => Traffic::Stream(sni.as_deref()),
        false => Traffic::Request(&seen),
    };
    let frontend = table.frontend();
    candidates(
        tables,
        Some(table),
        frontend.id.parent(),
        frontend.port,
        &traffic,
        winner,
        refused,
    )
}
