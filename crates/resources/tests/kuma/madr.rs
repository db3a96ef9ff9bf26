//! Tests with the examples of MADR 011 and MADR 045, unchanged except for `apiVersion` and `kind`, which MADR 011 omits.

use pointsman_resources::Kind;
use pointsman_resources::kuma::{
    DataSource, DirectResponse, Filter, HeaderTest, KubernetesService, Match, RuleConf, TargetKind,
};
use pointsman_resources::route::{
    Fraction, Header, HeaderModifier, MatchType, PathMatch, PathMatchType, PathModifier,
    RequestRedirect,
};

use super::{lines, read, route, routes};

fn prefix(value: &str) -> Vec<Match> {
    let path = PathMatch {
        kind: PathMatchType::PathPrefix,
        value: value.to_owned(),
    };
    vec![Match {
        path: Some(path),
        ..Match::default()
    }]
}

/// Returns a MeshHTTPRoute with a single rule.
fn rule(matched: &str, conf: &str) -> String {
    format!(
        "{{type: MeshHTTPRoute, name: a, spec: {{to: [{{targetRef: {{kind: MeshService, name: b}}, \
         rules: [{{matches: [{matched}], default: {{{conf}}}}}]}}]}}}}"
    )
}

// MADR 011: "This MADR proposes to distribute `default` down into individual `rules`".
#[test]
fn the_policies_of_011s_merging_example_are_read() {
    let both = routes(include_str!("madr/011-merging.yaml"));
    let [owner, consumer] = &both[..] else {
        panic!()
    };
    assert_eq!(owner.spec.target_ref.kind, TargetKind::Mesh);
    let rules = &owner.spec.to[0].rules;
    // The matches of the second rule are not a list.
    assert_eq!(rules[0].matches, prefix("/v1"));
    assert_eq!(rules[1].matches, prefix("/v2"));
    assert_eq!(rules[1].matches, consumer.spec.to[0].rules[0].matches);
    let backends = rules[0].default.backend_refs.as_deref().unwrap();
    assert_eq!(backends[0].target.kind, TargetKind::MeshServiceSubset);
    assert_eq!(backends[0].target.tags["version"], "v1");
    assert_eq!(backends[0].weight, 100);
    assert_eq!(consumer.spec.target_ref.name.as_deref(), Some("frontend"));
    let modifier = HeaderModifier {
        add: vec![Header {
            name: "env".to_owned(),
            value: "dev".to_owned(),
        }],
        ..HeaderModifier::default()
    };
    assert_eq!(
        consumer.spec.to[0].rules[0].default,
        RuleConf {
            filters: Some(vec![Filter::ResponseHeaderModifier(modifier)]),
            backend_refs: None
        }
    );
}

// MADR 011: "each rule needs to be explicitly overriden".
#[test]
fn empty_lists_in_011s_overriding_example_are_preserved() {
    let consumer = route(include_str!("madr/011-overriding.yaml"));
    for rule in &consumer.spec.to[0].rules {
        assert_eq!(rule.default.filters, Some(vec![]));
        assert_eq!(rule.default.backend_refs, Some(vec![]));
    }
}

// MADR 011, "Surprising behavior of top level `default`", shows a rejected alternative.
#[test]
fn a_top_level_default_is_rejected() {
    let input = read(include_str!("madr/011-top-level-default.yaml"));
    assert_eq!(
        lines(&input),
        [
            "error: a.yaml:12:5: spec.to[0].default: not allowed here: set `default` in each item of `rules`",
        ]
    );
    // The results of merging, which the MADR shows without `default`, are not valid documents.
    let input = read(include_str!("madr/011-without-default.yaml"));
    assert_eq!(
        lines(&input),
        [
            "error: a.yaml:14:8: spec.to[0].rules[0].default: must be defined",
            "error: a.yaml:17:8: spec.to[0].rules[0].filters: not allowed here: set this field in the rule's `default`",
            "error: a.yaml:22:8: spec.to[0].rules[0].backendRefs: not allowed here: set this field in the rule's `default`",
        ]
    );
}

