//! Validation of HTTP/2 request heads, as strict as for HTTP/1. The `h2` crate has already rejected names in upper case, control characters in values,
//! connection-specific fields (RFC 9113 §8.2.2), and unknown, repeated, missing or misplaced pseudo-header fields.

use std::cell::OnceCell;
use std::time::Instant;

use h2::ext::Protocol;
use http::header::COOKIE;
use http::request::Parts;
use http::{HeaderMap, Method};
use pointsman_routing::is_method_in_another_case;

use crate::exchange::headers::{Header, Headers};
use crate::exchange::local_reply::LocalReply;
use crate::exchange::request::{DownstreamRequest, HttpVersion};
use crate::http1::{
    Error, Framing, KnownField, MessageFault, content_length, is_authority, is_path, is_query,
};
use crate::limits::Limits;

/// Maximum length of a method, as in HTTP/1.
const MAX_METHOD_BYTES: usize = 64;

/// A rejected head.
#[derive(Debug)]
pub(super) enum HeadError {
    /// Malformed (RFC 9113 §8.1.1): the stream is reset.
    Malformed,
    /// Rejected with a reply.
    LocalReply(LocalReply),
}

impl From<MessageFault> for HeadError {
    fn from(fault: MessageFault) -> Self {
        HeadError::LocalReply(LocalReply::from_http1(Error::Client(fault)))
    }
}

/// Validates a head, which was complete at `received`. `ended` is true if the stream has no body.
pub(super) fn read<'r>(
    parts: &'r Parts,
    ended: bool,
    cookies: &'r OnceCell<Vec<u8>>,
    limits: &Limits,
    received: Instant,
) -> Result<DownstreamRequest<'r>, HeadError> {
    let (method, websocket) = method(parts)?;
    let (path, query) = target(parts, limits)?;
    let fields = ParsedFields::read(&parts.headers, cookies, limits)?;
    let authority = authority(parts.uri.authority().map(|a| a.as_str()), fields.host)?;
    let framing = match fields.length {
        _ if websocket => Framing::None,
        Some(length) => Framing::Length(length),
        None if ended => Framing::None,
        None => Framing::Chunked,
    };
    if let (Framing::Length(length), Some(max_bytes)) = (framing, limits.body_bytes)
        && length > max_bytes
    {
        return Err(MessageFault::BodyTooLarge.into());
    }
    Ok(DownstreamRequest {
        version: HttpVersion::Http2,
        method,
        authority: Some(authority),
        path,
        query,
        headers: fields.headers,
        framing,
        websocket,
        expects_continue: fields.expects_continue && !ended,
        accepts_trailers: fields.accepts_trailers,
        uri: Some(&parts.uri),
        received,
    })
}

/// Returns the method, and whether the request opens a WebSocket. RFC 8441 §4: CONNECT with `:protocol` opens a WebSocket; routes match it as GET, as over HTTP/1.
fn method(parts: &Parts) -> Result<(&str, bool), HeadError> {
    let method = parts.method.as_str();
    if parts.method == Method::CONNECT {
        return match parts.extensions.get::<Protocol>() {
            Some(protocol) if protocol.as_str().eq_ignore_ascii_case("websocket") => {
                Ok(("GET", true))
            }
            Some(_) => {
                let message = "this protocol is not supported";
                Err(HeadError::LocalReply(LocalReply::new(
                    501,
                    "UnknownProtocol",
                    message,
                )))
            }
            None => Err(MessageFault::Connect.into()),
        };
    }
    if is_method_in_another_case(method) {
        return Err(MessageFault::MethodCase.into());
    }
    match method.len() > MAX_METHOD_BYTES {
        true => Err(MessageFault::MethodTooLong.into()),
        false => Ok((method, false)),
    }
}

/// Returns path and query. RFC 9113 §8.3.1: `:path` begins with `/`, except for a server-wide OPTIONS.
fn target<'r>(parts: &'r Parts, limits: &Limits) -> Result<(&'r str, Option<&'r str>), HeadError> {
    let target = parts.uri.path_and_query().ok_or(HeadError::Malformed)?;
    // `h2` represents a request without `:path` and `:authority` as an empty URI.
    if parts.uri.path().is_empty() {
        return Err(HeadError::Malformed);
    }
    if target.as_str().len() > limits.uri_bytes {
        return Err(MessageFault::TargetTooLong.into());
    }
    // `h2` drops the scheme if there is no authority.
    if !matches!(parts.uri.scheme_str(), None | Some("http" | "https")) {
        return Err(MessageFault::BadTarget.into());
    }
    let (path, query) = (target.path(), target.query());
    let server_wide = parts.method == Method::OPTIONS && target.as_str() == "*";
    let is_valid = is_path(path.as_bytes()) && query.is_none_or(|query| is_query(query.as_bytes()));
    match is_valid || server_wide {
        true => Ok((path, query)),
        false => Err(MessageFault::BadTarget.into()),
    }
}

