//! Tests of request smuggling: all known ways to make two parsers disagree on the end of a message.

use pointsman_proxy::http1::*;

use crate::support::*;

/// Returns a POST with these framing fields and this body, followed by a second request.
fn post(fields: &str, body: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}GET /second HTTP/1.1\r\nHost: a\r\n\r\n"
    )
}

#[test]
fn ambiguous_framing_is_rejected() {
    use MessageFault::*;
    let table = [
        (
            "both, length first",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            LengthAndTransferEncoding,
        ),
        (
            "both, chunked first",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            LengthAndTransferEncoding,
        ),
        (
            "both, length zero",
            "Content-Length: 0\r\nTransfer-Encoding: chunked",
            LengthAndTransferEncoding,
        ),
        (
            "both, in other cases",
            "cOnTeNt-LeNgTh: 5\r\ntRaNsFeR-eNcOdInG: CHUNKED",
            LengthAndTransferEncoding,
        ),
        (
            "two lengths",
            "Content-Length: 5\r\nContent-Length: 6",
            BadContentLength,
        ),
        (
            "two equal lengths",
            "Content-Length: 5\r\nContent-Length: 5",
            BadContentLength,
        ),
        ("a list", "Content-Length: 5, 6", BadContentLength),
        ("an equal list", "Content-Length: 5, 5", BadContentLength),
        ("a list of one", "Content-Length: 5,", BadContentLength),
        ("empty", "Content-Length:", BadContentLength),
        ("white space", "Content-Length: \t ", BadContentLength),
        ("a plus", "Content-Length: +5", BadContentLength),
        ("a minus", "Content-Length: -5", BadContentLength),
        (
            "a minus before zero",
            "Content-Length: -0",
            BadContentLength,
        ),
        ("hexadecimal", "Content-Length: 0x5", BadContentLength),
        ("an exponent", "Content-Length: 5e0", BadContentLength),
        ("a fraction", "Content-Length: 5.0", BadContentLength),
        (
            "white space within",
            "Content-Length: 5 0",
            BadContentLength,
        ),
        ("an underscore", "Content-Length: 1_0", BadContentLength),
        ("quotes", "Content-Length: \"5\"", BadContentLength),
        ("other digits", "Content-Length: ５", BadContentLength),
        (
            "2^63",
            "Content-Length: 9223372036854775808",
            BadContentLength,
        ),
        (
            "2^64 - 1",
            "Content-Length: 18446744073709551615",
            BadContentLength,
        ),
        (
            "2^64",
            "Content-Length: 18446744073709551616",
            BadContentLength,
        ),
        (
            "2^64 + 5",
            "Content-Length: 18446744073709551621",
            BadContentLength,
        ),
        (
            "many digits",
            "Content-Length: 99999999999999999999999999999999",
            BadContentLength,
        ),
        (
            "many zeros",
            "Content-Length: 000000000000000000000000000000005",
            BadContentLength,
        ),
        (
            "chunked twice",
            "Transfer-Encoding: chunked, chunked",
            BadTransferEncoding,
        ),
        (
            "two fields",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            BadTransferEncoding,
        ),
        (
            "two fields, one identity",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
            BadTransferEncoding,
        ),
        (
            "two fields, one unknown",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
            BadTransferEncoding,
        ),
        (
            "gzip first",
            "Transfer-Encoding: gzip, chunked",
            BadTransferEncoding,
        ),
        (
            "chunked first",
            "Transfer-Encoding: chunked, gzip",
            BadTransferEncoding,
        ),
        ("no chunked", "Transfer-Encoding: gzip", BadTransferEncoding),
        (
            "identity",
            "Transfer-Encoding: identity",
            BadTransferEncoding,
        ),
        (
            "unknown",
            "Transfer-Encoding: xchunked",
            BadTransferEncoding,
        ),
        ("empty", "Transfer-Encoding:", BadTransferEncoding),
        (
            "an empty element",
            "Transfer-Encoding: chunked,",
            BadTransferEncoding,
        ),
        (
            "an empty element first",
            "Transfer-Encoding: ,chunked",
            BadTransferEncoding,
        ),
        (
            "a parameter",
            "Transfer-Encoding: chunked;q=1",
            BadTransferEncoding,
        ),
        (
            "quotes",
            "Transfer-Encoding: \"chunked\"",
            BadTransferEncoding,
        ),
        (
            "a letter like k",
            "Transfer-Encoding: chun\u{212a}ed",
            BadTransferEncoding,
        ),
        (
            "hidden by a vertical tab",
            "Transfer-Encoding: \x0bchunked",
            BadFieldValue,
        ),
        (
            "hidden by a NUL",
            "Transfer-Encoding: chunked\0",
            BadFieldValue,
        ),
        (
            "hidden by a space",
            "Transfer-Encoding : chunked",
            BadFieldName,
        ),
        (
            "hidden by a space, length",
            "Content-Length : 5",
            BadFieldName,
        ),
        (
            "hidden by a fold",
            "Transfer-Encoding:\r\n chunked",
            BadFieldName,
        ),
        (
            "hidden by a fold of another",
            "X: a\r\n Transfer-Encoding: chunked",
            BadFieldName,
        ),
        (
            "hidden by a bare LF",
            "X: a\nTransfer-Encoding: chunked",
            BareNewline,
        ),
        (
            "hidden by a bare CR",
            "X: a\rTransfer-Encoding: chunked",
            BadFieldValue,
        ),
        (
            "hidden by a NUL in the name",
            "Content-Length\0: 5",
            BadFieldName,
        ),
        (
            "hidden by a bare LF in the name",
            "Transfer\n-Encoding: chunked",
            BadFieldName,
        ),
    ];
    for (what, fields, expected) in table {
        let bytes = post(fields, "0\r\n\r\n");
        assert_eq!(fault(&bytes), Some(expected), "{what}");
        let events = read(&bytes);
        assert_eq!(
            events.len(),
            1,
            "{what}: nothing is read before or after: {events:?}"
        );
    }
}

