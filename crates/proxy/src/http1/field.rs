//! Fields as offsets into the buffer that they were parsed from, and the names that the codec interprets.

use std::ops::Range;

/// A range of the buffer. Heads are far smaller than 4 GiB.
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

    /// Returns the range of a subslice of the buffer.
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

/// Field names that the codec interprets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the fields' own names")]
pub enum KnownField {
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

impl KnownField {
    /// Looks up a name. Length and first letter leave at most one name to compare with.
    #[inline]
    pub(crate) fn of(name: &[u8]) -> KnownField {
        let first = name.first().map_or(0, |byte| byte | 0x20);
        let (known, whole): (KnownField, &[u8]) = match (name.len(), first) {
            (2, b't') => (KnownField::Te, b"te"),
            (4, b'h') => (KnownField::Host, b"host"),
            (6, b'e') => (KnownField::Expect, b"expect"),
            (7, b'u') => (KnownField::Upgrade, b"upgrade"),
            (7, b't') => (KnownField::Trailer, b"trailer"),
            (10, b'c') => (KnownField::Connection, b"connection"),
            (10, b'k') => (KnownField::KeepAlive, b"keep-alive"),
            (14, b'c') => (KnownField::ContentLength, b"content-length"),
            (14, b'h') => (KnownField::Http2Settings, b"http2-settings"),
            (16, b'p') => (KnownField::ProxyConnection, b"proxy-connection"),
            (17, b't') => (KnownField::TransferEncoding, b"transfer-encoding"),
            (17, b's') => (KnownField::WebSocketKey, b"sec-websocket-key"),
            (21, b's') => (KnownField::WebSocketVersion, b"sec-websocket-version"),
            _ => return KnownField::Other,
        };
        match name.eq_ignore_ascii_case(whole) {
            true => known,
            false => KnownField::Other,
        }
    }

    /// Returns whether the field is one of [`HOP_BY_HOP`](pointsman_routing::filters::headers::HOP_BY_HOP).
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            KnownField::ContentLength
                | KnownField::TransferEncoding
                | KnownField::Connection
                | KnownField::KeepAlive
                | KnownField::ProxyConnection
                | KnownField::Te
                | KnownField::Trailer
                | KnownField::Upgrade
                | KnownField::Http2Settings
        )
    }
}

/// Returns whether a field of this name is forwarded, over either version of HTTP: it is neither hop-by-hop, nor framing, nor Host.
pub(crate) fn is_forwarded(name: &[u8]) -> bool {
    let known = KnownField::of(name);
    !known.is_hop_by_hop() && known != KnownField::Host
}

/// Returns whether a field of this name may not be a trailer. RFC 9110 §6.5.1: "Many fields cannot be processed outside the header section because their
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
    // Known fields include Expect, Host and hop-by-hop fields. Content-* except Content-Digest (RFC 9530) describes the format.
    KnownField::of(name) != KnownField::Other
        || (starts(b"content-") && !is(b"content-digest"))
        || starts(b"if-")
        || starts(b"x-forwarded-")
        || FORBIDDEN.into_iter().any(is)
}

/// A field, as offsets into the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub(super) name: Span,
    pub(super) value: Span,
    pub(super) known: KnownField,
    /// Listed in `Connection`, and therefore not forwarded.
    pub(super) connection_option: bool,
}

impl Field {
    /// Returns the interpreted name.
    pub fn known(&self) -> KnownField {
        self.known
    }

    /// Returns whether the field is not forwarded: a hop-by-hop field, framing, or one listed in `Connection`.
    pub fn is_hop_by_hop(&self) -> bool {
        self.connection_option || self.known.is_hop_by_hop()
    }

    pub(super) fn is_forwarded(&self) -> bool {
        !self.is_hop_by_hop() && self.known != KnownField::Host
    }

    /// Returns the range of the name in the buffer.
    pub fn name(&self) -> Range<usize> {
        self.name.range()
    }

    /// Returns the range of the value in the buffer, without surrounding white space.
    pub fn value(&self) -> Range<usize> {
        self.value.range()
    }
}

/// The fields of a head or trailer section, with their buffer.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) fields: &'a [Field],
    /// End of the last field's line.
    pub(super) end: usize,
}

impl<'a> Fields<'a> {
    /// Returns names and values, in order, as sent.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.fields
            .iter()
            .map(move |field| (field.name.get(bytes), field.value.get(bytes)))
    }

    /// Returns the values of the fields with this name (in any case), in order.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// Returns the value of the first field with this name.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the fields as offsets.
    pub fn entries(&self) -> &'a [Field] {
        self.fields
    }

    /// Returns the fields to forward: without hop-by-hop fields, framing, fields listed in `Connection`, and Host, which is generated from the request's
    /// authority (RFC 9112 §3.2.2).
    pub fn forwarded(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.fields
            .iter()
            .filter(|field| field.is_forwarded())
            .map(move |field| (field.name.get(bytes), field.value.get(bytes)))
    }

    /// Returns the bytes of the lines from field `from` up to field `to`, including line ends. They were validated by the parser and can be written unchanged.
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

#[cfg(test)]
mod tests {
    use pointsman_routing::filters::headers::is_hop_by_hop;

    use super::*;

    #[test]
    fn the_codec_and_the_tables_agree_on_hop_by_hop_fields() {
        let names = [
            "host",
            "content-length",
            "transfer-encoding",
            "Connection",
            "keep-alive",
            "proxy-connection",
            "TE",
            "trailer",
            "upgrade",
            "http2-settings",
            "expect",
            "sec-websocket-key",
            "sec-websocket-version",
            "x-other",
        ];
        let hop_by_hop = names.map(|name| KnownField::of(name.as_bytes()).is_hop_by_hop());
        assert_eq!(hop_by_hop, names.map(|name| is_hop_by_hop(name.as_bytes())));
        let count = hop_by_hop.into_iter().filter(|is| *is).count();
        assert_eq!(count, pointsman_routing::filters::headers::HOP_BY_HOP.len());
    }
}
