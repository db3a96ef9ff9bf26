//! The JSON output of `explain`.

mod common;

use std::sync::Arc;

use common::*;
use pointsman_binding::Delta;
use pointsman_binding::bound::*;
use pointsman_resources::route::{
    Cors, Fraction, Header, HeaderModifier, PathModifier, RequestRedirect, UrlRewrite,
};
use pointsman_resources::{Kind, ObjectKey};
use pointsman_routing::explain::{Directory, DirectoryEntry, Query, RefusedCandidate, explain};
use pointsman_routing::{Criterion, PathPolicy, Tables};
use serde_json::{Value, json};

fn ask(tables: &Tables, query: &Query) -> Value {
    serde_json::to_value(explain(tables, &directory(), query, |_| vec![])).expect("JSON")
}

fn url(text: &str) -> Query {
    Query::new(text).expect("a URL")
}

fn with(mut query: Query, headers: &[(&str, &str)]) -> Query {
    query.headers.extend(
        headers
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned())),
    );
    query
}

fn directory() -> Directory {
    Directory {
        unresolved_outbounds: Vec::new(),
        parents: vec![DirectoryEntry {
            object: cart(),
            addresses: vec!["10.0.0.10".parse().expect("an address")],
            backends: [80, 81]
                .map(|port| {
                    let (mut backend, endpoints) = service("cart", &["10.1.0.9:8080"]);
                    backend.id.object = cart();
                    backend.id.port = port;
                    (backend, endpoints)
                })
                .into(),
        }],
        pods: vec![(
            ObjectKey::new(Kind::Pod, "shop", "cart-1"),
            "10.1.0.7".parse().expect("an address"),
        )],
    }
}

fn backends() -> Delta {
    services([
        service("v1", &["10.1.0.1:8080"]),
        service("v2", &["10.1.0.2:8080"]),
        service("empty", &[]),
    ])
}

/// One HTTP listener on port 80 with these rules in a route `infra/r`.
fn with_rules(rules: Vec<BoundRule>) -> Tables {
    let http = listener("http", 80, Protocol::Http, None);
    tables([added(http, vec![route("r", 1, &[], rules)]), backends()])
}

fn filtered(matched: BoundMatch, filters: Vec<Filter>) -> BoundRule {
    BoundRule {
        filters,
        ..rule(vec![matched], "v1")
    }
}

fn set(name: &str, value: &str) -> Arc<HeaderModifier> {
    let header = Header {
        name: name.into(),
        value: value.into(),
    };
    Arc::new(HeaderModifier {
        set: vec![header],
        ..HeaderModifier::default()
    })
}

#[test]
fn an_exact_path_is_named_as_the_reason_for_its_precedence() {
    let tables = with_rules(vec![
        rule(vec![prefix("/a")], "v1"),
        rule(vec![exact("/a")], "v2"),
    ]);
    let answer = ask(&tables, &url("http://shop.example/a"));
    let printed = answer.to_string();
    let expected = "path: the exact path `/a` comes before the prefix `/a`";
    assert!(printed.contains(expected), "{printed}");
}

// RFC 9110 §9.1: "The method token is case-sensitive".
#[test]
fn a_registered_method_in_another_case_is_400_regardless_of_the_rules() {
    let tables = with_rules(vec![rule(vec![prefix("/").with_method("DELETE")], "v1")]);
    let query = |method: &str, to: &str| Query {
        method: method.into(),
        ..url(to)
    };
    for to in ["http://shop.example/", "http://shop.example:81/"] {
        let answer = ask(&tables, &query("delete", to));
        let reached = to.ends_with("example/");
        let wanted = if reached { json!(400) } else { Value::Null };
        assert_eq!(answer["status"], wanted, "{answer:#}");
    }
    let answer = ask(&tables, &query("delete", "http://shop.example/"));
    assert_eq!(answer["outcome"], "respond");
    let reason = "the method differs from a registered one only in case";
    assert_eq!(answer["reason"], reason);
    assert_eq!(answer.get("rule"), None);
    let answer = ask(&tables, &query("DELETE", "http://shop.example/"));
    assert_eq!(answer["outcome"], "forward");
}