#[test]
fn http_1_0_has_no_chunks() {
    let bytes = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(fault(bytes), Some(MessageFault::BadTransferEncoding));
}

#[test]
fn ambiguous_chunks_are_rejected() {
    use MessageFault::*;
    let table = [
        ("no size", "\r\n", BadChunkSize),
        ("0x", "0x5\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("a plus", "+5\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("a minus", "-5\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("an underscore", "0_5\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("not a digit", "g\r\n", BadChunkSize),
        ("a space before", " 5\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        (
            "2^64",
            "10000000000000000\r\nhello\r\n0\r\n\r\n",
            BadChunkSize,
        ),
        (
            "2^64 + 5",
            "10000000000000005\r\nhello\r\n0\r\n\r\n",
            BadChunkSize,
        ),
        (
            "many zeros",
            "00000000000000005\r\nhello\r\n0\r\n\r\n",
            BadChunkSize,
        ),
        ("a space after", "5 \r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("a tab after", "5\t\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("a comma after", "5,\r\nhello\r\n0\r\n\r\n", BadChunkSize),
        ("bare LF after a size", "5\nhello\r\n0\r\n\r\n", BareNewline),
        ("bare CR after a size", "5\rhello\r\n0\r\n\r\n", BareNewline),
        (
            "CR CR LF after a size",
            "5\r\r\nhello\r\n0\r\n\r\n",
            BareNewline,
        ),
        (
            "bare LF in an extension",
            "5;a\nhello\r\n0\r\n\r\n",
            BareNewline,
        ),
        (
            "bare CR in an extension",
            "5;a\rb\r\nhello\r\n0\r\n\r\n",
            BareNewline,
        ),
        (
            "bare LF after a space",
            "5 \nhello\r\n0\r\n\r\n",
            BareNewline,
        ),
        (
            "NUL in an extension",
            "5;a\0\r\nhello\r\n0\r\n\r\n",
            BadChunkExtension,
        ),
        (
            "DEL in an extension",
            "5;a\x7f\r\nhello\r\n0\r\n\r\n",
            BadChunkExtension,
        ),
        ("bare LF after data", "5\r\nhello\n0\r\n\r\n", BareNewline),
        ("bare CR after data", "5\r\nhello\r0\r\n\r\n", BareNewline),
        ("nothing after data", "5\r\nhello0\r\n\r\n", BadChunkEnd),
        (
            "data longer than its size",
            "5\r\nhello!\r\n0\r\n\r\n",
            BadChunkEnd,
        ),
        (
            "two bytes of anything after data",
            "5\r\nhelloXX0\r\n\r\n",
            BadChunkEnd,
        ),
        (
            "bare LF after the last size",
            "5\r\nhello\r\n0\n\r\n",
            BareNewline,
        ),
        (
            "bare LF after the last chunk",
            "5\r\nhello\r\n0\r\n\n",
            BareNewline,
        ),
        (
            "bare CR after the last chunk",
            "5\r\nhello\r\n0\r\n\rX",
            BareNewline,
        ),
        ("bare LF after a trailer", "0\r\nA: b\n\r\n", BareNewline),
        ("bare LF after the trailers", "0\r\nA: b\r\n\n", BareNewline),
        (
            "bare CR in a trailer",
            "0\r\nA: b\rc\r\n\r\n",
            BadFieldValue,
        ),
        ("NUL in a trailer", "0\r\nA: b\0c\r\n\r\n", BadFieldValue),
        ("a folded trailer", "0\r\nA: b\r\n c\r\n\r\n", BadFieldName),
        (
            "a space before the colon",
            "0\r\nA : b\r\n\r\n",
            BadFieldName,
        ),
        ("no name", "0\r\n: b\r\n\r\n", BadFieldName),
        (
            "a request for trailers",
            "0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            BadFieldName,
        ),
    ];
    for (what, body, expected) in table {
        assert_eq!(
            fault(post("Transfer-Encoding: chunked", body)),
            Some(expected),
            "{what}"
        );
        let response = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}HTTP/1.1 200 OK\r\n\r\n"
        );
        assert_eq!(response_fault(response), Some(expected), "{what}");
    }
}

#[test]
fn bytes_after_a_message_begin_the_next_one() {
    for (fields, body) in [
        ("Content-Length: 5", "hello"),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"),
        (
            "Transfer-Encoding: chunked",
            "5;a=b\r\nhello\r\n0;c\r\nX-Sum: 1\r\n\r\n",
        ),
    ] {
        let events = read(post(fields, body));
        let [
            ReadEvent::Head { .. },
            ReadEvent::Data(data),
            ReadEvent::End(_),
            ReadEvent::Head { line, .. },
            ReadEvent::End(_),
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!(
            (&data[..], &line[..]),
            (&b"hello"[..], "GET /second Http11")
        );
    }
    // Without framing there is no body, whatever the method, so the bytes that follow are a request.
    let events = read("POST / HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(events.len(), 4);
}

#[test]
fn the_framing_of_responses_is_checked_like_that_of_requests() {
    use MessageFault::*;
    let table = [
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            LengthAndTransferEncoding,
        ),
        ("Content-Length: 5\r\nContent-Length: 5", BadContentLength),
        ("Content-Length: 5, 5", BadContentLength),
        ("Content-Length: +5", BadContentLength),
        ("Content-Length: 9223372036854775808", BadContentLength),
        ("Transfer-Encoding: gzip, chunked", BadTransferEncoding),
        ("Transfer-Encoding: chunked, chunked", BadTransferEncoding),
        ("Transfer-Encoding: identity", BadTransferEncoding),
        ("X: a\r\n b", BadFieldName),
        ("X : a", BadFieldName),
        ("X: a\0", BadFieldValue),
        ("X: a\rb", BadFieldValue),
        ("X: a\nY: b", BareNewline),
    ];
    for (fields, expected) in table {
        assert_eq!(
            response_fault(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n0\r\n\r\n")),
            Some(expected),
            "{fields}"
        );
    }
    assert_eq!(
        response_fault("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        Some(BadTransferEncoding)
    );
    assert_eq!(
        response_fault("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        Some(BadTransferEncoding)
    );
}
