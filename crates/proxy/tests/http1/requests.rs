//! Tests of request lines, targets, hosts, fields and limits.

use pointsman_proxy::http1::*;

use crate::support::*;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n";

#[test]
fn a_request_is_parsed() {
    let bytes = b"GET /a/b?c=d HTTP/1.1\r\nHost: example.com:8080\r\nACCEPT:  text/html \t\r\nX-Empty:\r\nX-Bytes: \xc3\xa9\r\n\r\nnext";
    let mut head = RequestHead::new();
    assert_eq!(
        head.parse(bytes, &Limits::default()),
        Ok(Some(bytes.len() - 4))
    );
    let request = head.view(bytes);
    assert_eq!((request.method(), request.target()), ("GET", "/a/b?c=d"));
    assert_eq!((request.path(), request.query()), ("/a/b", Some("c=d")));
    assert_eq!(
        (request.authority(), request.host(), request.port()),
        (Some("example.com:8080"), Some("example.com"), Some(8080))
    );
    assert_eq!(
        (
            head.version(),
            head.form(),
            head.framing(),
            head.keep_alive()
        ),
        (Version::Http11, TargetForm::Origin, Framing::None, true)
    );
    let fields = request.fields();
    assert_eq!(fields.get("accept"), Some(&b"text/html"[..]));
    assert_eq!(fields.get("x-empty"), Some(&b""[..]));
    assert_eq!(fields.get("x-bytes"), Some("é".as_bytes()));
    assert_eq!((fields.len(), fields.get("x-none")), (4, None));
}

#[test]
fn violations_of_the_grammar_are_rejected() {
    use MessageFault::*;
    let fields = |lines: &str| format!("{GET}{lines}\r\n\r\n");
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n");
    let table: Vec<(&str, String, MessageFault)> = vec![
        (
            "RFC 9112 §3: request-line = method SP request-target SP HTTP-version",
            line("GET  / HTTP/1.1"),
            BadRequestLine,
        ),
        ("one space", line("GET /  HTTP/1.1"), BadRequestLine),
        ("no tab", line("GET\t/ HTTP/1.1"), BadRequestLine),
        ("no space before", line(" GET / HTTP/1.1"), BadRequestLine),
        ("no space after", line("GET / HTTP/1.1 "), BadRequestLine),
        ("a version there is", line("GET /"), BadRequestLine),
        (
            "RFC 9110 §9.1: method = token",
            line("G@T / HTTP/1.1"),
            BadRequestLine,
        ),
        (
            "not a TLS handshake",
            "\x16\x03\x01\r\n\r\n".into(),
            BadRequestLine,
        ),
        (
            "RFC 9112 §2.3: HTTP-name = %x48.54.54.50",
            line("GET / http/1.1"),
            BadRequestLine,
        ),
        ("DIGIT \".\" DIGIT", line("GET / HTTP/11"), BadRequestLine),
        ("DIGIT \".\" DIGIT", line("GET / HTTP/1.10"), BadRequestLine),
        (
            "versions that are not ours",
            line("GET / HTTP/1.2"),
            BadVersion,
        ),
        (
            "versions that are not ours",
            line("GET / HTTP/2.0"),
            BadVersion,
        ),
        (
            "versions that are not ours",
            line("GET / HTTP/0.9"),
            BadVersion,
        ),
        (
            "the preface of HTTP/2",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
            BadVersion,
        ),
        (
            "RFC 9112 §2.2: one empty line before a request",
            format!("\r\n\r\n{GET}\r\n"),
            BareNewline,
        ),
        (
            "RFC 9112 §2.2: no bare LF",
            format!("\n{GET}\r\n"),
            BareNewline,
        ),
        (
            "no bare LF after the request line",
            "GET / HTTP/1.1\nHost: a\r\n\r\n".into(),
            BareNewline,
        ),
        (
            "no bare LF after a field",
            "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n".into(),
            BareNewline,
        ),
        (
            "no bare LF after an empty field",
            "GET / HTTP/1.1\r\nHost: a\r\nX:\n\r\n".into(),
            BareNewline,
        ),
        (
            "no bare LF after the last field",
            "GET / HTTP/1.1\r\nHost: a\n\r\n".into(),
            BareNewline,
        ),
        (
            "no bare LF for the empty line",
            "GET / HTTP/1.1\r\nHost: a\r\n\n".into(),
            BareNewline,
        ),
        (
            "no bare LF at all",
            "GET / HTTP/1.1\nHost: a\n\n".into(),
            BareNewline,
        ),
        ("no bare CR in a value", fields("X: a\rb"), BadFieldValue),
        (
            "no bare CR before CRLF",
            fields("X: a\r\r\n"),
            BadFieldValue,
        ),
        ("no bare CR in a name", fields("X\ra: b"), BadFieldName),
        (
            "no bare CR in the request line",
            "GET / HTTP/1.1\rHost: a\r\n\r\n".into(),
            BareNewline,
        ),
        (
            "no bare CR in the target",
            line("GET /\ra HTTP/1.1"),
            BareNewline,
        ),
        (
            "RFC 9112 §5.1: no whitespace between name and colon",
            fields("X : a"),
            BadFieldName,
        ),
        (
            "no whitespace between name and colon",
            fields("X\t: a"),
            BadFieldName,
        ),
        (
            "RFC 9112 §5.2: a server that receives an obs-fold MUST either reject",
            fields("X: a\r\n b"),
            BadFieldName,
        ),
        ("obs-fold with a tab", fields("X: a\r\n\tb"), BadFieldName),
        (
            "obs-fold of an empty value",
            fields("X:\r\n b"),
            BadFieldName,
        ),
        (
            "RFC 9112 §2.2: no whitespace before the first field",
            "GET / HTTP/1.1\r\n Host: a\r\n\r\n".into(),
            BadFieldName,
        ),
        (
            "RFC 9110 §5.1: field-name = token",
            fields(": a"),
            BadFieldName,
        ),
        ("a name is a token", fields("X(y): a"), BadFieldName),
        ("a name is ASCII", fields("Xé: a"), BadFieldName),
        ("a field has a colon", fields("X"), BadFieldName),
        ("RFC 9110 §5.5: no NUL", fields("X: a\0b"), BadFieldValue),
        ("no control characters", fields("X: a\x01b"), BadFieldValue),
        ("no DEL", fields("X: a\x7fb"), BadFieldValue),
        (
            "far into a long value as well",
            fields(&format!("X: {}\0{}", "a".repeat(100), "b".repeat(100))),
            BadFieldValue,
        ),
        (
            "RFC 9112 §3.2: lacks a Host",
            "GET / HTTP/1.1\r\n\r\n".into(),
            MissingHost,
        ),
        ("more than one Host", fields("Host: b"), DuplicateHost),
        (
            "more than one Host, equal",
            fields("host: a"),
            DuplicateHost,
        ),
        (
            "more than one Host in HTTP/1.0",
            "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n".into(),
            DuplicateHost,
        ),
        (
            "RFC 9110 §10.1.1: Expect other than 100-continue",
            fields("Expect: 200-ok"),
            BadExpectation,
        ),
        (
            "one of several",
            fields("Expect: 100-continue\r\nExpect: x"),
            BadExpectation,
        ),
    ];
    for (rule, bytes, expected) in table {
        assert_eq!(fault(&bytes), Some(expected), "{rule}: {bytes:?}");
    }
}