#[test]
fn the_strict_policy_rejects_paths_that_origins_read_differently() {
    let tables = with_rules(vec![rule(vec![prefix("/")], "v1")]);
    let table = [
        ("/a%2Fb", Some("`%2F`")),
        ("/a%5cb", Some("`%5C`")),
        ("/a//../b", Some("`//`")),
        ("/a;x/b", Some("`;`")),
        ("/a?x=//;%2F", None),
    ];
    for (path, found) in table {
        let mut query = url(&format!("http://shop.example{path}"));
        assert_eq!(ask(&tables, &query)["outcome"], "forward", "{path}");
        query.paths = PathPolicy::Strict;
        let answer = ask(&tables, &query);
        let Some(found) = found else {
            assert_eq!(answer["outcome"], "forward", "{path}");
            continue;
        };
        assert_eq!(
            (&answer["outcome"], &answer["status"]),
            (&json!("respond"), &json!(400))
        );
        let reason = format!("the path has {found}, which --paths strict rejects");
        assert_eq!(answer["reason"], reason, "{path}");
    }
}

#[test]
fn names_with_underscores_that_read_as_edited_ones_do_not_reach_the_backend() {
    let mut edited = filtered(
        prefix("/"),
        vec![Filter::RequestHeaders(set("X-User", "guest"))],
    );
    edited.backends = vec![backend("v1", 1)];
    let tables = with_rules(vec![edited]);
    let query = with(
        url("http://shop.example/"),
        &[
            ("X_User", "admin"),
            ("X_Forwarded_For", "6.6.6.6"),
            ("x_kept", "1"),
        ],
    );
    let wanted = json!({"host": "shop.example", "x-user": "guest", "x_kept": "1"});
    assert_eq!(ask(&tables, &query)["request"]["headers"], wanted);
}

#[test]
fn a_forward_is_told_whole() {
    let mut canary = rule(
        vec![exact("/no"), prefix("/v1").with_header("x-env", "canary")],
        "v1",
    );
    canary.name = Some("canary".into());
    canary.filters = vec![
        Filter::RequestHeaders(set("X-Added", "1")),
        Filter::Rewrite(Arc::new(UrlRewrite {
            hostname: Some("inner.example".into()),
            path: None,
        })),
        Filter::ResponseHeaders(Arc::new(HeaderModifier {
            remove: vec!["Server".into()],
            ..(*set("X-Out", "2")).clone()
        })),
        Filter::Mirror(Mirror {
            reference: backend("v2", 1).reference,
            target: Ok(backend_id("v2")),
            fraction: Fraction {
                numerator: 1,
                denominator: 10,
            },
            hostname: None,
        }),
    ];
    canary.request_timeout = seconds(10);
    canary.backends = vec![backend("v1", 9), backend("empty", 1)];
    canary.backends[1].filters = vec![Filter::RequestHeaders(set("x-share", "small"))];
    let tables = with_rules(vec![canary, rule(vec![prefix("/")], "v2")]);
    let query = with(url("http://shop.example/v1/x?q=1"), &[("X-Env", "canary")]);
    let headers = json!({"host": "inner.example", "x-added": "1", "x-env": "canary"});
    let mut small = headers.clone();
    small["x-share"] = "small".into();
    let wanted = json!({
        "frontend": {"kind": "Gateway", "namespace": "infra", "name": "edge", "section": "http", "port": 80},
        "why": "listener http of Gateway infra/edge on port 80: it serves all hosts, and no listener on the port has a hostname for `shop.example`",
        "outcome": "forward",
        "rule": {"kind": "HTTPRoute", "namespace": "infra", "name": "r", "rule": 0, "ruleName": "canary", "match": 1},
        "request": {"method": "GET", "url": "http://inner.example/v1/x?q=1", "headers": headers},
        "response": {"headers": {"x-out": "2"}, "removed": ["server"]},
        "backends": [
            {"kind": "Service", "namespace": "infra", "name": "v1", "port": 8080, "share": 0.9, "endpoints": ["10.1.0.1:8080"]},
            {"kind": "Service", "namespace": "infra", "name": "empty", "port": 8080, "share": 0.1, "status": 503,
             "reason": "no ready endpoint",
             "request": {"method": "GET", "url": "http://inner.example/v1/x?q=1", "headers": small}},
        ],
        "mirrors": [{"kind": "Service", "namespace": "infra", "name": "v2", "port": 8080, "share": 0.1}],
        "timeouts": {"request": "10s"},
        "candidates": [
            {"kind": "HTTPRoute", "namespace": "infra", "name": "r", "rule": 0, "ruleName": "canary", "match": 0,
             "lostOn": "path", "detail": "path: expected exactly `/no`, got `/v1/x`"},
            {"kind": "HTTPRoute", "namespace": "infra", "name": "r", "rule": 1, "match": 0,
             "lostOn": "path", "detail": "path: `/v1` is a longer prefix than `/`"},
        ],
    });
    assert_eq!(ask(&tables, &query), wanted);
}

