//! The status log: one line for each change of the configuration, for each problem that appears, and for each problem that is resolved.
//!
//! Problems are those that `check` reports: errors in the input, and conditions that report an object as rejected, unresolved or not in effect. The log keeps
//! the problems of every object, compares only those of objects that a change touched, and writes at most ten that appeared and as many that were resolved.
//! `/status` lists all of them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::status::{Condition, ConditionStatus, IN_EFFECT, Status};
use pointsman_binding::{CONTROLLER_NAME, Warning};
use pointsman_resources::text::counted;
use pointsman_resources::{Finding, Kind, ObjectKey, Severity};

use crate::journal::StatusEntry;
use crate::snapshot::Snapshot;

/// Problems that one change may log as new, and as resolved; also those that explain why no listener is open.
const MAX_LINES: usize = 10;

/// Source of problems. Those of one source are replaced together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProblemSource {
    /// The input as a whole, such as a file that can't be parsed.
    Input,
    /// The status of an object.
    Status(ObjectKey),
    /// The certificates in use.
    Certificates,
}

/// Level of a problem, which determines how it is counted and logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Invalid input. Logged as an error.
    Error,
    /// A condition of a status. Logged as a warning.
    Condition,
    /// Valid but surprising configuration. Logged as a warning.
    Warning,
    /// A rollout that was a problem and of which nothing is known at present. Logged as information, and not counted.
    Unknown,
}

/// A problem and its position. The order is that of the log: by level, then from top to bottom of each file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LoggedProblem {
    level: Level,
    file: Arc<str>,
    /// Line and column, starting at 1; 0 if unknown.
    line: usize,
    column: usize,
    text: String,
    /// Section whose rollout it concerns; `None` if it does not.
    rollout: Option<String>,
}

impl fmt::Display for LoggedProblem {
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

/// Problems of one source, by file and text. The line is not part of the key because every edit further up in the file changes it.
type Problems = BTreeMap<(Arc<str>, String), LoggedProblem>;

fn keyed(problems: impl Iterator<Item = LoggedProblem>) -> Problems {
    let pairs = problems.map(|problem| ((problem.file.clone(), problem.text.clone()), problem));
    pairs.collect()
}

/// Current problems, and those that appeared or were resolved since they were last logged.
#[derive(Default)]
pub struct StatusLog {
    known: BTreeMap<ProblemSource, Problems>,
    problems: usize,
    warnings: usize,
    appeared: BTreeSet<LoggedProblem>,
    resolved: BTreeSet<LoggedProblem>,
}

impl StatusLog {
    /// Replaces the findings of the input.
    pub fn record_findings(&mut self, findings: &[Finding]) {
        let problems = findings.iter().map(|finding| LoggedProblem {
            level: match finding.severity {
                Severity::Error => Level::Error,
                Severity::Warning => Level::Warning,
            },
            file: finding.file.clone(),
            line: finding.line,
            column: finding.column,
            text: finding.text(),
            rollout: None,
        });
        self.replace(ProblemSource::Input, keyed(problems));
    }

    /// Replaces the problems of an object. `None` if the object was deleted.
    pub fn record_status(&mut self, key: &ObjectKey, entry: Option<&StatusEntry>) {
        let source = ProblemSource::Status(key.clone());
        let found = entry.and_then(|entry| Some((&entry.document, entry.status.as_ref()?)));
        let problems = found.into_iter().flat_map(|(document, status)| {
            let problems = problems(status).into_iter();
            let problems = problems.map(|problem| (Level::Condition, problem));
            let unknown = self.unknown_rollouts(&source, status).into_iter();
            let unknown = unknown.map(|problem| (Level::Unknown, problem));
            problems
                .chain(unknown)
                .map(|(level, problem)| LoggedProblem {
                    level,
                    file: document.file.clone(),
                    line: document.line,
                    column: 0,
                    text: format!("{key}: {}", problem.text),
                    rollout: problem.rollout,
                })
        });
        let problems = keyed(problems);
        self.replace(source, problems);
    }

