//! The command `explain`: shows which rule a request matches, and why.

mod remote;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use pointsman_binding::{Binder, Warning, without_manifests};
use pointsman_control::explain::{DescriptionError, RequestDescription, explain};
use pointsman_resources::text::single_line;
use pointsman_resources::{Kind, Name};
use pointsman_routing::explain::{
    BackendShare, ExplainedResponse, Explanation, MirrorShare, Outcome, ReceivedRequest,
    ReplyStatus, RuleRef,
};
use serde_json::Value;

use crate::cli::{Explain, Format};
use crate::input;
use crate::output::{self, Paint, Style};

/// Runs `explain`.
pub fn run(arguments: &Explain) -> Result<ExitCode> {
    if let Some(server) = &arguments.server {
        return remote::run(server, arguments);
    }
    let description = arguments.description();
    let mut query = description.parse().map_err(of_flags)?;
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
    let resolved = description.resolve(&loaded.binder, &mut query);
    resolved.map_err(of_flags)?;
    let explanation = explain(&loaded.binder, &loaded.tables, &query);
    if explanation.outcome == Outcome::NoFrontend {
        warn_of_unserved(&loaded.binder);
    }
    match arguments.sources.output {
        Format::Text => output::print(&text(&explanation, &Paint::new()))?,
        format => output::structured(format, &explanation)?,
    }
    Ok(ExitCode::from(match unreadable {
        true => 2,
        false => exit_status(&serde_json::to_value(&explanation)?),
    }))
}

impl Explain {
    /// Returns the request that the arguments describe.
    fn description(&self) -> RequestDescription {
        RequestDescription {
            url: self.url.clone(),
            method: self.method.clone(),
            headers: self.headers.clone(),
            gateway: self.gateway.clone(),
            from: self.from.clone(),
            sni: self.sni.clone(),
            paths: self.path_policy.policy(),
        }
    }
}

/// Names the flag that an error is about.
fn of_flags(error: DescriptionError) -> anyhow::Error {
    match &error {
        DescriptionError::Field {
            field: "header",
            given,
            reason,
        } => anyhow!("-H `{given}`: {reason}"),
        DescriptionError::Field { .. } => anyhow!("--{error}"),
        DescriptionError::Url { .. } => anyhow!("{error}"),
    }
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

/// Returns the name of a rule and its match.
pub fn rule_text(rule: &RuleRef) -> String {
    let mut text = format!("{} {}/{}", rule.kind, rule.namespace, rule.name);
    if let Some(to) = rule.to {
        let _ = write!(text, " to[{to}]");
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

fn status_text(status: &ReplyStatus) -> String {
    match status {
        ReplyStatus::Http(status) => status.to_string(),
        ReplyStatus::Reset => "reset".to_owned(),
    }
}

fn outcome(explanation: &Explanation, paint: &Paint) -> String {
    let is_reset = explanation.status == Some(ReplyStatus::Reset);
    let status = explanation.status.as_ref().map(status_text);
    let status = match (status, explanation.grpc_status) {
        (_, Some(code)) => Some(format!("gRPC status {code}")),
        (status, None) => status,
    };
    let with_status = status
        .as_ref()
        .map(|status| format!(" with {status}"))
        .unwrap_or_default();
    let end = match &status {
        Some(_) if is_reset => "; the connection is reset".to_owned(),
        Some(status) => format!("; the client gets {status}"),
        None => String::new(),
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
        Outcome::Forward => paint.paint(Style::Good, "forward") + &with_status + &reason,
        Outcome::Redirect => {
            let status = explanation.response.as_ref().and_then(|r| r.status);
            let status = status
                .map(|status| format!(" with {status}"))
                .unwrap_or_default();
            paint.paint(Style::Good, "redirect") + &status
        }
        Outcome::Respond if is_reset => format!("connection reset by Pointsman{reason}"),
        Outcome::Respond => format!("response by Pointsman{with_status}{reason}"),
        Outcome::NoFrontend => paint.paint(Style::Bad, "no listener") + &end,
        Outcome::NoRoute => paint.paint(Style::Bad, "no rule matches") + &end,
    }
}

/// Returns the exit status for an explanation, as it is printed: 1 if the client gets an error.
fn exit_status(explanation: &Value) -> u8 {
    let backends = explanation["backends"].as_array().into_iter().flatten();
    let mut used = backends
        .filter(|backend| backend["share"].as_f64() > Some(0.0))
        .peekable();
    let fails = used.peek().is_some() && used.all(|backend| !backend["reason"].is_null());
    match explanation["outcome"].as_str() {
        Some("forward") => u8::from(fails || !explanation["status"].is_null()),
        Some("redirect") => 0,
        Some("respond") => match explanation["status"].as_u64() {
            Some(..400) => 0,
            _ => 1,
        },
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_exit_status_reports_errors_to_the_client() {
        for (explanation, expected) in [
            (
                json!({"outcome": "forward", "backends": [{"share": 1.0}]}),
                0,
            ),
            (
                json!({"outcome": "forward", "backends": [{"share": 1.0, "reason": "x"}]}),
                1,
            ),
            (
                json!({"outcome": "forward", "backends": [{"share": 0.5, "reason": "x"}, {"share": 0.5}]}),
                0,
            ),
            (json!({"outcome": "redirect", "status": 302}), 0),
            (json!({"outcome": "respond", "status": 204}), 0),
            (json!({"outcome": "respond", "status": 500}), 1),
            (json!({"outcome": "respond", "status": "reset"}), 1),
            (json!({"outcome": "no-route", "status": 404}), 1),
            (json!({"outcome": "no-frontend"}), 1),
        ] {
            assert_eq!(exit_status(&explanation), expected, "{explanation}");
        }
    }
}
