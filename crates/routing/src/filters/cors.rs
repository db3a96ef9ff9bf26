//! The CORS filter.

use pointsman_resources::route::Cors;

use super::redirect::default_port;

/// A compiled CORS filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsPolicy {
    origins: Vec<OriginPattern>,
    credentials: bool,
    methods: Allowed,
    headers: Allowed,
    /// Value of `access-control-expose-headers`.
    expose: Option<String>,
    max_age: String,
}

/// Methods or headers that a preflight allows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    /// Only those that need no permission.
    Nothing,
    /// The listed ones.
    List(String),
    /// All.
    Everything,
}

impl Allowed {
    fn compile(names: &[String]) -> Self {
        match names {
            [] => Allowed::Nothing,
            names if names.iter().any(|name| name == "*") => Allowed::Everything,
            names => Allowed::List(names.join(", ")),
        }
    }

    /// Returns the value to allow. "must not return `*`" with credentials: the requested value is returned instead.
    fn allow_value<'a>(&'a self, request: Option<&'a str>, credentials: bool) -> Option<&'a str> {
        match self {
            Allowed::Nothing => None,
            Allowed::List(list) => Some(list),
            Allowed::Everything if credentials => request,
            Allowed::Everything => Some("*"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OriginPattern {
    Any,
    Some {
        scheme: String,
        host: HostPattern,
        port: Option<u16>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Any,
    Exact(String),
    /// `.bar.com` for `*.bar.com`, which matches any number of labels.
    Below(String),
}

/// Response header fields of CORS, borrowed from the policy and the request.
pub type CorsHeaders<'r> = Vec<(&'static str, &'r str)>;

/// The result of a CORS policy for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsResult<'r> {
    /// A preflight request, which gets a 204 with these headers; they are empty if the origin is not allowed.
    Preflight(CorsHeaders<'r>),
    /// Any other cross-origin request, whose response gets these headers.
    Simple(CorsHeaders<'r>),
}

/// The parts of a request that CORS evaluates.
#[derive(Clone, Copy, Debug)]
pub struct CorsRequest<'r> {
    /// The method.
    pub method: &'r str,
    /// `origin`
    pub origin: Option<&'r str>,
    /// `access-control-request-method`
    pub request_method: Option<&'r str>,
    /// `access-control-request-headers`
    pub request_headers: Option<&'r str>,
}

impl CorsPolicy {
    /// Compiles the filter.
    pub fn compile(cors: &Cors) -> Self {
        let credentials = cors.allow_credentials == Some(true);
        let expose = match Allowed::compile(&cors.expose_headers) {
            Allowed::List(list) => Some(list),
            Allowed::Everything if !credentials => Some("*".to_owned()),
            _ => None,
        };
        CorsPolicy {
            origins: cors
                .allow_origins
                .iter()
                .map(|text| OriginPattern::compile(text))
                .collect(),
            credentials,
            methods: Allowed::compile(&cors.allow_methods),
            headers: Allowed::compile(&cors.allow_headers),
            expose,
            max_age: cors.max_age.to_string(),
        }
    }

    /// Evaluates a request. Returns `None` if it is not a cross-origin request.
    pub fn evaluate<'r>(&'r self, request: &CorsRequest<'r>) -> Option<CorsResult<'r>> {
        let origin = request.origin?;
        // Fetch, "CORS-preflight request".
        let preflight = request.method == "OPTIONS" && request.request_method.is_some();
        let allowed = self.origins.iter().any(|pattern| pattern.matches(origin));
        let mut fields = self.shared(origin, allowed);
        if !preflight {
            return Some(CorsResult::Simple(fields));
        }
        if allowed {
            let methods = self
                .methods
                .allow_value(request.request_method, self.credentials);
            let headers = self
                .headers
                .allow_value(request.request_headers, self.credentials);
            fields.extend(methods.map(|value| ("access-control-allow-methods", value)));
            fields.extend(headers.map(|value| ("access-control-allow-headers", value)));
            fields.push(("access-control-max-age", &self.max_age));
        }
        Some(CorsResult::Preflight(fields))
    }

    /// Returns the headers common to preflights and other requests; only `vary` if the origin is not allowed.
    fn shared<'r>(&'r self, origin: &'r str, allowed: bool) -> CorsHeaders<'r> {
        let mut fields = CorsHeaders::new();
        if self.origins.contains(&OriginPattern::Any) && !self.credentials {
            fields.push(("access-control-allow-origin", "*"));
        } else {
            if allowed {
                fields.push(("access-control-allow-origin", origin));
            }
            // The response depends on the origin, which caches need to know.
            fields.push(("vary", "Origin"));
        }
        if !allowed {
            return fields;
        }
        if self.credentials {
            fields.push(("access-control-allow-credentials", "true"));
        }
        fields.extend(
            self.expose
                .as_deref()
                .map(|value| ("access-control-expose-headers", value)),
        );
        fields
    }
}

impl OriginPattern {
    fn compile(text: &str) -> Self {
        if text == "*" {
            return OriginPattern::Any;
        }
        let (scheme, host, port) = origin_parts(text);
        let host = match host.strip_prefix('*') {
            Some("") => HostPattern::Any,
            Some(suffix) => HostPattern::Below(suffix.to_owned()),
            None => HostPattern::Exact(host),
        };
        OriginPattern::Some { scheme, host, port }
    }

    fn matches(&self, origin: &str) -> bool {
        let OriginPattern::Some { scheme, host, port } = self else {
            return true;
        };
        let (got_scheme, got_host, got_port) = origin_parts(origin);
        let host = match host {
            HostPattern::Any => true,
            HostPattern::Exact(host) => *host == got_host,
            HostPattern::Below(suffix) => {
                got_host.len() > suffix.len() && got_host.ends_with(&**suffix)
            }
        };
        host && *scheme == got_scheme && *port == got_port
    }
}

/// Splits `scheme://host(:port)` into scheme, host and port, which defaults to the scheme's.
fn origin_parts(text: &str) -> (String, String, Option<u16>) {
    let (scheme, authority) = text.split_once("://").unwrap_or(("", text));
    let scheme = scheme.to_ascii_lowercase();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (authority, default_port(&scheme)),
    };
    (scheme, host.to_ascii_lowercase(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn preflight<'r>(origin: &'r str, method: &'r str) -> CorsRequest<'r> {
        CorsRequest {
            method: "OPTIONS",
            origin: Some(origin),
            request_method: Some(method),
            request_headers: Some("x-header-1, x-header-2"),
        }
    }

    fn answered(cors: &Cors, request: &CorsRequest<'_>, name: &str) -> Option<String> {
        let policy = CorsPolicy::compile(cors);
        let result = policy.evaluate(request).expect("cross-origin");
        let (CorsResult::Preflight(headers) | CorsResult::Simple(headers)) = result;
        headers
            .into_iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value.to_owned())
    }

    fn listed() -> Cors {
        Cors {
            allow_origins: names(&["https://www.foo.com", "https://*.bar.com"]),
            allow_methods: names(&["GET", "OPTIONS"]),
            allow_headers: names(&["x-header-1", "x-header-2"]),
            expose_headers: names(&["x-header-3", "x-header-4"]),
            allow_credentials: Some(true),
            max_age: 3600,
        }
    }

    fn open(credentials: bool) -> Cors {
        Cors {
            allow_origins: names(&["*"]),
            allow_methods: names(&["*"]),
            allow_headers: names(&["*"]),
            allow_credentials: Some(credentials),
            ..Cors::default()
        }
    }

    /// HTTPRouteCORS.
    #[test]
    fn an_origin_that_may_is_told_what_it_may() {
        for origin in [
            "https://www.foo.com",
            "https://www.bar.com",
            "https://xpto.www.bar.com",
        ] {
            let request = preflight(origin, "GET");
            let wanted = [
                ("access-control-allow-origin", Some(origin)),
                ("access-control-allow-methods", Some("GET, OPTIONS")),
                (
                    "access-control-allow-headers",
                    Some("x-header-1, x-header-2"),
                ),
                (
                    "access-control-expose-headers",
                    Some("x-header-3, x-header-4"),
                ),
                ("access-control-max-age", Some("3600")),
                ("access-control-allow-credentials", Some("true")),
            ];
            for (name, value) in wanted {
                assert_eq!(
                    answered(&listed(), &request, name).as_deref(),
                    value,
                    "{origin} {name}"
                );
            }
        }
    }

    #[test]
    fn a_response_to_another_origin_has_only_vary() {
        let others = [
            "https://foobar.com",
            "http://www.foo.com",
            "https://www.foo.com:444",
            "https://bar.com",
            "https://xbar.com",
            "null",
        ];
        let varies = vec![("vary", "Origin")];
        for origin in others {
            let request = preflight(origin, "GET");
            let policy = CorsPolicy::compile(&listed());
            assert_eq!(
                policy.evaluate(&request),
                Some(CorsResult::Preflight(varies.clone())),
                "{origin}"
            );
            let request = CorsRequest {
                method: "GET",
                ..request
            };
            assert_eq!(
                policy.evaluate(&request),
                Some(CorsResult::Simple(varies.clone())),
                "{origin}"
            );
        }
    }

    #[test]
    fn a_wildcard_answers_itself_without_credentials_and_what_was_asked_with_them() {
        let request = preflight("https://foobar.com:12345", "PUT");
        let table = [
            (false, "access-control-allow-origin", Some("*")),
            (false, "access-control-allow-methods", Some("*")),
            (false, "access-control-allow-headers", Some("*")),
            (false, "access-control-allow-credentials", None),
            (
                true,
                "access-control-allow-origin",
                Some("https://foobar.com:12345"),
            ),
            (true, "access-control-allow-methods", Some("PUT")),
            (
                true,
                "access-control-allow-headers",
                Some("x-header-1, x-header-2"),
            ),
            (true, "access-control-allow-credentials", Some("true")),
        ];
        for (credentials, name, value) in table {
            assert_eq!(
                answered(&open(credentials), &request, name).as_deref(),
                value,
                "{name}"
            );
        }
    }

    #[test]
    fn a_port_that_the_scheme_has_by_default_may_be_written_or_not() {
        let request = preflight("https://www.foo.com:443", "GET");
        assert!(answered(&listed(), &request, "access-control-allow-origin").is_some());
    }

    #[test]
    fn a_request_of_the_same_origin_and_a_plain_options_are_left_alone() {
        let policy = CorsPolicy::compile(&listed());
        let request = CorsRequest {
            origin: None,
            ..preflight("", "GET")
        };
        assert_eq!(policy.evaluate(&request), None);
        let request = CorsRequest {
            request_method: None,
            ..preflight("https://www.foo.com", "GET")
        };
        assert!(matches!(
            policy.evaluate(&request),
            Some(CorsResult::Simple(_))
        ));
    }
}
