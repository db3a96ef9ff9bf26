//! Private keys: support by the TLS library, and correspondence with certificates.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign;
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};

use super::{
    BIT_STRING, Certificate, CertifiedKey, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE,
    element, elements,
};
use crate::bound::PrivateKey;

/// Reason why a key can't be used to sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The TLS library does not support the algorithm or size; the text names both it and the supported ones.
    Unsupported(String),
    /// The key can't be parsed.
    Corrupt,
    /// The key belongs to another certificate.
    Mismatch,
    /// The key belongs to a certificate of the chain other than the first.
    NotFirst,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message("", ""))
    }
}

impl KeyError {
    /// Formats the error, with the names of the fields that contain the certificate and the key, which may be empty.
    pub fn message(&self, certificate: &str, key: &str) -> String {
        let field = |name: &str| match name.is_empty() {
            true => String::new(),
            false => format!(" in {name}"),
        };
        let (certificate, key) = (field(certificate), field(key));
        match self {
            KeyError::Unsupported(description) => format!("the private key{key} is {description}"),
            KeyError::Corrupt => format!("the private key{key} is corrupt"),
            KeyError::Mismatch => {
                format!("the private key{key} does not belong to the certificate{certificate}")
            }
            KeyError::NotFirst => format!(
                "the certificate that the private key{key} belongs to comes after others{certificate}; it must come first"
            ),
        }
    }
}

/// Converts a certificate and key for use by rustls. Fails if the key is not supported or does not belong to the certificate.
pub fn signing_key(key: &CertifiedKey) -> Result<Arc<sign::CertifiedKey>, KeyError> {
    let der = match &key.key {
        PrivateKey::Pkcs8(der) => PrivateKeyDer::from(PrivatePkcs8KeyDer::from(&**der)),
        PrivateKey::Pkcs1(der) => PrivateKeyDer::from(PrivatePkcs1KeyDer::from(&**der)),
        PrivateKey::Sec1(der) => PrivateKeyDer::from(PrivateSec1KeyDer::from(&**der)),
    };
    let signer = any_supported_type(&der).map_err(|_| {
        let reason =
            KeyAlgorithm::of_private(&key.key).and_then(|algorithm| algorithm.unsupported());
        reason.map_or(KeyError::Corrupt, KeyError::Unsupported)
    })?;
    // `CertifiedKey::keys_match` rejects certificates of version 1, so the keys are compared here.
    let own = signer.public_key().ok_or(KeyError::Mismatch)?;
    let (_, own, _) = element(&own).ok_or(KeyError::Mismatch)?;
    let belongs = |certificate: &Arc<[u8]>| {
        Certificate::read(certificate).is_some_and(|certificate| certificate.public_key == own)
    };
    match key.chain.iter().position(belongs) {
        Some(0) => {}
        Some(_) => return Err(KeyError::NotFirst),
        None => return Err(KeyError::Mismatch),
    }
    let chain = key.chain.iter();
    let chain = chain.map(|der| CertificateDer::from(der.to_vec()));
    Ok(Arc::new(sign::CertifiedKey::new(chain.collect(), signer)))
}

/// Returns the reason why signatures of a certificate's key can't be verified, if its algorithm is not supported.
pub(crate) fn unusable_public_key(certificate: &Certificate<'_>) -> Option<String> {
    KeyAlgorithm::of_public(certificate.public_key)?.unsupported()
}

