//! Private keys: whether the TLS library can sign with one, and whether it belongs to its certificate.

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

/// Reason why a server can't sign with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The key is of an algorithm or size that the TLS library does not sign with: what it is, and what would be right.
    Unsupported(String),
    /// The key is damaged.
    Corrupt,
    /// The key belongs to another certificate.
    Mismatch,
    /// The key belongs to a certificate of the chain that is not the first.
    NotFirst,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message("", ""))
    }
}

impl KeyError {
    /// The error as a sentence, with the names of the fields that hold certificate and key; these may be empty.
    pub fn message(&self, certificate: &str, key: &str) -> String {
        let place = |name: &str| match name.is_empty() {
            true => String::new(),
            false => format!(" in {name}"),
        };
        let (certificate, key) = (place(certificate), place(key));
        match self {
            KeyError::Unsupported(what) => format!("the private key{key} is {what}"),
            KeyError::Corrupt => format!("the private key{key} can't be read: it is damaged"),
            KeyError::Mismatch => {
                format!("the private key{key} does not belong to the certificate{certificate}")
            }
            KeyError::NotFirst => format!(
                "the certificate that the private key{key} belongs to comes after others{certificate}; it must come first"
            ),
        }
    }
}

/// A certificate and key in the form that rustls signs with. Fails if the key can't be used or is not the certificate's.
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
    // `CertifiedKey::keys_match` would do, but it rejects certificates of version 1.
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

/// Reason why nothing that a certificate's key has signed can be verified, if so.
pub fn unusable_public_key(certificate: &Certificate<'_>) -> Option<String> {
    KeyAlgorithm::of_public(certificate.public_key)?.unsupported()
}

/// Algorithm of a key with the parameter that decides whether it can be used.
enum KeyAlgorithm<'k> {
    Rsa { bits: usize },
    Ec { curve: &'k [u8] },
    Other(&'k [u8]),
}

/// rsaEncryption, 1.2.840.113549.1.1.1.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// id-ecPublicKey, 1.2.840.10045.2.1.
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// Curves that can be signed with: P-256, P-384 and P-521.
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
        // The first byte counts unused bits; RSAPublicKey begins with the modulus.
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

    /// What the key is and what would be right, if the TLS library can't use it.
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

/// Number of bits of the integer at an index of an RSA key.
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
