//! Random routes and requests, with few values, so that they often meet.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;

use pointsman_binding::bound::*;
use pointsman_resources::{Age, Kind, ObjectKey};
use proptest::prelude::*;
use proptest::sample::select;

use crate::common::*;

pub const HOSTS: [&str; 7] = [
    "a.example.com",
    "b.example.com",
    "a.b.example.com",
    "example.com",
    "x.org",
    "com",
    "",
];
pub const NAMES: [&str; 6] = [
    "a.example.com",
    "*.example.com",
    "*.b.example.com",
    "*.com",
    "x.org",
    "b.example.com",
];
pub const PATHS: [&str; 12] = [
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/a/b/c",
    "/a//b",
    "/ab",
    "/b",
    "/b/a",
    "/svc/Get",
    "/svc.x/Put",
    "*",
];

pub fn pattern(text: &str) -> Pattern {
    Pattern::new(text).expect("a good expression")
}

pub fn string_predicate(values: &'static [&'static str]) -> impl Strategy<Value = StringPredicate> {
    let exact = select(values).prop_map(|value| StringPredicate::Exact(value.into()));
    let regex = select(vec!["[a-c]+", "1|2", ".*", "S.*|G.*"])
        .prop_map(|text| StringPredicate::Regex(pattern(text)));
    prop_oneof![3 => exact, 1 => regex]
}

pub fn predicates(names: &'static [&'static str]) -> impl Strategy<Value = Vec<ValuePredicate>> {
    // Kuma supports these conditions for headers only; here they are used for query parameters as well.
    let more = select(vec![
        StringPredicate::Present,
        StringPredicate::Prefix("1".into()),
        StringPredicate::Prefix("".into()),
    ]);
    let value = prop_oneof![4 => string_predicate(&["1", "2", "a"]), 1 => more];
    let one = (select(names), value);
    prop::collection::btree_map(select(names), one, 0..3).prop_map(|all| {
        let named = |(name, (_, value)): (&str, (&str, StringPredicate))| ValuePredicate {
            name: name.into(),
            value,
        };
        all.into_iter().map(named).collect()
    })
}

pub fn a_match() -> impl Strategy<Value = BoundMatch> {
    let path = prop_oneof![
        2 => select(&PATHS[..11]).prop_map(|path| PathPredicate::Exact(path.into())),
        4 => select(vec!["/", "/a", "/a/b", "/a/", "/b", "/svc", "/a/b/c", "/a/"])
            .prop_map(|path| PathPredicate::Prefix(path.into())),
        1 => select(vec!["/a.*", "/[ab]", ".*/b.*", "/a/b/c", "[*]"])
            .prop_map(|text| PathPredicate::Regex(pattern(text))),
        1 => Just(PathPredicate::Any),
    ];
    let grpc = (
        proptest::option::of(string_predicate(&["svc", "svc.x", "a"])),
        proptest::option::of(string_predicate(&["Get", "Put", "b"])),
    );
    let grpc = proptest::option::weighted(
        0.2,
        grpc.prop_map(|(service, method)| GrpcPredicate { service, method }),
    );
    let method = proptest::option::weighted(0.3, select(vec!["GET", "POST"]));
    (
        path,
        grpc,
        method,
        predicates(&["x-a", "x-b", "x-c"]),
        predicates(&["q", "r"]),
        proptest::option::weighted(0.1, select(vec!["x-a", "x-d"])),
    )
        .prop_map(|(path, grpc, method, headers, query, absent)| BoundMatch {
            index: 0,
            path,
            grpc,
            method: method.map(Into::into),
            headers: headers
                .into_iter()
                .chain(absent.map(|name| ValuePredicate {
                    name: name.into(),
                    value: StringPredicate::Absent,
                }))
                .collect(),
            query,
        })
}

pub fn a_route() -> impl Strategy<Value = BoundRoute> {
    let rules = prop::collection::vec(prop::collection::vec(a_match(), 1..3), 1..4);
    let hostnames = prop::collection::vec(select(&NAMES[..]), 0..3);
    (
        select(vec!["p", "q", "r", "s", "t", "u"]),
        0..3i64,
        hostnames,
        rules,
        any::<bool>(),
        prop_oneof![Just(Dialect::GatewayApi), Just(Dialect::Kuma)],
    )
        .prop_map(|(name, age, hostnames, rules, grpc, dialect)| {
            let kind = if grpc {
                Kind::GRPCRoute
            } else {
                Kind::HTTPRoute
            };
            let rules = rules
                .into_iter()
                .enumerate()
                .map(|(rule_index, matches)| BoundRule {
                    // A Kuma rule without a source represents no policy.
                    from: vec![RuleSource {
                        policy: ObjectKey::new(kind, "infra", name),
                        to: None,
                        rule: rule_index,
                    }],
                    ..rule(matches, "v")
                })
                .collect();
            let mut route = route(name, age, &hostnames, rules);
            let meta = Arc::make_mut(&mut route.meta);
            meta.dialect = dialect;
            meta.id.route = ObjectKey::new(kind, "infra", name);
            if age == 2 {
                meta.age = Age::InputOrder(7);
            }
            route
        })
}

/// Routes so similar that one often replaces another of the same rank, in the same slot or in another.
pub fn an_alike_route() -> impl Strategy<Value = BoundRoute> {
    let matched = prop_oneof![
        select(vec!["/a", "/b"]).prop_map(prefix),
        select(vec!["/a", "/b"]).prop_map(exact),
        select(vec!["/a", "/[ab]"]).prop_map(|text| matched(PathPredicate::Regex(pattern(text)))),
        Just(matched(PathPredicate::Any)),
    ];
    let hostnames = select(vec![
        &[][..],
        &["x.org"],
        &["a.example.com", "b.example.com"],
    ]);
    (select(vec!["p", "q"]), hostnames, matched, any::<bool>()).prop_map(
        |(name, hostnames, matched, second)| {
            let rule_of = |matched| rule(vec![matched], "v");
            let mut rules = vec![rule_of(matched)];
            rules.extend(second.then(|| rule_of(prefix("/"))));
            route(name, 0, hostnames, rules)
        },
    )
}

pub fn a_request() -> impl Strategy<Value = Req> {
    let headers = prop::collection::vec(
        (
            select(vec!["X-A", "x-b", "x-c"]),
            select(vec!["1", "2", "a", "b"]),
        ),
        0..4,
    );
    let query = proptest::option::of(select(vec![
        "q=1", "q=1&r=2", "r=a&q=2", "q=2&q=1", "%71=1", "q",
    ]));
    (
        select(&HOSTS[..]),
        select(&PATHS[..]),
        query,
        headers,
        select(vec!["GET", "POST", "PUT"]),
    )
        .prop_map(|(host, path, query, headers, method)| Req {
            method: method.into(),
            host: host.into(),
            path: path.into(),
            query: query.map(str::to_owned),
            headers: headers
                .into_iter()
                .map(|(n, v)| (n.to_owned(), v.to_owned()))
                .collect(),
        })
}
