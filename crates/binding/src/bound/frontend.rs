//! Frontends, to which clients connect.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use pointsman_resources::gateway::{FrontendValidationMode, TlsMode};
use pointsman_resources::{Kind, Name, ObjectKey};

use super::{BackendId, RouteId, SecretId};

/// Identifies a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrontendId {
    /// A listener of a Gateway.
    Listener {
        /// The Gateway; for a Kuma MeshGateway, a name derived from the proxy that serves it.
        gateway: Name,
        /// The object that declares the listener: the Gateway, a ListenerSet attached to it, or a MeshGateway.
        owner: ObjectKey,
        /// Name of the listener.
        listener: Arc<str>,
    },
    /// A port of a mesh parent, for some of its clients.
    Mesh {
        /// The Service or ServiceImport.
        parent: ObjectKey,
        /// Port.
        port: u16,
        /// Transport protocol of the port.
        transport: Transport,
        /// Clients to whose calls the frontend applies.
        scope: Scope,
    },
    /// Calls of a Kuma Dataplane to a destination.
    Outbound(Arc<Outbound>),
}

/// Calls of a Kuma Dataplane to a destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Outbound {
    /// The Dataplane, or the Pod that Kuma generates it from.
    pub dataplane: ObjectKey,
    /// Destination of the calls.
    pub destination: BackendId,
    /// Address of the Dataplane's outbound; `None` if calls are captured transparently.
    pub listen: Option<SocketAddr>,
}

/// A route attached to a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attachment {
    /// The frontend.
    pub frontend: FrontendId,
    /// The route.
    pub route: RouteId,
}

impl Attachment {
    /// Creates an attachment.
    pub fn new(frontend: &FrontendId, route: &RouteId) -> Self {
        Attachment {
            frontend: frontend.clone(),
            route: route.clone(),
        }
    }
}

impl Frontend {
    /// Creates a frontend for any host, without TLS.
    pub fn new(id: FrontendId, protocol: Protocol, port: u16) -> Self {
        Frontend {
            id,
            protocol,
            port,
            hostname: None,
            tls: None,
            client_certificate: None,
            mesh_certificate: None,
            kind: None,
            connection_limit: None,
            cross_mesh: false,
            closed: None,
        }
    }

    /// Returns the certificates that the frontend presents to clients and backends.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretId> {
        let server = self.tls.iter().flat_map(|tls| &tls.certificates);
        server
            .chain(&self.client_certificate)
            .chain(&self.mesh_certificate)
    }
}

impl FrontendId {
    /// Returns the object that routes reference as their parent or destination.
    pub fn parent(&self) -> &ObjectKey {
        match self {
            FrontendId::Listener { owner, .. } => owner,
            FrontendId::Mesh { parent, .. } => parent,
            FrontendId::Outbound(outbound) => &outbound.destination.object,
        }
    }
}

/// Transport protocol of a port. Ports of both may have the same number, with different endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// Byte streams.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Transport {
    /// Returns the transport protocol of a kind of route.
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::UDPRoute => Transport::Udp,
            _ => Transport::Tcp,
        }
    }

    /// Returns the name in ports of Services.
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

/// Clients of a Service to whose calls a route applies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All clients whose namespace has no routes of its own for the Service port (producer routes).
    Everyone,
    /// Clients in a namespace (consumer routes).
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

/// A listener of a Gateway, or a destination in the mesh, to which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Identity.
    pub id: FrontendId,
    /// Protocol that clients use.
    pub protocol: Protocol,
    /// Port.
    pub port: u16,
    /// Hostname that the listener serves; `None` for all hosts, and always in the mesh.
    pub hostname: Option<Hostname>,
    /// Certificates and client verification, if TLS is terminated. A cross-mesh listener has the certificate of its mesh here, but is selected like a listener
    /// without TLS.
    pub tls: Option<Arc<FrontendTls>>,
    /// Client certificate for connections to backends.
    pub client_certificate: Option<SecretId>,
    /// Client certificate for connections to proxies of a mesh.
    pub mesh_certificate: Option<SecretId>,
    /// Kind of route that applies to a mesh frontend; on a Gateway the protocol determines it.
    pub kind: Option<Kind>,
    /// Maximum number of simultaneous connections; `None` for no limit.
    pub connection_limit: Option<u32>,
    /// True if the listener accepts only proxies of a mesh, including those of other meshes.
    pub cross_mesh: bool,
    /// Reason why the listener can't serve traffic, if so. It then has no certificates but reserves its port and hostname: requests get 404, TLS handshakes are
    /// rejected, and no other listener gets them.
    pub closed: Option<Arc<str>>,
}

/// Protocol of a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS that is terminated.
    Https,
    /// TLS that is terminated or passed through.
    Tls(TlsModeKey),
    /// Byte streams.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Protocol {
    /// Returns the name as listeners spell it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http => "HTTP",
            Protocol::Https => "HTTPS",
            Protocol::Tls(_) => "TLS",
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        }
    }
}

/// [`TlsMode`] with an order, for use in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TlsModeKey {
    /// TLS is terminated.
    Terminate,
    /// TLS is passed through to the backend.
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
    /// Server certificates; at least one.
    pub certificates: Vec<SecretId>,
    /// Validation of client certificates; `None` if none are requested.
    pub clients: Option<ClientValidation>,
}

/// Validation of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientValidation {
    /// Certificates of trusted authorities, in DER.
    pub authorities: Vec<Arc<[u8]>>,
    /// Treatment of clients without a valid certificate.
    pub mode: FrontendValidationMode,
}

/// A hostname in lower case, such as `a.example.com`, or `*.example.com` for all of its subdomains.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hostname(Arc<str>);

impl Hostname {
    /// Creates a hostname, converting it to lower case.
    pub fn new(text: &str) -> Self {
        Hostname(text.to_ascii_lowercase().into())
    }

    /// Returns the hostname as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the suffix of a wildcard: `.example.com` for `*.example.com`.
    pub fn suffix(&self) -> Option<&str> {
        self.0.strip_prefix('*')
    }

    /// Returns whether the hostname matches a host (in lower case, without port).
    ///
    /// A wildcard stands for one or more labels: `*.example.com` matches `a.b.example.com` but not `example.com`.
    pub fn matches(&self, host: &str) -> bool {
        match self.suffix() {
            Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            None => host == self.as_str(),
        }
    }

    /// Returns whether some host matches both hostnames.
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
