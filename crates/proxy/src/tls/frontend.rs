//! TLS configurations of listeners.

use std::sync::Arc;

use pointsman_binding::bound::ClientValidation;
use pointsman_binding::x509::{dns_matches, names};
use pointsman_resources::gateway::FrontendValidationMode;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use super::{NamedKey, TlsError, authorities, provider, signing};
use crate::options::TlsVersion;

/// Builds the configuration of a listener that terminates TLS, of the minimum version or a later one. `alpn` lists the protocols in order of preference.
pub fn frontend_config(
    keys: &[NamedKey],
    clients: Option<&ClientValidation>,
    alpn: &[&[u8]],
    minimum: TlsVersion,
) -> Result<Arc<ServerConfig>, TlsError> {
    let keys = keys.iter();
    let keys: Vec<NamedCertificate> = keys
        .map(|(id, key)| signing(id, key).map(NamedCertificate::new))
        .collect::<Result<_, _>>()?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(minimum.and_later())?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(validation) => builder.with_client_cert_verifier(verifier(validation)?),
    };
    let mut config = builder.with_cert_resolver(Arc::new(CertificateResolver(keys)));
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    // Tickets are encrypted with keys that belong only to this configuration, so no session can be resumed at another listener, or after certificates or client validation have
    // changed.
    config.ticketer = Ticketer::new()?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

fn verifier(validation: &ClientValidation) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    if validation.mode == FrontendValidationMode::AllowInsecureFallback {
        return Ok(Arc::new(AcceptAnyClient(provider())));
    }
    let roots = Arc::new(authorities(&validation.authorities)?);
    WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .map(|verifier| verifier as Arc<dyn ClientCertVerifier>)
        .map_err(|error| TlsError::Authorities(error.to_string()))
}

/// Selects a certificate: the first that is valid for the SNI and whose signature scheme the client supports, otherwise the first that it supports.
#[derive(Debug)]
struct CertificateResolver(Vec<NamedCertificate>);

/// A certificate with its DNS names.
#[derive(Debug)]
struct NamedCertificate {
    key: Arc<CertifiedKey>,
    names: Vec<String>,
}

impl NamedCertificate {
    fn new(key: Arc<CertifiedKey>) -> Self {
        let present = key.cert.first().map(|leaf| names(leaf));
        let present = present.unwrap_or_default();
        let names = present.dns.iter().map(|name| (*name).to_owned()).collect();
        NamedCertificate { key, names }
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let usable = |certificate: &&NamedCertificate| {
            let scheme = certificate.key.key.choose_scheme(hello.signature_schemes());
            scheme.is_some()
        };
        let server_name = hello.server_name();
        let carries = |certificate: &&NamedCertificate| {
            server_name.is_some_and(|server_name| {
                certificate
                    .names
                    .iter()
                    .any(|name| dns_matches(server_name, name))
            })
        };
        let mut keys = self.0.iter().filter(usable);
        let found = keys.clone().find(carries).or_else(|| keys.next());
        found.map(|certificate| certificate.key.clone())
    }
}

/// Requests a client certificate and accepts any, or none (mode AllowInsecureFallback). The client still has to prove possession of the key.
#[derive(Debug)]
struct AcceptAnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AcceptAnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
