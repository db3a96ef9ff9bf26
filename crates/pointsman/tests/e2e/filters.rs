//! Filters of rules and backendRefs: the request that the backend receives, and the response that the client receives.

use crate::support::backend::{Backend, status};
use crate::support::gateway::Gateway;
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;

/// Starts a Gateway with one route that has one rule for `web`.
async fn gateway_with_rule(backend: &Backend, rule: &str) -> Gateway {
    Gateway::of(&[plain(), service("web", &[backend]), route("web", &[rule])].concat()).await
}

#[tokio::test]
async fn request_header_filters_apply_at_the_rule_then_at_the_backend() {
    let backend = Backend::http1("web").await;
    let rule = "
filters:
- type: RequestHeaderModifier
  requestHeaderModifier:
    set: [{name: X-Set, value: rule}, {name: x-both, value: rule}]
    add: [{name: x-add, value: rule}]
    remove: [X-Gone]
backendRefs:
- name: web
  port: 80
  filters:
  - type: RequestHeaderModifier
    requestHeaderModifier:
      set: [{name: x-both, value: backend}]
      add: [{name: x-add, value: backend}]";
    let gateway = gateway_with_rule(&backend, rule).await;
    let ask = get("/")
        .header("x-set", "client")
        .header("x-add", "client")
        .header("x-gone", "client")
        .header("x-kept", "client");
    assert_eq!(gateway.ask(ask.clone()).await.status, 200);
    assert_eq!(gateway.ask_http2(ask).await.status, 200);
    for saw in backend.saw(2).await {
        assert_eq!(saw.all("x-set"), ["rule"]);
        assert_eq!(saw.all("x-both"), ["backend"]);
        assert_eq!(saw.all("x-add").join(","), "client,rule,backend");
        assert_eq!(saw.header("x-gone"), None);
        assert_eq!(saw.all("x-kept"), ["client"]);
    }
}

/// "Subsequent entries with an equivalent header name MUST be ignored." Several actions on one name are applied in the order set, add, remove.
#[tokio::test]
async fn the_first_of_equivalent_header_names_counts_and_removal_is_last() {
    let backend = Backend::http1("web").await;
    let rule = "
filters:
- type: RequestHeaderModifier
  requestHeaderModifier:
    set: [{name: X-One, value: first}, {name: x-one, value: second}, {name: x-three, value: set}]
    add: [{name: X-Two, value: first}, {name: x-TWO, value: second}, {name: x-three, value: added}, {name: x-four, value: added}]
    remove: [X-FOUR, 'not a token']
backendRefs: [{name: web, port: 80}]";
    let gateway = gateway_with_rule(&backend, rule).await;
    let ask = get("/").header("x-four", "client");
    assert_eq!(gateway.ask(ask).await.status, 200);
    let saw = backend.only().await;
    assert_eq!(saw.all("x-one"), ["first"]);
    assert_eq!(saw.all("x-two"), ["first"]);
    assert_eq!(saw.all("x-three").join(","), "set,added");
    assert_eq!(saw.header("x-four"), None);
}

/// RFC 9112 §3.2: "A client MUST send a Host header field … in all HTTP/1.1 request messages", and exactly one; framing is specific to each connection.
#[tokio::test]
async fn no_filter_removes_or_duplicates_the_host_or_changes_framing() {
    let backend = Backend::http1("web").await;
    let removes = "remove: [Host], set: [{name: Content-Length, value: '1'}]";
    let adds =
        "add: [{name: host, value: other.example}, {name: Transfer-Encoding, value: chunked}]";
    for (number, (change, host)) in [(removes, "example.com"), (adds, "other.example")]
        .into_iter()
        .enumerate()
    {
        let filter =
            format!("{{type: RequestHeaderModifier, requestHeaderModifier: {{{change}}}}}");
        let gateway = gateway_with_rule(&backend, &filtered(&filter, "web")).await;
        assert_eq!(gateway.ask(post("/", "abc")).await.status, 200, "{change}");
        let saw = backend.saw(number + 1).await.remove(number);
        assert_eq!(saw.all("host"), [host]);
        assert_eq!(
            (saw.text().as_str(), saw.all("content-length")),
            ("abc", vec!["3"])
        );
        assert_eq!(saw.header("transfer-encoding"), None);
    }
    let redirects = "{filters: [{type: RequestRedirect, requestRedirect: {hostname: other.example}}, \
        {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: Content-Length, value: '9'}]}}]}";
    let gateway = gateway_with_rule(&backend, redirects).await;
    let response = gateway.ask(get("/")).await;
    assert_eq!(
        (response.status, response.all("content-length")),
        (302, vec!["0"])
    );
}