#[test]
fn every_candidate_has_the_first_criterion_that_it_lost_on() {
    let one = |name: &str, age, hosts: &[&str], matched| {
        route(name, age, hosts, vec![rule(vec![matched], "v1")])
    };
    let any = || prefix("/p");
    let routes = vec![
        one("winner", 1, &["*.example.com"], any()),
        one("a-host", 1, &["other.com", "*.org"], any()),
        one("b-host-shorter", 1, &["*.com"], any()),
        one("c-host-none", 1, &[], any()),
        one("d-path", 1, &["*.example.com"], prefix("/q")),
        one("e-path-shorter", 1, &["*.example.com"], prefix("/")),
        one("f-regex", 1, &["*.example.com"], regex("/[0-9]+")),
        one("g-method", 1, &["*.example.com"], any().with_method("PUT")),
        one(
            "h-header",
            1,
            &["*.example.com"],
            any().with_header("x-env", "canary"),
        ),
        one(
            "i-header-none",
            1,
            &["*.example.com"],
            any().with_header("x-other", "1"),
        ),
        one("j-query", 1, &["*.example.com"], any().with_query("q", "2")),
        one("k-age", 2, &["*.example.com"], any()),
        one("z-name", 1, &["*.example.com"], any()),
        route("w-order", 0, &["*.example.com"], vec![]),
    ];
    let tables = tables([added(listener("http", 80, Protocol::Http, None), routes)]);
    let query = with(url("http://a.example.com/p?q=1"), &[("x-env", "prod")]);
    let told = ask(&tables, &query);
    assert_eq!(told["rule"]["name"], "winner");
    let wanted = [
        (
            "a-host",
            "host",
            "host: expected `other.com` or `*.org`, got `a.example.com`",
        ),
        (
            "b-host-shorter",
            "host",
            "host: infra/winner has a longer hostname than `*.com`",
        ),
        (
            "c-host-none",
            "host",
            "host: infra/winner has a hostname that matches, this one has none",
        ),
        ("d-path", "path", "path: expected prefix `/q`, got `/p`"),
        (
            "e-path-shorter",
            "path",
            "path: `/p` is a longer prefix than `/`",
        ),
        (
            "f-regex",
            "path",
            "path: expected a full match of `/[0-9]+`, got `/p`",
        ),
        ("g-method", "method", "method: expected `PUT`, got `GET`"),
        (
            "h-header",
            "header",
            "header x-env: expected `canary`, got `prod`",
        ),
        (
            "i-header-none",
            "header",
            "header x-other: expected `1`, it is missing",
        ),
        ("j-query", "query", "query q: expected `2`, got `1`"),
        (
            "k-age",
            "age",
            "older route infra/winner has the same match",
        ),
        (
            "z-name",
            "name",
            "route infra/winner of the same age has the same match and comes first by name",
        ),
    ];
    let candidates = told["candidates"].as_array().expect("a list");
    assert_eq!(candidates.len(), wanted.len());
    for (name, lost_on, detail) in wanted {
        let found = candidates
            .iter()
            .find(|candidate| candidate["name"] == name)
            .expect(name);
        assert_eq!(
            (&found["lostOn"], &found["detail"]),
            (&json!(lost_on), &json!(detail))
        );
    }
}