/// Returns the requested host and port. RFC 9113 §8.3.1: "A server SHOULD treat a request as malformed if it contains a Host header field that identifies an
/// entity that differs from the entity in the ":authority" pseudo-header field", and "":authority" MUST NOT include the deprecated userinfo subcomponent".
fn authority<'r>(pseudo: Option<&'r str>, host: Option<&'r [u8]>) -> Result<&'r str, HeadError> {
    let authority = match (pseudo, host) {
        (Some(authority), Some(host)) if !authority.as_bytes().eq_ignore_ascii_case(host) => {
            let message = ":authority and host differ";
            return Err(HeadError::LocalReply(LocalReply::new(
                400,
                "HostMismatch",
                message,
            )));
        }
        (Some(authority), _) => authority,
        (None, Some(host)) => std::str::from_utf8(host).map_err(|_| MessageFault::BadHost)?,
        (None, None) => return Err(MessageFault::MissingHost.into()),
    };
    match is_authority(authority.as_bytes()) {
        true => Ok(authority),
        false => Err(MessageFault::BadHost.into()),
    }
}

/// The parsed header fields.
struct ParsedFields<'r> {
    headers: Headers<'r>,
    host: Option<&'r [u8]>,
    length: Option<u64>,
    expects_continue: bool,
    accepts_trailers: bool,
}

impl<'r> ParsedFields<'r> {
    fn read(
        headers: &'r HeaderMap,
        cookies: &'r OnceCell<Vec<u8>>,
        limits: &Limits,
    ) -> Result<Self, MessageFault> {
        if headers.len() > limits.headers {
            return Err(MessageFault::TooManyFields);
        }
        let mut fields = ParsedFields {
            headers: Headers::with_capacity(headers.len()),
            host: None,
            length: None,
            expects_continue: false,
            accepts_trailers: false,
        };
        let mut bytes = 0;
        let mut cookie_fields = 0;
        for (name, value) in headers {
            let (text, value) = (name.as_str().as_bytes(), value.as_bytes());
            // RFC 9113 §8.2.1: "A field value MUST NOT start or end with an ASCII whitespace character".
            if let ([b' ' | b'\t', ..], _) | (_, [.., b' ' | b'\t']) = (value, value) {
                return Err(MessageFault::BadFieldValue);
            }
            // The size in HTTP/1, with separator and line end.
            bytes += text.len() + value.len() + 4;
            match KnownField::of(text) {
                KnownField::Host if fields.host.is_some() => {
                    return Err(MessageFault::DuplicateHost);
                }
                KnownField::Host => fields.host = Some(value),
                KnownField::ContentLength => fields.content_length(value)?,
                KnownField::Te => fields.accepts_trailers = true,
                KnownField::Expect if !value.eq_ignore_ascii_case(b"100-continue") => {
                    return Err(MessageFault::BadExpectation);
                }
                KnownField::Expect => fields.expects_continue = true,
                known if known.is_hop_by_hop() => {}
                _ if name == COOKIE => cookie_fields += 1,
                _ => fields.headers.push(Header::known(name, value)),
            }
        }
        if bytes > limits.header_bytes {
            return Err(MessageFault::HeadTooLarge);
        }
        match cookie_fields {
            0 => {}
            1 => {
                let cookie = headers.get(COOKIE).map(|value| value.as_bytes());
                let cookie = cookie.unwrap_or_default();
                fields.headers.push(Header::known(&COOKIE, cookie));
            }
            // RFC 9113 §8.2.3: cookies in several fields "MUST be concatenated into a single octet string using the two-octet delimiter".
            _ => {
                let all = cookies.get_or_init(|| {
                    let cookie_fields: Vec<&[u8]> = headers
                        .get_all(COOKIE)
                        .iter()
                        .map(|value| value.as_bytes())
                        .collect();
                    cookie_fields.join(&b"; "[..])
                });
                fields.headers.push(Header::known(&COOKIE, all));
            }
        }
        Ok(fields)
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), MessageFault> {
        match (self.length, content_length(value)) {
            (None, Some(length)) => self.length = Some(length),
            _ => return Err(MessageFault::BadContentLength),
        }
        Ok(())
    }
}