// MADR 011, "`MeshGatewayHTTPRoute`": "This new resource attaches directly to a `MeshGateway` via `spec.targetRef`".
#[test]
fn a_mesh_gateway_http_route_has_hostnames_and_rules_at_the_top_level() {
    let text = |wildcard: &str| {
        format!(
            "apiVersion: kuma.io/v1alpha1\nkind: MeshGatewayHTTPRoute\nmetadata: {{name: a}}\nspec:\n targetRef:\n  \
             kind: MeshGateway # leave open potential other selector kinds\n  name: edge-gateway\n hostnames:\n  \
             - example.com\n  - {wildcard}\n rules:\n  - matches:\n     - path:\n        prefix: /v1\n    default:\n     \
             backendRefs:\n      - kind: MeshService\n        name: backend\n"
        )
    };
    let gateway = route(&text("'*.example.net'"));
    assert_eq!(gateway.kind, Kind::MeshGatewayHTTPRoute);
    assert_eq!(gateway.spec.target_ref.kind, TargetKind::MeshGateway);
    let [to] = &gateway.spec.to[..] else { panic!() };
    assert_eq!(to.target_ref.kind, TargetKind::Mesh);
    assert_eq!(to.hostnames, ["example.com", "*.example.net"]);
    assert_eq!(to.rules[0].matches, prefix("/v1"));
    assert_eq!(gateway.rule_field(0, 0), "spec.rules[0]");
    // Without quotes, as in the MADR, the wildcard is not valid YAML.
    let found = lines(&read(&text("*.example.net")));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with("error: a.yaml:10:5: "), "{found:#?}");
}

// MADR 011, "Spec": `type: RegularExpression|Exact|Prefix`, and so on.
#[test]
fn every_match_of_011_is_read() {
    for (kind, read) in [
        ("RegularExpression", PathMatchType::RegularExpression),
        ("Exact", PathMatchType::Exact),
        ("Prefix", PathMatchType::PathPrefix),
        ("PathPrefix", PathMatchType::PathPrefix),
    ] {
        let text = rule(
            &format!("{{method: POST, path: {{type: {kind}, value: /v1}}}}"),
            "",
        );
        let matched = &route(&text).spec.to[0].rules[0].matches[0];
        assert_eq!(matched.path.as_ref().unwrap().kind, read);
        assert_eq!(matched.method.as_deref(), Some("POST"));
    }
    let value = || "v".to_owned();
    // "Headers can be tested for: presence, absence, exact value, prefix value, regex value".
    for (header, read) in [
        ("type: Present", HeaderTest::Present),
        ("type: Absent", HeaderTest::Absent),
        ("type: Exact, value: v", HeaderTest::Exact(value())),
        ("value: v", HeaderTest::Exact(value())),
        ("type: Prefix, value: v", HeaderTest::Prefix(value())),
        ("type: Prefix", HeaderTest::Present),
        (
            "type: RegularExpression, value: v",
            HeaderTest::RegularExpression(value()),
        ),
    ] {
        let text = rule(&format!("{{headers: [{{name: X-A, {header}}}]}}"), "");
        let matched = &route(&text).spec.to[0].rules[0].matches[0];
        assert_eq!(matched.headers[0].test, read, "{header}");
        assert_eq!(matched.headers[0].name, "x-a");
    }
    for (kind, read) in [
        ("RegularExpression", MatchType::RegularExpression),
        ("Exact", MatchType::Exact),
    ] {
        let text = rule(
            &format!("{{queryParams: [{{name: a, type: {kind}, value: b}}]}}"),
            "",
        );
        let matched = &route(&text).spec.to[0].rules[0].matches[0];
        assert_eq!(matched.query_params[0].kind, read);
    }
}

/// Reads the filters of MADR 011's list. Each is in a rule of its own, because some can't be combined.
fn filters() -> Vec<Filter> {
    let text = include_str!("madr/011-filters.yaml");
    let lists = text
        .split("\n- ")
        .map(|filter| filter.trim_start_matches("- "));
    lists
        .map(|filter| {
            let lines: String = filter.lines().map(|line| format!("          {line}\n")).collect();
            let text = format!(
                "type: MeshHTTPRoute\nname: a\nspec:\n  to:\n  - targetRef: {{kind: MeshService, name: b}}\n    rules:\n    \
                 - matches: [{{path: {{prefix: /v1}}}}]\n      default:\n        filters:\n        - {}",
                lines.trim_start()
            );
            let conf = route(&text).spec.to[0].rules[0].default.clone();
            conf.filters.unwrap().remove(0)
        })
        .collect()
}

