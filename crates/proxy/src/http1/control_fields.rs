//! Control fields of a head: framing, persistence, upgrade, expectation.

use pointsman_routing::filters::headers::is_removable_by_connection;

use super::error::MessageFault;
use super::field::{Field, KnownField, Span};
use super::grammar::{Version, list};

/// Maximum number of connection options in a message.
const MAX_CONNECTION_OPTIONS: usize = 32;

/// Value of the `Expect` field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Expect {
    #[default]
    Nothing,
    Continue,
    Other,
}

/// Values of the control fields.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ControlFields {
    pub(super) host: Option<Span>,
    pub(super) hosts: u32,
    pub(super) length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    /// `Upgrade` lists WebSocket.
    pub(super) websocket: bool,
    pub(super) websocket_keys: u32,
    pub(super) websocket_13: bool,
    /// `TE` contains `trailers`.
    pub(super) te_trailers: bool,
    pub(super) expect: Expect,
    options: usize,
    /// `Connection` lists options other than close, keep-alive and upgrade.
    has_other_options: bool,
}

impl ControlFields {
    /// Reads the control fields, and marks the fields that `Connection` lists.
    pub(super) fn read(bytes: &[u8], fields: &mut [Field]) -> Result<ControlFields, MessageFault> {
        let mut control = ControlFields::default();
        for field in fields.iter() {
            if field.known != KnownField::Other {
                control.apply_field(field, field.value.get(bytes))?;
            }
        }
        // RFC 9112 §6.1: "A server MAY reject a request that contains both Content-Length and Transfer-Encoding"; §6.3: "Such a
        // message might indicate an attempt to perform request smuggling or response splitting and ought to be handled as an error."
        if control.chunked && control.length.is_some() {
            return Err(MessageFault::LengthAndTransferEncoding);
        }
        if control.has_other_options {
            mark_connection_options(bytes, fields);
        }
        Ok(control)
    }

    fn apply_field(&mut self, field: &Field, value: &[u8]) -> Result<(), MessageFault> {
        match field.known {
            KnownField::Host => {
                self.host = Some(field.value);
                self.hosts += 1;
            }
            KnownField::ContentLength => {
                let first = self.length.is_none();
                self.length = Some(
                    content_length(value)
                        .filter(|_| first)
                        .ok_or(MessageFault::BadContentLength)?,
                );
            }
            KnownField::TransferEncoding => {
                // RFC 9112 §6.1 suggests 501 for unknown codings, and 400 if chunked is not the last or is applied twice. Only chunked is supported, and
                // other codings are mostly sent by scanners, so the response is always 400.
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(MessageFault::BadTransferEncoding);
                }
                self.chunked = true;
            }
            KnownField::Connection => {
                if memchr::memchr(b',', value).is_none() && !value.is_empty() {
                    return self.apply_connection_option(value);
                }
                for option in list(value) {
                    self.apply_connection_option(option)?;
                }
            }
            KnownField::Upgrade => {
                self.websocket |=
                    list(value).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
            }
            KnownField::Te => {
                self.te_trailers |=
                    list(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
            }
            KnownField::Expect => {
                let known = value.eq_ignore_ascii_case(b"100-continue");
                self.expect = match self.expect {
                    Expect::Nothing | Expect::Continue if known => Expect::Continue,
                    _ => Expect::Other,
                };
            }
            KnownField::WebSocketKey => {
                self.websocket_keys += if is_websocket_key(value) { 1 } else { 2 }
            }
            KnownField::WebSocketVersion => self.websocket_13 = value == b"13",
            _ => {}
        }
        Ok(())
    }

    fn apply_connection_option(&mut self, option: &[u8]) -> Result<(), MessageFault> {
        self.options += 1;
        if self.options > MAX_CONNECTION_OPTIONS {
            return Err(MessageFault::TooManyConnectionOptions);
        }
        if option.eq_ignore_ascii_case(b"close") {
            self.close = true;
        } else if option.eq_ignore_ascii_case(b"keep-alive") {
            self.keep_alive = true;
        } else if option.eq_ignore_ascii_case(b"upgrade") {
            self.upgrade = true;
        } else {
            self.has_other_options = true;
        }
        Ok(())
    }

    /// Returns whether the connection is persistent, in the order of RFC 9112 §9.3. Its exception for proxies concerns forward proxies: a gateway acts as an
    /// origin server (RFC 9110 §3.7), so it honours `keep-alive` of HTTP/1.0 clients.
    pub(super) fn keeps_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

/// Parses `Content-Length = 1*DIGIT` (RFC 9110 §8.6). Rejects signs, lists, and values above 2^63-1, which overflow in origins that use signed numbers.
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

/// Returns whether this is a valid key. RFC 6455 §4.2.1: "a base64-encoded value that, when decoded, is 16 bytes in length".
fn is_websocket_key(value: &[u8]) -> bool {
    let base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    value.len() == 24 && value.ends_with(b"==") && value[..22].iter().all(base64)
}

/// Marks the fields that `Connection` lists. RFC 9110 §7.6.1: "for each connection-option in this field, remove any header or trailer field(s) from the message
/// with the same name as the connection-option". The work is bounded: at most `MAX_CONNECTION_OPTIONS` names.
fn mark_connection_options(bytes: &[u8], fields: &mut [Field]) {
    for at in 0..fields.len() {
        if fields[at].known != KnownField::Connection {
            continue;
        }
        for option in list(fields[at].value.get(bytes)) {
            if !is_removable_by_connection(option) {
                continue;
            }
            for field in fields.iter_mut() {
                field.connection_option |= field.known != KnownField::Host
                    && field.name.get(bytes).eq_ignore_ascii_case(option);
            }
        }
    }
}
