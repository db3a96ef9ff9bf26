//! CORS: which origins may use a route, and what browsers are told.

use pointsman_resources::route::Cors;

use super::redirect::default_port;

/// A CORS filter, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsPolicy {
    origins: Vec<OriginPattern>,
    credentials: bool,
    methods: Allowed,
    headers: Allowed,
    /// The value of `access-control-expose-headers`.
    expose: Option<String>,
    max_age: String,
}

/// What the browser asks in a preflight and is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    /// Nothing beyond what needs no permission.
    Nothing,
    /// This list.
    List(String),
    /// Everything.
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

    /// "must not return `*`" with credentials: what was asked for is given back, and nothing if nothing was.
    fn answer<'a>(&'a self, asked: Option<&'a str>, credentials: bool) -> Option<&'a str> {
        match self {
            Allowed::Nothing => None,
            Allowed::List(list) => Some(list),
            Allowed::Everything if credentials => asked,
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
    /// `.bar.com` of `*.bar.com`: any number of labels before it.
    Below(String),
}

/// The header fields of a response to a browser, borrowed from the policy and the request.
pub type Fields<'r> = Vec<(&'static str, &'r str)>;

/// The result of a CORS policy for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<'r> {
    /// The browser asks before it sends: answered with 204 and these headers. None where the origin may not.
    Preflight(Fields<'r>),
    /// The request goes on, and its response has these headers.
    Simple(Fields<'r>),
}

/// What of a request matters for CORS.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
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

    /// What is made of a request; none if it is not a cross-origin one.
    pub fn judge<'r>(&'r self, asked: &Asked<'r>) -> Option<Verdict<'r>> {
        let origin = asked.origin?;
        // Fetch, "CORS-preflight request".
        let preflight = asked.method == "OPTIONS" && asked.request_method.is_some();
        let allowed = self.origins.iter().any(|pattern| pattern.matches(origin));
        let mut lines = self.shared(origin, allowed);
        if !preflight {
            return Some(Verdict::Simple(lines));
        }
        if allowed {
            let methods = self.methods.answer(asked.request_method, self.credentials);
            let headers = self.headers.answer(asked.request_headers, self.credentials);
            lines.extend(methods.map(|value| ("access-control-allow-methods", value)));
            lines.extend(headers.map(|value| ("access-control-allow-headers", value)));
            lines.push(("access-control-max-age", &self.max_age));
        }
        Some(Verdict::Preflight(lines))
    }

    /// The lines that preflights and other requests share; none but `vary` where the origin may not.
    fn shared<'r>(&'r self, origin: &'r str, allowed: bool) -> Fields<'r> {
        let mut lines = Fields::new();
        if self.origins.contains(&OriginPattern::Any) && !self.credentials {
            lines.push(("access-control-allow-origin", "*"));
        } else {
            if allowed {
                lines.push(("access-control-allow-origin", origin));
            }
            // The answer is not the same for everyone, and caches must know.
            lines.push(("vary", "Origin"));
        }
        if !allowed {
            return lines;
        }
        if self.credentials {
            lines.push(("access-control-allow-credentials", "true"));
        }
        lines.extend(
            self.expose
                .as_deref()
                .map(|value| ("access-control-expose-headers", value)),
        );
        lines
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

/// Scheme, host and port of `scheme://host(:port)`, the port being the scheme's if none is written.
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

    fn preflight<'r>(origin: &'r str, method: &'r str) -> Asked<'r> {
        Asked {
            method: "OPTIONS",
            origin: Some(origin),
            request_method: Some(method),
            request_headers: Some("x-header-1, x-header-2"),
        }
    }

    fn answered(cors: &Cors, asked: &Asked<'_>, name: &str) -> Option<String> {
        let policy = CorsPolicy::compile(cors);
        let verdict = policy.judge(asked).expect("cross-origin");
        let (Verdict::Preflight(lines) | Verdict::Simple(lines)) = verdict;
        lines
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
            let asked = preflight(origin, "GET");
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
                    answered(&listed(), &asked, name).as_deref(),
                    value,
                    "{origin} {name}"
                );
            }
        }
    }

    #[test]
    fn another_origin_is_told_nothing_but_that_the_answer_varies() {
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
            let asked = preflight(origin, "GET");
            let policy = CorsPolicy::compile(&listed());
            assert_eq!(
                policy.judge(&asked),
                Some(Verdict::Preflight(varies.clone())),
                "{origin}"
            );
            let asked = Asked {
                method: "GET",
                ..asked
            };
            assert_eq!(
                policy.judge(&asked),
                Some(Verdict::Simple(varies.clone())),
                "{origin}"
            );
        }
    }

    #[test]
    fn a_wildcard_answers_itself_without_credentials_and_what_was_asked_with_them() {
        let asked = preflight("https://foobar.com:12345", "PUT");
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
                answered(&open(credentials), &asked, name).as_deref(),
                value,
                "{name}"
            );
        }
    }

    #[test]
    fn a_port_that_the_scheme_has_by_default_may_be_written_or_not() {
        let asked = preflight("https://www.foo.com:443", "GET");
        assert!(answered(&listed(), &asked, "access-control-allow-origin").is_some());
    }

    #[test]
    fn a_request_of_the_same_origin_and_a_plain_options_are_left_alone() {
        let policy = CorsPolicy::compile(&listed());
        let asked = Asked {
            origin: None,
            ..preflight("", "GET")
        };
        assert_eq!(policy.judge(&asked), None);
        let asked = Asked {
            request_method: None,
            ..preflight("https://www.foo.com", "GET")
        };
        assert!(matches!(policy.judge(&asked), Some(Verdict::Simple(_))));
    }
}
