//! Certificates that become invalid while they are in use, and certificates of X.509 version 1.

use crate::support::backend::Backend;
use crate::support::certificates::{Authority, Handshake, TestCertificate, gullible, shown};
use crate::support::eventually;
use crate::support::gateway::{Gateway, HTTPS};
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;

fn listener() -> String {
    format!(
        "{{name: https, port: {HTTPS}, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}"
    )
}

fn data(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../binding/tests/data/");
    std::fs::read_to_string(format!("{folder}{name}")).expect("a file")
}

/// "A Secret that breaks while `run` is up … the last good certificate stays in effect"; "on a cold start the listener has none and says so".
#[tokio::test]
async fn a_secret_that_becomes_invalid_keeps_its_last_valid_certificate_in_effect() {
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let (first, second) = (
        authority.issue(&["example.com"]),
        authority.issue(&["example.com"]),
    );
    let rest = [
        gateway(&[&listener()]),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
    ]
    .concat();
    let running = Gateway::setup(&rest)
        .file("cert.yaml", &first.secret("default/cert"))
        .start()
        .await;
    let at = running.at(HTTPS);
    let stream = Handshake::new(&authority, "example.com").connect(at).await;
    let mut open = Http1::over(stream);
    assert_eq!(open.ask(&get("/")).await.status, 200);
    let mixed = TestCertificate {
        certificate: first.certificate.clone(),
        key: second.key.clone(),
    };
    running.write("cert.yaml", &mixed.secret("default/cert"));
    let words = "the private key in tls.key does not belong to the certificate in tls.crt; its last valid certificate stays in effect";
    eventually("a word on it", || async { running.log().contains(words) }).await;
    assert_eq!(shown(at, "example.com").await, first.der().to_vec());
    assert_eq!(open.ask(&get("/")).await.status, 200);
    let status = running.ask_admin("/status").await.text();
    assert!(status.contains(words), "{status}");
    running.write("cert.yaml", &second.secret("default/cert"));
    eventually("the new certificate", || async {
        shown(at, "example.com").await == second.der().to_vec()
    })
    .await;

    let cold = Gateway::setup(&rest)
        .file("cert.yaml", &mixed.secret("default/cert"))
        .start()
        .await;
    let shake = Handshake::new(&authority, "example.com");
    assert!(shake.try_connect(cold.at(HTTPS)).await.is_err());
    let log = cold.log();
    assert!(
        log.contains("the private key in tls.key does not belong to the certificate in tls.crt")
            && !log.contains("stays in effect"),
        "{log}"
    );
}

#[tokio::test]
async fn an_x509_version_1_certificate_is_served() {
    let backend = Backend::http1("web").await;
    let identity = TestCertificate {
        certificate: data("version1.crt"),
        key: data("p256.key"),
    };
    let manifests = [
        gateway(&[&listener()]),
        identity.secret("default/cert"),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let stream = gullible(gateway.at(HTTPS), "example.com", None).await;
    let chain = stream.get_ref().1.peer_certificates();
    assert_eq!(chain.expect("certificates")[0].to_vec(), identity.der().to_vec());
    assert_eq!(Http1::over(stream).ask(&get("/")).await.status, 200);
}

#[tokio::test]
async fn an_x509_version_1_authority_is_trusted() {
    let server = TestCertificate {
        certificate: data("version1-leaf.crt"),
        key: data("version1-leaf.key"),
    };
    let backend = Backend::tls("web", server.server(&["http/1.1"], None)).await;
    let authority = data("version1.crt").replace('\n', "\n    ");
    let manifests = [
        plain(),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca, namespace: default}}\ndata:\n  ca.crt: |\n    {authority}\n"
        ),
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {name: web, namespace: default}\nspec:\n  targetRefs: [{group: '', kind: Service, name: web}]\n  \
         validation: {hostname: example.com, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}\n"
            .to_owned(),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    assert_eq!(gateway.ask(get("/")).await.status, 200);
}
