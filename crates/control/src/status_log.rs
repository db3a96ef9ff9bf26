//! The status log: a line for each change of the configuration, for each problem that appears, and for each that is resolved.
//!
//! Problems are those that `check` reports: errors in the input, and conditions that report something as rejected, unresolved or not in effect. The log knows the problems of
//! every object, compares only those that a change touched, and writes at most [`MAX_LINES`] of each sort; `/status` has them all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::Warning;
use pointsman_binding::status::{Condition, Status};
use pointsman_resources::{Finding, ObjectKey, Severity};

use crate::journal::StatusEntry;

/// Most problems that one change logs as new, and as resolved.
const MAX_LINES: usize = 10;

/// Source of problems. Those of one source are replaced together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    /// The input as a whole, such as a file that can't be parsed.
    Input,
    /// The status of an object.
    Status(ObjectKey),
    /// Certificates in use.
    Certificates,
}

/// Kind of a problem: how it is counted and at which level it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Input that can't be used. Logged as an error.
    Error,
    /// A condition of a status. Logged as a warning.
    Condition,
    /// Something legal but surprising. Logged as a warning.
    Warning,
}

/// A problem with its place. Ordered as problems are logged: the worst first, then from top to bottom of each file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    level: Level,
    file: Arc<str>,
    /// Line and column, from 1; 0 if not known.
    line: usize,
    column: usize,
    text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        write!(f, ": {}", in_one_line(&self.text))
    }
}

/// Problems of one source, by file and text: the line changes with every edit further up in the file.
type Problems = BTreeMap<(Arc<str>, String), Problem>;

fn by_text(problems: impl Iterator<Item = Problem>) -> Problems {
    let keyed = problems.map(|problem| ((problem.file.clone(), problem.text.clone()), problem));
    keyed.collect()
}

/// The problems that are known, and those that have changed since they were last logged.
#[derive(Default)]
pub struct StatusLog {
    known: BTreeMap<Origin, Problems>,
    problems: usize,
    warnings: usize,
    appeared: BTreeSet<Problem>,
    resolved: BTreeSet<Problem>,
}

impl StatusLog {
    /// Replaces the findings of the input.
    pub fn record_findings(&mut self, findings: &[Finding]) {
        let problems = findings.iter().map(|finding| Problem {
            level: match finding.severity {
                Severity::Error => Level::Error,
                Severity::Warning => Level::Warning,
            },
            file: finding.file.clone(),
            line: finding.line,
            column: finding.column,
            text: match finding.field.is_empty() {
                true => finding.message.clone(),
                false => format!("{}: {}", finding.field, finding.message),
            },
        });
        self.replace(Origin::Input, by_text(problems));
    }

    /// Replaces the problems of an object; `None` if it is gone.
    pub fn record_status(&mut self, key: &ObjectKey, entry: Option<&StatusEntry>) {
        let found = entry.and_then(|entry| Some((&entry.document, entry.status.as_ref()?)));
        let problems = found.into_iter().flat_map(|(document, status)| {
            let problems = problems(status).into_iter();
            problems.map(|problem| Problem {
                level: Level::Condition,
                file: document.file.clone(),
                line: document.line,
                column: 0,
                text: format!("{key}: {problem}"),
            })
        });
        self.replace(Origin::Status(key.clone()), by_text(problems));
    }

    /// Replaces the warnings about certificates, each with the entry of its object.
    pub fn record_certificates<'a>(
        &mut self,
        warnings: impl Iterator<Item = (Warning, Option<&'a StatusEntry>)>,
    ) {
        let problems = warnings.filter_map(|(warning, entry)| {
            let document = &entry?.document;
            let (line, column) = document.position(&warning.field);
            Some(Problem {
                level: Level::Warning,
                file: document.file.clone(),
                line,
                column,
                text: format!("{}: {}: {}", warning.object, warning.field, warning.message),
            })
        });
        self.replace(Origin::Certificates, by_text(problems));
    }

    fn replace(&mut self, origin: Origin, new: Problems) {
        let old = self.known.remove(&origin).unwrap_or_default();
        for (key, problem) in &old {
            *self.count(problem.level) -= 1;
            if !new.contains_key(key) && !self.appeared.remove(problem) {
                self.resolved.insert(problem.clone());
            }
        }
        for (key, problem) in &new {
            *self.count(problem.level) += 1;
            if !old.contains_key(key) && !self.resolved.remove(problem) {
                self.appeared.insert(problem.clone());
            }
        }
        if !new.is_empty() {
            self.known.insert(origin, new);
        }
    }