#[tokio::test]
async fn response_header_filters_apply_at_the_rule_and_at_the_backend() {
    let backend = Backend::http1_with("web", |_| {
        status(200)
            .header("x-set", "server")
            .header("x-add", "server")
            .header("x-gone", "server")
    })
    .await;
    let rule = "
filters:
- type: ResponseHeaderModifier
  responseHeaderModifier:
    set: [{name: x-set, value: rule}]
    add: [{name: x-add, value: rule}]
    remove: [x-gone]
backendRefs:
- name: web
  port: 80
  filters:
  - type: ResponseHeaderModifier
    responseHeaderModifier:
      add: [{name: x-backend-filter, value: 'yes'}]";
    let gateway = gateway_with_rule(&backend, rule).await;
    for response in [
        gateway.ask(get("/")).await,
        gateway.ask_http2(get("/")).await,
    ] {
        assert_eq!(response.all("x-set"), ["rule"]);
        assert_eq!(response.all("x-add").join(","), "server,rule");
        assert_eq!(response.header("x-gone"), None);
        assert_eq!(response.header("x-backend-filter"), Some("yes"));
    }
}

#[tokio::test]
async fn the_clients_connection_header_does_not_remove_headers_set_by_filters() {
    let backend = Backend::http1("web").await;
    let rule = filtered(
        "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-tenant, value: ours}]}}",
        "web",
    );
    let gateway = gateway_with_rule(&backend, &rule).await;
    let ask = get("/")
        .header("Connection", "x-tenant, x-other")
        .header("x-tenant", "theirs")
        .header("x-other", "theirs");
    assert_eq!(gateway.ask(ask).await.status, 200);
    let saw = backend.only().await;
    assert_eq!(saw.all("x-tenant"), ["ours"]);
    assert_eq!(saw.header("x-other"), None);
}

#[tokio::test]
async fn redirects_need_no_backend() {
    let backend = Backend::http1("web").await;
    let redirect = |at: &str, fields: &str| {
        format!(
            "{{matches: [{{path: {{value: {at}}}}}], filters: [{{type: RequestRedirect, requestRedirect: {{{fields}}}}}]}}"
        )
    };
    let rules = [
        redirect("/host", "hostname: example.org"),
        redirect("/scheme", "scheme: https"),
        redirect("/port", "port: 8081, statusCode: 301"),
        redirect(
            "/full",
            "path: {type: ReplaceFullPath, replaceFullPath: /new}, statusCode: 308",
        ),
        redirect(
            "/prefix",
            "path: {type: ReplacePrefixMatch, replacePrefixMatch: /to}, statusCode: 307",
        ),
        to("web"),
    ];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let gateway =
        Gateway::of(&[plain(), service("web", &[&backend]), route("web", &rules)].concat()).await;
    for (target, code, location) in [
        ("/host/a?b=c", 302, "http://example.org:8080/host/a?b=c"),
        ("/scheme", 302, "https://example.com/scheme"),
        ("/port", 301, "http://example.com:8081/port"),
        ("/full/a?b", 308, "http://example.com:8080/new?b"),
        ("/prefix/a/b?c", 307, "http://example.com:8080/to/a/b?c"),
    ] {
        for response in [
            gateway.ask(get(target)).await,
            gateway.ask_http2(get(target)).await,
        ] {
            assert_eq!(response.status, code, "{target}");
            assert_eq!(response.header("location"), Some(location), "{target}");
        }
    }
    assert_eq!(backend.count(), 0);
}

