//! Certificates and keys out of Secrets, ConfigMaps and ClusterTrustBundles, really parsed.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pointsman_resources::core::Secret;
use pointsman_resources::kuma::{DataSource, SECRET_KEY, scope};
use pointsman_resources::meta::CERTIFICATES_GROUP;
use pointsman_resources::refs::SecretObjectReference;
use pointsman_resources::{Kind, Name, ObjectKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::bound::{CertifiedKey, PrivateKey, SecretId};
use crate::grants::Reference;
use crate::kuma::lower::content;
use crate::kuma::policy::SYSTEM_NAMESPACE;
use crate::store::Reader;

/// Why a reference gives no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The reference is not granted.
    NotPermitted,
    /// Not a kind that holds such a thing.
    Kind,
    /// It is missing or holds something else.
    Content,
}

/// Resolves a reference to a certificate and key, and validates them. Permission is judged before existence.
pub(crate) fn certified_key(
    reader: &Reader<'_>,
    from: Kind,
    namespace: &str,
    reference: &SecretObjectReference,
) -> Result<SecretId, (Wrong, String)> {
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
        return Err((Wrong::Kind, message));
    }
    let to_namespace = other.as_deref().unwrap_or(namespace);
    let reference = Reference {
        from,
        namespace,
        group,
        kind,
        to_namespace,
        name,
    };
    if !reference.is_permitted(reader) {
        return Err((Wrong::NotPermitted, reference.missing()));
    }
    let secret_name = Name::new(to_namespace, name.as_str());
    let secret = reader
        .secret(&secret_name)
        .ok_or_else(|| (Wrong::Content, missing(reader, Kind::Secret, &secret_name)))?;
    let wrong = |what: String| (Wrong::Content, format!("Secret {secret_name}: {what}"));
    let certificate = value(secret, "tls.crt").map_err(wrong)?;
    let key = value(secret, "tls.key").map_err(wrong)?;
    certificates(&certificate).map_err(|what| wrong(format!("tls.crt {what}")))?;
    private_key(&key).map_err(|what| wrong(format!("tls.key {what}")))?;
    Ok(SecretId::Object(secret_name))
}

/// Why there is no object of this kind and name.
fn missing(reader: &Reader<'_>, kind: Kind, name: &Name) -> String {
    let name = name.clone();
    reader.missing(&ObjectKey { kind, name })
}

