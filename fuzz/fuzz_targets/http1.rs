//! Fuzzes the HTTP/1 state machines for requests and responses, driven as the proxy drives them: they never panic, every event makes progress, the result does
//! not depend on how the bytes are split, errors are final, and a forwarded request parses to an equivalent one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pointsman_proxy::http1::*;
use pointsman_routing::is_method_in_another_case;

/// Messages that were parsed, and the result of the connection.
#[derive(Debug, Default, PartialEq)]
struct Parsed {
    heads: Vec<Vec<u8>>,
    data: Vec<u8>,
    ends: usize,
    failed: bool,
    /// True if the connection may be closed after these bytes.
    may_close: bool,
}

/// A state machine for requests or responses.
enum Reader {
    Requests(RequestReader),
    Responses(ResponseReader, ResponseContext),
}

impl Reader {
    fn body(&mut self) -> &mut BodyReader {
        match self {
            Reader::Requests(reader) => reader.message().1,
            Reader::Responses(reader, _) => reader.body(),
        }
    }

    fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        if self.body().is_open() {
            return self.body().next(bytes);
        }
        match self {
            Reader::Requests(reader) => reader.next(bytes),
            Reader::Responses(reader, context) => {
                reader.expect(*context);
                reader.next(bytes)
            }
        }
    }

    /// Closes the connection with these bytes unread.
    fn eof(mut self, bytes: &[u8], close: Close) -> Result<Eof, Error> {
        let is_complete = self.body().is_complete();
        if let Reader::Responses(reader, _) = &mut self {
            assert!(!reader.finish(bytes) || is_complete && bytes.is_empty());
        }
        let result = self.body().eof(bytes, close);
        if let Err(error) = result {
            assert_eq!(self.body().next(b""), Err(error));
        }
        result
    }
}

/// Parses bytes that arrive in chunks.
fn read(bytes: &[u8], chunk: usize, mut reader: Reader) -> Parsed {
    let mut parsed = Parsed::default();
    let mut start = 0;
    let mut end = 0;
    while end < bytes.len() {
        end = bytes.len().min(end + chunk);
        let mut idle = 0;
        loop {
            let event = match reader.next(&bytes[start..end]) {
                Ok(event) => event,
                Err(error) => {
                    assert_eq!(reader.next(b""), Err(error));
                    parsed.failed = true;
                    return parsed;
                }
            };
            // Only the end of a message may consume nothing, and never twice in a row.
            idle = if event.consumed() == 0 { idle + 1 } else { 0 };
            assert!(idle < 3, "{event:?}");
            match &event {
                Event::Head(length) | Event::Interim(length) => {
                    parsed.heads.push(bytes[start..start + length].to_vec())
                }
                Event::Data(range) => parsed
                    .data
                    .extend_from_slice(&bytes[start + range.start..start + range.end]),
                Event::End { .. } => parsed.ends += 1,
                Event::More { .. } | Event::Switched => {}
            }
            start += event.consumed();
            if matches!(event, Event::More { .. } | Event::Switched) {
                break;
            }
        }
    }
    let rest = &bytes[start..end];
    let (orderly, truncated) = match reader {
        Reader::Requests(reader) => (
            Reader::Requests(reader.clone()).eof(rest, Close::Orderly),
            Reader::Requests(reader).eof(rest, Close::Truncated),
        ),
        Reader::Responses(reader, context) => (
            Reader::Responses(reader.clone(), context).eof(rest, Close::Orderly),
            Reader::Responses(reader, context).eof(rest, Close::Truncated),
        ),
    };
    assert!(orderly.is_ok() || truncated.is_err());
    parsed.may_close = orderly.is_ok();
    parsed
}

/// Parses a request, writes it as the proxy does, and parses the result.
fn forward(bytes: &[u8]) {
    let limits = Limits::default();
    let mut head = RequestHead::new();
    let Ok(Some(_)) = head.parse(bytes, &limits) else {
        return;
    };
    let request = head.view(bytes);
    assert!(!is_method_in_another_case(request.method()));
    if let Framing::Length(length) = head.framing() {
        assert!(i64::try_from(length).is_ok());
    }
    let mut out = Vec::new();
    let mut writer = HeadWriter::request(
        &mut out,
        request.method().as_bytes(),
        request.path().as_bytes(),
        Version::Http11,
    )
    .expect("a parsed request line can be written");
    writer
        .field(b"host", request.authority().unwrap_or("none").as_bytes())
        .expect("a parsed authority can be written");
    writer.forward(&request.fields(), |_| true);
    let mut encoder = Encoder::request(head.framing());
    encoder.announce(&mut writer);
    writer.finish();
    if head.framing() == Framing::Chunked {
        let mut end = Vec::new();
        let trailers = request.fields().forwarded();
        encoder.end(trailers, &mut end).expect("a complete body");
        assert_eq!(end, b"0\r\n\r\n", "trailers are not forwarded");
    }
    let mut again = RequestHead::new();
    let length = again.parse(
        &out,
        &Limits {
            field_bytes: usize::MAX,
            fields: Limits::MAX_FIELDS,
            ..limits
        },
    );
    assert_eq!(length, Ok(Some(out.len())), "{}", out.escape_ascii());
    let second = again.view(&out);
    assert_eq!(head.framing(), again.framing());
    assert_eq!(
        (request.method(), request.path()),
        (second.method(), second.path())
    );
    assert!(request.fields().forwarded().eq(second.fields().forwarded()));
}

fuzz_target!(|input: (u8, bool, &[u8])| {
    let (chunk, head, bytes) = input;
    let limits = Limits::default();
    let context = ResponseContext {
        head,
        websocket: true,
    };
    let requests = |chunk| {
        let reader = Reader::Requests(RequestReader::new(limits));
        read(bytes, chunk, reader)
    };
    let responses = |chunk| {
        let reader = Reader::Responses(ResponseReader::new(limits), context);
        read(bytes, chunk, reader)
    };
    let chunk = usize::from(chunk).max(1);
    for (whole, chunked) in [
        (requests(usize::MAX / 2), requests(chunk)),
        (responses(usize::MAX / 2), responses(chunk)),
    ] {
        assert_eq!(
            (&whole.heads, &whole.data, whole.ends),
            (&chunked.heads, &chunked.data, chunked.ends)
        );
        assert!(whole.failed || !chunked.failed);
        assert!(whole.failed || whole.may_close == chunked.may_close);
    }
    forward(bytes);
});
