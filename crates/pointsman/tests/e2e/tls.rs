//! TLS with clients and backends: selection and verification of certificates.

use serde_json::Value;
use tokio::io::AsyncReadExt;

use crate::agree::encoded;
use crate::support::backend::Backend;
use crate::support::certificates::{Authority, Handshake, TestCertificate};
use crate::support::eventually;
use crate::support::gateway::{Gateway, HTTPS};
use crate::support::http1::Http1;
use crate::support::http2::Http2;
use crate::support::manifests::*;
use crate::support::message::*;

/// Returns an HTTPS listener for a hostname with the certificate of a Secret.
fn listener(name: &str, hostname: &str, secret: &str) -> String {
    format!(
        "{{name: {name}, port: {HTTPS}, protocol: HTTPS, hostname: '{hostname}', tls: {{certificateRefs: [{{name: {secret}}}]}}}}"
    )
}

fn one_listener(backend: &Backend, identity: &TestCertificate) -> String {
    let listener = format!(
        "{{name: https, port: {HTTPS}, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}"
    );
    [
        gateway(&[&listener]),
        identity.secret("default/cert"),
        service("web", &[backend]),
        route("web", &[&to("web")]),
    ]
    .concat()
}

#[tokio::test]
async fn alpn_selects_http_2_or_http_1() {
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&one_listener(&backend, &authority.issue(&["example.com"]))).await;
    let shake = Handshake::new(&authority, "example.com");
    let stream = shake
        .alpn(&["h2", "http/1.1"])
        .connect(gateway.at(HTTPS))
        .await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(
        Http2::over(stream, "https")
            .await
            .ask(&get("/"))
            .await
            .status,
        200
    );
    let stream = shake.alpn(&["http/1.1"]).connect(gateway.at(HTTPS)).await;
    assert_eq!(Http1::over(stream).ask(&get("/")).await.status, 200);
    let stream = shake.connect(gateway.at(HTTPS)).await;
    assert_eq!(Http1::over(stream).ask(&get("/")).await.status, 200);
    for saw in backend.saw(3).await {
        assert_eq!(saw.header("x-forwarded-proto"), Some("https"));
    }
}

#[tokio::test]
async fn tls_1_2_and_1_3_are_supported() {
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&one_listener(&backend, &authority.issue(&["example.com"]))).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let versions = [version];
        let shake = Handshake::new(&authority, "example.com").versions(&versions);
        let stream = shake.connect(gateway.at(HTTPS)).await;
        assert_eq!(Http1::over(stream).ask(&get("/")).await.status, 200);
    }
}

#[tokio::test]
async fn clients_below_the_minimum_tls_version_are_refused() {
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let manifests = one_listener(&backend, &authority.issue(&["example.com"]));
    let gateway = Gateway::setup(&manifests).argument("--min-tls", "1.3");
    let gateway = gateway.start().await;
    let versions = [&rustls::version::TLS12];
    let shake = Handshake::new(&authority, "example.com");
    let refused = shake.versions(&versions).try_connect(gateway.at(HTTPS));
    let error = refused.await.expect_err("an alert").to_string();
    assert!(error.contains("ProtocolVersion"), "{error}");
    let stream = shake.connect(gateway.at(HTTPS)).await;
    assert_eq!(Http1::over(stream).ask(&get("/")).await.status, 200);
}

#[tokio::test]
async fn rsa_and_ecdsa_keys_are_accepted_in_every_encoding() {
    // Keys in PKCS#1 and SEC1. All other tests use PKCS#8.
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../binding/tests/data/");
    let backend = Backend::http1("web").await;
    for (certificate, key) in [("rsa.crt", "rsa-pkcs1.key"), ("ec.crt", "ec-sec1.key")] {
        let read = |name: &str| std::fs::read_to_string(format!("{data}{name}")).expect("a file");
        let identity = TestCertificate {
            certificate: read(certificate),
            key: read(key),
        };
        let gateway = Gateway::of(&one_listener(&backend, &identity)).await;
        let seen = crate::support::certificates::shown(gateway.at(HTTPS), "example.com").await;
        assert_eq!(seen, identity.der().to_vec(), "{key}");
    }
}

