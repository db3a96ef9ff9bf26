//! `check --for`: the merged rules of Kuma's policies for one proxy, in the syntax of the policies.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use pointsman_binding::bound::{RuleSource, policy_names};
use pointsman_binding::{MergedRule, MergedRules};
use pointsman_control::explain::proxy_or_gateway;
use pointsman_control::offline::Loaded;
use pointsman_resources::Severity;
use pointsman_routing::evaluation_order;
use serde::Serialize;
use serde_json::Value;

use crate::cli::Format;
use crate::output::{self, Paint, Style};

/// Output of `check --for`.
#[derive(Serialize)]
struct MergedOutput<'a> {
    #[serde(rename = "for")]
    name: &'a str,
    destinations: Vec<DestinationOutput>,
}

#[derive(Serialize)]
struct DestinationOutput {
    destination: String,
    rules: Vec<RuleOutput>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleOutput {
    /// Ranks of the rule's matches, starting at 1, in the order in which the matches of the destination are evaluated. Empty for streams, and for a rule
    /// that can't be matched.
    order: Vec<usize>,
    matches: Value,
    filters: Value,
    backend_refs: Value,
    from: Vec<String>,
}

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
    let rules = loaded.binder.merged_rules(&key).into_iter();
    let merged = MergedOutput {
        name,
        destinations: rules.map(|rules| destination(loaded, rules)).collect(),
    };
    match format {
        Format::Text => output::print(&text(&merged))?,
        format => output::structured(format, &merged)?,
    }
    let has_errors = findings.any(|finding| finding.severity == Severity::Error);
    Ok(ExitCode::from(if has_errors { 2 } else { 0 }))
}

/// Returns the rules of a destination, ordered by the rank of their first match.
fn destination(loaded: &Loaded, merged: MergedRules) -> DestinationOutput {
    let ranked = merged
        .route
        .as_deref()
        .map(evaluation_order)
        .unwrap_or_default();
    let ranks = |rule: &MergedRule| -> Vec<usize> {
        let own = ranked.iter().enumerate();
        let own = own.filter(|(_, (bound, _))| bound.from == rule.from);
        let mut own: Vec<(usize, usize)> = own.map(|(at, (_, index))| (*index, at + 1)).collect();
        own.sort();
        own.into_iter().map(|(_, at)| at).collect()
    };
    let rules = merged.rules.iter();
    let mut rules: Vec<RuleOutput> = rules
        .map(|rule| rule_output(loaded, rule, ranks(rule)))
        .collect();
    rules.sort_by_key(|rule| rule.order.iter().min().copied().unwrap_or(usize::MAX));
    DestinationOutput {
        destination: merged.destination,
        rules,
    }
}

fn rule_output(loaded: &Loaded, rule: &MergedRule, order: Vec<usize>) -> RuleOutput {
    let list = |source: Option<&RuleSource>, field: &str| {
        let found = source.and_then(|source| source_rule(loaded, source));
        let found = found.and_then(|rule| rule.pointer(field).cloned());
        found.unwrap_or(Value::Array(Vec::new()))
    };
    RuleOutput {
        order,
        matches: list(rule.from.first(), "/matches"),
        filters: list(rule.filters.as_ref(), "/default/filters"),
        backend_refs: list(rule.backend_refs.as_ref(), "/default/backendRefs"),
        from: policy_names(&rule.from),
    }
}

/// Returns a rule as its author wrote it.
fn source_rule(loaded: &Loaded, source: &RuleSource) -> Option<Value> {
    let object = loaded.document(&source.policy)?.object();
    let pointer = match source.to {
        Some(to) => format!("/spec/to/{to}/rules/{}", source.rule),
        None => format!("/spec/rules/{}", source.rule),
    };
    object.pointer(&pointer).cloned()
}

fn text(merged: &MergedOutput<'_>) -> String {
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
