//! Server name and ALPN protocols of a ClientHello, without terminating TLS.
//!
//! [`read`] inspects received bytes without consuming them: the endpoint that terminates TLS, here or behind a backend, reads them again.

use std::borrow::Cow;

use rustls::pki_types::DnsName;

/// Maximum length of a ClientHello. Those of browsers with post-quantum key shares have about 2 KiB.
pub const MAX_LEN: usize = 16 * 1024;

/// Maximum number of bytes inspected: a ClientHello may be split over many records, each with a header of five bytes.
pub const MAX_READ: usize = 2 * MAX_LEN;

/// The contents of a ClientHello that select a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// Server name in lower case and without a trailing dot; `None` without SNI.
    pub server_name: Option<String>,
    /// ALPN protocols in order of preference.
    pub protocols: Vec<Vec<u8>>,
}

/// Reason why there is no [`ClientHello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// More bytes are needed.
    #[error("the ClientHello is incomplete")]
    Incomplete,
    /// The bytes are not the beginning of a TLS connection.
    #[error("not a TLS ClientHello")]
    NotTls,
    /// The message is longer than [`MAX_LEN`].
    #[error("the ClientHello is longer than {MAX_LEN} bytes")]
    TooLong,
    /// The message violates the protocol.
    #[error("malformed ClientHello: {0}")]
    Malformed(&'static str),
}

/// Reads the ClientHello at the start of these bytes. If more bytes are needed, it has to be called again with all of them.
pub fn read(bytes: &[u8]) -> Result<ClientHello, HelloError> {
    let available = &bytes[..bytes.len().min(MAX_READ)];
    match message(available) {
        Ok(message) => client_hello(&message),
        Err(HelloError::Incomplete) if available.len() == MAX_READ => Err(HelloError::TooLong),
        Err(error) => Err(error),
    }
}

/// Content type of handshake records.
const HANDSHAKE: u8 = 22;
/// Handshake message type.
const CLIENT_HELLO: u8 = 1;
/// Maximum length of a record (RFC 8446, 5.1).
const MAX_RECORD: usize = 1 << 14;
/// Lengths of the headers of a record and of a message.
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;

/// Returns the body of the first handshake message, reassembled from its records.
fn message(mut bytes: &[u8]) -> Result<Cow<'_, [u8]>, HelloError> {
    let mut message: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    loop {
        let (part, complete) = record(bytes, message.is_empty())?;
        bytes = &bytes[RECORD_HEADER + part.len()..];
        if message.is_empty() {
            message = Cow::Borrowed(part);
        } else {
            message.to_mut().extend_from_slice(part);
        }
        // RFC 8446, 4: the type and the length come first, so errors in them are found before the rest arrives.
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(HelloError::NotTls);
        }
        if let [_, a, b, c, ..] = message[..] {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if length > MAX_LEN {
                return Err(HelloError::TooLong);
            }
            let body = MESSAGE_HEADER..MESSAGE_HEADER + length;
            if message.len() >= body.end {
                return Ok(match message {
                    Cow::Borrowed(message) => Cow::Borrowed(&message[body]),
                    Cow::Owned(mut message) => {
                        message.truncate(body.end);
                        message.drain(..body.start);
                        Cow::Owned(message)
                    }
                });
            }
        }
        if !complete {
            return Err(HelloError::Incomplete);
        }
    }
}

/// Returns the available bytes of the record at the start of these bytes, and whether the record is complete.
fn record(bytes: &[u8], first: bool) -> Result<(&[u8], bool), HelloError> {
    // RFC 8446, 5.1: the type; a legacy version, to be ignored, whose first byte has always been 3; the length.
    let expected = |at: usize, wanted: u8| bytes.get(at).is_none_or(|byte| *byte == wanted);
    if !expected(0, HANDSHAKE) || !expected(1, 3) {
        return Err(match first {
            true => HelloError::NotTls,
            false => HelloError::Malformed("interrupted by another record"),
        });
    }
    let [_, _, _, a, b, rest @ ..] = bytes else {
        return Err(HelloError::Incomplete);
    };
    let length = usize::from(u16::from_be_bytes([*a, *b]));
    match length {
        // "Implementations MUST NOT send zero-length fragments of Handshake types".
        0 => Err(HelloError::Malformed("empty record")),
        1..=MAX_RECORD => Ok((&rest[..rest.len().min(length)], rest.len() >= length)),
        _ => Err(HelloError::Malformed("oversized record")),
    }
}

