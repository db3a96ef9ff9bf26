//! Routes and their rules: which requests they take, what is done to them, where they go.

use std::sync::Arc;

use pointsman_resources::route::{Cors, Fraction, HeaderModifier, RequestRedirect, UrlRewrite};
use pointsman_resources::{Age, Name, ObjectKey};
use regex::{Regex, RegexBuilder};

use super::{BackendId, Fault, FrontendId, Hostname, Tags};

/// Identifies a route as it is bound to some of its parents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteId {
    /// The route. Of Kuma's: the destination or listener that policies were merged for.
    pub route: ObjectKey,
    /// Tells apart what one route becomes under different parents.
    pub binding: RouteBinding,
}

/// The parents for which a route was bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteBinding {
    /// Listeners of Gateways and ListenerSets.
    Gateway,
    /// Mesh parents. Where a rule without backendRefs forwards to the parent itself, the port of that parent.
    Mesh(Option<BackendId>),
    /// A destination of Kuma's, as a group of proxies sees it. The group goes by its first proxy.
    Outbound(BackendId, ObjectKey),
    /// A listener of a MeshGateway on one of its proxies.
    MeshGateway(FrontendId),
}

/// A route without its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMeta {
    /// Identity.
    pub id: RouteId,
    /// Age: older routes win ties.
    pub age: Age,
    /// Generation that was bound.
    pub generation: i64,
    /// Order of precedence.
    pub dialect: Dialect,
    /// Hostnames of the route itself; empty for every host. Always empty in the mesh.
    pub hostnames: Vec<Hostname>,
}

/// A route that governs some of a frontend's traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundRoute {
    /// Everything but the rules.
    pub meta: Arc<RouteMeta>,
    /// Rules in order. Those that can't be matched are left out, so `index` may have gaps.
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

/// Where regular expressions for paths stand in the order of precedence. Routes of one frontend have one dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Before prefixes.
    #[default]
    GatewayApi,
    /// After prefixes, the longer before the shorter.
    Kuma,
}

/// A rule of a Kuma policy that a rule was merged from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleSource {
    /// The policy.
    pub policy: ObjectKey,
    /// The place of the item in its `to`; none where the kind has no `to`.
    pub to: Option<usize>,
    /// The place of the rule there.
    pub rule: usize,
}

impl RuleSource {
    /// The policy for people: its name, with its namespace on Kubernetes.
    pub fn policy_name(&self) -> String {
        match self.policy.namespace().starts_with("mesh:") {
            true => self.policy.name.name.to_string(),
            false => self.policy.name.to_string(),
        }
    }
}

/// The policies of some rules for people, each once.
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
    /// Joins a route and its rules.
    pub fn new(meta: RouteMeta, rules: Vec<Arc<BoundRule>>) -> Self {
        let meta = Arc::new(meta);
        BoundRoute { meta, rules }
    }

    /// The route that a rule is told of, and its place there: of a merged one, the strongest that it came from.
    pub fn source<'r>(&'r self, rule: &'r BoundRule) -> (&'r ObjectKey, usize) {
        match rule.from.first() {
            Some(source) => (&source.policy, source.rule),
            None => (&self.id.route, rule.index),
        }
    }

    /// Whether a rule stands for what happens where no policy says otherwise.
    pub fn is_implicit(&self, rule: &BoundRule) -> bool {
        self.dialect == Dialect::Kuma && rule.from.is_empty()
    }
}

/// One rule of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundRule {
    /// Its place in the route.
    pub index: usize,
    /// Position among the rules that a merged rule of Kuma's was divided into; 0 for all others.
    pub part: usize,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Which requests it takes; any one suffices. Empty for TLS, TCP and UDP: all of them.
    pub matches: Vec<BoundMatch>,
    /// What is done, in order.
    pub filters: Vec<Filter>,
    /// Where it goes. Empty with a redirect, or when `fault` says why.
    pub backends: Vec<WeightedBackend>,
    /// Why every request of this rule is answered with an error.
    pub fault: Option<Fault>,
    /// How long it may take: all tries together. Zero is without end.
    pub request_timeout: Option<std::time::Duration>,
    /// How long one try may take. Zero is without end.
    pub backend_timeout: Option<std::time::Duration>,
    /// What is tried again.
    pub retry: Option<RetryPolicy>,
    /// The policies that it was merged from, strongest first. Empty for routes of the Gateway API.
    pub from: Vec<RuleSource>,
}

/// What is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Statuses that are.
    pub codes: Vec<u16>,
    /// How often, beside the first time.
    pub attempts: u32,
    /// The least time between two tries.
    pub backoff: Option<std::time::Duration>,
}

/// One match of a rule: all of it must hold. Expressions are text in the bound form (`P` is [`Pattern`]) and compiled in tables.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundMatch<P = Pattern> {
    /// Its place in the rule.
    pub index: usize,
    /// The path.
    pub path: PathPredicate<P>,
    /// What a gRPC match asks beyond the path.
    pub grpc: Option<GrpcPredicate<P>>,
    /// The HTTP method.
    pub method: Option<Arc<str>>,
    /// Headers, names in lower case. The Gateway API has each name once; of Kuma's all must hold.
    pub headers: Vec<ValuePredicate<P>>,
    /// Query parameters, each name once.
    pub query: Vec<ValuePredicate<P>>,
}

