//! Routes and their rules: matches and backends.

use std::sync::Arc;

use pointsman_resources::{Age, Name, ObjectKey};
use regex::{Regex, RegexBuilder};

use super::{BackendId, Fault, Filter, FrontendId, Hostname, Tags};

/// Identifies the binding of a route to some of its parents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId {
    /// The route; for Kuma, the destination or listener for which policies were merged.
    pub route: ObjectKey,
    /// Distinguishes bound forms of one route for different parents.
    pub binding: RouteBinding,
}

/// Parents for which a route was bound.
///
/// Route ids are stored in many places and most are `Gateway`, so the data of the other variants is behind an `Arc` to keep ids small.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteBinding {
    /// Listeners of Gateways and ListenerSets.
    Gateway,
    /// Mesh parents; with the port of the parent if a rule without backendRefs forwards to the parent itself.
    Mesh(Option<Arc<BackendId>>),
    /// Calls of a group of Kuma proxies to a destination. The group is identified by its first proxy.
    Outbound(Arc<BackendId>, Arc<ObjectKey>),
    /// A listener of a MeshGateway on one of its proxies.
    MeshGateway(Arc<FrontendId>),
}

/// A route without its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMeta {
    /// Identity.
    pub id: RouteId,
    /// Age; the older route wins a tie.
    pub age: Age,
    /// Generation that was bound.
    pub generation: i64,
    /// Determines the rules of precedence.
    pub dialect: Dialect,
    /// Hostnames of the route itself; empty for all hosts, and always in the mesh.
    pub hostnames: Vec<Hostname>,
}

/// A route with its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundRoute {
    /// Everything but the rules.
    pub meta: Arc<RouteMeta>,
    /// Rules in order. Those that can't be matched are omitted, so `index` may have gaps.
    pub rules: Vec<Arc<BoundRule>>,
}

impl std::ops::Deref for BoundRoute {
    type Target = RouteMeta;

    fn deref(&self) -> &RouteMeta {
        &self.meta
    }
}

/// Identifies a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId {
    /// The route that it belongs to.
    pub route: RouteId,
    /// [`BoundRule::index`].
    pub index: usize,
    /// [`BoundRule::part`].
    pub part: usize,
}

/// API that a route is written in. It decides the precedence of regular expressions, and how the prefix `/` is rewritten. Routes of one frontend have the same
/// dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Regular expressions come before prefixes.
    #[default]
    GatewayApi,
    /// Regular expressions come after prefixes, the longer before the shorter.
    Kuma,
}

/// A rule of a Kuma policy that a rule was merged from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleSource {
    /// The policy.
    pub policy: ObjectKey,
    /// Index of the item in `to`; `None` if the kind has no `to`.
    pub to: Option<usize>,
    /// Index of the rule.
    pub rule: usize,
}

impl RuleSource {
    /// Returns the name of the policy for display, with its namespace on Kubernetes.
    pub fn policy_name(&self) -> String {
        match self.policy.namespace().mesh() {
            Some(_) => self.policy.name.name.to_string(),
            None => self.policy.name.to_string(),
        }
    }
}

/// Returns the names of the policies of some rules for display, without duplicates.
pub fn policy_names(sources: &[RuleSource]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in sources.iter().map(RuleSource::policy_name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

impl BoundRoute {
    /// Creates a route from its parts.
    pub fn new(meta: RouteMeta, rules: Vec<Arc<BoundRule>>) -> Self {
        let meta = Arc::new(meta);
        BoundRoute { meta, rules }
    }

    /// Returns the route and index under which a rule is reported: for a merged rule, those of the most specific policy that contributes to it.
    pub fn source<'r>(&'r self, rule: &'r BoundRule) -> (&'r ObjectKey, usize) {
        match rule.from.first() {
            Some(source) => (&source.policy, source.rule),
            None => (&self.id.route, rule.index),
        }
    }

    /// Returns whether this stands for the absence of routes: the traffic of a mesh parent goes to the parent's own endpoints.
    pub fn is_unrouted(&self) -> bool {
        !self.id.route.kind.is_route() && matches!(self.id.binding, RouteBinding::Mesh(_))
    }

    /// Returns whether a rule is Kuma's default, which applies without policies.
    pub fn is_implicit(&self, rule: &BoundRule) -> bool {
        self.dialect == Dialect::Kuma && rule.from.is_empty()
    }
}

/// A rule of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundRule {
    /// Index in the route.
    pub index: usize,
    /// Index among the parts of a merged Kuma rule that was divided; 0 for all others.
    pub part: usize,
    /// Name.
    pub name: Option<Arc<str>>,
    /// Matches, of which one suffices. Empty for TLS, TCP and UDP, whose rules match every connection.
    pub matches: Vec<BoundMatch>,
    /// Filters in order.
    pub filters: Vec<Filter>,
    /// Backends. Empty with a redirect, a direct response or a `fault`.
    pub backends: Vec<WeightedBackend>,
    /// Reason why every request of this rule gets an error.
    pub fault: Option<Fault>,
    /// Timeout for all attempts together; zero disables it.
    pub request_timeout: Option<std::time::Duration>,
    /// Timeout for each attempt; zero disables it.
    pub backend_timeout: Option<std::time::Duration>,
    /// Retries.
    pub retry: Option<RetryPolicy>,
    /// The policies that it was merged from, most specific first. Empty for routes of the Gateway API.
    pub from: Vec<RuleSource>,
}

