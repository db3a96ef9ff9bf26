//! `diff`: random pairs of configurations, and the limits of representative requests.

mod common;
mod strategies;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use pointsman_binding::bound::*;
use pointsman_resources::route::{Header, HeaderModifier};
use pointsman_resources::{Kind, ObjectKey};
use pointsman_routing::Tables;
use pointsman_routing::diff::{Cause, Comparison, RulePair, Side, compare};
use pointsman_routing::explain::{Directory, Explanation, Outcome, Query, RuleRef, explain};
use proptest::prelude::*;
use proptest::sample::select;
use strategies::*;

/// Listeners and routes of a configuration.
#[derive(Clone, Debug)]
struct Config {
    /// Hostnames of the listeners of port 80; empty for all hosts.
    listeners: Vec<&'static str>,
    routes: BTreeMap<ObjectKey, BoundRoute>,
}

impl Config {
    fn tables(&self) -> Tables {
        let routes: Vec<BoundRoute> = self.routes.values().cloned().collect();
        let listeners = self.listeners.iter().map(|hostname| {
            let hostname = Some(*hostname).filter(|name| !name.is_empty());
            let name = hostname.unwrap_or("any");
            added(listener(name, 80, Protocol::Http, hostname), routes.clone())
        });
        tables(listeners)
    }
}

fn diff(old: &Tables, new: &Tables) -> Comparison {
    let directory = &Directory::default();
    let [old, new] = [old, new].map(|tables| Side { tables, directory });
    compare(&old, &new, None)
}

/// Gives each rule a backend, and some a filter, of a few.
fn with_effects(mut route: BoundRoute, effects: &[(usize, bool)]) -> BoundRoute {
    for (rule, (service, filter)) in route.rules.iter_mut().zip(effects) {
        let rule = Arc::make_mut(rule);
        rule.backends = vec![backend(["v1", "v2", "v3"][*service], 1)];
        let header = Header {
            name: "x-a".into(),
            value: "2".into(),
        };
        let modifier = HeaderModifier {
            set: vec![header],
            ..HeaderModifier::default()
        };
        rule.filters = match filter {
            true => vec![Filter::RequestHeaders(Arc::new(modifier))],
            false => vec![],
        };
    }
    route
}

/// Replaces expressions, and removes headers that have to be absent: without them, nothing is missed.
fn without_expressions(mut route: BoundRoute) -> BoundRoute {
    let plain = |predicate: &mut StringPredicate| {
        if let StringPredicate::Regex(_) = predicate {
            *predicate = StringPredicate::Exact("a".into());
        }
    };
    for rule in &mut route.rules {
        for matched in &mut Arc::make_mut(rule).matches {
            if let PathPredicate::Regex(_) = matched.path {
                matched.path = PathPredicate::Exact("/a/b".into());
            }
            let grpc = matched.grpc.iter_mut();
            let parts = grpc.flat_map(|grpc| [&mut grpc.service, &mut grpc.method]);
            parts.flatten().for_each(plain);
            let absent = |header: &ValuePredicate| header.value == StringPredicate::Absent;
            matched.headers.retain(|header| !absent(header));
            let values = matched.headers.iter_mut().chain(&mut matched.query);
            values.for_each(|value| plain(&mut value.value));
        }
    }
    route
}

fn routes() -> impl Strategy<Value = Vec<BoundRoute>> {
    let route = prop_oneof![3 => a_route(), 1 => an_alike_route()];
    let effects = prop::collection::vec((0..3usize, prop::bool::weighted(0.2)), 4);
    let route = (route, effects).prop_map(|(route, effects)| with_effects(route, &effects));
    prop::collection::vec(route, 0..5)
}

fn config(routes: Vec<BoundRoute>, listeners: Vec<&'static str>) -> Config {
    let mut listeners = listeners;
    listeners.sort_unstable();
    listeners.dedup();
    let routes = routes.into_iter();
    Config {
        listeners,
        routes: routes
            .map(|route| (route.id.route.clone(), route))
            .collect(),
    }
}

/// Two configurations that have some routes in common.
fn a_pair() -> impl Strategy<Value = (Config, Config)> {
    let listeners = || {
        let names = select(vec!["", "", "*.example.com", "a.example.com"]);
        prop::collection::vec(names, 1..3)
    };
    (
        routes(),
        routes(),
        routes(),
        listeners(),
        listeners(),
        any::<bool>(),
    )
        .prop_map(|(common, old, new, before, after, same_listeners)| {
            let after = if same_listeners {
                before.clone()
            } else {
                after
            };
            let old = config([common.clone(), old].concat(), before);
            let new = config([common, new].concat(), after);
            (old, new)
        })
}

