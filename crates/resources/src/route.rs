//! The five route kinds as one type: they differ in what they match and which fields are set, not in shape.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::gateway::ExternalAuth;
use crate::meta::{Kind, Meta, null_as_default};
use crate::refs::{BackendObjectReference, LocalObjectReference, ParentReference};

/// A route of any of the five kinds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Route {
    /// Which of the five it is.
    #[serde(skip, default = "http_route")]
    pub kind: Kind,
    /// Name and age.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: RouteSpec,
}

/// The spec of a [`Route`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// What it wants to attach to.
    #[serde(default, deserialize_with = "null_as_default")]
    pub parent_refs: Vec<ParentReference>,
    /// Whether it also attaches to default Gateways: `All` or `None`.
    pub use_default_gateways: Option<String>,
    /// The hostnames it serves; all that its parents serve if empty. HTTPRoute, GRPCRoute, TLSRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub hostnames: Vec<String>,
    /// The rules.
    #[serde(default, deserialize_with = "null_as_default")]
    pub rules: Vec<RouteRule>,
}

/// What happens to some of a route's traffic.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteRule {
    /// A name, unique within the route.
    pub name: Option<String>,
    /// Which requests; any one of these suffices. HTTPRoute, GRPCRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub matches: Vec<RouteMatch>,
    /// What is done to them. HTTPRoute, GRPCRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub filters: Vec<RouteFilter>,
    /// Where they go.
    #[serde(default, deserialize_with = "null_as_default")]
    pub backend_refs: Vec<RouteBackendRef>,
    /// How long it may take. HTTPRoute.
    pub timeouts: Option<Box<Timeouts>>,
    /// What is tried again. HTTPRoute.
    pub retry: Option<Box<Retry>>,
    /// Whether a client stays with its endpoint. HTTPRoute, GRPCRoute.
    pub session_persistence: Option<Box<SessionPersistence>>,
}

/// Which requests a rule takes: all of what is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteMatch {
    /// The path. HTTPRoute.
    pub path: Option<PathMatch>,
    /// The headers.
    #[serde(default, deserialize_with = "null_as_default")]
    pub headers: Vec<ValueMatch>,
    /// The query parameters. HTTPRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub query_params: Vec<ValueMatch>,
    /// An HTTP method, or a gRPC service and method.
    pub method: Option<MethodMatch>,
}

/// A path, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct PathMatch {
    /// `Exact`, `PathPrefix` or `RegularExpression`.
    #[serde(rename = "type", default)]
    pub kind: PathMatchType,
    /// The path.
    #[serde(default = "slash")]
    pub value: String,
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[allow(missing_docs, reason = "named as in the API")]
pub enum PathMatchType {
    Exact,
    #[default]
    PathPrefix,
    RegularExpression,
}

/// A header or query parameter and the value wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct ValueMatch {
    /// `Exact` or `RegularExpression`.
    #[serde(rename = "type", default)]
    pub kind: MatchType,
    /// The name of the header or parameter.
    pub name: String,
    /// The value, or an expression for it.
    pub value: String,
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[allow(missing_docs, reason = "named as in the API")]
pub enum MatchType {
    #[default]
    Exact,
    RegularExpression,
}

/// The `method` of a match.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum MethodMatch {
    /// An HTTP method (HTTPRoute).
    Http(String),
    /// A gRPC service and method (GRPCRoute).
    Grpc(GrpcMethodMatch),
}

/// A gRPC service and method.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GrpcMethodMatch {
    /// `Exact` or `RegularExpression`.
    #[serde(rename = "type", default)]
    pub kind: MatchType,
    /// The service; any if left out.
    pub service: Option<String>,
    /// The method; any if left out.
    pub method: Option<String>,
}

/// What is done to a request or its response.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteFilter {
    /// Which of the fields below is set.
    #[serde(rename = "type")]
    pub kind: String,
    /// Changes the request's headers.
    pub request_header_modifier: Option<HeaderModifier>,
    /// Changes the response's headers.
    pub response_header_modifier: Option<HeaderModifier>,
    /// Sends a copy elsewhere.
    pub request_mirror: Option<RequestMirror>,
    /// Answers with a redirect.
    pub request_redirect: Option<RequestRedirect>,
    /// Changes host or path.
    pub url_rewrite: Option<UrlRewrite>,
    /// Answers browsers that ask before they send.
    pub cors: Option<Cors>,
    /// Asks another service whether the request may pass.
    pub external_auth: Option<ExternalAuth>,
    /// A filter of some implementation.
    pub extension_ref: Option<LocalObjectReference>,
}