/// A predicate on the path.
#[derive(Clone, Debug, PartialEq)]
pub enum PathPredicate<P = Pattern> {
    /// This very path.
    Exact(Arc<str>),
    /// This path and all below it, by whole segments. Without a trailing slash, except for `/` itself.
    Prefix(Arc<str>),
    /// The whole path matches.
    Regex(P),
    /// Every path, for a match that names none: it ranks after all others. Kuma's sidecars only.
    Any,
}

/// What a gRPC match that is not one exact path asks of `/service/method`.
///
/// An exact service and method is [`PathPredicate::Exact`]; an exact service alone is [`PathPredicate::Prefix`] of `/service` with no
/// predicate here. What remains is a prefix with one of these.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcPredicate<P = Pattern> {
    /// The service.
    pub service: Option<StringPredicate<P>>,
    /// The method.
    pub method: Option<StringPredicate<P>>,
}

/// A header or query parameter and what its value must be.
#[derive(Clone, Debug, PartialEq)]
pub struct ValuePredicate<P = Pattern> {
    /// The name.
    pub name: Arc<str>,
    /// The value.
    pub value: StringPredicate<P>,
}

/// A predicate on a string.
#[derive(Clone, Debug, PartialEq)]
pub enum StringPredicate<P = Pattern> {
    /// This very string.
    Exact(Arc<str>),
    /// All of it matches.
    Regex(P),
    /// It begins so.
    Prefix(Arc<str>),
    /// It is there.
    Present,
    /// It is not there.
    Absent,
}

impl<P: AsRef<str>> StringPredicate<P> {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        match self {
            StringPredicate::Exact(wanted) | StringPredicate::Prefix(wanted) => wanted,
            StringPredicate::Regex(pattern) => pattern.as_ref(),
            StringPredicate::Present | StringPredicate::Absent => "",
        }
    }
}

impl<P> StringPredicate<P> {
    /// Its type, as the APIs name it.
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
    /// Replaces the expression, if there is one, by what `compile` makes of it.
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
    /// Replaces every expression by what `compile` makes of it.
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

/// A regular expression in RE2 syntax that must cover the whole of a value. It is known to compile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(Arc<str>);

/// The largest compiled size of an expression, in bytes. Ordinary expressions take a few thousand; larger ones delay every change and
/// cost memory on every worker.
pub const EXPRESSION_SIZE: usize = 512 * 1024;

impl Pattern {
    /// Validates an expression.
    pub fn new(expression: &str) -> Result<Self, regex::Error> {
        Self::compile(expression).map(|_| Pattern(expression.into()))
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compiles an expression so that it must cover the whole of a value.
    pub fn compile(expression: &str) -> Result<Regex, regex::Error> {
        // Parsed alone first, so that `a)(b` is an error and not a way out of the group.
        regex_syntax::parse(expression).map_err(|error| regex::Error::Syntax(error.to_string()))?;
        RegexBuilder::new(&Self::anchored(expression))
            .size_limit(EXPRESSION_SIZE)
            .build()
    }

    /// The text that is compiled for an expression.
    pub fn anchored(expression: &str) -> String {
        format!("^(?:{expression})$")
    }
}

/// What is done to a request or its response. Only filters that are carried out get here.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Changes the request's headers.
    RequestHeaders(Arc<HeaderModifier>),
    /// Changes the response's headers.
    ResponseHeaders(Arc<HeaderModifier>),
    /// Answers with a redirect.
    Redirect(Arc<RequestRedirect>),
    /// Changes host or path.
    Rewrite(Arc<UrlRewrite>),
    /// Sends a copy elsewhere.
    Mirror(Mirror),
    /// Answers browsers that ask before they send.
    Cors(Arc<Cors>),
    /// Answers at once.
    DirectResponse(Arc<DirectResponse>),
}

/// An answer that a rule gives itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectResponse {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Arc<[u8]>,
    /// The type of the body, unless a filter sets another.
    pub content_type: Arc<str>,
}

/// Sends a copy of some requests elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Mirror {
    /// The reference as written, for people.
    pub reference: BackendName,
    /// Where to; a fault means that no copy is sent.
    pub target: Result<BackendId, Fault>,
    /// Of how many.
    pub fraction: Fraction,
    /// Host of the copies; that of the request if none.
    pub hostname: Option<Arc<str>>,
}

/// Where traffic goes, and how much of it.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedBackend {
    /// The reference as written: kind, namespace, name, for people.
    pub reference: BackendName,
    /// Its part of the sum of all weights.
    pub weight: u32,
    /// The backend, or what its share is answered with.
    pub target: Result<BackendId, Fault>,
    /// What is done to what goes there, after the rule's own filters.
    pub filters: Vec<Filter>,
}

/// A backend as a reference names it, whether or not it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackendName {
    /// The kind, perhaps one that is unknown.
    pub kind: Arc<str>,
    /// Namespace and name.
    pub name: Name,
    /// The port.
    pub port: Option<u16>,
    /// The tags that its endpoints must have.
    pub tags: Tags,
}

/// Reads a duration as the Gateway API writes it (GEP-2257): `1h30m`, `500ms`.
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
