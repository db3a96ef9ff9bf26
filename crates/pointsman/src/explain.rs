//! `explain`: which rule takes a request, and why.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use pointsman_binding::Binder;
use pointsman_control::explain::explain;
use pointsman_control::offline;
use pointsman_resources::{Kind, Name, ObjectKey};
use pointsman_routing::explain::{Explanation, Outcome, Query, Received, RuleRef, Status};

use crate::cli::{Explain, Format};
use crate::lookup;
use crate::output::{self, Paint, Style};

/// Runs `explain`.
pub fn run(arguments: &Explain) -> Result<ExitCode> {
    let mut query = query(arguments)?;
    let permissions = arguments.sources.reach.permissions()?;
    let loaded = offline::load(&arguments.sources.paths, &permissions);
    let errors = loaded
        .findings
        .iter()
        .filter(|finding| finding.severity == pointsman_resources::Severity::Error);
    let mut unreadable = false;
    for error in errors {
        output::print_error(&error.to_string());
        unreadable = true;
    }
    resolve_mesh_names(&loaded.binder, arguments, &mut query)?;
    let explanation = explain(&loaded.binder, &loaded.tables, &query);
    match arguments.sources.output {
        Format::Text => output::print(&text(&explanation, &Paint::new()))?,
        format => output::structured(format, &explanation)?,
    }
    Ok(
        match (unreadable, explanation.outcome, &explanation.status) {
            (true, ..) => ExitCode::from(2),
            (_, Outcome::Forward, _) if explanation.fails() => ExitCode::from(1),
            (_, Outcome::Forward | Outcome::Redirect, None) => ExitCode::SUCCESS,
            (_, Outcome::Redirect, _) => ExitCode::SUCCESS,
            (_, Outcome::Respond, Some(Status::Http(status))) if *status < 400 => ExitCode::SUCCESS,
            _ => ExitCode::from(1),
        },
    )
}