/// Retries of a rule's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Response statuses to retry.
    pub codes: Vec<u16>,
    /// Maximum number of retries.
    pub attempts: u32,
    /// Minimum delay between attempts.
    pub backoff: Option<std::time::Duration>,
}

/// A match of a rule, all of whose predicates must hold. Regular expressions are text in the bound form (`P` is [`Pattern`]) and compiled in tables.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundMatch<P = Pattern> {
    /// Index in the rule.
    pub index: usize,
    /// Predicate on the path.
    pub path: PathPredicate<P>,
    /// Predicate of a gRPC match that `path` does not express.
    pub grpc: Option<GrpcPredicate<P>>,
    /// HTTP method.
    pub method: Option<Arc<str>>,
    /// Predicates on headers, with names in lower case. In the Gateway API names are unique; in Kuma several predicates on one name must all hold.
    pub headers: Vec<ValuePredicate<P>>,
    /// Predicates on query parameters. Names are unique.
    pub query: Vec<ValuePredicate<P>>,
}

/// A predicate on the path.
#[derive(Clone, Debug, PartialEq)]
pub enum PathPredicate<P = Pattern> {
    /// Equality.
    Exact(Arc<str>),
    /// The path itself, and all paths below it by whole segments. Has no trailing slash, except for `/`.
    Prefix(Arc<str>),
    /// An expression that matches the whole path.
    Regex(P),
    /// Every path, with lower precedence than all others. Only for matches without a path on Kuma's sidecars.
    Any,
}

/// Predicate on `/service/method` for a gRPC match that is not an exact path.
///
/// An exact service and method is [`PathPredicate::Exact`]; an exact service alone is [`PathPredicate::Prefix`] of `/service` without a
/// predicate here. All other matches are a prefix with one of these.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcPredicate<P = Pattern> {
    /// Predicate on the service.
    pub service: Option<StringPredicate<P>>,
    /// Predicate on the method.
    pub method: Option<StringPredicate<P>>,
}

/// A predicate on the value of a header or query parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ValuePredicate<P = Pattern> {
    /// Name of the header or query parameter.
    pub name: Arc<str>,
    /// Predicate on its value.
    pub value: StringPredicate<P>,
}

/// A predicate on a string.
#[derive(Clone, Debug, PartialEq)]
pub enum StringPredicate<P = Pattern> {
    /// Equality.
    Exact(Arc<str>),
    /// An expression that matches the whole string.
    Regex(P),
    /// A prefix.
    Prefix(Arc<str>),
    /// Presence, with any value.
    Present,
    /// Absence.
    Absent,
}

impl<P: AsRef<str>> StringPredicate<P> {
    /// Returns the value, prefix or expression as written.
    pub fn as_str(&self) -> &str {
        match self {
            StringPredicate::Exact(wanted) | StringPredicate::Prefix(wanted) => wanted,
            StringPredicate::Regex(pattern) => pattern.as_ref(),
            StringPredicate::Present | StringPredicate::Absent => "",
        }
    }
}

impl<P> StringPredicate<P> {
    /// Returns the name of its type in the APIs.
    pub fn kind(&self) -> &'static str {
        match self {
            StringPredicate::Exact(_) => "Exact",
            StringPredicate::Regex(_) => "RegularExpression",
            StringPredicate::Prefix(_) => "Prefix",
            StringPredicate::Present => "Present",
            StringPredicate::Absent => "Absent",
        }
    }
}

