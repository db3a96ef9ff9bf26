//! The command `explain`: shows which rule a request matches, and why.

mod remote;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use pointsman_binding::{Binder, Warning, without_manifests};
use pointsman_control::explain::explain;
use pointsman_resources::text::single_line;
use pointsman_resources::{Kind, Name, ObjectKey};
use pointsman_routing::explain::{
    BackendShare, ExplainedResponse, Explanation, MirrorShare, Outcome, Query, ReceivedRequest,
    RuleRef, Status,
};

use crate::cli::{Explain, Format};
use crate::input;
use crate::lookup;
use crate::output::{self, Paint, Style};

/// Runs `explain`.
pub fn run(arguments: &Explain) -> Result<ExitCode> {
    if let Some(server) = &arguments.server {
        return remote::run(server, arguments);
    }
    let mut query = query(arguments)?;
    let (loaded, _) = input::load(&arguments.sources)?;
    let errors = loaded
        .objects
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
    if explanation.outcome == Outcome::NoFrontend {
        warn_of_unserved(&loaded.binder);
    }
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

/// Prints why Gateways and ListenerSets are not served, because one of them may have the expected listener.
fn warn_of_unserved(binder: &Binder) {
    const MAX_PRINTED: usize = 5;
    let kinds = [Kind::Gateway, Kind::ListenerSet];
    let is_unserved = |warning: &Warning| {
        let fields = ["spec.gatewayClassName", "spec.parentRef"];
        kinds.contains(&warning.object.kind) && fields.contains(&&*warning.field)
    };
    let unserved: Vec<Warning> = binder.warnings().into_iter().filter(is_unserved).collect();
    for Warning {
        object, message, ..
    } in unserved.iter().take(MAX_PRINTED)
    {
        output::print_error(&format!("warning: {object}: {}", single_line(message)));
    }
    if let more @ 1.. = unserved.len().saturating_sub(MAX_PRINTED) {
        output::print_error(&format!("warning: {more} more are not served"));
    }
}

/// Parses the request that the arguments describe.
pub fn query(arguments: &Explain) -> Result<Query> {
    let mut query = Query::new(&arguments.url).with_context(|| arguments.url.clone())?;
    if let Some(method) = &arguments.method {
        query.method = method.clone();
    }
    for header in &arguments.headers {
        let Some((name, value)) = header.split_once(':') else {
            bail!("-H `{header}`: the header is not of the form `name: value`");
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
                "--gateway `{gateway}`: expected NAMESPACE/NAME or NAMESPACE/NAME/LISTENER, or the NAME of a MeshGateway"
            );
        }
        // A name without a namespace is that of a MeshGateway, which is looked up once all objects are bound.
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

/// Resolves the MeshGateway and the Dataplane that the arguments name.
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
                // A port selects all listeners that use it.
                let port = listener
                    .as_deref()
                    .and_then(|name| name.parse::<u16>().ok());
                query.target.port = port.or(query.target.port);
                query.gateway = Some((name, listener.filter(|_| port.is_none())));
            }
            None if binder.rejected(&gateway_key(name)).is_some() => {
                let key = gateway_key(name);
                let position = binder.rejected(&key).map_or("", |position| position);
                bail!("--gateway `{given}`: {key} was rejected as invalid at {position}")
            }
            None if !given.contains('/') => bail!(
                "--gateway `{given}`: there is no MeshGateway with this name; expected NAMESPACE/NAME for a Gateway"
            ),
            None => {
                bail!(
                    "--gateway `{given}`: there is neither a Gateway nor a MeshGateway with this name"
                )
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
            .then(|| (key.namespace().to_string(), Some(key.name.name.to_string())));
        query.dataplane = Some(key);
    } else if let Some((namespace, Some(pod))) = &query.from {
        let key = ObjectKey::new(Kind::Pod, namespace.as_str(), pod.as_str());
        query.dataplane = Some(key).filter(|key| binder.is_proxy(key));
    }
    let dataplane = query.dataplane.as_ref();
    query.without_identity = dataplane.is_some_and(|key| !binder.has_mtls(key));
    Ok(())
}

/// Renders an explanation as text.
pub fn text(explanation: &Explanation, paint: &Paint) -> String {
    let mut out = String::new();
    selection(&mut out, explanation, paint);
    if let Some(request) = &explanation.request {
        let heading = paint.paint(Style::Strong, "request to the backend");
        request_text(&mut out, &heading, request);
    }
    if let Some(response) = &explanation.response {
        let heading = paint.paint(Style::Strong, "response to the client");
        response_text(&mut out, &heading, response);
    }
    for backend in &explanation.backends {
        backend_text(&mut out, backend, paint);
    }
    for mirror in &explanation.mirrors {
        mirror_text(&mut out, mirror, paint);
    }
    if !explanation.candidates.is_empty() {
        let _ = writeln!(out, "{}", paint.paint(Style::Strong, "not selected"));
        for candidate in &explanation.candidates {
            let _ = writeln!(out, "    {}", rule_text(&candidate.rule));
            let _ = writeln!(out, "        {}", single_line(&candidate.detail));
        }
    }
    out
}

