//! What a rule does to a request: what backends receive, what clients are answered.

use std::collections::BTreeMap;
use std::time::Duration;

use pointsman_binding::bound::{
    Backend, BackendName, BoundRule, Endpoints, Fault, Frontend, Mirror, Protocol, WeightedBackend,
};

use super::model::{BackendShare, MirrorShare, Received, Response, Status, Timeouts};
use super::query::Query;
use crate::filters::cors::{Asked, Verdict};
use crate::filters::headers::{Edit, apply};
use crate::filters::redirect::{Manner, Requested};
use crate::filters::{Filters, RuleFilters};
use crate::tables::Tables;

/// In which protocol errors are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tongue {
    Http,
    Grpc,
    Stream,
}

/// gRPC's UNIMPLEMENTED.
const UNIMPLEMENTED: u16 = 12;
/// gRPC's UNAVAILABLE.
const UNAVAILABLE: u16 = 14;

impl Tongue {
    /// An HTTP status in this protocol: HTTP's or a cut stream, and gRPC's.
    pub(crate) fn tell(self, status: u16) -> (Option<Status>, Option<u16>) {
        match self {
            Tongue::Http => (Some(Status::Http(status)), None),
            Tongue::Grpc if status == 404 => (None, Some(UNIMPLEMENTED)),
            Tongue::Grpc => (None, Some(UNAVAILABLE)),
            Tongue::Stream => (Some(Status::Reset), None),
        }
    }
}

/// The request as it stands after some filters.
#[derive(Clone)]
pub(crate) struct Draft<'q> {
    query: &'q Query,
    path: String,
    headers: Vec<(String, String)>,
}

impl<'q> Draft<'q> {
    /// As the client sends it.
    pub(crate) fn new(query: &'q Query) -> Self {
        let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
        let mut headers: Vec<(String, String)> = query.headers.iter().map(lower).collect();
        if !headers.iter().any(|(name, _)| name == "host") {
            headers.insert(0, ("host".to_owned(), query.authority()));
        }
        Draft {
            query,
            path: query.target.path.clone(),
            headers,
        }
    }

    /// As it is after these filters. A path is rewritten from the client's: a backend's rewrite stands in place of its rule's.
    pub(crate) fn after(&self, filters: &Filters) -> Self {
        let mut draft = self.clone();
        apply(&filters.request, &mut draft.headers);
        if let Some(rewrite) = &filters.path {
            draft.path = rewrite.apply(&self.query.target.path).into_owned();
        }
        draft
    }

    pub(crate) fn received(&self) -> Received {
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in &self.headers {
            join(&mut headers, name, value);
        }
        let host = headers.get("host").map_or("", String::as_str);
        let mut url = format!(
            "{}://{host}{}",
            self.query.target.scheme.as_str(),
            self.path
        );
        if let Some(query) = &self.query.target.query {
            url.extend(["?", query]);
        }
        Received {
            method: self.query.method.clone(),
            url,
            headers,
        }
    }
}

fn join(headers: &mut BTreeMap<String, String>, name: &str, value: &str) {
    match headers.get_mut(name) {
        Some(values) => values.extend([",", value]),
        None => drop(headers.insert(name.to_owned(), value.to_owned())),
    }
}

/// What CORS makes of the request.
pub(crate) fn cors(query: &Query, filters: &Filters) -> Option<Verdict> {
    let header = |name: &str| {
        let line = query
            .headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name));
        line.map(|(_, value)| value.as_str())
    };
    filters.cors.as_ref()?.judge(&Asked {
        method: &query.method,
        origin: header("origin"),
        request_method: header("access-control-request-method"),
        request_headers: header("access-control-request-headers"),
    })
}

/// The changes to a response: by CORS, then by filters.
pub(crate) fn response(verdict: Option<&Verdict>, filters: &[&Filters]) -> Response {
    let mut response = Response::default();
    if let Some(Verdict::Preflight(lines) | Verdict::Simple(lines)) = verdict {
        for (name, value) in lines {
            join(&mut response.headers, name, value);
        }
    }
    for edit in filters.iter().flat_map(|filters| &filters.response) {
        match edit {
            Edit::Set(name, value) => {
                response.headers.insert(name.to_string(), value.to_string());
                response.removed.retain(|removed| **removed != **name);
            }
            Edit::Add(name, value) => join(&mut response.headers, name, value),
            Edit::Remove(name) => {
                response.headers.remove(&**name);
                response.removed.push(name.to_string());
            }
        }
    }
    response
}

/// The status and `Location` of a redirect.
pub(crate) fn redirect(
    query: &Query,
    filters: &Filters,
    frontend: &Frontend,
) -> Option<(u16, String)> {
    let redirect = filters.redirect.as_ref()?;
    let written = query.authority();
    let written = written.rsplit_once(':');
    let location = redirect.location(&Requested {
        manner: Manner::of(&frontend.id),
        scheme: match frontend.protocol {
            Protocol::Https => "https",
            _ => "http",
        },
        host: &query.host(),
        written_port: written.and_then(|(_, port)| port.parse().ok()),
        port: frontend.port,
        offset: 0,
        path: &query.target.path,
        query: query.target.query.as_deref(),
    });
    Some((redirect.status, location))
}