#[test]
fn the_advantage_of_the_winner_over_other_matches_is_explained() {
    let strong = || {
        prefix("/")
            .with_method("GET")
            .with_header("a", "1")
            .with_query("q", "1")
    };
    let rules = vec![
        rule(vec![strong(), strong()], "v1"),
        rule(vec![strong()], "v1"),
        rule(vec![prefix("/").with_header("a", "1")], "v1"),
        rule(vec![prefix("/").with_method("GET")], "v1"),
        rule(
            vec![prefix("/").with_method("GET").with_header("a", "1")],
            "v1",
        ),
    ];
    let told = ask(
        &with_rules(rules),
        &with(url("http://h/?q=1"), &[("a", "1")]),
    );
    let lost: Vec<(Value, Value)> = told["candidates"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|candidate| (candidate["rule"].clone(), candidate["lostOn"].clone()))
        .collect();
    let wanted = [
        (0, "order"),
        (1, "order"),
        (4, "query"),
        (3, "header"),
        (2, "method"),
    ];
    assert_eq!(lost, wanted.map(|(rule, on)| (json!(rule), json!(on))));
}

#[test]
fn a_prefix_is_rewritten_and_the_query_kept() {
    let rewrite = Filter::Rewrite(Arc::new(UrlRewrite {
        hostname: None,
        path: Some(PathModifier {
            kind: "ReplacePrefixMatch".into(),
            replace_full_path: None,
            replace_prefix_match: Some("/v2".into()),
        }),
    }));
    let tables = with_rules(vec![filtered(prefix("/v1"), vec![rewrite])]);
    let told = ask(&tables, &url("http://h:8080/v1/x?q=1"));
    assert_eq!(told["outcome"], "no-frontend");
    let told = ask(&tables, &url("http://h/v1/x?q=1"));
    assert_eq!(told["request"]["url"], "http://h/v2/x?q=1");
}

#[test]
fn a_redirect_is_explained_with_its_location() {
    let redirect = Filter::Redirect(Arc::new(RequestRedirect {
        scheme: Some("https".into()),
        hostname: None,
        path: None,
        port: None,
        status_code: 301,
    }));
    let told = ask(
        &with_rules(vec![filtered(prefix("/"), vec![redirect])]),
        &url("http://h/x?q"),
    );
    assert_eq!(told["outcome"], "redirect");
    assert_eq!(told["status"], 301);
    assert_eq!(
        told["response"],
        json!({"status": 301, "headers": {"location": "https://h/x?q"}})
    );
    assert_eq!(told["backends"], Value::Null);
}

/// As in the proxy, filters edit the reply, including `location`.
#[test]
fn a_response_filter_edits_the_location_of_a_redirect() {
    let redirect = || {
        Filter::Redirect(Arc::new(RequestRedirect {
            scheme: Some("https".into()),
            hostname: None,
            path: None,
            port: None,
            status_code: 302,
        }))
    };
    let modifier = |modifier| Filter::ResponseHeaders(Arc::new(modifier));
    let set = Filter::ResponseHeaders(set("Location", "/elsewhere"));
    let remove = modifier(HeaderModifier {
        remove: vec!["location".into()],
        ..HeaderModifier::default()
    });
    let table = [
        (set, json!({"location": "/elsewhere"})),
        (remove, Value::Null),
    ];
    for (filter, headers) in table {
        // In any order within the rule.
        for filters in [
            vec![redirect(), filter.clone()],
            vec![filter.clone(), redirect()],
        ] {
            let tables = with_rules(vec![filtered(prefix("/"), filters)]);
            let told = ask(&tables, &url("http://h/x"));
            assert_eq!(told["status"], 302);
            assert_eq!(told["response"]["headers"], headers);
        }
    }
}

#[test]
fn a_preflight_gets_a_reply_and_a_simple_request_is_forwarded() {
    let cors = Filter::Cors(Arc::new(Cors {
        allow_origins: vec!["https://a.com".into()],
        max_age: 5,
        ..Cors::default()
    }));
    let tables = with_rules(vec![filtered(prefix("/"), vec![cors])]);
    let mut query = with(
        url("http://h/"),
        &[
            ("Origin", "https://a.com"),
            ("Access-Control-Request-Method", "PUT"),
        ],
    );
    let told = ask(&tables, &query);
    assert_eq!(told["outcome"], "forward");
    let shared = json!({"access-control-allow-origin": "https://a.com", "vary": "Origin"});
    assert_eq!(told["response"]["headers"], shared);
    query.method = "OPTIONS".into();
    let told = ask(&tables, &query);
    assert_eq!(
        (&told["outcome"], &told["status"]),
        (&json!("respond"), &json!(204))
    );
    assert_eq!(told["response"]["headers"]["access-control-max-age"], "5");
}

