//! Certificates with their private keys. Everything else names them by id, so that a key reaches only those who need it and a renewed certificate
//! changes nothing but itself.

use std::fmt;
use std::sync::Arc;

use pointsman_resources::Name;

/// Identifies a certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SecretId {
    /// A Secret of Kubernetes, or a universal one of Kuma's.
    Object(Name),
    /// An entry in `tls.certificates` of a MeshGateway's listener that is not a Secret.
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
    /// The certificate that proxies of a mesh of Kuma's present to each other.
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

/// The certificate that the proxies of a mesh of Kuma's present to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshIdentity {
    /// Certificate of the mesh's authority, in DER: the trust anchor of the others.
    pub authority: Arc<[u8]>,
    /// URI in the proxies' certificate.
    pub uri: Arc<str>,
    /// Certificate of each of its proxies.
    pub certificate: Arc<CertifiedKey>,
}

/// A certificate chain and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertifiedKey {
    /// The chain in DER, the leaf first.
    pub chain: Vec<Arc<[u8]>>,
    /// The private key.
    pub key: PrivateKey,
}

impl fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertifiedKey({} certificates)", self.chain.len())
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
