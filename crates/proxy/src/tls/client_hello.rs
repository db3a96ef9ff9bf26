//! What a client says before TLS begins: the name it asks for and the protocols it offers, read out of its ClientHello without ending its TLS.
//!
//! [`read`] looks at the bytes that have come so far and takes none of them: whoever ends the TLS, here or behind a backend, reads them again.

use std::borrow::Cow;

use rustls::pki_types::DnsName;

/// How long a ClientHello may be. Those of browsers, with keys against quantum computers, have about 2 KiB.
pub const MAX_LEN: usize = 16 * 1024;

/// How many bytes are looked at: a ClientHello may come in many records, each of which costs five more.
pub const MAX_READ: usize = 2 * MAX_LEN;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The name that it asks for: lower case, no dot at its end; none if it names none.
    pub server_name: Option<String>,
    /// The protocols that it offers, the most wanted first.
    pub protocols: Vec<Vec<u8>>,
}

/// Why there is no [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// More bytes have to come.
    #[error("the ClientHello has not come whole")]
    Incomplete,
    /// This is not TLS, or not its beginning.
    #[error("what came is no ClientHello")]
    NotTls,
    /// It goes on beyond [`MOST`].
    #[error("the ClientHello is longer than {MAX_LEN} bytes")]
    TooLong,
    /// TLS it is, but broken.
    #[error("the ClientHello is broken: {0}")]
    Malformed(&'static str),
}

/// Reads a ClientHello at the beginning of these bytes. If more have to come, it is to be called again with all of them.
pub fn read(bytes: &[u8]) -> Result<ClientHello, HelloError> {
    let available = &bytes[..bytes.len().min(MAX_READ)];
    match message(available) {
        Ok(message) => client_hello(&message),
        Err(HelloError::Incomplete) if available.len() == MAX_READ => Err(HelloError::TooLong),
        Err(error) => Err(error),
    }
}

/// The type of a record that carries handshake messages.
const HANDSHAKE: u8 = 22;
/// The type of the handshake message.
const CLIENT_HELLO: u8 = 1;
/// The length of a record, at most (RFC 8446, 5.1).
const MAX_RECORD: usize = 1 << 14;
/// The lengths of what comes before a record and before a message.
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;

/// The body of the first handshake message, put together out of the records that it came in.
fn message(mut bytes: &[u8]) -> Result<Cow<'_, [u8]>, HelloError> {
    let mut message: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    loop {
        let (part, whole) = record(bytes, message.is_empty())?;
        bytes = &bytes[RECORD_HEADER + part.len()..];
        if message.is_empty() {
            message = Cow::Borrowed(part);
        } else {
            message.to_mut().extend_from_slice(part);
        }
        // RFC 8446, 4: type and length come first. What is wrong with them is known before the rest comes.
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
        if !whole {
            return Err(HelloError::Incomplete);
        }
    }
}

/// What has come of the record at the beginning of these bytes, and whether that is all of it.
fn record(bytes: &[u8], first: bool) -> Result<(&[u8], bool), HelloError> {
    // RFC 8446, 5.1: the type, a version that is to be ignored but always began with 3, and the length.
    let expected = |at: usize, wanted: u8| bytes.get(at).is_none_or(|byte| *byte == wanted);
    if !expected(0, HANDSHAKE) || !expected(1, 3) {
        return Err(match first {
            true => HelloError::NotTls,
            false => HelloError::Malformed("another record comes before its end"),
        });
    }
    let [_, _, _, a, b, rest @ ..] = bytes else {
        return Err(HelloError::Incomplete);
    };
    let length = usize::from(u16::from_be_bytes([*a, *b]));
    match length {
        // "Implementations MUST NOT send zero-length fragments of Handshake types".
        0 => Err(HelloError::Malformed("an empty record")),
        1..=MAX_RECORD => Ok((&rest[..rest.len().min(length)], rest.len() >= length)),
        _ => Err(HelloError::Malformed("a record that is too long")),
    }
}

/// A part of a message that is read from its beginning. Every length in it is held against what is there.
struct Decoder<'m>(&'m [u8]);

impl<'m> Decoder<'m> {
    fn take(&mut self, length: usize) -> Result<&'m [u8], HelloError> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(HelloError::Malformed("a length that goes beyond its end"))?;
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

    /// What a length of one byte announces.
    fn u8_prefixed(&mut self) -> Result<Decoder<'m>, HelloError> {
        let length = self.u8()?;
        self.take(length.into()).map(Decoder)
    }

    /// What a length of two bytes announces.
    fn u16_prefixed(&mut self) -> Result<Decoder<'m>, HelloError> {
        let length = self.u16()?;
        self.take(length.into()).map(Decoder)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// RFC 8446, 4.1.2.
fn client_hello(body: &[u8]) -> Result<ClientHello, HelloError> {
    let mut body = Decoder(body);
    let mut hello = ClientHello {
        server_name: None,
        protocols: Vec::new(),
    };
    // The version, and what the client rolled.
    body.take(2 + 32)?;
    let session = body.u8_prefixed()?;
    let ciphers = body.u16_prefixed()?;
    let compressions = body.u8_prefixed()?;
    if session.0.len() > 32
        || ciphers.is_empty()
        || ciphers.0.len() % 2 == 1
        || compressions.is_empty()
    {
        return Err(HelloError::Malformed("a list that can not be so long"));
    }
    // Before TLS 1.3 there may be no extensions at all.
    if body.is_empty() {
        return Ok(hello);
    }
    let mut extensions = body.u16_prefixed()?;
    if !body.is_empty() {
        return Err(HelloError::Malformed("more than belongs to it"));
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
        true => Err(HelloError::Malformed("an extension comes twice")),
        false => Ok(hello),
    }
}

/// RFC 6066, 3: a list of names, of which only one kind was ever defined, and no two of a kind.
fn server_name(mut extension: Decoder<'_>) -> Result<Option<String>, HelloError> {
    let mut list = extension.u16_prefixed()?;
    let kind = list.u8()?;
    let name = list.u16_prefixed()?.0;
    if kind != 0 || !list.is_empty() || !extension.is_empty() {
        return Err(HelloError::Malformed("not one server name"));
    }
    let text =
        str::from_utf8(name).map_err(|_| HelloError::Malformed("its server name is none"))?;
    // "Literal IPv4 and IPv6 addresses are not permitted": who sends one all the same names no server.
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<std::net::IpAddr>().is_ok() {
        return Ok(None);
    }
    if DnsName::try_from(text).is_err() {
        return Err(HelloError::Malformed("its server name is none"));
    }
    // The name is to be sent without the dot at its end. Who sends it means the same.
    let name = text.strip_suffix('.').unwrap_or(text);
    Ok(Some(name.to_ascii_lowercase()))
}

/// RFC 7301, 3.1: a list of names, none of them empty.
fn protocols(mut extension: Decoder<'_>) -> Result<Vec<Vec<u8>>, HelloError> {
    let mut list = extension.u16_prefixed()?;
    let mut protocols = Vec::new();
    while !list.is_empty() {
        let name = list.u8_prefixed()?.0;
        if name.is_empty() {
            return Err(HelloError::Malformed("a protocol without a name"));
        }
        protocols.push(name.to_vec());
    }
    match protocols.is_empty() || !extension.is_empty() {
        true => Err(HelloError::Malformed("a list of protocols that is none")),
        false => Ok(protocols),
    }
}