#[test]
fn local_replies_are_explained_in_the_clients_protocol() {
    let mut broken = rule(vec![prefix("/broken")], "v1");
    let fault = Fault {
        status: 500,
        reason: FaultReason::InvalidKind,
        message: "kind Pod is no backend".into(),
    };
    broken.fault = Some(fault.clone());
    let mut idle = rule(vec![prefix("/idle")], "v1");
    idle.backends[0].weight = 0;
    let mut share = rule(vec![prefix("/share")], "v1");
    share.backends[0].target = Err(fault);
    let tables = with_rules(vec![broken, idle, share]);
    let table = [
        ("http://h/broken", json!("respond"), json!(500), Value::Null),
        (
            "grpc://h/broken/Get",
            json!("respond"),
            Value::Null,
            json!(14),
        ),
        ("http://h/idle", json!("respond"), json!(503), Value::Null),
        ("http://h/none", json!("no-route"), json!(404), Value::Null),
        (
            "grpc://h/none/Get",
            json!("no-route"),
            Value::Null,
            json!(12),
        ),
        ("http://h/share", json!("forward"), Value::Null, Value::Null),
        (
            "http://h:81/",
            json!("no-frontend"),
            Value::Null,
            Value::Null,
        ),
        ("tls://h", json!("no-frontend"), Value::Null, Value::Null),
    ];
    for (text, outcome, status, grpc) in table {
        let told = ask(&tables, &url(text));
        let got = (&told["outcome"], &told["status"], &told["grpcStatus"]);
        assert_eq!(got, (&outcome, &status, &grpc), "{text}");
    }
    let told = ask(&tables, &url("http://h/share"));
    assert_eq!(told["backends"][0]["status"], 500);
    assert_eq!(told["backends"][0]["reason"], "kind Pod is no backend");
    assert_eq!(
        ask(&tables, &url("grpc://h/share/Get"))["backends"][0]["grpcStatus"],
        14
    );
}

#[test]
fn a_stream_is_routed_by_sni_and_reset_if_no_route_matches() {
    let mut by_sni = route("sni", 1, &["a.example.com"], vec![rule(vec![], "v1")]);
    Arc::make_mut(&mut by_sni.meta).id.route.kind = Kind::TLSRoute;
    let passthrough = Protocol::Tls(TlsModeKey::Passthrough);
    let tables = tables([
        added(
            listener("tls", 8443, passthrough, Some("*.example.com")),
            vec![by_sni],
        ),
        backends(),
    ]);
    let told = ask(&tables, &url("tls://a.example.com"));
    assert_eq!(
        (&told["outcome"], &told["rule"]["kind"]),
        (&json!("forward"), &json!("TLSRoute"))
    );
    assert_eq!(told["rule"].get("match"), None);
    assert_eq!(told.get("request"), None);
    let told = ask(&tables, &url("tls://b.example.com:8443"));
    assert_eq!(
        (&told["outcome"], &told["status"]),
        (&json!("no-route"), &json!("reset"))
    );
    let told = ask(&tables, &url("tls://other.org:8443"));
    assert_eq!(
        (&told["outcome"], &told["status"]),
        (&json!("no-frontend"), &json!("reset"))
    );
    let mut query = url("tls://other.org:8443");
    query.sni = Some("A.example.com".into());
    assert_eq!(ask(&tables, &query)["outcome"], "forward");
}

#[test]
fn a_host_of_another_listener_than_the_snis_is_misdirected() {
    let one = || vec![route("r", 1, &[], vec![rule(vec![prefix("/")], "v1")])];
    let tables = tables([
        added(listener("a", 443, Protocol::Https, Some("a.com")), one()),
        added(listener("b", 443, Protocol::Https, Some("b.com")), one()),
        backends(),
    ]);
    assert_eq!(ask(&tables, &url("https://a.com/"))["outcome"], "forward");
    let told = ask(&tables, &with(url("https://a.com/"), &[("Host", "b.com")]));
    assert_eq!(
        (&told["outcome"], &told["status"]),
        (&json!("respond"), &json!(421))
    );
    // A gRPC call gets errors as a gRPC status.
    let call = [("Host", "b.com"), ("content-type", "application/grpc")];
    let told = ask(&tables, &with(url("https://a.com/s/m"), &call));
    assert_eq!(
        (&told["outcome"], &told["status"], &told["grpcStatus"]),
        (&json!("respond"), &Value::Null, &json!(14))
    );
}