/// Each backend of a rule with its share and what becomes of it.
pub(crate) fn shares(
    tables: &Tables,
    rule: &BoundRule,
    filters: Option<&RuleFilters>,
    draft: &Draft<'_>,
    verdict: Option<&Verdict>,
    tongue: Tongue,
) -> Vec<BackendShare> {
    let sum: u64 = rule
        .backends
        .iter()
        .map(|backend| u64::from(backend.weight))
        .sum();
    let share = |(at, backend): (usize, &WeightedBackend)| {
        let part = match sum {
            0 => 0.0,
            sum => f64::from(backend.weight) / sum as f64,
        };
        let mut shown = backend_share(tables, backend, part, tongue);
        if let Some(filters) = filters
            && let Some(own) = filters.backends.get(at)
        {
            if !own.keeps_request() && tongue != Tongue::Stream {
                shown.request = Some(draft.after(own).received());
            }
            if !own.response.is_empty() {
                shown.response = Some(response(verdict, &[&filters.rule, own]));
            }
        }
        shown
    };
    rule.backends.iter().enumerate().map(share).collect()
}

fn backend_share(
    tables: &Tables,
    backend: &WeightedBackend,
    share: f64,
    tongue: Tongue,
) -> BackendShare {
    let usable = match &backend.target {
        Err(fault) => Err((fault.status, fault.message.clone())),
        Ok(id) => endpoints(tables.backend(id).map(|backend| &**backend)),
    };
    shown(&backend.reference, share, usable, tongue)
}

/// The backend that calls to a mesh parent go to where no route says otherwise.
pub(crate) fn implicit(backend: &Backend, tongue: Tongue) -> BackendShare {
    let id = &backend.id;
    let reference = BackendName {
        kind: id.object.kind.name().into(),
        name: id.object.name.clone(),
        port: Some(id.port),
        tags: id.tags.clone(),
    };
    shown(&reference, 1.0, endpoints(Some(backend)), tongue)
}

fn tags(reference: &BackendName) -> BTreeMap<String, String> {
    let tags = reference.tags.iter();
    tags.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn shown(
    reference: &BackendName,
    share: f64,
    usable: Result<Vec<String>, (u16, String)>,
    tongue: Tongue,
) -> BackendShare {
    let mut shown = BackendShare {
        kind: reference.kind.to_string(),
        namespace: reference.name.namespace.to_string(),
        name: reference.name.name.to_string(),
        port: reference.port.filter(|port| *port != 0),
        tags: tags(reference),
        share,
        endpoints: Vec::new(),
        status: None,
        grpc_status: None,
        reason: None,
        request: None,
        response: None,
    };
    match usable {
        Ok(endpoints) => shown.endpoints = endpoints,
        Err((status, reason)) => {
            (shown.status, shown.grpc_status) = tongue.tell(status);
            shown.reason = Some(reason);
        }
    }
    shown
}

/// The addresses that take a backend's traffic, or the status and reason why none does.
fn endpoints(backend: Option<&Backend>) -> Result<Vec<String>, (u16, String)> {
    if let Some(Some(Err(Fault {
        status, message, ..
    }))) = backend.map(|backend| &backend.tls)
    {
        return Err((*status, message.clone()));
    }
    let usable = match backend.map(|backend| &backend.endpoints) {
        None => Vec::new(),
        Some(Endpoints::Dns(name, port)) => vec![format!("{name}:{port}")],
        Some(Endpoints::Addresses(all)) => {
            // Those on their way out are used only when no other is left.
            let leaving = all.iter().all(|endpoint| endpoint.terminating);
            let taken = all
                .iter()
                .filter(|endpoint| leaving || !endpoint.terminating);
            taken.map(|endpoint| endpoint.address.to_string()).collect()
        }
    };
    match usable.is_empty() {
        true => Err((503, "no ready endpoint".to_owned())),
        false => Ok(usable),
    }
}

/// The mirrors of a rule.
pub(crate) fn mirrors<'f>(mirrors: impl Iterator<Item = &'f Mirror>) -> Vec<MirrorShare> {
    let shown = |mirror: &Mirror| {
        let share =
            f64::from(mirror.fraction.numerator) / f64::from(mirror.fraction.denominator.max(1));
        let BackendName {
            kind, name, port, ..
        } = &mirror.reference;
        MirrorShare {
            kind: kind.to_string(),
            namespace: name.namespace.to_string(),
            name: name.name.to_string(),
            port: *port,
            tags: tags(&mirror.reference),
            share: share.min(1.0),
            reason: mirror
                .target
                .as_ref()
                .err()
                .map(|fault| fault.message.clone()),
        }
    };
    mirrors.map(shown).collect()
}

/// A rule's timeouts; none if it has none.
pub(crate) fn timeouts(rule: &BoundRule) -> Option<Timeouts> {
    let timeouts = Timeouts {
        request: rule.request_timeout.map(duration_text),
        backend_request: rule.backend_timeout.map(duration_text),
    };
    (timeouts.request.is_some() || timeouts.backend_request.is_some()).then_some(timeouts)
}

/// A duration as the Gateway API writes it (GEP-2257).
fn duration_text(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let mut text = String::new();
    for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if rest >= size {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// In which protocol errors are told to the sender of a query.
pub(crate) fn tongue(query: &Query, stream: bool) -> Tongue {
    if stream || !query.target.scheme.is_http() {
        Tongue::Stream
    } else if query.is_grpc() {
        Tongue::Grpc
    } else {
        Tongue::Http
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_the_api_writes_them() {
        let table = [
            (0, "0s"),
            (500, "500ms"),
            (10_000, "10s"),
            (90_000, "1m30s"),
            (3_600_001, "1h1ms"),
        ];
        for (milliseconds, wanted) in table {
            assert_eq!(duration_text(Duration::from_millis(milliseconds)), wanted);
        }
    }
}
