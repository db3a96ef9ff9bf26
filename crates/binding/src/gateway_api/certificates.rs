//! Certificates and keys from Secrets, ConfigMaps and ClusterTrustBundles, validated with the same code that the proxy uses.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pointsman_resources::core::Secret;
use pointsman_resources::kuma::{DataSource, SECRET_KEY, SYSTEM_NAMESPACE};
use pointsman_resources::meta::CERTIFICATES_GROUP;
use pointsman_resources::refs::SecretObjectReference;
use pointsman_resources::{Kind, Name, NamespaceName, ObjectKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::bound::{CertifiedKey, PrivateKey, SecretId};
use crate::engine::Reader;
use crate::gateway_api::grants::CrossNamespaceReference;
use crate::kuma::lowering::content;
use crate::x509;

/// Reason why a certificate reference does not resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateRefError {
    /// No ReferenceGrant permits the reference.
    NotPermitted,
    /// The kind of object is not supported.
    InvalidKind,
    /// The object is missing, or has no valid certificate.
    InvalidContent,
}

/// A certificate that a reference resolved to.
pub(crate) struct ResolvedCertificate {
    pub id: SecretId,
    /// Reason why the newest version of the Secret is not used, if an earlier one stays in effect.
    pub retained: Option<String>,
}

/// Resolves a reference to a certificate and key, and validates them. Permission is checked before existence.
pub(crate) fn resolve_certificate(
    reader: &Reader<'_>,
    from: Kind,
    namespace: &str,
    reference: &SecretObjectReference,
) -> Result<ResolvedCertificate, (CertificateRefError, String)> {
    let SecretObjectReference {
        group,
        kind,
        name,
        namespace: other,
    } = reference;
    if !group.is_empty() || kind != "Secret" {
        let message = wrong_group(group, kind, name, &[Kind::Secret]).unwrap_or_else(|| {
            let found = full_kind(group, kind);
            format!("{found} {name} is not a supported certificate reference; use a Secret")
        });
        return Err((CertificateRefError::InvalidKind, message));
    }
    let target = (&**group, &**kind, &**name, other.as_deref());
    let secret_name = permitted_name(reader, from, namespace, target)?;
    let secret = reader.secret(&secret_name).ok_or_else(|| {
        (
            CertificateRefError::InvalidContent,
            missing(reader, Kind::Secret, &secret_name),
        )
    })?;
    let invalid = |why: String| {
        (
            CertificateRefError::InvalidContent,
            format!("Secret {secret_name}: {why}"),
        )
    };
    // Secrets of Kuma have certificate and key in one entry, which the Gateway API does not support.
    value(secret, "tls.crt").map_err(invalid)?;
    let key = reader.certificate(&secret_name);
    key.transpose().map_err(invalid)?;
    Ok(ResolvedCertificate {
        retained: reader.retained(&secret_name),
        id: SecretId::Object(secret_name),
    })
}

/// Returns the name of the object that a reference of a namespace names. Fails if it is in another namespace and no ReferenceGrant permits the reference.
fn permitted_name(
    reader: &Reader<'_>,
    from: Kind,
    namespace: &str,
    (group, kind, name, other): (&str, &str, &str, Option<&str>),
) -> Result<Name, (CertificateRefError, String)> {
    let to_namespace = other.unwrap_or(namespace);
    let reference = CrossNamespaceReference {
        from,
        namespace,
        group,
        kind,
        to_namespace,
        name,
    };
    match reference.is_permitted(reader) {
        true => Ok(Name::new(to_namespace, name)),
        false => Err((CertificateRefError::NotPermitted, reference.missing())),
    }
}

fn missing(reader: &Reader<'_>, kind: Kind, name: &Name) -> String {
    let name = name.clone();
    reader.missing(&ObjectKey { kind, name })
}

