//! Generated certificates, and TLS clients with a given SNI.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::http1::Stream;
use super::within;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Issues a certificate for clients and for servers with these names.
    pub fn sign(&self, names: &[&str]) -> Identity {
        self.sign_with(names, &[])
    }

    pub fn sign_with(&self, names: &[&str], uris: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        for uri in uris {
            let uri = (*uri).try_into().expect("ascii");
            params.subject_alt_names.push(SanType::URI(uri));
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        Identity {
            certificate,
            key: key.serialize_pem(),
        }
    }

    /// A ConfigMap that holds the authority's certificate.
    pub fn config_map(&self, name: &str) -> String {
        let pem = self.pem.replace('\n', "\n    ");
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata:\n  ca.crt: |\n    {pem}\n"
        )
    }
}

impl Identity {
    /// The Secret of that name that holds it.
    pub fn secret(&self, name: &str) -> String {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: default}}\ntype: kubernetes.io/tls\ndata: {{tls.crt: {}, tls.key: {}}}\n",
            encode(&self.certificate),
            encode(&self.key)
        )
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .expect("certificates")
    }

    fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key")
    }

    /// Returns the configuration of a server with this identity. If `clients` is set, clients have to present a certificate of that authority.
    pub fn server(&self, alpn: &[&str], clients: Option<&Authority>) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => builder.with_client_cert_verifier(
                rustls::server::WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots(authority)),
                    provider(),
                )
                .build()
                .expect("a verifier"),
            ),
        };
        let mut config = builder
            .with_single_cert(self.chain(), self.private())
            .expect("a configuration");
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("a certificate");
    roots.add(der).expect("an authority");
    roots
}

/// Settings of a client's handshake.
#[derive(Clone, Copy)]
pub struct Handshake<'a> {
    pub trusts: &'a Authority,
    pub sni: &'a str,
    pub alpn: &'a [&'a str],
    pub identity: Option<&'a Identity>,
    pub versions: &'a [&'static rustls::SupportedProtocolVersion],
}

impl<'a> Handshake<'a> {
    pub fn new(trusts: &'a Authority, sni: &'a str) -> Handshake<'a> {
        Handshake {
            trusts,
            sni,
            alpn: &[],
            identity: None,
            versions: rustls::ALL_VERSIONS,
        }
    }

    pub fn alpn(self, alpn: &'a [&'a str]) -> Self {
        Handshake { alpn, ..self }
    }

    pub fn identity(self, identity: &'a Identity) -> Self {
        Handshake {
            identity: Some(identity),
            ..self
        }
    }

    pub fn versions(self, versions: &'a [&'static rustls::SupportedProtocolVersion]) -> Self {
        Handshake { versions, ..self }
    }

    /// Performs the handshake over a new connection.
    pub async fn try_connect(self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        self.try_over(TcpStream::connect(address).await?).await
    }

    /// Performs the handshake over a connection.
    pub async fn try_over<S: Stream>(self, stream: S) -> std::io::Result<TlsStream<S>> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(self.versions)
            .expect("versions")
            .with_root_certificates(roots(self.trusts));
        let mut config = match self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(identity.chain(), identity.private())
                .expect("an identity"),
        };
        config.alpn_protocols = self
            .alpn
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let name = ServerName::try_from(self.sni.to_owned()).expect("a name");
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
        within("a TLS handshake", connecting).await
    }

    pub async fn connect(self, address: SocketAddr) -> TlsStream<TcpStream> {
        self.try_connect(address).await.expect("a TLS handshake")
    }
}

impl Identity {
    /// Returns the leaf certificate.
    pub fn leaf(&self) -> Vec<u8> {
        self.chain().first().expect("a certificate").to_vec()
    }
}

/// Performs a handshake without verifying the server.
pub async fn gullible(
    address: SocketAddr,
    name: &str,
    identity: Option<&Identity>,
) -> TlsStream<TcpStream> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyServer));
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain(), identity.private())
            .expect("an identity"),
    };
    let stream = TcpStream::connect(address).await.expect("a connection");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    within("a TLS handshake", connecting)
        .await
        .expect("a handshake")
}

/// Returns the certificate that a server presents for a name, without verifying it.
pub async fn shown(address: SocketAddr, name: &str) -> Vec<u8> {
    let stream = gullible(address, name, None).await;
    let chain = stream
        .get_ref()
        .1
        .peer_certificates()
        .expect("certificates");
    chain.first().expect("a certificate").to_vec()
}

/// Accepts any certificate.
#[derive(Debug)]
struct AcceptAnyServer;

impl rustls::client::danger::ServerCertVerifier for AcceptAnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        // rustls can't read certificates of version 1, nor their keys.
        if rustls::server::ParsedCertificate::try_from(certificate).is_err() {
            return Ok(rustls::client::danger::HandshakeSignatureValid::assertion());
        }
        let algorithms = &provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
