//! Matches, filters and backends of rules.

use std::sync::Arc;

use pointsman_binding::Change;
use pointsman_resources::Kind;
use pointsman_resources::kuma::DataSource;

use crate::{World, fate, query, route};

/// "a subset that no endpoint has; a tcp backend in an HTTP route | 503 for its share; 500 for its share", and what can't be resolved.
#[test]
fn backends_that_cannot_be_used_answer_for_their_share() {
    let world = World::with(&route(
        "r",
        "{kind: Mesh}",
        "[{matches: [{path: {prefix: /}}], default: {backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v9}}, {kind: MeshService, name: db}, {kind: MeshService, name: nobody}, {kind: MeshService, name: backend}]}}]",
    ));
    let found = world.from("web-1", "http://127.0.0.1:10001/");
    assert_eq!(
        fate(&found),
        "backend[version=v9] 25 (503), db 25 (500), nobody 25 (500), backend 25"
    );
    let said = world.conditions(Kind::MeshHTTPRoute, "r");
    assert!(
        said.iter()
            .any(|c| c.starts_with("ResolvedRefs=false/BackendNotFound")
                && c.contains("kuma.io/service: nobody")),
        "{said:?}"
    );
}

/// MADR 011, "Request modification".
#[test]
fn filters_change_requests_and_responses() {
    let world = World::with(&route(
        "r",
        "{kind: Mesh}",
        r#"
      [{matches: [{path: {prefix: /headers}}], default: {filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: new}], add: [{name: b, value: two}], remove: [c]}}, {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: d, value: e}]}}]}},
       {matches: [{path: {prefix: /mirror}}], default: {filters: [{type: RequestMirror, requestMirror: {percentage: '12.5', backendRef: {kind: MeshServiceSubset, name: backend, tags: {version: v2}}}}]}},
       {matches: [{path: {prefix: /redirect}}], default: {filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: example.org, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}, port: 444, statusCode: 307}}]}},
       {matches: [{path: {prefix: /one}}, {path: {prefix: /two}}], default: {filters: [{type: URLRewrite, urlRewrite: {hostname: inner.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /x}}}]}}]"#,
    ));
    let mut asked = query("web-1", "http://127.0.0.1:10001/headers");
    asked.headers = [("a", "old"), ("b", "one"), ("c", "gone")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .to_vec();
    let found = world.ask(&asked);
    let headers = &found.request.as_ref().expect("a request").headers;
    assert_eq!(
        (&*headers["a"], &*headers["b"], headers.get("c")),
        ("new", "one,two", None)
    );
    assert_eq!(found.response.expect("a response").headers["d"], "e");
    let mirror = &world.from("web-1", "http://127.0.0.1:10001/mirror").mirrors[0];
    assert_eq!(
        (&*mirror.name, mirror.share, &mirror.reason),
        ("backend", 0.125, &None)
    );
    assert_eq!(mirror.tags["version"], "v2");
    let redirect = world
        .from("web-1", "http://127.0.0.1:10001/redirect/a")
        .response
        .expect("a response");
    assert_eq!(
        (redirect.status, &*redirect.headers["location"]),
        (Some(307), "https://example.org:444/new/a")
    );
    for prefix in ["one", "two"] {
        let found = world.from("web-1", &format!("http://127.0.0.1:10001/{prefix}/a?q"));
        assert_eq!(
            found.request.expect("a request").url,
            "http://inner.example/x/a?q"
        );
    }
}

