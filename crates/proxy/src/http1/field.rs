//! Fields as offsets into the buffer they were read from, and the few names that mean something to the codec.

use std::ops::Range;

/// A part of the buffer. 32 bits: a head is bounded far below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    pub(super) fn new(start: usize, end: usize) -> Self {
        Span {
            start: start as u32,
            end: end as u32,
        }
    }

    /// Where this part of the buffer is within it.
    pub(super) fn of(part: &[u8], buffer: &[u8]) -> Self {
        let start = part.as_ptr() as usize - buffer.as_ptr() as usize;
        Span::new(start, start + part.len())
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(super) fn get(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.range()]
    }
}

/// Names that the codec acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the fields' own names")]
pub enum Known {
    Other,
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    KeepAlive,
    ProxyConnection,
    Te,
    Trailer,
    Upgrade,
    Http2Settings,
    Expect,
    WebSocketKey,
    WebSocketVersion,
}

impl Known {
    /// Length and first letter leave at most one name to compare with, and mostly none.
    #[inline]
    pub(crate) fn of(name: &[u8]) -> Known {
        let first = name.first().map_or(0, |byte| byte | 0x20);
        let (known, whole): (Known, &[u8]) = match (name.len(), first) {
            (2, b't') => (Known::Te, b"te"),
            (4, b'h') => (Known::Host, b"host"),
            (6, b'e') => (Known::Expect, b"expect"),
            (7, b'u') => (Known::Upgrade, b"upgrade"),
            (7, b't') => (Known::Trailer, b"trailer"),
            (10, b'c') => (Known::Connection, b"connection"),
            (10, b'k') => (Known::KeepAlive, b"keep-alive"),
            (14, b'c') => (Known::ContentLength, b"content-length"),
            (14, b'h') => (Known::Http2Settings, b"http2-settings"),
            (16, b'p') => (Known::ProxyConnection, b"proxy-connection"),
            (17, b't') => (Known::TransferEncoding, b"transfer-encoding"),
            (17, b's') => (Known::WebSocketKey, b"sec-websocket-key"),
            (21, b's') => (Known::WebSocketVersion, b"sec-websocket-version"),
            _ => return Known::Other,
        };
        match name.eq_ignore_ascii_case(whole) {
            true => known,
            false => Known::Other,
        }
    }

    /// Fields that are for this connection alone (RFC 9110 §7.6.1), and framing, which is always made anew.
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Known::ContentLength
                | Known::TransferEncoding
                | Known::Connection
                | Known::KeepAlive
                | Known::ProxyConnection
                | Known::Te
                | Known::Trailer
                | Known::Upgrade
                | Known::Http2Settings
        )
    }
}

/// Whether a field of this name may be passed on, whatever version of HTTP it came by: it is neither for the connection alone, nor framing, nor Host.
pub(crate) fn is_forwarded(name: &[u8]) -> bool {
    let known = Known::of(name);
    !known.is_hop_by_hop() && known != Known::Host
}

/// Reports whether a field of this name may not be a trailer. RFC 9110 §6.5.1: "Many fields cannot be processed outside the header section because their
/// evaluation is necessary prior to receiving the content, such as those that describe message framing, routing, authentication, request modifiers,
/// response controls, or content format." Such trailers are dropped.
pub(crate) fn is_forbidden_trailer(name: &[u8]) -> bool {
    const FORBIDDEN: [&[u8]; 13] = [
        b"age",
        b"authorization",
        b"cache-control",
        b"cookie",
        b"forwarded",
        b"max-forwards",
        b"pragma",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"range",
        b"set-cookie",
        b"vary",
        b"www-authenticate",
    ];
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    let starts = |prefix: &[u8]| {
        name.len() > prefix.len() && name[..prefix.len()].eq_ignore_ascii_case(prefix)
    };
    // Expect and Host are known to the codec, as are hop-by-hop fields; Content-* but Content-Digest (RFC 9530) is about format.
    Known::of(name) != Known::Other
        || (starts(b"content-") && !is(b"content-digest"))
        || starts(b"if-")
        || starts(b"x-forwarded-")
        || FORBIDDEN.into_iter().any(is)
}

/// Where a field's name and value are in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub(super) name: Span,
    pub(super) value: Span,
    pub(super) known: Known,
    /// Named by `Connection`, so dropped.
    pub(super) named: bool,
}

impl Field {
    /// Which of the names that the codec acts on it has.
    pub fn known(&self) -> Known {
        self.known
    }

    /// Whether it stays on this connection: a hop-by-hop field, framing, or one that `Connection` names.
    pub fn is_hop_by_hop(&self) -> bool {
        self.named || self.known.is_hop_by_hop()
    }

    pub(super) fn is_forwarded(&self) -> bool {
        !self.is_hop_by_hop() && self.known != Known::Host
    }

    /// Where the name is in the buffer.
    pub fn name(&self) -> Range<usize> {
        self.name.range()
    }

    /// Where the value is in the buffer, without white space around it.
    pub fn value(&self) -> Range<usize> {
        self.value.range()
    }
}

/// The fields of a head or a trailer section, with the buffer that they are in.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) fields: &'a [Field],
    /// Where the last field's line ends.
    pub(super) end: usize,
}

impl<'a> Fields<'a> {
    /// Names and values, in order, as sent.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.fields
            .iter()
            .map(move |field| (field.name.get(bytes), field.value.get(bytes)))
    }

    /// The values of the fields of this name, in any case, in order.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The fields as offsets.
    pub fn entries(&self) -> &'a [Field] {
        self.fields
    }

    /// What may be passed on: neither hop-by-hop fields nor framing nor what `Connection` names, and not Host, which the sender
    /// writes from the request's authority (RFC 9112 §3.2.2).
    pub fn forwarded(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.fields
            .iter()
            .filter(|field| field.is_forwarded())
            .map(move |field| (field.name.get(bytes), field.value.get(bytes)))
    }

    /// The bytes of the lines from field `from` up to field `to`, line ends included. They were checked when they were parsed, so they
    /// may be written as they are.
    pub(super) fn lines(&self, from: usize, to: usize) -> &'a [u8] {
        let start = self.line_start(from);
        &self.bytes[start..self.line_start(to)]
    }

    fn line_start(&self, at: usize) -> usize {
        self.fields
            .get(at)
            .map_or(self.end, |field| field.name.start as usize)
    }
}
