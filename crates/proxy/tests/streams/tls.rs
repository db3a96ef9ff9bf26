//! Tests of TLS passthrough and termination, certificate changes, and client certificates.

use std::io::{Read, Write};
use std::time::Duration;

use crate::certificates::*;
use crate::support::*;

fn tls_route(name: &str, listener: &str, hostname: &str, backend: &str) -> String {
    doc(
        "TLSRoute",
        name,
        &format!(
            "{{parentRefs: [{{name: edge, sectionName: {listener}}}], hostnames: [{hostname}], rules: [{{backendRefs: [{{name: {backend}, port: 1000}}]}}]}}"
        ),
    )
}

/// Sends a line to a [`tls_backend`] and reads its response.
fn send_line(stream: &mut Tls, line: &str) -> String {
    stream.write_all(line.as_bytes()).expect("written");
    stream.write_all(b"\n").expect("written");
    let mut received = String::new();
    stream.read_to_string(&mut received).expect("read");
    received
}

#[test]
fn the_sni_decides_between_passthrough_and_termination() {
    let (own, theirs) = (
        TestCertificate::new("end.example"),
        TestCertificate::new("through.example"),
    );
    let listeners = "\
        {name: through, port: 443, protocol: TLS, hostname: '*.through.example', tls: {mode: Passthrough}}, \
        {name: end, port: 443, protocol: TLS, hostname: end.example, tls: {mode: Terminate, certificateRefs: [{name: own}]}}";
    let proxy = TestProxy::new(
        &(gateway(listeners)
            + &own.secret("infra/own")
            + &tls_route("t", "through", "a.through.example", "secret")
            + &tls_route("e", "end", "end.example", "plain")
            + &service("secret", &[tls_backend("secret", &theirs)])
            + &service("plain", &[named_backend("plain")])),
    );
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = client(None, &[version]);
        let mut stream =
            connect_tls(&config, proxy.tcp_address(443), "a.through.example").expect("through");
        assert_eq!(peer_certificate(&stream), theirs.der());
        assert_eq!(send_line(&mut stream, "hi"), "secret a.through.example hi");
        let mut stream =
            connect_tls(&config, proxy.tcp_address(443), "END.example").expect("ended");
        assert_eq!(peer_certificate(&stream), own.der());
        assert_eq!(
            send_and_read_tls(&mut stream, b"hello").expect("a response"),
            "plain 5 bytes"
        );
    }
    // A hostname with a listener but no rule, and a hostname without a listener.
    for name in ["b.through.example", "other.example"] {
        let error = connect_tls(&any_client(), proxy.tcp_address(443), name).expect_err(name);
        let wanted = [
            std::io::ErrorKind::UnexpectedEof,
            std::io::ErrorKind::ConnectionReset,
        ];
        assert!(wanted.contains(&error.kind()), "{name}: {error}");
    }
    let refused = "pointsman_connections_refused_total";
    proxy.wait_for_metric(refused, "reason=\"NoRoute\"", 1);
    proxy.wait_for_metric(refused, "reason=\"UnknownName\"", 1);
    let (labels, other) = ("listener=\"end\"", "listener=\"through\"");
    assert_eq!(
        proxy.metric("pointsman_listener_tls_handshakes_total", labels),
        2
    );
    proxy.wait_for_metric("pointsman_listener_open_connections", labels, 0);
    proxy.wait_for_metric("pointsman_listener_open_connections", other, 0);
    assert_eq!(
        proxy.metric("pointsman_listener_request_bytes_total", labels),
        10
    );
}

#[test]
fn a_backend_tls_policy_enables_tls_to_the_backend() {
    let authority_ = Authority::new();
    let (own, theirs) = (
        TestCertificate::new("end.example"),
        authority_.issue(&["in.example"]),
    );
    let listeners = "{name: end, port: 443, protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: own}]}}, {name: tcp, port: 9000, protocol: TCP}";
    let policy = doc(
        "BackendTLSPolicy",
        "p",
        "{targetRefs: [{group: '', kind: Service, name: secret}], validation: {hostname: in.example, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}}",
    );
    let proxy = TestProxy::new(
        &(gateway(listeners)
            + &own.secret("infra/own")
            + &authority("infra/ca", &authority_.pem)
            + &policy
            + &tls_route("e", "end", "'*.example'", "secret")
            + &route("TCPRoute", "t", "tcp", "{name: secret, port: 1000}")
            + &service("secret", &[tls_backend("secret", &theirs)])),
    );
    let mut stream =
        connect_tls(&any_client(), proxy.tcp_address(443), "end.example").expect("ended");
    assert_eq!(send_line(&mut stream, "hi"), "secret in.example hi");
    let mut plain = connect(proxy.tcp_address(9000));
    plain.write_all(b"plain\n").expect("written");
    let mut received = String::new();
    plain.read_to_string(&mut received).expect("read");
    assert_eq!(received, "secret in.example plain");
}

const HTTPS: &str =
    "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: own}]}}";

fn https(pair: &TestCertificate) -> TestProxy {
    TestProxy::new(
        &(gateway(HTTPS)
            + &pair.secret("infra/own")
            + &route("HTTPRoute", "r", "https", "{name: web, port: 1000}")
            + &service("web", &[http_backend()])),
    )
}

