//! Tests of handcrafted heads that RFC 9113 §8.2, §8.3 and §10.3 forbid. None of them reaches the endpoint.

use pointsman_proxy::Limits;

use crate::support::*;

/// END_STREAM and END_HEADERS.
const WHOLE: u8 = 5;

async fn proxy_with_backend() -> TestProxy {
    test_proxy(
        Limits::default(),
        EndpointProtocol::Http1,
        &[http1_endpoint().await],
    )
}

/// Returns the outcome of a request with this field block.
async fn outcome(proxy: &TestProxy, block: &[u8]) -> String {
    let mut raw = RawConnection::new(proxy.address).await;
    raw.frame(1, WHOLE, 1, block).await;
    raw.outcome(1).await
}

#[tokio::test]
async fn a_valid_head_is_served() {
    let proxy = proxy_with_backend().await;
    assert_eq!(outcome(&proxy, &request_block(&[])).await, "200");
    let host = [("host", "shop.example"), ("te", "trailers"), ("x-a", "b c")];
    assert_eq!(outcome(&proxy, &request_block(&host)).await, "200");
    // `host` without `:authority` is valid.
    let old = block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        ("host", "shop.example"),
    ]);
    assert_eq!(outcome(&proxy, &old).await, "200");
}

#[tokio::test]
async fn forbidden_fields_are_rejected() {
    let proxy = proxy_with_backend().await;
    let forbidden: [(&str, &str); 19] = [
        ("connection", "close"),
        ("connection", "x-a"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
        ("X-Upper", "1"),
        ("x-a", "b\r\nx-c: d"),
        ("x-a", "b\nc"),
        ("x-a", "b\0c"),
        ("x-a", " b"),
        ("x-a", "b\t"),
        ("cookie", "b "),
        ("x a", "b"),
        ("x-a:", "b"),
        ("", "b"),
        (":unknown", "b"),
    ];
    for (name, value) in forbidden {
        let outcome = outcome(&proxy, &request_block(&[(name, value)])).await;
        let refused =
            outcome.starts_with("reset 1") || outcome.starts_with("goaway ") || outcome == "400";
        assert!(refused, "{name:?}: {value:?} gives {outcome}");
    }
}

#[tokio::test]
async fn pseudo_header_fields_are_complete_and_come_first() {
    let proxy = proxy_with_backend().await;
    let (method, scheme) = ((":method", "GET"), (":scheme", "http"));
    let (path, authority) = ((":path", "/"), (":authority", "shop.example"));
    let blocks: [(&str, &[(&str, &str)]); 11] = [
        ("no method", &[scheme, path, authority]),
        ("no scheme", &[method, path, authority]),
        ("no path", &[method, scheme, authority]),
        ("no path nor authority", &[method, scheme]),
        (
            "no path, and a host",
            &[method, scheme, ("host", "shop.example")],
        ),
        ("an empty path", &[method, scheme, (":path", ""), authority]),
        (
            "an empty method",
            &[(":method", ""), scheme, path, authority],
        ),
        ("two methods", &[method, method, scheme, path, authority]),
        ("two paths", &[method, scheme, path, path, authority]),
        (
            "after a field",
            &[method, scheme, path, ("x-a", "b"), authority],
        ),
        (
            ":status",
            &[method, scheme, path, authority, (":status", "200")],
        ),
    ];
    for (what, fields) in blocks {
        let outcome = outcome(&proxy, &block(fields)).await;
        let refused = outcome.starts_with("reset 1") || outcome.starts_with("goaway ");
        assert!(refused, "{what} gives {outcome}");
    }
}

#[tokio::test]
async fn targets_and_hosts_are_parsed_as_in_http1() {
    let proxy = proxy_with_backend().await;
    let get_block = |method: &str, path: &str, authority: &str| {
        block(&[
            (":method", method),
            (":scheme", "http"),
            (":path", path),
            (":authority", authority),
        ])
    };
    let host = "shop.example";
    let cases = [
        (
            "userinfo",
            get_block("GET", "/", "user@shop.example"),
            "400",
        ),
        (
            "a bad port",
            get_block("GET", "/", "shop.example:99999"),
            "400",
        ),
        ("an invalid path", get_block("GET", "*", host), "400"),
        (
            "CONNECT",
            block(&[(":method", "CONNECT"), (":authority", "shop.example:443")]),
            "501",
        ),
        // RFC 9110 §9.1: "The method token is case-sensitive".
        ("connect", get_block("connect", "/", host), "400"),
        ("delete", get_block("delete", "/", host), "400"),
        ("hEAD", get_block("hEAD", "/", host), "400"),
        (
            "another protocol",
            block(&[
                (":method", "CONNECT"),
                (":protocol", "connect-udp"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", host),
            ]),
            "501",
        ),
        (
            "two hosts",
            request_block(&[("host", host), ("host", host)]),
            "400",
        ),
        (
            "another host",
            request_block(&[("host", "other.example")]),
            "400",
        ),
        (
            "no host",
            block(&[(":method", "GET"), (":scheme", "http"), (":path", "/")]),
            "400",
        ),
        (
            "another scheme",
            block(&[
                (":method", "GET"),
                (":scheme", "ftp"),
                (":path", "/"),
                (":authority", host),
            ]),
            "400",
        ),
        ("an expectation", request_block(&[("expect", "tea")]), "417"),
        ("an invalid escape", get_block("GET", "/%zz", host), "400"),
    ];
    for (what, block, wanted) in cases {
        assert_eq!(outcome(&proxy, &block).await, wanted, "{what}");
    }
    for (what, path) in [
        ("no slash", "a"),
        ("white space", "/a b"),
        ("a control", "/a\u{7f}"),
    ] {
        let outcome = outcome(&proxy, &get_block("GET", path, host)).await;
        assert!(
            outcome == "400" || outcome.starts_with("reset 1"),
            "{what}: {outcome}"
        );
    }
}

#[tokio::test]
async fn content_length_must_match_the_data() {
    let proxy = proxy_with_backend().await;
    let length = |value: &str| request_block(&[("content-length", value)]);
    // Less than announced, more than announced, no data, and invalid values.
    for (value, data) in [("5", "four"), ("3", "four"), ("x", "four"), ("-1", "four")] {
        let mut raw = RawConnection::new(proxy.address).await;
        raw.frame(1, 4, 1, &length(value)).await;
        raw.frame(0, 1, 1, data.as_bytes()).await;
        let outcome = raw.outcome(1).await;
        assert_eq!(outcome, "reset 1", "{value}");
    }
    assert_eq!(outcome(&proxy, &length("5")).await, "reset 1");
    // Origins with signed lengths would interpret these differently.
    for (value, wanted) in [
        ("9223372036854775808", "400"),
        ("18446744073709551615", "reset 1"),
    ] {
        let mut raw = RawConnection::new(proxy.address).await;
        raw.frame(1, 4, 1, &length(value)).await;
        assert_eq!(raw.outcome(1).await, wanted, "{value}");
    }
    let two = request_block(&[("content-length", "0"), ("content-length", "0")]);
    assert_eq!(outcome(&proxy, &two).await, "400");
}

#[tokio::test]
async fn pseudo_header_fields_in_trailers_close_the_connection() {
    let proxy = proxy_with_backend().await;
    for name in [":path", ":method", ":status"] {
        let mut raw = RawConnection::new(proxy.address).await;
        raw.frame(1, 4, 1, &request_block(&[])).await;
        raw.frame(0, 0, 1, b"body").await;
        raw.frame(1, WHOLE, 1, &block(&[(name, "/")])).await;
        assert_eq!(raw.outcome(1).await, "goaway 1", "{name}");
    }
    let mut raw = RawConnection::new(proxy.address).await;
    raw.frame(1, 4, 1, &request_block(&[])).await;
    raw.frame(1, WHOLE, 1, &block(&[("x-sum", "7")])).await;
    assert_eq!(raw.outcome(1).await, "200");
}

#[tokio::test]
async fn a_preface_may_arrive_in_several_segments() {
    use tokio::io::AsyncWriteExt;
    let proxy = proxy_with_backend().await;
    let mut stream = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, b""));
    bytes.extend(frame(1, WHOLE, 1, &request_block(&[])));
    stream.set_nodelay(true).unwrap();
    for byte in bytes {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut raw = RawConnection::of(stream);
    assert_eq!(raw.outcome(1).await, "200");
}
