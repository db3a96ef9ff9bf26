//! Reading whole connections, in one piece or many, into events that own what they hold.

use pointsman_proxy::http1::*;

/// Names and values.
pub type Pairs = Vec<(String, Vec<u8>)>;

/// What a reader said, without offsets. Data that came in several events is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
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

/// Either reader.
pub enum Reader {
    Requests(RequestReader),
    /// Each response answers a request of this kind.
    Responses(ResponseReader, Asked),
}

impl Reader {
    fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        match self {
            Reader::Requests(reader) => reader.next(bytes),
            Reader::Responses(reader, asked) => {
                reader.expect(*asked);
                reader.next(bytes)
            }
        }
    }

    fn head(&self, bytes: &[u8]) -> (String, Pairs) {
        match self {
            Reader::Requests(reader) => {
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
            Reader::Responses(reader, _) => {
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
            Reader::Requests(reader) => pairs(reader.trailers(bytes)),
            Reader::Responses(reader, _) => pairs(reader.trailers(bytes)),
        }
    }
}

/// Reads everything that comes in these pieces. Fails if the reader does not come forward.
pub fn read_pieces<'p>(
    mut reader: Reader,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Vec<Said> {
    let mut said: Vec<Said> = Vec::new();
    let mut buffer: Vec<u8> = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 100_000, "the reader goes round in circles");
            let event = match reader.next(&buffer) {
                Ok(event) => event,
                Err(error) => {
                    assert_eq!(
                        reader.next(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                        Err(error),
                        "read on after an error"
                    );
                    said.push(Said::Failed(error));
                    return said;
                }
            };
            let consumed = event.consumed();
            match &event {
                Event::More { .. } => {}
                Event::Head(length) => {
                    let (line, fields) = reader.head(&buffer[..*length]);
                    said.push(Said::Head { line, fields });
                }
                Event::Interim(length) => {
                    let (line, fields) = reader.head(&buffer[..*length]);
                    said.push(Said::Interim { line, fields });
                }
                Event::Data(range) => match said.last_mut() {
                    Some(Said::Data(data)) => data.extend_from_slice(&buffer[range.clone()]),
                    _ => said.push(Said::Data(buffer[range.clone()].to_vec())),
                },
                Event::End { .. } => said.push(Said::End(reader.trailers(&buffer))),
                Event::Switched => match said.last_mut() {
                    Some(Said::Switched(rest)) => rest.append(&mut buffer),
                    _ => said.push(Said::Switched(std::mem::take(&mut buffer))),
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
    said
}

pub fn requests() -> Reader {
    Reader::Requests(RequestReader::new(Limits::default()))
}

pub fn responses(asked: Asked) -> Reader {
    Reader::Responses(ResponseReader::new(Limits::default()), asked)
}

/// Reads requests in one piece.
pub fn read(bytes: impl AsRef<[u8]>) -> Vec<Said> {
    read_pieces(requests(), [bytes.as_ref()])
}

/// The fault of the last request in these bytes. It must be the same when they come one by one.
pub fn fault(bytes: impl AsRef<[u8]>) -> Option<Fault> {
    let bytes = bytes.as_ref();
    let whole = last_fault(&read(bytes));
    let single = last_fault(&read_pieces(requests(), bytes.chunks(1)));
    assert_eq!(
        whole.is_some(),
        single.is_some(),
        "{}",
        bytes.escape_ascii()
    );
    whole
        .inspect(|error| assert!(error.is_clients() && error.must_close()))
        .map(Error::fault)
}

/// The same of responses to GET.
pub fn response_fault(bytes: impl AsRef<[u8]>) -> Option<Fault> {
    let bytes = bytes.as_ref();
    let whole = last_fault(&read_pieces(responses(Asked::default()), [bytes]));
    let single = last_fault(&read_pieces(responses(Asked::default()), bytes.chunks(1)));
    assert_eq!(
        whole.is_some(),
        single.is_some(),
        "{}",
        bytes.escape_ascii()
    );
    whole
        .inspect(|error| assert_eq!((error.status(), error.is_clients()), (502, false)))
        .map(Error::fault)
}

fn last_fault(said: &[Said]) -> Option<Error> {
    match said.last() {
        Some(Said::Failed(error)) => Some(*error),
        _ => None,
    }
}

/// A head with these lines after `Host`, and what it is.
pub fn with_head<T>(line: &str, fields: &str, see: impl FnOnce(Request<'_>) -> T) -> T {
    let bytes = format!("{line}\r\nHost: a.example\r\n{fields}\r\n");
    let mut head = RequestHead::new();
    let length = head.parse(bytes.as_bytes(), &Limits::default());
    assert_eq!(length, Ok(Some(bytes.len())), "{bytes:?}");
    see(head.view(bytes.as_bytes()))
}
