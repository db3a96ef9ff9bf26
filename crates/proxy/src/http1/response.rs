//! Heads of responses.

use std::mem::MaybeUninit;

use super::body::Framing;
use super::control::Control;
use super::error::{Error, Fault};
use super::field::{Field, Fields, Span};
use super::grammar::Version;
use super::limits::Limits;
use super::lines::{self, Search};

/// What a response answers, as far as its framing depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// The request was HEAD.
    pub head: bool,
    /// The request opened a WebSocket, so a 101 may follow.
    pub websocket: bool,
}

/// A response's head as offsets into the buffer that it was read from; [`ResponseHead::view`] puts the two together.
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    search: Option<Search>,
    failed: Option<Error>,
    fields: Vec<Field>,
    version: Version,
    status: u16,
    reason: Span,
    control: Control,
    framing: Framing,
    keep_alive: bool,
    end: usize,
}

impl ResponseHead {
    /// An empty one.
    pub fn new() -> Self {
        ResponseHead::default()
    }

    /// Reads the head at the beginning of `bytes`. Returns its length when it is all there; `None` asks for more bytes after these.
    /// After an error every further call returns that error.
    pub fn parse(
        &mut self,
        bytes: &[u8],
        asked: Asked,
        limits: &Limits,
    ) -> Result<Option<usize>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.try_parse(bytes, asked, limits).map_err(|fault| {
            let error = Error::Backend(fault);
            self.failed = Some(error);
            error
        })
    }

    fn try_parse(
        &mut self,
        bytes: &[u8],
        asked: Asked,
        limits: &Limits,
    ) -> Result<Option<usize>, Fault> {
        match bytes.first() {
            None => return Ok(None),
            // `httparse` skips empty lines; RFC 9112 §2.2 allows that before requests only.
            Some(b'H') => {}
            Some(_) => return Err(Fault::BadStatusLine),
        }
        if let Some(search) = &mut self.search
            && search.advance(bytes)?.is_none()
        {
            return within_limits(bytes, limits).map(|()| None);
        }
        match self.parse_whole(bytes, asked, limits)? {
            Some(length) => {
                self.search = None;
                Ok(Some(length))
            }
            None => {
                within_limits(bytes, limits)?;
                let mut search = Search::default();
                search.advance(bytes)?;
                self.search = Some(search);
                Ok(None)
            }
        }
    }

    fn parse_whole(
        &mut self,
        bytes: &[u8],
        asked: Asked,
        limits: &Limits,
    ) -> Result<Option<usize>, Fault> {
        let mut room = [const { MaybeUninit::uninit() }; Limits::MOST_FIELDS];
        let room = &mut room[..limits.fields.min(Limits::MOST_FIELDS)];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let end = match config.parse_response_with_uninit_headers(&mut parsed, bytes, room) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::Version) => return Err(Fault::BadVersion),
            Err(error) => return Err(lines::fault(error).unwrap_or(Fault::BadStatusLine)),
        };
        if end > limits.field_bytes {
            return Err(Fault::HeadTooLarge);
        }
        let (Some(version), Some(status)) = (parsed.version, parsed.code) else {
            return Err(Fault::BadStatusLine);
        };
        // RFC 9110 §15: three digits from 100. What is above 599 is passed on: backends use such codes, and no framing depends on them.
        if status < 100 {
            return Err(Fault::BadStatusLine);
        }
        let line_end = match parsed.headers.first() {
            Some(first) => Span::of(first.name.as_bytes(), bytes).start as usize,
            None => end - 2,
        };
        if !bytes[..line_end].ends_with(b"\r\n") {
            return Err(Fault::BareNewline);
        }
        lines::take_fields(bytes, line_end, end, parsed.headers, &mut self.fields)?;
        // `HTTP/1.1 200 ` is 13 bytes. A line without the last space is common and harmless.
        self.reason = Span::new(13.min(line_end - 2), line_end - 2);
        self.version = if version == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        self.status = status;
        self.end = end;
        self.settle(bytes, asked, limits)?;
        Ok(Some(end))
    }

    /// RFC 9112 §6.3, for responses.
    fn settle(&mut self, bytes: &[u8], asked: Asked, limits: &Limits) -> Result<(), Fault> {
        let control = Control::read(bytes, &mut self.fields)?;
        let announces = control.chunked || control.length.is_some_and(|length| length > 0);
        let bodiless = self.status < 200 || self.status == 204;
        if control.chunked && (self.version == Version::Http10 || bodiless) {
            // RFC 9112 §6.1: "A server MUST NOT send a Transfer-Encoding header field in any response with a status code of 1xx
            // (Informational) or 204 (No Content)."
            return Err(Fault::BadTransferEncoding);
        }
        if self.status < 200 && announces {
            return Err(Fault::UnexpectedInterim);
        }
        // RFC 9110 §15.2.2 and §7.8: only a protocol that was offered may be switched to.
        if self.status == 101 && !(asked.websocket && control.upgrade && control.websocket) {
            return Err(Fault::UnexpectedInterim);
        }
        let most = limits.body_bytes;
        self.framing = match control.length {
            _ if bodiless || asked.head || self.status == 304 => Framing::None,
            _ if control.chunked => Framing::Chunked,
            Some(length) if most.is_some_and(|most| length > most) => {
                return Err(Fault::BodyTooLarge);
            }
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        };
        // A 204 that announces a body may well send it: what follows it is not to be taken for a response.
        self.keep_alive = control.persists(self.version)
            && self.framing != Framing::UntilClose
            && !(bodiless && announces)
            && self.status != 101;
        self.control = control;
        Ok(())
    }

    /// The head together with the bytes that it was read from.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> Response<'a> {
        Response { head: self, bytes }
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether another response to the same request follows: 1xx but 101.
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Whether the connection is a WebSocket from here on.
    pub fn is_switch(&self) -> bool {
        self.status == 101
    }

    /// Where its body ends.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The Content-Length it carries, be there a body (as to GET) or not (as to HEAD).
    pub fn content_length(&self) -> Option<u64> {
        self.control.length
    }

    /// Whether the connection may carry another request once this response has ended.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }
}

fn within_limits(bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
    match bytes.len() > limits.field_bytes {
        true => Err(Fault::HeadTooLarge),
        false => Ok(()),
    }
}

/// A response's head with the bytes that it was read from.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    head: &'a ResponseHead,
    bytes: &'a [u8],
}

impl<'a> Response<'a> {
    /// The head as offsets.
    pub fn head(&self) -> &'a ResponseHead {
        self.head
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The reason phrase as sent: any bytes but control characters.
    pub fn reason(&self) -> &'a [u8] {
        self.head.reason.get(self.bytes)
    }

    /// The fields.
    pub fn fields(&self) -> Fields<'a> {
        Fields {
            bytes: self.bytes,
            fields: &self.head.fields,
            end: self.head.end - 2,
        }
    }
}
