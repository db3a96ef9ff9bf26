//! Detection of shadowed rules.

mod common;

use common::*;
use pointsman_binding::bound::*;
use pointsman_routing::{Criterion, Extent, shadowed};

/// Shadowed route and rule, winning route and rule, extent, and reason.
fn told(routes: Vec<BoundRoute>) -> Vec<(String, String, Extent, Criterion)> {
    told_at(None, routes)
}

/// The same at a listener of this hostname.
fn told_at(
    hostname: Option<&str>,
    routes: Vec<BoundRoute>,
) -> Vec<(String, String, Extent, Criterion)> {
    let id = |route: &BoundRoute, rule: &BoundRule| {
        format!("{}/{}", route.id.route.name.name, rule.index)
    };
    let frontend = listener("http", 80, Protocol::Http, hostname);
    let key = frontend.id.clone();
    let tables = tables([added(frontend, routes)]);
    shadowed(tables.frontend(&key).expect("the listener"))
        .into_iter()
        .map(|s| {
            (
                id(&s.route, &s.rule),
                id(&s.by_route, &s.by),
                s.extent,
                s.criterion,
            )
        })
        .collect()
}

fn line(
    loser: &str,
    winner: &str,
    extent: Extent,
    by: Criterion,
) -> (String, String, Extent, Criterion) {
    (loser.into(), winner.into(), extent, by)
}

fn gets(matched: BoundMatch) -> BoundMatch {
    BoundMatch {
        method: Some("GET".into()),
        ..matched
    }
}

fn of_dialect(mut route: BoundRoute, dialect: Dialect) -> BoundRoute {
    std::sync::Arc::make_mut(&mut route.meta).dialect = dialect;
    route
}

#[test]
fn the_same_match_in_a_younger_route_never_gets_a_request() {
    let routes = vec![
        route("old", 1, &["a.com"], vec![rule(vec![prefix("/x")], "v1")]),
        route("young", 2, &["a.com"], vec![rule(vec![prefix("/x")], "v2")]),
        route(
            "elsewhere",
            3,
            &["b.com"],
            vec![rule(vec![prefix("/x")], "v2")],
        ),
    ];
    assert_eq!(
        told(routes),
        [line("young/0", "old/0", Extent::Fully, Criterion::Age)]
    );
}

#[test]
fn the_same_headers_in_another_order_are_the_same_match() {
    let routes = vec![route(
        "r",
        1,
        &[],
        vec![
            rule(
                vec![exact("/o").with_header("a", "1").with_header("b", "2")],
                "v1",
            ),
            rule(
                vec![exact("/o").with_header("b", "2").with_header("a", "1")],
                "v2",
            ),
        ],
    )];
    assert_eq!(
        told(routes),
        [line("r/1", "r/0", Extent::Fully, Criterion::Order)]
    );
}

#[test]
fn overlapping_matches_are_reported_if_only_age_decides() {
    let routes = vec![
        route(
            "old",
            1,
            &[],
            vec![rule(vec![prefix("/").with_header("a", "1")], "v1")],
        ),
        route(
            "young",
            2,
            &[],
            vec![rule(vec![prefix("/").with_header("b", "1")], "v2")],
        ),
    ];
    assert_eq!(
        told(routes),
        [line("young/0", "old/0", Extent::Partly, Criterion::Age)]
    );
}

#[test]
fn matches_that_exclude_each_other_or_differ_in_rank_are_not_reported() {
    let header = |name: &str, value: &str| prefix("/").with_header(name, value);
    let routes = vec![
        route("a", 1, &[], vec![rule(vec![header("x", "1")], "v1")]),
        route("b", 2, &[], vec![rule(vec![header("x", "2")], "v2")]),
        route("c", 3, &[], vec![rule(vec![prefix("/")], "v2")]),
        route("d", 4, &[], vec![rule(vec![prefix("/d")], "v2")]),
        route(
            "e",
            5,
            &[],
            vec![rule(vec![prefix("/").with_method("GET")], "v2")],
        ),
        route(
            "f",
            6,
            &[],
            vec![rule(vec![prefix("/").with_method("PUT")], "v2")],
        ),
    ];
    assert_eq!(told(routes), []);
}

#[test]
fn matches_of_one_rule_do_not_shadow_each_other() {
    let routes = vec![route(
        "r",
        1,
        &[],
        vec![rule(vec![prefix("/"), prefix("/")], "v1")],
    )];
    assert_eq!(told(routes), []);
}

