//! Certificate authorities, their rotation and their storage in a Secret. Pure: time is an argument.
//! A rotation has three steps. A new authority is added to the bundle while the old one still issues certificates. When every proxy has had time to read the
//! new bundle, the new authority issues them. When the old one expires, it is removed from the bundle. Proxies therefore trust the serving certificate at any
//! time.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use pointsman_binding::x509;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use time::OffsetDateTime;

/// Keys of the Secret: the bundle that proxies trust, the current authority, and the next one.
const BUNDLE: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";

/// Seconds by which the validity of certificates starts before they are issued, because clocks differ.
const BACKDATED: i64 = 3600;

/// Seconds of a day.
const DAY: i64 = 24 * 3600;

/// Times of a rotation, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Lifetime of an authority.
    pub lifetime: i64,
    /// Rest of the lifetime at which the next authority is created.
    pub renew: i64,
    /// Time from the creation of an authority to its first certificate. A kubelet takes about two minutes to update a mounted ConfigMap.
    pub distribute: i64,
    /// Lifetime of a serving certificate, which is renewed after half of it.
    pub serving: i64,
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation {
            lifetime: 90 * DAY,
            renew: 30 * DAY,
            distribute: DAY,
            serving: 7 * DAY,
        }
    }
}

/// Content of a Secret that can't be used, or an authority that can't be created.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A key is missing.
    #[error("key {0} is missing")]
    Missing(&'static str),
    /// A value is malformed.
    #[error("key {0}: {1}")]
    Malformed(&'static str, String),
    /// Key and certificate do not belong together.
    #[error("the private key in {0} does not belong to the certificate in {1}")]
    Mismatch(&'static str, &'static str),
    /// A certificate can't be created.
    #[error("can't issue a certificate: {0}")]
    Issue(#[from] rcgen::Error),
}

/// One authority.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    /// Certificate in PEM.
    certificate: String,
    /// Private key in PEM.
    key: String,
    /// Validity, in Unix seconds.
    valid: (i64, i64),
}

/// The authorities of a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorities {
    current: Authority,
    next: Option<Authority>,
    /// Certificates in PEM of earlier authorities that may still be in use, with the end of their validity.
    earlier: Vec<(String, i64)>,
}

/// A serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingCertificate {
    /// Certificate chain in DER.
    pub chain: Vec<Vec<u8>>,
    /// Private key: PKCS #8 in DER.
    pub key: Vec<u8>,
    /// Certificate in PEM of the authority that has issued it.
    pub issuer: String,
    /// Time of the renewal, in Unix seconds.
    pub renew_at: i64,
}

impl Authority {
    fn create(now: i64, rotation: &Rotation) -> Result<Self, CaError> {
        let valid = (now - BACKDATED, now + rotation.lifetime);
        let key = KeyPair::generate()?;
        let certificate = parameters(valid)?.self_signed(&key)?;
        Ok(Authority {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            valid,
        })
    }

    fn read(
        data: &BTreeMap<String, ByteString>,
        (certificate, key): (&'static str, &'static str),
    ) -> Result<Self, CaError> {
        let text = |name| text(data, name)?.ok_or(CaError::Missing(name));
        let authority = Authority {
            valid: validity(certificate, &text(certificate)?)?,
            certificate: text(certificate)?,
            key: text(key)?,
        };
        let pair = KeyPair::from_pem(&authority.key);
        let pair = pair.map_err(|error| CaError::Malformed(key, error.to_string()))?;
        let der = CertificateDer::from_pem_slice(authority.certificate.as_bytes());
        let der = der.map_err(|error| CaError::Malformed(certificate, error.to_string()))?;
        // The certificate contains its public key, so a search for the key's bytes is sufficient.
        let public = pair.public_key_raw();
        match der.windows(public.len()).any(|window| window == public) {
            true => Ok(authority),
            false => Err(CaError::Mismatch(key, certificate)),
        }
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, CaError> {
        let key = KeyPair::from_pem(&self.key)?;
        Ok(Issuer::new(parameters(self.valid)?, key))
    }
}

/// Parameters of an authority's certificate. They follow from its validity, so that they need not be stored.
fn parameters(valid: (i64, i64)) -> Result<CertificateParams, CaError> {
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let name = format!("Pointsman control plane {}", valid.0);
    parameters
        .distinguished_name
        .push(DnType::CommonName, name.as_str());
    (parameters.not_before, parameters.not_after) = (date(valid.0), date(valid.1));
    Ok(parameters)
}

fn date(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn text(data: &BTreeMap<String, ByteString>, key: &'static str) -> Result<Option<String>, CaError> {
    let Some(ByteString(bytes)) = data.get(key) else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes.clone());
    let text = text.map_err(|_| CaError::Malformed(key, "not UTF-8".to_owned()))?;
    Ok(Some(text))
}

fn validity(key: &'static str, pem: &str) -> Result<(i64, i64), CaError> {
    let malformed = |why: String| CaError::Malformed(key, why);
    let der = CertificateDer::from_pem_slice(pem.as_bytes());
    let der = der.map_err(|error| malformed(error.to_string()))?;
    let certificate = x509::Certificate::read(&der);
    let validity = certificate.and_then(|certificate| certificate.validity());
    validity.ok_or_else(|| malformed("not an X.509 certificate".to_owned()))
}

impl Authorities {
    /// Creates the first authority.
    pub fn create(now: i64, rotation: &Rotation) -> Result<Self, CaError> {
        Ok(Authorities {
            current: Authority::create(now, rotation)?,
            next: None,
            earlier: Vec::new(),
        })
    }