#[tokio::test]
async fn sni_selects_listener_certificate_and_routes() {
    let authority = Authority::new();
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    let manifests = [
        gateway(&[
            &listener("one", "one.example", "one"),
            &listener("two", "*.two.example", "two"),
        ]),
        authority.issue(&["one.example"]).secret("default/one"),
        authority.issue(&["*.two.example"]).secret("default/two"),
        service("one", &[&one]),
        service("two", &[&two]),
        route_on(
            "[{name: edge, sectionName: one}]",
            "HTTPRoute",
            "one",
            "",
            &[&to("one")],
        ),
        route_on(
            "[{name: edge, sectionName: two}]",
            "HTTPRoute",
            "two",
            "",
            &[&to("two")],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for (name, expected) in [("one.example", "one"), ("a.two.example", "two")] {
        let stream = Handshake::new(&authority, name)
            .connect(gateway.at(HTTPS))
            .await;
        let response = Http1::over(stream).ask(&get("/").host(name)).await;
        assert_eq!(response.backend(), Some(expected));
    }
    let stranger = Handshake::new(&authority, "three.example")
        .try_connect(gateway.at(HTTPS))
        .await;
    assert!(stranger.is_err(), "nobody serves three.example");
}

#[tokio::test]
async fn the_authority_of_another_listener_on_a_connection_is_421() {
    let authority = Authority::new();
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    let both = authority.issue(&["one.example", "two.example"]);
    let manifests = [
        gateway(&[
            &listener("one", "one.example", "both"),
            &listener("two", "two.example", "both"),
        ]),
        both.secret("default/both"),
        service("one", &[&one]),
        service("two", &[&two]),
        route_on(
            "[{name: edge, sectionName: one}]",
            "HTTPRoute",
            "one",
            "",
            &[&to("one")],
        ),
        route_on(
            "[{name: edge, sectionName: two}]",
            "HTTPRoute",
            "two",
            "",
            &[&to("two")],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let shake = Handshake::new(&authority, "one.example").alpn(&["h2"]);
    let client = Http2::over(shake.connect(gateway.at(HTTPS)).await, "https").await;
    assert_eq!(
        client.ask(&get("/").host("one.example")).await.backend(),
        Some("one")
    );
    let response = client.ask(&get("/").host("two.example")).await;
    assert_eq!((response.status, response.backend()), (421, None));
    assert_eq!(
        client.ask(&get("/").host("one.example")).await.backend(),
        Some("one")
    );
    assert_eq!(two.count(), 0);
}

/// Reports how an instance explains a request: its outcome and status.
async fn explained(gateway: &Gateway, url: &str) -> (String, Value) {
    let target = format!("/explain?url={}", encoded(url));
    let explained = gateway.ask_admin(&target).await.json();
    let outcome = explained["outcome"].as_str().expect("an outcome");
    (outcome.to_owned(), explained["status"].clone())
}

/// A listener that can't serve keeps its hostname: routes that attach to a catch-all listener get none of its requests.
#[tokio::test]
async fn a_listener_whose_secret_is_gone_keeps_its_hostname() {
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let identity = authority.issue(&["secure.example", "other.example"]);
    let catch_all = format!(
        "{{name: all, port: {HTTPS}, protocol: HTTPS, tls: {{certificateRefs: [{{name: all}}]}}}}"
    );
    let manifests = [
        gateway(&[&listener("secure", "secure.example", "secure"), &catch_all]),
        identity.secret("default/all"),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
    ];
    let mut gateway = Gateway::setup(&manifests.concat())
        .file("secret.yaml", &identity.secret("default/secure"))
        .launch();
    gateway.ready().await;
    let url = format!("https://secure.example:{HTTPS}/");
    let secure = Handshake::new(&authority, "secure.example");
    let h2 = secure.alpn(&["h2"]).connect(gateway.at(HTTPS)).await;
    let h2 = Http2::over(h2, "https").await;
    let mut h1 = Http1::over(secure.connect(gateway.at(HTTPS)).await);
    let ask = get("/").host("secure.example");
    assert_eq!(h2.ask(&ask).await.status, 200);
    assert_eq!(h1.ask(&ask).await.status, 200);
    assert_eq!(explained(&gateway, &url).await.0, "forward");
    gateway.remove("secret.yaml");
    eventually("the Secret is gone", || async {
        explained(&gateway, &url).await == ("respond".to_owned(), "reset".into())
    })
    .await;
    // Neither on new connections, nor on those that it has accepted, nor on those of the catch-all listener.
    assert!(secure.try_connect(gateway.at(HTTPS)).await.is_err());
    assert_eq!(h2.ask(&ask).await.status, 421);
    assert_eq!(h1.ask(&ask).await.status, 421);
    let other = Handshake::new(&authority, "other.example");
    let mut other = Http1::over(other.connect(gateway.at(HTTPS)).await);
    assert_eq!(other.ask(&ask).await.status, 421);
    assert_eq!(other.ask(&get("/").host("other.example")).await.status, 200);
    gateway.write("secret.yaml", &identity.secret("default/secure"));
    eventually("the Secret is back", || async {
        explained(&gateway, &url).await.0 == "forward"
    })
    .await;
    let mut again = Http1::over(secure.connect(gateway.at(HTTPS)).await);
    assert_eq!(again.ask(&ask).await.status, 200);
    assert_eq!(backend.count(), 4);
}

#[tokio::test]
async fn a_listener_of_which_no_route_kind_is_valid_keeps_its_hostname() {
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let kinds = "allowedRoutes: {kinds: [{kind: TCPRoute}]}";
    let tls = "tls: {certificateRefs: [{name: cert}]}";
    let manifests = [
        gateway(&[
            "{name: all, port: 8080, protocol: HTTP}",
            &format!("{{name: own, port: 8080, protocol: HTTP, hostname: own.example, {kinds}}}"),
            &format!("{{name: all-tls, port: {HTTPS}, protocol: HTTPS, {tls}}}"),
            &format!(
                "{{name: own-tls, port: {HTTPS}, protocol: HTTPS, hostname: own.example, {tls}, {kinds}}}"
            ),
        ]),
        authority.issue(&["own.example"]).secret("default/cert"),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let response = gateway.ask(get("/").host("own.example")).await;
    assert_eq!(
        (response.status, response.reason()),
        (404, Some("NoListener"))
    );
    let (outcome, status) = explained(&gateway, "http://own.example:8080/").await;
    assert_eq!((&*outcome, status), ("respond", 404.into()));
    let shake = Handshake::new(&authority, "own.example");
    assert!(shake.try_connect(gateway.at(HTTPS)).await.is_err());
    let (outcome, status) = explained(&gateway, &format!("https://own.example:{HTTPS}/")).await;
    assert_eq!((&*outcome, status), ("respond", "reset".into()));
    assert_eq!(
        gateway.ask(get("/").host("other.example")).await.status,
        200
    );
    assert_eq!(backend.count(), 1);
}

#[tokio::test]
async fn replacing_a_certificate_keeps_connections_open() {
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let (old, new) = (
        authority.issue(&["example.com"]),
        authority.issue(&["example.com"]),
    );
    let gateway = Gateway::of(&one_listener(&backend, &old)).await;
    let shake = Handshake::new(&authority, "example.com").alpn(&["h2"]);
    let client = Http2::over(shake.connect(gateway.at(HTTPS)).await, "https").await;
    assert_eq!(client.ask(&get("/")).await.status, 200);
    gateway.write("main.yaml", &one_listener(&backend, &new));
    let at = gateway.at(HTTPS);
    eventually("the new certificate", || async {
        crate::support::certificates::shown(at, "example.com").await == new.der().to_vec()
    })
    .await;
    assert_eq!(
        client.ask(&get("/")).await.status,
        200,
        "the old connection goes on"
    );
}

#[tokio::test]
async fn clients_must_present_a_certificate_if_the_gateway_requires_it() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let backend = Backend::http1("web").await;
    let validation = |mode: &str| {
        format!(
            "  tls: {{frontend: {{default: {{validation: {{mode: {mode}, caCertificateRefs: [{{group: '', kind: ConfigMap, name: clients}}]}}}}}}}}\n"
        )
    };
    for (mode, lenient) in [("AllowValidOnly", false), ("AllowInsecureFallback", true)] {
        let listener = format!(
            "{{name: https, port: {HTTPS}, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}"
        );
        let manifests = [
            gateway_with(&validation(mode), &[&listener]),
            authority.issue(&["example.com"]).secret("default/cert"),
            authority.config_map("default/clients"),
            service("web", &[&backend]),
            route("web", &[&to("web")]),
        ];
        let gateway = Gateway::of(&manifests.concat()).await;
        let (good, bad) = (authority.issue(&["client"]), stranger.issue(&["client"]));
        for (identity, let_in) in [(Some(&good), true), (None, lenient), (Some(&bad), lenient)] {
            let mut shake = Handshake::new(&authority, "example.com");
            shake.identity = identity;
            // With TLS 1.3, a client learns of a rejected certificate only when it reads.
            let served = match shake.try_connect(gateway.at(HTTPS)).await {
                Ok(stream) => Http1::over(stream).try_ask(&get("/")).await.is_ok(),
                Err(_) => false,
            };
            assert_eq!(
                served,
                let_in,
                "{mode}, a certificate: {}",
                identity.is_some()
            );
        }
    }
}

#[tokio::test]
async fn client_certificate_validation_may_differ_by_port() {
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let https = |name: &str, port: u16| {
        format!(
            "{{name: {name}, port: {port}, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}"
        )
    };
    let validation =
        "{validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: clients}]}}";
    let asked = format!(
        "  tls: {{frontend: {{default: {validation}, perPort: [{{port: 9443, tls: {{}}}}]}}}}\n"
    );
    let manifests = [
        gateway_with(&asked, &[&https("strict", HTTPS), &https("open", 9443)]),
        authority.issue(&["example.com"]).secret("default/cert"),
        authority.config_map("default/clients"),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for (port, let_in) in [(HTTPS, false), (9443, true)] {
        let shake = Handshake::new(&authority, "example.com");
        let served = match shake.try_connect(gateway.at(port)).await {
            Ok(stream) => Http1::over(stream).try_ask(&get("/")).await.is_ok(),
            Err(_) => false,
        };
        assert_eq!(served, let_in, "port {port}");
    }
}

fn policy(hostname: &str, more: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {{name: web, namespace: default}}\nspec:\n  targetRefs: [{{group: '', kind: Service, name: web}}]\n  \
         validation: {{hostname: {hostname}, caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca}}]{more}}}\n"
    )
}

#[tokio::test]
async fn a_backend_is_verified_by_name_and_authority() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.issue(&["inner.example", "spiffe://shop/web"]);
    let table = [
        ("inner.example", "", &authority, true),
        ("other.example", "", &authority, false),
        ("inner.example", "", &stranger, false),
        (
            "other.example",
            ", subjectAltNames: [{type: Hostname, hostname: inner.example}]",
            &authority,
            true,
        ),
        (
            "other.example",
            ", subjectAltNames: [{type: URI, uri: 'spiffe://shop/web'}]",
            &authority,
            true,
        ),
        (
            "inner.example",
            ", subjectAltNames: [{type: URI, uri: 'spiffe://shop/other'}]",
            &authority,
            false,
        ),
    ];
    for (hostname, more, believed, well) in table {
        let backend = Backend::tls("web", server.server(&["http/1.1"], None)).await;
        let manifests = [
            plain(),
            service("web", &[&backend]),
            route("web", &[&to("web")]),
            believed.config_map("default/ca"),
            policy(hostname, more),
        ];
        let gateway = Gateway::of(&manifests.concat()).await;
        let response = gateway.ask(get("/")).await;
        assert_eq!(
            response.status == 200,
            well,
            "{hostname}{more}: {response:?}"
        );
        if well {
            assert_eq!(backend.only().await.sni.as_deref(), Some(hostname));
        } else {
            assert!(matches!(response.status, 502 | 503), "{response:?}");
            assert_eq!(backend.count(), 0);
        }
    }
}

