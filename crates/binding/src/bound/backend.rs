//! Where traffic goes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use pointsman_resources::ObjectKey;

use super::{Fault, SecretId, Transport};

/// Tags that endpoints must have, sorted by name. None is all endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tags(Option<Arc<[Tag]>>);

/// A name and its value.
type Tag = (Arc<str>, Arc<str>);

impl Tags {
    /// Each name with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let tags = self.0.as_deref().unwrap_or_default();
        tags.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether no tag is asked for.
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

/// Which backend: a port of a Service, a ServiceImport, a service of Kuma, or an XBackend.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId {
    /// The object.
    pub object: ObjectKey,
    /// Its port; 0 for a service of Kuma that goes by its tag alone.
    pub port: u16,
    /// What the port carries.
    pub transport: Transport,
    /// Which of its endpoints.
    pub tags: Tags,
}

impl BackendId {
    /// All endpoints of an object's port.
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

/// Where traffic goes, apart from the [`Endpoints`], which change more often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Which one.
    pub id: BackendId,
    /// What is spoken there.
    pub protocol: BackendProtocol,
    /// How TLS is spoken, or why it can't be; plain text if none.
    pub tls: Option<Result<Arc<BackendTls>, Fault>>,
    /// How much may be tried again.
    pub retry_budget: Option<RetryBudget>,
}

impl Backend {
    /// The client certificate that the backend's own settings name.
    pub fn secret(&self) -> Option<&SecretId> {
        let tls = self.tls.as_ref()?.as_ref().ok()?;
        tls.client_certificate.as_ref()
    }
}

/// The endpoints of a backend.
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
    pub names: Vec<PeerName>,
    /// The certificate to show; a Gateway's own if none.
    pub client_certificate: Option<SecretId>,
    /// Whether it is a proxy of a mesh, and is shown what the caller's mesh has.
    pub of_mesh: bool,
}

/// A name that a certificate may carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerName {
    /// A DNS name; the certificate may have it by a wildcard.
    Hostname(String),
    /// A URI, such as a SPIFFE identity.
    Uri(String),
    /// Any DNS name or URI that begins so.
    Prefix(String),
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