// MADR 011, "Request modification".
#[test]
fn every_filter_of_011_is_read_without_its_type() {
    let all = filters();
    let header = |name: &str, value: &str| Header {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let modifier = HeaderModifier {
        set: vec![header("a", "b")],
        add: vec![header("c", "d")],
        remove: vec!["name".to_owned()],
    };
    assert_eq!(all[0], Filter::RequestHeaderModifier(modifier.clone()));
    assert_eq!(all[1], Filter::ResponseHeaderModifier(modifier));
    let Filter::RequestMirror(mirror) = &all[2] else {
        panic!()
    };
    assert_eq!(
        mirror.backend_ref.target.name.as_deref(),
        Some("backend-mirror")
    );
    let whole = Fraction {
        numerator: 100,
        denominator: 100,
    };
    assert_eq!(mirror.percentage, whole);
    let full = |path: &str| PathModifier {
        kind: "ReplaceFullPath".to_owned(),
        replace_full_path: Some(path.to_owned()),
        replace_prefix_match: None,
    };
    let redirect = |path| RequestRedirect {
        scheme: None,
        hostname: None,
        path,
        port: None,
        status_code: 302,
    };
    let moved = RequestRedirect {
        scheme: Some("https".to_owned()),
        hostname: Some("example.com".to_owned()),
        port: Some(8443),
        status_code: 301,
        ..redirect(Some(full("/new")))
    };
    assert_eq!(all[3], Filter::RequestRedirect(moved));
    assert_eq!(all[4], Filter::RequestRedirect(redirect(None)));
    let Filter::URLRewrite(rewrite) = &all[5] else {
        panic!()
    };
    assert_eq!(rewrite.path, Some(full("/new")));
    let Filter::URLRewrite(rewrite) = &all[6] else {
        panic!()
    };
    assert_eq!(rewrite.path.as_ref().unwrap().kind, "ReplacePrefixMatch");
    let response = |status, body| Filter::DirectResponse(DirectResponse { status, body });
    let text = str::to_owned;
    assert_eq!(
        all[7..],
        [
            response(200, Some(DataSource::InlineBytes(text("aGVsbG8=")))),
            response(200, Some(DataSource::InlineString(text("hello")))),
            response(200, Some(DataSource::Filename(text("/etc/hello")))),
            response(200, Some(DataSource::EnvironmentVariable(text("HELLO")))),
            response(204, None),
        ]
    );
}

// MADR 011, "Routing": the 90/10 example.
#[test]
fn the_backends_of_011s_split_are_read() {
    let backends = "backendRefs: [{weight: 90, kind: MeshServiceSubset, name: backend, tags: {version: v2}}, \
                    {weight: 10, kind: MeshServiceSubset, name: backend, tags: {version: v2}}]";
    let conf = &route(&rule("{method: GET}", backends)).spec.to[0].rules[0].default;
    let weights = conf.backend_refs.as_deref().unwrap().iter();
    assert_eq!(
        weights.map(|backend| backend.weight).collect::<Vec<_>>(),
        [90, 10]
    );
}

// MADR 011, "`MeshGateway` as `to.targetRef`", is a rejected alternative.
#[test]
fn the_target_kinds_of_rejected_alternatives_are_not_supported() {
    let text = "{type: MeshHTTPRoute, name: a, spec: {targetRef: {kind: Any}, to: [{targetRef: {kind: MeshGateway, name: edge}, rules: []}]}}";
    assert_eq!(
        lines(&read(text)),
        [
            "error: a.yaml:1:57: spec.targetRef.kind: value 'Any' is not supported",
            "error: a.yaml:1:87: spec.to[0].targetRef.kind: value 'MeshGateway' is not supported",
        ]
    );
}

// MADR 045, "`MeshHTTPRoute` example" and "`MeshTCPRoute` example".
#[test]
fn the_routes_of_045_are_read() {
    let http = route(include_str!("madr/045-http.yaml"));
    assert_eq!(http.kind, Kind::MeshHTTPRoute);
    assert_eq!(http.spec.to[0].hostnames, ["example.com"]);
    assert_eq!(http.spec.to[0].target_ref.kind, TargetKind::Mesh);
    let tcp = route(include_str!("madr/045-tcp.yaml"));
    assert_eq!(tcp.kind, Kind::MeshTCPRoute);
    let rule = &tcp.spec.to[0].rules[0];
    assert_eq!(rule.matches, []);
    let backends = rule.default.backend_refs.as_deref().unwrap();
    assert_eq!(backends[1].target.tags["version"], "2.0");
    let name = backends[1].target.name.as_deref().unwrap();
    let service = KubernetesService::parse(name).unwrap();
    assert_eq!((service.name, service.namespace), ("backend", "kuma-demo"));
}

// MADR 045, "Merging example", both of them: they differ in one line of hostnames.
#[test]
fn the_routes_of_045s_merging_examples_are_read() {
    let written = include_str!("madr/045-merging.yaml");
    // An unquoted `*` starts an alias.
    assert_eq!(
        lines(&read(written)),
        [
            "error: a.yaml:39:7: while parsing node, found unknown anchor; enclose values that begin with `*` in quotes"
        ]
    );
    let quoted = written.replace("*.example.com", "'*.example.com'");
    let second = routes(&quoted);
    assert_eq!(
        second[1].spec.to[0].hostnames,
        ["test.example.com", "*.example.com"]
    );
    let first = routes(&quoted.replace("    - test.example.com\n    - '", "    - '"));
    assert_eq!(first[1].spec.to[0].hostnames, ["*.example.com"]);
    assert_eq!(first[0].spec.to[0].hostnames, ["test.example.com"]);
}
