//! TLS on both sides: what a listener shows and asks of clients, what a backend must show and is shown.
//!
//! Configurations are made when the bound form changes and shared by all connections; nothing here runs per request. The
//! system's authorities come in as an argument: loading them is I/O.

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

/// Why a configuration can't be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A key that can't be used, or that is not its certificate's.
    #[error("{secret}: {error}")]
    Key {
        /// The certificate.
        secret: String,
        /// What is wrong.
        error: KeyError,
    },
    /// A certificate that is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// Authorities that can't be trusted.
    #[error("certificates of authorities: {0}")]
    Authorities(String),
    /// A server name that is none.
    #[error("`{0}` is not a server name")]
    Name(String),
    /// Anything else that rustls refuses.
    #[error(transparent)]
    Other(#[from] rustls::Error),
}

/// A certificate with its key, and its id for messages.
pub type NamedKey = (SecretId, Arc<CertifiedKey>);

/// The cryptography in use.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A certificate and key in the form that rustls signs with. Fails if the key is not the certificate's.
fn signing(id: &SecretId, key: &CertifiedKey) -> Result<Arc<rustls::sign::CertifiedKey>, TlsError> {
    x509::signing_key(key).map_err(|error| TlsError::Key {
        secret: id.to_string(),
        error,
    })
}

/// A store of these authorities.
fn authorities(list: &[Arc<[u8]>]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for der in list {
        store
            .add(CertificateDer::from(der.to_vec()))
            .map_err(|error| TlsError::Authorities(error.to_string()))?;
    }
    Ok(store)
}
