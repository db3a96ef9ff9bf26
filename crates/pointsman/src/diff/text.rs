//! The comparison as text.

use std::fmt::Write;

use pointsman_resources::text::{counted, single_line};
use pointsman_routing::diff::{Cause, Comparison, Difference, RulePair, SampleRequest, Treatment};
use pointsman_routing::explain::{FrontendRef, RuleRef};

use crate::explain::rule_text;
use crate::output::{Paint, Style};

/// Number of rules, listeners and backends that are listed in one line.
const MAX_LISTED: usize = 5;

/// Renders a comparison.
pub fn render(comparison: &Comparison, paint: &Paint) -> String {
    let mut out = String::new();
    for difference in &comparison.differences {
        write_difference(&mut out, difference, paint);
    }
    if let Some(recorded) = &comparison.recorded {
        let (changed, all) = (recorded.changed, recorded.requests);
        let summary = format!("{changed} of {all} recorded requests are treated differently");
        let _ = writeln!(out, "{}", paint.paint(Style::Strong, &summary));
        if !recorded.differences.is_empty() {
            out.push('\n');
        }
        for difference in &recorded.differences {
            write_difference(&mut out, difference, paint);
        }
    }
    notes(&mut out, comparison, paint);
    let requests = counted(comparison.representative_requests, "representative request");
    let summary = match comparison.differences.len() {
        0 => format!("no differences ({requests})"),
        number => format!("{} ({requests})", counted(number, "difference")),
    };
    let _ = writeln!(out, "{summary}");
    out
}

fn notes(out: &mut String, comparison: &Comparison, paint: &Paint) {
    let mut note = |text: String| {
        let _ = writeln!(out, "{}: {text}", paint.paint(Style::Warn, "note"));
    };
    if !comparison.complete {
        note("there are too many representative requests: not all were decided, and differences may be missing".to_owned());
    }
    if !comparison.not_sampled.is_empty() {
        let rules = listed(comparison.not_sampled.iter().map(rule_text));
        note(format!(
            "no request was found for the conditions of {rules}"
        ));
    }
    if !comparison.changed_endpoints.is_empty() {
        let backends = listed(comparison.changed_endpoints.iter().cloned());
        note(format!(
            "endpoints differ, which is not counted as a difference: {backends}"
        ));
    }
}

