//! Heads of requests.

use std::mem::MaybeUninit;

use pointsman_routing::is_method_in_another_case;

use super::body::Framing;
use super::control::{Control, Expect};
use super::error::{Error, Fault};
use super::field::{Field, Fields, Span};
use super::grammar::{TOKEN, Version, ascii};
use super::limits::Limits;
use super::lines::{self, Search};
use super::target::{Form, Target, is_authority, split_port};

/// RFC 9112 §3: "A server that receives a method longer than any that it implements SHOULD respond with a 501".
const MOST_METHOD_BYTES: usize = 64;

/// ` HTTP/1.1` and CRLF.
const VERSION_BYTES: usize = 11;

/// A request's head as offsets into the buffer that it was read from; [`RequestHead::view`] puts the two together. It is made once for
/// a connection and used for one request after the other.
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    /// Begun, and not all there: where the search stands.
    search: Option<Search>,
    failed: Option<Error>,
    fields: Vec<Field>,
    method: Span,
    version: Version,
    target: Target,
    control: Control,
    framing: Framing,
    authority: Option<Span>,
    end: usize,
}

impl RequestHead {
    /// An empty one.
    pub fn new() -> Self {
        RequestHead::default()
    }

    /// Reads the head at the beginning of `bytes`. Returns its length when it is all there; `None` asks for more bytes after these.
    /// After an error every further call returns that error.
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

    fn try_parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Fault> {
        // RFC 9112 §2.2: "a server that is expecting to receive and parse a request-line SHOULD ignore at least one empty line
        // (CRLF) received prior to the request-line." One is ignored.
        let start = match bytes {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => 2,
            _ => 0,
        };
        match bytes.get(start) {
            None => return Ok(None),
            Some(first) if !TOKEN[usize::from(*first)] => {
                return Err(match first {
                    b'\r' | b'\n' => Fault::BareNewline,
                    _ => Fault::BadRequestLine,
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
                let mut search = Search::default();
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
    ) -> Result<Option<usize>, Fault> {
        let mut room = [const { MaybeUninit::uninit() }; Limits::MOST_FIELDS];
        let room = &mut room[..limits.fields.min(Limits::MOST_FIELDS)];
        let mut parsed = httparse::Request::new(&mut []);
        let message = &bytes[start..];
        let length = match parsed.parse_with_uninit_headers(message, room) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            // Not CRLF after the version, or at the end.
            Err(httparse::Error::NewLine) => {
                return Err(line_fault(message, Fault::BareNewline, limits));
            }
            Err(error) => {
                return Err(lines::fault(error)
                    .unwrap_or_else(|| line_fault(message, Fault::BadRequestLine, limits)));
            }
        };
        let (Some(method), Some(target), Some(version)) =
            (parsed.method, parsed.path, parsed.version)
        else {
            return Err(Fault::BadRequestLine);
        };
        let end = start + length;
        self.method = Span::of(method.as_bytes(), bytes);
        let target = Span::of(target.as_bytes(), bytes);
        let line_end = target.end as usize + VERSION_BYTES;
        if method.len() > MOST_METHOD_BYTES {
            return Err(Fault::MethodTooLong);
        }
        if is_method_in_another_case(method) {
            return Err(Fault::MethodCase);
        }
        if target.range().len() > limits.target_bytes {
            return Err(Fault::TargetTooLong);
        }
        if line_end > end - 2 || !bytes[..line_end].ends_with(b"\r\n") {
            // A lone LF ended the line, or the head.
            return Err(Fault::BareNewline);
        }
        lines::take_fields(bytes, line_end, end, parsed.headers, &mut self.fields)?;
        if end - line_end > limits.field_bytes {
            return Err(Fault::HeadTooLarge);
        }
        self.version = if version == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        self.target = Target::read(method.as_bytes(), bytes, target)?;
        self.end = end;
        self.settle(bytes, limits)?;
        Ok(Some(end))
    }

    /// What follows from the fields.
    fn settle(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
        let control = Control::read(bytes, &mut self.fields)?;
        // RFC 9112 §3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host
        // header field and to any request message that contains more than one Host header field line or a Host header field with
        // an invalid field value."
        match control.host {
            None if self.version == Version::Http11 => return Err(Fault::MissingHost),
            Some(_) if control.hosts > 1 => return Err(Fault::DuplicateHost),
            Some(host) if !is_authority(host.get(bytes)) => return Err(Fault::BadHost),
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
                return Err(Fault::BadTransferEncoding);
            }
            _ if control.chunked => Framing::Chunked,
            Some(length) if limits.body_bytes.is_some_and(|most| length > most) => {
                return Err(Fault::BodyTooLarge);
            }
            Some(length) => Framing::Length(length),
            None => Framing::None,
        };
        if control.expect == Expect::Other {
            return Err(Fault::BadExpectation);
        }
        self.control = control;
        Ok(())
    }

    /// The head together with the bytes that it was read from: those that [`RequestHead::parse`] was given when it returned a length, or their
    /// first so many. With other bytes the parts are meaningless, and asking for one may panic.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> Request<'a> {
        Request { head: self, bytes }
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The form of its target.
    pub fn form(&self) -> Form {
        self.target.form
    }

    /// Where its body ends.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the client wants to use the connection again.
    pub fn keep_alive(&self) -> bool {
        self.control.persists(self.version)
    }

    /// Whether the client waits for a 100 before it sends the body. RFC 9110 §10.1.1: "A server that receives a 100-continue
    /// expectation in an HTTP/1.0 request MUST ignore that expectation", and one without a body needs none.
    pub fn expects_continue(&self) -> bool {
        self.control.expect == Expect::Continue
            && self.version == Version::Http11
            && !self.framing.is_empty()
    }

    /// Whether the client takes trailers (`TE: trailers`).
    pub fn takes_trailers(&self) -> bool {
        self.control.te_trailers
    }

    fn opens_websocket(&self, method: &[u8]) -> bool {
        let control = &self.control;
        method == b"GET"
            && self.version == Version::Http11
            && self.target.form != Form::Asterisk
            && self.framing.is_empty()
            && control.upgrade
            && control.websocket
            && control.websocket_keys == 1
            && control.websocket_13
    }
}

/// Whether what came so far of a head that isn't whole is within the limits.
fn within_limits(search: &Search, message: &[u8], limits: &Limits) -> Result<(), Fault> {
    let line = search.first_line().unwrap_or(message.len());
    line_within_limits(&message[..line], limits)?;
    match message.len() - line > limits.field_bytes {
        true => Err(Fault::HeadTooLarge),
        false => Ok(()),
    }
}

fn line_within_limits(line: &[u8], limits: &Limits) -> Result<(), Fault> {
    let start = &line[..line.len().min(MOST_METHOD_BYTES + 1)];
    match memchr::memchr(b' ', start) {
        None if start.len() > MOST_METHOD_BYTES => Err(Fault::MethodTooLong),
        Some(method) if line.len() - method - 1 > limits.target_bytes + VERSION_BYTES => {
            Err(Fault::TargetTooLong)
        }
        _ => Ok(()),
    }
}

/// What is wrong with a message where `httparse` stumbled over the request line or the end of a line; `otherwise` if the line's
/// version is fine.
fn line_fault(message: &[u8], otherwise: Fault, limits: &Limits) -> Fault {
    let line = match memchr::memchr(b'\n', message) {
        Some(end) => &message[..=end],
        None => message,
    };
    if let Err(fault) = line_within_limits(line, limits) {
        return fault;
    }
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    if memchr::memchr2(b'\r', b'\n', line).is_some() {
        return Fault::BareNewline;
    }
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    match (words.next(), words.next()) {
        // RFC 9112 §2.3: `HTTP-version = HTTP-name "/" DIGIT "." DIGIT`. Well-formed and not ours is 505, the rest 400.
        (Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), None)
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            match (major, minor) {
                (b'1', b'0' | b'1') => otherwise,
                _ => Fault::BadVersion,
            }
        }
        _ => Fault::BadRequestLine,
    }
}

