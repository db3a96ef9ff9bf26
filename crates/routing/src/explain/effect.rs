//! The effect of a rule: the requests that backends receive, and the responses that clients get.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use pointsman_binding::bound::{
    Backend, BackendName, BoundRule, Endpoints, Fault, Mirror, Tags, WeightedBackend, duration_text,
};
use pointsman_resources::ObjectKey;

use super::model::{
    BackendShare, ExplainedResponse, MirrorShare, ReceivedRequest, ReplyStatus, Timeouts,
};
use super::query::Query;
use crate::action::{Forward, Reply, grpc_status, no_endpoints};
use crate::filters::headers::{self, Field, TextField};
use crate::tables::Tables;

/// The format of errors sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// As an HTTP status.
    Http,
    /// As a gRPC status.
    Grpc,
    /// By resetting the stream.
    Stream,
}

impl ErrorFormat {
    /// Returns the format for a query, at a frontend for requests or for streams.
    pub(crate) fn of(query: &Query, stream: bool) -> Self {
        if stream || !query.target.scheme.is_http() {
            ErrorFormat::Stream
        } else if query.is_grpc() {
            ErrorFormat::Grpc
        } else {
            ErrorFormat::Http
        }
    }

    /// Converts an HTTP status to this format: an HTTP status or reset, and a gRPC status.
    pub(crate) fn status(self, status: u16) -> (Option<ReplyStatus>, Option<u16>) {
        match self {
            ErrorFormat::Http => (Some(ReplyStatus::Http(status)), None),
            ErrorFormat::Grpc => (None, Some(grpc_status(status))),
            ErrorFormat::Stream => (Some(ReplyStatus::Reset), None),
        }
    }
}

/// Returns the request that a backend receives. Without a [`Forward`] it is unchanged.
pub(crate) fn received(query: &Query, forward: Option<&Forward<'_>>) -> ReceivedRequest {
    let authority = query.authority();
    let mut fields: Vec<TextField<'_>> = query
        .headers
        .iter()
        .map(|(name, value)| TextField::from((name.as_str(), value.as_str())))
        .collect();
    if !query.has_header("host") {
        fields.insert(0, TextField::from(("host", authority.as_str())));
    }
    if let Some(forward) = forward {
        fields.retain(|field| is_forwarded(query, forward, field.name()));
        forward.edit_request(&mut fields);
        if query.opens_websocket() {
            fields.push(TextField::from(("connection", "upgrade")));
            fields.push(TextField::from(("upgrade", "websocket")));
        }
    }
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for field in &fields {
        join(&mut headers, &field.name.to_ascii_lowercase(), &field.value);
    }
    let host = headers.get("host").map_or("", String::as_str);
    let path = &query.target.path;
    let path = forward.map_or(Cow::Borrowed(&**path), |forward| forward.path(path));
    let mut url = format!("{}://{host}{path}", query.target.scheme.as_str());
    if let Some(query) = &query.target.query {
        url.extend(["?", query]);
    }
    ReceivedRequest {
        method: query.method.clone(),
        url,
        headers,
    }
}

/// Returns whether a field of the client is forwarded.
fn is_forwarded(query: &Query, forward: &Forward<'_>, name: &[u8]) -> bool {
    let is_removed = || {
        let mut options = query.list("connection");
        headers::is_removable_by_connection(name)
            && options.any(|option| name.eq_ignore_ascii_case(option.as_bytes()))
    };
    let is_end_to_end = !headers::is_hop_by_hop(name) && !is_removed();
    name.eq_ignore_ascii_case(b"host") || is_end_to_end && forward.keeps_client_field(name, false)
}

fn join(headers: &mut BTreeMap<String, String>, name: &str, value: &str) {
    match headers.get_mut(name) {
        Some(values) => values.extend([",", value]),
        None => drop(headers.insert(name.to_owned(), value.to_owned())),
    }
}

/// Returns the changes to a backend's response, by applying the edits to a response that has every affected header.
pub(crate) fn changes(forward: &Forward<'_>) -> ExplainedResponse {
    let mut names: Vec<&str> = Vec::new();
    for name in forward.edited() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut fields: Vec<ResponseField<'_>> = names
        .iter()
        .map(|name| ResponseField { name, value: None })
        .collect();
    forward.edit_response(&mut fields);
    let mut response = ExplainedResponse::default();
    for field in &fields {
        if let Some(value) = field.value {
            join(&mut response.headers, field.name, value);
        }
    }
    let is_gone = |name: &&str| !fields.iter().any(|field| field.name == *name);
    response.removed = names
        .into_iter()
        .filter(is_gone)
        .map(str::to_owned)
        .collect();
    response
}

/// A header field of a response: `value` is `None` if it is the backend's.
struct ResponseField<'e> {
    name: &'e str,
    value: Option<&'e str>,
}

