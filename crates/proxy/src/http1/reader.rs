//! The HTTP/1 connection state machine: messages one after the other, as events.
//!
//! Bytes after a message stay in the buffer for the next one. After an error every further call returns that error, so nothing more is read. A reader
//! consists of the head of the current message and a [`Body`], which holds the state of the connection and can be lent to whoever carries the body
//! while the head is in use.

use std::ops::Range;

use super::body::{BodyDecoder, Decoded};
use super::error::{Error, Fault};
use super::field::Fields;
use super::limits::Limits;
use super::request::RequestHead;
use super::response::{Asked, ResponseHead};

/// Interim responses that a backend may send before the final one.
pub(crate) const MOST_INTERIMS: usize = 32;

/// What the bytes at the front of a buffer are. The caller drops what an event is done with ([`Event::consumed`]) before the next call;
/// views of heads and trailers are taken before that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More bytes are needed after the rest.
    More {
        /// Bytes that are done with.
        consumed: usize,
    },
    /// A head of so many bytes. Its body, if any, follows, and then [`Event::End`]; after the head of a 101, [`Event::Switched`].
    Head(usize),
    /// The head of an interim response (1xx but 101); another head follows.
    Interim(usize),
    /// Bytes of the body.
    Data(Range<usize>),
    /// The message is over; trailers, if any, stand in what is done with.
    End {
        /// Bytes that are done with.
        consumed: usize,
    },
    /// The connection is no longer HTTP: every byte from here on belongs to the WebSocket.
    Switched,
}

impl Event {
    /// Number of bytes at the front of the buffer that are done with.
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

/// The manner in which the peer closed the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// With TCP's FIN, and with `close_notify` where TLS is spoken.
    Orderly,
    /// Without `close_notify`: anyone on the path may have cut it.
    Truncated,
}

/// What the end of a connection means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eof {
    /// It came between two messages.
    Between,
    /// A request was sent and nothing came back: it may be sent again if it is safe to.
    Unanswered,
    /// It ended the body of a response.
    EndsBody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A head is due.
    Head,
    Body,
    /// No message is due: no request waits for a response, or the connection ended.
    Idle,
    Switched,
    Failed(Error),
}

/// The side that sends the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Client,
    Backend,
}

impl Sender {
    fn error(self, fault: Fault) -> Error {
        match self {
            Sender::Client => Error::Client(fault),
            Sender::Backend => Error::Backend(fault),
        }
    }

    /// State after a message.
    fn after_message(self) -> State {
        match self {
            Sender::Client => State::Head,
            Sender::Backend => State::Idle,
        }
    }
}

/// The state of a connection, and the body of the current message.
#[derive(Debug, Clone)]
pub struct Body {
    decoder: BodyDecoder,
    state: State,
    sender: Sender,
}

impl Body {
    fn new(sender: Sender) -> Self {
        Body {
            decoder: BodyDecoder::default(),
            state: sender.after_message(),
            sender,
        }
    }

    /// Looks at the bytes at the front of the buffer. Between messages it asks for more: heads are the reader's.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        let event = match self.state {
            State::Body => match self.decoder.decode(bytes) {
                Ok(decoded) => Event::from(decoded),
                Err(fault) => return self.fail(self.sender.error(fault)),
            },
            State::Head | State::Idle => Event::More { consumed: 0 },
            State::Switched => Event::Switched,
            State::Failed(error) => return Err(error),
        };
        if matches!(event, Event::End { .. }) {
            self.state = self.sender.after_message();
        }
        Ok(event)
    }

    /// The connection ended, with these bytes unread.
    pub fn eof(&mut self, bytes: &[u8], close: Close) -> Result<Eof, Error> {
        match self.state {
            State::Head if !bytes.is_empty() => self.fail(self.sender.error(Fault::IncompleteHead)),
            State::Head if self.sender == Sender::Backend => Ok(Eof::Unanswered),
            State::Head | State::Idle => Ok(Eof::Between),
            State::Switched => {
                self.state = State::Idle;
                Ok(Eof::Between)
            }
            // RFC 9112 §8: a response that only this ends "is considered complete unless an error was indicated by the underlying connection (e.g.,
            // an "incomplete close" in TLS would leave the response incomplete".
            State::Body if self.decoder.ends_with_connection() && close == Close::Truncated => {
                self.fail(self.sender.error(Fault::IncompleteBody))
            }
            State::Body => match self.decoder.eof() {
                Ok(()) => {
                    self.state = State::Idle;
                    Ok(Eof::EndsBody)
                }
                Err(fault) => self.fail(self.sender.error(fault)),
            },
            State::Failed(error) => Err(error),
        }
    }

    fn fail<T>(&mut self, error: Error) -> Result<T, Error> {
        self.state = State::Failed(error);
        Err(error)
    }

    fn begin(&mut self, decoder: BodyDecoder) {
        self.decoder = decoder;
        self.state = State::Body;
    }

    /// Both sides agreed on a WebSocket: bytes from here on belong to it.
    pub fn switch(&mut self) {
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::Switched;
        }
    }

    /// The trailers, after [`Event::End`], with the bytes that `next` was given.
    pub fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        self.decoder.trailers(bytes)
    }

    /// Bytes of the body so far.
    pub fn received(&self) -> u64 {
        self.decoder.received()
    }

    /// Number of bytes of the body still to come, if its length is known.
    pub fn left(&self) -> Option<u64> {
        self.decoder.left().filter(|_| self.state == State::Body)
    }

    /// So many bytes of a body of known length were moved without passing through [`next`](Self::next).
    pub fn skip(&mut self, count: u64) {
        self.decoder.skip(count);
    }

    /// Whether events of the current message, or bytes of a WebSocket, are still due.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Body | State::Switched | State::Failed(_))
    }

    /// Whether the next message may follow: none has begun, or the current one has no bytes left, though [`Event::End`] may still be due.
    pub fn is_over(&self) -> bool {
        match self.state {
            State::Head | State::Idle => true,
            State::Body => self.decoder.is_done(),
            State::Switched | State::Failed(_) => false,
        }
    }
}

