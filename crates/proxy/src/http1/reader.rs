//! The HTTP/1 connection state machine: turns the bytes of a connection into events of consecutive messages.
//!
//! Bytes after a message stay in the buffer for the next one. After an error, every further call returns it again. A reader consists of the head of the current
//! message and a [`BodyReader`], which has the state of the connection and can be borrowed separately while the head is in use.

use std::ops::Range;

use super::body::{BodyDecoder, Decoded};
use super::error::{Error, MessageFault};
use super::field::Fields;
use super::limits::Limits;
use super::request::RequestHead;
use super::response::{ResponseContext, ResponseHead};

/// Maximum number of interim responses before the final one.
pub(crate) const MAX_INTERIM_RESPONSES: usize = 32;

/// Meaning of the bytes at the front of the buffer. Before the next call, the caller takes views of heads and trailers and then drops the consumed bytes
/// ([`Event::consumed`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed.
    More {
        /// Number of consumed bytes.
        consumed: usize,
    },
    /// A head of this length. Its body, if any, follows, and then [`Event::End`]; after the head of a 101, [`Event::Switched`].
    Head(usize),
    /// The head of an interim response (1xx except 101); another head follows.
    Interim(usize),
    /// Bytes of the body.
    Data(Range<usize>),
    /// The message is complete. Trailers, if any, are among the consumed bytes.
    End {
        /// Number of consumed bytes.
        consumed: usize,
    },
    /// The connection was upgraded: all further bytes belong to the WebSocket.
    Switched,
}

impl Event {
    /// Returns the number of consumed bytes at the front of the buffer.
    pub fn consumed(&self) -> usize {
        match self {
            Event::More { consumed } | Event::End { consumed } => *consumed,
            Event::Head(length) | Event::Interim(length) => *length,
            Event::Data(range) => range.end,
            Event::Switched => 0,
        }
    }
}

impl From<Decoded> for Event {
    fn from(decoded: Decoded) -> Self {
        match decoded {
            Decoded::More { consumed } => Event::More { consumed },
            Decoded::Data(range) => Event::Data(range),
            Decoded::End { consumed } => Event::End { consumed },
        }
    }
}

/// Orderly or truncated end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// With a TCP FIN, preceded by `close_notify` if the connection uses TLS.
    Orderly,
    /// Without `close_notify`: an attacker may have truncated the stream.
    Truncated,
}

/// Meaning of the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eof {
    /// Between two messages.
    Between,
    /// Before the first byte of a response: the request may be retried if that is safe.
    Unanswered,
    /// At the end of a response body that it delimits.
    EndsBody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    /// A head is expected.
    Head,
    Body,
    /// No message is expected: no request is outstanding, or the connection has ended.
    Idle,
    Switched,
    Failed(Error),
}

/// Sender of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Client,
    Backend,
}

impl Sender {
    fn error(self, fault: MessageFault) -> Error {
        match self {
            Sender::Client => Error::Client(fault),
            Sender::Backend => Error::Backend(fault),
        }
    }

    /// Returns the state after a message.
    fn after_message(self) -> ReaderState {
        match self {
            Sender::Client => ReaderState::Head,
            Sender::Backend => ReaderState::Idle,
        }
    }
}

/// Reads the body of the current message, and has the state of the connection.
#[derive(Debug, Clone)]
pub struct BodyReader {
    decoder: BodyDecoder,
    state: ReaderState,
    sender: Sender,
}

impl BodyReader {
    fn new(sender: Sender) -> Self {
        BodyReader {
            decoder: BodyDecoder::default(),
            state: sender.after_message(),
            sender,
        }
    }

