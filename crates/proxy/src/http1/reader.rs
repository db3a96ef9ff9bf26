//! Messages one after the other on a connection, as events. What follows a message stays in the buffer for the next one; after an
//! error every further call returns that error, so nothing more is read.

use std::ops::Range;

use super::body::{BodyDecoder, Decoded};
use super::error::{Error, Fault};
use super::field::Fields;
use super::limits::Limits;
use super::request::RequestHead;
use super::response::{Asked, ResponseHead};

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
    /// How many bytes at the front of the buffer are done with.
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
    Head,
    Body,
    /// No message is due: no request waits for a response, or the connection ended.
    Idle,
    Switched,
    Failed(Error),
}

/// Reads the requests of a connection.
#[derive(Debug, Clone)]
pub struct RequestReader {
    limits: Limits,
    head: RequestHead,
    body: BodyDecoder,
    state: State,
}

impl RequestReader {
    /// For a new connection.
    pub fn new(limits: Limits) -> Self {
        RequestReader {
            limits,
            head: RequestHead::new(),
            body: BodyDecoder::default(),
            state: State::Head,
        }
    }

    /// Looks at the bytes at the front of the buffer.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        let event = match self.state {
            State::Head => match self.head.parse(bytes, &self.limits) {
                Ok(None) => Ok(Event::More { consumed: 0 }),
                Ok(Some(length)) => {
                    self.body = BodyDecoder::new(self.head.framing(), &self.limits);
                    self.state = State::Body;
                    Ok(Event::Head(length))
                }
                Err(error) => Err(error),
            },
            State::Body => self
                .body
                .decode(bytes)
                .map(Event::from)
                .map_err(Error::Client),
            State::Idle => Ok(Event::More { consumed: 0 }),
            State::Switched => Ok(Event::Switched),
            State::Failed(error) => Err(error),
        };
        match &event {
            Ok(Event::End { .. }) => self.state = State::Head,
            Err(error) => self.state = State::Failed(*error),
            Ok(_) => {}
        }
        event
    }

    /// The WebSocket that the request opened was accepted.
    pub fn switch(&mut self) {
        self.state = State::Switched;
    }

    /// The connection ended, with these bytes unread.
    pub fn eof(&mut self, bytes: &[u8]) -> Result<Eof, Error> {
        eof(&mut self.state, &mut self.body, bytes, Error::Client)
    }

    /// The head, from [`Event::Head`] until the next one is read.
    pub fn head(&self) -> &RequestHead {
        &self.head
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
        self.state == State::Body
    }
}

/// Reads the responses of a connection. [`ResponseReader::expect`] comes before each: bytes that no request asked for are an error.
#[derive(Debug, Clone)]
pub struct ResponseReader {
    limits: Limits,
    head: ResponseHead,
    body: BodyDecoder,
    asked: Asked,
    interims: usize,
    state: State,
}

/// Interim responses that a backend may send before the final one.
const MOST_INTERIMS: usize = 32;

impl ResponseReader {
    /// For a new connection.
    pub fn new(limits: Limits) -> Self {
        ResponseReader {
            limits,
            head: ResponseHead::new(),
            body: BodyDecoder::default(),
            asked: Asked::default(),
            interims: 0,
            state: State::Idle,
        }
    }

    /// A request was sent. Not to be called before the last response has ended: there is no pipelining towards backends.
    pub fn expect(&mut self, asked: Asked) {
        if self.state == State::Idle {
            self.asked = asked;
            self.interims = 0;
            self.state = State::Head;
        }
    }

    /// Looks at the bytes at the front of the buffer.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Event, Error> {
        let event = match self.state {
            State::Idle if bytes.is_empty() => Ok(Event::More { consumed: 0 }),
            State::Idle => Err(Error::Backend(Fault::Unsolicited)),
            State::Head => match self.head.parse(bytes, self.asked, &self.limits) {
                Ok(None) => Ok(Event::More { consumed: 0 }),
                Ok(Some(length)) if self.head.is_interim() => {
                    self.interims += 1;
                    match self.interims > MOST_INTERIMS {
                        true => Err(Error::Backend(Fault::UnexpectedInterim)),
                        false => Ok(Event::Interim(length)),
                    }
                }
                Ok(Some(length)) => {
                    self.body = BodyDecoder::new(self.head.framing(), &self.limits);
                    self.state = match self.head.is_switch() {
                        true => State::Switched,
                        false => State::Body,
                    };
                    Ok(Event::Head(length))
                }
                Err(error) => Err(error),
            },
            State::Body => self
                .body
                .decode(bytes)
                .map(Event::from)
                .map_err(Error::Backend),
            State::Switched => Ok(Event::Switched),
            State::Failed(error) => Err(error),
        };
        match &event {
            Ok(Event::End { .. }) => self.state = State::Idle,
            Err(error) => self.state = State::Failed(*error),
            Ok(_) => {}
        }
        event
    }

    /// The connection ended, with these bytes unread.
    pub fn eof(&mut self, bytes: &[u8]) -> Result<Eof, Error> {
        eof(&mut self.state, &mut self.body, bytes, Error::Backend)
    }

    /// The head, from [`Event::Head`] or [`Event::Interim`] until the next one is read.
    pub fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// The trailers, after [`Event::End`], with the bytes that `next` was given.
    pub fn trailers<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        self.body.trailers(bytes)
    }

    /// Bytes of the body so far.
    pub fn received(&self) -> u64 {
        self.body.received()
    }

    /// Whether the connection may carry another request, given what is left unread: the response has ended, both sides want to go on, and
    /// nothing follows it.
    pub fn is_reusable(&self, bytes: &[u8]) -> bool {
        self.state == State::Idle && self.head.keep_alive() && bytes.is_empty()
    }
}

fn eof(
    state: &mut State,
    body: &mut BodyDecoder,
    bytes: &[u8],
    blame: fn(Fault) -> Error,
) -> Result<Eof, Error> {
    let meaning = match *state {
        State::Head if !bytes.is_empty() => Err(blame(Fault::IncompleteHead)),
        State::Head if blame(Fault::IncompleteHead).is_clients() => Ok(Eof::Between),
        State::Head => Ok(Eof::Unanswered),
        State::Idle | State::Switched => Ok(Eof::Between),
        State::Body => body.eof().map(|()| Eof::EndsBody).map_err(blame),
        State::Failed(error) => Err(error),
    };
    match meaning {
        Err(error) => *state = State::Failed(error),
        Ok(Eof::EndsBody) => *state = State::Idle,
        Ok(Eof::Between | Eof::Unanswered) => {}
    }
    meaning
}