/// A listener that can't serve keeps its hostname: the catch-all listener does not get its requests.
#[test]
fn a_listener_that_cannot_serve_is_not_replaced_by_the_catch_all() {
    let one = || vec![route("r", 1, &[], vec![rule(vec![prefix("/")], "v1")])];
    let closed = |name, port, protocol| Frontend {
        closed: Some("Secret infra/c does not exist".into()),
        ..listener(name, port, protocol, Some("secure.com"))
    };
    let tables = tables([
        added(listener("all", 443, Protocol::Https, None), one()),
        added(closed("secure", 443, Protocol::Https), one()),
        added(listener("plain", 80, Protocol::Http, None), one()),
        added(closed("secure-plain", 80, Protocol::Http), one()),
        backends(),
    ]);
    for (query, status) in [
        (url("https://secure.com/"), json!("reset")),
        (url("http://secure.com/"), json!(404)),
        // The connection was made to the catch-all listener.
        (
            with(url("https://other.com/"), &[("Host", "secure.com")]),
            json!(421),
        ),
    ] {
        let told = ask(&tables, &query);
        assert_eq!(
            (&told["outcome"], &told["status"]),
            (&json!("respond"), &status),
            "{told:#}"
        );
        assert_eq!(told["candidates"][0]["name"], "r", "{told:#}");
        assert_eq!(told["backends"], Value::Null);
    }
    let told = ask(&tables, &url("https://secure.com/"));
    assert_eq!(told["frontend"]["section"], "secure");
    assert_eq!(
        told["reason"],
        "the listener can't serve: Secret infra/c does not exist"
    );
    assert_eq!(
        ask(&tables, &url("https://other.com/"))["outcome"],
        "forward"
    );
    let call = with(
        url("http://secure.com/s/m"),
        &[("content-type", "application/grpc")],
    );
    assert_eq!(ask(&tables, &call)["grpcStatus"], 12);
    let mut named = url("https://secure.com/");
    named.gateway = Some((gateway(), Some("secure".into())));
    assert_eq!(ask(&tables, &named)["status"], "reset");
}

#[test]
fn an_empty_sni_stands_for_a_client_without_sni() {
    let terminated = Protocol::Tls(TlsModeKey::Terminate);
    let tls = route("r", 1, &[], vec![rule(vec![], "v1")]);
    let tables = tables([
        added(listener("any", 443, terminated, None), vec![tls]),
        added(
            listener("named", 443, terminated, Some("a.com")),
            Vec::new(),
        ),
        backends(),
    ]);
    let mut query = url("tls://a.com");
    assert_eq!(ask(&tables, &query)["outcome"], "no-route");
    query.sni = Some(String::new());
    let told = ask(&tables, &query);
    assert_eq!(told["outcome"], "forward");
    assert_eq!(
        told["why"],
        "listener any of Gateway infra/edge on port 443"
    );
}

#[test]
fn the_gateway_is_the_one_that_is_named_or_the_most_specific() {
    let one = |name: &str| vec![route(name, 1, &[], vec![rule(vec![prefix("/")], "v1")])];
    let other = |hostname| {
        let mut listener = listener("http", 80, Protocol::Http, hostname);
        listener.id = FrontendId::Listener {
            gateway: pointsman_resources::Name::new("infra", "a-first"),
            owner: ObjectKey::new(Kind::Gateway, "infra", "a-first"),
            listener: "http".into(),
        };
        listener
    };
    let tables = tables([
        added(other(None), one("wide")),
        added(
            listener("http", 80, Protocol::Http, Some("*.example.com")),
            one("narrow"),
        ),
        added(listener("alt", 8080, Protocol::Http, None), one("alt")),
        backends(),
    ]);
    assert_eq!(
        ask(&tables, &url("http://a.example.com/"))["rule"]["name"],
        "narrow"
    );
    assert_eq!(
        ask(&tables, &url("http://other.org/"))["rule"]["name"],
        "wide"
    );
    let mut query = url("http://a.example.com/");
    query.gateway = Some((pointsman_resources::Name::new("infra", "a-first"), None));
    assert_eq!(ask(&tables, &query)["rule"]["name"], "wide");
    query.gateway = Some((gateway(), Some("alt".into())));
    let told = ask(&tables, &query);
    assert_eq!(told["rule"]["name"], "alt");
    let elsewhere = json!([{"kind": "HTTPRoute", "namespace": "infra", "name": "narrow", "rule": 0, "match": 0,
        "lostOn": "scope", "detail": "attached to listener http on port 80"}]);
    assert_eq!(told["candidates"], elsewhere);
}

