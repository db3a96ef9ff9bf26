//! Requests of clients over either version of HTTP, and their normalized form for routing.

use std::borrow::Cow;
use std::time::Instant;

use super::headers::Headers;
use crate::http1::Framing;

/// The client's version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http10,
    Http11,
    Http2,
}

impl HttpVersion {
    /// Returns the name in access logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            HttpVersion::Http10 => "HTTP/1.0",
            HttpVersion::Http11 => "HTTP/1.1",
            HttpVersion::Http2 => "HTTP/2",
        }
    }
}

/// Head of a client's request.
#[derive(Debug)]
pub(crate) struct DownstreamRequest<'r> {
    pub(crate) version: HttpVersion,
    /// The method; GET for a WebSocket over HTTP/2, as over HTTP/1.
    pub(crate) method: &'r str,
    /// Host and port, as sent.
    pub(crate) authority: Option<&'r str>,
    /// The path, as sent.
    pub(crate) path: &'r str,
    /// The query without `?`, as sent.
    pub(crate) query: Option<&'r str>,
    /// End-to-end header fields, without Host.
    pub(crate) headers: Headers<'r>,
    /// Framing of the body; [`Framing::Chunked`] if its length is unknown.
    pub(crate) framing: Framing,
    /// The request opens a WebSocket.
    pub(crate) websocket: bool,
    /// The client waits for 100 (Continue) before it sends the body.
    pub(crate) expects_continue: bool,
    /// The client accepts trailers.
    pub(crate) accepts_trailers: bool,
    /// Parsed authority and path of a request received over HTTP/2, reused if no filter changes them.
    pub(crate) uri: Option<&'r http::Uri>,
    /// Time when the head was complete, which is the start of the first attempt, because routing never waits.
    pub(crate) received: Instant,
}

impl DownstreamRequest<'_> {
    /// Returns the requested host in lower case, without port.
    pub(crate) fn host(&self) -> Cow<'_, str> {
        let authority = self.authority.unwrap_or_default();
        // A colon before a bracket is part of an IPv6 address.
        let mut bytes = authority.bytes();
        let host = match bytes.rposition(|byte| matches!(byte, b':' | b']')) {
            Some(at) if authority.as_bytes()[at] == b':' => &authority[..at],
            _ => authority,
        };
        match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        }
    }

    /// Returns whether this is a gRPC call, which gets errors as a gRPC status.
    pub(crate) fn is_grpc(&self) -> bool {
        self.headers.get("content-type").is_some_and(is_grpc)
    }

    /// Returns whether the method is idempotent (RFC 9110 §9.2.2).
    pub(crate) fn is_idempotent(&self) -> bool {
        matches!(
            self.method,
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
        ) && !self.websocket
    }
}

/// A request with normalized host and path, as the routing tables match it.
pub(crate) struct NormalizedRequest<'s, 'r> {
    pub(crate) request: &'s DownstreamRequest<'r>,
    pub(crate) host: &'s str,
    pub(crate) path: &'s str,
}

impl pointsman_routing::Request for NormalizedRequest<'_, '_> {
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
        // Host is not among the headers: it is the authority.
        let host = match name {
            "host" => self.request.authority.map(str::as_bytes),
            _ => None,
        };
        let headers = self.request.headers.pairs();
        host.into_iter().chain(
            headers
                .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
                .map(|(_, value)| value),
        )
    }
}

/// Returns whether a content type is gRPC's.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    content_type.starts_with(b"application/grpc")
}