/// Writes the selected frontend and rule, the outcome and the timeouts.
fn selection(out: &mut String, explanation: &Explanation, paint: &Paint) {
    let strong = |text: &str| paint.paint(Style::Strong, text);
    let frontend = match &explanation.frontend {
        Some(frontend) => {
            let section = frontend.section.as_ref();
            let section = section.map_or(String::new(), |name| format!(" listener {name}"));
            let name = Name::new(&*frontend.namespace, &*frontend.name);
            format!("{} {name}{section} port {}", frontend.kind, frontend.port)
        }
        None => "none".to_owned(),
    };
    let _ = writeln!(out, "{} {frontend}", strong("frontend"));
    let why = paint.paint(Style::Faint, &single_line(&explanation.why));
    let _ = writeln!(out, "         {why}");
    if let Some(rule) = &explanation.rule {
        let _ = writeln!(out, "{}     {}", strong("rule"), rule_text(rule));
    }
    let outcome = outcome(explanation, paint);
    let _ = writeln!(out, "{}  {outcome}", strong("outcome"));
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
}

fn request_text(out: &mut String, heading: &str, request: &ReceivedRequest) {
    let _ = writeln!(out, "{heading}\n    {} {}", request.method, request.url);
    for (name, value) in &request.headers {
        let _ = writeln!(out, "    {name}: {value}");
    }
}

fn response_text(out: &mut String, heading: &str, response: &ExplainedResponse) {
    let _ = writeln!(out, "{heading}");
    for (name, value) in &response.headers {
        let _ = writeln!(out, "    {name}: {value}");
    }
    for name in &response.removed {
        let _ = writeln!(out, "    without {name}");
    }
    if let Some(body) = &response.body {
        let _ = writeln!(out, "    {}", single_line(body.trim_end()));
    }
}

fn backend_text(out: &mut String, backend: &BackendShare, paint: &Paint) {
    let name = Name::new(&*backend.namespace, &*backend.name);
    let port = port_text(backend.port);
    let name = format!("{} {name}{port}{}", backend.kind, tags_text(&backend.tags));
    let status = match (&backend.status, backend.grpc_status) {
        (_, Some(code)) => Some(format!("gRPC status {code}")),
        (status, None) => status.as_ref().map(status_text),
    };
    let result = match status {
        Some(status) => {
            let reason = backend.reason.as_deref().unwrap_or_default();
            let reason = single_line(without_manifests(reason));
            paint.paint(Style::Bad, &format!("{status}: {reason}"))
        }
        None => backend.endpoints.join(", "),
    };
    let heading = paint.paint(Style::Strong, "backend");
    let share = backend.share * 100.0;
    let _ = writeln!(out, "{heading}  {share:>5.1}%  {name}  {result}");
    if let Some(request) = &backend.request {
        request_text(out, "    request to this backend", request);
    }
}

fn mirror_text(out: &mut String, mirror: &MirrorShare, paint: &Paint) {
    let name = Name::new(&*mirror.namespace, &*mirror.name);
    let port = port_text(mirror.port);
    let name = format!("{} {name}{port}{}", mirror.kind, tags_text(&mirror.tags));
    let result = match (&mirror.reason, &mirror.host) {
        (Some(reason), _) => paint.paint(Style::Bad, &single_line(without_manifests(reason))),
        (None, Some(host)) => format!("host: {host}"),
        (None, None) => String::new(),
    };
    let heading = paint.paint(Style::Strong, "mirror");
    let share = mirror.share * 100.0;
    let line = format!("{heading}   {share:>5.1}%  {name}  {result}");
    let _ = writeln!(out, "{}", line.trim_end());
}

fn port_text(port: Option<u16>) -> String {
    port.map_or(String::new(), |port| format!(" port {port}"))
}

fn tags_text(tags: &BTreeMap<String, String>) -> String {
    let tags = tags.iter();
    tags.map(|(k, v)| format!(" {}={}", single_line(k), single_line(v)))
        .collect()
}

/// Names a rule and its match.
pub fn rule_text(rule: &RuleRef) -> String {
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
        .map(|reason| format!(": {}", single_line(without_manifests(reason))))
        .unwrap_or_default();
    match explanation.outcome {
        Outcome::Forward if explanation.fails() => {
            paint.paint(Style::Bad, "forward, but no backend is available")
        }
        Outcome::Forward => paint.paint(Style::Good, "forward") + &status + &reason,
        Outcome::Redirect => {
            let status = explanation.response.as_ref().and_then(|r| r.status);
            let status = status
                .map(|status| format!(" with {status}"))
                .unwrap_or_default();
            paint.paint(Style::Good, "redirect") + &status
        }
        Outcome::Respond => format!("response by Pointsman{status}{reason}"),
        Outcome::NoFrontend => paint.paint(Style::Bad, "no listener") + &status,
        Outcome::NoRoute => paint.paint(Style::Bad, "no rule matches") + &status,
    }
}
