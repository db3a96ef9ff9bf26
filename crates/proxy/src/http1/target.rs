//! Parsing of request targets and authorities (RFC 9112 §3.2, RFC 3986).

use std::net::Ipv6Addr;

use super::error::MessageFault;
use super::field::Span;
use super::grammar::{PATH, QUERY, REG_NAME, all, ascii};

/// Supported forms of a request target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// `/path?query`.
    #[default]
    Origin,
    /// `http://authority/path?query`. Its authority takes precedence over Host.
    Absolute,
    /// `*`, or an absolute URI without a path, in a server-wide OPTIONS (RFC 9112 §3.2.4). There is no path to match.
    Asterisk,
}

/// The parts of a request target, as ranges of the buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestTarget {
    pub(super) form: TargetForm,
    pub(super) whole: Span,
    pub(super) scheme: Option<Span>,
    pub(super) authority: Option<Span>,
    pub(super) path: Span,
    pub(super) query: Option<Span>,
}

impl RequestTarget {
    /// Parses the target in the range `whole`.
    pub(super) fn read(
        method: &[u8],
        bytes: &[u8],
        whole: Span,
    ) -> Result<RequestTarget, MessageFault> {
        let start = whole.start as usize;
        let target = whole.get(bytes);
        if method == b"CONNECT" {
            return Err(MessageFault::Connect);
        }
        let options = method == b"OPTIONS";
        if target.first() == Some(&b'/') {
            let (path, query) = path_and_query(target, start)?;
            return Ok(RequestTarget {
                whole,
                path,
                query,
                ..RequestTarget::default()
            });
        }
        if target == b"*" {
            let form = TargetForm::Asterisk;
            let path = whole;
            return match options {
                true => Ok(RequestTarget {
                    form,
                    whole,
                    path,
                    ..RequestTarget::default()
                }),
                false => Err(MessageFault::BadTarget),
            };
        }
        let Some(scheme) = scheme(target) else {
            return Err(match is_authority(target) {
                true => MessageFault::AuthorityForm,
                false => MessageFault::BadTarget,
            });
        };
        let after = scheme + 3;
        let rest = &target[after..];
        let length = rest
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?'))
            .unwrap_or(rest.len());
        // RFC 9110 §4.2.1: "A recipient that processes such a URI reference [with an empty host] MUST reject it as invalid". §4.2.4: userinfo is likely used
        // "to obscure the authority", so it is rejected.
        if !is_authority(&rest[..length]) {
            return Err(MessageFault::BadHost);
        }
        let (path, query) = path_and_query(&rest[length..], start + after + length)?;
        let server_wide = options && path.start == path.end && query.is_none();
        Ok(RequestTarget {
            form: if server_wide {
                TargetForm::Asterisk
            } else {
                TargetForm::Absolute
            },
            whole,
            scheme: Some(Span::new(start, start + scheme)),
            authority: Some(Span::new(start + after, start + after + length)),
            path,
            query,
        })
    }
}

/// Returns the length of the scheme if the target begins with `http://` or `https://`.
fn scheme(target: &[u8]) -> Option<usize> {
    [&b"https"[..], b"http"]
        .into_iter()
        .find(|scheme| {
            let length = scheme.len();
            target.len() > length + 3
                && target[..length].eq_ignore_ascii_case(scheme)
                && target[length..].starts_with(b"://")
        })
        .map(<[u8]>::len)
}

/// Returns whether this is a valid path that begins with `/`.
pub(crate) fn is_path(path: &[u8]) -> bool {
    path.first() == Some(&b'/') && all(path, &PATH)
}

/// Returns whether this is a valid query (without `?`).
pub(crate) fn is_query(query: &[u8]) -> bool {
    all(query, &QUERY)
}

fn path_and_query(bytes: &[u8], start: usize) -> Result<(Span, Option<Span>), MessageFault> {
    let length = memchr::memchr(b'?', bytes).unwrap_or(bytes.len());
    let (path, query) = (&bytes[..length], bytes.get(length + 1..));
    if !all(path, &PATH) || !query.is_none_or(|query| all(query, &QUERY)) {
        return Err(MessageFault::BadTarget);
    }
    let end = start + bytes.len();
    let query = query.map(|query| Span::new(end - query.len(), end));
    Ok((Span::new(start, start + length), query))
}

/// Returns whether this is `uri-host [ ":" port ]` (RFC 9110 §7.2) with a non-empty host and without userinfo.
pub(crate) fn is_authority(authority: &[u8]) -> bool {
    if let Some(literal) = authority.strip_prefix(b"[") {
        let Some(end) = literal.iter().position(|byte| *byte == b']') else {
            return false;
        };
        let port = &literal[end + 1..];
        return ascii(&literal[..end]).parse::<Ipv6Addr>().is_ok()
            && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port));
    }
    let length = memchr::memchr(b':', authority).unwrap_or(authority.len());
    let (host, port) = authority.split_at(length);
    !host.is_empty()
        && all(host, &REG_NAME)
        && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
        && (!host.contains(&b'%') || escapes_are_whole(host))
}

/// Returns whether this is a valid port. RFC 3986 §3.2.3: `port = *DIGIT`. Numbers above 65535 are invalid.
fn is_port(port: &[u8]) -> bool {
    port.is_empty() || (port.iter().all(u8::is_ascii_digit) && ascii(port).parse::<u16>().is_ok())
}

fn escapes_are_whole(host: &[u8]) -> bool {
    host.iter().enumerate().all(|(at, byte)| {
        *byte != b'%'
            || host
                .get(at + 1..at + 3)
                .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Splits a valid authority into host and port.
pub(super) fn split_port(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
        _ => (authority, None),
    }
}
