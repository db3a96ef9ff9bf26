//! Parsing of response heads.

use std::mem::MaybeUninit;

use super::body::Framing;
use super::control_fields::ControlFields;
use super::error::{Error, MessageFault};
use super::field::{Field, Fields, Span};
use super::grammar::Version;
use super::limits::Limits;
use super::line_endings::{self, HeadSearch};

/// Properties of the request that determine the framing of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseContext {
    /// The request was HEAD.
    pub head: bool,
    /// The request opens a WebSocket, so the response may be 101.
    pub websocket: bool,
}

/// A response's head as offsets into the buffer that it was parsed from; [`ResponseHead::view`] combines the two.
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    search: Option<HeadSearch>,
    failed: Option<Error>,
    fields: Vec<Field>,
    version: Version,
    status: u16,
    reason: Span,
    control: ControlFields,
    framing: Framing,
    keep_alive: bool,
    end: usize,
}

impl ResponseHead {
    /// Creates an empty head.
    pub fn new() -> Self {
        ResponseHead::default()
    }

    /// Parses the head at the beginning of `bytes`. Returns its length, or `None` if it is incomplete. After an error, every further call returns it again.
    pub fn parse(
        &mut self,
        bytes: &[u8],
        context: ResponseContext,
        limits: &Limits,
    ) -> Result<Option<usize>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.try_parse(bytes, context, limits).map_err(|fault| {
            let error = Error::Backend(fault);
            self.failed = Some(error);
            error
        })
    }

    fn try_parse(
        &mut self,
        bytes: &[u8],
        context: ResponseContext,
        limits: &Limits,
    ) -> Result<Option<usize>, MessageFault> {
        match bytes.first() {
            None => return Ok(None),
            // `httparse` skips empty lines, which RFC 9112 §2.2 allows before requests only.
            Some(b'H') => {}
            Some(_) => return Err(MessageFault::BadStatusLine),
        }
        if let Some(search) = &mut self.search
            && search.advance(bytes)?.is_none()
        {
            return within_limits(bytes, limits).map(|()| None);
        }
        match self.parse_whole(bytes, context, limits)? {
            Some(length) => {
                self.search = None;
                Ok(Some(length))
            }
            None => {
                within_limits(bytes, limits)?;
                let mut search = HeadSearch::default();
                search.advance(bytes)?;
                self.search = Some(search);
                Ok(None)
            }
        }
    }

    fn parse_whole(
        &mut self,
        bytes: &[u8],
        context: ResponseContext,
        limits: &Limits,
    ) -> Result<Option<usize>, MessageFault> {
        let mut headers = [const { MaybeUninit::uninit() }; Limits::MAX_FIELDS];
        let headers = &mut headers[..limits.fields.min(Limits::MAX_FIELDS)];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let end = match config.parse_response_with_uninit_headers(&mut parsed, bytes, headers) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::Version) => return Err(MessageFault::BadVersion),
            Err(error) => {
                return Err(line_endings::fault(error).unwrap_or(MessageFault::BadStatusLine));
            }
        };
        if end > limits.field_bytes {
            return Err(MessageFault::HeadTooLarge);
        }
        let (Some(version), Some(status)) = (parsed.version, parsed.code) else {
            return Err(MessageFault::BadStatusLine);
        };
        // RFC 9110 §15: three digits from 100. Codes above 599 are forwarded: backends use them, and no framing depends on them.
        if status < 100 {
            return Err(MessageFault::BadStatusLine);
        }
        let line_end = match parsed.headers.first() {
            Some(first) => Span::of(first.name.as_bytes(), bytes).start as usize,
            None => end - 2,
        };
        if !bytes[..line_end].ends_with(b"\r\n") {
            return Err(MessageFault::BareNewline);
        }
        line_endings::take_fields(bytes, line_end, end, parsed.headers, &mut self.fields)?;
        // `HTTP/1.1 200 ` has 13 bytes. A missing last space is common and harmless.
        self.reason = Span::new(13.min(line_end - 2), line_end - 2);
        self.version = if version == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        self.status = status;
        self.end = end;
        self.apply_fields(bytes, context, limits)?;
        Ok(Some(end))
    }

    /// Derives framing and persistence from the fields (RFC 9112 §6.3).
    fn apply_fields(
        &mut self,
        bytes: &[u8],
        context: ResponseContext,
        limits: &Limits,
    ) -> Result<(), MessageFault> {
        let control = ControlFields::read(bytes, &mut self.fields)?;
        let announces = control.chunked || control.length.is_some_and(|length| length > 0);
        let bodiless = self.status < 200 || self.status == 204;
        if control.chunked && (self.version == Version::Http10 || bodiless) {
            // RFC 9112 §6.1: "A server MUST NOT send a Transfer-Encoding header field in any response with a status code of 1xx
            // (Informational) or 204 (No Content)."
            return Err(MessageFault::BadTransferEncoding);
        }
        if self.status < 200 && announces {
            return Err(MessageFault::UnexpectedInterim);
        }
        // RFC 9110 §15.2.2 and §7.8: a server may switch only to a protocol that the client has offered.
        if self.status == 101 && !(context.websocket && control.upgrade && control.websocket) {
            return Err(MessageFault::UnexpectedInterim);
        }
        let max_bytes = limits.body_bytes;
        self.framing = match control.length {
            _ if bodiless || context.head || self.status == 304 => Framing::None,
            _ if control.chunked => Framing::Chunked,
            Some(length) if max_bytes.is_some_and(|max_bytes| length > max_bytes) => {
                return Err(MessageFault::BodyTooLarge);
            }
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        };
        // A backend that announces a body for a 204 may also send it. It must not be parsed as the next response.
        self.keep_alive = control.keeps_alive(self.version)
            && self.framing != Framing::UntilClose
            && !(bodiless && announces)
            && self.status != 101;
        self.control = control;
        Ok(())
    }

    /// Combines the head with the bytes that it was parsed from: those for which [`ResponseHead::parse`] returned a length, or a prefix of that length. With
    /// other bytes the result is meaningless, and its methods may panic.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> ResponseView<'a> {
        ResponseView { head: self, bytes }
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns whether this is an interim response: 1xx except 101.
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Returns whether the response upgrades the connection to a WebSocket.
    pub fn is_websocket_upgrade(&self) -> bool {
        self.status == 101
    }

    /// Returns the framing of the body.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the value of Content-Length, also if the response has no body because the request was HEAD.
    pub fn content_length(&self) -> Option<u64> {
        self.control.length
    }

    /// Returns whether the connection can be reused after this response.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }
}

fn within_limits(bytes: &[u8], limits: &Limits) -> Result<(), MessageFault> {
    match bytes.len() > limits.field_bytes {
        true => Err(MessageFault::HeadTooLarge),
        false => Ok(()),
    }
}

/// A response's head with the bytes that it was parsed from.
#[derive(Debug, Clone, Copy)]
pub struct ResponseView<'a> {
    head: &'a ResponseHead,
    bytes: &'a [u8],
}

impl<'a> ResponseView<'a> {
    /// Returns the head as offsets.
    pub fn head(&self) -> &'a ResponseHead {
        self.head
    }

    /// Returns the status.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the reason phrase as sent; it may contain any bytes except control characters.
    pub fn reason(&self) -> &'a [u8] {
        self.head.reason.get(self.bytes)
    }

    /// Returns the fields.
    pub fn fields(&self) -> Fields<'a> {
        Fields {
            bytes: self.bytes,
            fields: &self.head.fields,
            end: self.head.end - 2,
        }
    }
}