    /// Returns the rollouts that were a problem when last recorded, and of which nothing is known now: a proxy that lags may have disconnected.
    fn unknown_rollouts(&self, source: &ProblemSource, status: &Status) -> Vec<StatusProblem> {
        let Some(known) = self.known.get(source) else {
            return Vec::new();
        };
        let was_problem = |section: &str| {
            let mut known = known.values();
            known.any(|problem| problem.rollout.as_deref() == Some(section))
        };
        let conditions = status.conditions().into_iter();
        let unknown = conditions.filter(|(section, condition)| {
            condition.kind == IN_EFFECT
                && condition.status == ConditionStatus::Unknown
                && was_problem(section)
        });
        unknown
            .map(|(section, condition)| StatusProblem::new(&section, &[condition]))
            .collect()
    }

    /// Replaces the warnings about certificates, each with the entry of its object.
    pub fn record_certificates<'a>(
        &mut self,
        warnings: impl Iterator<Item = (Warning, Option<&'a StatusEntry>)>,
    ) {
        let problems = warnings.filter_map(|(warning, entry)| {
            let document = &entry?.document;
            let (line, column) = document.position(&warning.field);
            Some(LoggedProblem {
                level: Level::Warning,
                file: document.file.clone(),
                line,
                column,
                text: format!("{}: {}: {}", warning.object, warning.field, warning.message),
                rollout: None,
            })
        });
        self.replace(ProblemSource::Certificates, keyed(problems));
    }

    fn replace(&mut self, source: ProblemSource, new: Problems) {
        let old = self.known.remove(&source).unwrap_or_default();
        // A rollout is resolved once it is in effect, not when its problem is another one.
        let is_superseded = |problem: &LoggedProblem| {
            let mut new = new.values();
            problem.rollout.is_some() && new.any(|other| other.rollout == problem.rollout)
        };
        for (key, problem) in &old {
            if let Some(count) = self.count(problem.level) {
                *count -= 1;
            }
            if !new.contains_key(key) && !self.appeared.remove(problem) && !is_superseded(problem) {
                self.resolved.insert(problem.clone());
            }
        }
        for (key, problem) in &new {
            if let Some(count) = self.count(problem.level) {
                *count += 1;
            }
            if !old.contains_key(key) && !self.resolved.remove(problem) {
                self.appeared.insert(problem.clone());
            }
        }
        if !new.is_empty() {
            self.known.insert(source, new);
        }
    }

    fn count(&mut self, level: Level) -> Option<&mut usize> {
        match level {
            Level::Error | Level::Condition => Some(&mut self.problems),
            Level::Warning => Some(&mut self.warnings),
            Level::Unknown => None,
        }
    }

    /// Logs the initial configuration.
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
                Level::Unknown => tracing::info!("{problem}"),
            }
        }
        if let more @ 1.. = appeared.len().saturating_sub(MAX_LINES) {
            tracing::warn!("{more} more; /status lists all of them");
        }
        let resolved = std::mem::take(&mut self.resolved);
        for problem in resolved.iter().take(MAX_LINES) {
            let LoggedProblem { file, text, .. } = problem;
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

/// Returns the first line of a message. A suggested manifest may follow on further lines.
fn in_one_line(text: &str) -> Cow<'_, str> {
    match text.split_once('\n') {
        Some((line, _)) => format!("{line} (see /status)").into(),
        None => text.into(),
    }
}

/// A problem that a status reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatusProblem {
    /// Reason of its first condition.
    pub reason: &'static str,
    /// Section, conditions and their messages.
    pub text: String,
    /// Section whose condition `pointsman.io/InEffect` is among them, if any.
    rollout: Option<String>,
}

impl StatusProblem {
    fn new(section: &str, conditions: &[&Condition]) -> Self {
        let text = join_conditions(conditions);
        let mut all = conditions.iter();
        StatusProblem {
            reason: conditions[0].reason,
            text: match section {
                "" => text,
                section => format!("{section}: {text}"),
            },
            rollout: all
                .any(|condition| condition.kind == IN_EFFECT)
                .then(|| section.to_owned()),
        }
    }
}

