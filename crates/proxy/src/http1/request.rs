//! Parsing of request heads.

use std::mem::MaybeUninit;

use pointsman_routing::is_method_in_another_case;

use super::body::Framing;
use super::control_fields::{ControlFields, Expect};
use super::error::{Error, MessageFault};
use super::field::{Field, Fields, Span};
use super::grammar::{TOKEN, Version, ascii};
use super::limits::Limits;
use super::line_endings::{self, HeadSearch};
use super::target::{RequestTarget, TargetForm, is_authority, split_port};

/// RFC 9112 §3: "A server that receives a method longer than any that it implements SHOULD respond with a 501".
const MAX_METHOD_BYTES: usize = 64;

/// ` HTTP/1.1` and CRLF.
const VERSION_BYTES: usize = 11;

/// A request's head as offsets into the buffer that it was parsed from; [`RequestHead::view`] combines the two. One value is reused for all requests of a
/// connection.
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    /// Search for the end of an incomplete head.
    search: Option<HeadSearch>,
    failed: Option<Error>,
    fields: Vec<Field>,
    method: Span,
    version: Version,
    target: RequestTarget,
    control: ControlFields,
    framing: Framing,
    authority: Option<Span>,
    end: usize,
}

impl RequestHead {
    /// Creates an empty head.
    pub fn new() -> Self {
        RequestHead::default()
    }