/// Starts a backend that responds to every request of a connection.
pub fn http_backend() -> std::net::SocketAddr {
    backend(|mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
            if head.ends_with(b"\r\n\r\n") {
                head.clear();
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        }
    })
}

/// Sends an HTTP/1 request and keeps the connection open. Returns the response headers.
fn get(stream: &mut Tls, host: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("written");
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        received.push(byte[0]);
    }
    let head = String::from_utf8(received).expect("text");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().expect("a number"));
    stream.read_exact(&mut vec![0; length]).expect("a body");
    head
}

#[test]
fn https_is_served_with_every_type_of_key() {
    let rsa = TestCertificate {
        certificate: include_str!("../../../binding/tests/data/rsa.crt").to_owned(),
        key: include_str!("../../../binding/tests/data/rsa-pkcs1.key").to_owned(),
    };
    let ec = TestCertificate {
        certificate: include_str!("../../../binding/tests/data/ec.crt").to_owned(),
        key: include_str!("../../../binding/tests/data/ec-sec1.key").to_owned(),
    };
    for pair in [rsa, ec, TestCertificate::new("x.example")] {
        let proxy = https(&pair);
        for version in rustls::ALL_VERSIONS {
            let config = client(None, &[version]);
            let mut stream =
                connect_tls(&config, proxy.tcp_address(443), "x.example").expect("opened");
            assert_eq!(peer_certificate(&stream), pair.der());
            for _ in 0..2 {
                let head = get(&mut stream, "x.example");
                assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            }
        }
    }
}

