//! Certificates and keys out of Secrets, ConfigMaps and ClusterTrustBundles, validated with the code that the proxy uses them with.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pointsman_resources::core::Secret;
use pointsman_resources::kuma::{DataSource, SECRET_KEY, SYSTEM_NAMESPACE, scope};
use pointsman_resources::meta::CERTIFICATES_GROUP;
use pointsman_resources::refs::SecretObjectReference;
use pointsman_resources::{Kind, Name, ObjectKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::bound::{CertifiedKey, PrivateKey, SecretId};
use crate::grants::CrossNamespaceReference;
use crate::kuma::lowering::content;
use crate::store::Reader;
use crate::x509;

/// Why a reference gives no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateRefError {
    /// The reference is not granted.
    NotPermitted,
    /// Not a kind that holds such a thing.
    InvalidKind,
    /// It is missing or holds something else.
    InvalidContent,
}

/// A certificate that a reference resolved to.
pub(crate) struct ResolvedCertificate {
    pub id: SecretId,
    /// Why the newest version of the Secret is not used, if the one before stays in effect.
    pub retained: Option<String>,
}

/// Resolves a reference to a certificate and key, and validates them. Permission is judged before existence.
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
            format!("{found} {name} can't hold a certificate; a Secret can")
        });
        return Err((CertificateRefError::InvalidKind, message));
    }
    let to_namespace = other.as_deref().unwrap_or(namespace);
    let reference = CrossNamespaceReference {
        from,
        namespace,
        group,
        kind,
        to_namespace,
        name,
    };
    if !reference.is_permitted(reader) {
        return Err((CertificateRefError::NotPermitted, reference.missing()));
    }
    let secret_name = Name::new(to_namespace, name.as_str());
    let secret = reader.secret(&secret_name).ok_or_else(|| {
        (
            CertificateRefError::InvalidContent,
            missing(reader, Kind::Secret, &secret_name),
        )
    })?;
    let wrong = |what: String| {
        (
            CertificateRefError::InvalidContent,
            format!("Secret {secret_name}: {what}"),
        )
    };
    // Kuma's Secrets have both in one key, which no Gateway's reference means.
    value(secret, "tls.crt").map_err(wrong)?;
    let key = reader.certificate(&secret_name);
    key.transpose().map_err(wrong)?;
    Ok(ResolvedCertificate {
        retained: reader.retained(&secret_name),
        id: SecretId::Object(secret_name),
    })
}

/// Why there is no object of this kind and name.
fn missing(reader: &Reader<'_>, kind: Kind, name: &Name) -> String {
    let name = name.clone();
    reader.missing(&ObjectKey { kind, name })
}

/// Resolves a reference to the certificates of authorities: a ConfigMap or a ClusterTrustBundle.
pub(crate) fn resolve_authorities(
    reader: &Reader<'_>,
    from: Kind,
    namespace: &str,
    (group, kind, name, other): (&str, &str, &str, Option<&str>),
) -> Result<Vec<Arc<[u8]>>, (CertificateRefError, String)> {
    let (place, pem) = match (group, kind) {
        ("", "ConfigMap") => {
            let to_namespace = other.unwrap_or(namespace);
            let reference = CrossNamespaceReference {
                from,
                namespace,
                group,
                kind,
                to_namespace,
                name,
            };
            if !reference.is_permitted(reader) {
                return Err((CertificateRefError::NotPermitted, reference.missing()));
            }
            let name = Name::new(to_namespace, name);
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
                format!("{found} {name} can't hold certificates of authorities; a ConfigMap or a ClusterTrustBundle can")
            });
            return Err((CertificateRefError::InvalidKind, message));
        }
    };
    trust_anchors(pem.as_bytes()).map_err(|what| {
        (
            CertificateRefError::InvalidContent,
            format!("{place} {what}"),
        )
    })
}

/// Certificates of authorities in PEM. Fails if one can't be read, or if none could verify anything.
pub(crate) fn trust_anchors(pem: &[u8]) -> Result<Vec<Arc<[u8]>>, String> {
    let anchors = parse_certificates(pem, x509::check_anchor)?;
    let unusable = |der: &Arc<[u8]>| x509::unusable_public_key(&x509::Certificate::read(der)?);
    match anchors.iter().map(unusable).collect::<Option<Vec<_>>>() {
        Some(reasons) => Err(format!(
            "holds a certificate that can't verify others: its key is {}",
            reasons.join("; ")
        )),
        None => Ok(anchors),
    }
}

/// A kind with its group.
fn full_kind(group: &str, kind: &str) -> String {
    match group.is_empty() {
        true => kind.to_owned(),
        false => format!("{kind}.{group}"),
    }
}

/// The message for a reference to one of these kinds in a group that is not its own.
fn wrong_group(group: &str, kind: &str, name: &str, kinds: &[Kind]) -> Option<String> {
    let meant = kinds.iter().find(|known| known.name() == kind)?;
    let right = meant.group();
    Some(format!(
        "{kind} {name}: the group of {kind} is \"{right}\", not \"{group}\"; write `group: {}`",
        if right.is_empty() { "\"\"" } else { right }
    ))
}

