//! Hostile requests against a table of every kind of match: nothing panics, and a path is normal after it was normalised once.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use pointsman_binding::bound::*;
use pointsman_resources::{Age, Kind, Name, ObjectKey};
use pointsman_routing::explain::Target;
use pointsman_routing::{FrontendTable, Parameters, Request, normalize_path};

/// Method, host, path, query and headers, a line each.
struct Lines<'d> {
    method: &'d str,
    host: &'d str,
    path: &'d str,
    query: Option<&'d str>,
    headers: Vec<(&'d str, &'d str)>,
}

impl Request for Lines<'_> {
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

fn value(name: &str, value: &str) -> ValuePredicate {
    ValuePredicate {
        name: name.into(),
        value: StringPredicate::Exact(value.into()),
    }
}

static TABLE: LazyLock<FrontendTable> = LazyLock::new(|| {
    let paths = [
        PathPredicate::Prefix("/".into()),
        PathPredicate::Prefix("/a".into()),
        PathPredicate::Prefix("/a/b".into()),
        PathPredicate::Exact("/a/".into()),
        PathPredicate::Exact("/a//b".into()),
        PathPredicate::Regex(whole("/[a-c]+(/[0-9]+)*").expect("a good expression")),
        PathPredicate::Regex(whole("/(x|y)*z").expect("a good expression")),
        PathPredicate::Regex(whole(".*%2[fF].*").expect("a good expression")),
    ];
    let rule = |(index, path): (usize, PathPredicate)| {
        let matched = |number: usize| BoundMatch {
            index: number,
            path: path.clone(),
            grpc: None,
            method: (number == 1).then(|| "GET".into()),
            headers: if number == 2 {
                vec![value("a", "1")]
            } else {
                vec![]
            },
            query: if number == 3 {
                vec![value("q", "1")]
            } else {
                vec![]
            },
        };
        Arc::new(BoundRule {
            index,
            name: None,
            matches: (0..4).map(matched).collect(),
            filters: vec![],
            backends: vec![],
            fault: None,
            request_timeout: None,
            backend_timeout: None,
            retry: None,
        })
    };
    let frontend = Frontend {
        id: FrontendId::Listener {
            gateway: Name::new("n", "g"),
            owner: ObjectKey::new(Kind::Gateway, "n", "g"),
            listener: "l".into(),
        },
        protocol: Protocol::Http,
        port: 80,
        hostname: None,
        tls: None,
        client_certificate: None,
        kind: None,
    };
    let mut table = FrontendTable::new(Arc::new(frontend));
    for (name, host) in [
        ("exact", Some("a.b")),
        ("wildcard", Some("*.b")),
        ("any", None),
    ] {
        let route = BoundRoute {
            route: ObjectKey::new(Kind::HTTPRoute, "n", name),
            age: Age::Place(0),
            generation: 1,
            hostnames: host.map(Hostname::new).into_iter().collect(),
            rules: paths.clone().into_iter().enumerate().map(rule).collect(),
        };
        table.set_route(&route.route.clone(), Some(Arc::new(route)));
    }
    table
});

fuzz_target!(|data: &str| {
    let _ = Target::parse(data);
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
    let Ok(path) = normalize_path(path) else {
        return;
    };
    let again = normalize_path(&path).expect("a normal path is a good one");
    assert_eq!(again, path, "normal once is normal for good");
    let headers = lines.filter_map(|line| line.split_once(':')).collect();
    let request = Lines {
        method,
        host,
        path: &path,
        query,
        headers,
    };
    let hit = TABLE.lookup(&request);
    // The last expression needs no slash at the start.
    let escaped = path.contains("%2f") || path.contains("%2F");
    assert_eq!(hit.is_some(), path.starts_with('/') || escaped, "{path}");
});
