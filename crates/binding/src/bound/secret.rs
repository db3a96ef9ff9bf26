//! Certificates with their private keys. Other resources reference them by id, so that keys are distributed only where they are needed, and a renewed
//! certificate changes no other resource.

use std::fmt;
use std::sync::Arc;

use pointsman_resources::Name;

/// Identifies a certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SecretId {
    /// A Kubernetes Secret, or a universal Secret of Kuma.
    Object(Name),
    /// An entry in `tls.certificates` of a MeshGateway's listener that is not a reference to a Secret.
    Listener {
        /// The MeshGateway.
        gateway: Name,
        /// Index of the listener.
        listener: usize,
        /// Index of the certificate.
        certificate: usize,
    },
    /// The client certificate of a MeshExternalService.
    ExternalService(Name),
    /// The certificate that proxies of a Kuma mesh present to each other.
    Mesh(Arc<str>),
}

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretId::Object(name) => write!(f, "Secret {name}"),
            SecretId::Listener {
                gateway,
                listener,
                certificate,
            } => write!(
                f,
                "MeshGateway {gateway} listeners[{listener}].tls.certificates[{certificate}]"
            ),
            SecretId::ExternalService(name) => {
                write!(f, "client certificate of MeshExternalService {name}")
            }
            SecretId::Mesh(mesh) => write!(f, "certificate of mesh {mesh}"),
        }
    }
}

/// The certificate that proxies of a Kuma mesh present to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshIdentity {
    /// Certificate of the mesh's authority in DER, which other proxies trust.
    pub authority: Arc<[u8]>,
    /// URI in the certificate.
    pub uri: Arc<str>,
    /// The certificate and its key, shared by all proxies of the mesh.
    pub certificate: Arc<CertifiedKey>,
}

/// A certificate chain with its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertifiedKey {
    /// Certificates in DER, leaf first.
    pub chain: Vec<Arc<[u8]>>,
    /// Private key of the leaf.
    pub key: PrivateKey,
}

impl fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertifiedKey({} certificates)", self.chain.len())
    }
}

/// A private key in DER, in the format that its PEM label named.
#[derive(Clone, PartialEq, Eq)]
pub enum PrivateKey {
    /// `PRIVATE KEY`
    Pkcs8(Arc<[u8]>),
    /// `RSA PRIVATE KEY`
    Pkcs1(Arc<[u8]>),
    /// `EC PRIVATE KEY`
    Sec1(Arc<[u8]>),
}
