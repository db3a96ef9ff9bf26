//! Random routes and requests: compares the table with a slow, naive matcher, and with tables built in other ways.

mod common;
mod strategies;

use std::collections::BTreeMap;
use std::sync::Mutex;

use common::*;
use pointsman_binding::Delta;
use pointsman_binding::bound::*;
use pointsman_resources::ObjectKey;
use pointsman_routing::explain::{Directory, Query, explain};
use pointsman_routing::{Extent, FrontendTable, Parameters, Rank, Tables, shadowed};
use proptest::prelude::*;
use strategies::*;

/// Compiled once, because compiling expressions is slow.
fn compiled(text: &str) -> regex::Regex {
    static COMPILED: Mutex<BTreeMap<String, regex::Regex>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().expect("no test panics while it holds this");
    let regex = || Pattern::compile(text).expect("a good expression");
    compiled
        .entry(text.to_owned())
        .or_insert_with(regex)
        .clone()
}

fn satisfied(predicate: &StringPredicate, value: &str) -> bool {
    match predicate {
        StringPredicate::Exact(wanted) => **wanted == *value,
        StringPredicate::Regex(pattern) => compiled(pattern.as_str()).is_match(value),
        StringPredicate::Prefix(start) => value.starts_with(&**start),
        StringPredicate::Present => true,
        StringPredicate::Absent => false,
    }
}

/// Identifies a match: the route, the index of the rule, the index of the match.
type MatchId = Option<(ObjectKey, usize, usize)>;

fn fast(table: &FrontendTable, request: &Req) -> MatchId {
    table
        .lookup(request)
        .map(|hit| (hit.route.id.route.clone(), hit.rule.index, hit.match_index))
}

/// Evaluates all matches of all rules and returns the satisfied one with the highest precedence.
fn slow<'r>(routes: impl Iterator<Item = &'r BoundRoute>, request: &Req) -> MatchId {
    let mut holding: Vec<(Rank, MatchId)> = Vec::new();
    for route in routes {
        let any = [None];
        let named: Vec<Option<&Hostname>> = route.hostnames.iter().map(Some).collect();
        for hostname in if named.is_empty() {
            any.as_slice()
        } else {
            &named
        } {
            if !hostname.is_none_or(|name| name.matches(&request.host)) {
                continue;
            }
            for rule in &route.rules {
                for matched in rule
                    .matches
                    .iter()
                    .filter(|matched| holds(matched, request))
                {
                    let answer = Some((route.id.route.clone(), rule.index, matched.index));
                    holding.push((Rank::of(route, *hostname, rule, Some(matched)), answer));
                }
            }
        }
    }
    holding
        .into_iter()
        .min_by(|a, b| a.0.cmp(&b.0))
        .and_then(|(_, answer)| answer)
}

fn holds(matched: &BoundMatch, request: &Req) -> bool {
    let path = &request.path;
    let path_holds = match &matched.path {
        PathPredicate::Exact(wanted) => **wanted == **path,
        PathPredicate::Prefix(prefix) => {
            let prefix = prefix.trim_end_matches('/');
            path.starts_with('/') && (**path == *prefix || path.starts_with(&format!("{prefix}/")))
        }
        PathPredicate::Regex(pattern) => compiled(pattern.as_str()).is_match(path),
        PathPredicate::Any => path.starts_with('/'),
    };
    let grpc_holds = matched.grpc.as_ref().is_none_or(|grpc| {
        let parts: Vec<&str> = path.splitn(3, '/').collect();
        parts.len() == 3
            && grpc
                .service
                .as_ref()
                .is_none_or(|wanted| satisfied(wanted, parts[1]))
            && grpc
                .method
                .as_ref()
                .is_none_or(|wanted| satisfied(wanted, parts[2]))
    });
    let header_holds = |predicate: &ValuePredicate| {
        let values: Vec<&str> = request
            .headers
            .iter()
            .filter(|(name, _)| name.to_lowercase() == *predicate.name)
            .map(|(_, value)| value.as_str())
            .collect();
        if predicate.value == StringPredicate::Absent {
            return values.is_empty();
        }
        !values.is_empty()
            && (values
                .iter()
                .any(|value| satisfied(&predicate.value, value))
                || satisfied(&predicate.value, &values.join(",")))
    };
    let parameters = Parameters::parse(request.query.as_deref().unwrap_or(""));
    let query_holds = |predicate: &ValuePredicate| {
        parameters
            .get(&predicate.name)
            .is_some_and(|value| satisfied(&predicate.value, value))
    };
    path_holds
        && grpc_holds
        && matched
            .method
            .as_ref()
            .is_none_or(|method| **method == *request.method)
        && matched.headers.iter().all(header_holds)
        && matched.query.iter().all(query_holds)
}

