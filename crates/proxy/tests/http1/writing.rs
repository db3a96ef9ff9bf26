//! Tests of writing heads.

use pointsman_proxy::http1::*;

use crate::support::*;

#[test]
fn heads_are_written() {
    let mut out = b"before".to_vec();
    let mut head = HeadWriter::request(&mut out, b"GET", b"/a?b", Version::Http11).unwrap();
    head.field(b"host", b"a").unwrap();
    head.fields([(&b"x"[..], &b""[..]), (b"y", b"\xc3\xa9")])
        .unwrap();
    assert_eq!(head.finish(), out.len() - 6);
    assert_eq!(
        out,
        b"beforeGET /a?b HTTP/1.1\r\nhost: a\r\nx: \r\ny: \xc3\xa9\r\n\r\n"
    );

    let mut out = Vec::new();
    HeadWriter::response(&mut out, 404, None).unwrap().finish();
    HeadWriter::response(&mut out, 299, Some(b"Fine"))
        .unwrap()
        .finish();
    HeadWriter::response(&mut out, 799, None).unwrap().finish();
    assert_eq!(
        out,
        b"HTTP/1.1 404 Not Found\r\n\r\nHTTP/1.1 299 Fine\r\n\r\nHTTP/1.1 799 \r\n\r\n"
    );
}

#[test]
fn values_with_line_breaks_are_not_written_not_even_partially() {
    let request = |method: &[u8], target: &[u8]| {
        let mut out = Vec::new();
        let error = HeadWriter::request(&mut out, method, target, Version::Http11)
            .map(|_| ())
            .unwrap_err();
        assert!(out.is_empty());
        error
    };
    for method in [&b""[..], b"G T", b"GET\r\n", b"G\0"] {
        assert_eq!(request(method, b"/"), WriteError::Method);
    }
    for target in [
        &b""[..],
        b"/ HTTP/1.1\r\nX: y",
        b"/\r",
        b"/\n",
        b"/\0",
        b"/a b",
        b"/\xc3\xa9",
    ] {
        assert_eq!(request(b"GET", target), WriteError::Target);
    }
    let field = |name: &[u8], value: &[u8]| {
        let mut out = b"kept".to_vec();
        let mut head = HeadWriter::response(&mut out, 200, None).unwrap();
        head.field(b"a", b"b").unwrap();
        let error = head.field(name, value).unwrap_err();
        drop(head);
        assert_eq!(out, b"kept");
        error
    };
    for name in [&b""[..], b"a b", b"a:", b"a\r\nb", b"\0", b":path"] {
        assert_eq!(field(name, b"x"), WriteError::Name);
    }
    for value in [&b"\r"[..], b"a\nb", b"a\0", b"a\r\nb: c"] {
        assert_eq!(field(b"x", value), WriteError::Value);
    }
    assert_eq!(
        HeadWriter::response(&mut Vec::new(), 200, Some(b"O\rK")).map(|_| ()),
        Err(WriteError::Value)
    );
    for status in [0, 99, 1000] {
        assert_eq!(
            HeadWriter::response(&mut Vec::new(), status, None).map(|_| ()),
            Err(WriteError::Status)
        );
    }
}

#[test]
fn fields_are_forwarded_unchanged_except_hop_by_hop_fields() {
    let fields = "A: 1\r\nConnection: x-drop\r\nB:2 \r\nX-Drop: 3\r\nTE: trailers\r\nc:\t4\r\nD: 5\r\nKeep-Alive: 6\r\n";
    let forward = |keep: fn(&RequestView<'_>, &Field) -> bool| {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut head = RequestHead::new();
        head.parse(text.as_bytes(), &Limits::default()).unwrap();
        let request = head.view(text.as_bytes());
        let mut out = Vec::new();
        let mut writer = HeadWriter::request(&mut out, b"GET", b"/", Version::Http11).unwrap();
        writer.forward(&request.fields(), |field| keep(&request, field));
        writer.finish();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        forward(|_, _| true),
        "GET / HTTP/1.1\r\nA: 1\r\nB:2 \r\nc:\t4\r\nD: 5\r\n\r\n"
    );
    assert_eq!(forward(|_, _| false), "GET / HTTP/1.1\r\n\r\n");
    with_head("GET / HTTP/1.1", "", |request| {
        let mut out = Vec::new();
        let mut writer = HeadWriter::response(&mut out, 200, None).unwrap();
        writer.forward(&request.fields(), |_| true);
        writer.finish();
        assert_eq!(out, b"HTTP/1.1 200 OK\r\n\r\n");
    });
}