/// The bytes that a source of Kuma's stands for; of a secret what it holds.
pub(crate) fn read_source(
    reader: &Reader<'_>,
    mesh: &str,
    source: &DataSource,
) -> Result<Arc<[u8]>, String> {
    let DataSource::Secret(name) = source else {
        return content(reader, source);
    };
    let (name, secret) = find_mesh_secret(reader, mesh, name)?;
    let found = value(secret, SECRET_KEY).map_err(|what| format!("Secret {name} {what}"))?;
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
        .map_err(|what| format!("Secret {name}: {what}"))?;
    Ok(ResolvedCertificate {
        retained: reader.retained(&name),
        id: SecretId::Object(name),
    })
}

/// A certificate and its key, apart as Kubernetes has them in a Secret, or together as Kuma does.
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

/// A Secret of a mesh: a universal document, or on Kubernetes one in the namespace of the mesh's operators.
fn find_mesh_secret<'a>(
    reader: &Reader<'a>,
    mesh: &str,
    name: &str,
) -> Result<(Name, &'a Secret), String> {
    let places = [
        Name::new(scope(mesh), name),
        Name::new(SYSTEM_NAMESPACE, name),
    ];
    let found = places
        .iter()
        .find_map(|place| Some((place.clone(), reader.secret(place)?)));
    found.ok_or_else(|| {
        let keys = places.each_ref().map(|name| ObjectKey {
            kind: Kind::Secret,
            name: name.clone(),
        });
        match keys.iter().find(|key| reader.is_rejected(key)) {
            Some(rejected) => reader.missing(rejected),
            None => format!("there is no Secret {}, nor {}", places[0], places[1]),
        }
    })
}

/// The certificate and its key that a text holds as PEM, validated as those of Secrets are.
pub fn parse_certified_key(pem: &[u8]) -> Result<CertifiedKey, String> {
    from_parts(("", pem), ("", pem))
}

/// What is wrong with a text that is no PEM.
fn pem_error(error: rustls_pki_types::pem::Error) -> String {
    use rustls_pki_types::pem::Error;
    match error {
        Error::MissingSectionEnd { .. } => "is not PEM: a section has no end".to_owned(),
        Error::IllegalSectionStart { .. } => "is not PEM: a section has no beginning".to_owned(),
        Error::Base64Decode(_) => "is not PEM: what stands there is not base64".to_owned(),
        _ => "is not PEM".to_owned(),
    }
}

/// A certificate and its key, each as PEM with the name of its field, which may be empty; one text may hold both. Fails unless the proxy could sign with them.
pub(crate) fn from_parts(
    (crt_name, certificate): (&str, &[u8]),
    (key_name, key): (&str, &[u8]),
) -> Result<CertifiedKey, String> {
    let named = |name: &str, what: String| format!("{name} {what}").trim_start().to_owned();
    let found = CertifiedKey {
        chain: parse_certificates(certificate, x509::check_certificate)
            .map_err(|what| named(crt_name, what))?,
        key: parse_private_key(key).map_err(|what| named(key_name, what))?,
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
    // The API server takes line breaks within base64.
    let packed: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    STANDARD
        .decode(packed)
        .map_err(|error| format!("{key} is not base64: {error}"))
}

/// Certificates in PEM, each of which passes a check.
fn parse_certificates(
    pem: &[u8],
    check: fn(&[u8]) -> Result<(), String>,
) -> Result<Vec<Arc<[u8]>>, String> {
    let mut chain: Vec<Arc<[u8]>> = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let der = certificate.map_err(pem_error)?;
        check(&der).map_err(|why| match chain.len() {
            0 => format!("holds a certificate that can't be used: {why}"),
            before => format!(
                "holds a certificate, number {}, that can't be used: {why}",
                before + 1
            ),
        })?;
        chain.push(Arc::from(der.as_ref()));
    }
    if chain.is_empty() {
        return Err("holds no PEM certificate".to_owned());
    }
    Ok(chain)
}

fn parse_private_key(pem: &[u8]) -> Result<PrivateKey, String> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        _ if is_encrypted(pem) => {
            "holds an encrypted private key; decrypt it, for example with `openssl pkey -in FILE`"
                .to_owned()
        }
        rustls_pki_types::pem::Error::NoItemsFound => "holds no PEM private key".to_owned(),
        other => pem_error(other),
    })?;
    let der: Arc<[u8]> = Arc::from(key.secret_der());
    match key {
        PrivateKeyDer::Pkcs8(_) => Ok(PrivateKey::Pkcs8(der)),
        PrivateKeyDer::Pkcs1(_) => Ok(PrivateKey::Pkcs1(der)),
        PrivateKeyDer::Sec1(_) => Ok(PrivateKey::Sec1(der)),
        _ => Err("holds a private key of an unknown form".to_owned()),
    }
}

/// Whether PEM holds an encrypted key, in PKCS #8 or in OpenSSL's older form.
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}
