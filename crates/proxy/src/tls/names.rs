//! The names that a certificate carries.
//!
//! webpki checks DNS names but does not tell of URIs (SPIFFE identities), so the extension is read here. It is read only from
//! certificates whose chain and form were verified before.

use rustls::pki_types::CertificateDer;

/// The subject alternative names of a certificate that are of use here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names<'c> {
    /// DNS names, perhaps with a wildcard.
    pub dns: Vec<&'c str>,
    /// URIs.
    pub uris: Vec<&'c str>,
}

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
/// `[3] EXPLICIT Extensions` of a TBSCertificate.
const EXTENSIONS: u8 = 0xa3;
/// `[2] IA5String` and `[6] IA5String` of a GeneralName.
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
/// id-ce-subjectAltName, 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The names of a certificate; none where it has none or can't be read.
pub(crate) fn names<'c>(certificate: &'c CertificateDer<'_>) -> Names<'c> {
    read(certificate.as_ref()).unwrap_or_default()
}

fn read(certificate: &[u8]) -> Option<Names<'_>> {
    let (_, certificate, _) = element(certificate)?;
    let (_, body, _) = element(certificate)?;
    let (_, extensions) = elements(body).find(|(tag, _)| *tag == EXTENSIONS)?;
    let (_, extensions, _) = element(extensions)?;
    for (tag, extension) in elements(extensions) {
        let mut parts = elements(extension);
        let (id, identifier) = parts.next()?;
        if (tag, id, identifier) != (SEQUENCE, OBJECT_IDENTIFIER, SUBJECT_ALT_NAME) {
            continue;
        }
        // The flag `critical` may stand between.
        let (_, value) = parts.find(|(tag, _)| *tag == OCTET_STRING)?;
        let (_, list, _) = element(value)?;
        let mut names = Names::default();
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

/// The DER elements that follow each other; stops at what is none.
fn elements(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(bytes)?;
        bytes = rest;
        Some((tag, content))
    })
}

/// The first DER element: its tag, its content, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Certificates are far below 4 GiB; four bytes of length are enough.
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

/// Whether a DNS name of a certificate is one that is wanted. Either may have a wildcard, which stands for one label.
pub(crate) fn dns_matches(wanted: &str, carried: &str) -> bool {
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
    use rcgen::{CertificateParams, KeyPair, SanType};

    #[test]
    fn dns_names_and_uris_are_read() {
        let mut params =
            CertificateParams::new(vec!["a.example".to_owned(), "*.b.example".to_owned()])
                .expect("names");
        let identity = "spiffe://a.example/x".try_into().expect("ascii");
        params.subject_alt_names.push(SanType::URI(identity));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let found = names(certificate.der());
        assert_eq!(found.dns, ["a.example", "*.b.example"]);
        assert_eq!(found.uris, ["spiffe://a.example/x"]);
    }

    #[test]
    fn broken_certificates_carry_no_names() {
        let params = CertificateParams::new(vec!["a.example".to_owned()]).expect("names");
        let key = KeyPair::generate().expect("a key");
        let der = params
            .self_signed(&key)
            .expect("a certificate")
            .der()
            .to_vec();
        for length in 0..der.len() {
            assert_eq!(
                names(&CertificateDer::from(&der[..length])),
                Names::default()
            );
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