/// Algorithm of a key, with the parameter that determines whether it is supported.
enum KeyAlgorithm<'k> {
    Rsa { bits: usize },
    Ec { curve: &'k [u8] },
    Other(&'k [u8]),
}

/// rsaEncryption, 1.2.840.113549.1.1.1.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// id-ecPublicKey, 1.2.840.10045.2.1.
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// Supported curves: P-256, P-384 and P-521.
const CURVES: [&[u8]; 3] = [
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
    &[0x2b, 0x81, 0x04, 0x00, 0x22],
    &[0x2b, 0x81, 0x04, 0x00, 0x23],
];
/// id-Ed25519, 1.3.101.112.
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

impl<'k> KeyAlgorithm<'k> {
    fn of_private(key: &'k PrivateKey) -> Option<Self> {
        match key {
            PrivateKey::Pkcs8(der) => {
                // PrivateKeyInfo: version, privateKeyAlgorithm, privateKey.
                let (_, fields, _) = element(der)?;
                let mut fields = elements(fields);
                let (_, algorithm) = fields.find(|(tag, _)| *tag == SEQUENCE)?;
                let (_, inner) = fields.find(|(tag, _)| *tag == OCTET_STRING)?;
                // RSAPrivateKey: version, modulus.
                KeyAlgorithm::of_algorithm(algorithm, || modulus_bits(inner, 1))
            }
            PrivateKey::Pkcs1(der) => Some(KeyAlgorithm::Rsa {
                bits: modulus_bits(der, 1)?,
            }),
            PrivateKey::Sec1(der) => {
                // ECPrivateKey: version, privateKey, [0] parameters.
                let (_, fields, _) = element(der)?;
                let (_, parameters) = elements(fields).find(|(tag, _)| *tag == 0xa0)?;
                let (_, curve, _) = element(parameters)?;
                Some(KeyAlgorithm::Ec { curve })
            }
        }
    }

    /// Reads a SubjectPublicKeyInfo: algorithm, subjectPublicKey.
    fn of_public(content: &'k [u8]) -> Option<Self> {
        let mut fields = elements(content);
        let (_, algorithm) = fields.next()?;
        let (_, bits) = fields.find(|(tag, _)| *tag == BIT_STRING)?;
        // The first byte is the number of unused bits; RSAPublicKey starts with the modulus.
        KeyAlgorithm::of_algorithm(algorithm, || modulus_bits(bits.get(1..)?, 0))
    }

    fn of_algorithm(
        algorithm: &'k [u8],
        modulus_bits: impl FnOnce() -> Option<usize>,
    ) -> Option<Self> {
        let mut parts = elements(algorithm);
        let (_, identifier) = parts.next().filter(|(tag, _)| *tag == OBJECT_IDENTIFIER)?;
        Some(match identifier {
            RSA => KeyAlgorithm::Rsa {
                bits: modulus_bits()?,
            },
            EC => KeyAlgorithm::Ec {
                curve: parts.next()?.1,
            },
            other => KeyAlgorithm::Other(other),
        })
    }

    /// Describes the key and the supported alternatives, if the TLS library does not support it.
    fn unsupported(&self) -> Option<String> {
        let kinds = "RSA, ECDSA and Ed25519 keys are supported";
        match self {
            KeyAlgorithm::Rsa { bits: 2048..=8192 } => None,
            KeyAlgorithm::Rsa { bits } => Some(format!(
                "an RSA key of {bits} bits; 2048 to 8192 are supported"
            )),
            KeyAlgorithm::Ec { curve } if CURVES.contains(curve) => None,
            KeyAlgorithm::Ec { curve } => Some(format!(
                "an ECDSA key on {}; P-256, P-384 and P-521 are supported",
                curve_name(curve)
            )),
            KeyAlgorithm::Other(ED25519) => None,
            KeyAlgorithm::Other(other) => Some(format!("{}; {kinds}", algorithm_name(other))),
        }
    }
}

/// Returns the size in bits of the integer at an index of an RSA key.
fn modulus_bits(key: &[u8], index: usize) -> Option<usize> {
    let (_, fields, _) = element(key)?;
    let mut integers = elements(fields).filter(|(tag, _)| *tag == INTEGER);
    let (_, modulus) = integers.nth(index)?;
    let digits = modulus.iter().position(|byte| *byte != 0)?;
    let digits = &modulus[digits..];
    Some(digits.len() * 8 - digits[0].leading_zeros() as usize)
}

fn curve_name(curve: &[u8]) -> &'static str {
    match curve {
        [0x2b, 0x81, 0x04, 0x00, 0x0a] => "curve secp256k1",
        [0x2b, 0x81, 0x04, 0x00, 0x21] => "curve P-224",
        [0x2b, 0x24, 0x03, 0x03, 0x02, 0x08, ..] => "a Brainpool curve",
        _ => "another curve",
    }
}

fn algorithm_name(identifier: &[u8]) -> &'static str {
    match identifier {
        [0x2b, 0x65, 0x71] => "an Ed448 key",
        [0x2b, 0x65, 0x6e] => "an X25519 key, which can't sign",
        [0x2b, 0x65, 0x6f] => "an X448 key, which can't sign",
        [0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01] => "a DSA key",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a] => {
            "an RSA key restricted to PSS (id-RSASSA-PSS)"
        }
        _ => "a key of an unknown algorithm",
    }
}
