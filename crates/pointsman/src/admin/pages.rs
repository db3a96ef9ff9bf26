//! The pages of the admin server.

use pointsman_control::Exposition;
use pointsman_control::conditions::ReportedPage;
use pointsman_control::explain::RequestDescription;
use pointsman_control::explain::explain as control_explain;

use super::{AdminResponse, AdminState, Body, PeerState, config, peer};
use crate::cli::{Format, Paths};
use crate::explain;
use crate::output::Paint;

/// Allows the page to run its inline script and to connect to this server only.
pub const POLICY: &str = "content-security-policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'\r\n";

/// Responds to a request for a target: a path and an optional query.
pub fn respond(target: &str, state: &AdminState) -> AdminResponse {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/" => AdminResponse {
            status: 200,
            content_type: "text/html; charset=utf-8",
            body: Body::Static(include_str!("page.html")),
        },
        "/healthz" => AdminResponse::text(200, "ok\n"),
        "/readyz" => match state.is_ready() {
            true => AdminResponse::text(200, peer::readiness(&state.peer)),
            false => AdminResponse::text(503, "not ready\n"),
        },
        "/metrics" => metrics(state),
        "/status" if matches!(state.peer, PeerState::ControlPlane(_)) => {
            AdminResponse::text(404, "the control plane serves /status, not its proxies\n")
        }
        "/status" => AdminResponse {
            status: 200,
            content_type: "application/json",
            body: Body::Shared(state.snapshots.status()),
        },
        "/conditions" if matches!(state.peer, PeerState::ControlPlane(_)) => AdminResponse::text(
            404,
            "the control plane serves /conditions, not its proxies\n",
        ),
        "/conditions" => match peer::incomplete(&state.peer) {
            Some(error) => AdminResponse {
                status: 503,
                content_type: "text/plain; charset=utf-8",
                body: Body::Owned(error),
            },
            None => conditions(query, state).unwrap_or_else(|error| bad_request(&error)),
        },
        "/config" => {
            let snapshot = state.snapshots.latest();
            let tables = state.snapshots.tables(&snapshot);
            let page = config::render(snapshot.version, &tables, &state.sockets.current());
            AdminResponse::json(200, page.to_string())
        }
        "/proxies" => match &state.peer {
            PeerState::Proxies(server) => {
                AdminResponse::json(200, peer::proxies(server).to_string())
            }
            _ => AdminResponse::text(404, "only a controller serves /proxies\n"),
        },
        "/explain" => explain(query, state).unwrap_or_else(|error| bad_request(&error)),
        _ => AdminResponse::text(
            404,
            "not found; the pages are /, /healthz, /readyz, /metrics, /status, /conditions, /config, /explain?url= and (of a controller) /proxies\n",
        ),
    }
}

fn bad_request(error: &str) -> AdminResponse {
    AdminResponse::json(400, serde_json::json!({ "error": error }).to_string())
}

/// Lists the conditions of the objects that a query selects: `/conditions?kind=…&namespace=…&name=…`. Kuma's universal documents are selected with their mesh
/// as the namespace.
fn conditions(query: &str, state: &AdminState) -> Result<AdminResponse, String> {
    let (mut kind, mut namespace, mut name) = (None, None, None);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = decode(value).ok_or_else(|| format!("`{part}`: invalid percent-encoding"))?;
        let field = match key {
            "kind" => &mut kind,
            "namespace" => &mut namespace,
            "name" => &mut name,
            _ => {
                let known = "known are kind, namespace and name";
                return Err(format!("unknown parameter `{key}`; {known}"));
            }
        };
        *field = Some(value);
    }
    let fits = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    let page = ReportedPage::new(&state.snapshots.latest(), |key| {
        let space = key.namespace();
        fits(&kind, key.kind.name())
            && fits(&namespace, space.mesh().unwrap_or(space))
            && fits(&name, &key.name.name)
    });
    let text = serde_json::to_string(&page).map_err(|error| error.to_string())?;
    Ok(AdminResponse::json(200, text))
}

