//! Redirects: the `Location` that is answered.

use std::sync::Arc;

use pointsman_resources::route::RequestRedirect;

use super::rewrite::PathRewrite;

/// A redirect, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The status of the answer.
    pub status: u16,
    scheme: Option<Arc<str>>,
    hostname: Option<Arc<str>>,
    port: Option<u16>,
    path: Option<PathRewrite>,
}

/// What a redirect takes from the request and its listener where it does not say otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Requested<'r> {
    /// `http` or `https`.
    pub scheme: &'r str,
    /// The host, without a port. An IPv6 address with or without brackets.
    pub host: &'r str,
    /// The listener's port.
    pub port: u16,
    /// What is added to the ports of this host: listeners are so much above what they say.
    pub offset: u16,
    /// The path.
    pub path: &'r str,
    /// The query.
    pub query: Option<&'r str>,
}

impl Redirect {
    /// Compiles the filter of a rule whose match is this prefix.
    pub fn compile(redirect: &RequestRedirect, prefix: Option<&str>) -> Self {
        Redirect {
            status: redirect.status_code,
            scheme: redirect.scheme.as_deref().map(Into::into),
            hostname: redirect.hostname.as_deref().map(Into::into),
            port: redirect.port,
            path: redirect
                .path
                .as_ref()
                .and_then(|path| PathRewrite::compile(path, prefix)),
        }
    }

    /// The value of `Location`.
    pub fn location(&self, requested: &Requested<'_>) -> String {
        let scheme = self.scheme.as_deref().unwrap_or(requested.scheme);
        let host = self.hostname.as_deref().unwrap_or(requested.host);
        // "If no port is specified": the well-known port of the redirect's scheme if it has one, else the listener's.
        let port = match (self.port, &self.scheme) {
            (Some(port), _) => Some(port),
            (None, Some(scheme)) => default_port(scheme),
            (None, None) => Some(requested.port),
        };
        let moved = |port: u16| port.checked_add(requested.offset).unwrap_or(port);
        let port = match self.hostname {
            None => port.map(moved),
            Some(_) => port,
        };
        // "Implementations SHOULD NOT add the port" that the scheme has by default.
        let port = port.filter(|port| default_port(scheme) != Some(*port));
        let path = self.path.as_ref().map(|path| path.apply(requested.path));
        let path = path.as_deref().unwrap_or(requested.path);

        let mut location = format!("{scheme}://");
        if host.contains(':') && !host.starts_with('[') {
            location.extend(["[", host, "]"]);
        } else {
            location.push_str(host);
        }
        if let Some(port) = port {
            location.push_str(&format!(":{port}"));
        }
        location.push_str(path);
        if let Some(query) = requested.query {
            location.extend(["?", query]);
        }
        location
    }
}

/// The port that a scheme has when none is written.
pub fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(scheme: Option<&str>, port: Option<u16>, listener: (&str, u16)) -> String {
        let redirect = RequestRedirect {
            scheme: scheme.map(str::to_owned),
            hostname: Some("example.org".into()),
            path: None,
            port,
            status_code: 302,
        };
        let requested = Requested {
            scheme: listener.0,
            host: "h",
            port: listener.1,
            offset: 0,
            path: "/x",
            query: None,
        };
        Redirect::compile(&redirect, None).location(&requested)
    }

    /// HTTPRouteRedirectPortAndScheme.
    #[test]
    fn the_port_is_that_of_the_redirect_then_of_its_scheme_then_of_the_listener() {
        let table = [
            (None, None, ("http", 80), "http://example.org/x"),
            (None, Some(80), ("http", 80), "http://example.org/x"),
            (None, Some(8080), ("http", 80), "http://example.org:8080/x"),
            (Some("https"), None, ("http", 80), "https://example.org/x"),
            (
                Some("https"),
                Some(443),
                ("http", 80),
                "https://example.org/x",
            ),
            (
                Some("https"),
                Some(8443),
                ("http", 80),
                "https://example.org:8443/x",
            ),
            (None, None, ("http", 8080), "http://example.org:8080/x"),
            (None, Some(80), ("http", 8080), "http://example.org/x"),
            (Some("https"), None, ("http", 8080), "https://example.org/x"),
            (None, None, ("https", 443), "https://example.org/x"),
            (None, Some(443), ("https", 443), "https://example.org/x"),
            (
                None,
                Some(8443),
                ("https", 443),
                "https://example.org:8443/x",
            ),
            (Some("http"), None, ("https", 443), "http://example.org/x"),
            (
                Some("http"),
                Some(80),
                ("https", 443),
                "http://example.org/x",
            ),
            (
                Some("http"),
                Some(8080),
                ("https", 443),
                "http://example.org:8080/x",
            ),
        ];
        for (scheme, port, listener, wanted) in table {
            assert_eq!(
                location(scheme, port, listener),
                wanted,
                "{scheme:?} {port:?} {listener:?}"
            );
        }
    }

    #[test]
    fn what_a_redirect_leaves_out_is_the_requests() {
        let redirect = RequestRedirect {
            scheme: None,
            hostname: None,
            path: None,
            port: None,
            status_code: 301,
        };
        let requested = Requested {
            scheme: "http",
            host: "2001:db8::1",
            port: 8080,
            offset: 0,
            path: "/a/b",
            query: Some("q=1"),
        };
        let location = Redirect::compile(&redirect, None).location(&requested);
        assert_eq!(location, "http://[2001:db8::1]:8080/a/b?q=1");
    }
}
