//! TLS configurations for connections to backends.

use std::sync::Arc;

use pointsman_binding::bound::{BackendTls, CertifiedKey, PeerName, SecretId, Trust};
use pointsman_binding::x509::{dns_matches, names};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::{TlsError, authorities, provider, signing};

/// A TLS client configuration for a backend.
#[derive(Clone, Debug)]
pub struct BackendConfig {
    /// Configuration for rustls.
    pub config: Arc<ClientConfig>,
    /// Server name for SNI and, unless other names are configured, for verification.
    pub server_name: ServerName<'static>,
}

/// Builds the configuration for a backend. `alpn` lists the protocols in order of preference.
///
/// `gateway` is the certificate that the Gateway presents unless the backend's own settings name one, and `secret` looks up certificates. `system` are the trust
/// anchors of the operating system.
pub fn backend_config(
    tls: &BackendTls,
    gateway: Option<&SecretId>,
    secret: impl Fn(&SecretId) -> Option<Arc<CertifiedKey>>,
    system: &Arc<RootCertStore>,
    alpn: &[&[u8]],
) -> Result<BackendConfig, TlsError> {
    let roots = match &tls.trust {
        Trust::System => system.clone(),
        Trust::Authorities(list) => Arc::new(authorities(list)?),
    };
    let verifier = BackendVerifier {
        roots,
        names: tls.names.clone(),
        provider: provider(),
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match tls.client_certificate.as_ref().or(gateway) {
        Some(id) => {
            let key = secret(id).ok_or_else(|| TlsError::Missing(id.to_string()))?;
            let resolver = rustls::sign::SingleCertAndKey::from(signing(id, &key)?);
            builder.with_client_cert_resolver(Arc::new(resolver))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let server_name = ServerName::try_from(tls.hostname.to_string())
        .map_err(|_| TlsError::Name(tls.hostname.to_string()))?;
    Ok(BackendConfig {
        config: Arc::new(config),
        server_name,
    })
}

/// Verifies a backend's certificate: it must be issued by a trusted authority and be valid for the server name or, if other names are configured, for one of
/// those instead ("hostname MUST NOT be used for authentication" then).
#[derive(Debug)]
struct BackendVerifier {
    roots: Arc<RootCertStore>,
    names: Vec<PeerName>,
    provider: Arc<CryptoProvider>,
}

impl BackendVerifier {
    fn matches_a_name(&self, certificate: &CertificateDer<'_>) -> bool {
        let present = names(certificate);
        self.names.iter().any(|name| match name {
            PeerName::Hostname(wanted) => present.dns.iter().any(|dns| dns_matches(wanted, dns)),
            PeerName::Uri(wanted) => present.uris.contains(&wanted.as_str()),
            PeerName::Prefix(start) => {
                let mut all = present.dns.iter().chain(&present.uris);
                all.any(|name| name.starts_with(start.as_str()))
            }
        })
    }
}

impl ServerCertVerifier for BackendVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        if self.names.is_empty() {
            verify_server_name(&parsed, server_name)?;
        } else if !self.matches_a_name(leaf) {
            return Err(CertificateError::NotValidForName.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
