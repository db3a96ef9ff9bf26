//! Backends, to which traffic is sent.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use pointsman_resources::ObjectKey;

use super::{Fault, SecretId, Transport};

/// Tags that select a subset of a service's endpoints, sorted by name. An empty set selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tags(Option<Arc<[Tag]>>);

/// Name and value.
type Tag = (Arc<str>, Arc<str>);

impl Tags {
    /// Iterates over names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let tags = self.0.as_deref().unwrap_or_default();
        tags.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns whether all endpoints are selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<'t> FromIterator<(&'t str, &'t str)> for Tags {
    fn from_iter<I: IntoIterator<Item = (&'t str, &'t str)>>(tags: I) -> Self {
        let tags = tags.into_iter();
        let mut tags: Vec<Tag> = tags
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        tags.sort();
        tags.dedup_by(|later, first| later.0 == first.0);
        Tags((!tags.is_empty()).then(|| tags.into()))
    }
}

impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags: Vec<String> = self.iter().map(|(k, v)| format!("{k}={v}")).collect();
        f.write_str(&tags.join(","))
    }
}

/// Identifies a backend: a port of a Service, ServiceImport, XBackend or Kuma service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId {
    /// The object.
    pub object: ObjectKey,
    /// Port; 0 for a Kuma service that is identified only by its tag.
    pub port: u16,
    /// Transport protocol of the port.
    pub transport: Transport,
    /// Subset of the endpoints.
    pub tags: Tags,
}

impl BackendId {
    /// Identifies all endpoints of an object's port.
    pub fn new(object: ObjectKey, port: u16, transport: Transport) -> Self {
        BackendId {
            object,
            port,
            transport,
            tags: Tags::default(),
        }
    }
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object)?;
        if self.port != 0 {
            write!(f, " port {}", self.port)?;
        }
        match self.tags.is_empty() {
            true => Ok(()),
            false => write!(f, " with {}", self.tags),
        }
    }
}

/// A backend without its [`Endpoints`], which change more often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Identity.
    pub id: BackendId,
    /// Application protocol of the endpoints.
    pub protocol: BackendProtocol,
    /// TLS settings, or the fault if they are invalid; `None` for plain text.
    pub tls: Option<Result<Arc<BackendTls>, Fault>>,
    /// Limits retries to a share of requests.
    pub retry_budget: Option<RetryBudget>,
}

impl Backend {
    /// Returns the client certificate that the backend's own TLS settings reference.
    pub fn secret(&self) -> Option<&SecretId> {
        let tls = self.tls.as_ref()?.as_ref().ok()?;
        tls.client_certificate.as_ref()
    }
}

/// Endpoints of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// Known addresses.
    Addresses(Vec<BoundEndpoint>),
    /// DNS name and port, resolved by the data plane.
    Dns(Arc<str>, u16),
}

/// An address of a backend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundEndpoint {
    /// IP address and port.
    pub address: SocketAddr,
    /// True if the endpoint is serving but terminating: it is used only if there is no other.
    pub terminating: bool,
    /// Nodes and zones from which the endpoint should be used; `None` means all.
    pub hints: Option<Arc<TopologyHints>>,
}

impl BoundEndpoint {
    /// Creates a ready endpoint without hints.
    pub fn ready(address: SocketAddr) -> Self {
        BoundEndpoint {
            address,
            terminating: false,
            hints: None,
        }
    }
}

/// Nodes and zones from which an endpoint should be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyHints {
    /// Names of nodes, sorted.
    pub nodes: Vec<String>,
    /// Names of zones, sorted.
    pub zones: Vec<String>,
}

/// Application protocol of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendProtocol {
    /// Not declared: HTTP/1.1, or HTTP/2 for gRPC.
    Unspecified,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, with prior knowledge where there is no TLS.
    Http2,
    /// gRPC over HTTP/2.
    Grpc,
    /// WebSocket over HTTP/1.1.
    WebSocket,
    /// Byte streams.
    Tcp,
    /// Datagrams.
    Udp,
}

/// TLS settings for connections to a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendTls {
    /// SNI, and the name to verify unless `names` lists others.
    pub hostname: Arc<str>,
    /// Trust anchors for the backend's certificate.
    pub trust: Trust,
    /// Names of which the certificate must have one; `hostname` if empty.
    pub names: Vec<PeerName>,
    /// Client certificate; by default that of the Gateway.
    pub client_certificate: Option<SecretId>,
    /// True if the backend is a proxy of a mesh, to which the caller presents the certificate of its own mesh.
    pub of_mesh: bool,
}

/// A name to verify in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerName {
    /// A DNS name, which a wildcard in the certificate may match.
    Hostname(String),
    /// A URI, such as a SPIFFE identity.
    Uri(String),
    /// Prefix of a DNS name or URI.
    Prefix(String),
}

/// Trust anchors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Trust anchors of the operating system.
    System,
    /// Certificates of authorities, in DER.
    Authorities(Vec<Arc<[u8]>>),
}

/// Limit on retries towards a backend: a share of the requests, but always a minimum rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// Percentage of requests within `interval` that may be retries.
    pub percent: u32,
    /// Period over which `percent` is measured.
    pub interval: std::time::Duration,
    /// Number of retries per `min_interval` that are always allowed.
    pub min_count: u32,
    /// Period of the minimum rate.
    pub min_interval: std::time::Duration,
}
