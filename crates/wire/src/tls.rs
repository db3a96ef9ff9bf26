//! Mutual TLS between control plane and proxies. Certificates are read again when their files have changed; connections that are open stay open.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use pointsman_binding::x509;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

/// Files with this side's certificate and with the authorities of the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain in PEM, leaf first.
    pub certificate: PathBuf,
    /// Private key in PEM.
    pub key: PathBuf,
    /// Certificates in PEM of the authorities that the other side's certificate must be issued by.
    pub authorities: PathBuf,
}

/// Files that TLS can't be configured with.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// A file has no PEM section of the right kind, or a malformed one.
    #[error("{0}: {1}")]
    Pem(PathBuf, rustls::pki_types::pem::Error),
    /// A file has no certificate.
    #[error("{0}: it has no certificate")]
    Empty(PathBuf),
    /// The certificate, the key and the authorities don't make a configuration.
    #[error("{0}: {1}")]
    Rejected(PathBuf, rustls::Error),
    /// The authorities can't verify anything.
    #[error("{0}: {1}")]
    Authorities(PathBuf, rustls::server::VerifierBuilderError),
}

/// Certificates as they are read from files.
struct Material {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
}

impl TlsFiles {
    fn read(&self) -> Result<Material, TlsError> {
        let key = bytes(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key);
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.authorities)? {
            let added = roots.add(authority);
            added.map_err(|error| TlsError::Rejected(self.authorities.clone(), error))?;
        }
        Ok(Material {
            chain: certificates(&self.certificate)?,
            key: key.map_err(|error| TlsError::Pem(self.key.clone(), error))?,
            roots: Arc::new(roots),
        })
    }

    fn server(&self) -> Result<ServerConfig, TlsError> {
        let Material { chain, key, roots } = self.read()?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        let verifier =
            verifier.map_err(|error| TlsError::Authorities(self.authorities.clone(), error))?;
        let rejected = |error| TlsError::Rejected(self.certificate.clone(), error);
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(rejected)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(rejected)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    fn client(&self) -> Result<ClientConfig, TlsError> {
        let Material { chain, key, roots } = self.read()?;
        let rejected = |error| TlsError::Rejected(self.certificate.clone(), error);
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(rejected)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(rejected)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    /// Time of the last change and size of each file; `None` for a file that can't be read.
    fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key, &self.authorities].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Read(path.to_owned(), error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = bytes(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.map_err(|error| TlsError::Pem(path.to_owned(), error))?;
    match all.is_empty() {
        true => Err(TlsError::Empty(path.to_owned())),
        false => Ok(all),
    }
}

type Stamp = [Option<(SystemTime, u64)>; 3];

/// A configuration that follows its files.
#[derive(Debug)]
struct Followed<C> {
    files: TlsFiles,
    state: Mutex<(Stamp, Arc<C>)>,
    build: fn(&TlsFiles) -> Result<C, TlsError>,
}

impl<C> Followed<C> {
    fn new(files: TlsFiles, build: fn(&TlsFiles) -> Result<C, TlsError>) -> Result<Self, TlsError> {
        let stamp = files.stamp();
        let config = Arc::new(build(&files)?);
        Ok(Followed {
            files,
            state: Mutex::new((stamp, config)),
            build,
        })
    }

    /// The configuration for a new connection. Files that have become unusable leave the last good one in effect.
    fn current(&self) -> Arc<C> {
        let mut state = self.lock();
        let stamp = self.files.stamp();
        if state.0 != stamp {
            state.0 = stamp;
            match (self.build)(&self.files) {
                Ok(config) => state.1 = Arc::new(config),
                Err(error) => {
                    tracing::warn!("{error}; the previous certificate stays in effect");
                }
            }
        }
        state.1.clone()
    }

    fn lock(&self) -> MutexGuard<'_, (Stamp, Arc<C>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The control plane's side of TLS.
#[derive(Debug)]
pub struct ServerTls(Followed<ServerConfig>);

impl ServerTls {
    /// Reads the files for the first time.
    pub fn new(files: TlsFiles) -> Result<Self, TlsError> {
        Ok(ServerTls(Followed::new(files, TlsFiles::server)?))
    }

    pub(crate) fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        self.0.current().into()
    }
}

/// The proxy's side of TLS.
#[derive(Debug)]
pub struct ClientTls(Followed<ClientConfig>);

impl ClientTls {
    /// Reads the files for the first time.
    pub fn new(files: TlsFiles) -> Result<Self, TlsError> {
        Ok(ClientTls(Followed::new(files, TlsFiles::client)?))
    }

    pub(crate) fn connector(&self) -> tokio_rustls::TlsConnector {
        self.0.current().into()
    }
}

/// Subject alternative names of a certificate: DNS names, then URIs.
pub(crate) fn identities(certificates: Option<&[CertificateDer<'_>]>) -> Vec<String> {
    let leaf = certificates.and_then(|chain| chain.first());
    let names = leaf.map(|leaf| x509::names(leaf)).unwrap_or_default();
    let all = names.dns.into_iter().chain(names.uris);
    all.map(str::to_owned).collect()
}