#[test]
fn hosts_consist_of_a_host_and_a_port() {
    for good in [
        "a",
        "a.example.",
        "a_b",
        "1.2.3.4:80",
        "[::1]",
        "[::ffff:1.2.3.4]:8080",
        "a:",
        "a%2Db",
        "xn--caf-dma",
    ] {
        assert_eq!(
            fault(format!("GET / HTTP/1.1\r\nHost: {good}\r\n\r\n")),
            None,
            "{good}"
        );
    }
    for bad in [
        "",
        "a b",
        "a, b",
        "user@a",
        "u:p@a",
        "a/b",
        "a?b",
        "a#b",
        "http://a",
        "a:b",
        "a:65536",
        "a:+1",
        "a:-1",
        "a:80:80",
        ":80",
        "[::1",
        "::1",
        "[::1]x",
        "[v1.a]",
        "[fe80::1%25eth0]",
        "a%",
        "a%2",
        "a%zz",
        "é",
        "a\\b",
        "a\"",
        "<a>",
        "a\tb",
    ] {
        assert_eq!(
            fault(format!("GET / HTTP/1.1\r\nHost: {bad}\r\n\r\n")),
            Some(MessageFault::BadHost),
            "{bad}"
        );
        assert_eq!(
            fault(format!("GET / HTTP/1.0\r\nHost: {bad}\r\n\r\n")),
            Some(MessageFault::BadHost),
            "{bad}"
        );
    }
    with_head("GET http://[::1]:8080/ HTTP/1.1", "", |request| {
        assert_eq!(
            (request.host(), request.port()),
            (Some("[::1]"), Some(8080))
        );
    });
    with_head("GET http://[::1]/ HTTP/1.1", "", |request| {
        assert_eq!((request.host(), request.port()), (Some("[::1]"), None));
    });
}

