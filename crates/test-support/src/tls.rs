//! TLS servers and clients with certificates for tests.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};

use crate::certificates::{Authority, TestCertificate};

/// Returns the cryptography that the product uses.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

impl TestCertificate {
    /// Builds the configuration of a server. If `clients` is set, clients have to present a certificate of that authority.
    pub fn server(&self, alpn: &[&str], clients: Option<&Authority>) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let roots = Arc::new(roots(authority));
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let mut config = builder
            .with_single_cert(self.chain(), self.key_der())
            .expect("a certificate");
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }
}

/// Builds the configuration of a client with these protocol versions. Without `trusted`, it accepts any server.
pub fn client(
    trusted: Option<&Authority>,
    certificate: Option<&TestCertificate>,
    alpn: &[&str],
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .expect("versions");
    let builder = match trusted {
        Some(authority) => builder.with_root_certificates(roots(authority)),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyServer(provider()))),
    };
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some(own) => builder
            .with_client_auth_cert(own.chain(), own.key_der())
            .expect("a certificate"),
    };
    config.alpn_protocols = protocols(alpn);
    Arc::new(config)
}

fn protocols(alpn: &[&str]) -> Vec<Vec<u8>> {
    alpn.iter().map(|name| name.as_bytes().to_vec()).collect()
}

fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).expect("an authority");
    roots
}

/// Accepts any server certificate; tests compare the certificate afterwards.
#[derive(Debug)]
struct AcceptAnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
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
        // rustls can't read certificates of version 1, nor their keys.
        if ParsedCertificate::try_from(certificate).is_err() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
