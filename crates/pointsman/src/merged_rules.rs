//! `check --for`: prints the merged rules of Kuma's policies for one proxy.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use pointsman_control::explain::proxy_or_gateway;
use pointsman_control::merged_rules::MergedPolicies;
use pointsman_control::offline::Loaded;
use pointsman_resources::Severity;

use crate::cli::Format;
use crate::output::{self, Paint, Style};

/// Runs `check --for`.
pub fn run(loaded: &Loaded, name: &str, format: Format) -> Result<ExitCode> {
    let mut findings = loaded.objects.findings.iter();
    for error in findings.clone().filter(|f| f.severity == Severity::Error) {
        output::print_error(&error.to_string());
    }
    let key = match proxy_or_gateway(&loaded.binder, name) {
        Ok(key) => key,
        Err(error) => {
            output::print_error(&format!("--for `{name}`: {error}"));
            return Ok(ExitCode::from(2));
        }
    };
    let merged = MergedPolicies::new(loaded, &key, name);
    match format {
        Format::Text => output::print(&text(&merged))?,
        format => output::structured(format, &merged)?,
    }
    let has_errors = findings.any(|finding| finding.severity == Severity::Error);
    Ok(ExitCode::from(if has_errors { 2 } else { 0 }))
}

fn text(merged: &MergedPolicies) -> String {
    let paint = Paint::new();
    let mut out = String::new();
    if merged.destinations.is_empty() {
        let _ = writeln!(
            out,
            "{}: no policy applies; traffic goes to its original destination",
            merged.name
        );
    }
    for destination in &merged.destinations {
        let heading = paint.paint(Style::Strong, &destination.destination);
        let _ = writeln!(out, "{} to {heading}", merged.name);
        if destination.rules.is_empty() {
            let note = match destination.destination.starts_with("listener ") {
                true => "no policy applies; the listener has no routes",
                false => "no policy applies; traffic goes to its original destination",
            };
            let _ = writeln!(out, "    {note}");
        }
        if destination.rules.iter().any(|rule| !rule.order.is_empty()) {
            let otherwise = match destination.destination.starts_with("listener ") {
                true => "less specific hostnames are tried before the client gets 404",
                false => "the client gets 404",
            };
            let note = format!(
                "matches are evaluated in the order of their numbers; if none applies, {otherwise}"
            );
            let _ = writeln!(out, "    {}", paint.paint(Style::Faint, &note));
        }
        for rule in &destination.rules {
            let from = paint.paint(Style::Faint, &format!("from {}", rule.from.join(", ")));
            let _ = writeln!(out, "    rule {from}");
            let lists = [
                ("matches", &rule.matches),
                ("filters", &rule.filters),
                ("backendRefs", &rule.backend_refs),
            ];
            for (name, list) in lists {
                let entries = list.as_array().into_iter().flatten();
                for (index, entry) in entries.enumerate() {
                    let rank = rule.order.get(index).filter(|_| name == "matches");
                    let rank = rank.map_or(String::new(), |rank| format!("{rank}. "));
                    let _ = writeln!(out, "        {rank}{name}: {entry}");
                }
            }
        }
        out.push('\n');
    }
    out
}
