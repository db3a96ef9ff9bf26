//! Each sentence on precedence in the specification, and related cases.

mod common;

use std::sync::Arc;

use common::*;
use pointsman_binding::bound::*;
use pointsman_resources::{Age, Kind, ObjectKey};

/// Two routes, the first of which has to win although the second is older and its name comes first.
fn wins(strong: (&[&str], BoundMatch), weak: (&[&str], BoundMatch), request: &Req) {
    let strong = route("z", 9, strong.0, vec![rule(vec![strong.1], "strong")]);
    let weak = route("a", 1, weak.0, vec![rule(vec![weak.1], "weak")]);
    assert_eq!(
        to(&http(vec![weak.clone()]), request),
        "weak",
        "the weaker one matches too"
    );
    assert_eq!(
        to(&http(vec![strong.clone(), weak.clone()]), request),
        "strong"
    );
    assert_eq!(to(&http(vec![weak, strong]), request), "strong");
}

#[test]
fn an_exact_hostname_wins_over_a_wildcard() {
    wins(
        (&["a.example.com"], prefix("/")),
        (&["*.example.com"], exact("/x")),
        &get("a.example.com", "/x"),
    );
}

#[test]
fn a_longer_wildcard_wins_over_a_shorter_one() {
    wins(
        (&["*.example.com"], prefix("/")),
        (&["*.com"], exact("/x")),
        &get("a.example.com", "/x"),
    );
}

#[test]
fn any_hostname_takes_precedence_over_no_hostname() {
    wins(
        (&["*.com"], prefix("/")),
        (&[], exact("/x")),
        &get("a.example.com", "/x"),
    );
}

#[test]
fn an_exact_path_wins_over_a_regular_expression() {
    wins(
        (&[], exact("/x/y")),
        (&[], regex("/x/.*").with_method("GET")),
        &get("h", "/x/y"),
    );
}

#[test]
fn a_regular_expression_wins_over_a_prefix_of_any_length() {
    wins(
        (&[], regex("/x.*")),
        (&[], prefix("/x/y/z").with_method("GET")),
        &get("h", "/x/y/z/w"),
    );
}

#[test]
fn a_longer_prefix_wins_over_a_shorter_one() {
    wins(
        (&[], prefix("/x/y")),
        (&[], prefix("/x").with_method("GET")),
        &get("h", "/x/y/z"),
    );
}

#[test]
fn a_method_match_wins_over_headers() {
    wins(
        (&[], prefix("/").with_method("GET")),
        (&[], prefix("/").with_header("a", "1").with_header("b", "1")),
        &get("h", "/").header("a", "1").header("b", "1"),
    );
}

#[test]
fn more_headers_win_over_fewer_and_over_query_parameters() {
    wins(
        (&[], prefix("/").with_header("a", "1").with_header("b", "1")),
        (
            &[],
            prefix("/")
                .with_header("a", "1")
                .with_query("q", "1")
                .with_query("r", "1"),
        ),
        &get("h", "/?q=1&r=1").header("a", "1").header("b", "1"),
    );
}

#[test]
fn more_query_parameters_win_over_fewer() {
    wins(
        (&[], prefix("/").with_query("q", "1").with_query("r", "1")),
        (&[], prefix("/").with_query("q", "1")),
        &get("h", "/?q=1&r=1"),
    );
}

#[test]
fn the_oldest_route_wins_a_tie() {
    let old = route("z", 1, &[], vec![rule(vec![prefix("/")], "old")]);
    let young = route("a", 2, &[], vec![rule(vec![prefix("/")], "young")]);
    let mut timeless = route("0", 0, &[], vec![rule(vec![prefix("/")], "timeless")]);
    Arc::make_mut(&mut timeless.meta).age = Age::InputOrder(0);
    assert_eq!(to(&http(vec![timeless, young, old]), &get("h", "/")), "old");
}

#[test]
fn among_routes_of_one_age_the_first_by_namespace_and_name_wins() {
    let mut other = route(
        "a",
        1,
        &[],
        vec![rule(vec![prefix("/")], "other namespace")],
    );
    Arc::make_mut(&mut other.meta).id.route = ObjectKey::new(Kind::HTTPRoute, "z", "a");
    let routes = vec![
        other,
        route("b", 1, &[], vec![rule(vec![prefix("/")], "b")]),
        route("c", 1, &[], vec![rule(vec![prefix("/")], "c")]),
    ];
    assert_eq!(to(&http(routes), &get("h", "/")), "b");
}

#[test]
fn routes_of_different_kinds_with_the_same_name_are_distinct() {
    let mut grpc = route("a", 1, &[], vec![rule(vec![prefix("/")], "grpc")]);
    Arc::make_mut(&mut grpc.meta).id.route.kind = Kind::GRPCRoute;
    let http_route = route("a", 1, &[], vec![rule(vec![prefix("/")], "http")]);
    assert_eq!(to(&http(vec![grpc, http_route]), &get("h", "/")), "http");
}