#[test]
fn new_connections_get_a_new_certificate_and_old_connections_survive() {
    let (first, second) = (
        TestCertificate::new("x.example"),
        TestCertificate::new("x.example"),
    );
    let mut proxy = https(&first);
    let config = any_client();
    let mut old = connect_tls(&config, proxy.tcp_address(443), "x.example").expect("opened");
    assert_eq!(peer_certificate(&old), first.der());
    get(&mut old, "x.example");
    proxy.apply(&second.secret("infra/own"));
    // The client has a session ticket of the old configuration, which is rejected.
    let mut new = connect_tls(&config, proxy.tcp_address(443), "x.example").expect("opened");
    assert_eq!(peer_certificate(&new), second.der());
    assert!(get(&mut new, "x.example").starts_with("HTTP/1.1 200 "));
    assert!(get(&mut old, "x.example").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_session_can_be_resumed_at_its_own_listener_only() {
    let listeners = "\
        {name: a, port: 443, protocol: HTTPS, hostname: a.example, tls: {certificateRefs: [{name: own}]}}, \
        {name: b, port: 443, protocol: HTTPS, hostname: b.example, tls: {certificateRefs: [{name: own}]}}";
    let proxy = TestProxy::new(
        &(gateway(listeners)
            + &TestCertificate::new("x.example").secret("infra/own")
            + &route("HTTPRoute", "r", "a", "{name: web, port: 1000}")
            + &service("web", &[http_backend()])),
    );
    for version in rustls::ALL_VERSIONS {
        let config = client(None, &[version]);
        let kind = |name: &str| {
            let mut stream = connect_tls(&config, proxy.tcp_address(443), name).expect("opened");
            // The ticket arrives with the response.
            get(&mut stream, name);
            stream.conn.handshake_kind().expect("shaken")
        };
        assert_eq!(kind("a.example"), rustls::HandshakeKind::Full);
        assert_eq!(
            kind("a.example"),
            rustls::HandshakeKind::Resumed,
            "{version:?}"
        );
        assert_eq!(kind("b.example"), rustls::HandshakeKind::Full);
    }
    // The authority must match the SNI.
    let mut stream =
        connect_tls(&any_client(), proxy.tcp_address(443), "a.example").expect("opened");
    let head = get(&mut stream, "b.example");
    assert!(head.starts_with("HTTP/1.1 421 "), "{head}");
}

#[test]
fn an_https_port_rejects_unknown_names_and_plaintext() {
    let listener = "{name: a, port: 443, protocol: HTTPS, hostname: a.example, tls: {certificateRefs: [{name: own}]}}";
    let proxy = TestProxy::new(
        &(gateway(listener) + &TestCertificate::new("a.example").secret("infra/own")),
    );
    let error =
        connect_tls(&any_client(), proxy.tcp_address(443), "b.example").expect_err("refused");
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    // Plaintext is rejected with a response.
    let mut plain = connect(proxy.tcp_address(443));
    plain
        .write_all(b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n")
        .expect("written");
    let mut received = String::new();
    plain.read_to_string(&mut received).expect("read");
    assert!(received.starts_with("HTTP/1.1 400 "), "{received}");
    assert!(
        received.contains("x-pointsman-reason: NotTls"),
        "{received}"
    );
    assert!(
        received.ends_with("\r\n\r\nthis port accepts only TLS\n"),
        "{received}"
    );
}

#[test]
fn client_certificates_are_verified_where_required() {
    let (ours, others) = (Authority::new(), Authority::new());
    let (friend, stranger) = (ours.issue(&["friend"]), others.issue(&["stranger"]));
    for (mode, lets_in_strangers) in [("AllowValidOnly", false), ("AllowInsecureFallback", true)] {
        let gateway = doc(
            "Gateway",
            "edge",
            &format!(
                "{{gatewayClassName: ours, tls: {{frontend: {{default: {{validation: {{mode: {mode}, caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca}}]}}}}}}}}, listeners: [{HTTPS}]}}"
            ),
        );
        let proxy = TestProxy::new(
            &(gateway
                + &authority("infra/ca", &ours.pem)
                + &TestCertificate::new("x.example").secret("infra/own")
                + &route("HTTPRoute", "r", "https", "{name: web, port: 1000}")
                + &service("web", &[http_backend()])),
        );
        for (certificate, is_friend) in [
            (Some(&friend), true),
            (Some(&stranger), false),
            (None, false),
        ] {
            for version in rustls::ALL_VERSIONS {
                let config = client(certificate, &[version]);
                // In TLS 1.3 a client completes its handshake before its certificate is verified.
                let served = connect_tls(&config, proxy.tcp_address(443), "x.example").and_then(
                    |mut stream| {
                        stream.write_all(b"GET / HTTP/1.1\r\nhost: x.example\r\n\r\n")?;
                        let mut start = [0; 13];
                        stream.read_exact(&mut start)?;
                        Ok(start == *b"HTTP/1.1 200 ")
                    },
                );
                let wanted = is_friend || lets_in_strangers;
                assert_eq!(
                    served.unwrap_or(false),
                    wanted,
                    "{mode} {is_friend} {version:?}"
                );
            }
        }
    }
}

#[test]
fn changed_client_validation_invalidates_sessions() {
    let ours = Authority::new();
    let mut proxy = https(&TestCertificate::new("x.example"));
    let config = any_client();
    let mut stream = connect_tls(&config, proxy.tcp_address(443), "x.example").expect("opened");
    get(&mut stream, "x.example");
    let strict = doc(
        "Gateway",
        "edge",
        &format!(
            "{{gatewayClassName: ours, tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca}}]}}}}}}}}, listeners: [{HTTPS}]}}"
        ),
    );
    proxy.apply(&(authority("infra/ca", &ours.pem) + &strict));
    let served =
        connect_tls(&config, proxy.tcp_address(443), "x.example").and_then(|mut stream| {
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x.example\r\n\r\n")?;
            stream.read_exact(&mut [0])
        });
    assert!(served.is_err());
}

#[test]
fn malformed_handshakes_end_in_time() {
    let listeners = "\
        {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: own}]}}, \
        {name: tls, port: 444, protocol: TLS, tls: {mode: Passthrough}}";
    let mut options = options();
    options.limits.head_time = Duration::from_millis(500);
    let proxy = TestProxy::with(
        options,
        &(gateway(listeners) + &TestCertificate::new("x.example").secret("infra/own")),
    );
    let record = |length: u16, rest: &[u8]| {
        let mut bytes = vec![22, 3, 1];
        bytes.extend(length.to_be_bytes());
        bytes.extend(rest);
        bytes
    };
    let mut huge = Vec::new();
    for _ in 0..3 {
        huge.extend(record(
            16_384,
            &[&[1, 0, 255, 255], &[0; 16_380][..]].concat(),
        ));
    }
    let garbage: Vec<u8> = (0..100_000u32).map(|at| (at * 7 % 251) as u8).collect();
    let alert = vec![21, 3, 3, 0, 2, 2, 0];
    for port in [443, 444] {
        for (what, bytes) in [
            ("nothing", Vec::new()),
            ("half a hello", record(512, &[1, 0, 1, 252, 3, 3])),
            ("a record of nothing", record(0, &[])),
            ("an alert", alert.clone()),
            ("garbage", garbage.clone()),
            ("a huge hello", huge.clone()),
            ("one byte", vec![22]),
            (
                "a ClientHello with a wrong length",
                record(10, &[1, 0, 0, 6, 3, 3, 0, 0, 0, 0, 0]),
            ),
        ] {
            let mut stream = connect(proxy.tcp_address(port));
            // The connection may be closed before everything is written.
            let _ = stream.write_all(&bytes);
            let mut received = Vec::new();
            let end = stream.read_to_end(&mut received);
            let reset =
                |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
            assert!(end.as_ref().map_or_else(reset, |_| true), "{what}: {end:?}");
        }
    }
    // A ClientHello that arrives byte by byte never completes in time.
    let mut drip = connect(proxy.tcp_address(443));
    let hello = record(300, &[1, 0, 1, 40, 3, 3]);
    let dripped = (0..600).try_for_each(|at| {
        std::thread::sleep(Duration::from_millis(50));
        drip.write_all(&[*hello.get(at).unwrap_or(&0)])
    });
    assert!(dripped.is_err());
    wait_for("all connections to be closed", || {
        proxy.metric(
            "pointsman_connections_refused_total",
            "reason=\"HandshakeTimeout\"",
        ) >= 3
    });
}
