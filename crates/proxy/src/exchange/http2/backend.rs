//! Requests to backends over HTTP/2.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::ext::Protocol;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version};

use super::super::backend::{ReceiveError, SendError, UpstreamRequest, UpstreamResponse};
use super::super::head::Head;
use super::super::headers::{Header, Headers};
use super::super::request::is_grpc;
use super::super::sink::Sink;
use super::super::source::Source;
use super::sink::Http2Sink;
use super::source::Http2Source;
use super::{SendState, fields};
use crate::http1::{self, Framing, MAX_INTERIM_RESPONSES, MessageFault, WriteError, is_forwarded};
use crate::upstream::http2::StreamLease;

/// A stream to a backend, before or during a request.
#[derive(Debug)]
pub(crate) struct Http2Stream {
    lease: StreamLease,
    sending: RefCell<SendState>,
}

/// A response received over HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2Response {
    response: ResponseFuture,
    status: StatusCode,
    headers: HeaderMap,
    body: Option<RecvStream>,
    /// The request was HEAD.
    head_only: bool,
    /// The request opens a WebSocket.
    websocket: bool,
    interims: usize,
    /// Maximum number of fields in a head.
    max_fields: usize,
}

impl Http2Stream {
    /// Uses a leased stream.
    pub(crate) fn new(lease: StreamLease) -> Self {
        Http2Stream {
            lease,
            sending: RefCell::new(SendState::None),
        }
    }

    /// Returns whether the connection has served a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.lease.is_reused()
    }

    pub(crate) fn begin(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        max_fields: usize,
    ) -> Result<(Sink<'_>, UpstreamResponse<'_>), SendError> {
        if upstream_request.websocket && !self.lease.supports_websockets() {
            return Err(SendError::NoWebSocket);
        }
        let ended = upstream_request.framing.is_empty() && !upstream_request.websocket;
        let (response, stream) = self.lease.send(request(upstream_request)?, ended)?;
        *self.sending.borrow_mut() = match ended {
            true => SendState::Finished,
            false => SendState::Body(stream),
        };
        let sink = Sink::Http2(Http2Sink::new(&self.sending, None));
        let response = UpstreamResponse::Http2(Box::new(Http2Response {
            response,
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: None,
            head_only: upstream_request.method == "HEAD",
            websocket: upstream_request.websocket,
            interims: 0,
            max_fields,
        }));
        Ok((sink, response))
    }
}

/// Converts a head for `h2`. RFC 9113 §8.3.1: Host becomes `:authority`.
fn request(upstream_request: &UpstreamRequest<'_>) -> Result<Request<()>, WriteError> {
    let mut map = fields::map(&upstream_request.headers, 2)?;
    if let Framing::Length(length) = upstream_request.framing
        && length > 0
    {
        map.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let grpc = upstream_request
        .headers
        .get("content-type")
        .is_some_and(is_grpc);
    if upstream_request.accepts_trailers || grpc {
        map.insert(TE, HeaderValue::from_static("trailers"));
    }
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(target(upstream_request)?);
    match upstream_request.headers.get("host") {
        Some(host) if !host.is_empty() => {
            parts.authority = Some(authority(upstream_request, host)?);
            parts.scheme = Some(match upstream_request.scheme {
                "https" => Scheme::HTTPS,
                _ => Scheme::HTTP,
            });
        }
        // HTTP/1.0 has no Host. For requests marked as HTTP/1.1, `h2` sends no `:authority`.
        _ => *request.version_mut() = Version::HTTP_11,
    }
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| WriteError::Target)?;
    if upstream_request.websocket {
        // RFC 8441 §5.
        *request.method_mut() = Method::CONNECT;
        map.remove("sec-websocket-key");
        let websocket = Protocol::from_static("websocket");
        request.extensions_mut().insert(websocket);
    } else {
        let method = Method::from_bytes(upstream_request.method.as_bytes());
        *request.method_mut() = method.map_err(|_| WriteError::Method)?;
    }
    *request.headers_mut() = map;
    Ok(request)
}

/// Returns the received authority, unless a filter has changed Host.
fn authority(upstream_request: &UpstreamRequest<'_>, host: &[u8]) -> Result<Authority, WriteError> {
    let received = upstream_request.uri.and_then(Uri::authority);
    match received.filter(|received| received.as_str().as_bytes() == host) {
        Some(received) => Ok(received.clone()),
        None => Authority::try_from(host).map_err(|_| WriteError::Target),
    }
}