/// Reads the requests of a connection.
#[derive(Debug, Clone)]
pub struct RequestReader {
    limits: Limits,
    head: RequestHead,
    body: Body,
}

impl RequestReader {
    /// Creates the reader of a new connection.
    pub fn new(limits: Limits) -> Self {
        RequestReader {
            limits,
            head: RequestHead::new(),
            body: Body::new(Sender::Client),
        }
    }

    /// Looks at the bytes at the front of the buffer.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        if self.body.state != State::Head {
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

    /// The WebSocket that the request opened was accepted.
    pub fn switch(&mut self) {
        self.body.switch();
    }

    /// The connection ended, with these bytes unread.
    pub fn eof(&mut self, bytes: &[u8], close: Close) -> Result<Eof, Error> {
        self.body.eof(bytes, close)
    }

    /// The head, from [`Event::Head`] until the next one is read.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The head, with the body that follows it.
    pub fn message(&mut self) -> (&RequestHead, &mut Body) {
        (&self.head, &mut self.body)
    }

    /// The trailers, after [`Event::End`], with the bytes that `next` was given.
    pub fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        self.body.trailers(bytes)
    }

    /// Bytes of the body so far.
    pub fn received(&self) -> u64 {
        self.body.received()
    }

    /// Whether a body is being read: the head is out and its end has not come.
    pub fn is_within_message(&self) -> bool {
        self.body.state == State::Body
    }

    /// Largest head that the limits admit, with its request line and line ends.
    pub(crate) fn most_head_bytes(&self) -> usize {
        self.limits.field_bytes + self.limits.target_bytes + 1024
    }
}

/// Reads the responses of a connection. [`ResponseReader::expect`] comes before each: bytes that no request asked for are an error.
#[derive(Debug, Clone)]
pub struct ResponseReader {
    limits: Limits,
    head: ResponseHead,
    body: Body,
    asked: Asked,
    interims: usize,
}

impl ResponseReader {
    /// Creates the reader of a new connection.
    pub fn new(limits: Limits) -> Self {
        ResponseReader {
            limits,
            head: ResponseHead::new(),
            body: Body::new(Sender::Backend),
            asked: Asked::default(),
            interims: 0,
        }
    }

    /// A request was sent. Not to be called before the last response has ended: there is no pipelining towards backends.
    pub fn expect(&mut self, asked: Asked) {
        if self.body.state == State::Idle {
            self.asked = asked;
            self.interims = 0;
            self.body.state = State::Head;
        }
    }

    /// Looks at the bytes at the front of the buffer.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        match self.body.state {
            State::Idle if !bytes.is_empty() => self.body.fail(Error::Backend(Fault::Unsolicited)),
            State::Head => self.next_head(bytes),
            _ => self.body.next(bytes),
        }
    }

    fn next_head(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        match self.head.parse(bytes, self.asked, &self.limits) {
            Ok(None) => Ok(Event::More { consumed: 0 }),
            Ok(Some(length)) if self.head.is_interim() => {
                self.interims += 1;
                match self.interims > MOST_INTERIMS {
                    true => self.body.fail(Error::Backend(Fault::UnexpectedInterim)),
                    false => Ok(Event::Interim(length)),
                }
            }
            Ok(Some(length)) => {
                let framing = self.head.framing();
                self.body.begin(BodyDecoder::new(framing, &self.limits));
                if self.head.is_switch() {
                    self.body.switch();
                }
                Ok(Event::Head(length))
            }
            Err(error) => self.body.fail(error),
        }
    }

    /// The connection ended, with these bytes unread.
    pub fn eof(&mut self, bytes: &[u8], close: Close) -> Result<Eof, Error> {
        self.body.eof(bytes, close)
    }

    /// The head, from [`Event::Head`] or [`Event::Interim`] until the next one is read.
    pub fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// The body that follows the head.
    pub fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    /// The trailers, after [`Event::End`], with the bytes that `next` was given.
    pub fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        self.body.trailers(bytes)
    }

    /// Bytes of the body so far.
    pub fn received(&self) -> u64 {
        self.body.received()
    }

    /// Ends the response if nothing of it is left, also where its [`Event::End`] was not asked for. Returns whether the connection may carry another
    /// request: both sides want to go on, and none of these unread bytes follows.
    pub fn finish(&mut self, bytes: &[u8]) -> bool {
        if self.body.state == State::Body && self.body.is_over() {
            self.body.state = State::Idle;
        }
        self.body.state == State::Idle && self.head.keep_alive() && bytes.is_empty()
    }

    /// Largest head that the limits admit, with its status line and line ends.
    pub(crate) fn most_head_bytes(&self) -> usize {
        self.limits.field_bytes + 1024
    }
}
