//! Property tests with random messages in random chunks, and with random bytes.

use pointsman_proxy::http1::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::*;

/// A message to write and read back.
#[derive(Debug, Clone)]
struct Message {
    line: (String, String, u16),
    fields: Vec<(String, Vec<u8>)>,
    framing: Framing,
    chunks: Vec<Vec<u8>>,
    trailers: Vec<(String, Vec<u8>)>,
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    // Without surrounding whitespace, which is not part of a value.
    let byte =
        prop_oneof![4 => 0x21..=0x7eu8, 1 => 0x80..=0xffu8, 1 => Just(b' '), 1 => Just(b'\t')];
    vec(byte, 0..80).prop_map(|bytes| bytes.trim_ascii().to_vec())
}

fn fields(prefix: &'static str) -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let name = "[A-Za-z0-9!#$%&'*+.^_`|~-]{0,40}".prop_map(move |rest| format!("{prefix}{rest}"));
    vec((name, value()), 0..12)
}

fn message() -> impl Strategy<Value = Message> {
    let method = "[A-Z]{1,12}".prop_filter("CONNECT is rejected", |method| method != "CONNECT");
    let target = "/[a-zA-Z0-9/._~%-]{0,60}(\\?[a-z=&]{0,20})?";
    let chunks = vec(vec(any::<u8>(), 0..50), 0..6);
    (
        method,
        target,
        200..600u16,
        fields("X-"),
        0..3u8,
        chunks,
        fields("Y-"),
    )
        .prop_map(
            |(method, target, status, fields, framing, mut chunks, mut trailers)| {
                let length = chunks.iter().map(Vec::len).sum::<usize>() as u64;
                let framing = match framing {
                    0 => Framing::None,
                    1 => Framing::Length(length),
                    _ => Framing::Chunked,
                };
                if framing != Framing::Chunked {
                    trailers.clear();
                }
                if framing == Framing::None {
                    chunks.clear();
                }
                let status = if matches!(status, 204 | 304) {
                    200
                } else {
                    status
                };
                let line = (method, target, status);
                Message {
                    line,
                    fields,
                    framing,
                    chunks,
                    trailers,
                }
            },
        )
}

fn bytes(fields: &[(String, Vec<u8>)]) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), &value[..]))
}

impl Message {
    fn write(&self, as_request: bool, out: &mut Vec<u8>) {
        let (method, target, status) = &self.line;
        // Responses have a delimited body, so that another response may follow.
        let framing = match self.framing {
            Framing::None if !as_request => Framing::Length(0),
            framing => framing,
        };
        let mut encoder = match as_request {
            true => Encoder::request(framing),
            false => Encoder::response(framing, Version::Http11),
        };
        let mut head = if as_request {
            let mut head =
                HeadWriter::request(out, method.as_bytes(), target.as_bytes(), Version::Http11)
                    .unwrap();
            head.field(b"Host", b"a").unwrap();
            head
        } else {
            HeadWriter::response(out, *status, Some(b"Because")).unwrap()
        };
        head.fields(bytes(&self.fields)).unwrap();
        encoder.announce(&mut head);
        head.finish();
        for chunk in &self.chunks {
            encoder.data(chunk, out).unwrap();
        }
        encoder.end(bytes(&self.trailers), out).unwrap();
    }

    /// Events that a reader must return, without framing fields.
    fn expected_events(&self, as_request: bool) -> Vec<ReadEvent> {
        let (method, target, status) = &self.line;
        let mut fields = self.fields.clone();
        let line = match as_request {
            true => format!("{method} {target} Http11"),
            false => format!("{status} Because"),
        };
        if as_request {
            fields.insert(0, ("Host".into(), b"a".to_vec()));
        }
        let data = self.chunks.concat();
        let mut events = vec![ReadEvent::Head { line, fields }];
        if !data.is_empty() {
            events.push(ReadEvent::Data(data));
        }
        // Request trailers are not forwarded to backends.
        let trailers = match as_request {
            true => Vec::new(),
            false => self.trailers.clone(),
        };
        events.push(ReadEvent::End(trailers));
        events
    }
}

fn without_framing(mut events: Vec<ReadEvent>) -> Vec<ReadEvent> {
    for event in &mut events {
        if let ReadEvent::Head { fields, .. } = event {
            fields.retain(|(name, _)| !matches!(&name[..], "content-length" | "transfer-encoding"));
        }
    }
    events
}

fn chunks<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect()
}

fn reader(as_request: bool) -> AnyReader {
    match as_request {
        true => requests(),
        false => responses(ResponseContext::default()),
    }
}

/// Generates bytes that pass many stages of the parser.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        vec(any::<u8>(), 0..20),
        select(vec![
            "GET / HTTP/1.1\r\n",
            "gET / HTTP/1.1\r\n",
            "HTTP/1.1 200 OK\r\n",
            "Host: a\r\n",
            "\r\n",
            "\n",
            "\r",
            " ",
            ":",
            "\0",
            "Content-Length: 5\r\n",
            "Content-Length: 9223372036854775808\r\n",
            "Transfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n",
            "0\r\n",
            "hello",
            "Connection: close, x\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "ffffffffffffffff\r\n",
            "X: y\r\n",
            ";a=b",
            "http://a",
            "*",
        ])
        .prop_map(|part| part.as_bytes().to_vec()),
    ];
    vec(part, 0..30).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn written_messages_are_read_back_from_any_chunks(
        messages in vec(message(), 1..4),
        cuts in vec(any::<usize>(), 0..20),
        as_request: bool,
    ) {
        let mut written = Vec::new();
        let mut expected = Vec::new();
        for message in &messages {
            message.write(as_request, &mut written);
            expected.extend(message.expected_events(as_request));
        }
        let whole = read_chunks(reader(as_request), [&written[..]]);
        prop_assert_eq!(&without_framing(whole.clone()), &expected);
        prop_assert_eq!(&read_chunks(reader(as_request), chunks(&written, &cuts)), &whole);
        prop_assert_eq!(&read_chunks(reader(as_request), written.chunks(1)), &whole);
    }

}

proptest! {
    // Each case reads its message once per byte.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_split_at_any_byte_does_not_change_the_result(message in message(), as_request: bool) {
        let mut written = Vec::new();
        message.write(as_request, &mut written);
        let whole = read_chunks(reader(as_request), [&written[..]]);
        for at in 0..=written.len() {
            prop_assert_eq!(&read_chunks(reader(as_request), [&written[..at], &written[at..]]), &whole);
        }
    }

}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_chunks_do_not_change_the_accepted_events(
        bytes in hostile(),
        cuts in vec(any::<usize>(), 0..10),
        as_request: bool,
    ) {
        // The kind of error, and whether it precedes a complete head, may depend on the chunks; accepted events may not.
        let taken = |events: Vec<ReadEvent>| -> (bool, Vec<ReadEvent>) {
            let failed = matches!(events.last(), Some(ReadEvent::Failed(_)));
            (failed, events.into_iter().filter(|event| !matches!(event, ReadEvent::Failed(_))).collect())
        };
        let whole = taken(read_chunks(reader(as_request), [&bytes[..]]));
        let pieced = taken(read_chunks(reader(as_request), chunks(&bytes, &cuts)));
        prop_assert_eq!(&whole.1, &pieced.1);
        prop_assert!(whole.0 || !pieced.0);
    }

    #[test]
    fn an_accepted_request_is_unambiguous(bytes in hostile()) {
        let mut head = RequestHead::new();
        if let Ok(Some(length)) = head.parse(&bytes, &Limits::default()) {
            let text = &bytes[..length];
            let lines = text.windows(2).filter(|pair| pair == b"\r\n").count();
            prop_assert_eq!(lines, text.iter().filter(|byte| **byte == b'\n').count());
            prop_assert_eq!(lines, text.iter().filter(|byte| **byte == b'\r').count());
            prop_assert!(!text.contains(&0));
            prop_assert_ne!(head.view(&bytes).method(), "gET");
            if let Framing::Length(length) = head.framing() {
                prop_assert!(i64::try_from(length).is_ok());
            }
        }
    }
}