#[test]
fn the_first_of_equal_rules_wins_regardless_of_the_order_of_its_headers() {
    let routes = vec![route(
        "a",
        1,
        &[],
        vec![
            rule(
                vec![
                    exact("/o")
                        .with_header("x-version", "one")
                        .with_header("x-color", "blue"),
                ],
                "v1",
            ),
            rule(
                vec![
                    exact("/o")
                        .with_header("x-color", "blue")
                        .with_header("x-version", "one"),
                ],
                "v2",
            ),
        ],
    )];
    let request = get("h", "/o")
        .header("X-Color", "blue")
        .header("X-Version", "one");
    assert_eq!(to(&http(routes), &request), "v1");
}

#[test]
fn the_first_of_a_rules_matches_is_reported() {
    let table = http(vec![route(
        "a",
        1,
        &[],
        vec![rule(vec![exact("/no"), prefix("/"), prefix("/")], "v1")],
    )]);
    assert_eq!(
        table.lookup(&get("h", "/")).map(|hit| hit.match_index),
        Some(1)
    );
}

#[test]
fn a_rule_that_cannot_be_served_still_takes_precedence() {
    let mut broken = rule(vec![exact("/x")], "broken");
    broken.fault = Some(Fault {
        status: 500,
        reason: FaultReason::BackendNotFound,
        message: "no such Service".into(),
    });
    let routes = vec![route(
        "a",
        1,
        &[],
        vec![broken, rule(vec![exact("/x")], "fine")],
    )];
    assert_eq!(to(&http(routes), &get("h", "/x")), "broken");
}

#[test]
fn a_request_without_a_rule_under_the_most_specific_hostname_falls_back_to_the_next() {
    let table = http(vec![
        route(
            "exact",
            3,
            &["a.b.example.com"],
            vec![rule(vec![prefix("/1")], "exact")],
        ),
        route(
            "long",
            2,
            &["*.b.example.com"],
            vec![rule(vec![prefix("/2")], "long")],
        ),
        route(
            "short",
            1,
            &["*.example.com"],
            vec![rule(vec![prefix("/3")], "short")],
        ),
        route("none", 0, &[], vec![rule(vec![prefix("/4")], "none")]),
    ]);
    for (path, wanted) in [
        ("/1", "exact"),
        ("/2", "long"),
        ("/3", "short"),
        ("/4", "none"),
        ("/5", "-"),
    ] {
        assert_eq!(to(&table, &get("a.b.example.com", path)), wanted, "{path}");
    }
}

#[test]
fn a_wildcard_matches_several_labels_but_never_its_own_domain() {
    let table = http(vec![route(
        "a",
        1,
        &["*.example.com"],
        vec![rule(vec![prefix("/")], "v1")],
    )]);
    let hosts = [
        ("a.example.com", "v1"),
        ("a.b.example.com", "v1"),
        ("example.com", "-"),
        (".example.com", "-"),
        ("aexample.com", "-"),
        ("", "-"),
    ];
    for (host, wanted) in hosts {
        assert_eq!(to(&table, &get(host, "/")), wanted, "{host}");
    }
}

#[test]
fn grpc_ranks_exact_services_and_methods_before_expressions_before_absent_ones() {
    let ask = |service: Option<&str>, method: Option<StringPredicate>| {
        let mut matched = prefix("/");
        matched.grpc = Some(GrpcPredicate {
            service: service.map(|text| StringPredicate::Regex(Pattern::new(text).expect("good"))),
            method,
        });
        matched
    };
    let exactly = |text: &str| Some(StringPredicate::Exact(text.into()));
    let like = |text: &str| Some(StringPredicate::Regex(Pattern::new(text).expect("good")));
    let table = http(vec![route(
        "g",
        1,
        &[],
        vec![
            rule(vec![prefix("/")], "any"),
            rule(vec![ask(None, like("G.*"))], "method like"),
            rule(vec![ask(None, exactly("Get"))], "method"),
            rule(vec![ask(Some("pkg.*"), None)], "service like"),
            rule(
                vec![ask(Some("pkg.*"), exactly("Get"))],
                "service like and method",
            ),
            rule(vec![prefix("/pkg.A")], "service"),
            rule(vec![exact("/pkg.A/Get")], "both"),
        ],
    )]);
    let wanted = [
        ("/pkg.A/Get", "both"),
        ("/pkg.A/Put", "service"),
        ("/pkg.B/Get", "service like and method"),
        ("/pkg.B/Put", "service like"),
        ("/x/Get", "method"),
        ("/x/Grow", "method like"),
        ("/x/Put", "any"),
        ("/", "any"),
    ];
    for (path, service) in wanted {
        assert_eq!(to(&table, &get("h", path)), service, "{path}");
    }
}

