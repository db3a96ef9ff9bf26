//! TLS between control plane and proxies: mutual, or with a certificate on the control plane's side only, where proxies present tokens.
//! Certificates are reloaded when their files change; open connections stay open.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use pointsman_binding::x509;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
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

/// Files that can't be used for TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// A file has no PEM section of the right kind, or a malformed one.
    #[error("{0}: {1}")]
    Pem(PathBuf, rustls::pki_types::pem::Error),
    /// A file has no certificate.
    #[error("{0}: no certificate found")]
    Empty(PathBuf),
    /// The certificate, the key and the authorities are not a valid configuration.
    #[error("{0}: {1}")]
    Rejected(PathBuf, rustls::Error),
    /// The authorities can't verify anything.
    #[error("{0}: {1}")]
    Authorities(PathBuf, rustls::server::VerifierBuilderError),
}

/// Certificates as they are read from files.
struct TlsMaterial {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
}

impl TlsFiles {
    fn read(&self) -> Result<TlsMaterial, TlsError> {
        let key = bytes(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&key);
        let roots = roots(&self.authorities)?;
        Ok(TlsMaterial {
            chain: certificates(&self.certificate)?,
            key: key.map_err(|error| TlsError::Pem(self.key.clone(), error))?,
            roots,
        })
    }

    fn server(&self) -> Result<ServerConfig, TlsError> {
        let TlsMaterial { chain, key, roots } = self.read()?;
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
        // A resumed session would not verify the client's certificate again.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }

    fn client(&self) -> Result<ClientConfig, TlsError> {
        let TlsMaterial { chain, key, roots } = self.read()?;
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

    fn paths(&self) -> Vec<PathBuf> {
        [&self.certificate, &self.key, &self.authorities]
            .map(Clone::clone)
            .to_vec()
    }
}

/// Configures a client that presents no certificate.
fn anonymous_client(
    authorities: &Path,
    roots: Arc<RootCertStore>,
) -> Result<ClientConfig, TlsError> {
    let rejected = |error| TlsError::Rejected(authorities.to_owned(), error);
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(rejected)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    root_store(path, &bytes(path)?)
}

fn root_store(path: &Path, pem: &[u8]) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in parse_certificates(path, pem)? {
        let added = roots.add(authority);
        added.map_err(|error| TlsError::Rejected(path.to_owned(), error))?;
    }
    Ok(Arc::new(roots))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Read(path.to_owned(), error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    parse_certificates(path, &bytes(path)?)
}

fn parse_certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| TlsError::Pem(path.to_owned(), error))?;
    match all.is_empty() {
        true => Err(TlsError::Empty(path.to_owned())),
        false => Ok(all),
    }
}

/// Time of the last change and size of each file; `None` for a file that can't be read.
type FileStamps = Vec<Option<(SystemTime, u64)>>;

fn stamp(paths: &[PathBuf]) -> FileStamps {
    let stamp = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    paths.iter().map(stamp).collect()
}

type BuildConfig<C> = Box<dyn Fn() -> Result<C, TlsError> + Send + Sync>;

/// A configuration that is reloaded when its files change.
struct ReloadedConfig<C> {
    paths: Vec<PathBuf>,
    state: Mutex<(FileStamps, Arc<C>)>,
    build: BuildConfig<C>,
}

impl<C> fmt::Debug for ReloadedConfig<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReloadedConfig").field(&self.paths).finish()
    }
}

impl<C> ReloadedConfig<C> {
    fn new(paths: Vec<PathBuf>, build: BuildConfig<C>) -> Result<Self, TlsError> {
        let stamp = stamp(&paths);
        let config = Arc::new(build()?);
        Ok(ReloadedConfig {
            paths,
            state: Mutex::new((stamp, config)),
            build,
        })
    }