/// MADR 011: "the response by directly returning one".
#[test]
fn a_rule_may_answer_itself() {
    let rule = |path: &str, body: &str| {
        format!(
            "{{matches: [{{path: {{prefix: {path}}}}}], default: {{filters: [{{type: DirectResponse, directResponse: {{status: 418, body: {body}}}}}, {{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-tea, value: pot}}]}}}}]}}}}"
        )
    };
    let rules = format!(
        "[{}, {}, {}, {}]",
        rule("/text", "{inlineString: short and stout}"),
        rule("/bytes", "{inlineBytes: aGFuZGxl}"),
        rule("/file", "{filename: /etc/tea}"),
        rule("/env", "{environmentVariable: TEA}")
    );
    let mut world = World::with(&route("r", "{kind: Mesh}", &rules));
    let body = |world: &World, path: &str| {
        let found = world.from("web-1", &format!("http://127.0.0.1:10001{path}"));
        let body = found
            .response
            .as_ref()
            .and_then(|response| response.body.clone());
        (fate(&found), body)
    };
    let teapot = |text: &str| ("418".to_owned(), Some(text.to_owned()));
    assert_eq!(body(&world, "/text"), teapot("short and stout"));
    assert_eq!(body(&world, "/bytes"), teapot("handle"));
    // "a missing file or variable is an error in status and a 500"
    assert_eq!(body(&world, "/file"), ("500".to_owned(), None));
    assert_eq!(body(&world, "/env"), ("500".to_owned(), None));
    let said = world.conditions(Kind::MeshHTTPRoute, "r");
    let told = said.iter().any(|c| {
        c.starts_with("PartiallyInvalid=true")
            && c.contains("spec.to[0].rules[2]: file `/etc/tea`")
            && c.contains("environment variable `TEA`")
    });
    assert!(told, "{said:?}");
    let read = |text: &str| Some(Ok(Arc::from(text.as_bytes())));
    world.apply([
        Change::Content(DataSource::Filename("/etc/tea".to_owned()), read("spout")),
        Change::Content(
            DataSource::EnvironmentVariable("TEA".to_owned()),
            read("pour"),
        ),
    ]);
    assert_eq!(body(&world, "/file"), teapot("spout"));
    assert_eq!(body(&world, "/env"), teapot("pour"));
    assert_eq!(world.conditions(Kind::MeshHTTPRoute, "r").len(), 2);
    let found = world.from("web-1", "http://127.0.0.1:10001/text");
    assert_eq!(found.response.expect("a response").headers["x-tea"], "pot");
}

/// MADR 011, "Matching": "`match` is an OR'd list of AND'd conditions", over headers, path, method and query parameters.
#[test]
fn all_conditions_of_a_match_and_any_match_of_a_rule() {
    let world = World::with(&route(
        "r",
        "{kind: Mesh}",
        "[{matches: [{method: POST, path: {type: RegularExpression, value: '/a+'}, headers: [{type: Prefix, name: x, value: v}, {type: Absent, name: z}], queryParams: [{type: RegularExpression, name: q, value: '[0-9]+'}]}, {path: {type: Exact, value: /exact}}], default: {}}]",
    ));
    let ask = |method: &str, url: &str, headers: &[(&str, &str)]| {
        let mut asked = query("web-1", &format!("http://127.0.0.1:10001{url}"));
        asked.method = method.to_owned();
        asked.headers = headers
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        fate(&world.ask(&asked)) == "backend 100"
    };
    let cases = [
        ("POST", "/aa?q=12", vec![("x", "v1")], true),
        ("GET", "/aa?q=12", vec![("x", "v1")], false),
        ("POST", "/ab?q=12", vec![("x", "v1")], false),
        ("POST", "/aa?q=x", vec![("x", "v1")], false),
        ("POST", "/aa?q=12", vec![("x", "w")], false),
        ("POST", "/aa?q=12", vec![("x", "v1"), ("z", "1")], false),
        ("GET", "/exact", vec![], true),
    ];
    for (method, url, headers, wanted) in cases {
        assert_eq!(
            ask(method, url, &headers),
            wanted,
            "{method} {url} {headers:?}"
        );
    }
}