impl StringPredicate {
    /// Compiles the expression, if there is one.
    pub fn compile<Q>(&self, compile: &mut impl FnMut(&Pattern) -> Q) -> StringPredicate<Q> {
        match self {
            StringPredicate::Exact(wanted) => StringPredicate::Exact(wanted.clone()),
            StringPredicate::Regex(pattern) => StringPredicate::Regex(compile(pattern)),
            StringPredicate::Prefix(start) => StringPredicate::Prefix(start.clone()),
            StringPredicate::Present => StringPredicate::Present,
            StringPredicate::Absent => StringPredicate::Absent,
        }
    }
}

impl BoundMatch {
    /// Compiles every expression.
    pub fn compile<Q>(&self, mut compile: impl FnMut(&Pattern) -> Q) -> BoundMatch<Q> {
        let compile = &mut compile;
        let mut values = |predicates: &[ValuePredicate]| {
            let compiled = predicates.iter().map(|predicate| ValuePredicate {
                name: predicate.name.clone(),
                value: predicate.value.compile(compile),
            });
            compiled.collect()
        };
        BoundMatch {
            index: self.index,
            headers: values(&self.headers),
            query: values(&self.query),
            path: match &self.path {
                PathPredicate::Exact(path) => PathPredicate::Exact(path.clone()),
                PathPredicate::Prefix(prefix) => PathPredicate::Prefix(prefix.clone()),
                PathPredicate::Regex(pattern) => PathPredicate::Regex(compile(pattern)),
                PathPredicate::Any => PathPredicate::Any,
            },
            grpc: self.grpc.as_ref().map(|grpc| GrpcPredicate {
                service: grpc
                    .service
                    .as_ref()
                    .map(|service| service.compile(compile)),
                method: grpc.method.as_ref().map(|method| method.compile(compile)),
            }),
            method: self.method.clone(),
        }
    }
}

impl AsRef<str> for Pattern {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A valid regular expression in RE2 syntax that must match the whole of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(Arc<str>);

/// Maximum compiled size of an expression, in bytes. Ordinary expressions need a few thousand; large ones delay every change and
/// use memory on every worker.
pub const EXPRESSION_SIZE: usize = 512 * 1024;

impl Pattern {
    /// Validates an expression.
    pub fn new(expression: &str) -> Result<Self, regex::Error> {
        Self::compile(expression).map(|_| Pattern(expression.into()))
    }

    /// Returns the expression as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compiles an expression so that it matches only whole values.
    pub fn compile(expression: &str) -> Result<Regex, regex::Error> {
        // The expression is parsed on its own first, so that `a)(b` is rejected instead of closing the group below.
        regex_syntax::parse(expression).map_err(|error| regex::Error::Syntax(error.to_string()))?;
        RegexBuilder::new(&Self::anchored(expression))
            .size_limit(EXPRESSION_SIZE)
            .build()
    }

    /// Returns the anchored form of an expression, which is the one that is compiled.
    pub fn anchored(expression: &str) -> String {
        format!("^(?:{expression})$")
    }
}

/// A backend of a rule, with its share of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedBackend {
    /// The reference as written, for display.
    pub reference: BackendName,
    /// Weight in proportion to the sum of all weights.
    pub weight: u32,
    /// The resolved backend, or the fault that its share of requests gets.
    pub target: Result<BackendId, Fault>,
    /// Filters for requests to this backend, applied after those of the rule.
    pub filters: Vec<Filter>,
}

/// A backend reference as written; the backend may not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendName {
    /// Kind, which may be unknown.
    pub kind: Arc<str>,
    /// Namespace and name.
    pub name: Name,
    /// Port.
    pub port: Option<u16>,
    /// Subset of the endpoints.
    pub tags: Tags,
}

/// Parses a duration of the Gateway API (GEP-2257), such as `1h30m` or `500ms`.
pub fn duration(text: &str) -> Option<std::time::Duration> {
    let mut total = std::time::Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let milliseconds = match &rest[..unit] {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        total += std::time::Duration::from_millis(number.checked_mul(milliseconds)?);
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(total)
}

/// Formats a duration as in the Gateway API (GEP-2257).
pub fn duration_text(duration: std::time::Duration) -> String {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
