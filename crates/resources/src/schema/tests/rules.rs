//! Violates each validation rule once, and tests documents that barely comply.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::{errors, objects, of, read, valid};
use crate::document::{Node, Position};
use crate::meta::Kind;
use crate::schema::validate::apply_defaults;
use crate::schema::{Findings, Schema, Shape};

/// A valid document with changes, and the finding that they cause.
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) object: Json,
    pub(super) change: String,
    field: String,
    message: String,
}

/// Returns documents that violate one rule each.
pub(super) fn violations() -> Vec<Case> {
    let mut all = cases(include_str!("../../../tests/broken-rules.yaml"));
    all.extend(cases(include_str!("../../../tests/kuma-broken-rules.yaml")));
    all
}

/// Returns documents that barely comply with a rule.
pub(super) fn accepted() -> Vec<Case> {
    cases(include_str!("../../../tests/accepted-rules.yaml"))
}

fn cases(text: &str) -> Vec<Case> {
    let list = objects(text).remove(0);
    let cases = list.as_array().expect("a list of cases").iter();
    cases
        .flat_map(|case| {
            let kinds = case["kinds"].as_array().expect("kinds").iter();
            kinds.map(|name| {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
                let kind = kind.expect("a supported kind");
                let document = case["document"].as_u64().unwrap_or(0) as usize;
                let text = |field: &str| case[field].as_str().unwrap_or_default().to_owned();
                Case {
                    kind,
                    object: changed(kind, kind.versions()[0], document, &case["put"]),
                    change: case["put"].to_string(),
                    field: text("field"),
                    message: text("message"),
                }
            })
        })
        .collect()
}

/// Returns one of the valid documents of a kind with other values at some paths.
fn changed(kind: Kind, version: &str, document: usize, changes: &Json) -> Json {
    let mut object = valid(kind, version).swap_remove(document);
    for (path, value) in changes.as_object().expect("paths and values") {
        let mut at = &mut object;
        for step in path
            .split(['.', '['])
            .map(|step| step.trim_end_matches(']'))
        {
            at = match at {
                Json::Array(items) => {
                    let index: usize = step.parse().expect("an index");
                    if index == items.len() {
                        items.push(Json::Null);
                    }
                    &mut items[index]
                }
                map => &mut map[step],
            };
        }
        *at = value.clone();
    }
    object
}

#[test]
fn a_violated_rule_is_reported_at_the_field() {
    for Case {
        kind,
        object,
        change,
        field,
        message,
    } in violations()
    {
        let input = read(&object);
        let errors = errors(&input);
        let found = errors
            .iter()
            .find(|error| error.field == field && error.message.contains(&message));
        assert!(
            found.is_some(),
            "{kind} {change}: {field}: {message}\n{errors:#?}"
        );
        assert!(input.documents.is_empty());
    }
}

#[test]
fn documents_that_barely_comply_are_accepted() {
    for Case {
        kind,
        object,
        change,
        ..
    } in accepted()
    {
        let input = read(&object);
        assert_eq!(
            errors(&input),
            Vec::<&crate::Finding>::new(),
            "{kind} {change}"
        );
    }
}

#[test]
fn older_versions_have_their_own_rules() {
    let second_rule =
        || json!({"spec.rules[1]": {"name": "second", "backendRefs": [{"name": "a", "port": 1}]}});
    let same_name =
        || json!({"spec.rules[1]": {"name": "first", "backendRefs": [{"name": "a", "port": 1}]}});
    let no_hostnames = || json!({"spec.hostnames": null});
    let address = || json!({"spec.hostnames[0]": "192.0.2.1"});
    // (kind, version, changes, accepted)
    let cases = [
        (Kind::TLSRoute, "v1", second_rule(), false),
        (Kind::TLSRoute, "v1alpha3", second_rule(), false),
        (Kind::TLSRoute, "v1alpha2", second_rule(), true),
        (Kind::TLSRoute, "v1alpha2", same_name(), false),
        (Kind::TLSRoute, "v1", no_hostnames(), false),
        (Kind::TLSRoute, "v1alpha3", no_hostnames(), false),
        (Kind::TLSRoute, "v1alpha2", no_hostnames(), true),
        (Kind::TLSRoute, "v1alpha3", address(), false),
        (Kind::TLSRoute, "v1alpha2", address(), true),
        (Kind::TCPRoute, "v1", second_rule(), false),
        (Kind::TCPRoute, "v1alpha2", second_rule(), true),
        (Kind::TCPRoute, "v1alpha2", same_name(), false),
        (Kind::UDPRoute, "v1", second_rule(), false),
        (Kind::UDPRoute, "v1alpha2", second_rule(), true),
        (Kind::UDPRoute, "v1alpha2", same_name(), false),
    ];
    for (kind, version, changes, accepted) in cases {
        let input = read(&changed(kind, version, 0, &changes));
        assert_eq!(
            errors(&input).is_empty(),
            accepted,
            "{kind} {version} {changes}"
        );
    }
}

