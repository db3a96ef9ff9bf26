//! A request as it came, over either version of HTTP, and as routing sees it.

use std::borrow::Cow;

use super::lines::Lines;
use crate::http1::Framing;

/// The version of HTTP that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Spoken {
    /// As access logs write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Spoken::Http10 => "HTTP/1.0",
            Spoken::Http11 => "HTTP/1.1",
            Spoken::Http2 => "HTTP/2",
        }
    }
}

/// A request's head.
#[derive(Debug)]
pub(crate) struct Request<'r> {
    /// The client's version.
    pub(crate) spoken: Spoken,
    /// The method. Of a WebSocket over HTTP/2 it is GET here, as it is over HTTP/1.
    pub(crate) method: &'r str,
    /// Host and port, as sent.
    pub(crate) authority: Option<&'r str>,
    /// The path, as sent.
    pub(crate) path: &'r str,
    /// What follows `?`, as sent.
    pub(crate) query: Option<&'r str>,
    /// What may be passed on, without Host.
    pub(crate) lines: Lines<'r>,
    /// How its body is framed; [`Framing::Chunked`] where its length is not known.
    pub(crate) framing: Framing,
    /// It opens a WebSocket.
    pub(crate) websocket: bool,
    /// The client waits for a 100 before it sends the body.
    pub(crate) expects_continue: bool,
    /// The client takes trailers.
    pub(crate) takes_trailers: bool,
    /// Authority and path as HTTP/2 takes them, where they came so: what stays as it is need not be read again.
    pub(crate) uri: Option<&'r http::Uri>,
}

impl Request<'_> {
    /// The host that is asked for, in lower case, without its port.
    pub(crate) fn host(&self) -> Cow<'_, str> {
        let authority = self.authority.unwrap_or_default();
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => host,
            _ => authority,
        };
        match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        }
    }

    /// Whether it is a gRPC call: errors are told in gRPC's own way then.
    pub(crate) fn is_grpc(&self) -> bool {
        self.lines.get("content-type").is_some_and(is_grpc)
    }

    /// Whether doing it twice is the same as doing it once (RFC 9110 §9.2.2).
    pub(crate) fn is_idempotent(&self) -> bool {
        matches!(
            self.method,
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
        ) && !self.websocket
    }
}

/// A request as routing sees it.
pub(crate) struct Seen<'s, 'r> {
    /// The request.
    pub(crate) request: &'s Request<'r>,
    /// Its host.
    pub(crate) host: &'s str,
    /// Its path, normalised.
    pub(crate) path: &'s str,
}

impl pointsman_routing::Request for Seen<'_, '_> {
    fn method(&self) -> &str {
        self.request.method
    }

    fn authority(&self) -> &str {
        self.host
    }

    fn path(&self) -> &str {
        self.path
    }

    fn query(&self) -> Option<&str> {
        self.request.query
    }

    fn header(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        // Host is not among the lines: it is the authority.
        let host = match name {
            "host" => self.request.authority.map(str::as_bytes),
            _ => None,
        };
        let lines = self.request.lines.pairs();
        host.into_iter().chain(
            lines
                .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
                .map(|(_, value)| value),
        )
    }
}

/// Whether a content type is gRPC's.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    content_type.starts_with(b"application/grpc")
}
