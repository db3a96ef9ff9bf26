//! Certificates and keys are validated with the code that the proxy signs with. Unusable ones are errors, and those that clients will soon reject are warnings.

mod common;

use common::certificates::{authority, fresh_secret, pair, secret};
use common::{Bound, doc, gateway_g, key, listener, message, own_conditions, puts, service};
use pointsman_binding::{Binder, Change};
use pointsman_resources::Name;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

const G: &str = "Gateway infra/g";
/// 2026-06-01.
const NOW: i64 = 1_780_272_000;
/// Names of library types and variants that must not appear in messages.
const JARGON: [&str; 8] = [
    "BadDer",
    "KeyMismatch",
    "General(",
    "InvalidCertificate",
    "UnsupportedCertVersion",
    "TrailingData",
    "rustls",
    "webpki",
];

macro_rules! data {
    ($name:literal) => {
        include_str!(concat!("data/", $name))
    };
}

fn https(hostname: &str) -> String {
    gateway_g(&format!(
        "listeners: [{{name: a, port: 443, protocol: HTTPS, hostname: '{hostname}', tls: {{certificateRefs: [{{name: c}}]}}}}]"
    ))
}

/// Creates a certificate with a validity period, and its key, in PEM.
fn valid(name: &str, from: (i32, u8, u8), until: (i32, u8, u8)) -> (String, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.not_before = date_time_ymd(from.0, from.1, from.2);
    params.not_after = date_time_ymd(until.0, until.1, until.2);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

/// Returns the certificate and key of each invalid Secret, and part of the message about it.
fn unusable() -> Vec<(String, String, &'static str)> {
    let (certificate, private) = pair("example.com");
    let (other, _) = pair("example.com");
    let lines: Vec<&str> = private.lines().collect();
    // Valid PEM with corrupt content: the private scalar is cut out of the middle.
    let damaged = [lines[0], lines[2], lines[lines.len() - 1]].join("\n") + "\n";
    let data = |crt: &str, key: &str, words| (crt.to_owned(), key.to_owned(), words);
    vec![
        (
            certificate.clone(),
            pair("example.com").1,
            "the private key in tls.key does not belong to the certificate in tls.crt",
        ),
        (
            other + &certificate,
            private,
            "the certificate that the private key in tls.key belongs to comes after others in tls.crt; it must come first",
        ),
        (
            certificate,
            damaged,
            "the private key in tls.key is corrupt",
        ),
        data(
            data!("rsa1024.crt"),
            data!("rsa1024.key"),
            "the private key in tls.key is an RSA key of 1024 bits; 2048 to 8192 are supported",
        ),
        data(
            data!("secp256k1.crt"),
            data!("secp256k1.key"),
            "the private key in tls.key is an ECDSA key on curve secp256k1; P-256, P-384 and P-521 are supported",
        ),
        data(
            data!("ed448.crt"),
            data!("ed448.key"),
            "the private key in tls.key is an Ed448 key; RSA, ECDSA and Ed25519 keys are supported",
        ),
        data(
            data!("p256.crt"),
            data!("encrypted-pkcs8.key"),
            "tls.key contains an encrypted private key; decrypt it",
        ),
        data(
            data!("p256.crt"),
            data!("encrypted-sec1.key"),
            "tls.key contains an encrypted private key; decrypt it",
        ),
    ]
}

fn assert_plain(message: &str) {
    for word in JARGON {
        assert!(!message.contains(word), "{word} in: {message}");
    }
}

// "Kubernetes TLS Secret … malformed: listener ResolvedRefs=False/InvalidCertificateRef."
#[test]
fn a_listener_with_an_unusable_key_reports_the_reason() {
    for (certificate, private, words) in unusable() {
        let bound = Bound::of(&(https("example.com") + &secret("infra/c", &certificate, &private)));
        assert_eq!(
            listener(&bound, G, "a")[1..],
            [
                "ResolvedRefs=False/InvalidCertificateRef",
                "Programmed=False/Invalid"
            ],
            "{words}"
        );
        let status = bound.status(&key(G)).expect("a status");
        let conditions = status.conditions();
        let found = conditions
            .iter()
            .find(|(_, c)| c.reason == "InvalidCertificateRef");
        let message = &found.expect("the condition").1.message;
        assert!(
            message.starts_with("Secret infra/c: ") && message.contains(words),
            "{words}: {message}"
        );
        assert_plain(message);
        assert!(bound.secrets.is_empty(), "{words}");
    }
}

#[test]
fn a_gateways_client_certificate_is_validated_like_a_listeners() {
    let plain = gateway_g(
        "tls: {backend: {clientCertificateRef: {name: c}}}, listeners: [{name: a, port: 80, protocol: HTTP}]",
    );
    for (certificate, private, words) in unusable() {
        let bound = Bound::of(&(plain.clone() + &secret("infra/c", &certificate, &private)));
        assert_eq!(
            own_conditions(&bound, G)[2],
            "ResolvedRefs=False/InvalidClientCertificateRef",
            "{words}"
        );
        let conditions = message(&bound, G, "ResolvedRefs");
        assert!(conditions.contains(words), "{words}: {conditions}");
        assert_plain(&conditions);
    }
}

/// A policy for a Service with a route, with CA certificates in the ConfigMap `ca`.
fn policy() -> String {
    gateway_g("listeners: [{name: a, port: 80, protocol: HTTP}]")
        + &service("infra/web", "{ports: [{port: 80}]}")
        + &doc(
            "HTTPRoute",
            "infra/r",
            "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: web, port: 80}]}]}",
        )
        + &doc(
            "BackendTLSPolicy",
            "infra/p",
            "{targetRefs: [{group: '', kind: Service, name: web}], validation: {hostname: example.com, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}}",
        )
}

fn client_validation() -> String {
    gateway_g(
        "tls: {frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}}}}, listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}]",
    ) + &fresh_secret("infra/c")
}

#[test]
fn unusable_authorities_are_errors() {
    let (certificate, _) = pair("authority");
    let lines: Vec<&str> = certificate.lines().collect();
    let damaged = [lines[0], lines[2], lines[lines.len() - 1]].join("\n") + "\n";
    for (pem, words) in [
        (data!("rsa1024.crt"), "its key is an RSA key of 1024 bits"),
        (data!("ed448.crt"), "its key is an Ed448 key"),
        (data!("secp256k1.crt"), "on curve secp256k1"),
        (
            damaged.as_str(),
            "it is corrupt or not an X.509 certificate",
        ),
    ] {
        let bound = Bound::of(&(policy() + &authority("infra/ca", pem)));
        let conditions = message(&bound, "BackendTLSPolicy infra/p", "Accepted");
        assert!(
            conditions.starts_with("ConfigMap infra/ca: ca.crt contains a certificate")
                && conditions.contains(words),
            "{words}: {conditions}"
        );
        assert_plain(&conditions);
        let bound = Bound::of(&(client_validation() + &authority("infra/ca", pem)));
        assert_eq!(
            listener(&bound, G, "a")[..2],
            [
                "Accepted=False/NoValidCACertificate",
                "ResolvedRefs=False/InvalidCACertificateRef"
            ],
            "{words}"
        );
    }
}

fn warnings(binder: &Binder) -> Vec<String> {
    let all = binder.certificate_warnings(NOW).into_iter();
    all.map(|warning| format!("{} {} {}", warning.object, warning.field, warning.message))
        .collect()
}

#[test]
fn certificates_that_clients_will_reject_cause_warnings() {
    for (name, from, until, warned) in [
        (
            "a.example",
            (2020, 1, 1),
            (2026, 5, 31),
            Some("the certificate of Secret infra/c expired at 2026-05-31T00:00:00Z"),
        ),
        (
            "a.example",
            (2026, 6, 2),
            (2030, 1, 1),
            Some("the certificate of Secret infra/c is not valid before 2026-06-02T00:00:00Z"),
        ),
        (
            "a.example",
            (2020, 1, 1),
            (2026, 6, 30),
            Some(
                "the certificate of Secret infra/c expires within 30 days, at 2026-06-30T00:00:00Z",
            ),
        ),
        (
            "b.example",
            (2020, 1, 1),
            (2030, 1, 1),
            Some(
                "the certificate of Secret infra/c is for b.example, not for the listener's hostname a.example, so clients reject it",
            ),
        ),
        ("a.example", (2020, 1, 1), (2026, 7, 2), None),
        ("*.example", (2020, 1, 1), (2030, 1, 1), None),
    ] {
        let (certificate, private) = valid(name, from, until);
        let held = secret("infra/c", &certificate, &private);
        let bound = Bound::of(&(https("a.example") + &held));
        let expected = warned.map(|warned| {
            format!("Gateway infra/g spec.listeners[0].tls.certificateRefs[0] {warned}")
        });
        assert_eq!(warnings(&bound), expected.into_iter().collect::<Vec<_>>());
        assert_eq!(
            listener(&bound, G, "a")[2],
            "Programmed=True/Programmed",
            "a warning denies nothing"
        );
    }
}

#[test]
fn client_certificates_and_authorities_cause_warnings_too() {
    let (certificate, private) = valid("x", (2020, 1, 1), (2021, 1, 1));
    let plain = gateway_g(
        "tls: {backend: {clientCertificateRef: {name: c}}}, listeners: [{name: a, port: 80, protocol: HTTP}]",
    );
    let bound = Bound::of(&(plain + &secret("infra/c", &certificate, &private)));
    assert_eq!(
        warnings(&bound),
        [
            "Gateway infra/g spec.tls.backend.clientCertificateRef the certificate of Secret infra/c expired at 2021-01-01T00:00:00Z"
        ]
    );
    let bundle = certificate + data!("p256.crt") + data!("ed448.crt");
    for (objects, place) in [
        (
            policy(),
            "BackendTLSPolicy infra/p spec.validation.caCertificateRefs[0]",
        ),
        (
            client_validation(),
            "Gateway infra/g spec.tls.frontend.default.validation.caCertificateRefs[0]",
        ),
    ] {
        let bound = Bound::of(&(objects + &authority("infra/ca", &bundle)));
        assert_eq!(
            warnings(&bound),
            [
                format!("{place} certificate 1 of ConfigMap ca expired at 2021-01-01T00:00:00Z"),
                format!(
                    "{place} certificate 3 of ConfigMap ca can't verify others: its key is an Ed448 key; RSA, ECDSA and Ed25519 keys are supported"
                ),
            ]
        );
    }
}

#[test]
fn certificates_of_version_1_are_served_and_trusted() {
    let held = secret("infra/c", data!("version1.crt"), data!("p256.key"));
    let bound = Bound::of(&(https("example.com") + &held));
    assert_eq!(
        listener(&bound, G, "a"),
        [
            "Accepted=True/Accepted",
            "ResolvedRefs=True/ResolvedRefs",
            "Programmed=True/Programmed"
        ]
    );
    let warned = warnings(&bound).join("\n");
    assert!(
        warned.contains("has X.509 version 1, which has no DNS names")
            && warned.contains("openssl req -x509 -addext subjectAltName=DNS:example.com"),
        "{warned}"
    );
    let bound = Bound::of(&(policy() + &authority("infra/ca", data!("version1.crt"))));
    assert_eq!(
        message(&bound, "BackendTLSPolicy infra/p", "Accepted"),
        "",
        "a trust anchor of version 1 is valid"
    );
    let other = pair("example.com").1;
    let held = secret("infra/c", data!("version1.crt"), &other);
    let bound = Bound::of(&(https("example.com") + &held));
    let conditions = listener(&bound, G, "a");
    assert_eq!(conditions[1], "ResolvedRefs=False/InvalidCertificateRef");
}

/// "The last good one stays in effect for existing listeners, with a condition."
#[test]
fn a_retained_secret_is_reported_and_serves() {
    let mut bound = Bound::of(&(https("example.com") + &fresh_secret("infra/c")));
    let before = bound.secrets.clone();
    let why = Some("the private key is corrupt".to_owned());
    bound.apply([Change::RetainSecret(Name::new("infra", "c"), why)]);
    assert_eq!(
        listener(&bound, G, "a"),
        [
            "Accepted=True/Accepted",
            "ResolvedRefs=False/InvalidCertificateRef",
            "Programmed=True/Programmed"
        ]
    );
    let status = bound.status(&key(G)).expect("a status");
    let reported = status.conditions().iter().any(|(_, c)| {
        c.message
            == "Secret infra/c: the private key is corrupt; its last valid certificate stays in effect"
    });
    assert!(reported, "{status:?}");
    assert_eq!(bound.secrets, before);
    bound.apply([Change::RetainSecret(Name::new("infra", "c"), None)]);
    assert_eq!(
        listener(&bound, G, "a")[1],
        "ResolvedRefs=True/ResolvedRefs"
    );
    bound.apply(puts(fresh_secret("infra/c").trim_start_matches("\n---\n")));
    assert_ne!(bound.secrets, before, "a new certificate is taken up");
}
