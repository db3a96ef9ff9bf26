//! Certificate authorities and certificates.

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::manifests;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, in PEM.
    pub pem: String,
}

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub struct TestCertificate {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Authority {
    /// Creates an authority.
    #[allow(clippy::new_without_default, reason = "each authority has its own key")]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Issues a certificate for clients and servers with these names: IP addresses, URIs or DNS names.
    pub fn issue(&self, names: &[&str]) -> TestCertificate {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        let text = |name: &str| name.to_owned().try_into().expect("ASCII");
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) if name.contains("://") => SanType::URI(text(name)),
                Err(_) => SanType::DnsName(text(name)),
            })
            .collect();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        TestCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Returns a ConfigMap with the authority's certificate. `name` is `NAMESPACE/NAME`.
    pub fn config_map(&self, name: &str) -> String {
        manifests::ca_config_map(name, &self.pem)
    }

    /// Returns the authority's certificate in DER.
    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("a certificate")
    }
}

impl TestCertificate {
    /// Creates a self-signed certificate for a DNS name.
    pub fn new(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("made");
        TestCertificate {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }

    /// Returns a Secret with the certificate. `name` is `NAMESPACE/NAME`.
    pub fn secret(&self, name: &str) -> String {
        manifests::tls_secret(name, &self.certificate, &self.key)
    }

    /// Returns the leaf certificate in DER.
    pub fn der(&self) -> CertificateDer<'static> {
        self.chain().swap_remove(0)
    }

    /// Returns all certificates in DER, the leaf first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes());
        chain.collect::<Result<_, _>>().expect("certificates")
    }

    /// Returns the private key in DER.
    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key")
    }
}