/// A request's head with the bytes that it was read from.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    head: &'a RequestHead,
    bytes: &'a [u8],
}

impl<'a> Request<'a> {
    /// The head as offsets.
    pub fn head(&self) -> &'a RequestHead {
        self.head
    }

    /// The method, any token.
    pub fn method(&self) -> &'a str {
        ascii(self.head.method.get(self.bytes))
    }

    /// The target as sent.
    pub fn target(&self) -> &'a str {
        ascii(self.head.target.whole.get(self.bytes))
    }

    /// The scheme of an absolute-form target, as sent.
    pub fn scheme(&self) -> Option<&'a str> {
        self.head
            .target
            .scheme
            .map(|scheme| ascii(scheme.get(self.bytes)))
    }

    /// Host and port that are asked for, as sent: of the target if it is absolute, otherwise of Host. None in HTTP/1.0 without Host.
    pub fn authority(&self) -> Option<&'a str> {
        self.head
            .authority
            .map(|authority| ascii(authority.get(self.bytes)))
    }

    /// The authority's host, without its port, as sent (brackets of IPv6 included).
    pub fn host(&self) -> Option<&'a str> {
        self.authority().map(|authority| split_port(authority).0)
    }

    /// The authority's port, if it names one.
    pub fn port(&self) -> Option<u16> {
        self.authority()
            .and_then(|authority| split_port(authority).1)
    }

    /// The path as sent; `/` if an absolute target has none, `*` where the server as a whole is meant.
    pub fn path(&self) -> &'a str {
        match ascii(self.head.target.path.get(self.bytes)) {
            "" if self.head.form() == Form::Asterisk => "*",
            "" => "/",
            path => path,
        }
    }

    /// What follows `?`.
    pub fn query(&self) -> Option<&'a str> {
        self.head
            .target
            .query
            .map(|query| ascii(query.get(self.bytes)))
    }

    /// The fields.
    pub fn fields(&self) -> Fields<'a> {
        Fields {
            bytes: self.bytes,
            fields: &self.head.fields,
            end: self.head.end - 2,
        }
    }

    /// Whether this is a valid opening handshake of WebSocket (RFC 6455 §4.2.1). Any other upgrade is not offered to the backend.
    pub fn opens_websocket(&self) -> bool {
        self.head.opens_websocket(self.head.method.get(self.bytes))
    }
}
