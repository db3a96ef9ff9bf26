//! Validation of X.509 certificates and private keys.
//!
//! Binding validates keys with the same code that the proxy signs with ([`signing_key`]), so that status and handshakes agree. webpki verifies chains, but does
//! not expose validity periods or URIs, and rejects version 1, so this module parses the fields itself.

mod key;

use rustls_pki_types::CertificateDer;

use crate::bound::CertifiedKey;

pub(crate) use key::unusable_public_key;
pub use key::{KeyError, signing_key};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// `[0] EXPLICIT Version` and `[3] EXPLICIT Extensions` of a TBSCertificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `[2] IA5String` and `[6] IA5String` of a GeneralName.
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
/// id-ce-subjectAltName, 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Subject alternative names of a certificate.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SubjectAltNames<'c> {
    /// DNS names, which may have wildcards.
    pub dns: Vec<&'c str>,
    /// URIs.
    pub uris: Vec<&'c str>,
}

/// Parses the names of a certificate; empty if it has none or is malformed.
pub fn names(certificate: &[u8]) -> SubjectAltNames<'_> {
    let certificate = Certificate::read(certificate);
    let names = certificate.and_then(|certificate| certificate.names());
    names.unwrap_or_default()
}

/// Fields of a certificate, of which only the outer structure has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'c> {
    /// Version: 1, 2 or 3.
    pub version: u8,
    validity: &'c [u8],
    public_key: &'c [u8],
    extensions: Option<&'c [u8]>,
}

impl<'c> Certificate<'c> {
    /// Parses a certificate (RFC 5280, section 4.1).
    pub fn read(der: &'c [u8]) -> Option<Self> {
        let (_, certificate, _) = element(der)?;
        let (_, body, _) = element(certificate)?;
        let mut fields = elements(body).peekable();
        // "version [0] EXPLICIT Version DEFAULT v1"
        let version = match fields.next_if(|(tag, _)| *tag == VERSION) {
            Some((_, version)) => *element(version)?.1.last()? + 1,
            None => 1,
        };
        // serialNumber, signature, issuer, validity, subject, subjectPublicKeyInfo
        let (_, validity) = fields.nth(3)?;
        let (_, public_key) = fields.nth(1)?;
        let extensions = fields.find(|(tag, _)| *tag == EXTENSIONS);
        Some(Certificate {
            version,
            validity,
            public_key,
            extensions: extensions.map(|(_, content)| content),
        })
    }

    /// Returns the start and end of the validity period, in Unix seconds.
    pub fn validity(&self) -> Option<(i64, i64)> {
        let mut times = elements(self.validity).map(|(tag, text)| seconds(tag, text));
        Some((times.next()??, times.next()??))
    }

    fn names(&self) -> Option<SubjectAltNames<'c>> {
        let (_, extensions, _) = element(self.extensions?)?;
        for (tag, extension) in elements(extensions) {
            let mut parts = elements(extension);
            let (id, identifier) = parts.next()?;
            if (tag, id, identifier) != (SEQUENCE, OBJECT_IDENTIFIER, SUBJECT_ALT_NAME) {
                continue;
            }
            // The optional flag `critical` precedes the value.
            let (_, value) = parts.find(|(tag, _)| *tag == OCTET_STRING)?;
            let (_, list, _) = element(value)?;
            let mut names = SubjectAltNames::default();
            for (tag, text) in elements(list) {
                match (tag, std::str::from_utf8(text)) {
                    (DNS_NAME, Ok(text)) => names.dns.push(text),
                    (URI, Ok(text)) => names.uris.push(text),
                    _ => {}
                }
            }
            return Some(names);
        }
        None
    }
}

/// Converts a UTCTime or GeneralizedTime to Unix seconds. RFC 5280 permits only these forms (section 4.1.2.5).
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (year, rest) = match tag {
        // "Where YY is greater than or equal to 50, the year SHALL be interpreted as 19YY"
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let century = if year < "50" { "20" } else { "19" };
            (format!("{century}{year}"), rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.to_owned(), rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2);
    let (month, day) = (part(0)?, part(2)?);
    let (hour, minute, second) = (part(4)?, part(6)?, part(8)?);
    let time = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    pointsman_resources::meta::rfc3339(&time).filter(|_| rest.get(10..) == Some("Z"))
}

