//! Certificates for tests, and the objects that hold them.

/// Creates a self-signed certificate and its key, in PEM.
pub fn pair(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// A Secret with a certificate and a key.
pub fn secret(name: &str, certificate: &str, key: &str) -> String {
    let (namespace, name) = name.split_once('/').expect("namespace and name");
    format!(
        "\n---\n{{apiVersion: v1, kind: Secret, metadata: {{namespace: {namespace}, name: {name}}}, type: kubernetes.io/tls, stringData: {{tls.crt: {certificate:?}, tls.key: {key:?}}}}}"
    )
}

/// A Secret with a new certificate and key.
pub fn fresh_secret(name: &str) -> String {
    let (certificate, key) = pair("example.com");
    secret(name, &certificate, &key)
}

/// A ConfigMap with a CA certificate.
pub fn authority(name: &str, pem: &str) -> String {
    let (namespace, name) = name.split_once('/').expect("namespace and name");
    format!(
        "\n---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{namespace: {namespace}, name: {name}}}, data: {{ca.crt: {pem:?}}}}}"
    )
}

/// A ConfigMap with a new CA certificate.
pub fn fresh_authority(name: &str) -> String {
    authority(name, &pair("authority").0)
}

/// A ClusterTrustBundle.
pub fn bundle(name: &str, pem: &str) -> String {
    format!(
        "\n---\n{{apiVersion: certificates.k8s.io/v1beta1, kind: ClusterTrustBundle, metadata: {{name: {name}}}, spec: {{trustBundle: {pem:?}}}}}"
    )
}