    /// Returns the configuration for a new connection. If the files have become invalid, the last valid one stays in effect.
    fn current(&self) -> Arc<C> {
        let mut state = lock(&self.state);
        let stamp = stamp(&self.paths);
        if state.0 != stamp {
            state.0 = stamp;
            match (self.build)() {
                Ok(config) => state.1 = Arc::new(config),
                Err(error) => {
                    tracing::warn!("{error}; the previous certificate stays in effect");
                }
            }
        }
        state.1.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A certificate with its key, issued by this process.
pub struct IssuedCertificate {
    /// Certificate chain in DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// Private key: PKCS #8 in DER.
    pub key: Vec<u8>,
}

impl IssuedCertificate {
    fn server(&self) -> Result<ServerConfig, rustls::Error> {
        let chain = self.chain.iter().cloned().map(CertificateDer::from);
        let key = PrivateKeyDer::Pkcs8(self.key.clone().into());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain.collect(), key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

/// The control plane's side of TLS.
#[derive(Debug)]
pub struct ServerTls(ServerSource);

#[derive(Debug)]
enum ServerSource {
    Files(ReloadedConfig<ServerConfig>),
    Issued(Mutex<Arc<ServerConfig>>),
}

impl ServerTls {
    /// Creates the configuration from files for mutual TLS.
    pub fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let config = ReloadedConfig::new(files.paths(), Box::new(move || files.server()))?;
        Ok(ServerTls(ServerSource::Files(config)))
    }

    /// Presents a certificate that this process issued, and does not request certificates of proxies.
    pub fn issued(certificate: &IssuedCertificate) -> Result<Self, rustls::Error> {
        let config = Arc::new(certificate.server()?);
        Ok(ServerTls(ServerSource::Issued(Mutex::new(config))))
    }

    /// Replaces an issued certificate. Open connections stay open. Has no effect on certificates in files.
    pub fn replace(&self, certificate: &IssuedCertificate) -> Result<(), rustls::Error> {
        if let ServerSource::Issued(current) = &self.0 {
            let config = Arc::new(certificate.server()?);
            *lock(current) = config;
        }
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        match &self.0 {
            ServerSource::Files(config) => config.current().into(),
            ServerSource::Issued(current) => lock(current).clone().into(),
        }
    }
}

/// The proxy's side of TLS.
#[derive(Debug)]
pub struct ClientTls(ReloadedConfig<ClientConfig>);

impl ClientTls {
    /// Creates the configuration from files for mutual TLS.
    pub fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let config = ReloadedConfig::new(files.paths(), Box::new(move || files.client()))?;
        Ok(ClientTls(config))
    }

    /// Creates the configuration from a file with the control plane's authorities. The client presents no certificate.
    pub fn anonymous(authorities: PathBuf) -> Result<Self, TlsError> {
        let paths = vec![authorities.clone()];
        let build = Box::new(move || anonymous_client(&authorities, roots(&authorities)?));
        Ok(ClientTls(ReloadedConfig::new(paths, build)?))
    }

    /// Trusts authorities in PEM. The client presents no certificate.
    pub fn trusting(authorities: &str) -> Result<Self, TlsError> {
        let name = PathBuf::from("the bundle of authorities");
        let roots = root_store(&name, authorities.as_bytes())?;
        let build = Box::new(move || anonymous_client(&name, roots.clone()));
        Ok(ClientTls(ReloadedConfig::new(Vec::new(), build)?))
    }

    pub(crate) fn connector(&self) -> tokio_rustls::TlsConnector {
        self.0.current().into()
    }
}

/// Returns the subject alternative names of a certificate: DNS names, then URIs.
pub(crate) fn identities(chain: &[CertificateDer<'_>]) -> Vec<String> {
    let names = chain.first().map(|leaf| x509::names(leaf));
    let names = names.unwrap_or_default();
    let all = names.dns.into_iter().chain(names.uris);
    all.map(str::to_owned).collect()
}

/// Time until a certificate expires; zero if it has expired.
pub(crate) fn time_to_expiry(chain: &[CertificateDer<'_>]) -> Option<Duration> {
    let (_, end) = x509::Certificate::read(chain.first()?)?.validity()?;
    let left = u64::try_from(end)
        .unwrap_or(0)
        .saturating_sub(UnixTime::now().as_secs());
    // The end of time may be too far away for a clock.
    Some(Duration::from_secs(left).min(LONGEST_TIMER))
}

/// Longest time for which a timer is set.
const LONGEST_TIMER: Duration = Duration::from_secs(365 * 24 * 3600);
