//! Tests of message bodies: chunks, trailers, limits, and generated framing.

use pointsman_proxy::http1::*;

use crate::support::*;

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunked(body: &str) -> (Vec<u8>, Pairs) {
    let events = read(format!("{CHUNKED}{body}"));
    match &events[..] {
        [_, ReadEvent::Data(data), ReadEvent::End(trailers)] => (data.clone(), trailers.clone()),
        [_, ReadEvent::End(trailers)] => (Vec::new(), trailers.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn chunked_bodies_are_decoded() {
    for (body, data) in [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("005\r\nhello\r\n000\r\n\r\n", "hello"),
        ("0000000000000005\r\nhello\r\n0\r\n\r\n", "hello"),
        ("3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", "hello"),
        (
            "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
            "01234567890123456789",
        ),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
        // RFC 9112 §7.1.1: "A recipient MUST ignore unrecognized chunk extensions."
        ("5;a\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5;a=b;c=\"d;\"\r\nhello\r\n0;e\r\n\r\n", "hello"),
        ("5 ; a = b\r\nhello\r\n0\t;e\r\n\r\n", "hello"),
    ] {
        assert_eq!(chunked(body), (data.into(), Vec::new()), "{body:?}");
    }
}

#[test]
fn trailers_are_read_and_forbidden_ones_are_dropped() {
    let body = "1\r\na\r\n0\r\nX-Sum: 1\r\nContent-Length: 5\r\ntransfer-encoding: chunked\r\nHost: b\r\nAuthorization: x\r\nX-Empty:\r\nContent-Digest: y\r\nContent-Type: z\r\nX-Forwarded-For: 1\r\n\r\n";
    assert_eq!(chunked(body).1.len(), 9);

    let mut decoder = BodyDecoder::new(Framing::Chunked, &Limits::default());
    assert_eq!(decoder.decode(body.as_bytes()), Ok(Decoded::Data(3..4)));
    let rest = &body.as_bytes()[4..];
    assert_eq!(
        decoder.decode(rest),
        Ok(Decoded::End {
            consumed: rest.len()
        })
    );
    let names: Vec<_> = decoder
        .trailers(rest)
        .forwarded()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, [&b"X-Sum"[..], b"X-Empty", b"Content-Digest"]);
    assert_eq!(decoder.received(), 1);
}

#[test]
fn extensions_and_trailers_have_limits() {
    let tiny = format!("1;{}\r\na\r\n", "x".repeat(100));
    let body = |count: usize| format!("{CHUNKED}{}0\r\n\r\n", tiny.repeat(count));
    assert_eq!(fault(body(40)), None);
    assert_eq!(fault(body(41)), Some(MessageFault::BadChunkExtension));
    assert_eq!(
        fault(format!("{CHUNKED}1;{}", "x".repeat(5000))),
        Some(MessageFault::BadChunkExtension)
    );
    assert_eq!(
        fault(format!("{CHUNKED}1{}", " ".repeat(5000))),
        Some(MessageFault::BadChunkExtension)
    );
    // The size of extensions is limited relative to the data.
    let paid = format!("64;{}\r\n{}\r\n", "x".repeat(90), "a".repeat(100));
    assert_eq!(
        fault(format!("{CHUNKED}{}0\r\n\r\n", paid.repeat(1000))),
        None
    );

    let large = |length: usize| format!("{CHUNKED}0\r\nX: {}\r\n\r\n", "a".repeat(length - 7));
    assert_eq!(fault(large(16 * 1024)), None);
    assert_eq!(
        fault(large(16 * 1024 + 1)),
        Some(MessageFault::TrailersTooLarge)
    );
    assert_eq!(
        fault(&large(17 * 1024)[..CHUNKED.len() + 16 * 1024 + 10]),
        Some(MessageFault::TrailersTooLarge)
    );
    assert_eq!(
        fault(format!("{CHUNKED}0\r\n{}\r\n", "A: b\r\n".repeat(32))),
        None
    );
    assert_eq!(
        fault(format!("{CHUNKED}0\r\n{}\r\n", "A: b\r\n".repeat(33))),
        Some(MessageFault::TrailersTooLarge)
    );
}

#[test]
fn the_largest_chunk_is_counted_without_overflow() {
    let mut decoder = BodyDecoder::new(Framing::Chunked, &Limits::default());
    assert_eq!(
        decoder.decode(b"ffffffffffffffff\r\nabc"),
        Ok(Decoded::Data(18..21))
    );
    assert_eq!(decoder.decode(b""), Ok(Decoded::More { consumed: 0 }));
    assert!(!decoder.is_complete());
    assert_eq!(decoder.eof(), Err(MessageFault::IncompleteBody));
    assert_eq!(decoder.decode(b"abc"), Err(MessageFault::IncompleteBody));
}

/// Returns the framing fields and the body as written.
fn encode(
    mut encoder: Encoder,
    chunks: &[&str],
    trailers: &[(&[u8], &[u8])],
) -> Result<String, EncodeError> {
    let mut out = Vec::new();
    let mut head = HeadWriter::response(&mut out, 200, None).unwrap();
    encoder.announce(&mut head);
    head.finish();
    for chunk in chunks {
        encoder.data(chunk.as_bytes(), &mut out)?;
    }
    encoder.end(trailers.iter().copied(), &mut out)?;
    let text = String::from_utf8(out).unwrap();
    Ok(text.strip_prefix("HTTP/1.1 200 OK\r\n").unwrap().to_owned())
}

#[test]
fn outgoing_framing_is_generated() {
    use Version::*;
    let trailers: &[(&[u8], &[u8])] = &[(b"x-sum", b"1")];
    let hello = &["hel", "", "lo"][..];
    let table = [
        (
            Framing::Length(5),
            Http11,
            hello,
            "content-length: 5\r\n\r\nhello",
            false,
        ),
        (
            Framing::Length(5),
            Http10,
            hello,
            "content-length: 5\r\n\r\nhello",
            false,
        ),
        (
            Framing::Chunked,
            Http11,
            hello,
            "transfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\nx-sum: 1\r\n\r\n",
            false,
        ),
        // RFC 9112 §6.1: "A server MUST NOT send a response containing Transfer-Encoding unless the corresponding request indicates
        // HTTP/1.1 (or later minor revisions)."
        (Framing::Chunked, Http10, hello, "\r\nhello", true),
        (
            Framing::UntilClose,
            Http11,
            hello,
            "transfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\nx-sum: 1\r\n\r\n",
            false,
        ),
        (Framing::UntilClose, Http10, hello, "\r\nhello", true),
        (Framing::None, Http11, &[], "\r\n", false),
    ];
    for (framing, version, chunks, expected, closes) in table {
        let encoder = Encoder::response(framing, version);
        assert_eq!(encoder.closes(), closes);
        assert_eq!(
            encode(encoder, chunks, trailers).unwrap(),
            expected,
            "{framing:?} {version:?}"
        );
    }
    assert_eq!(
        encode(Encoder::bodiless(Some(7)), &[], trailers).unwrap(),
        "content-length: 7\r\n\r\n"
    );
    assert_eq!(
        encode(Encoder::request(Framing::Length(0)), &[], &[]).unwrap(),
        "content-length: 0\r\n\r\n"
    );
    let chunked = Encoder::request(Framing::Chunked);
    assert_eq!(
        encode(chunked, hello, trailers).unwrap(),
        "transfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
    );
}

#[test]
fn a_body_that_differs_from_its_length_is_an_error() {
    let length = Encoder::response(Framing::Length(5), Version::Http11);
    assert_eq!(encode(length, &["hell"], &[]), Err(EncodeError::TooShort));
    assert_eq!(
        encode(length, &["hello", "!"], &[]),
        Err(EncodeError::TooLong)
    );
    assert_eq!(
        encode(Encoder::bodiless(Some(5)), &["a"], &[]),
        Err(EncodeError::TooLong)
    );
    let chunked = Encoder::response(Framing::Chunked, Version::Http11);
    assert_eq!(
        encode(chunked, &[], &[(b"a", b"b\r\nc")]),
        Err(EncodeError::Trailer(WriteError::Value))
    );
}

#[test]
fn chunk_sizes_are_written_in_hexadecimal() {
    for length in [1, 9, 10, 15, 16, 255, 256, 4096, 65_535, 1 << 20] {
        let mut out = Vec::new();
        Encoder::request(Framing::Chunked)
            .write_prefix(length, &mut out)
            .unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{length:x}\r\n"));
    }
}