/// A request that a URL can express, with each header once.
fn a_plain_request() -> impl Strategy<Value = Query> {
    a_request()
        .prop_filter("a URL", |request| {
            !request.host.is_empty() && request.path.starts_with('/')
        })
        .prop_map(|request| {
            let query = request
                .query
                .map_or(String::new(), |query| format!("?{query}"));
            let url = format!("http://{}{}{query}", request.host, request.path);
            let mut asked = Query::new(&url).expect("a URL");
            asked.method = request.method;
            let headers: BTreeMap<String, String> = request
                .headers
                .into_iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value))
                .collect();
            asked.headers = headers.into_iter().collect();
            asked.gateway = Some((gateway(), None));
            asked
        })
}

fn explained(tables: &Tables, query: &Query) -> Explanation {
    explain(tables, &Directory::default(), query, |_| vec![])
}

/// The part of an explanation that clients and backends notice.
fn effect(explanation: &Explanation) -> impl PartialEq + std::fmt::Debug + use<> {
    let forwards = explanation.outcome == Outcome::Forward;
    (
        forwards.then(|| (explanation.backends.clone(), explanation.request.clone())),
        explanation.status,
        explanation.grpc_status,
    )
}

fn pair(old: &Explanation, new: &Explanation) -> RulePair {
    let rule = |explanation: &Explanation| {
        let rule = explanation.rule.clone()?;
        Some(RuleRef {
            matched: None,
            ..rule
        })
    };
    RulePair {
        old: rule(old),
        new: rule(new),
    }
}

fn covers(comparison: &Comparison, pair: &RulePair) -> bool {
    let mut differences = comparison.differences.iter();
    differences.any(|difference| difference.rules.contains(pair))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_expressions_every_difference_is_reported_with_its_rules(
        (old, new) in a_pair(),
        requests in prop::collection::vec(a_plain_request(), 1..20),
    ) {
        let [old, new] = [old, new].map(|mut config| {
            let routes = config.routes.into_iter();
            config.routes = routes.map(|(key, route)| (key, without_expressions(route))).collect();
            config.tables()
        });
        let comparison = diff(&old, &new);
        prop_assert!(comparison.complete);
        for request in &requests {
            let (a, b) = (explained(&old, request), explained(&new, request));
            if effect(&a) != effect(&b) && pair(&a, &b) != (RulePair { old: None, new: None }) {
                prop_assert!(covers(&comparison, &pair(&a, &b)), "{:?}\n{:?}\n{:#?}", request, pair(&a, &b), comparison.differences);
            }
        }
    }

    #[test]
    fn a_configuration_has_no_difference_to_itself(routes in routes(), hostname in select(vec!["", "*.example.com"])) {
        let config = config(routes, vec![hostname]);
        let comparison = diff(&config.tables(), &config.tables());
        prop_assert!(comparison.differences.is_empty());
        prop_assert_eq!(comparison.representative_requests, 0);
    }

    #[test]
    fn each_sample_request_is_treated_as_reported((old, new) in a_pair()) {
        let (old, new) = (old.tables(), new.tables());
        for difference in diff(&old, &new).differences {
            let sample = difference.request.expect("listeners have no other settings");
            let mut query = Query::new(&sample.url).expect("a URL");
            query.method = sample.method.expect("an HTTP request");
            let headers = sample.headers.iter().filter_map(|header| header.split_once(": "));
            query.headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            query.gateway = Some((gateway(), None));
            let (a, b) = (explained(&old, &query), explained(&new, &query));
            let rules = [difference.old, difference.new].map(|side| side.expect("a treatment").rule);
            prop_assert_eq!(&rules, &[a.rule.clone(), b.rule.clone()]);
            let is_of_filters = difference.changes.iter().any(|change| change.field == "settings of filters");
            prop_assert!(is_of_filters || effect(&a) != effect(&b), "{:?}", query);
        }
    }
}

fn config_of(routes: Vec<BoundRoute>) -> Tables {
    config(routes, vec![""]).tables()
}

fn causes(old: &Tables, new: &Tables) -> Vec<Cause> {
    let differences = diff(old, new).differences;
    differences
        .iter()
        .map(|difference| difference.cause)
        .collect()
}

