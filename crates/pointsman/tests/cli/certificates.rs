//! `check` validates certificates and keys like the proxy, and warns about those that clients reject.

use super::{WELL, pointsman};

fn data(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../binding/tests/data/");
    std::fs::read_to_string(format!("{folder}{name}")).expect("a file")
}

/// Returns manifests with an HTTPS listener for a hostname, and its Secret.
fn https(hostname: &str, certificate: &str, key: &str) -> String {
    let listener = format!(
        "protocol: HTTPS, hostname: {hostname}, tls: {{certificateRefs: [{{name: cert}}]}}, allowed"
    );
    let secret = format!(
        "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: cert, namespace: infra}}, type: kubernetes.io/tls, stringData: {{tls.crt: {certificate:?}, tls.key: {key:?}}}}}\n"
    );
    WELL.replace("protocol: HTTP, allowed", &listener) + &secret
}

fn check(arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let output = pointsman(&[&["check", "-f", "-"], arguments].concat(), input);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

#[test]
fn unusable_keys_are_errors() {
    let (crt, key) = (data("p256.crt"), data("p256.key"));
    let (code, text) = check(&[], &https("example.com", &crt, &key));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("no problems\n"), "{text}");
    for (crt, key, words) in [
        (
            "p256.crt",
            "version1-leaf.key",
            "Secret infra/cert: the private key in tls.key does not belong to the certificate in tls.crt",
        ),
        (
            "rsa1024.crt",
            "rsa1024.key",
            "Secret infra/cert: the private key in tls.key is an RSA key of 1024 bits; 2048 to 8192 are supported",
        ),
        (
            "p256.crt",
            "encrypted-pkcs8.key",
            "Secret infra/cert: tls.key contains an encrypted private key; decrypt it",
        ),
    ] {
        let (code, text) = check(&[], &https("example.com", &data(crt), &data(key)));
        assert_eq!(code, Some(1), "{words}: {text}");
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn certificates_that_clients_reject_are_warnings() {
    let (crt, key) = (data("p256.crt"), data("p256.key"));
    let other = https("other.example", &crt, &key);
    let (code, text) = check(&[], &other);
    assert_eq!(code, Some(0), "{text}");
    let words = "warning: -:13:94: spec.listeners[0].tls.certificateRefs[0]: Gateway infra/edge: the certificate of Secret infra/cert is for example.com, not for the listener's hostname other.example, so clients reject it";
    assert!(text.contains(words), "{text}");
    assert_eq!(check(&["--strict"], &other).0, Some(1));
    let mut params = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let crt = params.self_signed(&key).expect("a certificate").pem();
    let (code, text) = check(&[], &https("example.com", &crt, &key.serialize_pem()));
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("the certificate of Secret infra/cert expired at 2020-01-01T00:00:00Z"),
        "{text}"
    );
}