/// "`port` or `sectionName` on MeshService => real MeshService resource"; MeshMultiZoneServices are made of MeshServices.
#[test]
fn backends_may_be_resources() {
    let more = r#"
{type: MeshService, mesh: default, name: by-tags, labels: {app: all}, spec: {selector: {dataplaneTags: {kuma.io/service: backend, version: v2}}, ports: [{name: web, port: 80, targetPort: 3001, appProtocol: http}]}}
---
{type: MeshService, mesh: default, name: by-name, labels: {app: all}, spec: {selector: {dataplaneRef: {name: backend-v1}}, ports: [{port: 80, targetPort: 3001, appProtocol: http}]}}
---
{type: MeshMultiZoneService, mesh: default, name: all, spec: {selector: {meshService: {matchLabels: {app: all}}}, ports: [{port: 80, appProtocol: http}]}}
"#;
    let cases = [
        (
            "{kind: MeshService, name: by-tags, port: 80}",
            Some(vec!["10.0.1.2:3001"]),
        ),
        (
            "{kind: MeshService, name: by-tags, sectionName: web}",
            Some(vec!["10.0.1.2:3001"]),
        ),
        (
            "{kind: MeshService, name: by-name, sectionName: '80'}",
            Some(vec!["10.0.1.1:3001"]),
        ),
        (
            "{kind: MeshService, labels: {kuma.io/display-name: by-name}, port: 80}",
            Some(vec!["10.0.1.1:3001"]),
        ),
        (
            "{kind: MeshMultiZoneService, name: all, port: 80}",
            Some(vec!["10.0.1.1:3001", "10.0.1.2:3001"]),
        ),
        // "a number does not resolve when the port has a name"
        (
            "{kind: MeshService, name: by-tags, sectionName: '80'}",
            None,
        ),
        ("{kind: MeshService, name: by-tags, port: 81}", None),
    ];
    for (reference, wanted) in cases {
        let rules = format!(
            "[{{matches: [{{path: {{prefix: /}}}}], default: {{backendRefs: [{reference}]}}}}]"
        );
        let world = World::with(&format!("{more}{}", route("r", "{kind: Mesh}", &rules)));
        let found = world.from("web-1", "http://127.0.0.1:10001/");
        match wanted {
            Some(wanted) => assert_eq!(found.backends[0].endpoints, wanted, "{reference}"),
            None => assert!(fate(&found).ends_with("(500)"), "{reference}"),
        }
    }
}

/// TLS settings of external services: server name, trust anchors, or the reason why they are invalid.
#[test]
fn an_external_service_may_use_tls() {
    let external = |verification: &str| {
        let service = format!(
            "{{type: MeshExternalService, mesh: default, name: out, spec: {{match: {{type: HostnameGenerator, port: 443, protocol: http}}, endpoints: [{{address: out.example, port: 443}}], tls: {{enabled: true, verification: {verification}}}}}}}"
        );
        let rules = "[{matches: [{path: {prefix: /}}], default: {backendRefs: [{kind: MeshExternalService, name: out}]}}]";
        let world = World::with(&format!("{service}{}", route("r", "{kind: Mesh}", rules)));
        let backend = world.tables.backends().find(|b| b.tls.is_some()).cloned();
        backend.expect("a backend").tls.clone().expect("TLS")
    };
    let plain = external("{}").expect("TLS");
    assert_eq!(&*plain.hostname, "out.example");
    let named =
        external("{serverName: inner.example, subjectAltNames: [{type: Exact, value: a.example}]}")
            .expect("TLS");
    assert_eq!((&*named.hostname, named.names.len()), ("inner.example", 1));
    let broken = external("{caCert: {inlineString: nonsense}}").expect_err("no PEM");
    assert!(
        broken
            .message
            .contains("caCert contains no PEM certificate"),
        "{}",
        broken.message
    );
}

/// "a rule that can't be matched (broken expression) … is dropped: PartiallyInvalid=True. If no rule is left: Accepted=False,
/// `UnsupportedValue`": then traffic flows as if the policy were not there.
#[test]
fn a_policy_of_which_no_rule_is_left_is_not_accepted() {
    let broken = "{matches: [{path: {type: RegularExpression, value: '(a'}}], default: {}}";
    let world = World::with(&route("a", "{kind: Mesh}", &format!("[{broken}]")));
    assert_eq!(
        fate(&world.from("web-1", "http://backend.mesh/")),
        "backend 100"
    );
    let said = world.conditions(Kind::MeshHTTPRoute, "a");
    assert!(
        said[0].starts_with(
            "Accepted=false/UnsupportedValue: spec.to[0].rules[0]: match 0: path `(a`"
        ),
        "{said:?}"
    );
    // Other rules stay in effect.
    let fine = "{matches: [{path: {prefix: /b}}], default: {}}";
    let world = World::with(&route("a", "{kind: Mesh}", &format!("[{broken}, {fine}]")));
    assert_eq!(
        fate(&world.from("web-1", "http://backend.mesh/b")),
        "backend 100"
    );
    assert_eq!(fate(&world.from("web-1", "http://backend.mesh/")), "404");
    let said = world.conditions(Kind::MeshHTTPRoute, "a").join("\n");
    assert!(
        said.contains("Accepted=true") && said.contains("PartiallyInvalid=true"),
        "{said}"
    );
}