    /// Reads the data of a Secret.
    pub fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, CaError> {
        let current = Authority::read(data, (CERTIFICATE, KEY))?;
        let next = match data.contains_key(NEXT_CERTIFICATE) {
            true => Some(Authority::read(data, (NEXT_CERTIFICATE, NEXT_KEY))?),
            false => None,
        };
        let bundle = text(data, BUNDLE)?.ok_or(CaError::Missing(BUNDLE))?;
        let mut earlier = Vec::new();
        for pem in certificates(&bundle) {
            let next = next.as_ref().map(|next| &next.certificate);
            if pem != current.certificate && Some(&pem) != next {
                let (_, end) = validity(BUNDLE, &pem)?;
                earlier.push((pem, end));
            }
        }
        Ok(Authorities {
            current,
            next,
            earlier,
        })
    }

    /// Returns the data of a Secret.
    pub fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::from([
            (BUNDLE, self.bundle()),
            (CERTIFICATE, self.current.certificate.clone()),
            (KEY, self.current.key.clone()),
        ]);
        if let Some(next) = &self.next {
            data.insert(NEXT_CERTIFICATE, next.certificate.clone());
            data.insert(NEXT_KEY, next.key.clone());
        }
        let data = data.into_iter();
        data.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
            .collect()
    }

    /// Returns the certificates that proxies trust, in PEM.
    pub fn bundle(&self) -> String {
        let own = [Some(&self.current), self.next.as_ref()];
        let own = own
            .into_iter()
            .flatten()
            .map(|authority| &authority.certificate);
        let earlier = self.earlier.iter().map(|(pem, _)| pem);
        own.chain(earlier).cloned().collect()
    }

    /// Takes the steps of a rotation that are due. Returns whether anything has changed.
    pub fn advance(&mut self, now: i64, rotation: &Rotation) -> Result<bool, CaError> {
        let before = self.earlier.len();
        self.earlier.retain(|(_, end)| *end > now);
        let mut is_changed = self.earlier.len() != before;
        // The controller was down for longer than the certificates are valid, so there is no connection to preserve.
        if self.current.valid.1 <= now && self.next.is_none() {
            self.current = Authority::create(now, rotation)?;
            return Ok(true);
        }
        if self.next.is_none() && self.current.valid.1 - now < rotation.renew {
            self.next = Some(Authority::create(now, rotation)?);
            is_changed = true;
        }
        // Certificates of an expired authority are worse than those of one that some proxies may not trust yet.
        let is_expired = self.current.valid.1 <= now;
        let is_distributed = |next: &mut Authority| {
            let created = next.valid.0 + BACKDATED;
            is_expired || now >= created + rotation.distribute
        };
        if let Some(next) = self.next.take_if(is_distributed) {
            let retired = std::mem::replace(&mut self.current, next);
            if retired.valid.1 > now {
                self.earlier.push((retired.certificate, retired.valid.1));
            }
            is_changed = true;
        }
        Ok(is_changed)
    }

    /// Issues a serving certificate for DNS names, and for loopback addresses, at which a forwarded port is reached.
    pub fn issue(
        &self,
        names: &[String],
        now: i64,
        rotation: &Rotation,
    ) -> Result<ServingCertificate, CaError> {
        let mut parameters = CertificateParams::new(names.to_vec())?;
        let loopback = [[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()];
        let loopback = loopback.map(SanType::IpAddress);
        parameters.subject_alt_names.extend(loopback);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let end = (now + rotation.serving).min(self.current.valid.1);
        let start = (now - BACKDATED).max(self.current.valid.0);
        (parameters.not_before, parameters.not_after) = (date(start), date(end));
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.current.issuer()?)?;
        Ok(ServingCertificate {
            chain: vec![certificate.der().to_vec()],
            key: key.serialize_der(),
            issuer: self.current.certificate.clone(),
            renew_at: now + (end - now) / 2,
        })
    }

