//! A stream to a backend that speaks HTTP/2.

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

use super::super::backend::{BackendError, BeginError, Came, Outbound, Returning};
use super::super::lines::{Line, Lines};
use super::super::sink::Sink;
use super::super::source::Source;
use super::sink::Outgoing;
use super::source::Incoming;
use super::{Sending, fields};
use crate::http1::{self, Fault, Framing, MOST_INTERIMS, WriteError, is_forwarded};
use crate::upstream::http2::StreamLease;

/// A stream to a backend, before or while it carries a request.
#[derive(Debug)]
pub(crate) struct Http2Backend {
    lease: StreamLease,
    sending: RefCell<Sending>,
}

/// What comes back over HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2Returning {
    response: ResponseFuture,
    status: StatusCode,
    headers: HeaderMap,
    body: Option<RecvStream>,
    /// It was asked for the head alone.
    head_only: bool,
    /// It was asked for a WebSocket.
    websocket: bool,
    interims: usize,
    /// Fields that a head may have.
    most_fields: usize,
}

impl Http2Backend {
    /// Room for a stream on a connection.
    pub(crate) fn new(lease: StreamLease) -> Self {
        Http2Backend {
            lease,
            sending: RefCell::new(Sending::None),
        }
    }

    /// Whether the connection has carried a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.lease.is_reused()
    }

    pub(crate) fn begin(
        &mut self,
        outbound: &Outbound<'_>,
        most_fields: usize,
    ) -> Result<(Sink<'_>, Returning<'_>), BeginError> {
        if outbound.websocket && !self.lease.supports_websockets() {
            return Err(BeginError::NoWebSocket);
        }
        let ended = outbound.framing.is_empty() && !outbound.websocket;
        let (response, stream) = self.lease.send(request(outbound)?, ended)?;
        *self.sending.borrow_mut() = match ended {
            true => Sending::Over,
            false => Sending::Body(stream),
        };
        let sink = Sink::Http2(Outgoing::new(&self.sending, None));
        let returning = Returning::Http2(Box::new(Http2Returning {
            response,
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: None,
            head_only: outbound.method == "HEAD",
            websocket: outbound.websocket,
            interims: 0,
            most_fields,
        }));
        Ok((sink, returning))
    }
}

/// A request's head as `h2` takes it. RFC 9113 §8.3.1: Host becomes `:authority`.
fn request(outbound: &Outbound<'_>) -> Result<Request<()>, WriteError> {
    let mut map = fields::map(&outbound.lines, 2)?;
    if let Framing::Length(length) = outbound.framing
        && length > 0
    {
        map.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let grpc = outbound
        .lines
        .get("content-type")
        .is_some_and(|value| value.starts_with(b"application/grpc"));
    if outbound.takes_trailers || grpc {
        map.insert(TE, HeaderValue::from_static("trailers"));
    }
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(target(outbound)?);
    match outbound.lines.get("host") {
        Some(host) if !host.is_empty() => {
            parts.authority = Some(authority(outbound, host)?);
            parts.scheme = Some(match outbound.scheme {
                "https" => Scheme::HTTPS,
                _ => Scheme::HTTP,
            });
        }
        // HTTP/1.0 has no Host; said to be of that kind, the request goes without `:authority`.
        _ => *request.version_mut() = Version::HTTP_11,
    }
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| WriteError::Target)?;
    if outbound.websocket {
        // RFC 8441 §5.
        *request.method_mut() = Method::CONNECT;
        map.remove("sec-websocket-key");
        let websocket = Protocol::from_static("websocket");
        request.extensions_mut().insert(websocket);
    } else {
        let method = Method::from_bytes(outbound.method.as_bytes());
        *request.method_mut() = method.map_err(|_| WriteError::Method)?;
    }
    *request.headers_mut() = map;
    Ok(request)
}

/// The authority: the one that came, unless a filter has made it another.
fn authority(outbound: &Outbound<'_>, host: &[u8]) -> Result<Authority, WriteError> {
    let came = outbound.uri.and_then(Uri::authority);
    match came.filter(|came| came.as_str().as_bytes() == host) {
        Some(came) => Ok(came.clone()),
        None => Authority::try_from(host).map_err(|_| WriteError::Target),
    }
}

/// Path and query: those that came, unless they were changed on their way.
fn target(outbound: &Outbound<'_>) -> Result<PathAndQuery, WriteError> {
    let query = outbound.query;
    let came = outbound.uri.and_then(Uri::path_and_query);
    if let Some(came) = came.filter(|came| came.path() == outbound.path && came.query() == query) {
        return Ok(came.clone());
    }
    let length = outbound.path.len() + query.map_or(0, |query| query.len() + 1);
    let mut target = Vec::with_capacity(length);
    target.extend_from_slice(outbound.path.as_bytes());
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query.as_bytes());
    }
    let target = Bytes::from(target);
    PathAndQuery::from_maybe_shared(target.clone()).or_else(|_| {
        // Characters that browsers send as they are and that `http` does not take: they are sent as RFC 3986 would have them.
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

impl Http2Returning {
    pub(crate) async fn next(&mut self) -> Result<bool, BackendError> {
        let response = poll_fn(|cx| {
            match ready!(self.response.poll_informational(cx)) {
                Some(Ok(interim)) => return Poll::Ready(Ok(interim.map(|()| None))),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => {}
            }
            let response = ready!(Future::poll(Pin::new(&mut self.response), cx));
            Poll::Ready(response.map(|response| response.map(Some)))
        });
        let (parts, body) = response.await.map_err(BackendError::of)?.into_parts();
        (self.status, self.headers, self.body) = (parts.status, parts.headers, body);
        if self.headers.len() > self.most_fields {
            return Err(http1::Error::Backend(Fault::TooManyFields).into());
        }
        if self.body.is_some() {
            return Ok(true);
        }
        self.interims += 1;
        // RFC 9113 §8.6: "HTTP/2 does not support the 101 (Switching Protocols) informational status code".
        if self.interims > MOST_INTERIMS || self.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(http1::Error::Backend(Fault::UnexpectedInterim).into());
        }
        Ok(false)
    }

    pub(crate) fn came(&self) -> Came<'_> {
        let lines = self.headers.iter();
        let lines = lines.map(|(name, value)| Line::known(name, value.as_bytes()));
        // What is no number was refused when it came.
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
        Came {
            status,
            reason: None,
            lines: Lines::new(lines.filter(|line| is_forwarded(line.name))),
            framing,
            content_length,
        }
    }

    /// Whether the stream is a WebSocket from here on.
    pub(crate) fn is_switch(&self) -> bool {
        self.websocket && self.status.is_success()
    }

    pub(crate) fn body(&mut self) -> Source<'_> {
        match self.body.take() {
            Some(body) => Source::Http2(Incoming::new(body, None)),
            None => Source::Empty,
        }
    }
}

impl BackendError {
    /// What an error of a stream means. RFC 9113 §8.7: a request is known not to have been processed if its stream was refused, or lies beyond the last one that a
    /// GOAWAY names; `h2` gives the GOAWAY's error to those alone.
    fn of(error: h2::Error) -> Self {
        let refused = error.reason() == Some(Reason::REFUSED_STREAM) && error.is_reset();
        match error.is_remote() && (refused || error.is_go_away()) {
            true => BackendError::Refused(error),
            false => BackendError::Http2(error),
        }
    }
}
