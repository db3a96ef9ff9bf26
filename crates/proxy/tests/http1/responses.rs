//! Tests of responses: status lines, framing by status and method, interim responses, and connection reuse.

use pointsman_proxy::http1::*;

use crate::support::*;

const HEAD: ResponseContext = ResponseContext {
    head: true,
    websocket: false,
};
const WEBSOCKET: ResponseContext = ResponseContext {
    head: false,
    websocket: true,
};

fn parse(bytes: &str, request: ResponseContext) -> Result<ResponseHead, Error> {
    let mut head = ResponseHead::new();
    let length = head.parse(bytes.as_bytes(), request, &Limits::default())?;
    assert_eq!(length, Some(bytes.len()), "{bytes:?}");
    Ok(head)
}

#[test]
fn status_lines() {
    for (line, status, reason) in [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.0 404 Not Found", 404, "Not Found"),
        ("HTTP/1.1 200 ", 200, ""),
        ("HTTP/1.1 200", 200, ""),
        ("HTTP/1.1 599 a\tb", 599, "a\tb"),
        ("HTTP/1.1 999 Denied", 999, "Denied"),
        ("HTTP/1.1 200 d'accord é", 200, "d'accord é"),
    ] {
        let bytes = format!("{line}\r\nContent-Length: 0\r\n\r\n");
        let head = parse(&bytes, ResponseContext::default()).unwrap();
        assert_eq!(
            (head.status(), head.view(bytes.as_bytes()).reason()),
            (status, reason.as_bytes())
        );
        let bare = parse(&format!("{line}\r\n\r\n"), ResponseContext::default()).unwrap();
        assert_eq!(
            (bare.status(), bare.framing()),
            (status, Framing::UntilClose)
        );
    }
    use MessageFault::*;
    for (line, expected) in [
        ("\r\nHTTP/1.1 200 OK", BadStatusLine),
        ("http/1.1 200 OK", BadStatusLine),
        ("HTTP/2.0 200 OK", BadVersion),
        ("HTTP/1.2 200 OK", BadVersion),
        ("HTTP/1.1 20 OK", BadStatusLine),
        ("HTTP/1.1 2000 OK", BadStatusLine),
        ("HTTP/1.1 099 OK", BadStatusLine),
        ("HTTP/1.1 000 OK", BadStatusLine),
        ("HTTP/1.1 +20 OK", BadStatusLine),
        ("HTTP/1.1  200 OK", BadStatusLine),
        ("HTTP/1.1 200 O\0K", BadStatusLine),
        ("HTTP/1.1 200 O\rK", BadStatusLine),
        ("ICY 200 OK", BadStatusLine),
    ] {
        assert_eq!(
            response_fault(format!("{line}\r\nContent-Length: 0\r\n\r\n")),
            Some(expected),
            "{line}"
        );
    }
    for bytes in [
        "HTTP/1.1 200 OK\nA: b\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200\n\r\n",
        "HTTP/1.1 200 OK\r\n\n",
        "HTTP/1.1 200 OK\r\nA: b\n\n",
    ] {
        assert_eq!(response_fault(bytes), Some(BareNewline), "{bytes:?}");
    }
}

#[test]
fn the_length_of_a_body_follows_rfc_9112_section_6_3() {
    let get = ResponseContext::default();
    let table = [
        // "Any response to a HEAD request and any response with a 1xx, 204, or 304 status code is always terminated by the first empty line
        // after the header fields, regardless of the header fields present in the message".
        (200, "Content-Length: 5", HEAD, Framing::None, true),
        (200, "Transfer-Encoding: chunked", HEAD, Framing::None, true),
        (200, "", HEAD, Framing::None, true),
        (204, "", get, Framing::None, true),
        (204, "Content-Length: 0", get, Framing::None, true),
        (304, "Content-Length: 5", get, Framing::None, true),
        (304, "Transfer-Encoding: chunked", get, Framing::None, true),
        (304, "", get, Framing::None, true),
        // A 204 with a Content-Length: bytes that follow are not trusted.
        (204, "Content-Length: 5", get, Framing::None, false),
        // "If a Transfer-Encoding header field is present and the chunked transfer coding is the final encoding".
        (
            200,
            "Transfer-Encoding: Chunked",
            get,
            Framing::Chunked,
            true,
        ),
        // "If a valid Content-Length header field is present without Transfer-Encoding".
        (200, "Content-Length: 5", get, Framing::Length(5), true),
        (404, "Content-Length: 0", get, Framing::Length(0), true),
        (205, "Content-Length: 0", get, Framing::Length(0), true),
        (
            200,
            "Content-Length: 9223372036854775807",
            get,
            Framing::Length(i64::MAX as u64),
            true,
        ),
        // "Otherwise, this is a response message without a declared message body length".
        (200, "", get, Framing::UntilClose, false),
        (
            200,
            "Connection: keep-alive",
            get,
            Framing::UntilClose,
            false,
        ),
        (
            200,
            "Content-Length: 5\r\nConnection: close",
            get,
            Framing::Length(5),
            false,
        ),
    ];
    for (status, fields, request, framing, keep_alive) in table {
        let fields = if fields.is_empty() {
            String::new()
        } else {
            format!("{fields}\r\n")
        };
        let head = parse(&format!("HTTP/1.1 {status} x\r\n{fields}\r\n"), request).unwrap();
        assert_eq!(
            (head.framing(), head.keep_alive()),
            (framing, keep_alive),
            "{status} {fields} {request:?}"
        );
    }
    let head = parse("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", HEAD).unwrap();
    assert_eq!(head.content_length(), Some(5));
}

