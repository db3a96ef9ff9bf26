//! TLS configurations of listeners and backends.
//!
//! They are built when the bound form changes and shared by all connections; nothing here runs per request. The system's trust anchors are an argument, because
//! loading them is I/O.

mod backend;
pub mod client_hello;
mod configs;
mod frontend;

use std::sync::Arc;

use pointsman_binding::bound::{CertifiedKey, SecretId};
use pointsman_binding::x509::{self, KeyError};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;

pub use backend::{BackendConfig, backend_config};
pub(crate) use configs::TlsConfigs;
pub use frontend::frontend_config;

/// Reason why a configuration can't be built.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The key is unusable or does not belong to the certificate.
    #[error("{secret}: {error}")]
    Key {
        /// Name of the certificate.
        secret: String,
        /// The error.
        error: KeyError,
    },
    /// A referenced certificate does not exist.
    #[error("{0} is missing")]
    Missing(String),
    /// A certificate authority is invalid.
    #[error("CA certificates: {0}")]
    Authorities(String),
    /// The server name is invalid.
    #[error("`{0}` is not a server name")]
    Name(String),
    /// Another error of rustls.
    #[error(transparent)]
    Other(#[from] rustls::Error),
}

/// A certificate with its key and id.
pub type NamedKey = (SecretId, Arc<CertifiedKey>);

/// Returns the cryptographic provider.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Converts a certificate and key for rustls. Fails if they do not belong together.
fn signing(id: &SecretId, key: &CertifiedKey) -> Result<Arc<rustls::sign::CertifiedKey>, TlsError> {
    x509::signing_key(key).map_err(|error| TlsError::Key {
        secret: id.to_string(),
        error,
    })
}

/// Creates a store of these authorities.
fn authorities(list: &[Arc<[u8]>]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for der in list {
        store
            .add(CertificateDer::from(der.to_vec()))
            .map_err(|error| TlsError::Authorities(error.to_string()))?;
    }
    Ok(store)
}