    fn count(&mut self, level: Level) -> &mut usize {
        match level {
            Level::Error | Level::Condition => &mut self.problems,
            Level::Warning => &mut self.warnings,
        }
    }

    /// Logs the first configuration.
    pub fn log_start(&mut self, resources: usize) {
        let resources = counted(resources, "resource");
        tracing::info!("{resources}, {}", self.counts());
        self.log_problems();
    }

    /// Logs a change of the configuration.
    pub fn log_change(&mut self, version: u64, changed: usize, took: Duration) {
        let counts = self.counts();
        let took = took.as_secs_f64() * 1000.0;
        tracing::info!("configuration {version}: {changed} changed, {counts}, in {took:.1} ms");
        self.log_problems();
    }

    /// Logs the problems that have appeared and those that were resolved.
    pub fn log_problems(&mut self) {
        let appeared = std::mem::take(&mut self.appeared);
        for problem in appeared.iter().take(MAX_LINES) {
            match problem.level {
                Level::Error => tracing::error!("{problem}"),
                Level::Condition | Level::Warning => tracing::warn!("{problem}"),
            }
        }
        if let more @ 1.. = appeared.len().saturating_sub(MAX_LINES) {
            tracing::warn!("{more} more; /status has them all");
        }
        let resolved = std::mem::take(&mut self.resolved);
        for problem in resolved.iter().take(MAX_LINES) {
            let Problem { file, text, .. } = problem;
            tracing::info!("resolved: {file}: {}", in_one_line(text));
        }
        if let more @ 1.. = resolved.len().saturating_sub(MAX_LINES) {
            tracing::info!("resolved: {more} more");
        }
    }

    fn counts(&self) -> String {
        let problems = counted(self.problems, "problem");
        match self.warnings {
            0 => problems,
            number => format!("{problems}, {}", counted(number, "warning")),
        }
    }
}

fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// A message without the manifest that may follow it on lines of its own.
fn in_one_line(text: &str) -> Cow<'_, str> {
    match text.split_once('\n') {
        Some((line, _)) => format!("{line} see /status").into(),
        None => text.into(),
    }
}

/// The problems that a status reports, one for each listener, parent or ancestor that has any.
pub fn problems(status: &Status) -> Vec<String> {
    let conditions = status.conditions();
    let mut by_place: Vec<(&str, Vec<&Condition>)> = Vec::new();
    for (place, condition) in &conditions {
        if !condition.is_problem() {
            continue;
        }
        match by_place.iter_mut().find(|(known, _)| known == place) {
            Some((_, conditions)) => conditions.push(condition),
            None => by_place.push((place, vec![condition])),
        }
    }
    // A Gateway repeats that some of its listeners have problems, and listeners repeat those of their Gateway.
    let has_parts = by_place.iter().any(|(place, _)| !place.is_empty());
    let is_summary = |condition: &Condition| {
        has_parts
            && matches!(
                condition.reason,
                "ListenersNotValid" | "ListenersNotResolved"
            )
    };
    let own = by_place.iter().find(|(place, _)| place.is_empty());
    let own = own.map_or_else(Vec::new, |(_, conditions)| conditions.clone());
    let repeats = |condition: &Condition| {
        let message = &condition.message;
        !message.is_empty() && own.iter().any(|own| own.message == *message)
    };
    let problems = by_place.into_iter().map(|(place, mut conditions)| {
        conditions.retain(|condition| match place.is_empty() {
            true => !is_summary(condition),
            false => !repeats(condition),
        });
        (place, conditions)
    });
    let problems = problems.filter(|(_, conditions)| !conditions.is_empty());
    problems
        .map(|(place, conditions)| match place {
            "" => sentence(&conditions),
            place => format!("{place}: {}", sentence(&conditions)),
        })
        .collect()
}

/// Conditions with their messages, a shared message once.
fn sentence(conditions: &[&Condition]) -> String {
    let mut messages: Vec<(&str, Vec<String>)> = Vec::new();
    for condition in conditions {
        let status = if condition.status { "True" } else { "False" };
        let head = format!("{}={status} {}", condition.kind, condition.reason);
        let message = &*condition.message;
        match messages.iter_mut().find(|(known, _)| *known == message) {
            Some((_, heads)) => heads.push(head),
            None => messages.push((message, vec![head])),
        }
    }
    // A manifest ends its message, so what has one comes last.
    messages.sort_by_key(|(message, _)| message.contains('\n'));
    let parts = messages.into_iter().map(|(message, heads)| match message {
        "" => heads.join(", "),
        message => format!("{}: {message}", heads.join(", ")),
    });
    parts.collect::<Vec<_>>().join("; ")
}
