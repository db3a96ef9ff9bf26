//! The bound form: what all dialects are lowered into, and what tables are compiled from.
//!
//! A [`Frontend`] is what a client connects to. A [`BoundRoute`] is a route that governs some of its traffic; the pair is an
//! attachment. A [`Backend`] is where traffic goes; endpoints change without touching any route, so rules name their
//! backends by [`BackendId`] only.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use pointsman_resources::gateway::{FrontendValidationMode, TlsMode};
use pointsman_resources::policy::SubjectAltName;
use pointsman_resources::route::{Cors, Fraction, HeaderModifier, RequestRedirect, UrlRewrite};
use pointsman_resources::{Age, Kind, Name, ObjectKey};
use regex::Regex;

/// Which frontend.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrontendId {
    /// A listener of a Gateway.
    Listener {
        /// The Gateway that it belongs to.
        gateway: Name,
        /// Who declares it: the Gateway itself, or a ListenerSet attached to it.
        owner: ObjectKey,
        /// The listener's name.
        listener: Arc<str>,
    },
    /// A port of a mesh parent (a Service or its kin), as some clients see it.
    Mesh {
        /// The Service or ServiceImport.
        parent: ObjectKey,
        /// The port.
        port: u16,
        /// What the port carries.
        transport: Transport,
        /// Whose calls.
        scope: Scope,
    },
}

impl FrontendId {
    /// The object that routes name as their parent.
    pub fn parent(&self) -> &ObjectKey {
        match self {
            FrontendId::Listener { owner, .. } => owner,
            FrontendId::Mesh { parent, .. } => parent,
        }
    }
}

/// What a port carries. One number may stand for a port of each, with endpoints of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// Streams of bytes.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Transport {
    /// What a kind of route runs over.
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::UDPRoute => Transport::Udp,
            _ => Transport::Tcp,
        }
    }

    /// As ports of Services write it.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whose calls to a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Those of every client whose namespace has no routes of its own for this Service port: producer routes.
    Everyone,
    /// Those of clients in this namespace: consumer routes.
    Namespace(Arc<str>),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Everyone => f.write_str("every client"),
            Scope::Namespace(namespace) => write!(f, "clients in namespace {namespace}"),
        }
    }
}

/// What a client connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Which one.
    pub id: FrontendId,
    /// What is spoken there.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The hostname that the listener serves; all if none. Never set in the mesh.
    pub hostname: Option<Hostname>,
    /// Certificates and client verification, where TLS is ended here.
    pub tls: Option<Arc<FrontendTls>>,
    /// The certificate shown to backends.
    pub client_certificate: Option<Arc<CertifiedKey>>,
    /// The kind of route that governs a mesh frontend; on a Gateway the protocol decides.
    pub kind: Option<Kind>,
}

/// What is spoken at a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// HTTP, without TLS.
    Http,
    /// HTTP over TLS that ends here.
    Https,
    /// TLS, ended here or passed through.
    Tls(TlsModeKey),
    /// Bytes.
    Tcp,
    /// Datagrams.
    Udp,
}

/// [`TlsMode`], ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TlsModeKey {
    /// Ended here.
    Terminate,
    /// Passed through.
    Passthrough,
}

impl From<TlsMode> for TlsModeKey {
    fn from(mode: TlsMode) -> Self {
        match mode {
            TlsMode::Terminate => TlsModeKey::Terminate,
            TlsMode::Passthrough => TlsModeKey::Passthrough,
        }
    }
}

/// Certificates and client verification of a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendTls {
    /// The server's certificates, at least one.
    pub certificates: Vec<Arc<CertifiedKey>>,
    /// Which clients are let in; all if none.
    pub clients: Option<ClientValidation>,
}

/// Which clients a frontend lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientValidation {
    /// Certificates of the authorities, in DER.
    pub authorities: Vec<Arc<[u8]>>,
    /// What happens to the others.
    pub mode: FrontendValidationMode,
}