/// Explains the request that a query describes, with the configuration in effect.
fn explain(query: &str, state: &AdminState) -> Result<AdminResponse, String> {
    let (description, format) = parse_query(query, state.paths)?;
    let mut query = description.parse().map_err(|error| error.to_string())?;
    let snapshot = state.snapshots.latest();
    let tables = state.snapshots.tables(&snapshot);
    let explanation = state.snapshots.with_binder(&snapshot, |binder| {
        let resolved = description.resolve(binder, &mut query);
        resolved.map(|()| control_explain(binder, &tables, &query))
    });
    let explanation = explanation.map_err(|error| error.to_string())?;
    if format == Format::Text {
        return Ok(AdminResponse {
            status: 200,
            content_type: "text/plain; charset=utf-8",
            body: Body::Owned(explain::text(&explanation, &Paint::plain())),
        });
    }
    let text = serde_json::to_string_pretty(&explanation).map_err(|error| error.to_string())?;
    Ok(AdminResponse::json(200, text + "\n"))
}

fn metrics(state: &AdminState) -> AdminResponse {
    let data_plane = state.metrics.as_ref();
    let mut text = data_plane.map_or_else(String::new, |metrics| metrics.render());
    let mut control_plane = Exposition::default();
    peer::add_metrics(&state.peer, &mut control_plane);
    if let Some(metrics) = state.cluster_metrics.get() {
        metrics.add_to(&mut control_plane);
    }
    text += &control_plane.finish();
    AdminResponse {
        status: 200,
        content_type: "text/plain; version=0.0.4; charset=utf-8",
        body: Body::Owned(text),
    }
}

/// Parses `/explain?url=…&method=…&header=…&gateway=…&from=…&sni=…&output=…`.
fn parse_query(query: &str, paths: Paths) -> Result<(RequestDescription, Format), String> {
    let mut description = RequestDescription {
        paths: paths.policy(),
        ..RequestDescription::default()
    };
    let mut format = Format::Json;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = decode(value).ok_or_else(|| format!("`{part}`: invalid percent-encoding"))?;
        let some = Some(value.clone()).filter(|value| !value.is_empty());
        match name {
            "url" => description.url = value,
            "gateway" => description.gateway = some,
            "from" => description.from = some,
            "sni" => description.sni = some,
            "method" => description.method = some,
            "header" => description.headers.extend(some),
            "output" if value == "text" => format = Format::Text,
            "output" if value == "json" => format = Format::Json,
            "output" => return Err(format!("output must be text or json, not `{value}`")),
            _ => {
                return Err(format!(
                    "unknown parameter `{name}`; known are url, method, header, gateway, from, sni and output"
                ));
            }
        }
    }
    if description.url.is_empty() {
        return Err("parameter url is missing; example: /explain?url=http://host/path".to_owned());
    }
    Ok((description, format))
}

/// Decodes a value of a query: `+` is a space, `%2F` a slash.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_invalid_ones_rejected() {
        assert_eq!(decode("a+b%2fc%C3%BC").as_deref(), Some("a b/cü"));
        for invalid in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decode(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn the_error_names_the_invalid_part_of_a_query() {
        assert!(
            parse_query(
                "url=http%3A%2F%2Fa%2Fb&header=x%3A+y&method=PUT",
                Paths::Any
            )
            .is_ok()
        );
        for (query, expected) in [
            ("", "url is missing"),
            ("url=http://a/&colour=red", "unknown parameter `colour`"),
            ("url=http://a/&output=red", "text or json"),
            ("url=http://a/&header=x", "not of the form"),
            ("url=ftp://a/", "not one of http"),
        ] {
            let parsed = parse_query(query, Paths::Any);
            let parsed = parsed.and_then(|(description, _)| {
                description.parse().map_err(|error| error.to_string())
            });
            let error = parsed.err().unwrap_or_default();
            assert!(error.contains(expected), "{query}: {error}");
        }
    }
}