/// Changes to headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HeaderModifier {
    /// Overwrites.
    #[serde(default, deserialize_with = "null_as_default")]
    pub set: Vec<Header>,
    /// Appends.
    #[serde(default, deserialize_with = "null_as_default")]
    pub add: Vec<Header>,
    /// Removes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub remove: Vec<String>,
}

impl HeaderModifier {
    /// Names in it that stay as they are. Some say where a message ends or what becomes of the connection: they are written anew for each, and nobody
    /// else's to set. And a request has a Host (RFC 9112 §3.2): it can be set, but not be taken away.
    pub fn without_effect(&self) -> impl Iterator<Item = &str> {
        let given = self.set.iter().chain(&self.add);
        let given = given.map(|header| header.name.as_str());
        let removed = self.remove.iter().map(String::as_str);
        given
            .filter(|name| is_framing(name))
            .chain(removed.filter(|name| name.eq_ignore_ascii_case("host")))
    }

    /// Entries of `set`, then of `add`, without those whose name differs from an earlier one of the same list only in case: "If
    /// multiple entries specify equivalent header names, the first entry with an equivalent name MUST be considered […]. Subsequent
    /// entries with an equivalent header name MUST be ignored."
    pub fn effective(&self) -> [impl Iterator<Item = &Header>; 2] {
        [&self.set, &self.add].map(|list| {
            let indexed = list.iter().enumerate();
            indexed.filter_map(|(at, header)| (!is_repeated(list, at)).then_some(header))
        })
    }

    /// Entries that are ignored because an earlier one of the same list has an equivalent name: list, index and entry.
    pub fn ignored(&self) -> impl Iterator<Item = (&'static str, usize, &Header)> {
        let lists = [("set", &self.set), ("add", &self.add)];
        lists.into_iter().flat_map(|(field, list)| {
            let indexed = list.iter().enumerate();
            indexed
                .filter(|(at, _)| is_repeated(list, *at))
                .map(move |(at, header)| (field, at, header))
        })
    }

    /// Names, in lower case, on which more than one of `set`, `add` and `remove` acts, with these actions. "Only one action for a
    /// given header name is permitted. Filters specifying multiple actions of the same or different type for any one header name are
    /// invalid."
    pub fn contradictions(&self) -> BTreeMap<String, Vec<&'static str>> {
        let names = |list: &[Header]| -> Vec<String> {
            list.iter().map(|h| h.name.to_ascii_lowercase()).collect()
        };
        let removed = self.remove.iter().map(|name| name.to_ascii_lowercase());
        let lists = [
            ("set", names(&self.set)),
            ("add", names(&self.add)),
            ("remove", removed.collect()),
        ];
        let mut actions: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
        for (action, list) in lists {
            for name in list {
                let known = actions.entry(name).or_default();
                if !known.contains(&action) {
                    known.push(action);
                }
            }
        }
        actions.retain(|_, known| known.len() > 1);
        actions
    }

    /// Entries of `remove` that are not header names, with their indexes. The CRDs let any string stand there.
    pub fn unremovable(&self) -> impl Iterator<Item = (usize, &str)> {
        let removed = self.remove.iter().map(String::as_str).enumerate();
        removed.filter(|(_, name)| !is_token(name))
    }
}

fn is_repeated(list: &[Header], at: usize) -> bool {
    let mut earlier = list[..at].iter();
    earlier.any(|other| other.name.eq_ignore_ascii_case(&list[at].name))
}

/// A `token` of RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_tchar)
}

