//! The command `check`: reports the status that a controller would write, for manifests or for the objects of a cluster; or with `--server`, the status that a
//! running process reports.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use pointsman_control::conditions::{ReportedCondition, ReportedObject, ReportedPage};
use pointsman_control::offline::Loaded;
use pointsman_control::{clock, report};
use pointsman_resources::text::single_line;
use pointsman_resources::{Finding, Kind, Severity};
use serde::Deserialize;
use serde_json::Value;

use crate::cli::{Check, Format};
use crate::client::ServerUrl;
use crate::input::{self, ReportScope};
use crate::merged_rules;
use crate::output::{self, Paint, Style};

/// Time limit for a request to a server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Least width of the column with the types of conditions.
const MIN_TYPE_WIDTH: usize = 16;

/// Runs `check`.
pub fn run(arguments: &Check) -> Result<ExitCode> {
    if let Some(server) = &arguments.server {
        return check_server(server, arguments);
    }
    let (loaded, scope) = input::load(&arguments.sources)?;
    if let Some(name) = &arguments.name {
        return merged_rules::run(&loaded, name, arguments.sources.output);
    }
    let report = CheckReport::offline(&loaded, &scope);
    match arguments.sources.output {
        Format::Text => output::print(&report.text(arguments.quiet))?,
        format => {
            let now = clock::now();
            output::structured(format, &list(&loaded, &scope, &report, &now))?;
        }
    }
    Ok(ExitCode::from(report.exit_status(arguments.strict)))
}

/// Prints the report of a running process.
fn check_server(server: &ServerUrl, arguments: &Check) -> Result<ExitCode> {
    let list: Value = server.json("/status", TIMEOUT)?;
    let page: ReportedPage = server.json("/conditions", TIMEOUT)?;
    let report = CheckReport::of_server(page, StatusList::deserialize(&list)?);
    match arguments.sources.output {
        Format::Text => output::print(&report.text(arguments.quiet))?,
        format => output::structured(format, &list)?,
    }
    Ok(ExitCode::from(report.exit_status(arguments.strict)))
}

/// The page `/status`, without its items.
#[derive(Deserialize)]
struct StatusList {
    errors: Vec<ReportedFinding>,
    warnings: Vec<ReportedFinding>,
    #[serde(rename = "passedOver")]
    ignored_kinds: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct ReportedFinding {
    file: Arc<str>,
    line: usize,
    column: usize,
    field: String,
    message: String,
}

impl ReportedFinding {
    fn with(self, severity: Severity) -> Finding {
        let ReportedFinding {
            file,
            line,
            column,
            field,
            message,
        } = self;
        Finding {
            severity,
            file,
            line,
            column,
            field,
            message,
        }
    }
}

/// The report on a set of objects.
struct CheckReport {
    /// Number of all objects, including kinds without a status.
    number: usize,
    ignored_kinds: BTreeMap<String, usize>,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    /// Objects of kinds that have a status, in the order of the input.
    objects: Vec<ReportedObject>,
}

/// Returns a `List` of the objects with the status that a controller would write.
fn list<'a>(
    loaded: &Loaded,
    scope: &ReportScope,
    report: &'a CheckReport,
    now: &str,
) -> report::List<'a, Value> {
    let documents = loaded.objects.documents.iter();
    let keyed = documents.map(|document| (document, document.resource.key()));
    let items = keyed.filter(|(_, key)| scope.includes(key));
    let items = items.filter(|(_, key)| pointsman_binding::has_status(key.kind));
    let items = items.map(|(document, key)| {
        let mut value = document.object();
        if let Some(status) = loaded.binder.status(&key) {
            value["status"] = status.merge(key.namespace(), value.get("status"), now);
        }
        value
    });
    let errors: Vec<&Finding> = report.errors.iter().collect();
    report::list(
        items.collect(),
        &errors,
        &report.warnings,
        &report.ignored_kinds,
    )
}