/// The question that a command line asks.
pub fn query(arguments: &Explain) -> Result<Query> {
    let mut query = Query::new(&arguments.url).with_context(|| arguments.url.clone())?;
    if let Some(method) = &arguments.method {
        query.method = method.clone();
    }
    for header in &arguments.headers {
        let Some((name, value)) = header.split_once(':') else {
            bail!("-H `{header}`: a header is written `name: value`");
        };
        query
            .headers
            .push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    if let Some(gateway) = &arguments.gateway {
        let mut parts = gateway.splitn(3, '/');
        let (namespace, name) = (parts.next().unwrap_or_default(), parts.next());
        if namespace.is_empty() || name == Some("") {
            bail!(
                "--gateway `{gateway}`: write NAMESPACE/NAME or NAMESPACE/NAME/LISTENER, or the NAME of a MeshGateway"
            );
        }
        // A name alone is a MeshGateway's; which one is seen when all objects are known.
        query.gateway = Some(match name {
            Some(name) => (Name::new(namespace, name), parts.next().map(str::to_owned)),
            None => (Name::new("", namespace), None),
        });
    }
    if let Some(from) = &arguments.from {
        query.from = Some(match from.split_once('/') {
            Some((namespace, pod)) => (namespace.to_owned(), Some(pod.to_owned())),
            None => (from.clone(), None),
        });
    }
    query.sni = arguments.sni.clone();
    query.paths = arguments.path_policy.policy();
    Ok(query)
}

/// Finds the MeshGateway or Dataplane that a command line names.
pub fn resolve_mesh_names(binder: &Binder, arguments: &Explain, query: &mut Query) -> Result<()> {
    let gateway_key = |name: &Name| ObjectKey {
        kind: Kind::Gateway,
        name: name.clone(),
    };
    let is_gateway = |name: &Name| binder.object(&gateway_key(name)).is_some();
    if let (Some(given), Some((name, _))) = (&arguments.gateway, &query.gateway)
        && !is_gateway(name)
    {
        match lookup::mesh_gateway(binder, given).context("--gateway")? {
            Some((name, listener)) => {
                // A port stands for all listeners that it has.
                let port = listener
                    .as_deref()
                    .and_then(|name| name.parse::<u16>().ok());
                query.target.port = port.or(query.target.port);
                query.gateway = Some((name, listener.filter(|_| port.is_none())));
            }
            None if binder.rejected(&gateway_key(name)).is_some() => {
                let key = gateway_key(name);
                let place = binder.rejected(&key).map_or("", |place| place);
                bail!("--gateway `{given}`: {key} was rejected as invalid at {place}")
            }
            None if !given.contains('/') => bail!(
                "--gateway `{given}`: there is no MeshGateway of this name; a Gateway is written NAMESPACE/NAME"
            ),
            None => {
                bail!("--gateway `{given}`: there is no Gateway and no MeshGateway of this name")
            }
        }
    }
    if let (None, None, Ok(address)) = (
        &query.gateway,
        &arguments.from,
        query.target.host.parse::<IpAddr>(),
    ) {
        let found = lookup::gateway_at(binder, address);
        query.gateway = found.map(|name| (name, None));
    }
    let given = arguments.from.as_deref().unwrap_or_default();
    if given.starts_with("dataplane/") {
        let key = lookup::dataplane(binder, given).context("--from")?;
        query.from = (key.kind == Kind::Pod)
            .then(|| (key.namespace().to_owned(), Some(key.name.name.to_string())));
        query.dataplane = Some(key);
    } else if let Some((namespace, Some(pod))) = &query.from {
        let key = ObjectKey::new(Kind::Pod, namespace.as_str(), pod.as_str());
        query.dataplane = Some(key).filter(|key| binder.is_proxy(key));
    }
    let dataplane = query.dataplane.as_ref();
    query.without_identity = dataplane.is_some_and(|key| !binder.has_mtls(key));
    Ok(())
}

/// For people.
pub fn text(explanation: &Explanation, paint: &Paint) -> String {
    let mut out = String::new();
    let strong = |text: &str| paint.paint(Style::Strong, text);
    match &explanation.frontend {
        Some(frontend) => {
            let section = frontend
                .section
                .as_ref()
                .map(|s| format!(" listener {s}"))
                .unwrap_or_default();
            let name = Name::new(&*frontend.namespace, &*frontend.name);
            let name = format!("{} {name}{section} port {}", frontend.kind, frontend.port);
            let _ = writeln!(out, "{} {}", strong("frontend"), name);
        }
        None => {
            let _ = writeln!(out, "{} none", strong("frontend"));
        }
    }
    let _ = writeln!(
        out,
        "         {}",
        paint.paint(Style::Faint, &explanation.why)
    );
    if let Some(rule) = &explanation.rule {
        let _ = writeln!(out, "{}     {}", strong("rule"), rule_text(rule));
    }
    let _ = writeln!(
        out,
        "{}  {}",
        strong("outcome"),
        outcome(explanation, paint)
    );
    if let Some(timeouts) = &explanation.timeouts {
        let named = [
            ("request", &timeouts.request),
            ("backendRequest", &timeouts.backend_request),
        ];
        let parts: Vec<String> = named
            .iter()
            .filter_map(|(name, time)| Some(format!("{name} {}", time.as_ref()?)))
            .collect();
        let _ = writeln!(out, "{} {}", strong("timeouts"), parts.join(", "));
    }
    if let Some(request) = &explanation.request {
        received(&mut out, &strong("the backend receives"), request);
    }
    if let Some(response) = &explanation.response {
        let _ = writeln!(out, "{}", strong("the client gets"));
        for (name, value) in &response.headers {
            let _ = writeln!(out, "    {name}: {value}");
        }
        for name in &response.removed {
            let _ = writeln!(out, "    without {name}");
        }
        if let Some(body) = &response.body {
            let _ = writeln!(out, "    {}", body.trim_end());
        }
    }
    for backend in &explanation.backends {
        let port = backend
            .port
            .map(|port| format!(" port {port}"))
            .unwrap_or_default();
        let share = format!("{:>5.1}%", backend.share * 100.0);
        let status = match (&backend.status, backend.grpc_status) {
            (_, Some(code)) => Some(format!("gRPC status {code}")),
            (status, None) => status.as_ref().map(status_text),
        };
        let fate = match (status, &backend.reason) {
            (Some(status), reason) => {
                let reason = reason.as_deref().unwrap_or_default();
                paint.paint(Style::Bad, &format!("{status}: {reason}"))
            }
            (None, _) => backend.endpoints.join(", "),
        };
        let tags = tags_text(&backend.tags);
        let name = Name::new(&*backend.namespace, &*backend.name);
        let name = format!("{} {name}{port}{tags}", backend.kind);
        let _ = writeln!(out, "{}  {share}  {name}  {fate}", strong("backend"));
        if let Some(request) = &backend.request {
            received(&mut out, "    it receives", request);
        }
    }
    for mirror in &explanation.mirrors {
        let port = mirror
            .port
            .map(|port| format!(" port {port}"))
            .unwrap_or_default();
        let tags = tags_text(&mirror.tags);
        let name = Name::new(&*mirror.namespace, &*mirror.name);
        let name = format!("{} {name}{port}{tags}", mirror.kind);
        let fate = match (&mirror.reason, &mirror.host) {
            (Some(reason), _) => paint.paint(Style::Bad, reason),
            (None, Some(host)) => format!("host: {host}"),
            (None, None) => String::new(),
        };
        let line = format!(
            "{}   {:>5.1}%  {name}  {fate}",
            strong("mirror"),
            mirror.share * 100.0
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if !explanation.candidates.is_empty() {
        let _ = writeln!(out, "{}", strong("not taken"));
        for candidate in &explanation.candidates {
            let _ = writeln!(out, "    {}", rule_text(&candidate.rule));
            let _ = writeln!(out, "        {}", candidate.detail);
        }
    }
    out
}

fn received(out: &mut String, heading: &str, request: &Received) {
    let _ = writeln!(out, "{heading}\n    {} {}", request.method, request.url);
    for (name, value) in &request.headers {
        let _ = writeln!(out, "    {name}: {value}");
    }
}

fn tags_text(tags: &BTreeMap<String, String>) -> String {
    tags.iter().map(|(k, v)| format!(" {k}={v}")).collect()
}

fn rule_text(rule: &RuleRef) -> String {
    let mut text = format!("{} {}/{}", rule.kind, rule.namespace, rule.name);
    if let Some(to) = rule.to {
        let _ = write!(text, " to {to}");
    }
    if let Some(index) = rule.rule {
        let _ = write!(text, " rule {index}");
    }
    if let Some(name) = &rule.rule_name {
        let _ = write!(text, " ({name})");
    }
    if let Some(matched) = rule.matched {
        let _ = write!(text, " match {matched}");
    }
    if let [_, others @ ..] = &rule.from[..]
        && !others.is_empty()
    {
        let _ = write!(text, ", merged with {}", others.join(", "));
    }
    text
}

fn status_text(status: &Status) -> String {
    match status {
        Status::Http(status) => status.to_string(),
        Status::Reset => "reset".to_owned(),
    }
}

fn outcome(explanation: &Explanation, paint: &Paint) -> String {
    let status = explanation.status.as_ref().map(status_text);
    let status = match (&status, explanation.grpc_status) {
        (_, Some(code)) => format!(" with gRPC status {code}"),
        (Some(status), None) => format!(" with {status}"),
        (None, None) => String::new(),
    };
    let reason = explanation
        .reason
        .as_ref()
        .map(|r| format!(": {r}"))
        .unwrap_or_default();
    match explanation.outcome {
        Outcome::Forward if explanation.fails() => {
            paint.paint(Style::Bad, "forward, to no backend that can take it")
        }
        Outcome::Forward => paint.paint(Style::Good, "forward") + &status + &reason,
        Outcome::Redirect => {
            let status = explanation.response.as_ref().and_then(|r| r.status);
            let status = status
                .map(|status| format!(" with {status}"))
                .unwrap_or_default();
            paint.paint(Style::Good, "redirect") + &status
        }
        Outcome::Respond => format!("answered here{status}{reason}"),
        Outcome::NoFrontend => paint.paint(Style::Bad, "nobody listens") + &status,
        Outcome::NoRoute => paint.paint(Style::Bad, "no rule takes it") + &status,
    }
}
