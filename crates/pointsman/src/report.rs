//! What there is to say of a set of resources, in the form that tools read: for `check`, and for `/status` while running.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pointsman_binding::Warning;
use pointsman_binding::bound::FrontendId;
use pointsman_resources::read::Document;
use pointsman_resources::{Finding, ObjectKey, Severity};
use pointsman_routing::{Extent, Tables, shadowed};
use serde::Serialize;
use serde_json::{Value, json};

/// Everything that is legal but surprising: what reading found, what binding found, and rules that lose requests to others.
pub fn warnings<'a>(
    findings: &[Finding],
    bound: Vec<Warning>,
    tables: &Tables,
    document: impl Fn(&ObjectKey) -> Option<&'a Arc<Document>>,
) -> Vec<Finding> {
    let mut warnings: Vec<Finding> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Warning)
        .cloned()
        .collect();
    let mut warn = |object: &ObjectKey, field: String, message: String| {
        if let Some(document) = document(object) {
            let (line, column) = document.position(&field);
            let (severity, file) = (Severity::Warning, document.file.clone());
            let message = format!("{object}: {message}");
            warnings.push(Finding {
                severity,
                file,
                line,
                column,
                field,
                message,
            });
        }
    };
    for warning in bound {
        warn(&warning.object, warning.field, warning.message);
    }
    for (object, field, message) in shadows(tables) {
        warn(&object, field, message);
    }
    warnings.sort_by(|a, b| order(a).cmp(&order(b)));
    warnings.dedup();
    warnings
}

/// A `List` of what something is said of, with what was found beside it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<T>,
    errors: Vec<Value>,
    warnings: Vec<Value>,
    passed_over: &'a BTreeMap<String, usize>,
}

/// Puts such a list together.
pub fn list<'a, T>(
    items: Vec<T>,
    errors: &[&Finding],
    warnings: &[Finding],
    passed_over: &'a BTreeMap<String, usize>,
) -> List<'a, T> {
    List {
        api_version: "v1",
        kind: "List",
        items,
        errors: errors.iter().copied().map(finding_value).collect(),
        warnings: warnings.iter().map(finding_value).collect(),
        passed_over,
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
fn shadows(tables: &Tables) -> BTreeSet<(ObjectKey, String, String)> {
    let mut attached: HashMap<&ObjectKey, usize> = HashMap::new();
    let mut lost: HashMap<(ObjectKey, String), usize> = HashMap::new();
    let mut found = Vec::new();
    for table in tables.frontends() {
        let rules = table
            .routes()
            .flat_map(|route| route.rules.iter().map(|rule| route.source(rule).0));
        for route in rules.collect::<BTreeSet<_>>() {
            *attached.entry(route).or_default() += 1;
        }
        for shadow in shadowed(table) {
            let (route, rule) = shadow.route.source(&shadow.rule);
            let to = shadow.rule.from.first().and_then(|source| source.to);
            let to = to.map_or(String::new(), |to| format!("to[{to}]."));
            let field = format!("spec.{to}rules[{rule}].matches[{}]", shadow.match_index);
            let of = (route.clone(), field);
            if shadow.extent == Extent::Fully {
                *lost.entry(of.clone()).or_default() += 1;
            }
            found.push((&table.frontend().id, of, shadow));
        }
    }
    let told = found.into_iter().map(|(frontend, of, shadow)| {
        let (by, index) = shadow.by_route.source(&shadow.by);
        let winner = match *by == of.0 {
            true => format!("rule {index}"),
            false => format!("rule {index} of {by}"),
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
        FrontendId::Outbound(outbound) => format!("for {}: ", outbound.dataplane),
    }
}