#[test]
fn in_the_mesh_other_scopes_and_refused_routes_are_candidates() {
    let one = |name: &str| vec![route(name, 1, &[], vec![rule(vec![prefix("/")], "v1")])];
    let tables = tables([
        added(mesh(80, Scope::Everyone, Kind::HTTPRoute), one("producer")),
        added(
            mesh(80, Scope::Namespace("team".into()), Kind::HTTPRoute),
            one("consumer"),
        ),
        backends(),
    ]);
    let mut query = url("http://cart.shop/");
    query.from = Some(("team".into(), None));
    let refused = |called: &pointsman_binding::bound::BackendId| {
        let (parent, port) = (&called.object, called.port);
        assert_eq!((parent, port), (&cart(), 80));
        vec![RefusedCandidate {
            to: None,
            route: ObjectKey::new(Kind::TCPRoute, "shop", "bytes"),
            rules: vec![(0, None, 0)],
            lost_on: Criterion::Kind,
            detail: "an HTTPRoute governs this port".into(),
        }]
    };
    let told = serde_json::to_value(explain(&tables, &directory(), &query, refused)).expect("JSON");
    assert_eq!(
        told["frontend"],
        json!({"kind": "Service", "namespace": "shop", "name": "cart", "port": 80, "scope": "team"})
    );
    assert_eq!(told["rule"]["name"], "consumer");
    let wanted = json!([
        {"kind": "HTTPRoute", "namespace": "infra", "name": "producer", "rule": 0, "match": 0,
         "lostOn": "scope", "detail": "producer route: the consumer routes of the client's namespace replace it"},
        {"kind": "TCPRoute", "namespace": "shop", "name": "bytes", "rule": 0, "match": 0, "lostOn": "kind", "detail": "an HTTPRoute governs this port"},
    ]);
    assert_eq!(told["candidates"], wanted);
    query.from = Some(("other".into(), None));
    assert_eq!(ask(&tables, &query)["rule"]["name"], "producer");
    assert_eq!(
        ask(&tables, &url("http://10.0.0.10/"))["rule"]["name"],
        "producer"
    );
}

#[test]
fn a_route_that_lost_a_port_to_another_kind_lost_on_kind_even_if_it_applies_to_other_ports() {
    let mut bytes = route("bytes", 1, &[], vec![rule(vec![], "v1")]);
    Arc::make_mut(&mut bytes.meta).id.route = ObjectKey::new(Kind::TCPRoute, "infra", "bytes");
    let web = route("web", 1, &[], vec![rule(vec![prefix("/")], "v1")]);
    let tables = tables([
        added(mesh(80, Scope::Everyone, Kind::HTTPRoute), vec![web]),
        added(mesh(81, Scope::Everyone, Kind::TCPRoute), vec![bytes]),
        backends(),
    ]);
    let refused = |_: &pointsman_binding::bound::BackendId| {
        vec![RefusedCandidate {
            to: None,
            route: ObjectKey::new(Kind::TCPRoute, "infra", "bytes"),
            rules: vec![(0, None, 0)],
            lost_on: Criterion::Kind,
            detail: "an HTTPRoute governs port 80".into(),
        }]
    };
    let query = url("http://cart.shop:80/");
    let told = serde_json::to_value(explain(&tables, &directory(), &query, refused)).expect("JSON");
    let wanted = json!([{"kind": "TCPRoute", "namespace": "infra", "name": "bytes", "rule": 0, "match": 0,
        "lostOn": "kind", "detail": "an HTTPRoute governs port 80"}]);
    assert_eq!(told["candidates"], wanted);
}

