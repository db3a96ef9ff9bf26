//! `check`: what a controller would say, offline.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use pointsman_binding::bound::FrontendId;
use pointsman_binding::status::{Condition, Status};
use pointsman_resources::read::Document;
use pointsman_resources::{Finding, ObjectKey, Severity};
use pointsman_routing::{Extent, shadowed};
use serde_json::{Value, json};

use crate::cli::{Check, Format};
use crate::clock;
use crate::input::{self, World};
use crate::output::{self, Paint, Style};

/// Runs `check`.
pub fn run(arguments: &Check) -> Result<ExitCode> {
    let world = input::load(&arguments.sources.paths);
    let report = Report::new(&world);
    match arguments.sources.output {
        Format::Text => output::print(&report.text(arguments.quiet))?,
        format => output::structured(format, &report.list(&clock::now()))?,
    }
    Ok(ExitCode::from(report.exit(arguments.strict)))
}

/// Everything that there is to say.
struct Report<'a> {
    world: &'a World,
    errors: Vec<&'a Finding>,
    warnings: Vec<Finding>,
    /// Every object that something is said of, in the order of the input.
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    document: &'a Document,
    key: ObjectKey,
    status: Option<&'a Arc<Status>>,
}

impl Entry<'_> {
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

impl<'a> Report<'a> {
    fn new(world: &'a World) -> Self {
        let findings = &world.input.findings;
        let is_error = |finding: &&Finding| finding.severity == Severity::Error;
        let mut warnings: Vec<Finding> = findings
            .iter()
            .filter(|finding| !is_error(finding))
            .cloned()
            .collect();
        let documents: BTreeMap<ObjectKey, &Document> = world
            .input
            .documents
            .iter()
            .map(|d| (d.resource.key(), d))
            .collect();
        let mut warn = |object: &ObjectKey, field: String, message: String| {
            if let Some(document) = documents.get(object) {
                let (line, column) = document.position(&field);
                let (severity, file) = (Severity::Warning, document.file.clone());
                let message = format!("{object}: {message}");
                let finding = Finding {
                    severity,
                    file,
                    line,
                    column,
                    field,
                    message,
                };
                warnings.push(finding);
            }
        };
        for warning in world.binder.warnings() {
            warn(&warning.object, warning.field, warning.message);
        }
        for (object, field, message) in shadows(world) {
            warn(&object, field, message);
        }
        warnings.sort_by(|a, b| order(a).cmp(&order(b)));
        warnings.dedup();
        let entries = world
            .input
            .documents
            .iter()
            .map(|document| (document, document.resource.key()))
            .filter(|(_, key)| pointsman_binding::has_status(key.kind))
            .map(|(document, key)| {
                let status = world.binder.status(&key);
                Entry {
                    document,
                    key,
                    status,
                }
            })
            .collect();
        Report {
            world,
            errors: findings.iter().filter(is_error).collect(),
            warnings,
            entries,
        }
    }

    fn exit(&self, strict: bool) -> u8 {
        if !self.errors.is_empty() {
            2
        } else if self.entries.iter().any(Entry::has_problem)
            || (strict && !self.warnings.is_empty())
        {
            1
        } else {
            0
        }
    }

    /// A `List` of what something is said of, with the very status that would be written.
    fn list(&self, now: &str) -> Value {
        let items = self.entries.iter().map(|entry| {
            let mut object = entry.document.object.clone();
            if let Some(status) = entry.status {
                object["status"] = status.merge(object.get("status"), now);
            }
            object
        });
        json!({
            "apiVersion": "v1",
            "kind": "List",
            "items": items.collect::<Vec<_>>(),
            "errors": self.errors.iter().map(|finding| finding_value(finding)).collect::<Vec<_>>(),
            "warnings": self.warnings.iter().map(finding_value).collect::<Vec<_>>(),
            "passedOver": self.world.input.passed_over,
        })
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
        for entry in self.entries.iter().filter(|entry| entry.has_problem()) {
            entry.block(&paint, &mut out);
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "{}", located(&paint, Style::Warn, warning));
        }
        if !self.warnings.is_empty() {
            out.push('\n');
        }
        if !quiet {
            for entry in self.entries.iter().filter(|entry| !entry.has_problem()) {
                entry.block(&paint, &mut out);
            }
        }
        let _ = writeln!(out, "{}", self.summary(&paint));
        out
    }

    fn summary(&self, paint: &Paint) -> String {
        let refused = self
            .entries
            .iter()
            .filter(|entry| entry.has_problem())
            .count();
        let count = |number: usize, one: &str, many: &str| {
            format!("{number} {}", if number == 1 { one } else { many })
        };
        let mut parts = vec![count(
            self.world.input.documents.len(),
            "resource",
            "resources",
        )];
        let mut add = |style, number, one: &str, many: &str| {
            if number > 0 {
                parts.push(paint.paint(style, &count(number, one, many)));
            }
        };
        add(
            Style::Bad,
            self.errors.len(),
            "error in what was read",
            "errors in what was read",
        );
        add(Style::Bad, refused, "with problems", "with problems");
        add(Style::Warn, self.warnings.len(), "warning", "warnings");
        if self.errors.is_empty() && refused == 0 && self.warnings.is_empty() {
            parts.push(paint.paint(Style::Good, "all is well"));
        }
        let others: usize = self.world.input.passed_over.values().sum();
        if others > 0 {
            let kinds: Vec<&str> = self
                .world
                .input
                .passed_over
                .keys()
                .map(String::as_str)
                .collect();
            parts.push(format!(
                "{others} of other kinds passed over ({})",
                kinds.join(", ")
            ));
        }
        parts.join(", ")
    }
}

