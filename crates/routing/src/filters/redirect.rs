//! The redirect filter: status and `Location`.

use std::sync::Arc;

use pointsman_binding::bound::{Dialect, FrontendId};
use pointsman_resources::Kind;
use pointsman_resources::route::RequestRedirect;

use super::rewrite::PathRewrite;

/// A compiled redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Status of the response.
    pub status: u16,
    scheme: Option<Arc<str>>,
    hostname: Option<Arc<str>>,
    port: Option<u16>,
    path: Option<PathRewrite>,
}

/// The rules for parts that a redirect does not specify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectDefaults {
    /// Those of the Gateway API: the port is that of the redirect's scheme, otherwise the listener's.
    GatewayApi,
    /// Those of a MeshGateway of Kuma: "query stripped, unset port := listener port", except for a redirect to the other scheme, which that port does not
    /// serve.
    MeshGateway,
    /// Those of a sidecar of Kuma: "unset port/path/query kept", as the client sent them.
    Sidecar,
}

impl RedirectDefaults {
    /// Returns the rules for a frontend.
    pub fn of(frontend: &FrontendId) -> Self {
        match frontend {
            FrontendId::Listener { owner, .. } if owner.kind == Kind::MeshGateway => {
                RedirectDefaults::MeshGateway
            }
            FrontendId::Outbound(_) => RedirectDefaults::Sidecar,
            FrontendId::Listener { .. } | FrontendId::Mesh { .. } => RedirectDefaults::GatewayApi,
        }
    }
}

/// Properties of the request and its listener, for parts that a redirect does not specify.
#[derive(Clone, Copy, Debug)]
pub struct RedirectContext<'r> {
    /// The rules for unspecified parts.
    pub defaults: RedirectDefaults,
    /// `http` or `https`.
    pub scheme: &'r str,
    /// Host without port. An IPv6 address may have brackets.
    pub host: &'r str,
    /// Port in the client's Host header.
    pub written_port: Option<u16>,
    /// Port of the listener.
    pub port: u16,
    /// Difference between the port that the listener is bound to and its own port. It is added to ports of this host.
    pub offset: u16,
    /// The path.
    pub path: &'r str,
    /// The query.
    pub query: Option<&'r str>,
}

impl Redirect {
    /// Compiles the filter. `prefix` is that of the rule's only match.
    pub fn compile(redirect: &RequestRedirect, prefix: Option<&str>, dialect: Dialect) -> Self {
        Redirect {
            status: redirect.status_code,
            scheme: redirect.scheme.as_deref().map(Into::into),
            hostname: redirect.hostname.as_deref().map(Into::into),
            port: redirect.port,
            path: redirect
                .path
                .as_ref()
                .and_then(|path| PathRewrite::compile(path, prefix, dialect)),
        }
    }

    /// Returns the value of `Location`.
    pub fn location(&self, context: &RedirectContext<'_>) -> String {
        let scheme = self.scheme.as_deref().unwrap_or(context.scheme);
        let host = self.hostname.as_deref().unwrap_or(context.host);
        let with_offset = |port: u16| match self.hostname {
            None => port.checked_add(context.offset).unwrap_or(port),
            Some(_) => port,
        };
        let port = match (context.defaults, self.port) {
            (RedirectDefaults::Sidecar, Some(port)) => Some(port),
            (RedirectDefaults::Sidecar, None) => {
                let written = context.written_port;
                let is_not_default = |port: &u16| default_port(context.scheme) != Some(*port);
                written.filter(|port| self.hostname.is_none() && is_not_default(port))
            }
            (_, Some(port)) => Some(with_offset(port)),
            // "If no port is specified": the well-known port of the redirect's scheme if it has one, else the listener's.
            (RedirectDefaults::GatewayApi, None) if self.scheme.is_some() => {
                default_port(scheme).map(with_offset)
            }
            (RedirectDefaults::MeshGateway, None) if scheme != context.scheme => {
                default_port(scheme).map(with_offset)
            }
            (_, None) => Some(with_offset(context.port)),
        };
        // "Implementations SHOULD NOT add the port" that the scheme has by default.
        let port = port.filter(|port| default_port(scheme) != Some(*port));
        let path = self.path.as_ref().map(|path| path.apply(context.path));
        let path = path.as_deref().unwrap_or(context.path);

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
        let kept = context.defaults != RedirectDefaults::MeshGateway;
        if let Some(query) = context.query.filter(|_| kept) {
            location.extend(["?", query]);
        }
        location
    }
}

/// Returns the default port of a scheme.
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
        let context = RedirectContext {
            defaults: RedirectDefaults::GatewayApi,
            scheme: listener.0,
            host: "h",
            written_port: None,
            port: listener.1,
            offset: 0,
            path: "/x",
            query: None,
        };
        Redirect::compile(&redirect, None, Dialect::GatewayApi).location(&context)
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
    fn unspecified_parts_of_a_redirect_are_those_of_the_request() {
        let redirect = RequestRedirect {
            scheme: None,
            hostname: None,
            path: None,
            port: None,
            status_code: 301,
        };
        let context = RedirectContext {
            defaults: RedirectDefaults::GatewayApi,
            scheme: "http",
            host: "2001:db8::1",
            written_port: None,
            port: 8080,
            offset: 0,
            path: "/a/b",
            query: Some("q=1"),
        };
        let location = Redirect::compile(&redirect, None, Dialect::GatewayApi).location(&context);
        assert_eq!(location, "http://[2001:db8::1]:8080/a/b?q=1");
    }
    /// "Sidecar: unset port/path/query kept. Gateway: query stripped, unset port := listener port."
    #[test]
    fn kuma_redirects_treat_unspecified_parts_by_their_frontend() {
        use RedirectDefaults::{MeshGateway, Sidecar};
        let table = [
            // The defaults, the port that the client wrote, the redirect's scheme, hostname and port.
            (Sidecar, None, (None, None, None), "http://h/x?q"),
            (Sidecar, Some(99), (None, None, None), "http://h:99/x?q"),
            (
                Sidecar,
                Some(80),
                (Some("https"), None, None),
                "https://h/x?q",
            ),
            (
                Sidecar,
                Some(99),
                (Some("https"), None, None),
                "https://h:99/x?q",
            ),
            (
                Sidecar,
                Some(99),
                (None, Some("o.example"), None),
                "http://o.example/x?q",
            ),
            (Sidecar, Some(99), (None, None, Some(81)), "http://h:81/x?q"),
            (MeshGateway, Some(99), (None, None, None), "http://h:8080/x"),
            (
                MeshGateway,
                None,
                (None, Some("o.example"), None),
                "http://o.example:8080/x",
            ),
            (
                MeshGateway,
                None,
                (Some("http"), None, None),
                "http://h:8080/x",
            ),
            (
                MeshGateway,
                None,
                (Some("https"), None, None),
                "https://h/x",
            ),
            (
                MeshGateway,
                None,
                (Some("https"), None, Some(8443)),
                "https://h:8443/x",
            ),
        ];
        for (defaults, written_port, (scheme, hostname, port), wanted) in table {
            let redirect = RequestRedirect {
                scheme: scheme.map(str::to_owned),
                hostname: hostname.map(str::to_owned),
                path: None,
                port,
                status_code: 302,
            };
            let context = RedirectContext {
                defaults,
                scheme: "http",
                host: "h",
                written_port,
                port: 8080,
                offset: 0,
                path: "/x",
                query: Some("q"),
            };
            let location =
                Redirect::compile(&redirect, None, Dialect::GatewayApi).location(&context);
            assert_eq!(location, wanted, "{defaults:?} {redirect:?}");
        }
    }
}