/// A certificate chain and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertifiedKey {
    /// The Secret it came from.
    pub secret: Name,
    /// The chain in DER, the leaf first.
    pub chain: Vec<Arc<[u8]>>,
    /// The private key.
    pub key: PrivateKey,
}

impl fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CertifiedKey({}, {} certificates)",
            self.secret,
            self.chain.len()
        )
    }
}

/// A private key in DER, in the form its PEM label said.
#[derive(Clone, PartialEq, Eq)]
pub enum PrivateKey {
    /// `PRIVATE KEY`
    Pkcs8(Arc<[u8]>),
    /// `RSA PRIVATE KEY`
    Pkcs1(Arc<[u8]>),
    /// `EC PRIVATE KEY`
    Sec1(Arc<[u8]>),
}

/// A hostname, lower case: `a.example.com`, or `*.example.com` for everything below.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hostname(Arc<str>);

impl Hostname {
    /// The hostname written so.
    pub fn new(text: &str) -> Self {
        Hostname(text.to_ascii_lowercase().into())
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `.example.com` of `*.example.com`; none if it is not a wildcard.
    pub fn suffix(&self) -> Option<&str> {
        self.0.strip_prefix('*')
    }

    /// Whether a request for this host (lower case, no port) is for this hostname.
    ///
    /// A wildcard stands for one label or more: `*.example.com` takes `a.b.example.com`, never `example.com`.
    pub fn matches(&self, host: &str) -> bool {
        match self.suffix() {
            Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            None => host == self.as_str(),
        }
    }

    /// Whether some host is for both.
    pub fn intersects(&self, other: &Hostname) -> bool {
        match (self.suffix(), other.suffix()) {
            (None, _) => other.matches(self.as_str()),
            (_, None) => self.matches(other.as_str()),
            (Some(a), Some(b)) => a.ends_with(b) || b.ends_with(a),
        }
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A route that governs some of a frontend's traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundRoute {
    /// Which route.
    pub route: ObjectKey,
    /// Its age: older routes win ties.
    pub age: Age,
    /// The generation that was bound.
    pub generation: i64,
    /// Its own hostnames; empty is every host. Always empty in the mesh.
    pub hostnames: Vec<Hostname>,
    /// Its rules; those that can't be matched are left out, so `index` may have gaps.
    pub rules: Vec<Arc<BoundRule>>,
}

/// One rule of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundRule {
    /// Its place in the route.
    pub index: usize,
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

/// Why Pointsman answers itself instead of forwarding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The HTTP status; for gRPC 500 and 503 become UNAVAILABLE, a stream is cut.
    pub status: u16,
    /// The condition's reason, such as `BackendNotFound`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// One match of a rule: all of it must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundMatch {
    /// Its place in the rule.
    pub index: usize,
    /// The path.
    pub path: PathPredicate,
    /// What a gRPC match asks beyond the path.
    pub grpc: Option<GrpcPredicate>,
    /// The HTTP method.
    pub method: Option<Arc<str>>,
    /// Headers, names in lower case, each name once.
    pub headers: Vec<ValuePredicate>,
    /// Query parameters, each name once.
    pub query: Vec<ValuePredicate>,
}

/// A predicate on the path.
#[derive(Clone, Debug, PartialEq)]
pub enum PathPredicate {
    /// This very path.
    Exact(Arc<str>),
    /// This path and all below it, by whole segments. Without a trailing slash, except for `/` itself.
    Prefix(Arc<str>),
    /// The whole path matches.
    Regex(Pattern),
}

/// What a gRPC match that is not one exact path asks of `/service/method`.
///
/// An exact service and method is [`PathPredicate::Exact`]; an exact service alone is [`PathPredicate::Prefix`] of `/service` with no
/// predicate here. What remains is a prefix with one of these.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcPredicate {
    /// The service.
    pub service: Option<StringPredicate>,
    /// The method.
    pub method: Option<StringPredicate>,
}