impl Entry<'_> {
    /// The block of one resource: a heading, then its conditions by place.
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
        let place = format!("{}:{}", self.document.file, self.document.line);
        let _ = writeln!(
            out,
            "{} {}  {}",
            paint.paint(style, mark),
            paint.paint(Style::Strong, &self.key.to_string()),
            paint.paint(Style::Faint, &place),
        );
        if conditions.is_empty() {
            let _ = writeln!(
                out,
                "    {}",
                paint.paint(Style::Faint, "nothing is said of it here")
            );
        }
        let attached = attached_routes(self.status);
        let mut last: Option<&str> = None;
        for (where_, condition) in &conditions {
            if last != Some(where_) && !where_.is_empty() {
                let routes = attached.get(where_.as_str());
                let routes = routes
                    .map(|n| format!(" ({n} attached)"))
                    .unwrap_or_default();
                let _ = writeln!(out, "    {where_}{routes}");
            }
            last = Some(where_);
            condition_lines(paint, condition, if where_.is_empty() { 4 } else { 6 }, out);
        }
        out.push('\n');
    }
}

/// How many routes are attached, by the place of a listener's conditions.
fn attached_routes(status: Option<&Arc<Status>>) -> BTreeMap<String, usize> {
    use pointsman_binding::status::StatusBody;
    match status.map(|status| &status.body) {
        Some(StatusBody::Gateway { listeners, .. }) => listeners
            .iter()
            .map(|l| (format!("listener {}", l.name), l.attached_routes))
            .collect(),
        _ => BTreeMap::new(),
    }
}

fn condition_lines(paint: &Paint, condition: &Condition, indent: usize, out: &mut String) {
    let status = if condition.status { "True" } else { "False" };
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
        paint.paint(style, &format!("{status:<5}")),
        reason
    );
    let _ = writeln!(out, "{:indent$}{}", "", line.trim_end());
    for text in condition.message.lines() {
        let _ = writeln!(out, "{:indent$}  {text}", "");
    }
}

/// Findings are told from top to bottom of each file.
fn order(finding: &Finding) -> (&str, usize, usize, &str) {
    let Finding {
        file,
        line,
        column,
        message,
        ..
    } = finding;
    (file, *line, *column, message)
}

fn located(paint: &Paint, style: Style, finding: &Finding) -> String {
    let Finding {
        field,
        message,
        severity,
        ..
    } = finding;
    let field = if field.is_empty() {
        String::new()
    } else {
        format!("{field}: ")
    };
    format!(
        "{} {}: {field}{message}",
        paint.paint(style, &format!("{severity}:")),
        finding.place()
    )
}

fn finding_value(finding: &Finding) -> Value {
    json!({
        "file": &*finding.file,
        "line": finding.line,
        "column": finding.column,
        "field": finding.field,
        "message": finding.message,
    })
}

/// Rules that lose requests to others: object, field and message.
fn shadows(world: &World) -> BTreeSet<(ObjectKey, String, String)> {
    let mut attached: HashMap<&ObjectKey, usize> = HashMap::new();
    let mut lost: HashMap<(ObjectKey, String), usize> = HashMap::new();
    let mut found = Vec::new();
    for table in world.tables.frontends() {
        for route in table.routes() {
            *attached.entry(&route.route).or_default() += 1;
        }
        for shadow in shadowed(table) {
            let rule = shadow.rule.index;
            let field = format!("spec.rules[{rule}].matches[{}]", shadow.match_index);
            let of = (shadow.route.route.clone(), field);
            if shadow.extent == Extent::Fully {
                *lost.entry(of.clone()).or_default() += 1;
            }
            found.push((&table.frontend().id, of, shadow));
        }
    }
    let told = found.into_iter().map(|(frontend, of, shadow)| {
        let winner = match shadow.by_route.route == shadow.route.route {
            true => format!("rule {}", shadow.by.index),
            false => format!("rule {} of {}", shadow.by.index, shadow.by_route.route),
        };
        let loss = match shadow.extent {
            Extent::Partly => format!("{winner} takes some of its requests"),
            Extent::Fully => {
                // What is lost here may be had elsewhere.
                let everywhere = lost.get(&of) == attached.get(&of.0);
                let place = match everywhere {
                    true => String::new(),
                    false => place(frontend),
                };
                format!("{place}it never gets a request: {winner} takes them all")
            }
        };
        (of.0, of.1, format!("{loss} ({})", shadow.detail))
    });
    told.collect()
}

fn place(frontend: &FrontendId) -> String {
    match frontend {
        FrontendId::Listener { listener, .. } => format!("on listener {listener}: "),
        FrontendId::Mesh { port, .. } => format!("on port {port}: "),
    }
}