#[test]
fn interim_responses_are_recognized() {
    let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let events = read_chunks(responses(ResponseContext::default()), [&bytes[..]]);
    let [
        ReadEvent::Interim { line: first, .. },
        ReadEvent::Interim {
            line: second,
            fields,
        },
        ReadEvent::Head { line, .. },
        ReadEvent::Data(data),
        ReadEvent::End(_),
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(
        (&first[..], &second[..], &line[..], &data[..]),
        ("100 Continue", "103 Early Hints", "200 OK", &b"ok"[..])
    );
    assert_eq!(fields[..], [("Link".to_owned(), b"</a>".to_vec())]);

    assert_eq!(
        response_fault("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n"),
        Some(MessageFault::UnexpectedInterim)
    );
    assert_eq!(
        response_fault("HTTP/1.1 100 Continue\r\n\r\n".repeat(33)),
        Some(MessageFault::UnexpectedInterim)
    );
    assert_eq!(
        response_fault("HTTP/1.1 100 Continue\r\n\r\n".repeat(32)),
        None
    );
}

#[test]
fn a_101_is_accepted_only_for_a_websocket() {
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
    let bytes = format!("{switch}\x01\x02HTTP/1.1 200 OK\r\n\r\n");
    let events = read_chunks(responses(WEBSOCKET), [bytes.as_bytes()]);
    let [ReadEvent::Head { line, .. }, ReadEvent::Switched(rest)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (&line[..], &rest[..]),
        (
            "101 Switching Protocols",
            &b"\x01\x02HTTP/1.1 200 OK\r\n\r\n"[..]
        )
    );

    let unexpected = Err(Error::Backend(MessageFault::UnexpectedInterim));
    assert_eq!(
        parse(switch, ResponseContext::default()).map(|_| ()),
        unexpected
    );
    for fields in [
        "",
        "Upgrade: websocket\r\n",
        "Connection: upgrade\r\n",
        "Connection: upgrade\r\nUpgrade: h2c\r\n",
    ] {
        assert_eq!(
            parse(&format!("HTTP/1.1 101 x\r\n{fields}\r\n"), WEBSOCKET).map(|_| ()),
            unexpected,
            "{fields}"
        );
    }
    // A response that rejects the upgrade is an ordinary one.
    assert!(
        !parse("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", WEBSOCKET)
            .unwrap()
            .is_websocket_upgrade()
    );
}

#[test]
fn nothing_of_one_response_leaks_into_the_next() {
    let mut reader = ResponseReader::new(Limits::default());
    assert_eq!(reader.next(b""), Ok(Event::More { consumed: 0 }));
    reader.expect(ResponseContext::default());
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 poison\r\nContent-Length: 0\r\n\r\n";
    let Ok(Event::Head(length)) = reader.next(bytes) else {
        panic!()
    };
    let rest = &bytes[length..];
    assert_eq!(reader.next(rest), Ok(Event::End { consumed: 0 }));
    assert!(reader.finish(b"") && !reader.finish(rest));
    assert_eq!(
        reader.next(rest),
        Err(Error::Backend(MessageFault::Unsolicited))
    );
    reader.expect(ResponseContext::default());
    assert_eq!(
        reader.next(rest),
        Err(Error::Backend(MessageFault::Unsolicited))
    );
    assert!(!reader.finish(b""));
}

#[test]
fn the_end_of_a_connection_ends_or_truncates_a_message() {
    let after = |bytes: &str| {
        let mut reader = ResponseReader::new(Limits::default());
        reader.expect(ResponseContext::default());
        let mut rest = bytes.as_bytes();
        loop {
            let event = reader.next(rest).unwrap();
            rest = &rest[event.consumed()..];
            if matches!(event, Event::More { .. } | Event::End { .. }) {
                return reader.eof(rest, Close::Orderly).map_err(Error::fault);
            }
        }
    };
    let ok = "HTTP/1.1 200 OK\r\n";
    assert_eq!(after(""), Ok(Eof::Unanswered));
    assert_eq!(after("HTTP/1.1 2"), Err(MessageFault::IncompleteHead));
    assert_eq!(after(&format!("{ok}\r\n")), Ok(Eof::EndsBody));
    assert_eq!(after(&format!("{ok}\r\nabc")), Ok(Eof::EndsBody));
    assert_eq!(
        after(&format!("{ok}Content-Length: 3\r\n\r\nab")),
        Err(MessageFault::IncompleteBody)
    );
    assert_eq!(
        after(&format!("{ok}Content-Length: 3\r\n\r\nabc")),
        Ok(Eof::Between)
    );
    for cut in [
        "3",
        "3\r\nab",
        "3\r\nabc",
        "3\r\nabc\r\n",
        "3\r\nabc\r\n0\r\n",
        "3\r\nabc\r\n0\r\nA: b\r\n",
    ] {
        assert_eq!(
            after(&format!("{ok}Transfer-Encoding: chunked\r\n\r\n{cut}")),
            Err(MessageFault::IncompleteBody),
            "{cut:?}"
        );
    }

    let mut reader = RequestReader::new(Limits::default());
    assert_eq!(reader.eof(b"", Close::Orderly), Ok(Eof::Between));
    assert_eq!(
        reader.eof(b"GET", Close::Orderly),
        Err(Error::Client(MessageFault::IncompleteHead))
    );
}

#[test]
fn a_body_delimited_by_close_is_incomplete_after_a_truncated_close() {
    let after = |head: &str, close| {
        let mut reader = ResponseReader::new(Limits::default());
        reader.expect(ResponseContext::default());
        let Ok(Event::Head(_)) = reader.next(head.as_bytes()) else {
            panic!("a head")
        };
        assert_eq!(reader.body().next(b"abc"), Ok(Event::Data(0..3)));
        (reader.eof(b"", close), reader.next(b""))
    };
    let (until_close, length) = (
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
    );
    let more = Ok(Event::More { consumed: 0 });
    let incomplete = Error::Backend(MessageFault::IncompleteBody);
    assert_eq!(
        after(until_close, Close::Orderly),
        (Ok(Eof::EndsBody), more.clone())
    );
    assert_eq!(
        after(until_close, Close::Truncated),
        (Err(incomplete), Err(incomplete))
    );
    assert_eq!(
        after(length, Close::Truncated),
        (Ok(Eof::EndsBody), more),
        "the length shows that it is complete"
    );
}

#[test]
fn a_response_without_a_body_leaves_the_connection_reusable_without_reading_its_end() {
    let after = |request, head: &str| {
        let mut reader = ResponseReader::new(Limits::default());
        reader.expect(request);
        let event = reader.next(head.as_bytes());
        assert_eq!(event, Ok(Event::Head(head.len())));
        (reader.finish(b""), reader.finish(b"H"))
    };
    let head = ResponseContext {
        head: true,
        websocket: false,
    };
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n";
    assert_eq!(after(head, &format!("{ok}\r\n")), (true, false));
    assert_eq!(
        after(ResponseContext::default(), &format!("{ok}\r\n")),
        (false, false),
        "three bytes are missing"
    );
    let close = format!("{ok}Connection: close\r\n\r\n");
    assert_eq!(after(head, &close), (false, false));
    let none = "HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(after(ResponseContext::default(), none), (true, false));
}

#[test]
fn bytes_that_bypass_the_reader_are_counted() {
    let mut reader = ResponseReader::new(Limits::default());
    reader.expect(ResponseContext::default());
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    assert_eq!(reader.next(head), Ok(Event::Head(head.len())));
    assert_eq!(reader.next(b"0123456789"), Ok(Event::Data(0..10)));
    assert_eq!(reader.body().left(), Some(90));
    reader.body().record_spliced(89);
    assert!(!reader.finish(b""));
    assert_eq!(reader.next(b"9"), Ok(Event::Data(0..1)));
    assert!(reader.finish(b"") && reader.received() == 100);
}

#[test]
fn a_response_head_has_limits() {
    let large =
        |length: usize| format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(length - 24));
    assert_eq!(response_fault(large(64 * 1024)), None);
    assert_eq!(
        response_fault(large(64 * 1024 + 1)),
        Some(MessageFault::HeadTooLarge)
    );
    assert_eq!(
        response_fault(&large(65 * 1024)[..64 * 1024 + 1]),
        Some(MessageFault::HeadTooLarge)
    );
    assert_eq!(
        response_fault(format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(101))),
        Some(MessageFault::TooManyFields)
    );
}