/// Resolves a reference to CA certificates in a ConfigMap or a ClusterTrustBundle.
pub(crate) fn resolve_authorities(
    reader: &Reader<'_>,
    from: Kind,
    namespace: &str,
    (group, kind, name, other): (&str, &str, &str, Option<&str>),
) -> Result<Vec<Arc<[u8]>>, (CertificateRefError, String)> {
    let (field, pem) = match (group, kind) {
        ("", "ConfigMap") => {
            let target = (group, kind, name, other);
            let name = permitted_name(reader, from, namespace, target)?;
            let map = reader.config_map(&name).ok_or_else(|| {
                (
                    CertificateRefError::InvalidContent,
                    missing(reader, Kind::ConfigMap, &name),
                )
            })?;
            let pem = map.data.get("ca.crt").ok_or_else(|| {
                (
                    CertificateRefError::InvalidContent,
                    format!("ConfigMap {name} has no key `ca.crt`"),
                )
            })?;
            (format!("ConfigMap {name}: ca.crt"), pem)
        }
        (CERTIFICATES_GROUP, "ClusterTrustBundle") => {
            let name = Name::new("", name);
            let kind = Kind::ClusterTrustBundle;
            let bundle = reader.trust_bundle(&name).ok_or_else(|| {
                (
                    CertificateRefError::InvalidContent,
                    missing(reader, kind, &name),
                )
            })?;
            (
                format!("ClusterTrustBundle {name}: spec.trustBundle"),
                &bundle.spec.trust_bundle,
            )
        }
        _ => {
            let kinds = [Kind::ConfigMap, Kind::ClusterTrustBundle];
            let message = wrong_group(group, kind, name, &kinds).unwrap_or_else(|| {
                let found = full_kind(group, kind);
                format!("{found} {name} is not a supported reference to CA certificates; use a ConfigMap or a ClusterTrustBundle")
            });
            return Err((CertificateRefError::InvalidKind, message));
        }
    };
    trust_anchors(pem.as_bytes()).map_err(|why| {
        (
            CertificateRefError::InvalidContent,
            format!("{field} {why}"),
        )
    })
}

/// Parses CA certificates in PEM. Fails if one is malformed, or if none could verify a signature.
pub(crate) fn trust_anchors(pem: &[u8]) -> Result<Vec<Arc<[u8]>>, String> {
    let anchors = parse_certificates(pem, x509::check_anchor)?;
    let unusable = |der: &Arc<[u8]>| x509::unusable_public_key(&x509::Certificate::read(der)?);
    match anchors.iter().map(unusable).collect::<Option<Vec<_>>>() {
        Some(reasons) => Err(format!(
            "contains a certificate that can't verify others: its key is {}",
            reasons.join("; ")
        )),
        None => Ok(anchors),
    }
}

/// Formats a kind with its group.
fn full_kind(group: &str, kind: &str) -> String {
    match group.is_empty() {
        true => kind.to_owned(),
        false => format!("{kind}.{group}"),
    }
}

/// Returns the message for a reference to a supported kind with the wrong group.
fn wrong_group(group: &str, kind: &str, name: &str, kinds: &[Kind]) -> Option<String> {
    let expected = kinds.iter().find(|known| known.name() == kind)?.group();
    Some(format!(
        "{kind} {name}: the group of {kind} is \"{expected}\", not \"{group}\"; write `group: {}`",
        if expected.is_empty() {
            "\"\""
        } else {
            expected
        }
    ))
}

/// Reads a data source of Kuma, including Secrets.
pub(crate) fn read_source(
    reader: &Reader<'_>,
    mesh: &str,
    source: &DataSource,
) -> Result<Arc<[u8]>, String> {
    let DataSource::Secret(name) = source else {
        return content(reader, source);
    };
    let (name, secret) = find_mesh_secret(reader, mesh, name)?;
    let found = value(secret, SECRET_KEY).map_err(|why| format!("Secret {name} {why}"))?;
    Ok(found.into())
}

/// Resolves a Secret of a mesh to a certificate and key, and validates them.
pub(crate) fn resolve_mesh_secret(
    reader: &Reader<'_>,
    mesh: &str,
    name: &str,
) -> Result<ResolvedCertificate, String> {
    let (name, _) = find_mesh_secret(reader, mesh, name)?;
    let key = reader.certificate(&name);
    key.transpose()
        .map_err(|why| format!("Secret {name}: {why}"))?;
    Ok(ResolvedCertificate {
        retained: reader.retained(&name),
        id: SecretId::Object(name),
    })
}

/// Parses the certificate and key of a Secret: in separate entries as in Kubernetes, or in one as in Kuma.
pub(crate) fn from_secret(secret: &Secret) -> Result<CertifiedKey, String> {
    let has = |key: &str| secret.data.contains_key(key) || secret.string_data.contains_key(key);
    if has("tls.crt") {
        let certificate = value(secret, "tls.crt")?;
        let key = value(secret, "tls.key")?;
        return from_parts(("tls.crt", &certificate), ("tls.key", &key));
    }
    let pem = value(secret, SECRET_KEY)?;
    from_parts((SECRET_KEY, &pem), (SECRET_KEY, &pem))
}

