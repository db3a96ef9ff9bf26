//! Recorded requests: Pointsman's access log as JSON, or lines of the form `METHOD URL`.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use pointsman_proxy::logged_listener;
use pointsman_routing::diff::{LoggedRequest, RecordedRequest};
use pointsman_routing::explain::Query;
use pointsman_routing::{FrontendTable, PathPolicy, Tables};
use serde::Deserialize;

use crate::output;

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

/// Reads recorded requests. Log entries are compared at the frontends that received them, so entries of frontends that no side has are skipped with a warning.
pub fn read(path: &Path, tables: [&Tables; 2], policy: PathPolicy) -> Result<Vec<RecordedRequest>> {
    let text = read_text(path).with_context(|| path.display().to_string())?;
    let mut requests = parse(&text, tables).with_context(|| path.display().to_string())?;
    for request in &mut requests {
        request.query.paths = policy;
    }
    Ok(requests)
}

fn read_text(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    Ok(std::fs::read_to_string(path)?)
}

fn parse(text: &str, tables: [&Tables; 2]) -> Result<Vec<RecordedRequest>> {
    let mut listeners: HashMap<String, &Arc<FrontendTable>> = HashMap::new();
    for table in tables.iter().flat_map(|tables| tables.frontends()) {
        let name = logged_listener(&table.frontend().id);
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
        let here = || format!("line {number}");
        if line.starts_with('{') {
            let entry: LogEntry = serde_json::from_str(line).with_context(here)?;
            // Equal requests are decided once.
            if let Some(position) = entries.get(&entry) {
                requests[*position].count += 1;
                continue;
            }
            match of_entry(&entry, &listeners).with_context(here)? {
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
                bail!("line {number}: the header `{line}` has no request before it");
            };
            request.query.headers.push(header);
        } else {
            requests.push(RecordedRequest {
                query: of_line(line).with_context(here)?,
                line: number,
                count: 1,
            });
        }
    }
    if skipped > 0 {
        output::print_error(&format!(
            "warning: {skipped} recorded requests are skipped: they name no listener, or one that neither set of manifests has"
        ));
    }
    Ok(requests)
}

/// Returns the query of a log entry; `None` if no frontend received it.
fn of_entry(
    entry: &LogEntry,
    listeners: &HashMap<String, &Arc<FrontendTable>>,
) -> Result<Option<Query>> {
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
        Err(error) => Err(error.into()),
    }
}

/// Parses a header line. A method has no colon.
fn header(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
    let is_url = value.starts_with("//");
    (is_name && !is_url).then(|| (name.to_ascii_lowercase(), value.trim().to_owned()))
}

fn of_line(line: &str) -> Result<Query> {
    let mut words = line.split_whitespace();
    let (Some(method), Some(url), None) = (words.next(), words.next(), words.next()) else {
        bail!(
            "`{line}` is neither `METHOD URL`, a header (`name: value`) nor an entry of Pointsman's access log in JSON"
        );
    };
    let mut query = Query::new(url).with_context(|| url.to_owned())?;
    query.method = method.to_owned();
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_method_and_a_url_may_be_followed_by_headers() {
        let text = "# most frequent first\nGET http://shop.example/cart\nX-Canary: yes\n\nPOST https://shop.example/pay?a=1\n";
        let tables = Tables::default();
        let requests = parse(text, [&tables, &tables]).expect("valid");
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
        let tables = Tables::default();
        for (text, wanted) in [
            ("GET http://a/\nhello", "line 2"),
            ("x-a: 1", "line 1"),
            ("GET ftp://a/", "line 1"),
            ("\n{\"method\": 1}", "line 2"),
        ] {
            let error = parse(text, [&tables, &tables]).expect_err(text);
            assert!(format!("{error:#}").contains(wanted), "{error:#}");
        }
    }
}
