//! Hostile bytes on both sides of the HTTP/1 codec: nothing panics, every event takes it further, what is taken does not depend on the pieces
//! that it came in, and what is forwarded can be read again and says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pointsman_proxy::http1::*;

/// What was taken, and whether the rest was refused.
#[derive(Debug, Default, PartialEq)]
struct Taken {
    heads: Vec<Vec<u8>>,
    data: Vec<u8>,
    ends: usize,
    failed: bool,
}

fn read(bytes: &[u8], piece: usize, mut next: impl FnMut(&[u8]) -> Result<Event, Error>) -> Taken {
    let mut taken = Taken::default();
    let mut start = 0;
    let mut end = 0;
    while end < bytes.len() {
        end = bytes.len().min(end + piece);
        let mut idle = 0;
        loop {
            let event = match next(&bytes[start..end]) {
                Ok(event) => event,
                Err(error) => {
                    assert_eq!(next(b""), Err(error));
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
    taken
}

fn forward(bytes: &[u8]) {
    let limits = Limits::default();
    let mut head = RequestHead::new();
    let Ok(Some(_)) = head.parse(bytes, &limits) else {
        return;
    };
    let request = head.view(bytes);
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
    Encoder::request(head.framing()).announce(&mut writer);
    writer.finish();
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
    let requests = |piece| {
        let mut reader = RequestReader::new(limits);
        read(bytes, piece, |bytes| reader.next(bytes))
    };
    let responses = |piece| {
        let mut reader = ResponseReader::new(limits);
        read(bytes, piece, |bytes| {
            reader.expect(Asked {
                head,
                websocket: true,
            });
            reader.next(bytes)
        })
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
    }
    forward(bytes);
});