/// Joins the first few texts.
fn listed(texts: impl ExactSizeIterator<Item = String>) -> String {
    let more = texts.len().saturating_sub(MAX_LISTED);
    let mut text = texts.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

fn write_difference(out: &mut String, difference: &Difference, paint: &Paint) {
    let title = single_line(&title(difference)).into_owned();
    let recorded = match difference.requests {
        Some(requests) => format!(": {}", counted(requests, "request")),
        None => String::new(),
    };
    let _ = writeln!(out, "{}{recorded}", paint.paint(Style::Strong, &title));
    if !difference.frontends.is_empty() {
        let frontends = listed(difference.frontends.iter().map(frontend_text));
        let _ = writeln!(out, "    at {frontends}");
    }
    if let Some(request) = &difference.request {
        request_text(out, request);
    }
    if !difference.lines.is_empty() {
        let lines: Vec<String> = difference.lines.iter().map(usize::to_string).collect();
        let _ = writeln!(out, "    recorded in lines {}", lines.join(", "));
    }
    for (name, style, treatment) in [
        ("old", Style::Bad, &difference.old),
        ("new", Style::Good, &difference.new),
    ] {
        if let Some(treatment) = treatment {
            let text = single_line(&treatment_text(treatment)).into_owned();
            let _ = writeln!(out, "    {}  {text}", paint.paint(style, name));
        }
    }
    for change in &difference.changes {
        // These are part of the treatments.
        if difference.request.is_some() && ["outcome", "backends"].contains(&&*change.field) {
            continue;
        }
        let value = |value: &Option<String>| match value.as_deref() {
            Some("") => "(empty)".to_owned(),
            Some(value) => single_line(value).into_owned(),
            None => "none".to_owned(),
        };
        let field = single_line(&change.field);
        let (old, new) = (value(&change.old), value(&change.new));
        let _ = writeln!(out, "    {field}: {old} → {new}");
    }
    out.push('\n');
}

fn request_text(out: &mut String, request: &SampleRequest) {
    let method = request.method.as_ref();
    let method = method.map_or(String::new(), |method| format!("{method} "));
    let from = request.from.as_ref();
    let from = from.map_or(String::new(), |from| format!("  from {from}"));
    let sni = request.sni.as_ref();
    let sni = sni.map_or(String::new(), |sni| format!("  SNI {sni}"));
    let text = format!("{method}{}{sni}{from}", request.url);
    let _ = writeln!(out, "    {}", single_line(&text));
    for header in &request.headers {
        let _ = writeln!(out, "        {}", single_line(header));
    }
}

fn treatment_text(treatment: &Treatment) -> String {
    match &treatment.rule {
        Some(rule) => format!("{}: {}", rule_text(rule), treatment.description),
        None => treatment.description.clone(),
    }
}

fn frontend_text(frontend: &FrontendRef) -> String {
    let name = match frontend.namespace.is_empty() {
        true => frontend.name.clone(),
        false => format!("{}/{}", frontend.namespace, frontend.name),
    };
    let section = frontend.section.as_ref();
    let section = section.map_or(String::new(), |name| format!(" listener {name}"));
    let scope = frontend.scope.as_ref();
    let scope = scope.map_or(String::new(), |scope| format!(" for {scope}"));
    format!(
        "{} {name}{section} port {}{scope}",
        frontend.kind, frontend.port
    )
}

/// Returns the name of the cause.
fn title(difference: &Difference) -> String {
    let frontend = || match difference.frontends.first() {
        Some(frontend) => frontend_text(frontend),
        None => "the destination".to_owned(),
    };
    let hostname = difference.hostname.as_deref().unwrap_or_default();
    match difference.cause {
        Cause::ListenerAdded => format!("{} is new", frontend()),
        Cause::ListenerRemoved => format!("{} is removed", frontend()),
        Cause::ListenerChanged => format!("{} has changed", frontend()),
        Cause::HostAdded => {
            let routes = routes(difference, |pair| pair.new.as_ref());
            format!("host {hostname} is new: {routes}")
        }
        Cause::HostRemoved => {
            let routes = routes(difference, |pair| pair.old.as_ref());
            format!("host {hostname} is removed: {routes}")
        }
        Cause::RouteAdded => {
            let routes = routes(difference, |pair| pair.new.as_ref());
            match others(difference, |pair| pair.old.as_ref()) {
                Some(others) => format!("{routes} is new and takes requests from {others}"),
                None => format!("{routes} is new"),
            }
        }
        Cause::RouteRemoved => {
            let routes = routes(difference, |pair| pair.old.as_ref());
            match others(difference, |pair| pair.new.as_ref()) {
                Some(others) => format!("{routes} is removed: its requests go to {others}"),
                None => format!("{routes} is removed"),
            }
        }
        Cause::RuleChanged => {
            let rules = rules(difference, |pair| pair.new.as_ref());
            let verb = if difference.rules.len() == 1 {
                "has"
            } else {
                "have"
            };
            format!("{} {verb} changed", listed(rules.into_iter()))
        }
        Cause::OtherRule => match difference.rules.first() {
            Some(RulePair {
                old: Some(old),
                new: Some(new),
            }) => format!("requests of {} go to {}", rule_text(old), rule_text(new)),
            Some(RulePair {
                old: None,
                new: Some(new),
            }) => format!("{} matches additional requests", rule_text(new)),
            Some(RulePair {
                old: Some(old),
                new: None,
            }) => format!(
                "{} loses requests, which no rule matches now",
                rule_text(old)
            ),
            _ => "another rule matches".to_owned(),
        },
        Cause::DestinationChanged => format!("{} has changed", frontend()),
    }
}

/// Lists the different rules of one side.
fn rules<'d>(
    difference: &'d Difference,
    side: impl Fn(&'d RulePair) -> Option<&'d RuleRef>,
) -> Vec<String> {
    let mut texts = Vec::new();
    for rule in difference.rules.iter().filter_map(side) {
        let text = rule_text(rule);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

fn others<'d>(
    difference: &'d Difference,
    side: impl Fn(&'d RulePair) -> Option<&'d RuleRef>,
) -> Option<String> {
    let rules = rules(difference, side);
    (!rules.is_empty()).then(|| listed(rules.into_iter()))
}

/// Lists the different routes of one side.
fn routes<'d>(
    difference: &'d Difference,
    side: impl Fn(&'d RulePair) -> Option<&'d RuleRef>,
) -> String {
    let mut texts = Vec::new();
    for rule in difference.rules.iter().filter_map(side) {
        let text = match rule.namespace.is_empty() {
            true => format!("{} {}", rule.kind, rule.name),
            false => format!("{} {}/{}", rule.kind, rule.namespace, rule.name),
        };
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    listed(texts.into_iter())
}
