//! Request targets and authorities: RFC 9112 §3.2 and RFC 3986.

use std::net::Ipv6Addr;

use super::error::Fault;
use super::field::Span;
use super::grammar::{PATH, QUERY, REG_NAME, all, ascii};

/// The form of a request target that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// `/path?query`.
    #[default]
    Origin,
    /// `http://authority/path?query`. Its authority stands, whatever Host says.
    Absolute,
    /// `*`, or an absolute URI without a path, of OPTIONS: the server as a whole is meant (RFC 9112 §3.2.4). There is no path to route by.
    Asterisk,
}

/// Where the parts of a request target are in the buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Target {
    pub(super) form: Form,
    pub(super) whole: Span,
    pub(super) scheme: Option<Span>,
    pub(super) authority: Option<Span>,
    pub(super) path: Span,
    pub(super) query: Option<Span>,
}

impl Target {
    /// Reads the target that stands at `whole`.
    pub(super) fn read(method: &[u8], bytes: &[u8], whole: Span) -> Result<Target, Fault> {
        let start = whole.start as usize;
        let target = whole.get(bytes);
        if method == b"CONNECT" {
            return Err(Fault::Connect);
        }
        let options = method == b"OPTIONS";
        if target.first() == Some(&b'/') {
            let (path, query) = path_and_query(target, start)?;
            return Ok(Target {
                whole,
                path,
                query,
                ..Target::default()
            });
        }
        if target == b"*" {
            let form = Form::Asterisk;
            let path = whole;
            return match options {
                true => Ok(Target {
                    form,
                    whole,
                    path,
                    ..Target::default()
                }),
                false => Err(Fault::BadTarget),
            };
        }
        let Some(scheme) = scheme(target) else {
            return Err(match is_authority(target) {
                true => Fault::AuthorityForm,
                false => Fault::BadTarget,
            });
        };
        let after = scheme + 3;
        let rest = &target[after..];
        let length = rest
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?'))
            .unwrap_or(rest.len());
        // RFC 9110 §4.2.1: "A recipient that processes such a URI reference [with an empty host] MUST reject it as invalid"; §4.2.4:
        // userinfo is likely there "to obscure the authority" and is refused.
        if !is_authority(&rest[..length]) {
            return Err(Fault::BadHost);
        }
        let (path, query) = path_and_query(&rest[length..], start + after + length)?;
        let server_wide = options && path.start == path.end && query.is_none();
        Ok(Target {
            form: if server_wide {
                Form::Asterisk
            } else {
                Form::Absolute
            },
            whole,
            scheme: Some(Span::new(start, start + scheme)),
            authority: Some(Span::new(start + after, start + after + length)),
            path,
            query,
        })
    }
}

/// The length of the scheme, if the target begins with `http://` or `https://`.
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

/// Whether this is a path that begins with `/`.
pub(crate) fn is_path(path: &[u8]) -> bool {
    path.first() == Some(&b'/') && all(path, &PATH)
}

/// Whether this is a query, without its `?`.
pub(crate) fn is_query(query: &[u8]) -> bool {
    all(query, &QUERY)
}

fn path_and_query(bytes: &[u8], start: usize) -> Result<(Span, Option<Span>), Fault> {
    let length = memchr::memchr(b'?', bytes).unwrap_or(bytes.len());
    let (path, query) = (&bytes[..length], bytes.get(length + 1..));
    if !all(path, &PATH) || !query.is_none_or(|query| all(query, &QUERY)) {
        return Err(Fault::BadTarget);
    }
    let end = start + bytes.len();
    let query = query.map(|query| Span::new(end - query.len(), end));
    Ok((Span::new(start, start + length), query))
}

/// RFC 9110 §7.2: `Host = uri-host [ ":" port ]`, with a host that isn't empty and no userinfo.
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

/// RFC 3986 §3.2.3: `port = *DIGIT`; one that is too large for TCP is none.
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

/// Host and port of a valid authority.
pub(super) fn split_port(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
        _ => (authority, None),
    }
}
