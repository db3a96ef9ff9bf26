//! The report on a set of resources, for `check` and for `/status`: statuses, errors and warnings, among them rules that are unreachable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_binding::Warning;
use pointsman_binding::bound::{BoundRoute, BoundRule, FrontendId};
use pointsman_resources::read::Document;
use pointsman_resources::{Finding, Kind, ObjectKey, Severity};
use pointsman_routing::{Extent, FrontendTable, Shadow, Tables, shadowed};
use serde::Serialize;
use serde_json::{Value, json};

/// Returns all warnings: those found while reading and binding, and rules that lose requests to others.
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
    warnings.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    warnings.dedup();
    warnings
}

/// A Kubernetes `List` of objects with their status, extended by findings.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<T>,
    errors: Vec<Value>,
    warnings: Vec<Value>,
    #[serde(rename = "passedOver")]
    ignored_kinds: &'a BTreeMap<String, usize>,
}

/// Creates a list.
pub fn list<'a, T>(
    items: Vec<T>,
    errors: &[&Finding],
    warnings: &[Finding],
    ignored_kinds: &'a BTreeMap<String, usize>,
) -> List<'a, T> {
    List {
        api_version: "v1",
        kind: "List",
        items,
        errors: errors.iter().copied().map(finding_value).collect(),
        warnings: warnings.iter().map(finding_value).collect(),
        ignored_kinds,
    }
}

/// Returns the sort key of a finding: from top to bottom of each file.
fn sort_key(finding: &Finding) -> (&str, usize, usize, &str) {
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

/// A match as its author wrote it: the route, the index of the `to` of a Kuma policy, of the rule, and of the match.
type MatchSource = (ObjectKey, Option<usize>, usize, usize);

fn match_source(route: &BoundRoute, rule: &BoundRule, match_index: usize) -> MatchSource {
    let (object, index) = route.source(rule);
    let to = rule.from.first().and_then(|source| source.to);
    (object.clone(), to, index, match_index)
}

fn loser(shadow: &Shadow) -> MatchSource {
    match_source(&shadow.route, &shadow.rule, shadow.match_index)
}

fn winner(shadow: &Shadow) -> MatchSource {
    match_source(&shadow.by_route, &shadow.by, shadow.by_match)
}

/// Counts how often each of these matches occurs in a frontend. A match of a policy with several hostnames occurs once for each.
fn count_occurrences(
    table: &FrontendTable,
    wanted: &BTreeSet<MatchSource>,
) -> BTreeMap<MatchSource, usize> {
    let mut counts = BTreeMap::new();
    for route in table.routes() {
        for rule in &route.rules {
            let matches = rule.matches.iter().map(|matched| matched.index);
            // A rule for connections or datagrams has no matches and matches all of them.
            let stream = rule.matches.is_empty().then_some(0);
            for match_index in matches.chain(stream) {
                let source = match_source(route, rule, match_index);
                if wanted.contains(&source) {
                    *counts.entry(source).or_default() += 1;
                }
            }
        }
    }
    counts
}

/// Returns the warnings for matches that lose requests to others: object, field and message of each.
fn shadows(tables: &Tables) -> BTreeSet<(ObjectKey, String, String)> {
    // Proxies with the same policies share their routes, so each set of routes is examined once.
    let mut seen = BTreeSet::new();
    let open = tables.frontends().filter(|table| table.closed().is_none());
    let tables = open.filter(
        |table| match (&table.frontend().id, table.routes().next()) {
            (FrontendId::Outbound(_), Some(route)) => seen.insert(Arc::as_ptr(route).addr()),
            _ => true,
        },
    );
    let found: Vec<(&Arc<FrontendTable>, Vec<Shadow>)> =
        tables.map(|table| (table, shadowed(table))).collect();
    let all = found.iter().flat_map(|(_, shadows)| shadows);
    let wanted: BTreeSet<MatchSource> = all.map(loser).collect();
    if wanted.is_empty() {
        return BTreeSet::new();
    }
    // Numbers of frontends in which a match occurs, and in which it receives nothing.
    let (mut attached, mut unreachable) = (BTreeMap::new(), BTreeMap::new());
    let mut reported = Vec::new();
    for (table, shadows) in &found {
        let mut reachable = count_occurrences(table, &wanted);
        for source in reachable.keys() {
            *attached.entry(source.clone()).or_insert(0usize) += 1;
        }
        let fully = shadows.iter().filter(|s| s.extent == Extent::Fully);
        for shadow in fully {
            if let Some(count) = reachable.get_mut(&loser(shadow)) {
                *count = count.saturating_sub(1);
            }
        }
        for (source, _) in reachable.iter().filter(|(_, count)| **count == 0) {
            *unreachable.entry(source.clone()).or_insert(0usize) += 1;
        }
        for shadow in shadows {
            let source = loser(shadow);
            // It may still be reachable under another of its hostnames, where it may even be the winner.
            let reachable_elsewhere =
                shadow.extent == Extent::Fully && reachable.get(&source) != Some(&0);
            if winner(shadow) != source && !reachable_elsewhere {
                reported.push((&table.frontend().id, shadow));
            }
        }
    }
    let warnings = reported.into_iter().map(|(frontend, shadow)| {
        let source = loser(shadow);
        let unreachable_everywhere = unreachable.get(&source) == attached.get(&source);
        shadow_warning(frontend, shadow, unreachable_everywhere)
    });
    warnings.collect()
}

/// Creates the warning for a match that loses requests on a frontend. `unreachable_everywhere`: it receives nothing on any frontend.
fn shadow_warning(
    frontend: &FrontendId,
    shadow: &Shadow,
    unreachable_everywhere: bool,
) -> (ObjectKey, String, String) {
    let (object, to, rule, match_index) = loser(shadow);
    let (by, _, by_rule, _) = winner(shadow);
    let by = match by == object {
        true => format!("rule {by_rule}"),
        false => format!("rule {by_rule} of {by}"),
    };
    let traffic = traffic_noun(shadow);
    let loss = match shadow.extent {
        Extent::Partly => format!("{by} takes precedence for some of its {traffic}"),
        Extent::Fully => {
            let prefix = match unreachable_everywhere {
                true => String::new(),
                false => frontend_prefix(frontend),
            };
            format!("{prefix}receives no {traffic}: {by} takes precedence for all of them")
        }
    };
    let to = to.map_or(String::new(), |to| format!("to[{to}]."));
    let mut field = format!("spec.{to}rules[{rule}]");
    if !shadow.rule.matches.is_empty() {
        field += &format!(".matches[{match_index}]");
    }
    let remark = match (frontend, object.kind) {
        (FrontendId::Mesh { .. }, Kind::TLSRoute) => "; hostnames are ignored in the mesh",
        _ => "",
    };
    (object, field, format!("{loss} ({}{remark})", shadow.detail))
}

/// Returns the noun for the traffic that a rule matches.
fn traffic_noun(shadow: &Shadow) -> &'static str {
    match shadow.route.id.route.kind {
        Kind::UDPRoute => "datagrams",
        _ if shadow.rule.matches.is_empty() => "connections",
        _ => "requests",
    }
}

fn frontend_prefix(frontend: &FrontendId) -> String {
    match frontend {
        FrontendId::Listener { listener, .. } => format!("on listener {listener}: "),
        FrontendId::Mesh { port, .. } => format!("on port {port}: "),
        FrontendId::Outbound(outbound) => format!("for {}: ", outbound.dataplane),
    }
}