    /// Returns whether a serving certificate must be replaced.
    pub fn replaces(&self, serving: &ServingCertificate, now: i64) -> bool {
        serving.issuer != self.current.certificate || now >= serving.renew_at
    }
}

/// Splits a bundle into its certificates, as they are written.
fn certificates(bundle: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = bundle.split_inclusive(END);
    let parts = parts.map(str::trim).filter(|part| part.ends_with(END));
    parts.map(|part| format!("{part}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn created() -> Authorities {
        Authorities::create(NOW, &Rotation::default()).expect("an authority")
    }

    fn advanced(authorities: &Authorities, days: i64) -> Authorities {
        let mut after = authorities.clone();
        let result = after.advance(NOW + days * DAY, &Rotation::default());
        result.expect("a rotation");
        after
    }

    fn trusts(bundle: &str, authority: &Authority) -> bool {
        certificates(bundle).contains(&authority.certificate)
    }

    #[test]
    fn proxies_trust_an_authority_before_and_as_long_as_it_issues() {
        let first = created();
        assert_eq!(advanced(&first, 59), first, "nothing is due");
        // A new authority is added, and the old one still issues.
        let second = advanced(&first, 61);
        assert_eq!(second.current, first.current);
        let next = second.next.clone().expect("a new one");
        assert!(trusts(&second.bundle(), &next) && trusts(&second.bundle(), &first.current));
        assert_eq!(advanced(&second, 61), second);
        // It issues, and proxies still trust certificates of the old one.
        let third = advanced(&second, 62);
        assert_eq!((&third.current, &third.next), (&next, &None));
        assert!(trusts(&third.bundle(), &first.current));
        // The old one leaves the bundle when it has expired.
        let fourth = advanced(&third, 91);
        assert_eq!(fourth.bundle(), next.certificate);
    }

    #[test]
    fn expired_authorities_are_replaced_at_once() {
        let first = created();
        let after = advanced(&first, 100);
        assert_ne!(after.current, first.current);
        assert_eq!(after.bundle(), after.current.certificate);
        // So is one whose successor was never put to use.
        let after = advanced(&advanced(&first, 61), 300);
        assert!(!trusts(&after.bundle(), &first.current));
    }

    #[test]
    fn a_new_authority_issues_at_once_if_the_old_one_has_expired() {
        let first = created();
        // The controller was down until an hour before the end.
        let mut after = first.clone();
        let mut advance = |now| after.advance(now, &Rotation::default()).map(drop);
        advance(NOW + 90 * DAY - 3600).expect("a next one");
        advance(NOW + 90 * DAY + 3600).expect("a rotation");
        assert_ne!(after.current, first.current);
        assert_eq!(after.bundle(), after.current.certificate);
    }

    #[test]
    fn a_secret_holds_everything() {
        let first = created();
        let second = advanced(&first, 61);
        let third = advanced(&second, 62);
        for authorities in [first, second, third] {
            let read = Authorities::read(&authorities.data());
            assert_eq!(read.expect("it is valid"), authorities);
        }
    }

    #[test]
    fn an_error_names_the_key_of_the_secret() {
        let error = |change: &dyn Fn(&mut BTreeMap<String, ByteString>)| {
            let mut data = created().data();
            change(&mut data);
            let error = Authorities::read(&data).expect_err("it is invalid");
            error.to_string()
        };
        let put = |key: &'static str, text: String| {
            move |data: &mut BTreeMap<String, ByteString>| {
                data.insert(key.to_owned(), ByteString(text.clone().into_bytes()));
            }
        };
        let missing = error(&|data| drop(data.remove("tls.key")));
        assert_eq!(missing, "key tls.key is missing");
        let broken = error(&put("tls.crt", "x".to_owned()));
        assert!(broken.starts_with("key tls.crt: "), "{broken}");
        let other = error(&put("tls.key", created().current.key));
        assert!(other.contains("does not belong"), "{other}");
    }

    #[test]
    fn a_serving_certificate_is_renewed_in_time_and_when_another_authority_issues() {
        let first = created();
        let names = ["pointsman-controller.system.svc".to_owned()];
        let serving = first.issue(&names, NOW, &Rotation::default());
        let serving = serving.expect("a certificate");
        let carried = x509::names(&serving.chain[0]);
        assert_eq!(carried.dns, [names[0].as_str()]);
        assert!(!first.replaces(&serving, NOW + 3 * DAY));
        assert!(first.replaces(&serving, NOW + 4 * DAY));
        let second = advanced(&first, 61);
        let serving = second.issue(&names, NOW + 61 * DAY, &Rotation::default());
        let serving = serving.expect("a certificate");
        let third = advanced(&second, 62);
        assert!(third.replaces(&serving, NOW + 62 * DAY));
    }
}
