//! Certificates for tests, and the objects that hold them.

use pointsman_test_support::certificates::TestCertificate;
pub use pointsman_test_support::manifests::{ca_config_map as authority, tls_secret as secret};

/// Creates a self-signed certificate and its key, in PEM.
pub fn pair(name: &str) -> (String, String) {
    let TestCertificate { certificate, key } = TestCertificate::new(name);
    (certificate, key)
}

/// A Secret with a new certificate and key.
pub fn fresh_secret(name: &str) -> String {
    TestCertificate::new("example.com").secret(name)
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
