//! What there is to say of a set of resources, in the form that tools read: for `check`, and for `/status` while running.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_binding::Warning;
use pointsman_binding::bound::{BoundRoute, BoundRule, FrontendId};
use pointsman_resources::read::Document;
use pointsman_resources::{Finding, Kind, ObjectKey, Severity};
use pointsman_routing::{Extent, FrontendTable, Shadow, Tables, shadowed};
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

/// A match of a rule as its author wrote it: the route, the place of the `to` of a policy of Kuma's, of the rule and of the match.
type Written = (ObjectKey, Option<usize>, usize, usize);

fn written(route: &BoundRoute, rule: &BoundRule, matched: usize) -> Written {
    let (object, index) = route.source(rule);
    let to = rule.from.first().and_then(|source| source.to);
    (object.clone(), to, index, matched)
}

/// How often each of these matches stands in a frontend: one of a policy with several hostnames does so under each.
fn present(table: &FrontendTable, wanted: &BTreeSet<Written>) -> BTreeMap<Written, usize> {
    let mut found = BTreeMap::new();
    for route in table.routes() {
        for rule in &route.rules {
            let matches = rule.matches.iter().map(|matched| matched.index);
            // A rule of a stream has no match and takes everything.
            let stream = rule.matches.is_empty().then_some(0);
            for matched in matches.chain(stream) {
                let written = written(route, rule, matched);
                if wanted.contains(&written) {
                    *found.entry(written).or_default() += 1;
                }
            }
        }
    }
    found
}

/// Rules that lose requests to others: object, field and message.
fn shadows(tables: &Tables) -> BTreeSet<(ObjectKey, String, String)> {
    // What the same policies govern is looked at once, for however many proxies.
    let mut known = BTreeSet::new();
    let tables: Vec<&Arc<FrontendTable>> = tables
        .frontends()
        .filter(
            |table| match (&table.frontend().id, table.routes().next()) {
                (FrontendId::Outbound(_), Some(route)) => known.insert(Arc::as_ptr(route).addr()),
                _ => true,
            },
        )
        .collect();
    let shadows: Vec<Vec<Shadow>> = tables.iter().map(|table| shadowed(table)).collect();
    let of = |shadow: &Shadow| written(&shadow.route, &shadow.rule, shadow.match_index);
    let wanted: BTreeSet<Written> = shadows.iter().flatten().map(of).collect();
    if wanted.is_empty() {
        return BTreeSet::new();
    }
    let (mut attached, mut lost) = (BTreeMap::new(), BTreeMap::new());
    let mut found = Vec::new();
    for (table, shadows) in tables.into_iter().zip(&shadows) {
        let mut left = present(table, &wanted);
        for written in left.keys() {
            *attached.entry(written.clone()).or_insert(0usize) += 1;
        }
        for shadow in shadows
            .iter()
            .filter(|shadow| shadow.extent == Extent::Fully)
        {
            if let Some(count) = left.get_mut(&of(shadow)) {
                *count = count.saturating_sub(1);
            }
        }
        for (written, _) in left.iter().filter(|(_, count)| **count == 0) {
            *lost.entry(written.clone()).or_insert(0usize) += 1;
        }
        for shadow in shadows {
            let by = written(&shadow.by_route, &shadow.by, shadow.by_match);
            let own = of(shadow);
            // Under another of its hostnames it gets them, or is itself what takes them.
            let elsewhere = shadow.extent == Extent::Fully && left.get(&own) != Some(&0);
            if by != own && !elsewhere {
                found.push((&table.frontend().id, own, by, shadow));
            }
        }
    }
    let told = found.into_iter().map(|(frontend, own, by, shadow)| {
        let winner = match by.0 == own.0 {
            true => format!("rule {}", by.2),
            false => format!("rule {} of {}", by.2, by.0),
        };
        let (one, many) = units(shadow);
        let loss = match shadow.extent {
            Extent::Partly => format!("{winner} takes some of its {many}"),
            Extent::Fully => {
                // What is lost here may be had elsewhere.
                let place = match lost.get(&own) == attached.get(&own) {
                    true => String::new(),
                    false => place(frontend),
                };
                format!("{place}it never gets a {one}: {winner} takes them all")
            }
        };
        let (object, to, rule, matched) = own;
        let to = to.map_or(String::new(), |to| format!("to[{to}]."));
        let mut field = format!("spec.{to}rules[{rule}]");
        if !shadow.rule.matches.is_empty() {
            field += &format!(".matches[{matched}]");
        }
        let ignored = match (frontend, object.kind) {
            (FrontendId::Mesh { .. }, Kind::TLSRoute) => "; hostnames are ignored in the mesh",
            _ => "",
        };
        (
            object,
            field,
            format!("{loss} ({}{ignored})", shadow.detail),
        )
    });
    told.collect()
}

/// What a rule takes, one and many.
fn units(shadow: &Shadow) -> (&'static str, &'static str) {
    match shadow.route.id.route.kind {
        Kind::UDPRoute => ("datagram", "datagrams"),
        _ if shadow.rule.matches.is_empty() => ("connection", "connections"),
        _ => ("request", "requests"),
    }
}

fn place(frontend: &FrontendId) -> String {
    match frontend {
        FrontendId::Listener { listener, .. } => format!("on listener {listener}: "),
        FrontendId::Mesh { port, .. } => format!("on port {port}: "),
        FrontendId::Outbound(outbound) => format!("for {}: ", outbound.dataplane),
    }
}
