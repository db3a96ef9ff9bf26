//! What the fields of a head say about the message and the connection: framing, persistence, upgrade, expectation.

use super::error::Fault;
use super::field::{Field, Known, Span};
use super::grammar::{Version, list};

/// Connection options that one message may name.
const MOST_OPTIONS: usize = 32;

/// Names that `Connection` may not make vanish. RFC 9110 §7.6.1: "A sender MUST NOT send a connection option corresponding to a
/// field that is intended for all recipients of the content." Host and framing are not in the list because they are never passed
/// on as fields: they are written anew.
const NOT_OPTIONS: [&[u8]; 8] = [
    b"authorization",
    b"cache-control",
    b"content-encoding",
    b"content-language",
    b"content-location",
    b"content-range",
    b"content-type",
    b"cookie",
];

/// What an `Expect` field asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Expect {
    #[default]
    Nothing,
    Continue,
    Other,
}

/// What the fields say, taken together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Control {
    pub(super) host: Option<Span>,
    pub(super) hosts: u32,
    pub(super) length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    /// `Upgrade` names WebSocket.
    pub(super) websocket: bool,
    pub(super) websocket_keys: u32,
    pub(super) websocket_13: bool,
    /// `TE` has `trailers`.
    pub(super) te_trailers: bool,
    pub(super) expect: Expect,
    options: usize,
    /// `Connection` names more than the options known here.
    names: bool,
}

impl Control {
    /// Reads the fields once, and marks those that `Connection` names.
    pub(super) fn read(bytes: &[u8], fields: &mut [Field]) -> Result<Control, Fault> {
        let mut control = Control::default();
        for field in fields.iter() {
            if field.known != Known::Other {
                control.take(field, field.value.get(bytes))?;
            }
        }
        // RFC 9112 §6.1: "A server MAY reject a request that contains both Content-Length and Transfer-Encoding"; §6.3: "Such a
        // message might indicate an attempt to perform request smuggling or response splitting and ought to be handled as an error."
        if control.chunked && control.length.is_some() {
            return Err(Fault::LengthAndTransferEncoding);
        }
        if control.names {
            mark_named(bytes, fields);
        }
        Ok(control)
    }

    fn take(&mut self, field: &Field, value: &[u8]) -> Result<(), Fault> {
        match field.known {
            Known::Host => {
                self.host = Some(field.value);
                self.hosts += 1;
            }
            Known::ContentLength => {
                let first = self.length.is_none();
                self.length = Some(
                    content_length(value)
                        .filter(|_| first)
                        .ok_or(Fault::BadContentLength)?,
                );
            }
            Known::TransferEncoding => {
                // RFC 9112 §6.1 names 501 for codings that are not understood, and 400 where chunked is not the last or applied
                // twice. None but chunked is understood here, and a sender that offers another one is more often probing than
                // mistaken: always 400.
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Fault::BadTransferEncoding);
                }
                self.chunked = true;
            }
            Known::Connection => {
                if memchr::memchr(b',', value).is_none() && !value.is_empty() {
                    return self.option(value);
                }
                for option in list(value) {
                    self.option(option)?;
                }
            }
            Known::Upgrade => {
                self.websocket |=
                    list(value).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
            }
            Known::Te => {
                self.te_trailers |=
                    list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
            }
            Known::Expect => {
                let known = value.eq_ignore_ascii_case(b"100-continue");
                self.expect = match self.expect {
                    Expect::Nothing | Expect::Continue if known => Expect::Continue,
                    _ => Expect::Other,
                };
            }
            Known::WebSocketKey => {
                self.websocket_keys += if is_websocket_key(value) { 1 } else { 2 }
            }
            Known::WebSocketVersion => self.websocket_13 = value == b"13",
            _ => {}
        }
        Ok(())
    }

    fn option(&mut self, option: &[u8]) -> Result<(), Fault> {
        self.options += 1;
        if self.options > MOST_OPTIONS {
            return Err(Fault::TooManyConnectionOptions);
        }
        if option.eq_ignore_ascii_case(b"close") {
            self.close = true;
        } else if option.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
        } else if option.eq_ignore_ascii_case(b"upgrade") {
            self.upgrade = true;
        } else {
            self.names = true;
        }
        Ok(())
    }

    /// RFC 9112 §9.3, in the order that it gives. The exception that it makes for proxies is about forward proxies: a gateway is an
    /// origin server to its clients (RFC 9110 §3.7), so HTTP/1.0 clients that ask for persistence get it.
    pub(super) fn persists(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

/// RFC 9110 §8.6: `Content-Length = 1*DIGIT`. No sign, no list, nothing above 2^63-1: origins that keep it as a signed number read something else.
pub(crate) fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 20 {
        return None;
    }
    let length = value.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    });
    length.filter(|length| *length <= i64::MAX as u64)
}

/// RFC 6455 §4.2.1: "a base64-encoded value that, when decoded, is 16 bytes in length".
fn is_websocket_key(value: &[u8]) -> bool {
    let base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    value.len() == 24 && value.ends_with(b"==") && value[..22].iter().all(base64)
}

/// RFC 9110 §7.6.1: "for each connection-option in this field, remove any header or trailer field(s) from the message with the same
/// name as the connection-option". The work is bounded: at most `MOST_OPTIONS` names.
fn mark_named(bytes: &[u8], fields: &mut [Field]) {
    for at in 0..fields.len() {
        if fields[at].known != Known::Connection {
            continue;
        }
        for option in list(fields[at].value.get(bytes)) {
            if NOT_OPTIONS
                .iter()
                .any(|name| option.eq_ignore_ascii_case(name))
            {
                continue;
            }
            for field in fields.iter_mut() {
                field.named |= field.known != Known::Host
                    && field.name.get(bytes).eq_ignore_ascii_case(option);
            }
        }
    }
}
