//! The properties of requests that are matched. A trait keeps routing independent of an HTTP library.

use std::borrow::Cow;
use std::cell::OnceCell;

/// Head of a request.
pub trait Request {
    /// Returns the method, as sent.
    fn method(&self) -> &str;
    /// Returns the requested host in lower case, without port.
    fn authority(&self) -> &str;
    /// Returns the normalized path ([`crate::normalize_path`]), without the query.
    fn path(&self) -> &str;
    /// Returns the query without `?`, as sent.
    fn query(&self) -> Option<&str>;
    /// Returns the values of a header, in order. `name` is in lower case; names in the request may be in any case.
    fn header(&self, name: &str) -> impl Iterator<Item = &[u8]>;
}

impl<R: Request> Request for &R {
    fn method(&self) -> &str {
        (**self).method()
    }
    fn authority(&self) -> &str {
        (**self).authority()
    }
    fn path(&self) -> &str {
        (**self).path()
    }
    fn query(&self) -> Option<&str> {
        (**self).query()
    }
    fn header(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        (**self).header(name)
    }
}

/// A request with its query, which is parsed on first use.
pub(crate) struct MatchContext<'r, R> {
    pub(crate) request: &'r R,
    query: OnceCell<Parameters<'r>>,
}

impl<'r, R: Request> MatchContext<'r, R> {
    pub(crate) fn new(request: &'r R) -> Self {
        MatchContext {
            request,
            query: OnceCell::new(),
        }
    }

    /// Returns the value of a query parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let query = self.request.query()?;
        self.query
            .get_or_init(|| Parameters::parse(query))
            .get(name)
    }
}

/// The parameters of a query string. Names and values are percent-decoded, and `+` is a space.
///
/// The specification leaves repeated names to implementations: the first value is used.
#[derive(Debug)]
pub struct Parameters<'q>(Vec<(Cow<'q, str>, Cow<'q, str>)>);

impl<'q> Parameters<'q> {
    /// Parses a query string (without `?`).
    pub fn parse(query: &'q str) -> Self {
        let mut parameters: Vec<_> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (form_decoded(name), form_decoded(value))
            })
            .collect();
        // Sorted for binary search, so that long malicious queries stay cheap. The sort is stable, which keeps the first of repeated names first.
        parameters.sort_by(|a, b| a.0.cmp(&b.0));
        parameters.dedup_by(|later, first| later.0 == first.0);
        Parameters(parameters)
    }

    /// Returns the value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self
            .0
            .binary_search_by(|(other, _)| (**other).cmp(name))
            .ok()?;
        Some(&self.0[at].1)
    }
}

/// Decodes `%XX` and `+`. Invalid escapes are kept, and invalid UTF-8 becomes U+FFFD.
fn form_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], crate::path::escape(&bytes[at..])) {
            (_, Some(byte)) => {
                decoded.push(byte);
                at += 3;
                continue;
            }
            (b'+', None) => decoded.push(b' '),
            (byte, None) => decoded.push(byte),
        }
        at += 1;
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

/// The methods of the IANA registry (RFC 9110 §16.1), sorted.
const REGISTERED_METHODS: [&str; 40] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// Returns whether a method differs from a registered one only in case; such a request gets 400. RFC 9110 §9.1: "The method token is case-sensitive", but
/// some backends treat `delete` as DELETE, which rules for DELETE do not match, or respond to `head` without a body.
pub fn is_method_in_another_case(method: &str) -> bool {
    let mut registered = REGISTERED_METHODS.iter();
    method.bytes().any(|byte| byte.is_ascii_lowercase())
        && registered.any(|other| method.eq_ignore_ascii_case(other))
}

/// Returns whether the first bytes of a connection look like an HTTP request: a method and a space.
pub fn is_http(bytes: &[u8]) -> bool {
    let method = bytes.iter().position(|byte| *byte == b' ');
    method
        .is_some_and(|end| (3..8).contains(&end) && bytes[..end].iter().all(u8::is_ascii_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_method_in_another_case_is_recognized() {
        for method in ["get", "Get", "hEAD", "delete", "connect", "version-Control"] {
            assert!(is_method_in_another_case(method), "{method}");
        }
        for method in ["GET", "VERSION-CONTROL", "purge", "Foo", "gets", ""] {
            assert!(!is_method_in_another_case(method), "{method}");
        }
    }

    #[test]
    fn names_and_values_are_decoded_and_the_first_of_a_name_counts() {
        let parameters = Parameters::parse("b=2&a=1&a=3&sp%61ce=x+y%2B&flag&&bad=%zz");
        let wanted = [
            ("a", Some("1")),
            ("b", Some("2")),
            ("space", Some("x y+")),
            ("flag", Some("")),
            ("bad", Some("%zz")),
            ("A", None),
            ("", None),
        ];
        for (name, value) in wanted {
            assert_eq!(parameters.get(name), value, "{name}");
        }
    }
}