/// Returns a route whose rules have these numbers of matches.
fn with_matches(kind: Kind, counts: &[usize]) -> Json {
    let mut object = valid(kind, "v1").swap_remove(0);
    let header = |n: usize| json!({"headers": [{"name": "x", "value": n.to_string()}]});
    let rule = |n: &usize| json!({"matches": (0..*n).map(header).collect::<Vec<_>>()});
    object["spec"]["rules"] = counts.iter().map(rule).collect();
    object
}

#[test]
fn all_rules_of_a_route_have_at_most_128_matches() {
    for kind in [Kind::HTTPRoute, Kind::GRPCRoute] {
        assert_eq!(read(&with_matches(kind, &[64, 64])).findings, []);
        let input = read(&with_matches(kind, &[64, 64, 1]));
        assert_eq!(errors(&input)[0].field, "spec.rules");
        assert!(
            errors(&input)[0].message.contains("found 129"),
            "{:?}",
            input.findings
        );
    }
}

/// Collects the rules of a schema, and those that a document violates.
fn run(
    schema: &Schema,
    node: &Node,
    path: &str,
    all: &mut BTreeSet<String>,
    violated: &mut BTreeSet<String>,
) {
    for (number, rule) in schema.rules.iter().enumerate() {
        let mut findings = Findings::default();
        rule(node, &mut findings);
        all.insert(format!("{path} rule {number}"));
        if !findings.list.is_empty() {
            violated.insert(format!("{path} rule {number}"));
        }
    }
    match &schema.shape {
        Shape::Object { fields, .. } => {
            for field in fields {
                if let Some(node) = node.get(field.name) {
                    run(
                        &field.schema,
                        node,
                        &format!("{path}.{}", field.name),
                        all,
                        violated,
                    );
                }
            }
        }
        Shape::Map { values, .. } => {
            let nodes = node.entries().iter();
            nodes.for_each(|entry| run(values, &entry.node, &format!("{path}{{}}"), all, violated));
        }
        Shape::List { items, .. } => {
            let nodes = node.items().iter();
            nodes.for_each(|item| run(items, item, &format!("{path}[]"), all, violated));
        }
        _ => {}
    }
}

#[test]
fn every_occurrence_of_every_rule_is_violated_by_some_document() {
    let mut documents: Vec<_> = violations()
        .into_iter()
        .map(|case| (case.kind, case.object))
        .collect();
    let routes = [Kind::HTTPRoute, Kind::GRPCRoute];
    documents.extend(routes.map(|kind| (kind, with_matches(kind, &[64, 64, 1]))));
    let (mut all, mut violated) = (BTreeSet::new(), BTreeSet::new());
    for (kind, object) in documents {
        let schema = of(kind, kind.versions()[0]).expect("the current version");
        let mut node = Node::from_json(&object, Position::default());
        apply_defaults(&mut node, schema);
        run(schema, &node, kind.name(), &mut all, &mut violated);
    }
    // The rules of metadata are the same for all kinds and have their own tests.
    let left: Vec<_> = all
        .difference(&violated)
        .filter(|rule| !rule.contains(".metadata"))
        .collect();
    assert!(left.is_empty(), "{left:#?}");
    assert!(all.len() > 100, "{}", all.len());
}