#[tokio::test]
async fn redirects_respect_the_port_offset() {
    let redirect = |fields: &str| {
        format!("{{filters: [{{type: RequestRedirect, requestRedirect: {{{fields}}}}}]}}")
    };
    for (fields, expected) in [
        (
            "path: {type: ReplaceFullPath, replaceFullPath: /new}",
            "http://example.com:9080/new",
        ),
        ("scheme: https", "https://example.com:1443/"),
        // The offset does not apply to ports of another host.
        (
            "scheme: https, hostname: other.example",
            "https://other.example/",
        ),
    ] {
        let manifests = plain() + &route("web", &[&redirect(fields)]);
        let setup = Gateway::setup(&manifests).argument("--port-offset", "1000");
        let gateway = setup.start().await;
        let response = Http1::connect(gateway.at(9080)).await.ask(&get("/")).await;
        assert_eq!(response.header("location"), Some(expected));
    }
}

#[tokio::test]
async fn hosts_and_paths_are_rewritten_and_the_query_is_kept() {
    let backend = Backend::http1("web").await;
    let rewrite = |at: &str, fields: &str| {
        format!(
            "{{matches: [{{path: {{value: {at}}}}}], filters: [{{type: URLRewrite, urlRewrite: {{{fields}}}}}], backendRefs: [{{name: web, port: 80}}]}}"
        )
    };
    let rules = [
        rewrite("/host", "hostname: inner.example"),
        rewrite(
            "/full",
            "path: {type: ReplaceFullPath, replaceFullPath: /new}",
        ),
        rewrite(
            "/prefix",
            "path: {type: ReplacePrefixMatch, replacePrefixMatch: /to}",
        ),
        rewrite(
            "/strip",
            "path: {type: ReplacePrefixMatch, replacePrefixMatch: /}",
        ),
    ];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let gateway =
        Gateway::of(&[plain(), service("web", &[&backend]), route("web", &rules)].concat()).await;
    let table = [
        ("/host/a?b", "inner.example", "/host/a?b"),
        ("/full/a?b=c", "example.com", "/new?b=c"),
        ("/prefix/a", "example.com", "/to/a"),
        ("/prefix", "example.com", "/to"),
        ("/strip/a?b", "example.com", "/a?b"),
        ("/strip", "example.com", "/"),
    ];
    for (number, (target, host, forwarded)) in table.into_iter().enumerate() {
        assert_eq!(gateway.ask(get(target)).await.status, 200, "{target}");
        let saw = backend.saw(number + 1).await.remove(number);
        assert_eq!(
            (saw.host.as_str(), saw.target.as_str()),
            (host, forwarded),
            "{target}"
        );
        assert_eq!(saw.all("host"), [host], "{target}");
        assert_eq!(
            saw.header("x-forwarded-host"),
            Some("example.com"),
            "{target}"
        );
    }
}

