//! Short ways to write frontends, routes and requests, for tests and benchmarks.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::Delta;
use pointsman_binding::bound::*;
use pointsman_resources::{Age, Kind, Name, ObjectKey};
use pointsman_routing::{FrontendTable, Request, Tables};

/// A request from its parts.
#[derive(Clone, Debug)]
pub struct Req {
    pub method: String,
    pub host: String,
    pub path: String,
    pub query: Option<String>,
    pub headers: Vec<(String, String)>,
}

impl Request for Req {
    fn method(&self) -> &str {
        &self.method
    }
    fn authority(&self) -> &str {
        &self.host
    }
    fn path(&self) -> &str {
        &self.path
    }
    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }
    fn header(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.headers
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_bytes())
    }
}

/// A GET for a host, path and query.
pub fn get(host: &str, target: &str) -> Req {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    Req {
        method: "GET".into(),
        host: host.into(),
        path: path.into(),
        query,
        headers: Vec::new(),
    }
}

impl Req {
    pub fn method(mut self, method: &str) -> Self {
        self.method = method.into();
        self
    }
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// A match without conditions.
pub fn matched(path: PathPredicate) -> BoundMatch {
    BoundMatch {
        index: 0,
        path,
        grpc: None,
        method: None,
        headers: vec![],
        query: vec![],
    }
}

pub fn prefix(path: &str) -> BoundMatch {
    matched(PathPredicate::Prefix(path.into()))
}

pub fn exact(path: &str) -> BoundMatch {
    matched(PathPredicate::Exact(path.into()))
}

pub fn regex(path: &str) -> BoundMatch {
    matched(PathPredicate::Regex(
        Pattern::new(path).expect("a good expression"),
    ))
}

pub fn value(name: &str, value: &str) -> ValuePredicate {
    ValuePredicate {
        name: name.into(),
        value: StringPredicate::Exact(value.into()),
    }
}

/// Conditions of a match besides the path.
pub trait MatchConditions: Sized {
    fn with_method(self, method: &str) -> Self;
    fn with_header(self, name: &str, value: &str) -> Self;
    fn with_query(self, name: &str, value: &str) -> Self;
}

impl MatchConditions for BoundMatch {
    fn with_method(mut self, method: &str) -> Self {
        self.method = Some(method.into());
        self
    }
    fn with_header(mut self, name: &str, wanted: &str) -> Self {
        self.headers.push(value(name, wanted));
        self
    }
    fn with_query(mut self, name: &str, wanted: &str) -> Self {
        self.query.push(value(name, wanted));
        self
    }
}

/// A rule that forwards all requests to one Service.
pub fn rule(matches: Vec<BoundMatch>, service: &str) -> BoundRule {
    BoundRule {
        index: 0,
        part: 0,
        name: None,
        matches,
        filters: vec![],
        backends: vec![backend(service, 1)],
        fault: None,
        request_timeout: None,
        backend_timeout: None,
        retry: None,
        from: vec![],
    }
}

pub fn backend(service: &str, weight: u32) -> WeightedBackend {
    WeightedBackend {
        reference: BackendName {
            kind: "Service".into(),
            name: Name::new("infra", service),
            port: Some(8080),
            tags: Default::default(),
        },
        weight,
        target: Ok(backend_id(service)),
        filters: vec![],
    }
}

pub fn backend_id(service: &str) -> BackendId {
    BackendId::new(
        ObjectKey::new(Kind::Service, "infra", service),
        8080,
        pointsman_binding::bound::Transport::Tcp,
    )
}

/// A backend with these endpoints.
pub fn service(name: &str, addresses: &[&str]) -> (Backend, Endpoints) {
    let id = backend_id(name);
    let endpoints = addresses
        .iter()
        .map(|address| BoundEndpoint::ready(address.parse().expect("an address")))
        .collect();
    let backend = Backend {
        id,
        protocol: BackendProtocol::Unspecified,
        tls: None,
        retry_budget: None,
    };
    (backend, Endpoints::Addresses(endpoints))
}

/// The change that adds these backends.
pub fn services(all: impl IntoIterator<Item = (Backend, Endpoints)>) -> Delta {
    let mut delta = Delta::default();
    for (backend, endpoints) in all {
        let id = backend.id.clone();
        delta
            .endpoints
            .push((id.clone(), Some(Arc::new(endpoints))));
        delta.backends.push((id, Some(Arc::new(backend))));
    }
    delta
}

/// An HTTPRoute `infra/name` of this age; rules and matches are numbered here.
pub fn route(name: &str, age: i64, hostnames: &[&str], rules: Vec<BoundRule>) -> BoundRoute {
    let number = |(index, mut rule): (usize, BoundRule)| {
        rule.index = index;
        for (index, matched) in rule.matches.iter_mut().enumerate() {
            matched.index = index;
        }
        Arc::new(rule)
    };
    let meta = RouteMeta {
        id: RouteId {
            route: ObjectKey::new(Kind::HTTPRoute, "infra", name),
            binding: RouteBinding::Gateway,
        },
        age: Age::At(age),
        generation: 1,
        dialect: Default::default(),
        hostnames: hostnames.iter().map(|name| Hostname::new(name)).collect(),
    };
    BoundRoute::new(meta, rules.into_iter().enumerate().map(number).collect())
}

pub fn gateway() -> Name {
    Name::new("infra", "edge")
}

/// A listener of the Gateway `infra/edge`.
pub fn listener(name: &str, port: u16, protocol: Protocol, hostname: Option<&str>) -> Frontend {
    let id = FrontendId::Listener {
        gateway: gateway(),
        owner: ObjectKey::new(Kind::Gateway, "infra", "edge"),
        listener: name.into(),
    };
    Frontend {
        hostname: hostname.map(Hostname::new),
        ..Frontend::new(id, protocol, port)
    }
}

/// A port of the Service `shop/cart`.
pub fn mesh(port: u16, scope: Scope, kind: Kind) -> Frontend {
    let id = FrontendId::Mesh {
        parent: cart(),
        transport: pointsman_binding::bound::Transport::of(kind),
        port,
        scope,
    };
    Frontend {
        kind: Some(kind),
        ..Frontend::new(id, Protocol::Http, port)
    }
}

pub fn cart() -> ObjectKey {
    ObjectKey::new(Kind::Service, "shop", "cart")
}

/// The change that adds a frontend and the routes attached to it.
pub fn added(frontend: Frontend, routes: Vec<BoundRoute>) -> Delta {
    let id = frontend.id.clone();
    let mut delta = Delta::default();
    for route in &routes {
        replace(&id, None, Some(route), &mut delta);
    }
    delta.frontends.push((id, Some(Arc::new(frontend))));
    delta
}

/// Adds the change from one version of a frontend's route to another to a delta.
pub fn replace(
    frontend: &FrontendId,
    old: Option<&BoundRoute>,
    new: Option<&BoundRoute>,
    delta: &mut Delta,
) {
    let Some(id) = new.or(old).map(|route| &route.id) else {
        return;
    };
    let meta = new.map(|route| route.meta.clone());
    delta.routes.push((id.clone(), meta));
    let mut rules: BTreeMap<RuleId, Option<Arc<BoundRule>>> = BTreeMap::new();
    for (route, is_new) in [(old, false), (new, true)] {
        for rule in route.into_iter().flat_map(|route| &route.rules) {
            let id = RuleId {
                route: id.clone(),
                index: rule.index,
                part: rule.part,
            };
            rules.insert(id, is_new.then(|| rule.clone()));
        }
    }
    delta.rules.extend(rules);
    if old.is_some() != new.is_some() {
        let attachment = Attachment::new(frontend, id);
        delta.attachments.push((attachment, new.is_some()));
    }
}

/// Tables of these changes.
pub fn tables(deltas: impl IntoIterator<Item = Delta>) -> Tables {
    let mut tables = Tables::default();
    for delta in deltas {
        tables.apply(&delta);
    }
    tables
}

/// The table of one HTTP listener with these routes.
pub fn http(routes: Vec<BoundRoute>) -> Arc<FrontendTable> {
    let tables = tables([added(listener("http", 80, Protocol::Http, None), routes)]);
    tables
        .listener(&gateway(), 80, Some("x"))
        .expect("the listener")
        .clone()
}

/// Returns the Service of the matching rule, or `-` if no rule matches.
pub fn to(table: &FrontendTable, request: &Req) -> String {
    match table.lookup(request) {
        Some(hit) => hit.rule.backends[0].reference.name.name.to_string(),
        None => "-".into(),
    }
}

pub fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}