#[test]
fn a_service_port_without_routes_is_its_own_backend() {
    let tables = Tables::default();
    let mut query = url("http://cart:81/x");
    query.from = Some(("shop".into(), None));
    let told = ask(&tables, &query);
    assert_eq!(
        (&told["outcome"], told.get("rule")),
        (&json!("forward"), None)
    );
    assert_eq!(told["backends"][0]["endpoints"], json!(["10.1.0.9:8080"]));
    assert_eq!(told["request"]["headers"], json!({"host": "cart:81"}));
    for nothing in ["http://cart.shop:82/", "udp://cart.shop:81"] {
        assert_eq!(ask(&tables, &url(nothing))["outcome"], "no-frontend");
    }
}

#[test]
fn a_requested_listener_that_does_not_get_the_request_is_named() {
    let one = |name, hostname| added(listener(name, 80, Protocol::Http, hostname), vec![]);
    let tables = tables([one("all", None), one("a", Some("a.com"))]);
    let why = |listener: &str, text: &str| {
        let mut query = url(text);
        query.gateway = Some((gateway(), Some(listener.to_owned())));
        let told = ask(&tables, &query);
        told["why"].as_str().expect("text").to_owned()
    };
    assert!(
        why("a", "http://b.com/")
            .ends_with("; listener a on that port does not receive the request")
    );
    assert!(!why("a", "http://a.com/").contains("does not receive the request"));
    assert_eq!(why("b", "http://a.com/"), "there is no usable listener b");
    assert_eq!(why("a", "udp://a.com"), "listener a does not accept udp");
}

#[test]
fn a_listener_that_cannot_serve_rejects_invalid_requests_first() {
    let mut closed = listener("closed", 80, Protocol::Http, None);
    closed.closed = Some("no kind of route is valid".into());
    let tables = tables([added(closed, vec![])]);
    let valid = url("http://h/a//b");
    let (mut strict, mut lower_case) = (valid.clone(), valid.clone());
    strict.paths = PathPolicy::Strict;
    lower_case.method = "get".to_owned();
    let status = |query| ask(&tables, query)["status"].clone();
    assert_eq!(
        [&valid, &strict, &lower_case].map(status),
        [404, 400, 400].map(Value::from)
    );
}

#[test]
fn a_client_that_speaks_another_protocol_than_the_port_is_rejected() {
    let tables = tables([
        added(listener("http", 80, Protocol::Http, None), vec![]),
        added(
            listener("https", 443, Protocol::Https, Some("a.com")),
            vec![],
        ),
        added(listener("other", 81, Protocol::Https, None), vec![]),
    ]);
    let table = [
        ("http://a.com:443/", "respond", json!(400)),
        ("http://b.com:443/", "respond", json!(400)),
        ("tcp://a.com:443", "respond", json!("reset")),
        ("https://a.com:80/", "respond", json!("reset")),
        ("udp://a.com:443", "no-frontend", Value::Null),
        ("http://a.com:82/", "no-frontend", Value::Null),
    ];
    for (text, outcome, status) in table {
        let told = ask(&tables, &url(text));
        assert_eq!(
            (&told["outcome"], &told["status"]),
            (&json!(outcome), &status),
            "{text}"
        );
    }
    let told = ask(&tables, &url("http://a.com:443/"));
    assert_eq!(told["reason"], "this port accepts only TLS");
    assert_eq!(told["frontend"]["section"], "https");
    // A port of a Service takes precedence over one of a Gateway that accepts only TLS.
    let told = ask(&tables, &url("http://cart.shop:81/"));
    assert_eq!(told["frontend"]["kind"], "Service");
}

#[test]
fn headers_for_the_connection_or_for_the_proxy_do_not_reach_the_backend() {
    let tables = with_rules(vec![rule(vec![prefix("/")], "v1")]);
    let sent = [
        ("Connection", "keep-alive, X-Listed, content-type"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "trailers"),
        ("trailer", "x-sum"),
        ("upgrade", "h2c"),
        ("expect", "100-continue"),
        ("x-listed", "1"),
        ("content-type", "text/plain"),
        ("x-other", "1"),
    ];
    let told = ask(&tables, &with(url("http://h/"), &sent));
    let wanted = json!({"host": "h", "content-type": "text/plain", "x-other": "1"});
    assert_eq!(told["request"]["headers"], wanted);
    let websocket = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    let told = ask(&tables, &with(url("http://h/"), &websocket));
    let headers = &told["request"]["headers"];
    assert_eq!(
        (&headers["connection"], &headers["upgrade"]),
        (&json!("upgrade"), &json!("websocket"))
    );
}