    /// Parses the bytes at the front of the buffer. Between messages returns [`Event::More`], because heads are parsed by the reader.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        let event = match self.state {
            ReaderState::Body => match self.decoder.decode(bytes) {
                Ok(decoded) => Event::from(decoded),
                Err(fault) => return self.fail(self.sender.error(fault)),
            },
            ReaderState::Head | ReaderState::Idle => Event::More { consumed: 0 },
            ReaderState::Switched => Event::Switched,
            ReaderState::Failed(error) => return Err(error),
        };
        if matches!(event, Event::End { .. }) {
            self.state = self.sender.after_message();
        }
        Ok(event)
    }

    /// Handles the end of the connection with these bytes unread.
    pub fn eof(&mut self, bytes: &[u8], close: Close) -> Result<Eof, Error> {
        match self.state {
            ReaderState::Head if !bytes.is_empty() => {
                self.fail(self.sender.error(MessageFault::IncompleteHead))
            }
            ReaderState::Head if self.sender == Sender::Backend => Ok(Eof::Unanswered),
            ReaderState::Head | ReaderState::Idle => Ok(Eof::Between),
            ReaderState::Switched => {
                self.state = ReaderState::Idle;
                Ok(Eof::Between)
            }
            // RFC 9112 §8: a response delimited by the end of the connection "is considered complete unless an error was indicated by the underlying
            // connection (e.g., an "incomplete close" in TLS would leave the response incomplete".
            ReaderState::Body
                if self.decoder.ends_with_connection() && close == Close::Truncated =>
            {
                self.fail(self.sender.error(MessageFault::IncompleteBody))
            }
            ReaderState::Body => match self.decoder.eof() {
                Ok(()) => {
                    self.state = ReaderState::Idle;
                    Ok(Eof::EndsBody)
                }
                Err(fault) => self.fail(self.sender.error(fault)),
            },
            ReaderState::Failed(error) => Err(error),
        }
    }

    fn fail<T>(&mut self, error: Error) -> Result<T, Error> {
        self.state = ReaderState::Failed(error);
        Err(error)
    }

    fn begin(&mut self, decoder: BodyDecoder) {
        self.decoder = decoder;
        self.state = ReaderState::Body;
    }

    /// Switches to a WebSocket: all further bytes belong to it.
    pub fn switch(&mut self) {
        if !matches!(self.state, ReaderState::Failed(_)) {
            self.state = ReaderState::Switched;
        }
    }

    /// Returns the trailers, after [`Event::End`], with the bytes passed to `next`.
    pub fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        self.decoder.trailers(bytes)
    }

    /// Returns the number of body bytes so far.
    pub fn received(&self) -> u64 {
        self.decoder.received()
    }

    /// Returns the number of remaining bytes of a body of known length.
    pub fn left(&self) -> Option<u64> {
        self.decoder
            .left()
            .filter(|_| self.state == ReaderState::Body)
    }

    /// Accounts for bytes of a body of known length that were transferred without [`next`](Self::next).
    pub fn record_spliced(&mut self, count: u64) {
        self.decoder.record_spliced(count);
    }

    /// Returns whether events of the current message, or bytes of a WebSocket, are still expected.
    pub fn is_open(&self) -> bool {
        matches!(
            self.state,
            ReaderState::Body | ReaderState::Switched | ReaderState::Failed(_)
        )
    }

    /// Returns whether the next message may follow: none has started, or the current one has no bytes left (even if [`Event::End`] was not returned yet).
    pub fn is_complete(&self) -> bool {
        match self.state {
            ReaderState::Head | ReaderState::Idle => true,
            ReaderState::Body => self.decoder.is_complete(),
            ReaderState::Switched | ReaderState::Failed(_) => false,
        }
    }
}

/// Reads the requests of a connection.
#[derive(Debug, Clone)]
pub struct RequestReader {
    limits: Limits,
    head: RequestHead,
    body: BodyReader,
}

impl RequestReader {
    /// Creates the reader of a new connection.
    pub fn new(limits: Limits) -> Self {
        RequestReader {
            limits,
            head: RequestHead::new(),
            body: BodyReader::new(Sender::Client),
        }
    }

