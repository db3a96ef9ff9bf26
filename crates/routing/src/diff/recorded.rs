//! Recorded requests: the frontend that a log names receives them again.

mod parse;

use super::frontend_group::{FrontendGroup, scheme};
use super::group::{DecisionDifference, Groups};
use super::request::RepresentativeRequest;
use super::{RecordedResult, Side, effect};
use crate::explain::{ParsedUrl, Query, QueryError, decide};
use crate::table::FrontendTable;

pub use parse::{RecordError, RecordedRequests, parse_recorded};

/// A recorded request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The request.
    pub query: Query,
    /// Its line in the record.
    pub line: usize,
    /// Number of times that it was recorded.
    pub count: usize,
}

/// A request as an access log describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LoggedRequest<'l> {
    /// The method; `None` for a stream.
    pub method: Option<&'l str>,
    /// The requested host, or the SNI.
    pub authority: Option<&'l str>,
    /// Path and query as received.
    pub path: Option<&'l str>,
    /// The request was a gRPC call.
    pub grpc: bool,
}

impl LoggedRequest<'_> {
    /// Creates the query for the same request at the frontend that received it.
    pub fn query(&self, table: &FrontendTable) -> Result<Query, QueryError> {
        let authority = self.authority.filter(|host| !host.is_empty());
        let path = self.path.filter(|path| path.starts_with('/'));
        let (authority, path) = (authority.unwrap_or("unknown.invalid"), path.unwrap_or("/"));
        let target = ParsedUrl::parse(&format!("http://{authority}{path}"))?;
        let probe = RepresentativeRequest {
            host: target.host.clone(),
            path: target.path.clone(),
            method: self.method.unwrap_or("GET").to_owned(),
            headers: Vec::new(),
            query: Vec::new(),
            grpc: self.grpc,
        };
        let mut query = FrontendGroup::of(table).query(&probe, scheme(table));
        if query.target.scheme.is_http() {
            query.target.query = target.query;
            query.target.ambiguity = target.ambiguity;
        }
        Ok(query)
    }
}

/// Compares the treatment of recorded requests.
pub(super) fn compare(sides: [&Side<'_>; 2], recorded: &[RecordedRequest]) -> RecordedResult {
    let mut groups = Groups::new(sides);
    let (mut requests, mut changed) = (0, 0);
    for request in recorded {
        let query = &request.query;
        requests += request.count;
        let decisions = sides.map(|side| decide(side.tables, side.directory, query));
        let [old, new] = &decisions;
        let changes = effect::changes((sides[0], old), (sides[1], new));
        if !changes.is_empty() {
            changed += request.count;
            groups.add(DecisionDifference {
                query,
                decisions: &decisions,
                changes,
                recorded: Some((request.line, request.count)),
                is_port: query.from.is_none() && query.dataplane.is_none(),
            });
        }
    }
    RecordedResult {
        requests,
        changed,
        differences: groups.finish(),
    }
}