#[test]
fn expressions_cover_the_whole_path_and_are_tried_in_order() {
    let rules: Vec<BoundRule> = (0..100)
        .map(|n| rule(vec![regex(&format!("/r{n}/[0-9]+"))], &format!("{n}")))
        .chain([rule(
            vec![regex("/r[0-9]+/.*").with_method("GET")],
            "method",
        )])
        .collect();
    let table = http(vec![route("a", 1, &[], rules)]);
    assert_eq!(to(&table, &get("h", "/r42/7").method("POST")), "42");
    assert_eq!(to(&table, &get("h", "/r42/7")), "method");
    assert_eq!(to(&table, &get("h", "/r42/7/x").method("POST")), "-");
    assert_eq!(to(&table, &get("h", "/x/r42/7").method("POST")), "-");
}

#[test]
fn a_header_on_several_lines_matches_by_one_value_or_by_all_joined() {
    let table = http(vec![route(
        "a",
        1,
        &[],
        vec![
            rule(vec![exact("/one").with_header("x", "b")], "one"),
            rule(vec![exact("/all").with_header("x", "a,b")], "all"),
        ],
    )]);
    let both = |path| get("h", path).header("X", "a").header("x", "b");
    assert_eq!(to(&table, &both("/one")), "one");
    assert_eq!(to(&table, &both("/all")), "all");
    assert_eq!(to(&table, &get("h", "/one").header("x", "a, b")), "-");
    assert_eq!(to(&table, &get("h", "/one")), "-");
}

#[test]
fn a_path_that_is_no_path_matches_no_prefix() {
    let table = http(vec![route(
        "a",
        1,
        &[],
        vec![rule(vec![prefix("/")], "v1")],
    )]);
    assert_eq!(to(&table, &get("h", "*").method("OPTIONS")), "-");
}

#[test]
fn a_snapshot_never_changes() {
    let mut now = tables([added(
        listener("http", 80, Protocol::Http, None),
        vec![route("a", 1, &[], vec![rule(vec![prefix("/")], "v1")])],
    )]);
    let before = now.clone();
    let id = listener("http", 80, Protocol::Http, None).id;
    let version = |to| route("a", 1, &[], vec![rule(vec![prefix("/")], to)]);
    let mut delta = pointsman_binding::Delta::default();
    replace(&id, Some(&version("v1")), Some(&version("v2")), &mut delta);
    now.apply(&delta);
    let at = |tables: &pointsman_routing::Tables| {
        to(tables.frontend(&id).expect("there"), &get("h", "/"))
    };
    assert_eq!((at(&before), at(&now)), ("v1".into(), "v2".into()));
}

#[test]
fn hundreds_of_matches_at_one_path_are_added_and_removed_one_by_one() {
    let frontend = listener("http", 80, Protocol::Http, None);
    let id = frontend.id.clone();
    let mut tables = tables([added(frontend, vec![])]);
    // Each name once, in an order that is neither that of names nor that of ages.
    let order: Vec<usize> = (0..300).map(|n| n * 7 % 300).collect();
    let make = |n: usize, path: fn(usize) -> BoundMatch| {
        let matched = path(n).with_header("x", &n.to_string());
        route(
            &format!("r{n}"),
            (n % 5) as i64,
            &[],
            vec![rule(vec![matched], &n.to_string())],
        )
    };
    let kinds: [fn(usize) -> BoundMatch; 2] = [|_| prefix("/p"), |n| regex(&format!("/p/{n}?.*"))];
    for path in kinds {
        let mut change = |n: usize, there: bool| {
            let bound = make(n, path);
            let mut delta = pointsman_binding::Delta::default();
            match there {
                true => replace(&id, None, Some(&bound), &mut delta),
                false => replace(&id, Some(&bound), None, &mut delta),
            }
            tables.apply(&delta);
            let table = tables.frontend(&id).expect("there");
            let go = |n: usize| {
                to(
                    table,
                    &get("h", &format!("/p/{n}")).header("x", &n.to_string()),
                )
            };
            (go(n), go(order[0]), go(order[299]))
        };
        for (step, n) in order.iter().enumerate() {
            let last = if step == 299 {
                n.to_string()
            } else {
                "-".into()
            };
            assert_eq!(
                change(*n, true),
                (n.to_string(), order[0].to_string(), last)
            );
        }
        for (step, n) in order.iter().enumerate() {
            let last = if step == 299 {
                "-".into()
            } else {
                order[299].to_string()
            };
            assert_eq!(change(*n, false), ("-".into(), "-".into(), last));
        }
        assert!(tables.frontend(&id).expect("there").has_no_entries());
    }
}
