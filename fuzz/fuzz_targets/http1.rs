//! Hostile bytes on both sides of the HTTP/1 connection state machine, driven as traffic drives it (bodies through the lent [`Body`]): nothing panics, every
//! event takes it further, what is taken does not depend on the pieces that it came in, an error is final, and what is forwarded can be read again and
//! says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pointsman_proxy::http1::*;
use pointsman_routing::is_method_in_another_case;

/// What was taken, and whether the rest was refused.
#[derive(Debug, Default, PartialEq)]
struct Taken {
    heads: Vec<Vec<u8>>,
    data: Vec<u8>,
    ends: usize,
    failed: bool,
    /// The connection may end after these bytes.
    ended: bool,
}

/// Either reader.
enum Reader {
    Requests(RequestReader),
    Responses(ResponseReader, Asked),
}

impl Reader {
    fn body(&mut self) -> &mut Body {
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
            Reader::Responses(reader, asked) => {
                reader.expect(*asked);
                reader.next(bytes)
            }
        }
    }

    /// The connection ends with these bytes unread.
    fn eof(mut self, bytes: &[u8], close: Close) -> Result<Eof, Error> {
        let over = self.body().is_over();
        if let Reader::Responses(reader, _) = &mut self {
            assert!(!reader.finish(bytes) || over && bytes.is_empty());
        }
        let ended = self.body().eof(bytes, close);
        if let Err(error) = ended {
            assert_eq!(self.body().next(b""), Err(error));
        }
        ended
    }
}

fn read(bytes: &[u8], piece: usize, mut reader: Reader) -> Taken {
    let mut taken = Taken::default();
    let mut start = 0;
    let mut end = 0;
    while end < bytes.len() {
        end = bytes.len().min(end + piece);
        let mut idle = 0;
        loop {
            let event = match reader.next(&bytes[start..end]) {
                Ok(event) => event,
                Err(error) => {
                    assert_eq!(reader.next(b""), Err(error));
                    taken.failed = true;
                    return taken;
                }
            };
            // Only an end may take nothing, and never twice.
            idle = if event.consumed() == 0 { idle + 1 } else { 0 };
            assert!(idle < 3, "{event:?}");
            match &event {
                Event::Head(length) | Event::Interim(length) => {
                    taken.heads.push(bytes[start..start + length].to_vec())
                }
                Event::Data(range) => taken
                    .data
                    .extend_from_slice(&bytes[start + range.start..start + range.end]),
                Event::End { .. } => taken.ends += 1,
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
        Reader::Responses(reader, asked) => (
            Reader::Responses(reader.clone(), asked).eof(rest, Close::Orderly),
            Reader::Responses(reader, asked).eof(rest, Close::Truncated),
        ),
    };
    assert!(orderly.is_ok() || truncated.is_err());
    taken.ended = orderly.is_ok();
    taken
}

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
    .expect("what was taken can be written");
    writer
        .field(b"host", request.authority().unwrap_or("none").as_bytes())
        .expect("so can its authority");
    writer.forward(&request.fields(), |_| true);
    let mut encoder = Encoder::request(head.framing());
    encoder.announce(&mut writer);
    writer.finish();
    if head.framing() == Framing::Chunked {
        let mut end = Vec::new();
        let trailers = request.fields().forwarded();
        encoder.end(trailers, &mut end).expect("the body is whole");
        assert_eq!(end, b"0\r\n\r\n", "a backend gets no trailers");
    }
    let mut again = RequestHead::new();
    let length = again.parse(
        &out,
        &Limits {
            field_bytes: usize::MAX,
            fields: Limits::MOST_FIELDS,
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
    let (piece, head, bytes) = input;
    let limits = Limits::default();
    let asked = Asked {
        head,
        websocket: true,
    };
    let requests = |piece| {
        let reader = Reader::Requests(RequestReader::new(limits));
        read(bytes, piece, reader)
    };
    let responses = |piece| {
        let reader = Reader::Responses(ResponseReader::new(limits), asked);
        read(bytes, piece, reader)
    };
    let piece = usize::from(piece).max(1);
    for (whole, pieced) in [
        (requests(usize::MAX / 2), requests(piece)),
        (responses(usize::MAX / 2), responses(piece)),
    ] {
        assert_eq!(
            (&whole.heads, &whole.data, whole.ends),
            (&pieced.heads, &pieced.data, pieced.ends)
        );
        assert!(whole.failed || !pieced.failed);
        assert!(whole.failed || whole.ended == pieced.ended);
    }
    forward(bytes);
});