/// Resolves a reference to the certificates of authorities: a ConfigMap or a ClusterTrustBundle.
pub(crate) fn authorities(
    reader: &Reader<'_>,
    from: Kind,
    namespace: &str,
    (group, kind, name, other): (&str, &str, &str, Option<&str>),
) -> Result<Vec<Arc<[u8]>>, (Wrong, String)> {
    let (place, pem) = match (group, kind) {
        ("", "ConfigMap") => {
            let to_namespace = other.unwrap_or(namespace);
            let reference = Reference {
                from,
                namespace,
                group,
                kind,
                to_namespace,
                name,
            };
            if !reference.is_permitted(reader) {
                return Err((Wrong::NotPermitted, reference.missing()));
            }
            let name = Name::new(to_namespace, name);
            let map = reader
                .config_map(&name)
                .ok_or_else(|| (Wrong::Content, missing(reader, Kind::ConfigMap, &name)))?;
            let pem = map.data.get("ca.crt").ok_or_else(|| {
                (
                    Wrong::Content,
                    format!("ConfigMap {name} has no key `ca.crt`"),
                )
            })?;
            (format!("ConfigMap {name}: ca.crt"), pem)
        }
        (CERTIFICATES_GROUP, "ClusterTrustBundle") => {
            let name = Name::new("", name);
            let kind = Kind::ClusterTrustBundle;
            let bundle = reader
                .trust_bundle(&name)
                .ok_or_else(|| (Wrong::Content, missing(reader, kind, &name)))?;
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
            return Err((Wrong::Kind, message));
        }
    };
    let chain =
        certificates(pem.as_bytes()).map_err(|what| (Wrong::Content, format!("{place} {what}")))?;
    for der in &chain {
        webpki::anchor_from_trusted_cert(&CertificateDer::from(&**der))
            .map_err(|error| (Wrong::Content, format!("{place} can't be trusted: {error}")))?;
    }
    Ok(chain)
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
pub(crate) fn bytes(
    reader: &Reader<'_>,
    mesh: &str,
    source: &DataSource,
) -> Result<Arc<[u8]>, String> {
    let DataSource::Secret(name) = source else {
        return content(reader, source);
    };
    let (name, secret) = secret(reader, mesh, name)?;
    let found = value(secret, SECRET_KEY).map_err(|what| format!("Secret {name} {what}"))?;
    Ok(found.into())
}

/// Resolves a Secret of a mesh to a certificate and key, and validates them.
pub(crate) fn mesh_secret(reader: &Reader<'_>, mesh: &str, name: &str) -> Result<SecretId, String> {
    let (name, secret) = secret(reader, mesh, name)?;
    of_secret(secret).map_err(|what| format!("Secret {name} {what}"))?;
    Ok(SecretId::Object(name))
}

/// A certificate and its key, apart as Kubernetes has them in a Secret, or together as Kuma does.
pub(crate) fn of_secret(secret: &Secret) -> Result<CertifiedKey, String> {
    let has = |key: &str| secret.data.contains_key(key) || secret.string_data.contains_key(key);
    let parts = match has("tls.crt") {
        true => value(secret, "tls.crt").and_then(|crt| Ok((crt, value(secret, "tls.key")?))),
        false => value(secret, SECRET_KEY).map(|pem| (pem.clone(), pem)),
    };
    parts.and_then(|(certificate, key)| of_parts(&certificate, &key))
}

/// A Secret of a mesh: a universal document, or on Kubernetes one in the namespace of the mesh's operators.
fn secret<'a>(reader: &Reader<'a>, mesh: &str, name: &str) -> Result<(Name, &'a Secret), String> {
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

/// The certificate and its key that a text holds as PEM, or what is wrong with it. Whether they belong together is for whoever can sign.
pub fn certificate_of(pem: &[u8]) -> Result<CertifiedKey, String> {
    of_parts(pem, pem)
}

/// What is wrong with a text that is no PEM.
fn no_pem(error: rustls_pki_types::pem::Error) -> String {
    use rustls_pki_types::pem::Error;
    match error {
        Error::MissingSectionEnd { .. } => "is not PEM: a section has no end".to_owned(),
        Error::IllegalSectionStart { .. } => "is not PEM: a section has no beginning".to_owned(),
        Error::Base64Decode(_) => "is not PEM: what stands there is not base64".to_owned(),
        other => format!("is not PEM: {other}"),
    }
}

/// A certificate and its key, each as PEM; one text may hold both.
pub(crate) fn of_parts(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    Ok(CertifiedKey {
        chain: certificates(certificate)?,
        key: private_key(key)?,
    })
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

pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<Arc<[u8]>>, String> {
    let mut chain = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let der = certificate.map_err(no_pem)?;
        webpki::EndEntityCert::try_from(&der)
            .map_err(|error| format!("holds a certificate that can't be read: {error}"))?;
        chain.push(Arc::from(der.as_ref()));
    }
    if chain.is_empty() {
        return Err("holds no PEM certificate".to_owned());
    }
    Ok(chain)
}

fn private_key(pem: &[u8]) -> Result<PrivateKey, String> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        rustls_pki_types::pem::Error::NoItemsFound => "holds no PEM private key".to_owned(),
        other => no_pem(other),
    })?;
    let der: Arc<[u8]> = Arc::from(key.secret_der());
    // A DER key is one SEQUENCE.
    if der.first() != Some(&0x30) {
        return Err("holds a private key that can't be read".to_owned());
    }
    match key {
        PrivateKeyDer::Pkcs8(_) => Ok(PrivateKey::Pkcs8(der)),
        PrivateKeyDer::Pkcs1(_) => Ok(PrivateKey::Pkcs1(der)),
        PrivateKeyDer::Sec1(_) => Ok(PrivateKey::Sec1(der)),
        _ => Err("holds a private key of an unknown form".to_owned()),
    }
}
