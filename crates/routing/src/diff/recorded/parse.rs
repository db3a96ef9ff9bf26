//! Parser for recorded requests: Pointsman's access log as JSON, or lines of the form `METHOD URL`.

use std::collections::HashMap;
use std::sync::Arc;

use pointsman_binding::bound::FrontendId;
use serde::Deserialize;

use super::{LoggedRequest, RecordedRequest};
use crate::explain::{Query, QueryError};
use crate::path::PathPolicy;
use crate::table::FrontendTable;
use crate::tables::Tables;

/// An entry of the access log, as far as it describes the request.
#[derive(Deserialize, PartialEq, Eq, Hash)]
struct LogEntry {
    listener: Option<String>,
    method: Option<String>,
    authority: Option<String>,
    path: Option<String>,
    #[serde(default)]
    grpc_status: Option<u32>,
}

/// Recorded requests.
#[derive(Debug)]
pub struct RecordedRequests {
    /// The requests, in the order of the record.
    pub requests: Vec<RecordedRequest>,
    /// Number of log entries that name no frontend of either side.
    pub skipped: usize,
}

/// A line that is not a recorded request.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct RecordError {
    line: usize,
    error: LineError,
}

#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Logged(#[from] QueryError),
    #[error("{url}: {error}")]
    Url { url: String, error: QueryError },
    #[error("the header `{0}` has no request before it")]
    NoRequest(String),
    #[error(
        "`{0}` is neither `METHOD URL`, a header (`name: value`) nor an entry of Pointsman's access log in JSON"
    )]
    Unknown(String),
}

/// Parses recorded requests. Log entries are compared at the frontends that received them, so entries of frontends that no side has are skipped.
/// `listener_name` returns the name of a frontend in the log.
pub fn parse_recorded(
    text: &str,
    tables: [&Tables; 2],
    policy: PathPolicy,
    listener_name: impl Fn(&FrontendId) -> String,
) -> Result<RecordedRequests, RecordError> {
    let mut listeners: HashMap<String, &Arc<FrontendTable>> = HashMap::new();
    for table in tables.iter().flat_map(|tables| tables.frontends()) {
        let name = listener_name(&table.frontend().id);
        listeners.entry(name).or_insert(table);
    }
    let mut requests: Vec<RecordedRequest> = Vec::new();
    let mut entries: HashMap<LogEntry, usize> = HashMap::new();
    let mut skipped = 0;
    for (index, line) in text.lines().enumerate() {
        let (number, line) = (index + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let located = |error| RecordError {
            line: number,
            error,
        };
        if line.starts_with('{') {
            let entry: LogEntry =
                serde_json::from_str(line).map_err(|error| located(error.into()))?;
            // Equal requests are decided once.
            if let Some(position) = entries.get(&entry) {
                requests[*position].count += 1;
                continue;
            }
            match of_entry(&entry, &listeners).map_err(|error| located(error.into()))? {
                Some(query) => {
                    entries.insert(entry, requests.len());
                    requests.push(RecordedRequest {
                        query,
                        line: number,
                        count: 1,
                    });
                }
                None => skipped += 1,
            }
        } else if let Some(header) = header(line) {
            let Some(request) = requests.last_mut() else {
                return Err(located(LineError::NoRequest(line.to_owned())));
            };
            request.query.headers.push(header);
        } else {
            requests.push(RecordedRequest {
                query: of_line(line).map_err(located)?,
                line: number,
                count: 1,
            });
        }
    }
    for request in &mut requests {
        request.query.paths = policy;
    }
    Ok(RecordedRequests { requests, skipped })
}

/// Returns the query of a log entry; `None` if no frontend received it.
fn of_entry(
    entry: &LogEntry,
    listeners: &HashMap<String, &Arc<FrontendTable>>,
) -> Result<Option<Query>, QueryError> {
    let listener = entry.listener.as_ref();
    let Some(table) = listener.and_then(|name| listeners.get(name)) else {
        return Ok(None);
    };
    let logged = LoggedRequest {
        method: entry.method.as_deref(),
        authority: entry.authority.as_deref(),
        path: entry.path.as_deref(),
        grpc: entry.grpc_status.is_some(),
    };
    match logged.query(table) {
        Ok(query) => Ok(Some(query)),
        // The path was rejected when it was received, and still is.
        Err(_) if entry.path.is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses a header line. A method has no colon.
fn header(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
    let is_url = value.starts_with("//");
    (is_name && !is_url).then(|| (name.to_ascii_lowercase(), value.trim().to_owned()))
}

fn of_line(line: &str) -> Result<Query, LineError> {
    let mut words = line.split_whitespace();
    let (Some(method), Some(url), None) = (words.next(), words.next(), words.next()) else {
        return Err(LineError::Unknown(line.to_owned()));
    };
    let mut query = Query::new(url).map_err(|error| LineError::Url {
        url: url.to_owned(),
        error,
    })?;
    query.method = method.to_owned();
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<RecordedRequest>, RecordError> {
        let tables = Tables::default();
        let name = |_: &FrontendId| String::new();
        let recorded = parse_recorded(text, [&tables, &tables], PathPolicy::Any, name);
        recorded.map(|recorded| recorded.requests)
    }

    #[test]
    fn a_line_with_a_method_and_a_url_may_be_followed_by_headers() {
        let text = "# most frequent first\nGET http://shop.example/cart\nX-Canary: yes\n\nPOST https://shop.example/pay?a=1\n";
        let requests = parse(text).expect("valid");
        let found: Vec<_> = requests
            .iter()
            .map(|request| {
                (
                    request.line,
                    &*request.query.method,
                    &*request.query.target.path,
                )
            })
            .collect();
        assert_eq!(found, [(2, "GET", "/cart"), (5, "POST", "/pay")]);
        assert_eq!(
            requests[0].query.headers,
            [("x-canary".to_owned(), "yes".to_owned())]
        );
    }

    #[test]
    fn a_line_that_is_no_request_is_an_error_with_its_number() {
        for (text, wanted) in [
            ("GET http://a/\nhello", "line 2"),
            ("x-a: 1", "line 1"),
            ("GET ftp://a/", "line 1"),
            ("\n{\"method\": 1}", "line 2"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
}