impl<'e> From<(&'e str, &'e str)> for ResponseField<'e> {
    fn from((name, value): (&'e str, &'e str)) -> Self {
        let value = Some(value);
        ResponseField { name, value }
    }
}

impl Field for ResponseField<'_> {
    fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn replace_value(&mut self, other: Self) {
        self.value = other.value;
    }
}

/// Describes a reply of a filter.
pub(crate) fn reply(reply: &Reply<'_>) -> ExplainedResponse {
    let mut response = ExplainedResponse {
        status: Some(reply.status),
        ..ExplainedResponse::default()
    };
    for field in &reply.headers {
        join(&mut response.headers, &field.name, &field.value);
    }
    let body = String::from_utf8_lossy(reply.body).into_owned();
    response.body = Some(body).filter(|body| !body.is_empty());
    response
}

/// Returns the backends of a rule with their shares, endpoints or errors.
pub(crate) fn shares(tables: &Tables, rule: &BoundRule, format: ErrorFormat) -> Vec<BackendShare> {
    let weights = rule
        .backends
        .iter()
        .map(|backend| u64::from(backend.weight));
    let sum: u64 = weights.sum();
    let share = |backend: &WeightedBackend| {
        let part = match sum {
            0 => 0.0,
            sum => f64::from(backend.weight) / sum as f64,
        };
        backend_share(tables, backend, part, format)
    };
    rule.backends.iter().map(share).collect()
}

fn backend_share(
    tables: &Tables,
    backend: &WeightedBackend,
    share: f64,
    format: ErrorFormat,
) -> BackendShare {
    let usable = match &backend.target {
        Err(fault) => Err((fault.status, fault.message.clone())),
        Ok(id) => {
            let backend = tables.backend(id).map(|backend| &**backend);
            endpoints(backend, tables.endpoints(id).map(|endpoints| &**endpoints))
        }
    };
    shown(&backend.reference, share, usable, format)
}

/// Returns the backend of a mesh parent without routes.
pub(crate) fn parent_backend_share(
    backend: &Backend,
    found: &Endpoints,
    format: ErrorFormat,
) -> BackendShare {
    let id = &backend.id;
    let reference = BackendName {
        kind: id.object.kind.name().into(),
        name: id.object.name.clone(),
        port: Some(id.port),
        tags: id.tags.clone(),
    };
    shown(
        &reference,
        1.0,
        endpoints(Some(backend), Some(found)),
        format,
    )
}

/// Returns a workload that is called by its own address as the only backend.
pub(crate) fn workload(owner: &ObjectKey, address: SocketAddr) -> BackendShare {
    let reference = BackendName {
        kind: owner.kind.name().into(),
        name: owner.name.clone(),
        port: None,
        tags: Tags::default(),
    };
    let endpoints = Ok(vec![address.to_string()]);
    shown(&reference, 1.0, endpoints, ErrorFormat::Stream)
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
    format: ErrorFormat,
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
            (shown.status, shown.grpc_status) = format.status(status);
            shown.reason = Some(reason);
        }
    }
    shown
}

/// Returns the addresses that get a backend's traffic, or status and reason if there are none.
fn endpoints(
    backend: Option<&Backend>,
    found: Option<&Endpoints>,
) -> Result<Vec<String>, (u16, String)> {
    if let Some(Some(Err(Fault {
        status, message, ..
    }))) = backend.map(|backend| &backend.tls)
    {
        return Err((*status, message.clone()));
    }
    let usable = match found {
        None => Vec::new(),
        Some(Endpoints::Dns(name, port)) => vec![format!("{name}:{port}")],
        Some(Endpoints::Addresses(all)) => {
            // Terminating endpoints are used only if there are no others.
            let leaving = all.iter().all(|endpoint| endpoint.terminating);
            let taken = all
                .iter()
                .filter(|endpoint| leaving || !endpoint.terminating);
            taken.map(|endpoint| endpoint.address.to_string()).collect()
        }
    };
    match usable.is_empty() {
        true => {
            let fault = no_endpoints();
            Err((fault.status, fault.message.clone()))
        }
        false => Ok(usable),
    }
}

/// Describes the mirrors of a rule.
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
            host: mirror.hostname.as_deref().map(str::to_owned),
            reason: mirror
                .target
                .as_ref()
                .err()
                .map(|fault| fault.message.clone()),
        }
    };
    mirrors.map(shown).collect()
}

/// Returns a rule's timeouts, if it has any.
pub(crate) fn timeouts(rule: &BoundRule) -> Option<Timeouts> {
    let timeouts = Timeouts {
        request: rule.request_timeout.map(duration_text),
        backend_request: rule.backend_timeout.map(duration_text),
    };
    (timeouts.request.is_some() || timeouts.backend_request.is_some()).then_some(timeouts)
}