#[tokio::test]
async fn the_gateway_presents_its_client_certificate_to_backends() {
    let authority = Authority::new();
    let server = authority
        .issue(&["inner.example"])
        .server(&["http/1.1"], Some(&authority));
    let backend = Backend::tls("web", server).await;
    let manifests = [
        gateway_with(
            "  tls: {backend: {clientCertificateRef: {name: client}}}\n",
            &["{name: http, port: 8080, protocol: HTTP}"],
        ),
        authority.issue(&["gateway"]).secret("default/client"),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
        authority.config_map("default/ca"),
        policy("inner.example", ""),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    assert_eq!(gateway.ask(get("/")).await.status, 200);
    assert!(backend.only().await.certificate);
}

#[tokio::test]
async fn a_client_that_sends_no_client_hello_is_closed() {
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&one_listener(&backend, &authority.issue(&["example.com"]))).await;
    let mut client = Http1::connect(gateway.at(HTTPS)).await;
    client
        .send("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
        .await;
    client.rest().await;
    // A client that disconnects at once does not affect others.
    let mut stream = Handshake::new(&authority, "example.com")
        .connect(gateway.at(HTTPS))
        .await;
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
    let stream = Handshake::new(&authority, "example.com")
        .connect(gateway.at(HTTPS))
        .await;
    assert_eq!(Http1::over(stream).ask(&get("/")).await.status, 200);
}

/// RFC 9112 §8: a response that ends with the connection "is considered complete unless an error was indicated by the underlying connection (e.g., an
/// "incomplete close" in TLS would leave the response incomplete".
#[tokio::test]
async fn a_response_without_length_is_complete_only_with_a_tls_closure_alert() {
    use tokio::io::AsyncWriteExt;
    let authority = Authority::new();
    let server = authority.issue(&["inner.example"]).server(&[], None);
    for (says_so, framing) in [(true, ""), (false, ""), (false, "content-length: 4\r\n")] {
        let server = server.clone();
        let backend = Backend::listening("web", move |stream, record| {
            let acceptor = tokio_rustls::TlsAcceptor::from(server.clone());
            async move {
                let (_, _open) = record.connected();
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let _ = stream.read(&mut [0; 4096]).await;
                let response = format!("HTTP/1.1 200 OK\r\n{framing}\r\nbody");
                let _ = stream.write_all(response.as_bytes()).await;
                let _ = stream.flush().await;
                let _ = match says_so {
                    true => stream.shutdown().await,
                    false => stream.get_mut().0.shutdown().await,
                };
                let _ = stream.read(&mut [0; 1]).await;
            }
        })
        .await;
        let manifests = [
            plain(),
            service("web", &[&backend]),
            route("web", &[&to("web")]),
            authority.config_map("default/ca"),
            policy("inner.example", ""),
        ];
        let gateway = Gateway::of(&manifests.concat()).await;
        let mut client = Http1::connect(gateway.at(8080)).await;
        let got = client.try_ask(&get("/")).await;
        match says_so || !framing.is_empty() {
            true => assert_eq!(got.expect("a whole response").text(), "body"),
            // The response is truncated, or a 502 if nothing of it was sent yet.
            false => assert!(!got.is_ok_and(|response| response.status == 200)),
        }
    }
}

#[tokio::test]
async fn a_policy_can_trust_the_system_authorities() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for (signs, well) in [(&authority, true), (&stranger, false)] {
        let server = signs.issue(&["inner.example"]).server(&["http/1.1"], None);
        let backend = Backend::tls("web", server).await;
        let policy = policy("inner.example", "").replace(
            "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]",
            "wellKnownCACertificates: System",
        );
        let manifests = [
            plain(),
            service("web", &[&backend]),
            route("web", &[&to("web")]),
            policy,
        ];
        let folder = tempfile::tempdir().expect("a folder");
        let system = folder.path().join("system.pem");
        std::fs::write(&system, &authority.pem).expect("written");
        let setup = Gateway::setup(&manifests.concat());
        let setup = setup.environment("SSL_CERT_FILE", &system.display().to_string());
        let response = setup.start().await.ask(get("/")).await;
        assert_eq!(response.status == 200, well, "{response:?}");
    }
}

#[tokio::test]
async fn http_2_over_tls_is_used_for_backends_that_request_it() {
    let authority = Authority::new();
    for (protocol, alpn, version) in [
        ("kubernetes.io/h2c", "h2", "HTTP/2.0"),
        ("grpc", "h2", "HTTP/2.0"),
        ("https", "http/1.1", "HTTP/1.1"),
        ("wss", "http/1.1", "HTTP/1.1"),
    ] {
        let server = authority.issue(&["inner.example"]).server(&[alpn], None);
        let backend = Backend::tls("web", server).await;
        let manifests = [
            plain(),
            service_as("web", protocol, &[&backend]),
            route("web", &[&to("web")]),
            authority.config_map("default/ca"),
            policy("inner.example", ""),
        ];
        let gateway = Gateway::of(&manifests.concat()).await;
        assert_eq!(gateway.ask(get("/")).await.status, 200, "{protocol}");
        assert_eq!(backend.only().await.version, version, "{protocol}");
    }
}
