//! Fuzzes request matching, with a table that has every type of match: it never panics, and normalizing a path twice does not change it again.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use pointsman_binding::{Binder, Change};
use pointsman_resources::Name;
use pointsman_resources::read::ManifestReader;
use pointsman_routing::explain::ParsedUrl;
use pointsman_routing::{FrontendTable, Parameters, PathPolicy, Request, Tables, normalize_path};

/// A request that is read from lines of text: method, host, target, and one line per header.
struct TextRequest<'d> {
    method: &'d str,
    host: &'d str,
    path: &'d str,
    query: Option<&'d str>,
    headers: Vec<(&'d str, &'d str)>,
}

impl Request for TextRequest<'_> {
    fn method(&self) -> &str {
        self.method
    }
    fn authority(&self) -> &str {
        self.host
    }
    fn path(&self) -> &str {
        self.path
    }
    fn query(&self) -> Option<&str> {
        self.query
    }
    fn header(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.headers
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_bytes())
    }
}

/// Builds the table of a Gateway with one listener and a route for each kind of hostname. Each route has a rule for each type of path.
fn table() -> Arc<FrontendTable> {
    let paths = [
        "{value: /}",
        "{value: /a}",
        "{value: /a/b}",
        "{type: Exact, value: /a/}",
        "{type: Exact, value: /a/b/c}",
        "{type: RegularExpression, value: '/[a-c]+(/[0-9]+)*'}",
        "{type: RegularExpression, value: '/(x|y)*z'}",
        "{type: RegularExpression, value: '.*%2[fF].*'}",
    ];
    let rules: String = paths
        .iter()
        .map(|path| {
            format!(
                "  - matches: [{{path: {path}}}, {{path: {path}, method: GET}}, {{path: {path}, headers: [{{name: a, value: '1'}}]}}, \
                 {{path: {path}, queryParams: [{{name: q, value: '1'}}]}}]\n"
            )
        })
        .collect();
    let mut yaml = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: ours}\nspec: {controllerName: pointsman.io/controller}\n---\n\
        apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: fuzz}\n\
        spec: {gatewayClassName: ours, listeners: [{name: l, port: 80, protocol: HTTP}]}\n"
        .to_owned();
    for (name, hostnames) in [("exact", "[a.b]"), ("wildcard", "['*.b']"), ("any", "[]")] {
        yaml += &format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: fuzz}}\n\
             spec:\n  parentRefs: [{{name: edge}}]\n  hostnames: {hostnames}\n  rules:\n{rules}"
        );
    }
    let mut reader = ManifestReader::new();
    reader.read("table.yaml", yaml.as_bytes());
    let read = reader.finish();
    assert!(read.findings.is_empty(), "{:?}", read.findings);
    let changes = read
        .documents
        .into_iter()
        .map(|document| Change::Put(document.resource));
    let mut tables = Tables::default();
    tables.apply(&Binder::new().apply(changes));
    let port = tables.port(&Name::new("fuzz", "edge"), 80);
    port.and_then(|port| port.any())
        .expect("a listener")
        .clone()
}

static TABLE: LazyLock<Arc<FrontendTable>> = LazyLock::new(table);

fuzz_target!(|data: &str| {
    let _ = ParsedUrl::parse(data);
    let mut lines = data.split('\n');
    let method = lines.next().unwrap_or_default();
    let host = lines.next().unwrap_or_default();
    let target = lines.next().unwrap_or_default();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    if let Some(query) = query {
        let _ = Parameters::parse(query).get("q");
    }
    let strict = PathPolicy::Strict.normalize(path);
    let Ok(path) = normalize_path(path) else {
        assert!(strict.is_err());
        return;
    };
    if let Ok(strict) = strict {
        assert_eq!(strict, path);
        let lower = strict.to_ascii_lowercase();
        let ambiguous = ["%2f", "%5c", "//", ";"];
        assert!(
            !ambiguous.iter().any(|part| lower.contains(part)),
            "{strict}"
        );
    }
    let again = normalize_path(&path).expect("a normalized path is valid");
    assert_eq!(again, path, "normalization is idempotent");
    let headers = lines.filter_map(|line| line.split_once(':')).collect();
    let request = TextRequest {
        method,
        host,
        path: &path,
        query,
        headers,
    };
    let hit = TABLE.lookup(&request);
    // The last regular expression also matches paths that don't start with a slash.
    let escaped = path.contains("%2f") || path.contains("%2F");
    assert_eq!(hit.is_some(), path.starts_with('/') || escaped, "{path}");
});
