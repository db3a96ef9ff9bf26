//! Shared test support: reads whole connections, in one or many chunks, into events that own their data.

use pointsman_proxy::http1::*;

pub type Pairs = Vec<(String, Vec<u8>)>;

/// An event of a reader, without offsets. Consecutive data events are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadEvent {
    Head { line: String, fields: Pairs },
    Interim { line: String, fields: Pairs },
    Data(Vec<u8>),
    End(Pairs),
    Switched(Vec<u8>),
    Failed(Error),
}

pub fn pairs(fields: Fields<'_>) -> Pairs {
    fields
        .iter()
        .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.to_vec()))
        .collect()
}

/// A reader of requests or responses.
pub enum AnyReader {
    Requests(RequestReader),
    /// All responses are read as if for this request.
    Responses(ResponseReader, ResponseContext),
}

impl AnyReader {
    fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        match self {
            AnyReader::Requests(reader) => reader.next(bytes),
            AnyReader::Responses(reader, request) => {
                reader.expect(*request);
                reader.next(bytes)
            }
        }
    }

    fn head(&self, bytes: &[u8]) -> (String, Pairs) {
        match self {
            AnyReader::Requests(reader) => {
                let view = reader.head().view(bytes);
                (
                    format!(
                        "{} {} {:?}",
                        view.method(),
                        view.target(),
                        view.head().version()
                    ),
                    pairs(view.fields()),
                )
            }
            AnyReader::Responses(reader, _) => {
                let view = reader.head().view(bytes);
                (
                    format!(
                        "{} {}",
                        view.status(),
                        String::from_utf8_lossy(view.reason())
                    ),
                    pairs(view.fields()),
                )
            }
        }
    }

    fn trailers(&self, bytes: &[u8]) -> Pairs {
        match self {
            AnyReader::Requests(reader) => pairs(reader.trailers(bytes)),
            AnyReader::Responses(reader, _) => pairs(reader.trailers(bytes)),
        }
    }
}

/// Reads all chunks. Panics if the reader makes no progress.
pub fn read_chunks<'p>(
    mut reader: AnyReader,
    chunks: impl IntoIterator<Item = &'p [u8]>,
) -> Vec<ReadEvent> {
    let mut events: Vec<ReadEvent> = Vec::new();
    let mut buffer: Vec<u8> = Vec::new();
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 100_000, "the reader makes no progress");
            let event = match reader.next(&buffer) {
                Ok(event) => event,
                Err(error) => {
                    assert_eq!(
                        reader.next(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                        Err(error),
                        "the reader continued after an error"
                    );
                    events.push(ReadEvent::Failed(error));
                    return events;
                }
            };
            let consumed = event.consumed();
            match &event {
                Event::More { .. } => {}
                Event::Head(length) => {
                    let (line, fields) = reader.head(&buffer[..*length]);
                    events.push(ReadEvent::Head { line, fields });
                }
                Event::Interim(length) => {
                    let (line, fields) = reader.head(&buffer[..*length]);
                    events.push(ReadEvent::Interim { line, fields });
                }
                Event::Data(range) => match events.last_mut() {
                    Some(ReadEvent::Data(data)) => data.extend_from_slice(&buffer[range.clone()]),
                    _ => events.push(ReadEvent::Data(buffer[range.clone()].to_vec())),
                },
                Event::End { .. } => events.push(ReadEvent::End(reader.trailers(&buffer))),
                Event::Switched => match events.last_mut() {
                    Some(ReadEvent::Switched(rest)) => rest.append(&mut buffer),
                    _ => events.push(ReadEvent::Switched(std::mem::take(&mut buffer))),
                },
            }
            if event == Event::Switched {
                break;
            }
            buffer.drain(..consumed);
            if matches!(event, Event::More { .. }) {
                break;
            }
        }
    }
    events
}

pub fn requests() -> AnyReader {
    AnyReader::Requests(RequestReader::new(Limits::default()))
}

pub fn responses(request: ResponseContext) -> AnyReader {
    AnyReader::Responses(ResponseReader::new(Limits::default()), request)
}

/// Reads requests in one chunk.
pub fn read(bytes: impl AsRef<[u8]>) -> Vec<ReadEvent> {
    read_chunks(requests(), [bytes.as_ref()])
}

/// Returns the fault of the last request, which must be the same if the bytes arrive one by one.
pub fn fault(bytes: impl AsRef<[u8]>) -> Option<MessageFault> {
    let bytes = bytes.as_ref();
    let whole = last_fault(&read(bytes));
    let single = last_fault(&read_chunks(requests(), bytes.chunks(1)));
    assert_eq!(
        whole.is_some(),
        single.is_some(),
        "{}",
        bytes.escape_ascii()
    );
    whole
        .inspect(|error| assert!(error.is_client_fault()))
        .map(Error::fault)
}

/// Returns the fault of the last response to a GET, which must be the same if the bytes arrive one by one.
pub fn response_fault(bytes: impl AsRef<[u8]>) -> Option<MessageFault> {
    let bytes = bytes.as_ref();
    let whole = last_fault(&read_chunks(responses(ResponseContext::default()), [bytes]));
    let single = last_fault(&read_chunks(
        responses(ResponseContext::default()),
        bytes.chunks(1),
    ));
    assert_eq!(
        whole.is_some(),
        single.is_some(),
        "{}",
        bytes.escape_ascii()
    );
    whole
        .inspect(|error| assert_eq!((error.status(), error.is_client_fault()), (502, false)))
        .map(Error::fault)
}

fn last_fault(events: &[ReadEvent]) -> Option<Error> {
    match events.last() {
        Some(ReadEvent::Failed(error)) => Some(*error),
        _ => None,
    }
}

/// Parses a request with this request line and these fields after `Host`.
pub fn with_head<T>(line: &str, fields: &str, inspect: impl FnOnce(RequestView<'_>) -> T) -> T {
    let bytes = format!("{line}\r\nHost: a.example\r\n{fields}\r\n");
    let mut head = RequestHead::new();
    let length = head.parse(bytes.as_bytes(), &Limits::default());
    assert_eq!(length, Ok(Some(bytes.len())), "{bytes:?}");
    inspect(head.view(bytes.as_bytes()))
}
