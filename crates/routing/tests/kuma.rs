//! Differences of Kuma's matching: more conditions on headers, and regular expressions after prefixes.

mod common;

use std::sync::Arc;

use common::*;
use pointsman_binding::bound::{
    BoundMatch, BoundRoute, Dialect, Pattern, Protocol, StringPredicate, ValuePredicate,
};
use pointsman_routing::Tables;

fn kuma(matches: Vec<BoundMatch>) -> BoundRoute {
    let rules = matches.into_iter().enumerate();
    let rules = rules.map(|(n, matched)| rule(vec![matched], &format!("s{n}")));
    let mut route = route("r", 1, &[], rules.collect());
    Arc::make_mut(&mut route.meta).dialect = Dialect::Kuma;
    route
}

fn table(route: BoundRoute) -> Tables {
    let http = listener("http", 80, Protocol::Http, None);
    tables([added(http, vec![route])])
}

/// Returns the index of the matching rule.
fn takes(tables: &Tables, request: &Req) -> Option<usize> {
    let table = tables.listener(&gateway(), 80, Some("h"))?;
    table.lookup(request).map(|hit| hit.rule.index)
}

fn with_header(test: StringPredicate) -> BoundMatch {
    let header = ValuePredicate {
        name: "x".into(),
        value: test,
    };
    BoundMatch {
        headers: vec![header],
        ..prefix("/")
    }
}

/// MADR 011, "Headers": "presence, absence, exact value, prefix value, regex value".
#[test]
fn headers_are_tested_for_presence_absence_value_prefix_and_expression() {
    let test = |test, values: &[&str]| {
        let tables = table(kuma(vec![with_header(test)]));
        let mut request = get("h", "/");
        for value in values {
            request = request.header("X", value);
        }
        takes(&tables, &request).is_some()
    };
    let regex = || StringPredicate::Regex(Pattern::new("a+").expect("an expression"));
    let cases = [
        (StringPredicate::Present, vec![], false),
        (StringPredicate::Present, vec![""], true),
        (StringPredicate::Present, vec!["v", "w"], true),
        (StringPredicate::Absent, vec![], true),
        (StringPredicate::Absent, vec![""], false),
        (StringPredicate::Absent, vec!["v", "w"], false),
        (StringPredicate::Exact("v".into()), vec!["v"], true),
        (StringPredicate::Exact("v".into()), vec!["vv"], false),
        (StringPredicate::Prefix("v".into()), vec!["vv"], true),
        (StringPredicate::Prefix("v".into()), vec!["w", "vv"], true),
        (StringPredicate::Prefix("v".into()), vec!["w"], false),
        (StringPredicate::Prefix("v".into()), vec![], false),
        (regex(), vec!["aa"], true),
        (regex(), vec!["aab"], false),
    ];
    for (predicate, values, wanted) in cases {
        let text = format!("{predicate:?} {values:?}");
        assert_eq!(test(predicate, &values), wanted, "{text}");
    }
}

/// "Kuma: regular expressions after prefixes, as Kuma has them"; the longer expression first.
#[test]
fn an_expression_comes_after_prefixes_and_the_longer_one_first() {
    let tables = table(kuma(vec![
        regex("/a.*"),
        regex("/a/.*"),
        prefix("/a/b"),
        exact("/a/b/c"),
    ]));
    let cases = [
        ("/a/b/c", Some(3)),
        ("/a/b/d", Some(2)),
        ("/a/c", Some(1)),
        ("/ab", Some(0)),
        ("/b", None),
    ];
    for (path, wanted) in cases {
        assert_eq!(takes(&tables, &get("h", path)), wanted, "{path}");
    }
}

#[test]
fn expressions_shadowed_by_a_catch_all_are_reported() {
    let tables = table(kuma(vec![regex("/a.*"), prefix("/")]));
    assert_eq!(takes(&tables, &get("h", "/a")), Some(1));
    let frontend = tables.frontends().next().expect("a frontend");
    let shadows = pointsman_routing::shadowed(frontend);
    let told: Vec<&str> = shadows.iter().map(|shadow| &*shadow.detail).collect();
    assert_eq!(
        told,
        ["path: the prefix `/` comes before the expression `/a.*`"]
    );
}

#[test]
fn removing_a_route_removes_its_late_expressions() {
    let mut tables = table(kuma(vec![regex("/a.*")]));
    let id = tables
        .frontends()
        .next()
        .expect("a frontend")
        .frontend()
        .id
        .clone();
    let mut delta = pointsman_binding::Delta::default();
    replace(&id, Some(&kuma(vec![regex("/a.*")])), None, &mut delta);
    tables.apply(&delta);
    assert_eq!(takes(&tables, &get("h", "/a")), None);
    assert!(tables.frontends().all(|table| table.has_no_entries()));
}
