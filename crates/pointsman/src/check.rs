//! The command `check`: reports the status that a controller would write, for manifests or for the objects of a cluster.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use pointsman_binding::status::{Condition, Status, StatusBody};
use pointsman_control::offline::Loaded;
use pointsman_control::{clock, report};
use pointsman_resources::read::Document;
use pointsman_resources::text::single_line;
use pointsman_resources::{Finding, ObjectKey, Severity};
use serde_json::Value;

use crate::cli::{Check, Format};
use crate::input::{self, ReportScope};
use crate::merged_rules;
use crate::output::{self, Paint, Style};

/// Proxies that are listed for one destination of a Kuma policy.
const MAX_PROXIES: usize = 10;

/// Runs `check`.
pub fn run(arguments: &Check) -> Result<ExitCode> {
    let (loaded, scope) = input::load(&arguments.sources)?;
    if let Some(name) = &arguments.name {
        return merged_rules::run(&loaded, name, arguments.sources.output);
    }
    let report = CheckReport::new(&loaded, &scope);
    match arguments.sources.output {
        Format::Text => output::print(&report.text(arguments.quiet))?,
        format => output::structured(format, &report.list(&clock::now()))?,
    }
    Ok(ExitCode::from(report.exit_status(arguments.strict)))
}

/// The report on a set of manifests.
struct CheckReport<'a> {
    /// Number of all objects, including kinds without a status.
    number: usize,
    ignored_kinds: &'a BTreeMap<String, usize>,
    errors: Vec<&'a Finding>,
    warnings: Vec<Finding>,
    /// Objects of kinds that have a status, in the order of the input.
    objects: Vec<CheckedObject<'a>>,
}

struct CheckedObject<'a> {
    document: &'a Document,
    key: ObjectKey,
    status: Option<&'a Arc<Status>>,
}

impl CheckedObject<'_> {
    fn has_problem(&self) -> bool {
        let conditions = self
            .status
            .map(|status| status.conditions())
            .unwrap_or_default();
        conditions
            .iter()
            .any(|(_, condition)| condition.is_problem())
    }
}

impl<'a> CheckReport<'a> {
    fn new(loaded: &'a Loaded, scope: &ReportScope) -> Self {
        let findings = &loaded.objects.findings;
        let is_error = |finding: &&Finding| finding.severity == Severity::Error;
        let documents = loaded.objects.documents.iter();
        let documents = documents.map(|document| (&**document, document.resource.key()));
        let documents = documents.filter(|(_, key)| scope.includes(key));
        let mut bound = loaded.binder.warnings();
        bound.extend(loaded.binder.certificate_warnings(clock::unix_seconds()));
        let warnings = report::warnings(findings, bound, &loaded.tables, |key| {
            loaded.document(key).filter(|_| scope.includes(key))
        });
        let number = documents.clone().count();
        let objects = documents
            .filter(|(_, key)| pointsman_binding::has_status(key.kind))
            .map(|(document, key)| {
                let status = loaded.binder.status(&key);
                CheckedObject {
                    document,
                    key,
                    status,
                }
            })
            .collect();
        CheckReport {
            errors: findings.iter().filter(is_error).collect(),
            warnings,
            objects,
            number,
            ignored_kinds: &loaded.objects.ignored_kinds,
        }
    }

    fn exit_status(&self, strict: bool) -> u8 {
        if !self.errors.is_empty() {
            2
        } else if self.objects.iter().any(CheckedObject::has_problem)
            || (strict && !self.warnings.is_empty())
        {
            1
        } else {
            0
        }
    }

    /// Returns a `List` of the objects with the status that a controller would write.
    fn list(&self, now: &str) -> report::List<'_, Value> {
        let items = self.objects.iter().map(|object| {
            let mut value = object.document.object();
            if let Some(status) = object.status {
                value["status"] = status.merge(object.key.namespace(), value.get("status"), now);
            }
            value
        });
        let items = items.collect::<Vec<_>>();
        report::list(items, &self.errors, &self.warnings, self.ignored_kinds)
    }

    fn text(&self, quiet: bool) -> String {
        let paint = Paint::new();
        let mut out = String::new();
        for error in &self.errors {
            let _ = writeln!(out, "{}", located(&paint, Style::Bad, error));
        }
        if !self.errors.is_empty() {
            out.push('\n');
        }
        for object in self.objects.iter().filter(|object| object.has_problem()) {
            object.block(&paint, &mut out);
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "{}", located(&paint, Style::Warn, warning));
        }
        if !self.warnings.is_empty() {
            out.push('\n');
        }
        if !quiet {
            for object in self.objects.iter().filter(|object| !object.has_problem()) {
                object.block(&paint, &mut out);
            }
        }
        let _ = writeln!(out, "{}", self.summary(&paint));
        out
    }

    fn summary(&self, paint: &Paint) -> String {
        let rejected = self
            .objects
            .iter()
            .filter(|object| object.has_problem())
            .count();
        let count = |number: usize, one: &str, many: &str| {
            format!("{number} {}", if number == 1 { one } else { many })
        };
        let mut parts = vec![count(self.number, "resource", "resources")];
        let mut add = |style, number, one: &str, many: &str| {
            if number > 0 {
                parts.push(paint.paint(style, &count(number, one, many)));
            }
        };
        add(Style::Bad, self.errors.len(), "input error", "input errors");
        add(Style::Bad, rejected, "with problems", "with problems");
        add(Style::Warn, self.warnings.len(), "warning", "warnings");
        if self.errors.is_empty() && rejected == 0 && self.warnings.is_empty() {
            parts.push(paint.paint(Style::Good, "no problems"));
        }
        let others: usize = self.ignored_kinds.values().sum();
        if others > 0 {
            let kinds = self.ignored_kinds.keys();
            let kinds: Vec<Cow<'_, str>> = kinds.map(|kind| single_line(kind)).collect();
            let ignored = count(others, "object of another kind", "objects of other kinds");
            parts.push(format!("{ignored} ignored ({})", kinds.join(", ")));
        }
        parts.join(", ")
    }
}