    /// Parses the head at the beginning of `bytes`. Returns its length, or `None` if it is incomplete. After an error, every further call returns it again.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.try_parse(bytes, limits).map_err(|fault| {
            let error = Error::Client(fault);
            self.failed = Some(error);
            error
        })
    }

    fn try_parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, MessageFault> {
        // RFC 9112 §2.2: "a server that is expecting to receive and parse a request-line SHOULD ignore at least one empty line (CRLF) received prior to the
        // request-line." Exactly one is ignored.
        let start = match bytes {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => 2,
            _ => 0,
        };
        match bytes.get(start) {
            None => return Ok(None),
            Some(first) if !TOKEN[usize::from(*first)] => {
                return Err(match first {
                    b'\r' | b'\n' => MessageFault::BareNewline,
                    _ => MessageFault::BadRequestLine,
                });
            }
            Some(_) => {}
        }
        if let Some(search) = &mut self.search
            && search.advance(&bytes[start..])?.is_none()
        {
            return within_limits(search, &bytes[start..], limits).map(|()| None);
        }
        match self.parse_whole(bytes, start, limits)? {
            Some(length) => {
                self.search = None;
                Ok(Some(length))
            }
            None => {
                let mut search = HeadSearch::default();
                search.advance(&bytes[start..])?;
                within_limits(&search, &bytes[start..], limits)?;
                self.search = Some(search);
                Ok(None)
            }
        }
    }

    fn parse_whole(
        &mut self,
        bytes: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Result<Option<usize>, MessageFault> {
        let mut headers = [const { MaybeUninit::uninit() }; Limits::MAX_FIELDS];
        let headers = &mut headers[..limits.fields.min(Limits::MAX_FIELDS)];
        let mut parsed = httparse::Request::new(&mut []);
        let message = &bytes[start..];
        let length = match parsed.parse_with_uninit_headers(message, headers) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            // No CRLF after the version or at the end.
            Err(httparse::Error::NewLine) => {
                return Err(line_fault(message, MessageFault::BareNewline, limits));
            }
            Err(error) => {
                return Err(line_endings::fault(error)
                    .unwrap_or_else(|| line_fault(message, MessageFault::BadRequestLine, limits)));
            }
        };
        let (Some(method), Some(target), Some(version)) =
            (parsed.method, parsed.path, parsed.version)
        else {
            return Err(MessageFault::BadRequestLine);
        };
        let end = start + length;
        self.method = Span::of(method.as_bytes(), bytes);
        let target = Span::of(target.as_bytes(), bytes);
        let line_end = target.end as usize + VERSION_BYTES;
        if method.len() > MAX_METHOD_BYTES {
            return Err(MessageFault::MethodTooLong);
        }
        if is_method_in_another_case(method) {
            return Err(MessageFault::MethodCase);
        }
        if target.range().len() > limits.target_bytes {
            return Err(MessageFault::TargetTooLong);
        }
        if line_end > end - 2 || !bytes[..line_end].ends_with(b"\r\n") {
            // The line or the head ends with a lone LF.
            return Err(MessageFault::BareNewline);
        }
        line_endings::take_fields(bytes, line_end, end, parsed.headers, &mut self.fields)?;
        if end - line_end > limits.field_bytes {
            return Err(MessageFault::HeadTooLarge);
        }
        self.version = if version == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        self.target = RequestTarget::read(method.as_bytes(), bytes, target)?;
        self.end = end;
        self.apply_fields(bytes, limits)?;
        Ok(Some(end))
    }

    /// Derives authority and framing from the fields.
    fn apply_fields(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), MessageFault> {
        let control = ControlFields::read(bytes, &mut self.fields)?;
        // RFC 9112 §3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host
        // header field and to any request message that contains more than one Host header field line or a Host header field with
        // an invalid field value."
        match control.host {
            None if self.version == Version::Http11 => return Err(MessageFault::MissingHost),
            Some(_) if control.hosts > 1 => return Err(MessageFault::DuplicateHost),
            Some(host) if !is_authority(host.get(bytes)) => return Err(MessageFault::BadHost),
            _ => {}
        }
        // RFC 9112 §3.2.2: "When an origin server receives a request with an absolute-form of request-target, the origin server MUST
        // ignore the received Host header field (if any) and instead use the host information of the request-target."
        self.authority = self.target.authority.or(control.host);
        // RFC 9112 §6.3, for requests.
        self.framing = match control.length {
            // RFC 9112 §6.1: "A server or client that receives an HTTP/1.0 message containing a Transfer-Encoding header field MUST
            // treat the message as if the framing is faulty".
            _ if control.chunked && self.version == Version::Http10 => {
                return Err(MessageFault::BadTransferEncoding);
            }
            _ if control.chunked => Framing::Chunked,
            Some(length)
                if limits
                    .body_bytes
                    .is_some_and(|max_bytes| length > max_bytes) =>
            {
                return Err(MessageFault::BodyTooLarge);
            }
            Some(length) => Framing::Length(length),
            None => Framing::None,
        };
        if control.expect == Expect::Other {
            return Err(MessageFault::BadExpectation);
        }
        self.control = control;
        Ok(())
    }

    /// Combines the head with the bytes that it was parsed from: those for which [`RequestHead::parse`] returned a length, or a prefix of that length. With
    /// other bytes the result is meaningless, and its methods may panic.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> RequestView<'a> {
        RequestView { head: self, bytes }
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the form of the target.
    pub fn form(&self) -> TargetForm {
        self.target.form
    }

    /// Returns the framing of the body.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns whether the client allows reuse of the connection.
    pub fn keep_alive(&self) -> bool {
        self.control.keeps_alive(self.version)
    }

    /// Returns whether the client waits for 100 (Continue) before it sends the body. RFC 9110 §10.1.1: "A server that receives a 100-continue expectation in an
    /// HTTP/1.0 request MUST ignore that expectation". Without a body it is ignored, too.
    pub fn expects_continue(&self) -> bool {
        self.control.expect == Expect::Continue
            && self.version == Version::Http11
            && !self.framing.is_empty()
    }

    /// Returns whether the client accepts trailers (`TE: trailers`).
    pub fn accepts_trailers(&self) -> bool {
        self.control.te_trailers
    }

    fn opens_websocket(&self, method: &[u8]) -> bool {
        let control = &self.control;
        method == b"GET"
            && self.version == Version::Http11
            && self.target.form != TargetForm::Asterisk
            && self.framing.is_empty()
            && control.upgrade
            && control.websocket
            && control.websocket_keys == 1
            && control.websocket_13
    }
}

/// Checks the received part of an incomplete head against the limits.
fn within_limits(search: &HeadSearch, message: &[u8], limits: &Limits) -> Result<(), MessageFault> {
    let line = search.first_line().unwrap_or(message.len());
    line_within_limits(&message[..line], limits)?;
    match message.len() - line > limits.field_bytes {
        true => Err(MessageFault::HeadTooLarge),
        false => Ok(()),
    }
}