fn is_framing(name: &str) -> bool {
    [
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "upgrade",
        "te",
        "trailer",
    ]
    .iter()
    .any(|framing| name.eq_ignore_ascii_case(framing))
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Sends a copy of requests elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestMirror {
    /// Where to.
    pub backend_ref: BackendObjectReference,
    /// Of how many in a hundred; all if neither this nor `fraction` is set.
    pub percent: Option<u32>,
    /// Of how many.
    pub fraction: Option<Fraction>,
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Fraction {
    /// So many
    pub numerator: u32,
    /// of so many.
    #[serde(default = "hundred")]
    pub denominator: u32,
}

/// Answers with a redirect.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRedirect {
    /// The scheme of the new address; the request's if left out.
    pub scheme: Option<String>,
    /// The host of the new address; the request's if left out.
    pub hostname: Option<String>,
    /// The path of the new address; the request's if left out.
    pub path: Option<PathModifier>,
    /// The port of the new address.
    pub port: Option<u16>,
    /// The status of the answer.
    #[serde(default = "found")]
    pub status_code: u16,
}

/// Changes the host or path of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct UrlRewrite {
    /// The new host.
    pub hostname: Option<String>,
    /// The new path.
    pub path: Option<PathModifier>,
}

/// A new path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathModifier {
    /// `ReplaceFullPath` or `ReplacePrefixMatch`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The whole new path.
    pub replace_full_path: Option<String>,
    /// What stands in place of the prefix that matched.
    pub replace_prefix_match: Option<String>,
}

/// Which other origins may use a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cors {
    /// The origins.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allow_origins: Vec<String>,
    /// Whether they may send credentials.
    pub allow_credentials: Option<bool>,
    /// The methods they may use.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allow_methods: Vec<String>,
    /// The headers they may send.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allow_headers: Vec<String>,
    /// The headers they may read.
    #[serde(default, deserialize_with = "null_as_default")]
    pub expose_headers: Vec<String>,
    /// For how many seconds the answer holds.
    #[serde(default = "five")]
    pub max_age: i32,
}

/// Where traffic goes, and how much of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RouteBackendRef {
    /// The backend.
    #[serde(flatten)]
    pub target: BackendObjectReference,
    /// Its part of the sum of all weights.
    #[serde(default = "weight_one")]
    pub weight: u32,
    /// What is done to what goes there. HTTPRoute, GRPCRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub filters: Vec<RouteFilter>,
}

/// How long a request may take.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// From the client's view, all tries together.
    pub request: Option<String>,
    /// One try.
    pub backend_request: Option<String>,
}

/// What is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Retry {
    /// The statuses that are.
    #[serde(default, deserialize_with = "null_as_default")]
    pub codes: Vec<u16>,
    /// How often, beside the first time.
    #[serde(default = "one_attempt", deserialize_with = "saturating")]
    pub attempts: u32,
    /// The least time between two tries.
    pub backoff: Option<String>,
}

/// Whether a client stays with its endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPersistence {
    /// `Cookie` or `Header`.
    #[serde(rename = "type", default = "cookie")]
    pub kind: String,
    /// When a session ends, whatever happens.
    pub absolute_timeout: Option<String>,
    /// The cookie; set if that is the type.
    pub cookie: Option<SessionCookie>,
    /// The header; set if that is the type.
    pub header: Option<SessionHeader>,
}

/// A cookie that carries a session.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionCookie {
    /// Its name; the implementation's choice if left out.
    pub name: Option<String>,
    /// The path it is sent for.
    #[serde(default = "slash")]
    pub path: String,
    /// `Session` or `Permanent`.
    #[serde(default = "session")]
    pub lifetime_type: String,
}

/// A header that carries a session.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SessionHeader {
    /// Its name.
    pub name: String,
}

fn http_route() -> Kind {
    Kind::HTTPRoute
}

fn slash() -> String {
    "/".to_owned()
}

fn hundred() -> u32 {
    100
}

fn found() -> u16 {
    302
}

fn five() -> i32 {
    5
}

fn weight_one() -> u32 {
    1
}

fn one_attempt() -> u32 {
    1
}

fn cookie() -> String {
    "Cookie".to_owned()
}

fn session() -> String {
    "Session".to_owned()
}

/// The CRD sets no upper limit; more than this many nobody can try.
fn saturating<'de, D: serde::Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    Ok(u32::try_from(u64::deserialize(d)?).unwrap_or(u32::MAX))
}