/// A header or query parameter and what its value must be.
#[derive(Clone, Debug, PartialEq)]
pub struct ValuePredicate {
    /// The name.
    pub name: Arc<str>,
    /// The value.
    pub value: StringPredicate,
}

/// A predicate on a string.
#[derive(Clone, Debug, PartialEq)]
pub enum StringPredicate {
    /// This very string.
    Exact(Arc<str>),
    /// All of it matches.
    Regex(Pattern),
}

impl StringPredicate {
    /// Whether this string satisfies it.
    pub fn matches(&self, value: &str) -> bool {
        match self {
            StringPredicate::Exact(wanted) => **wanted == *value,
            StringPredicate::Regex(regex) => regex.is_match(value),
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        match self {
            StringPredicate::Exact(wanted) => wanted,
            StringPredicate::Regex(regex) => expression(regex),
        }
    }
}

/// A compiled expression; two are equal when they were written alike.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl std::ops::Deref for Pattern {
    type Target = Regex;

    fn deref(&self) -> &Regex {
        &self.0
    }
}

/// Compiles an expression so that it must cover the whole of a value.
pub fn whole(expression: &str) -> Result<Pattern, regex::Error> {
    // Compiled alone first, so that `a)(b` is an error and not a way out of the group.
    Regex::new(expression)?;
    Regex::new(&format!("^(?:{expression})$")).map(Pattern)
}

/// The expression that [`whole`] was given.
pub fn expression(regex: &Regex) -> &str {
    let text = regex.as_str();
    text.strip_prefix("^(?:")
        .and_then(|text| text.strip_suffix(")$"))
        .unwrap_or(text)
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
}

/// Which backend: a port of a Service, a ServiceImport, or an XBackend.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId {
    /// The object.
    pub object: ObjectKey,
    /// Its port.
    pub port: u16,
    /// What the port carries.
    pub transport: Transport,
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.object, self.port)
    }
}

/// Where traffic goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Which one.
    pub id: BackendId,
    /// What is spoken there.
    pub protocol: BackendProtocol,
    /// How TLS is spoken, or why it can't be; plain text if none.
    pub tls: Option<Result<Arc<BackendTls>, Fault>>,
    /// What it resolves to.
    pub endpoints: Endpoints,
    /// How much may be tried again.
    pub retry_budget: Option<RetryBudget>,
}

/// What a backend resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// Addresses that are known.
    Addresses(Vec<BoundEndpoint>),
    /// A DNS name and port, resolved while running.
    Dns(Arc<str>, u16),
}

/// One address of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundEndpoint {
    /// The address.
    pub address: SocketAddr,
    /// Serving but on its way out: used only when no other is left.
    pub terminating: bool,
}

/// What a backend speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendProtocol {
    /// Nothing said: HTTP/1.1, or HTTP/2 for gRPC.
    Unspecified,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, with prior knowledge where there is no TLS.
    Http2,
    /// gRPC over HTTP/2.
    Grpc,
    /// WebSocket over HTTP/1.1.
    WebSocket,
    /// Bytes.
    Tcp,
    /// Datagrams.
    Udp,
}

/// How TLS is spoken to a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendTls {
    /// The SNI; also the name to verify unless `names` says others.
    pub hostname: Arc<str>,
    /// Whom to trust.
    pub trust: Trust,
    /// Names of which the certificate must carry one.
    pub names: Vec<SubjectAltName>,
    /// The certificate to show; a Gateway's own if none.
    pub client_certificate: Option<Arc<CertifiedKey>>,
}

/// Whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// What the system trusts.
    System,
    /// These authorities, in DER.
    Authorities(Vec<Arc<[u8]>>),
}

/// How much may be tried again towards a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// So many of a hundred requests
    pub percent: u32,
    /// over this time;
    pub interval: std::time::Duration,
    /// but always so many
    pub min_count: u32,
    /// in this time.
    pub min_interval: std::time::Duration,
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