#[tokio::test]
async fn a_rewrite_at_a_backend_affects_only_that_backend() {
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    let rule = "
backendRefs:
- name: one
  port: 80
  filters: [{type: URLRewrite, urlRewrite: {hostname: one.inner}}]
- {name: two, port: 80}";
    let manifests = [
        plain(),
        service("one", &[&one]),
        service("two", &[&two]),
        route("web", &[rule]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    gateway.ask(get("/")).await;
    gateway.ask(get("/")).await;
    assert_eq!(one.only().await.host, "one.inner");
    assert_eq!(two.only().await.host, "example.com");
}

#[tokio::test]
async fn mirrors_receive_the_request_with_its_body_and_never_affect_the_client() {
    let web = Backend::http1("web").await;
    let (first, second) = (
        Backend::http1_with("first", |_| status(500)).await,
        Backend::http1("second").await,
    );
    let mirror = |name: &str| {
        format!(
            "{{type: RequestMirror, requestMirror: {{backendRef: {{name: {name}, port: 80}}}}}}"
        )
    };
    let rule = filtered(&format!("{}, {}", mirror("first"), mirror("second")), "web");
    let manifests = [
        plain(),
        service("web", &[&web]),
        service("first", &[&first]),
        service("second", &[&second]),
        route("web", &[&rule]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let body = "x".repeat(20_000);
    let response = gateway
        .ask(post("/a?b", body.clone()).header("x-kept", "1"))
        .await;
    assert_eq!((response.status, response.backend()), (200, Some("web")));
    for backend in [&web, &first, &second] {
        let saw = backend.only().await;
        assert_eq!(
            (saw.method.as_str(), saw.target.as_str()),
            ("POST", "/a?b"),
            "{}",
            backend.name
        );
        assert_eq!(saw.header("x-kept"), Some("1"), "{}", backend.name);
        assert_eq!(saw.text(), body, "{}", backend.name);
    }
}

#[tokio::test]
async fn a_mirror_receives_its_percentage_or_fraction_of_the_requests() {
    let web = Backend::http1("web").await;
    let (none, all, half) = (
        Backend::http1("none").await,
        Backend::http1("all").await,
        Backend::http1("half").await,
    );
    let mirror = |name: &str, share: &str| {
        format!(
            "{{type: RequestMirror, requestMirror: {{backendRef: {{name: {name}, port: 80}}, {share}}}}}"
        )
    };
    let rule = filtered(
        &[
            mirror("none", "percent: 0"),
            mirror("all", "percent: 100"),
            mirror("half", "fraction: {numerator: 1, denominator: 2}"),
        ]
        .join(", "),
        "web",
    );
    let manifests = [
        plain(),
        service("web", &[&web]),
        service("none", &[&none]),
        service("all", &[&all]),
        service("half", &[&half]),
        route("web", &[&rule]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for _ in 0..100 {
        assert_eq!(gateway.ask(get("/")).await.status, 200);
    }
    all.saw(100).await;
    half.saw(1).await;
    assert!(half.count() < 100, "{}", half.count());
    assert_eq!(none.count(), 0);
}

#[tokio::test]
async fn cors_preflights_are_answered_and_responses_carry_the_origin() {
    let web = Backend::http1("web").await;
    let rule = filtered(
        "{type: CORS, cors: {allowOrigins: ['https://shop.example'], allowMethods: [GET, PUT], allowHeaders: [x-token], exposeHeaders: [x-backend], allowCredentials: true, maxAge: 600}}",
        "web",
    );
    let gateway = gateway_with_rule(&web, &rule).await;
    let preflight = |origin: &str| {
        ask("OPTIONS", "/")
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "PUT")
            .header("Access-Control-Request-Headers", "x-token")
    };
    let response = gateway.ask(preflight("https://shop.example")).await;
    assert!(matches!(response.status, 200 | 204), "{response:?}");
    assert_eq!(
        response.header("access-control-allow-origin"),
        Some("https://shop.example")
    );
    assert_eq!(
        response.header("access-control-allow-methods"),
        Some("GET, PUT")
    );
    assert_eq!(
        response.header("access-control-allow-headers"),
        Some("x-token")
    );
    assert_eq!(
        response.header("access-control-allow-credentials"),
        Some("true")
    );
    assert_eq!(response.header("access-control-max-age"), Some("600"));
    let response = gateway.ask(preflight("https://evil.example")).await;
    assert_eq!(response.header("access-control-allow-origin"), None);
    assert_eq!(web.count(), 0, "no preflight reached the backend");

    let response = gateway
        .ask(get("/").header("Origin", "https://shop.example"))
        .await;
    assert_eq!(response.backend(), Some("web"));
    assert_eq!(
        response.all("access-control-allow-origin"),
        ["https://shop.example"]
    );
    assert_eq!(
        response.header("access-control-expose-headers"),
        Some("x-backend")
    );
    let response = gateway
        .ask(get("/").header("Origin", "https://evil.example"))
        .await;
    assert_eq!(
        (
            response.status,
            response.header("access-control-allow-origin")
        ),
        (200, None)
    );
}