fn line_within_limits(line: &[u8], limits: &Limits) -> Result<(), MessageFault> {
    let start = &line[..line.len().min(MAX_METHOD_BYTES + 1)];
    match memchr::memchr(b' ', start) {
        None if start.len() > MAX_METHOD_BYTES => Err(MessageFault::MethodTooLong),
        Some(method) if line.len() - method - 1 > limits.target_bytes + VERSION_BYTES => {
            Err(MessageFault::TargetTooLong)
        }
        _ => Ok(()),
    }
}

/// Returns the fault of a message for which `httparse` reported an error in the request line or a line ending; `otherwise` if the version is valid.
fn line_fault(message: &[u8], otherwise: MessageFault, limits: &Limits) -> MessageFault {
    let line = match memchr::memchr(b'\n', message) {
        Some(end) => &message[..=end],
        None => message,
    };
    if let Err(fault) = line_within_limits(line, limits) {
        return fault;
    }
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    if memchr::memchr2(b'\r', b'\n', line).is_some() {
        return MessageFault::BareNewline;
    }
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    match (words.next(), words.next()) {
        // RFC 9112 §2.3: `HTTP-version = HTTP-name "/" DIGIT "." DIGIT`. A well-formed but unsupported version is 505, anything else 400.
        (Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), None)
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            match (major, minor) {
                (b'1', b'0' | b'1') => otherwise,
                _ => MessageFault::BadVersion,
            }
        }
        _ => MessageFault::BadRequestLine,
    }
}

/// A request's head with the bytes that it was parsed from.
#[derive(Debug, Clone, Copy)]
pub struct RequestView<'a> {
    head: &'a RequestHead,
    bytes: &'a [u8],
}

impl<'a> RequestView<'a> {
    /// Returns the head as offsets.
    pub fn head(&self) -> &'a RequestHead {
        self.head
    }

    /// Returns the method, which may be any token.
    pub fn method(&self) -> &'a str {
        ascii(self.head.method.get(self.bytes))
    }

    /// Returns the target as sent.
    pub fn target(&self) -> &'a str {
        ascii(self.head.target.whole.get(self.bytes))
    }

    /// Returns the scheme of a target in absolute-form, as sent.
    pub fn scheme(&self) -> Option<&'a str> {
        self.head
            .target
            .scheme
            .map(|scheme| ascii(scheme.get(self.bytes)))
    }

    /// Returns the requested host and port as sent: of a target in absolute-form, otherwise of Host. `None` for HTTP/1.0 without Host.
    pub fn authority(&self) -> Option<&'a str> {
        self.head
            .authority
            .map(|authority| ascii(authority.get(self.bytes)))
    }

    /// Returns the host of the authority as sent, including the brackets of IPv6 addresses.
    pub fn host(&self) -> Option<&'a str> {
        self.authority().map(|authority| split_port(authority).0)
    }

    /// Returns the port of the authority, if any.
    pub fn port(&self) -> Option<u16> {
        self.authority()
            .and_then(|authority| split_port(authority).1)
    }

    /// Returns the path as sent; `/` if a target in absolute-form has none, `*` for a server-wide OPTIONS.
    pub fn path(&self) -> &'a str {
        match ascii(self.head.target.path.get(self.bytes)) {
            "" if self.head.form() == TargetForm::Asterisk => "*",
            "" => "/",
            path => path,
        }
    }

    /// Returns the query without `?`.
    pub fn query(&self) -> Option<&'a str> {
        self.head
            .target
            .query
            .map(|query| ascii(query.get(self.bytes)))
    }

    /// Returns the fields.
    pub fn fields(&self) -> Fields<'a> {
        Fields {
            bytes: self.bytes,
            fields: &self.head.fields,
            end: self.head.end - 2,
        }
    }

    /// Returns whether this is a valid opening handshake of a WebSocket (RFC 6455 §4.2.1). Other upgrades are not forwarded.
    pub fn opens_websocket(&self) -> bool {
        self.head.opens_websocket(self.head.method.get(self.bytes))
    }
}