/// Returns the problems that a status reports, one for each listener, parent or ancestor that has any.
pub fn problems(status: &Status) -> Vec<StatusProblem> {
    let conditions = status.conditions();
    let mut by_section: Vec<(&str, Vec<&Condition>)> = Vec::new();
    for (section, condition) in &conditions {
        if !condition.is_problem() {
            continue;
        }
        match by_section.iter_mut().find(|(known, _)| known == section) {
            Some((_, conditions)) => conditions.push(condition),
            None => by_section.push((section, vec![condition])),
        }
    }
    // A Gateway summarizes the problems of its listeners, and listeners repeat those of their Gateway.
    let has_parts = by_section.iter().any(|(section, _)| !section.is_empty());
    let is_summary = |condition: &Condition| {
        has_parts
            && matches!(
                condition.reason,
                "ListenersNotValid" | "ListenersNotResolved"
            )
    };
    let of_object = by_section.iter().find(|(section, _)| section.is_empty());
    let of_object = of_object.map_or_else(Vec::new, |(_, conditions)| conditions.clone());
    let repeats = |condition: &Condition| {
        let message = &condition.message;
        !message.is_empty() && of_object.iter().any(|known| known.message == *message)
    };
    let problems = by_section.into_iter().map(|(section, mut conditions)| {
        conditions.retain(|condition| match section.is_empty() {
            true => !is_summary(condition),
            false => !repeats(condition),
        });
        (section, conditions)
    });
    let problems = problems.filter(|(_, conditions)| !conditions.is_empty());
    problems
        .map(|(section, conditions)| StatusProblem::new(section, &conditions))
        .collect()
}

/// Returns the reason why no listener is open: problems of Gateways, or no Gateway to serve.
pub fn idle_reason(snapshot: &Snapshot) -> String {
    let mut lines = Vec::new();
    for entry in snapshot.entries.values() {
        let key = entry.document.resource.key();
        let is_gateway = matches!(
            key.kind,
            Kind::Gateway | Kind::ListenerSet | Kind::MeshGateway
        );
        if let Some(status) = entry.status.as_ref().filter(|_| is_gateway) {
            let own = problems(status).into_iter();
            lines.extend(own.map(|problem| format!("\n    {key}: {}", problem.text)));
        }
    }
    if lines.is_empty() {
        return format!(
            "there is no Gateway of a GatewayClass with controllerName {CONTROLLER_NAME}, no Service with a clusterIP of this machine, and no Kuma Dataplane (or \
             none that --dataplane selects)"
        );
    }
    let more = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    if more > 0 {
        lines.push(format!("\n    and {more} more"));
    }
    format!("no listener can serve traffic{}", lines.concat())
}

/// Joins conditions with their messages. A message that several conditions share appears once; one that ends with another includes it.
fn join_conditions(conditions: &[&Condition]) -> String {
    let ends_with = |long: &str, short: &str| {
        let rest = long.strip_suffix(short);
        rest.is_some_and(|rest| rest.is_empty() || !short.is_empty() && rest.ends_with(": "))
    };
    let mut messages: Vec<(&str, Vec<String>)> = Vec::new();
    for condition in conditions {
        let head = format!(
            "{}={} {}",
            condition.kind, condition.status, condition.reason
        );
        let message = &*condition.message;
        let shared = messages
            .iter_mut()
            .find(|(known, _)| ends_with(known, message) || ends_with(message, known));
        match shared {
            Some((known, heads)) => {
                heads.push(head);
                if message.len() > known.len() {
                    *known = message;
                }
            }
            None => messages.push((message, vec![head])),
        }
    }
    // A message with a manifest comes last, because the manifest ends its line.
    messages.sort_by_key(|(message, _)| message.contains('\n'));
    let parts = messages.into_iter().map(|(message, heads)| match message {
        "" => heads.join(", "),
        message => format!("{}: {message}", heads.join(", ")),
    });
    parts.collect::<Vec<_>>().join("; ")
}
