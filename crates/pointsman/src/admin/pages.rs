//! What is served where.

use pointsman_control::explain::explain as control_explain;
use pointsman_routing::explain::Query;

use super::{AdminState, Answer, Body, config};
use crate::cli::{Explain, Format, Paths, Reach, Sources};
use crate::explain;
use crate::output::Paint;

/// The page runs its own script and asks this server only.
pub const POLICY: &str = "content-security-policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'\r\n";

/// Answers a request for a path, perhaps with a query.
pub fn answer(target: &str, state: &AdminState) -> Answer {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/" => Answer {
            status: 200,
            kind: "text/html; charset=utf-8",
            body: Body::Fixed(include_str!("page.html")),
        },
        "/healthz" => Answer::text(200, "ok\n"),
        "/readyz" => match state.is_ready() {
            true => Answer::text(200, "ready\n"),
            false => Answer::text(503, "not ready\n"),
        },
        "/metrics" => metrics(state),
        "/status" => Answer {
            status: 200,
            kind: "application/json",
            body: Body::Shared(state.snapshots.status()),
        },
        "/config" => Answer::json(
            200,
            config::render(&state.snapshots.latest(), &state.sockets.current()).to_string(),
        ),
        "/explain" => match question(query, state.paths) {
            Ok((asked, mut query)) => {
                let snapshot = state.snapshots.latest();
                let explained = state.snapshots.with_binder(&snapshot, |binder| {
                    explain::resolve_mesh_names(binder, &asked, &mut query)?;
                    anyhow::Ok(control_explain(binder, &snapshot.tables, &query))
                });
                let explanation = match explained {
                    Ok(explanation) => explanation,
                    Err(error) => return wrong(&format!("{error:#}")),
                };
                if asked.sources.output == Format::Text {
                    return Answer {
                        status: 200,
                        kind: "text/plain; charset=utf-8",
                        body: Body::Own(explain::text(&explanation, &Paint::plain())),
                    };
                }
                match serde_json::to_string_pretty(&explanation) {
                    Ok(text) => Answer::json(200, text + "\n"),
                    Err(error) => wrong(&error.to_string()),
                }
            }
            Err(why) => wrong(&why),
        },
        _ => Answer::text(
            404,
            "there are /, /healthz, /readyz, /metrics, /status, /config and /explain?url=\n",
        ),
    }
}

fn wrong(why: &str) -> Answer {
    Answer::json(400, serde_json::json!({ "error": why }).to_string())
}

/// The figures.
fn metrics(state: &AdminState) -> Answer {
    Answer {
        status: 200,
        kind: "text/plain; version=0.0.4; charset=utf-8",
        body: Body::Own(state.metrics.render()),
    }
}

/// The question of `/explain?url=…&method=…&header=…&gateway=…&from=…&sni=…&output=…`, as the command line would ask it.
fn question(query: &str, paths: Paths) -> Result<(Explain, Query), String> {
    let mut explain = Explain {
        sources: Sources {
            paths: Vec::new(),
            reach: Reach::default(),
            output: Format::Json,
        },
        gateway: None,
        from: None,
        sni: None,
        method: None,
        headers: Vec::new(),
        path_policy: paths,
        url: String::new(),
    };
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = decode(value).ok_or_else(|| format!("`{part}` is not well encoded"))?;
        let some = Some(value.clone()).filter(|value| !value.is_empty());
        match name {
            "url" => explain.url = value,
            "gateway" => explain.gateway = some,
            "from" => explain.from = some,
            "sni" => explain.sni = some,
            "method" => explain.method = some,
            "header" => explain.headers.extend(some),
            "output" if value == "text" => explain.sources.output = Format::Text,
            "output" if value == "json" => explain.sources.output = Format::Json,
            "output" => return Err(format!("output is text or json, not `{value}`")),
            _ => {
                return Err(format!(
                    "`{name}` is none of url, method, header, gateway, from, sni, output"
                ));
            }
        }
    }
    if explain.url.is_empty() {
        return Err("url is missing: /explain?url=http://host/path".to_owned());
    }
    let query = explain::query(&explain).map_err(|error| format!("{error:#}"))?;
    Ok((explain, query))
}

/// Undoes the encoding of a query's value: `+` is a space, `%2F` a slash.
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
    fn values_are_decoded_and_broken_ones_refused() {
        assert_eq!(decode("a+b%2fc%C3%BC").as_deref(), Some("a b/cü"));
        for wrong in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_question_names_what_is_wrong_with_it() {
        assert!(
            question(
                "url=http%3A%2F%2Fa%2Fb&header=x%3A+y&method=PUT",
                Paths::Any
            )
            .is_ok()
        );
        for (query, says) in [
            ("", "url is missing"),
            ("url=http://a/&colour=red", "`colour` is none of"),
            ("url=http://a/&output=red", "text or json"),
            ("url=http://a/&header=x", "a header is written"),
            ("url=ftp://a/", "none of http"),
        ] {
            let why = question(query, Paths::Any).err().unwrap_or_default();
            assert!(why.contains(says), "{query}: {why}");
        }
    }
}