#[test]
fn an_expression_shadows_prefixes_fully_or_partly_and_may_be_shadowed() {
    let routes = vec![
        route("all", 9, &["a.com"], vec![rule(vec![regex("/.*")], "v1")]),
        route(
            "prefix",
            1,
            &["a.com"],
            vec![rule(vec![prefix("/x")], "v2")],
        ),
        route(
            "some",
            9,
            &["b.com"],
            vec![rule(vec![regex("/x|/y")], "v1")],
        ),
        route(
            "some-prefix",
            1,
            &["b.com"],
            vec![rule(vec![prefix("/x")], "v2")],
        ),
        route(
            "below",
            9,
            &["d.com"],
            vec![rule(vec![regex("/api/.*")], "v1")],
        ),
        route(
            "below-prefix",
            1,
            &["d.com"],
            vec![
                rule(vec![prefix("/api")], "v2"),
                rule(vec![prefix("/api/v1")], "v2"),
                rule(vec![prefix("/apis")], "v2"),
            ],
        ),
        route(
            "exact",
            9,
            &["c.com"],
            vec![rule(vec![exact("/one")], "v1")],
        ),
        route(
            "plain",
            1,
            &["c.com"],
            vec![rule(vec![regex("/one")], "v2")],
        ),
    ];
    let wanted = [
        line("below-prefix/0", "below/0", Extent::Partly, Criterion::Path),
        line("below-prefix/1", "below/0", Extent::Fully, Criterion::Path),
        line("plain/0", "exact/0", Extent::Fully, Criterion::Path),
        line("prefix/0", "all/0", Extent::Fully, Criterion::Path),
        line("some-prefix/0", "some/0", Extent::Partly, Criterion::Path),
    ];
    assert_eq!(told(routes), wanted);
}

// The target of `OPTIONS *` is no path, so the prefix `/` leaves it to expressions.
#[test]
fn the_prefix_of_all_paths_does_not_shadow_the_expression_of_an_asterisk() {
    let expressions = |dialect| {
        let expressions = ["/x", ".*", "[*]"].map(|path| rule(vec![regex(path)], "v2"));
        let route = route("expressions", 9, &["*.com"], expressions.into());
        of_dialect(route, dialect)
    };
    let all = |hosts: &[&str], dialect| {
        of_dialect(
            route("all", 1, hosts, vec![rule(vec![prefix("/")], "v1")]),
            dialect,
        )
    };
    // Kuma's expressions come after prefixes.
    let routes = vec![all(&["*.com"], Dialect::Kuma), expressions(Dialect::Kuma)];
    assert_eq!(
        told(routes),
        [
            line("expressions/0", "all/0", Extent::Fully, Criterion::Path),
            line("expressions/1", "all/0", Extent::Partly, Criterion::Path),
        ]
    );
    let routes = vec![
        all(&["a.com"], Dialect::GatewayApi),
        expressions(Dialect::GatewayApi),
    ];
    assert_eq!(
        told_at(Some("a.com"), routes),
        [line(
            "expressions/0",
            "all/0",
            Extent::Fully,
            Criterion::Host
        )]
    );
}

#[test]
fn a_match_that_loses_under_one_of_its_hostnames_loses_partly() {
    let one =
        |name, age, hosts: &[&str]| route(name, age, hosts, vec![rule(vec![prefix("/x")], "v1")]);
    let routes = || {
        vec![
            one("old", 1, &["a.com"]),
            one("young", 2, &["a.com", "b.com"]),
        ]
    };
    assert_eq!(
        told(routes()),
        [line("young/0", "old/0", Extent::Partly, Criterion::Age)]
    );
    // The listener gets no requests for the other hostname.
    assert_eq!(
        told_at(Some("a.com"), routes()),
        [line("young/0", "old/0", Extent::Fully, Criterion::Age)]
    );
}

// Precedence uses the route's own hostname, so on a listener for one host, a route with that hostname precedes one with a wildcard.
#[test]
fn a_more_specific_hostname_shadows_others_if_the_listener_has_no_further_requests() {
    let matches = vec![prefix("/x"), gets(prefix("/y"))];
    let routes = || {
        vec![
            route("exact", 9, &["a.com"], vec![rule(matches.clone(), "v1")]),
            route(
                "wild",
                1,
                &["*.com"],
                vec![
                    rule(vec![prefix("/x/below")], "v2"),
                    rule(vec![exact("/x")], "v2"),
                    rule(vec![prefix("/y")], "v2"),
                    rule(vec![gets(exact("/y/z"))], "v2"),
                    rule(vec![prefix("/")], "v2"),
                ],
            ),
            route("any", 1, &[], vec![rule(vec![exact("/q")], "v2")]),
        ]
    };
    let hidden = |loser, winner| line(loser, winner, Extent::Fully, Criterion::Host);
    assert_eq!(
        told_at(Some("a.com"), routes()),
        [
            hidden("any/0", "wild/4"),
            hidden("wild/0", "exact/0"),
            hidden("wild/1", "exact/0"),
            hidden("wild/3", "exact/0"),
        ]
    );
    assert_eq!(
        told_at(Some("*.com"), routes()),
        [hidden("any/0", "wild/4")]
    );
    assert_eq!(told_at(None, routes()), []);
}

#[test]
fn ten_thousand_routes_are_looked_through_in_no_time() {
    let routes = (0..10_000)
        .map(|n| {
            let path = format!("/p{n}");
            route(
                &format!("r{n}"),
                n,
                &["one.com"],
                vec![rule(vec![prefix(&path)], "v1")],
            )
        })
        .chain((0..10_000).map(|n| {
            let value = n.to_string();
            let matched = prefix("/same").with_header("x", &value);
            route(
                &format!("h{n}"),
                n,
                &["one.com"],
                vec![rule(vec![matched], "v1")],
            )
        }))
        .collect();
    assert_eq!(told(routes), []);
}
