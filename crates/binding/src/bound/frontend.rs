//! What a client connects to, and which clients.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use pointsman_resources::gateway::{FrontendValidationMode, TlsMode};
use pointsman_resources::{Kind, Name, ObjectKey};

use super::{BackendId, RouteId, SecretId};

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
    /// A destination that a Dataplane of Kuma calls.
    Outbound(Arc<Outbound>),
}

/// A destination that a Dataplane of Kuma calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Outbound {
    /// The Dataplane, or the Pod that is one.
    pub dataplane: ObjectKey,
    /// What it calls.
    pub destination: BackendId,
    /// Where it finds it, if it is told: an outbound's address and port.
    pub listen: Option<SocketAddr>,
}

/// A route that governs some of a frontend's traffic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attachment {
    /// The frontend.
    pub frontend: FrontendId,
    /// The route.
    pub route: RouteId,
}

impl Attachment {
    /// Names a pair.
    pub fn new(frontend: &FrontendId, route: &RouteId) -> Self {
        Attachment {
            frontend: frontend.clone(),
            route: route.clone(),
        }
    }
}

impl Frontend {
    /// Certificates that the frontend presents, to clients and to backends.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretId> {
        let server = self.tls.iter().flat_map(|tls| &tls.certificates);
        server
            .chain(&self.client_certificate)
            .chain(&self.mesh_certificate)
    }
}

impl FrontendId {
    /// The object that routes name as their parent or destination.
    pub fn parent(&self) -> &ObjectKey {
        match self {
            FrontendId::Listener { owner, .. } => owner,
            FrontendId::Mesh { parent, .. } => parent,
            FrontendId::Outbound(outbound) => &outbound.destination.object,
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
    /// Certificates and client verification, where TLS is ended here. Of a listener for all meshes: what proxies of a mesh show each
    /// other; the listener is then chosen as it would be without TLS.
    pub tls: Option<Arc<FrontendTls>>,
    /// The certificate shown to backends.
    pub client_certificate: Option<SecretId>,
    /// The certificate shown to proxies of meshes.
    pub mesh_certificate: Option<SecretId>,
    /// The kind of route that governs a mesh frontend; on a Gateway the protocol decides.
    pub kind: Option<Kind>,
    /// The most connections at a time; any number if none.
    pub connection_limit: Option<u32>,
    /// Whether only proxies of a mesh reach it: those of other meshes too.
    pub cross_mesh: bool,
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
    pub certificates: Vec<SecretId>,
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