    /// Parses the bytes at the front of the buffer.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        if self.body.state != ReaderState::Head {
            return self.body.next(bytes);
        }
        match self.head.parse(bytes, &self.limits) {
            Ok(None) => Ok(Event::More { consumed: 0 }),
            Ok(Some(length)) => {
                let framing = self.head.framing();
                self.body.begin(BodyDecoder::new(framing, &self.limits));
                Ok(Event::Head(length))
            }
            Err(error) => self.body.fail(error),
        }
    }

    /// Switches to the WebSocket that the request opened.
    pub fn switch(&mut self) {
        self.body.switch();
    }

    /// Handles the end of the connection with these bytes unread.
    pub fn eof(&mut self, bytes: &[u8], close: Close) -> Result<Eof, Error> {
        self.body.eof(bytes, close)
    }

    /// Returns the head received last.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// Returns the head and the reader of its body.
    pub fn message(&mut self) -> (&RequestHead, &mut BodyReader) {
        (&self.head, &mut self.body)
    }

    /// Returns the trailers, after [`Event::End`], with the bytes passed to `next`.
    pub fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        self.body.trailers(bytes)
    }

    /// Returns the number of body bytes so far.
    pub fn received(&self) -> u64 {
        self.body.received()
    }

    /// Returns the maximum size of a head with its request line and line endings.
    pub(crate) fn max_head_bytes(&self) -> usize {
        self.limits.field_bytes + self.limits.target_bytes + 1024
    }
}

/// Reads the responses of a connection. [`ResponseReader::expect`] has to be called before each: bytes without a request are an error.
#[derive(Debug, Clone)]
pub struct ResponseReader {
    limits: Limits,
    head: ResponseHead,
    body: BodyReader,
    context: ResponseContext,
    interims: usize,
}

impl ResponseReader {
    /// Creates the reader of a new connection.
    pub fn new(limits: Limits) -> Self {
        ResponseReader {
            limits,
            head: ResponseHead::new(),
            body: BodyReader::new(Sender::Backend),
            context: ResponseContext::default(),
            interims: 0,
        }
    }

    /// Expects the response to a request. Must not be called before the previous response has ended, because requests to backends are not pipelined.
    pub fn expect(&mut self, context: ResponseContext) {
        if self.body.state == ReaderState::Idle {
            self.context = context;
            self.interims = 0;
            self.body.state = ReaderState::Head;
        }
    }

    /// Parses the bytes at the front of the buffer.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        match self.body.state {
            ReaderState::Idle if !bytes.is_empty() => {
                self.body.fail(Error::Backend(MessageFault::Unsolicited))
            }
            ReaderState::Head => self.next_head(bytes),
            _ => self.body.next(bytes),
        }
    }

    fn next_head(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        match self.head.parse(bytes, self.context, &self.limits) {
            Ok(None) => Ok(Event::More { consumed: 0 }),
            Ok(Some(length)) if self.head.is_interim() => {
                self.interims += 1;
                match self.interims > MAX_INTERIM_RESPONSES {
                    true => self
                        .body
                        .fail(Error::Backend(MessageFault::UnexpectedInterim)),
                    false => Ok(Event::Interim(length)),
                }
            }
            Ok(Some(length)) => {
                let framing = self.head.framing();
                self.body.begin(BodyDecoder::new(framing, &self.limits));
                if self.head.is_websocket_upgrade() {
                    self.body.switch();
                }
                Ok(Event::Head(length))
            }
            Err(error) => self.body.fail(error),
        }
    }

    /// Handles the end of the connection with these bytes unread.
    pub fn eof(&mut self, bytes: &[u8], close: Close) -> Result<Eof, Error> {
        self.body.eof(bytes, close)
    }

    /// Returns the head received last, final or interim.
    pub fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// Returns the reader of the body.
    pub fn body(&mut self) -> &mut BodyReader {
        &mut self.body
    }

    /// Returns the trailers, after [`Event::End`], with the bytes passed to `next`.
    pub fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        self.body.trailers(bytes)
    }

    /// Returns the number of body bytes so far.
    pub fn received(&self) -> u64 {
        self.body.received()
    }

    /// Ends the response if it has no bytes left, even if [`Event::End`] was not returned yet. Returns whether the connection can be reused: the response
    /// allows it, and there are no unread bytes.
    pub fn finish(&mut self, bytes: &[u8]) -> bool {
        if self.body.state == ReaderState::Body && self.body.is_complete() {
            self.body.state = ReaderState::Idle;
        }
        self.body.state == ReaderState::Idle && self.head.keep_alive() && bytes.is_empty()
    }

    /// Returns the maximum size of a head with its status line and line endings.
    pub(crate) fn max_head_bytes(&self) -> usize {
        self.limits.field_bytes + 1024
    }
}