/// Decodes a message from its start and checks every length against the available bytes.
struct Decoder<'m>(&'m [u8]);

impl<'m> Decoder<'m> {
    fn take(&mut self, length: usize) -> Result<&'m [u8], HelloError> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(HelloError::Malformed("length out of bounds"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, HelloError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, HelloError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Reads a vector with a length of one byte.
    fn u8_prefixed(&mut self) -> Result<Decoder<'m>, HelloError> {
        let length = self.u8()?;
        self.take(length.into()).map(Decoder)
    }

    /// Reads a vector with a length of two bytes.
    fn u16_prefixed(&mut self) -> Result<Decoder<'m>, HelloError> {
        let length = self.u16()?;
        self.take(length.into()).map(Decoder)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Decodes the body of the message (RFC 8446, 4.1.2).
fn client_hello(body: &[u8]) -> Result<ClientHello, HelloError> {
    let mut body = Decoder(body);
    let mut hello = ClientHello {
        server_name: None,
        protocols: Vec::new(),
    };
    // The legacy version and the random.
    body.take(2 + 32)?;
    let session = body.u8_prefixed()?;
    let ciphers = body.u16_prefixed()?;
    let compressions = body.u8_prefixed()?;
    if session.0.len() > 32
        || ciphers.is_empty()
        || ciphers.0.len() % 2 == 1
        || compressions.is_empty()
    {
        return Err(HelloError::Malformed("invalid vector length"));
    }
    // Before TLS 1.3 the extensions are optional.
    if body.is_empty() {
        return Ok(hello);
    }
    let mut extensions = body.u16_prefixed()?;
    if !body.is_empty() {
        return Err(HelloError::Malformed("trailing bytes"));
    }
    let mut kinds = Vec::new();
    while !extensions.is_empty() {
        let kind = extensions.u16()?;
        let extension = extensions.u16_prefixed()?;
        match kind {
            0 => hello.server_name = server_name(extension)?,
            16 => hello.protocols = protocols(extension)?,
            _ => {}
        }
        kinds.push(kind);
    }
    // RFC 8446, 4.2: "There MUST NOT be more than one extension of the same type".
    kinds.sort_unstable();
    match kinds.windows(2).any(|two| two[0] == two[1]) {
        true => Err(HelloError::Malformed("duplicate extension")),
        false => Ok(hello),
    }
}

/// Decodes the server name extension (RFC 6066, 3): a list with at most one name of each type, of which only one was ever defined.
fn server_name(mut extension: Decoder<'_>) -> Result<Option<String>, HelloError> {
    let mut list = extension.u16_prefixed()?;
    let kind = list.u8()?;
    let name = list.u16_prefixed()?.0;
    if kind != 0 || !list.is_empty() || !extension.is_empty() {
        return Err(HelloError::Malformed("not exactly one server name"));
    }
    let text = str::from_utf8(name).map_err(|_| HelloError::Malformed("invalid server name"))?;
    // "Literal IPv4 and IPv6 addresses are not permitted"; if one is sent anyway, it is treated like a missing name.
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<std::net::IpAddr>().is_ok() {
        return Ok(None);
    }
    if DnsName::try_from(text).is_err() {
        return Err(HelloError::Malformed("invalid server name"));
    }
    // A trailing dot is not permitted, but has the same meaning.
    let name = text.strip_suffix('.').unwrap_or(text);
    Ok(Some(name.to_ascii_lowercase()))
}

/// Decodes the ALPN extension (RFC 7301, 3.1): a list of non-empty names.
fn protocols(mut extension: Decoder<'_>) -> Result<Vec<Vec<u8>>, HelloError> {
    let mut list = extension.u16_prefixed()?;
    let mut protocols = Vec::new();
    while !list.is_empty() {
        let name = list.u8_prefixed()?.0;
        if name.is_empty() {
            return Err(HelloError::Malformed("empty protocol name"));
        }
        protocols.push(name.to_vec());
    }
    match protocols.is_empty() || !extension.is_empty() {
        true => Err(HelloError::Malformed("invalid protocol list")),
        false => Ok(protocols),
    }
}