#[test]
fn another_rule_with_the_same_effect_is_no_difference() {
    let old = config_of(vec![route(
        "a",
        1,
        &[],
        vec![rule(vec![prefix("/a")], "v1")],
    )]);
    let renamed = route(
        "b",
        2,
        &[],
        vec![rule(vec![prefix("/a"), prefix("/a/b")], "v1")],
    );
    assert_eq!(causes(&old, &config_of(vec![renamed])), []);
}

#[test]
fn a_difference_is_reported_once_for_its_cause() {
    let matches = || {
        vec![
            prefix("/a"),
            prefix("/b"),
            exact("/c").with_header("x-a", "1"),
        ]
    };
    let shop = |service| route("shop", 1, &["shop.example"], vec![rule(matches(), service)]);
    let base = |service| route("base", 1, &[], vec![rule(vec![prefix("/")], service)]);
    let old = config_of(vec![base("v1")]);
    let table = [
        (config_of(vec![base("v2")]), vec![Cause::RuleChanged]),
        (config_of(vec![base("v1"), shop("v1")]), vec![]),
        (
            config_of(vec![base("v1"), shop("v2")]),
            vec![Cause::RouteAdded],
        ),
        (config_of(vec![]), vec![Cause::RouteRemoved]),
    ];
    for (new, wanted) in table {
        assert_eq!(causes(&old, &new), wanted);
    }
    let none = config_of(vec![]);
    assert_eq!(
        causes(&none, &config_of(vec![shop("v2")])),
        [Cause::HostAdded]
    );
    assert_eq!(
        causes(&config_of(vec![shop("v2")]), &none),
        [Cause::HostRemoved]
    );
}

#[test]
fn what_explain_does_not_print_counts_too() {
    let with = |change: fn(&mut BoundRule)| {
        let mut rule = rule(vec![prefix("/")], "v1");
        change(&mut rule);
        config_of(vec![route("a", 1, &[], vec![rule])])
    };
    let old = with(|_| {});
    let retry = with(|rule| {
        rule.retry = Some(RetryPolicy {
            codes: vec![503],
            attempts: 2,
            backoff: None,
        });
    });
    let found = diff(&old, &retry).differences;
    assert_eq!(found[0].changes[0].field, "retry");
    assert_eq!(
        found[0].changes[0].new.as_deref(),
        Some("up to 2 times on 503")
    );
    let timeout = with(|rule| rule.request_timeout = seconds(3));
    assert_eq!(
        diff(&old, &timeout).differences[0].changes[0].field,
        "request timeout"
    );
}

#[test]
fn an_expression_is_sampled_and_one_that_cannot_be_is_named() {
    let old = config_of(vec![route(
        "a",
        1,
        &[],
        vec![rule(vec![prefix("/")], "v1")],
    )]);
    let base = || rule(vec![prefix("/")], "v1");
    let new = |expression: &str| {
        config_of(vec![route(
            "a",
            1,
            &[],
            vec![base(), rule(vec![regex(expression)], "v2")],
        )])
    };
    let found = diff(&old, &new("/api/v[0-9]+/.*"));
    assert_eq!(found.differences.len(), 1, "{found:?}");
    assert!(found.not_sampled.is_empty());
    // No path of a request ends like this: it is normalized.
    let found = diff(&old, &new("/a/\\.\\."));
    assert!(found.differences.is_empty());
    assert_eq!(found.not_sampled.len(), 1);
}

#[test]
fn streams_are_compared_by_their_sni() {
    let stream = |name: &str, hostnames: &[&str], service| {
        let mut route = route(name, 1, hostnames, vec![rule(vec![], service)]);
        Arc::make_mut(&mut route.meta).id.route = ObjectKey::new(Kind::TLSRoute, "infra", name);
        route
    };
    let tables_of = |routes| {
        let protocol = Protocol::Tls(TlsModeKey::Passthrough);
        tables([added(listener("tls", 443, protocol, None), routes)])
    };
    let old = tables_of(vec![stream("a", &["a.example"], "v1")]);
    let new = tables_of(vec![stream("a", &["a.example"], "v2")]);
    let found = diff(&old, &new).differences;
    let request = found[0].request.as_ref().expect("a stream");
    assert_eq!((&*request.url, &request.method), ("tls://a.example", &None));
    assert_eq!(found[0].changes[0].field, "backends");
}