/// Checks whether a certificate can be presented to peers. webpki rejects version 1 except in trust anchors, but such certificates are still served.
pub(crate) fn check_certificate(der: &[u8]) -> Result<(), String> {
    let certificate = CertificateDer::from(der);
    match webpki::EndEntityCert::try_from(&certificate) {
        Ok(_) => Ok(()),
        Err(webpki::Error::UnsupportedCertVersion) => check_anchor(der),
        Err(error) => Err(certificate_error(&error).to_owned()),
    }
}

/// Checks whether a certificate can be a trust anchor.
pub(crate) fn check_anchor(der: &[u8]) -> Result<(), String> {
    if Certificate::read(der).is_some_and(|certificate| certificate.version == 2) {
        return Err("its X.509 version is 2; 1 and 3 are supported".to_owned());
    }
    webpki::anchor_from_trusted_cert(&CertificateDer::from(der))
        .map_err(|error| certificate_error(&error).to_owned())?;
    Ok(())
}

/// Describes an error of webpki, whose own messages are the names of its variants.
fn certificate_error(error: &webpki::Error) -> &'static str {
    use webpki::Error;
    match error {
        Error::UnsupportedCriticalExtension => "it has a critical extension that is not supported",
        Error::MalformedExtensions
        | Error::ExtensionValueInvalid
        | Error::MalformedDnsIdentifier
        | Error::MalformedNameConstraint => "it has an invalid extension",
        Error::InvalidSerialNumber => "its serial number is invalid",
        Error::BadDerTime => "its validity period is invalid",
        _ => "it is corrupt or not an X.509 certificate",
    }
}

/// Iterates over consecutive DER elements, up to the first invalid one.
fn elements(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(bytes)?;
        bytes = rest;
        Some((tag, content))
    })
}

/// Parses a DER element: its tag, its content, and the remaining bytes.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Certificates are far smaller than 4 GiB, so lengths have at most four bytes.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits
                .iter()
                .fold(0usize, |sum, &byte| sum << 8 | usize::from(byte));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Returns whether a DNS name in a certificate covers the requested name. Either may have a wildcard, which stands for one label.
pub fn dns_matches(wanted: &str, carried: &str) -> bool {
    let covers = |pattern: &str, name: &str| match pattern.strip_prefix("*.") {
        Some(suffix) => name
            .split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(suffix)),
        None => false,
    };
    wanted.eq_ignore_ascii_case(carried) || covers(wanted, carried) || covers(carried, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};

    fn signed(params: &CertificateParams) -> Vec<u8> {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        certificate.der().to_vec()
    }

    #[test]
    fn dns_names_and_uris_are_parsed() {
        let mut params =
            CertificateParams::new(vec!["a.example".to_owned(), "*.b.example".to_owned()])
                .expect("names");
        let identity = "spiffe://a.example/x".try_into().expect("ascii");
        params.subject_alt_names.push(SanType::URI(identity));
        let der = signed(&params);
        let found = names(&der);
        assert_eq!(found.dns, ["a.example", "*.b.example"]);
        assert_eq!(found.uris, ["spiffe://a.example/x"]);
    }

    #[test]
    fn truncated_certificates_have_no_names() {
        let params = CertificateParams::new(vec!["a.example".to_owned()]).expect("names");
        let der = signed(&params);
        for length in 0..der.len() {
            assert_eq!(names(&der[..length]), SubjectAltNames::default());
        }
    }

    #[test]
    fn validity_is_parsed_in_both_time_formats() {
        let mut params = CertificateParams::default();
        for ((year, from), (end, until)) in [
            ((2020, 1_577_836_800), (2030, 1_893_456_000)),
            // RFC 5280: "validity dates in 2050 or later MUST be encoded as GeneralizedTime".
            ((1999, 915_148_800), (2060, 2_840_140_800)),
        ] {
            params.not_before = date_time_ymd(year, 1, 1);
            params.not_after = date_time_ymd(end, 1, 1);
            let der = signed(&params);
            let certificate = Certificate::read(&der).expect("a certificate");
            assert_eq!(certificate.version, 3);
            assert_eq!(certificate.validity(), Some((from, until)));
        }
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        for (wanted, carried, matches) in [
            ("a.example", "A.example", true),
            ("a.example", "b.example", false),
            ("a.example", "*.example", true),
            ("*.example", "a.example", true),
            ("*.example", "*.example", true),
            ("a.b.example", "*.example", false),
            ("example", "*.example", false),
            (".example", "*.example", false),
        ] {
            assert_eq!(dns_matches(wanted, carried), matches, "{wanted} {carried}");
        }
    }
}