impl CheckReport {
    fn offline(loaded: &Loaded, scope: &ReportScope) -> Self {
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
                ReportedObject::new(&key, document, status.map(AsRef::as_ref))
            })
            .collect();
        CheckReport {
            errors: findings.iter().filter(is_error).cloned().collect(),
            warnings,
            objects,
            number,
            ignored_kinds: loaded.objects.ignored_kinds.clone(),
        }
    }

    fn of_server(page: ReportedPage, list: StatusList) -> Self {
        let findings = |all: Vec<ReportedFinding>, severity| {
            let all = all.into_iter();
            all.map(|finding| finding.with(severity)).collect()
        };
        CheckReport {
            errors: findings(list.errors, Severity::Error),
            warnings: findings(list.warnings, Severity::Warning),
            objects: page.objects,
            number: page.resources,
            ignored_kinds: list.ignored_kinds,
        }
    }

    fn exit_status(&self, strict: bool) -> u8 {
        if !self.errors.is_empty() {
            2
        } else if self.objects.iter().any(ReportedObject::has_problem)
            || (strict && !self.warnings.is_empty())
        {
            1
        } else {
            0
        }
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
            block(object, &paint, &mut out);
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "{}", located(&paint, Style::Warn, warning));
        }
        if !self.warnings.is_empty() {
            out.push('\n');
        }
        if !quiet {
            for object in self.objects.iter().filter(|object| !object.has_problem()) {
                block(object, &paint, &mut out);
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

/// Writes the block of a resource: a heading, then its conditions by section.
fn block(object: &ReportedObject, paint: &Paint, out: &mut String) {
    let (mark, style) = match (object.conditions.is_empty(), object.has_problem()) {
        (true, _) => ("-", Style::Faint),
        (false, true) => ("✗", Style::Bad),
        (false, false) => ("✓", Style::Good),
    };
    let _ = writeln!(
        out,
        "{} {}  {}",
        paint.paint(style, mark),
        paint.paint(Style::Strong, &object.object),
        paint.paint(Style::Faint, &object.position),
    );
    if object.conditions.is_empty() {
        let note = paint.paint(Style::Faint, "not managed by Pointsman");
        let _ = writeln!(out, "    {note}");
    }
    policy_targets(object, paint, out);
    let mut last: Option<&str> = None;
    let types = object.conditions.iter().map(|condition| &condition.kind);
    let width = types.map(String::len).fold(MIN_TYPE_WIDTH, usize::max);
    for condition in &object.conditions {
        let section = condition.subject.as_str();
        if last != Some(section) && !section.is_empty() {
            let routes = object.attached_routes.get(section);
            let routes = routes.map_or(String::new(), |n| format!(" ({n} attached)"));
            let _ = writeln!(out, "    {section}{routes}");
        }
        last = Some(section);
        let indent = if section.is_empty() { 4 } else { 6 };
        condition_lines(paint, condition, indent, width, out);
    }
    out.push('\n');
}

/// Writes the destinations and proxies to which a Kuma policy applies.
fn policy_targets(object: &ReportedObject, paint: &Paint, out: &mut String) {
    for reach in &object.reaches {
        let (to, proxies) = (&reach.to, reach.proxies.join(", "));
        let mut line = match reach.proxies.is_empty() {
            true => format!("applies to {to}, which no proxy calls or serves"),
            false if to.starts_with(Kind::MeshGateway.name()) => {
                format!("applies to {to} on {proxies}")
            }
            false => format!("applies to calls to {to} from {proxies}"),
        };
        if reach.more > 0 {
            let _ = write!(line, " and {} more", reach.more);
        }
        let _ = writeln!(out, "    {}", paint.paint(Style::Faint, &line));
    }
}

fn condition_lines(
    paint: &Paint,
    condition: &ReportedCondition,
    indent: usize,
    width: usize,
    out: &mut String,
) {
    let style = if condition.problem {
        Style::Bad
    } else {
        Style::Good
    };
    let (_, name) = condition
        .kind
        .split_once('/')
        .unwrap_or(("", &condition.kind));
    let reason = if condition.reason == name {
        ""
    } else {
        &condition.reason
    };
    let line = format!(
        "{:<width$} {} {}",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statuses_of_an_objects_conditions_are_aligned() {
        let condition = |kind: &str| ReportedCondition {
            subject: String::new(),
            kind: kind.to_owned(),
            status: "True".to_owned(),
            reason: "Reason".to_owned(),
            message: String::new(),
            problem: false,
        };
        let object = ReportedObject {
            object: "HTTPRoute shop/web".to_owned(),
            position: String::new(),
            generation: 1,
            conditions: vec![condition("Accepted"), condition("pointsman.io/InEffect")],
            attached_routes: BTreeMap::new(),
            reaches: Vec::new(),
        };
        let mut out = String::new();
        block(&object, &Paint::plain(), &mut out);
        let columns: Vec<_> = out.lines().filter_map(|line| line.find("True")).collect();
        assert_eq!(columns.len(), 2, "{out}");
        assert_eq!(columns[0], columns[1], "{out}");
    }
}