/// Finds a Secret of a mesh: a universal document, or on Kubernetes one in Kuma's system namespace.
fn find_mesh_secret<'a>(
    reader: &Reader<'a>,
    mesh: &str,
    name: &str,
) -> Result<(Name, &'a Secret), String> {
    let names = [
        Name::new(NamespaceName::of_mesh(mesh), name),
        Name::new(SYSTEM_NAMESPACE, name),
    ];
    let found = names
        .iter()
        .find_map(|name| Some((name.clone(), reader.secret(name)?)));
    found.ok_or_else(|| {
        let keys = names.each_ref().map(|name| ObjectKey {
            kind: Kind::Secret,
            name: name.clone(),
        });
        match keys.iter().find(|key| reader.is_rejected(key)) {
            Some(rejected) => reader.missing(rejected),
            None => format!("neither Secret {} nor Secret {} exists", names[0], names[1]),
        }
    })
}

/// Parses and validates a certificate and its key that are concatenated as PEM.
pub fn parse_certified_key(pem: &[u8]) -> Result<CertifiedKey, String> {
    from_parts(("", pem), ("", pem))
}

/// Describes an error of the PEM parser.
fn pem_error(error: rustls_pki_types::pem::Error) -> String {
    use rustls_pki_types::pem::Error;
    match error {
        Error::MissingSectionEnd { .. } => "is not PEM: a section has no end".to_owned(),
        Error::IllegalSectionStart { .. } => "is not PEM: a section has no beginning".to_owned(),
        Error::Base64Decode(_) => "is not PEM: the content is not base64".to_owned(),
        _ => "is not PEM".to_owned(),
    }
}

/// Parses a certificate and its key from PEM, each with the name of its field, which may be empty. Both may be in the same text. Fails unless the proxy could
/// sign with the key.
pub(crate) fn from_parts(
    (crt_name, certificate): (&str, &[u8]),
    (key_name, key): (&str, &[u8]),
) -> Result<CertifiedKey, String> {
    let named = |name: &str, why: String| format!("{name} {why}").trim_start().to_owned();
    let found = CertifiedKey {
        chain: parse_certificates(certificate, x509::check_certificate)
            .map_err(|why| named(crt_name, why))?,
        key: parse_private_key(key).map_err(|why| named(key_name, why))?,
    };
    match x509::signing_key(&found) {
        Ok(_) => Ok(found),
        Err(error) => Err(error.message(crt_name, key_name)),
    }
}

fn value(secret: &Secret, key: &str) -> Result<Vec<u8>, String> {
    if let Some(text) = secret.string_data.get(key) {
        return Ok(text.clone().into_bytes());
    }
    let text = secret
        .data
        .get(key)
        .ok_or_else(|| format!("has no key `{key}`"))?;
    // The API server accepts line breaks in base64.
    let packed: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    STANDARD
        .decode(packed)
        .map_err(|error| format!("{key} is not base64: {error}"))
}

/// Parses certificates in PEM, each of which must pass a check.
fn parse_certificates(
    pem: &[u8],
    check: fn(&[u8]) -> Result<(), String>,
) -> Result<Vec<Arc<[u8]>>, String> {
    let mut chain: Vec<Arc<[u8]>> = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let der = certificate.map_err(pem_error)?;
        check(&der).map_err(|why| match chain.len() {
            0 => format!("contains a certificate that can't be used: {why}"),
            before => format!(
                "contains a certificate, number {}, that can't be used: {why}",
                before + 1
            ),
        })?;
        chain.push(Arc::from(der.as_ref()));
    }
    if chain.is_empty() {
        return Err("contains no PEM certificate".to_owned());
    }
    Ok(chain)
}

fn parse_private_key(pem: &[u8]) -> Result<PrivateKey, String> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        _ if is_encrypted(pem) => {
            "contains an encrypted private key; decrypt it, for example with `openssl pkey -in FILE`"
                .to_owned()
        }
        rustls_pki_types::pem::Error::NoItemsFound => "contains no PEM private key".to_owned(),
        other => pem_error(other),
    })?;
    let der: Arc<[u8]> = Arc::from(key.secret_der());
    match key {
        PrivateKeyDer::Pkcs8(_) => Ok(PrivateKey::Pkcs8(der)),
        PrivateKeyDer::Pkcs1(_) => Ok(PrivateKey::Pkcs1(der)),
        PrivateKeyDer::Sec1(_) => Ok(PrivateKey::Sec1(der)),
        _ => Err("contains a private key in an unknown format".to_owned()),
    }
}

/// Returns whether PEM contains an encrypted key, in PKCS #8 or in OpenSSL's older format.
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}
