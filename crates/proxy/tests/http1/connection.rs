//! Tests of persistence, hop-by-hop fields, WebSocket upgrades and 100-continue.

use pointsman_proxy::http1::*;

use crate::support::*;

fn forwarded(fields: &str) -> Vec<String> {
    with_head("GET / HTTP/1.1", fields, |request| {
        request
            .fields()
            .forwarded()
            .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
            .collect()
    })
}

#[test]
fn persistence_follows_rfc_9112_section_9_3() {
    for (version, fields, keep_alive) in [
        ("HTTP/1.1", "", true),
        ("HTTP/1.1", "Connection: close\r\n", false),
        ("HTTP/1.1", "Connection: Close\r\n", false),
        ("HTTP/1.1", "Connection: keep-alive, close\r\n", false),
        (
            "HTTP/1.1",
            "Connection: keep-alive\r\nConnection: close\r\n",
            false,
        ),
        ("HTTP/1.1", "Connection: ,, x ,\tclose\r\n", false),
        ("HTTP/1.1", "Connection: closed\r\n", true),
        ("HTTP/1.0", "", false),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", true),
        ("HTTP/1.0", "Connection: keep-alive, close\r\n", false),
        ("HTTP/1.0", "Proxy-Connection: keep-alive\r\n", false),
        ("HTTP/1.0", "Keep-Alive: timeout=5\r\n", false),
    ] {
        with_head(&format!("GET / {version}"), fields, |request| {
            assert_eq!(
                request.head().keep_alive(),
                keep_alive,
                "{version} {fields}"
            );
        });
    }
}

#[test]
fn hop_by_hop_fields_are_removed() {
    let fields = "Connection: keep-alive\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nTE: trailers\r\nTrailer: x\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nContent-Length: 0\r\nAccept: x\r\nExpect: 100-continue\r\nVia: y\r\n";
    assert_eq!(forwarded(fields), ["Accept", "Expect", "Via"]);
    assert_eq!(forwarded("Transfer-Encoding: chunked\r\nA: b\r\n"), ["A"]);
}

#[test]
fn fields_named_by_connection_are_removed_except_protected_ones() {
    let fields =
        "X-A: 1\r\nx-b: 2\r\nX-C: 3\r\nConnection: x-a, X-B\r\nX-A: 4\r\nConnection: close\r\n";
    assert_eq!(forwarded(fields), ["X-C"]);
    let fields = "Connection: cookie, Authorization, cache-control, content-type, host, content-length, x\r\nCookie: a\r\nAuthorization: b\r\nCache-Control: c\r\nContent-Type: d\r\nX: e\r\n";
    assert_eq!(
        forwarded(fields),
        ["Cookie", "Authorization", "Cache-Control", "Content-Type"]
    );
    with_head(
        "GET / HTTP/1.1",
        "Connection: host, transfer-encoding\r\nTransfer-Encoding: chunked\r\n",
        |request| {
            assert_eq!(
                (request.authority(), request.head().framing()),
                (Some("a.example"), Framing::Chunked)
            );
        },
    );
    let many = |count: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n\r\n",
            "a,".repeat(count)
        )
    };
    assert_eq!(fault(many(32)), None);
    assert_eq!(
        fault(many(33)),
        Some(MessageFault::TooManyConnectionOptions)
    );
}

#[test]
fn a_websocket_requires_a_complete_handshake() {
    let whole = [
        "Connection: keep-alive, Upgrade",
        "Upgrade: WebSocket",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    ];
    let opens = |line: &str, fields: &[&str]| {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        with_head(line, &fields, |request| request.opens_websocket())
    };
    assert!(opens("GET /chat HTTP/1.1", &whole));
    assert!(!opens("POST /chat HTTP/1.1", &whole));
    assert!(!opens("GET /chat HTTP/1.0", &whole));
    for left_out in 0..whole.len() {
        let mut fields = whole.to_vec();
        fields.remove(left_out);
        assert!(
            !opens("GET /chat HTTP/1.1", &fields),
            "without {}",
            whole[left_out]
        );
    }
    for (at, other) in [
        (0, "Connection: keep-alive"),
        (1, "Upgrade: h2c"),
        (2, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ"),
        (2, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j!Q=="),
        (3, "Sec-WebSocket-Version: 8"),
    ] {
        let mut fields = whole.to_vec();
        fields[at] = other;
        assert!(!opens("GET /chat HTTP/1.1", &fields), "{other}");
    }
    for more in [
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
    ] {
        let mut fields = whole.to_vec();
        fields.push(more);
        assert!(!opens("GET /chat HTTP/1.1", &fields), "{more}");
    }
}

#[test]
fn after_a_switch_bytes_are_not_requests() {
    let mut reader = RequestReader::new(Limits::default());
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\x81\x00";
    let Ok(Event::Head(length)) = reader.next(bytes) else {
        panic!()
    };
    reader.switch();
    assert_eq!(reader.next(&bytes[length..]), Ok(Event::Switched));
}

#[test]
fn expect_100_continue_requires_a_body_and_http_1_1() {
    for (line, fields, expects) in [
        (
            "POST / HTTP/1.1",
            "Expect: 100-continue\r\nContent-Length: 5\r\n",
            true,
        ),
        (
            "POST / HTTP/1.1",
            "Expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n",
            true,
        ),
        (
            "POST / HTTP/1.1",
            "Expect: 100-continue\r\nContent-Length: 0\r\n",
            false,
        ),
        ("POST / HTTP/1.1", "Expect: 100-continue\r\n", false),
        (
            "POST / HTTP/1.0",
            "Expect: 100-continue\r\nContent-Length: 5\r\n",
            false,
        ),
        ("POST / HTTP/1.1", "Content-Length: 5\r\n", false),
    ] {
        with_head(line, fields, |request| {
            assert_eq!(
                request.head().expects_continue(),
                expects,
                "{line} {fields}"
            )
        });
    }
}

#[test]
fn trailers_are_accepted_with_te_trailers() {
    for (fields, takes) in [
        ("TE: trailers\r\n", true),
        ("te: gzip, Trailers\r\n", true),
        ("TE: gzip\r\n", false),
        ("", false),
    ] {
        with_head("GET / HTTP/1.1", fields, |request| {
            assert_eq!(request.head().accepts_trailers(), takes, "{fields}")
        });
    }
}