fn table_of(routes: &BTreeMap<ObjectKey, BoundRoute>) -> Tables {
    tables([added(
        listener("http", 80, Protocol::Http, None),
        routes.values().cloned().collect(),
    )])
}

fn by_name(routes: Vec<BoundRoute>) -> BTreeMap<ObjectKey, BoundRoute> {
    routes
        .into_iter()
        .map(|route| (route.id.route.clone(), route))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lookups_agree_with_a_naive_matcher(
        routes in prop::collection::vec(a_route(), 0..8),
        requests in prop::collection::vec(a_request(), 1..12),
    ) {
        let routes = by_name(routes);
        let tables = table_of(&routes);
        let table = tables.listener(&gateway(), 80, None).expect("a listener");
        for request in &requests {
            prop_assert_eq!(fast(table, request), slow(routes.values(), request), "{:?}", request);
        }
    }

    /// Precedence is defined by ranks only, for both dialects.
    #[test]
    fn a_match_that_is_fully_shadowed_never_wins_and_its_winner_outranks_it(
        routes in prop::collection::vec(prop_oneof![a_route(), an_alike_route()], 0..8),
        requests in prop::collection::vec(a_request(), 1..12),
    ) {
        let routes = by_name(routes);
        let tables = table_of(&routes);
        let table = tables.listener(&gateway(), 80, None).expect("a listener");
        let lost = shadowed(table);
        let rank = |route: &BoundRoute, rule: &BoundRule, index: usize, host: Option<&Hostname>| {
            let matched = rule.matches.iter().find(|matched| matched.index == index);
            Rank::of(route, host, rule, matched)
        };
        for shadow in &lost {
            let host = shadow.hostname.as_ref();
            let loser = rank(&shadow.route, &shadow.rule, shadow.match_index, host);
            let winner = rank(&shadow.by_route, &shadow.by, shadow.by_match, host);
            prop_assert!(winner < loser, "{}", shadow.detail);
        }
        for request in &requests {
            let found = fast(table, request);
            for shadow in lost.iter().filter(|shadow| shadow.extent == Extent::Fully) {
                let key = (shadow.route.id.route.clone(), shadow.rule.index, shadow.match_index);
                prop_assert_ne!(&found, &Some(key), "{}", shadow.detail);
            }
        }
    }

    #[test]
    fn changed_step_by_step_it_equals_one_made_from_scratch(
        steps in prop::collection::vec(
            prop_oneof![
                4 => a_route().prop_map(|route| (route.id.route.clone(), Some(route))),
                4 => an_alike_route().prop_map(|route| (route.id.route.clone(), Some(route))),
                1 => a_route().prop_map(|route| (route.id.route.clone(), None)),
            ],
            1..25,
        ),
        requests in prop::collection::vec(a_request(), 1..6),
    ) {
        let frontend = listener("http", 80, Protocol::Http, None);
        let id = frontend.id.clone();
        let mut stepwise = tables([added(frontend, vec![])]);
        let mut routes = BTreeMap::new();
        let mut versions = Vec::new();
        for (key, route) in steps {
            let mut delta = Delta::default();
            replace(&id, routes.get(&key), route.as_ref(), &mut delta);
            stepwise.apply(&delta);
            match route {
                Some(route) => drop(routes.insert(key, route)),
                None => drop(routes.remove(&key)),
            }
            versions.push((stepwise.clone(), routes.clone()));
        }
        // Every version, not only the last: later changes do not affect a snapshot.
        for (tables, routes) in &versions {
            let table = tables.frontend(&id).expect("a listener");
            prop_assert_eq!(table.routes().count(), routes.len());
            let scratch = table_of(routes);
            let scratch = scratch.frontend(&id).expect("a listener");
            for request in &requests {
                prop_assert_eq!(fast(table, request), fast(scratch, request), "{:?}", request);
            }
        }
        // Removed routes leave nothing behind.
        for route in routes.values() {
            let mut delta = Delta::default();
            replace(&id, Some(route), None, &mut delta);
            stepwise.apply(&delta);
        }
        let table = stepwise.frontend(&id).expect("a listener");
        prop_assert!(table.is_empty() && table.has_no_entries());
    }

    #[test]
    fn tables_of_a_decoded_copy_give_the_same_results(
        routes in prop::collection::vec(prop_oneof![a_route(), an_alike_route()], 0..8),
        requests in prop::collection::vec(a_request(), 1..12),
    ) {
        let routes = by_name(routes);
        let delta = added(listener("http", 80, Protocol::Http, None), routes.into_values().collect());
        let decoded = pointsman_wire::decode(&pointsman_wire::encode(&delta)).expect("a message");
        prop_assert_eq!(&decoded.rejected, &[]);
        let (original, copy) = (tables([delta]), tables([decoded.delta]));
        let table = |tables: &Tables| {
            tables.listener(&gateway(), 80, None).expect("a listener").clone()
        };
        for request in &requests {
            let found = fast(&table(&copy), request);
            prop_assert_eq!(found, fast(&table(&original), request), "{:?}", request);
            if request.host.is_empty() || !request.path.starts_with('/') {
                continue;
            }
            let url = format!("http://{}{}", request.host, request.path);
            let query = Query::new(&url).expect("a URL");
            let explained = |tables| {
                format!("{:?}", explain(tables, &Directory::default(), &query, |_| vec![]))
            };
            prop_assert_eq!(explained(&copy), explained(&original));
        }
    }

    #[test]
    fn explain_names_the_rule_that_the_lookup_finds_and_every_other_once(
        routes in prop::collection::vec(a_route(), 0..6),
        request in a_request(),
    ) {
        prop_assume!(!request.host.is_empty() && request.path.starts_with('/'));
        let routes = by_name(routes);
        let tables = table_of(&routes);
        let table = tables.listener(&gateway(), 80, None).expect("a listener");
        let query = request.query.as_ref().map_or(String::new(), |query| format!("?{query}"));
        let mut asked =
            Query::new(&format!("http://{}{}{query}", request.host, request.path)).expect("a URL");
        asked.method = request.method.clone();
        asked.headers = request.headers.clone();
        let told = explain(&tables, &Directory::default(), &asked, |_| vec![]);
        let winner = told.rule.as_ref().map(|rule| {
            (rule.kind, rule.name.clone(), rule.rule, rule.matched)
        });
        let found = fast(table, &request);
        let wanted = found.as_ref().map(|(key, rule, matched)| {
            (key.kind.name(), key.name.name.to_string(), Some(*rule), Some(*matched))
        });
        prop_assert_eq!(winner, wanted);
        let all: usize =
            routes.values().flat_map(|route| &route.rules).map(|rule| rule.matches.len()).sum();
        prop_assert_eq!(told.candidates.len() + usize::from(found.is_some()), all);
        for candidate in &told.candidates {
            prop_assert!(!candidate.detail.is_empty() && !candidate.detail.contains("and yet"));
        }
    }
}