impl CheckedObject<'_> {
    /// Writes the block of a resource: a heading, then its conditions by section.
    fn block(&self, paint: &Paint, out: &mut String) {
        let conditions = self
            .status
            .map(|status| status.conditions())
            .unwrap_or_default();
        let (mark, style) = match (conditions.is_empty(), self.has_problem()) {
            (true, _) => ("-", Style::Faint),
            (false, true) => ("✗", Style::Bad),
            (false, false) => ("✓", Style::Good),
        };
        // Objects of a cluster have no position.
        let position = match self.document.line {
            0 => String::new(),
            line => format!("{}:{line}", self.document.file),
        };
        let _ = writeln!(
            out,
            "{} {}  {}",
            paint.paint(style, mark),
            paint.paint(Style::Strong, &self.key.to_string()),
            paint.paint(Style::Faint, &position),
        );
        if conditions.is_empty() {
            let note = paint.paint(Style::Faint, "not managed by Pointsman");
            let _ = writeln!(out, "    {note}");
        }
        self.policy_targets(paint, out);
        let attached = attached_routes(self.status);
        let mut last: Option<&str> = None;
        for (section, condition) in &conditions {
            if last != Some(section) && !section.is_empty() {
                let routes = attached.get(section.as_str());
                let routes = routes.map_or(String::new(), |n| format!(" ({n} attached)"));
                let _ = writeln!(out, "    {section}{routes}");
            }
            last = Some(section);
            let indent = if section.is_empty() { 4 } else { 6 };
            condition_lines(paint, condition, indent, out);
        }
        out.push('\n');
    }

    /// Writes the destinations and proxies to which a Kuma policy applies.
    fn policy_targets(&self, paint: &Paint, out: &mut String) {
        let Some(StatusBody::Mesh { reaches, .. }) = self.status.map(|status| &status.body) else {
            return;
        };
        for reach in reaches {
            let proxies = reach.proxies();
            let named = proxies.iter().take(MAX_PROXIES).map(ToString::to_string);
            let named: Vec<String> = named.collect();
            let mut line = match named.is_empty() {
                true => format!("applies to {}, which no proxy serves", reach.to),
                false => format!("applies to {} on {}", reach.to, named.join(", ")),
            };
            if let more @ 1.. = proxies.len().saturating_sub(MAX_PROXIES) {
                let _ = write!(line, " and {more} more");
            }
            let _ = writeln!(out, "    {}", paint.paint(Style::Faint, &line));
        }
    }
}

/// Number of attached routes, by the section of a listener's conditions.
fn attached_routes(status: Option<&Arc<Status>>) -> BTreeMap<String, usize> {
    match status.map(|status| &status.body) {
        Some(StatusBody::Gateway { listeners, .. }) => listeners
            .iter()
            .map(|l| (format!("listener {}", l.name), l.attached_routes))
            .collect(),
        _ => BTreeMap::new(),
    }
}

fn condition_lines(paint: &Paint, condition: &Condition, indent: usize, out: &mut String) {
    let style = if condition.is_problem() {
        Style::Bad
    } else {
        Style::Good
    };
    let reason = if condition.reason == condition.kind {
        ""
    } else {
        condition.reason
    };
    let line = format!(
        "{:<16} {} {}",
        condition.kind,
        paint.paint(style, &format!("{:<5}", condition.status)),
        reason
    );
    let _ = writeln!(out, "{:indent$}{}", "", line.trim_end());
    for text in condition.message.lines() {
        let _ = writeln!(out, "{:indent$}  {text}", "");
    }
}

fn located(paint: &Paint, style: Style, finding: &Finding) -> String {
    format!(
        "{} {}: {}",
        paint.paint(style, &format!("{}:", finding.severity)),
        finding.location(),
        finding.text()
    )
}
