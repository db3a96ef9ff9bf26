//! The five route kinds of the Gateway API as one type. The kinds have the same shape and differ in the fields they use; a field that
//! only some kinds have lists them.
#![allow(
    missing_docs,
    reason = "fields are named and documented as in the Gateway API"
)]

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::gateway::ExternalAuth;
use crate::meta::{Kind, Meta, null_as_default};
use crate::refs::{BackendObjectReference, LocalObjectReference, ParentReference};

/// A route of any of the Gateway API's five kinds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Route {
    #[serde(skip, default = "http_route")]
    pub kind: Kind,
    pub metadata: Meta,
    pub spec: RouteSpec,
}

/// The spec of a [`Route`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    pub parent_refs: Vec<ParentReference>,
    /// Scope of default Gateways to attach to: `All` or `None`.
    pub use_default_gateways: Option<String>,
    /// If empty, the hostnames of the parents. HTTPRoute, GRPCRoute, TLSRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub hostnames: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub rules: Vec<RouteRule>,
}

/// A rule of a route.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteRule {
    /// Unique within the route.
    pub name: Option<String>,
    /// Alternatives, one of which must match. HTTPRoute, GRPCRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub matches: Vec<RouteMatch>,
    /// HTTPRoute, GRPCRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub filters: Vec<RouteFilter>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub backend_refs: Vec<RouteBackendRef>,
    /// HTTPRoute.
    pub timeouts: Option<Box<Timeouts>>,
    /// HTTPRoute.
    pub retry: Option<Box<Retry>>,
    /// HTTPRoute, GRPCRoute.
    pub session_persistence: Option<Box<SessionPersistence>>,
}

/// Conditions on a request, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteMatch {
    /// HTTPRoute.
    pub path: Option<PathMatch>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub headers: Vec<ValueMatch>,
    /// HTTPRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub query_params: Vec<ValueMatch>,
    /// An HTTP method, or a gRPC service and method.
    pub method: Option<MethodMatch>,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct PathMatch {
    #[serde(rename = "type", default)]
    pub kind: PathMatchType,
    #[serde(default = "slash")]
    pub value: String,
}

/// Match type of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum PathMatchType {
    Exact,
    #[default]
    PathPrefix,
    RegularExpression,
}

/// A condition on a header or query parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct ValueMatch {
    #[serde(rename = "type", default)]
    pub kind: MatchType,
    pub name: String,
    /// A value or a regular expression.
    pub value: String,
}

/// Match type of a header, query parameter or gRPC method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum MatchType {
    #[default]
    Exact,
    RegularExpression,
}

/// A condition on the method.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum MethodMatch {
    /// An HTTP method. HTTPRoute.
    Http(String),
    /// A condition on the gRPC service and method. GRPCRoute.
    Grpc(GrpcMethodMatch),
}

/// A condition on the gRPC service and method.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GrpcMethodMatch {
    #[serde(rename = "type", default)]
    pub kind: MatchType,
    /// Matches any service if unset.
    pub service: Option<String>,
    /// Matches any method if unset.
    pub method: Option<String>,
}

/// A filter of a rule or backendRef.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteFilter {
    /// Filter type. Selects the one field below that is set.
    #[serde(rename = "type")]
    pub kind: String,
    pub request_header_modifier: Option<HeaderModifier>,
    pub response_header_modifier: Option<HeaderModifier>,
    pub request_mirror: Option<RequestMirror>,
    pub request_redirect: Option<RequestRedirect>,
    pub url_rewrite: Option<UrlRewrite>,
    pub cors: Option<Cors>,
    pub external_auth: Option<ExternalAuth>,
    /// An implementation-specific filter.
    pub extension_ref: Option<LocalObjectReference>,
}

/// Header modifications, applied in the order set, add, remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HeaderModifier {
    /// Headers that replace existing values.
    #[serde(default, deserialize_with = "null_as_default")]
    pub set: Vec<Header>,
    /// Headers appended to existing values.
    #[serde(default, deserialize_with = "null_as_default")]
    pub add: Vec<Header>,
    /// Names of headers to remove.
    #[serde(default, deserialize_with = "null_as_default")]
    pub remove: Vec<String>,
}

impl HeaderModifier {
    /// Iterates over the header names on which the filter has no effect: message framing and connection management headers, which the proxy
    /// writes itself, and removal of Host, which every request must have (RFC 9112 §3.2).
    pub fn without_effect(&self) -> impl Iterator<Item = &str> {
        let given = self.set.iter().chain(&self.add);
        let given = given.map(|header| header.name.as_str());
        let removed = self.remove.iter().map(String::as_str);
        given
            .filter(|name| is_framing(name))
            .chain(removed.filter(|name| name.eq_ignore_ascii_case("host")))
    }

    /// Returns the effective entries of `set` and of `add`. "If multiple entries specify equivalent header names, the first entry with an
    /// equivalent name MUST be considered […]. Subsequent entries with an equivalent header name MUST be ignored." Names are equivalent if
    /// they differ only in case.
    pub fn effective(&self) -> [impl Iterator<Item = &Header>; 2] {
        [&self.set, &self.add].map(|list| {
            let indexed = list.iter().enumerate();
            indexed.filter_map(|(at, header)| (!is_repeated(list, at)).then_some(header))
        })
    }