/// Returns the received path and query, unless a filter has changed them.
fn target(upstream_request: &UpstreamRequest<'_>) -> Result<PathAndQuery, WriteError> {
    let query = upstream_request.query;
    let received = upstream_request.uri.and_then(Uri::path_and_query);
    if let Some(received) = received
        .filter(|received| received.path() == upstream_request.path && received.query() == query)
    {
        return Ok(received.clone());
    }
    let length = upstream_request.path.len() + query.map_or(0, |query| query.len() + 1);
    let mut target = Vec::with_capacity(length);
    target.extend_from_slice(upstream_request.path.as_bytes());
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query.as_bytes());
    }
    let target = Bytes::from(target);
    PathAndQuery::from_maybe_shared(target.clone()).or_else(|_| {
        // Browsers send some characters unescaped that the `http` crate rejects; they are escaped as RFC 3986 requires.
        let mut escaped = String::with_capacity(target.len() + 8);
        for byte in target.iter() {
            match byte {
                b'`' | b'^' | b'|' | b'{' | b'}' | b'\\' | b'[' | b']' => {
                    escaped.push_str(&format!("%{byte:02X}"));
                }
                byte => escaped.push(char::from(*byte)),
            }
        }
        PathAndQuery::try_from(escaped).map_err(|_| WriteError::Target)
    })
}

impl Http2Response {
    pub(crate) async fn next_head(&mut self) -> Result<bool, ReceiveError> {
        let response = poll_fn(|cx| {
            match ready!(self.response.poll_informational(cx)) {
                Some(Ok(interim)) => return Poll::Ready(Ok(interim.map(|()| None))),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => {}
            }
            let response = ready!(Future::poll(Pin::new(&mut self.response), cx));
            Poll::Ready(response.map(|response| response.map(Some)))
        });
        let (parts, body) = response.await.map_err(ReceiveError::of)?.into_parts();
        (self.status, self.headers, self.body) = (parts.status, parts.headers, body);
        if self.headers.len() > self.max_fields {
            return Err(http1::Error::Backend(MessageFault::TooManyFields).into());
        }
        if self.body.is_some() {
            return Ok(true);
        }
        self.interims += 1;
        // RFC 9113 §8.6: "HTTP/2 does not support the 101 (Switching Protocols) informational status code".
        if self.interims > MAX_INTERIM_RESPONSES || self.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(http1::Error::Backend(MessageFault::UnexpectedInterim).into());
        }
        Ok(false)
    }

    pub(crate) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    pub(crate) fn head(&self) -> Head<'_> {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| Header::known(name, value.as_bytes()));
        // `h2` has rejected malformed values.
        let content_length = self.headers.get(CONTENT_LENGTH);
        let content_length = content_length.and_then(|value| value.to_str().ok()?.parse().ok());
        let ended = self.body.as_ref().is_none_or(RecvStream::is_end_stream);
        let status = self.status.as_u16();
        let framing = match content_length {
            _ if self.head_only || matches!(status, 204 | 304) => Framing::None,
            _ if ended => Framing::Length(0),
            // Trailers may follow an empty body.
            None | Some(0) => Framing::Chunked,
            Some(length) => Framing::Length(length),
        };
        Head {
            status,
            reason: None,
            headers: Headers::new(headers.filter(|header| is_forwarded(header.name))),
            framing,
            content_length,
        }
    }

    /// Returns whether the response opens the WebSocket.
    pub(crate) fn is_websocket_upgrade(&self) -> bool {
        self.websocket && self.status.is_success()
    }

    pub(crate) fn body(&mut self) -> Source<'_> {
        match self.body.take() {
            Some(body) => Source::Http2(Http2Source::new(body, None)),
            None => Source::Empty,
        }
    }
}

impl ReceiveError {
    /// Classifies a stream error. RFC 9113 §8.7: a request was not processed if its stream was refused, or is above the last stream of a GOAWAY; `h2` fails only
    /// those streams with the GOAWAY's error.
    fn of(error: h2::Error) -> Self {
        let refused = error.reason() == Some(Reason::REFUSED_STREAM) && error.is_reset();
        match error.is_remote() && (refused || error.is_go_away()) {
            true => ReceiveError::Refused(error),
            false => ReceiveError::Http2(error),
        }
    }
}