#[test]
fn target_forms() {
    use MessageFault::*;
    // RFC 9112 §3.2: target, method, then form, authority, path, query.
    type Good = (
        &'static str,
        &'static str,
        TargetForm,
        &'static str,
        &'static str,
        Option<&'static str>,
    );
    let good: [Good; 14] = [
        ("GET", "/", TargetForm::Origin, "a.example", "/", None),
        (
            "GET",
            "/a?",
            TargetForm::Origin,
            "a.example",
            "/a",
            Some(""),
        ),
        (
            "GET",
            "/a?b?c/d",
            TargetForm::Origin,
            "a.example",
            "/a",
            Some("b?c/d"),
        ),
        (
            "GET",
            "//b/c",
            TargetForm::Origin,
            "a.example",
            "//b/c",
            None,
        ),
        (
            "GET",
            "/http://b/",
            TargetForm::Origin,
            "a.example",
            "/http://b/",
            None,
        ),
        (
            "GET",
            "/a|b[0]{x}^`",
            TargetForm::Origin,
            "a.example",
            "/a|b[0]{x}^`",
            None,
        ),
        (
            "GET",
            "/?a\\b",
            TargetForm::Origin,
            "a.example",
            "/",
            Some("a\\b"),
        ),
        // "the origin server MUST ignore the received Host header field (if any) and instead use the host of the request-target".
        (
            "GET",
            "http://b.example/c?d",
            TargetForm::Absolute,
            "b.example",
            "/c",
            Some("d"),
        ),
        (
            "GET",
            "HTTPS://b.example:1",
            TargetForm::Absolute,
            "b.example:1",
            "/",
            None,
        ),
        (
            "GET",
            "http://b?c",
            TargetForm::Absolute,
            "b",
            "/",
            Some("c"),
        ),
        ("OPTIONS", "*", TargetForm::Asterisk, "a.example", "*", None),
        // §3.2.4: "If a proxy receives an OPTIONS request with an absolute-form of request-target in which the URI has an empty path and
        // no query component, then the last proxy on the request chain MUST send a request-target of "*"".
        ("OPTIONS", "http://b", TargetForm::Asterisk, "b", "*", None),
        ("OPTIONS", "http://b/", TargetForm::Absolute, "b", "/", None),
        (
            "PROPFIND-x",
            "/",
            TargetForm::Origin,
            "a.example",
            "/",
            None,
        ),
    ];
    for (method, target, form, authority, path, query) in good {
        with_head(&format!("{method} {target} HTTP/1.1"), "", |request| {
            assert_eq!((request.method(), request.target()), (method, target));
            let parts = (
                request.head().form(),
                request.authority().unwrap(),
                request.path(),
                request.query(),
            );
            assert_eq!(parts, (form, authority, path, query), "{target}");
        });
    }
    let bad = [
        ("GET", "*", BadTarget),
        ("OPTION", "*", BadTarget),
        ("options", "*", MethodCase),
        ("OPTIONS", "**", AuthorityForm),
        ("GET", "a.example:80", AuthorityForm),
        ("GET", "a", AuthorityForm),
        ("CONNECT", "a.example:80", Connect),
        ("CONNECT", "/", Connect),
        ("connect", "a.example:80", MethodCase),
        ("connect", "/", MethodCase),
        ("GET", "ftp://a/", BadTarget),
        ("GET", "http:/a", BadTarget),
        ("GET", "http:a", AuthorityForm),
        ("GET", "http:///a", BadHost),
        ("GET", "http://?a", BadHost),
        ("GET", "http://u@a/", BadHost),
        ("GET", "http://u:p@a/", BadHost),
        ("GET", "http://a:b/", BadHost),
        ("GET", "http://a#b", BadHost),
        ("GET", "?a", BadTarget),
        ("GET", "/a#b", BadTarget),
        ("GET", "/a\\b", BadTarget),
        ("GET", "/a\"b", BadTarget),
        ("GET", "/<a>", BadTarget),
        ("GET", "/?<a>", BadTarget),
        ("GET", "/?a#b", BadTarget),
        ("GET", "/é", BadTarget),
        ("GET", "/?é", BadTarget),
        ("GET", "/a\0b", BadRequestLine),
        ("GET", "/a\x7fb", BadRequestLine),
        ("GET", "/a\tb", BadRequestLine),
    ];
    for (method, target, expected) in bad {
        let found = fault(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        match (expected, found) {
            // Either fault is correct.
            (AuthorityForm, Some(BadTarget)) if target == "http:a" => {}
            _ => assert_eq!(found, Some(expected), "{method} {target}"),
        }
    }
    assert_eq!(
        (Connect.status(), AuthorityForm.status(), BadTarget.status()),
        (501, 400, 400)
    );
}

#[test]
fn http_1_0_needs_no_host() {
    let mut head = RequestHead::new();
    let bytes = b"GET / HTTP/1.0\r\n\r\n";
    assert_eq!(head.parse(bytes, &Limits::default()), Ok(Some(bytes.len())));
    assert_eq!(
        (head.version(), head.view(bytes).authority()),
        (Version::Http10, None)
    );
}

#[test]
fn one_empty_line_before_a_request_is_ignored() {
    let once = read(format!("\r\n{GET}\r\n\r\n{GET}\r\n"));
    assert_eq!(once, read(format!("{GET}\r\n{GET}\r\n")));
    assert_eq!(once.len(), 4);
    assert_eq!(fault("\rG"), Some(MessageFault::BareNewline));
}

#[test]
fn exceeded_limits_have_their_status() {
    let target = |length: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
            "a".repeat(length - 1)
        )
    };
    assert_eq!(fault(target(16 * 1024)), None);
    assert_eq!(
        fault(target(16 * 1024 + 1)),
        Some(MessageFault::TargetTooLong)
    );
    // Also without a line break.
    assert_eq!(
        fault(&target(17 * 1024)[..16 * 1024 + 50]),
        Some(MessageFault::TargetTooLong)
    );
    assert_eq!(MessageFault::TargetTooLong.status(), 414);

    let fields = |count: usize| format!("{GET}{}\r\n", "X: a\r\n".repeat(count - 1));
    assert_eq!(fault(fields(100)), None);
    assert_eq!(fault(fields(101)), Some(MessageFault::TooManyFields));
    assert_eq!(MessageFault::TooManyFields.status(), 431);

    // "Host: a", CRLF, "X: " and two CRLF are 16 bytes.
    let large = |length: usize| format!("{GET}X: {}\r\n\r\n", "a".repeat(length - 16));
    assert_eq!(fault(large(64 * 1024)), None);
    assert_eq!(
        fault(large(64 * 1024 + 1)),
        Some(MessageFault::HeadTooLarge)
    );
    assert_eq!(
        fault(&large(65 * 1024)[..64 * 1024 + 50]),
        Some(MessageFault::HeadTooLarge)
    );
    assert_eq!(MessageFault::HeadTooLarge.status(), 431);

    let method = |length: usize| format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(length));
    assert_eq!(fault(method(64)), None);
    assert_eq!(fault(method(65)), Some(MessageFault::MethodTooLong));
    assert_eq!(fault("A".repeat(70)), Some(MessageFault::MethodTooLong));

    // A complete line is checked before the rest of the head arrives.
    assert_eq!(fault(&method(65)[..85]), Some(MessageFault::MethodTooLong));

    let limits = Limits {
        body_bytes: Some(10),
        ..Limits::default()
    };
    let body = |framing: &str, body: &str| {
        let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{body}");
        let events = read_chunks(
            AnyReader::Requests(RequestReader::new(limits)),
            [bytes.as_bytes()],
        );
        matches!(
            events.last(),
            Some(ReadEvent::Failed(Error::Client(MessageFault::BodyTooLarge)))
        )
    };
    assert!(!body("Content-Length: 10", "0123456789"));
    assert!(body("Content-Length: 11", ""));
    assert!(!body(
        "Transfer-Encoding: chunked",
        "a\r\n0123456789\r\n0\r\n\r\n"
    ));
    assert!(body(
        "Transfer-Encoding: chunked",
        "5\r\n01234\r\n6\r\n012345\r\n"
    ));
}

#[test]
fn every_fault_has_a_status_and_a_name() {
    for fault in MessageFault::ALL {
        assert!((400..=505).contains(&fault.status()), "{fault:?}");
        assert_eq!(fault.reason(), format!("{fault:?}"));
        assert!(!standard_reason(fault.status()).is_empty());
        assert_eq!(Error::Backend(*fault).status(), 502);
    }
}

#[test]
fn parsing_a_head_byte_by_byte_takes_linear_time() {
    // 64 KiB in single bytes: quadratic parsing would take minutes.
    let bytes = format!("{GET}X: {}\r\n\r\n", "a".repeat(60_000));
    let mut head = RequestHead::new();
    for end in 1..bytes.len() {
        assert_eq!(
            head.parse(&bytes.as_bytes()[..end], &Limits::default()),
            Ok(None)
        );
    }
    assert_eq!(
        head.parse(bytes.as_bytes(), &Limits::default()),
        Ok(Some(bytes.len()))
    );
}