    /// Iterates over the entries that are ignored because an earlier entry of the same list has an equivalent name, as (list, index, entry).
    pub fn ignored(&self) -> impl Iterator<Item = (&'static str, usize, &Header)> {
        let lists = [("set", &self.set), ("add", &self.add)];
        lists.into_iter().flat_map(|(field, list)| {
            let indexed = list.iter().enumerate();
            indexed
                .filter(|(at, _)| is_repeated(list, *at))
                .map(move |(at, header)| (field, at, header))
        })
    }

    /// Returns the lowercase header names that occur in more than one of `set`, `add` and `remove`, with these actions. "Only one action
    /// for a given header name is permitted. Filters specifying multiple actions of the same or different type for any one header name are
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

    /// Iterates over the entries of `remove` that are not valid header names, with their indexes. The CRDs accept any string.
    pub fn unremovable(&self) -> impl Iterator<Item = (usize, &str)> {
        let removed = self.remove.iter().map(String::as_str).enumerate();
        removed.filter(|(_, name)| !is_token(name))
    }
}

fn is_repeated(list: &[Header], at: usize) -> bool {
    let mut earlier = list[..at].iter();
    earlier.any(|other| other.name.eq_ignore_ascii_case(&list[at].name))
}

/// Returns whether the text is a `token` (RFC 9110 §5.6.2).
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

/// A header name and value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Header {
    pub name: String,
    pub value: String,
}

/// Sends copies of requests to another backend and ignores its responses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestMirror {
    pub backend_ref: BackendObjectReference,
    /// Percentage of requests to mirror. All are mirrored if neither this nor `fraction` is set.
    pub percent: Option<u32>,
    pub fraction: Option<Fraction>,
}

/// A share of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Fraction {
    pub numerator: u32,
    #[serde(default = "hundred")]
    pub denominator: u32,
}

/// Responds with a redirect. Parts of the location that are unset are taken from the request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRedirect {
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
    /// If unset, the well-known port of `scheme` or, without a scheme, the listener's port.
    pub port: Option<u16>,
    #[serde(default = "found")]
    pub status_code: u16,
}

/// Rewrites the host or path of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct UrlRewrite {
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
}

/// Replaces the path of a request, or the prefix that matched.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathModifier {
    /// `ReplaceFullPath` or `ReplacePrefixMatch`.
    #[serde(rename = "type")]
    pub kind: String,
    pub replace_full_path: Option<String>,
    pub replace_prefix_match: Option<String>,
}

/// Cross-origin resource sharing (CORS).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cors {
    #[serde(default, deserialize_with = "null_as_default")]
    pub allow_origins: Vec<String>,
    pub allow_credentials: Option<bool>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub allow_methods: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub allow_headers: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub expose_headers: Vec<String>,
    /// Seconds for which the result of a preflight request may be cached.
    #[serde(default = "five")]
    pub max_age: i32,
}

/// A weighted reference to a backend.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RouteBackendRef {
    #[serde(flatten)]
    pub target: BackendObjectReference,
    /// Share of the rule's traffic, relative to the sum of all weights.
    #[serde(default = "weight_one")]
    pub weight: u32,
    /// Filters for requests to this backend only. HTTPRoute, GRPCRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub filters: Vec<RouteFilter>,
}

/// Timeouts of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Limit on the whole request, including retries.
    pub request: Option<String>,
    /// Limit on each attempt.
    pub backend_request: Option<String>,
}

/// Retry policy of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Retry {
    /// Response statuses that are retried.
    #[serde(default, deserialize_with = "null_as_default")]
    pub codes: Vec<u16>,
    /// Maximum number of retries after the first attempt.
    #[serde(default = "one_attempt", deserialize_with = "saturating")]
    pub attempts: u32,
    /// Minimum delay between attempts.
    pub backoff: Option<String>,
}

/// Session persistence: sends a client's requests to the same endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPersistence {
    /// `Cookie` or `Header`.
    #[serde(rename = "type", default = "cookie")]
    pub kind: String,
    /// Maximum lifetime of a session.
    pub absolute_timeout: Option<String>,
    /// Set if the type is `Cookie`.
    pub cookie: Option<SessionCookie>,
    /// Set if the type is `Header`.
    pub header: Option<SessionHeader>,
}

/// A cookie that carries a session.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionCookie {
    /// If unset, chosen by the implementation.
    pub name: Option<String>,
    #[serde(default = "slash")]
    pub path: String,
    /// `Session` or `Permanent`.
    #[serde(default = "session")]
    pub lifetime_type: String,
}

/// A header that carries a session.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SessionHeader {
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

/// Saturates at `u32::MAX`: the CRD sets no upper limit.
fn saturating<'de, D: serde::Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    Ok(u32::try_from(u64::deserialize(d)?).unwrap_or(u32::MAX))
}
