//! Requests that origin servers read differently from Pointsman: trailers, header names with underscores, methods in another case, ambiguous paths.

use bytes::Bytes;

use crate::agree::encoded;
use crate::support::backend::{Backend, RecordedRequest, status};
use crate::support::gateway::{Gateway, HTTP};
use crate::support::http1::Http1;
use crate::support::http2::{Http2, finish};
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::within;

/// Filters that set, add and remove headers at the rule, and set one at the backend; `more` are further filters of the rule.
fn edits(more: &str) -> String {
    format!(
        "
filters:
- type: RequestHeaderModifier
  requestHeaderModifier:
    set: [{{name: X-Set, value: rule}}]
    add: [{{name: X-Add, value: rule}}]
    remove: [X-Gone]{more}
backendRefs:
- name: web
  port: 80
  filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: X-Own, value: backend}}]}}}}]"
    )
}

fn manifests(protocol: &str, backend: &Backend, rule: &str) -> String {
    let service = service_as("web", protocol, &[backend]);
    [plain(), service, route("web", &[rule])].concat()
}

/// Sends a request with trailers over either version.
async fn send_trailers(gateway: &Gateway, http2: bool, trailers: &[(&str, &str)]) -> Response {
    if http2 {
        let client = Http2::connect(gateway.at(HTTP)).await;
        let (response, mut body) = client.open(&ask("POST", "/")).await;
        body.send_data(Bytes::from_static(b"body"), false)
            .expect("sent");
        let own = |(name, value): &(&str, &str)| (name.to_ascii_lowercase(), (*value).to_owned());
        let trailers: Fields = trailers.iter().map(own).collect();
        body.send_trailers(to_map(&trailers)).expect("sent");
        return within("a response", finish(response))
            .await
            .expect("a response");
    }
    let mut client = Http1::connect(gateway.at(HTTP)).await;
    let lines: String = trailers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    client
        .send(format!("{head}4\r\nbody\r\n0\r\n{lines}\r\n"))
        .await;
    client.response().await
}

/// RFC 9112 §7.1.2: "A recipient that removes the chunked coding from a message MAY selectively retain or discard the received trailer fields." Some origins
/// merge them into headers, or take them for the next request.
#[tokio::test]
async fn no_trailer_of_a_request_reaches_a_backend_or_a_mirror_over_http1() {
    let (web, copy) = (Backend::http1("web").await, Backend::http1("copy").await);
    let mirror = "{type: RequestMirror, requestMirror: {backendRef: {name: copy, port: 80}}}";
    let rule = filtered(mirror, "web");
    let manifests = manifests("http", &web, &rule) + &service("copy", &[&copy]);
    let gateway = Gateway::of(&manifests).await;
    for http2 in [false, true] {
        let response = send_trailers(&gateway, http2, &[("X-Sum", "7"), ("X-User", "admin")]).await;
        assert_eq!(response.status, 200);
    }
    for backend in [&web, &copy] {
        for saw in backend.saw(2).await {
            assert_eq!(saw.text(), "body");
            assert_eq!(saw.trailers, Fields::new(), "{}", backend.name);
            assert_eq!(saw.header("x-user"), None);
        }
    }
}

/// RFC 9110 §6.5.1: "Many fields cannot be processed outside the header section because their evaluation is necessary prior to receiving the content".
#[tokio::test]
async fn no_trailer_with_the_name_of_a_header_that_affects_processing_is_forwarded_over_http2() {
    let web = Backend::http2_with("web", |_| status(200)).await;
    let copy = Backend::http2_with("copy", |_| status(200)).await;
    let mirror = "\n- {type: RequestMirror, requestMirror: {backendRef: {name: copy, port: 80}}}";
    let h2c = "kubernetes.io/h2c";
    let manifests = manifests(h2c, &web, &edits(mirror)) + &service_as("copy", h2c, &[&copy]);
    let gateway = Gateway::of(&manifests).await;
    let trailers = [
        ("X-Sum", "7"),
        ("x_other", "8"),
        ("X-Set", "client"),
        ("x_set", "client"),
        ("x_add", "client"),
        ("X-Gone", "client"),
        ("x-own", "client"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("x_forwarded_proto", "https"),
        ("x-forwarded-client-cert", "client"),
        ("x-request-id", "client"),
        ("Content-Type", "client"),
        ("content_length", "9"),
        ("authorization", "client"),
        ("if-match", "client"),
    ];
    for http2 in [false, true] {
        let response = send_trailers(&gateway, http2, &trailers).await;
        assert_eq!(response.status, 200);
    }
    for backend in [&web, &copy] {
        for saw in backend.saw(2).await {
            let mut names: Vec<&str> = saw.trailers.iter().map(|(name, _)| &**name).collect();
            names.sort_unstable();
            assert_eq!(names, ["x-sum", "x_other"], "{}", backend.name);
            assert_eq!(saw.all("x-set"), ["rule"]);
            assert_eq!(saw.all("x-forwarded-for"), ["127.0.0.1"]);
        }
    }
}

/// Sends a request with headers that have underscores over both versions, and returns what the backend saw.
async fn underscored(gateway: &Gateway, backend: &Backend) -> Vec<RecordedRequest> {
    let ask = [
        "X_Forwarded_For",
        "x_forwarded-proto",
        "X-Forwarded_Host",
        "x_request_id",
        "Transfer_Encoding",
        "content_length",
        "Keep_Alive",
        "X_Set",
        "x_gone",
        "x_own",
        "X_Add",
        "X_Other",
    ]
    .into_iter()
    .fold(get("/"), |ask, name| ask.header(name, "client"));
    assert_eq!(gateway.ask(ask.clone()).await.status, 200);
    assert_eq!(gateway.ask_http2(ask).await.status, 200);
    backend.saw(2).await
}

/// RFC 3875 §4.1.18: "The HTTP header field name is converted to upper case, has all occurrences of "-" replaced with "_" and has "HTTP_" prepended": `X_User`
/// and `X-User` are the same to CGI.
#[tokio::test]
async fn a_name_with_underscores_never_passes_for_a_header_that_is_set_removed_or_frames() {
    let kept = |saw: &RecordedRequest| -> Vec<String> {
        let names = saw
            .headers
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase());
        let mut names: Vec<String> = names.filter(|name| name.contains('_')).collect();
        names.sort_unstable();
        names
    };
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests("http", &backend, &edits(""))).await;
    for saw in underscored(&gateway, &backend).await {
        assert_eq!(kept(&saw), ["x_add", "x_other"]);
        assert_eq!(saw.all("x-set"), ["rule"]);
        assert_eq!(saw.all("x-own"), ["backend"]);
        assert_eq!(saw.all("x-forwarded-for"), ["127.0.0.1"]);
    }
    // Without filters only Pointsman's own names and framing are protected.
    let backend = Backend::http2_with("web", |_| status(200)).await;
    let gateway = Gateway::of(&manifests("kubernetes.io/h2c", &backend, &to("web"))).await;
    for saw in underscored(&gateway, &backend).await {
        let expected = ["x_add", "x_gone", "x_other", "x_own", "x_set"];
        assert_eq!(kept(&saw), expected);
    }
}

/// RFC 9110 §9.1: "The method token is case-sensitive". Some origins respond to `head` without a body, or execute `delete`, which no rule for DELETE has
/// matched.
#[tokio::test]
async fn a_registered_method_in_another_case_is_400() {
    let (web, guarded) = (Backend::http1("web").await, Backend::http1("guarded").await);
    let guard = matching("{method: DELETE}", "guarded");
    let manifests = [
        plain(),
        service("web", &[&web]),
        service("guarded", &[&guarded]),
        route("web", &[&guard, &to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for method in ["delete", "hEAD", "Get", "patch", "propfind", "connect"] {
        let mut client = Http1::connect(gateway.at(HTTP)).await;
        let response = client.ask(&ask(method, "/")).await;
        assert_eq!(
            (response.status, response.reason()),
            (400, Some("MethodCase")),
            "{method}"
        );
        client.ended().await;
        let response = gateway.ask_http2(ask(method, "/")).await;
        assert_eq!(response.status, 400, "{method} over HTTP/2");
    }
    assert_eq!(web.count() + guarded.count(), 0);
    for (number, method) in ["purge", "Link2", "GET"].into_iter().enumerate() {
        assert_eq!(gateway.ask(ask(method, "/")).await.status, 200);
        assert_eq!(web.saw(number + 1).await[number].method, method);
    }
    assert_eq!(
        gateway.ask(ask("DELETE", "/")).await.backend(),
        Some("guarded")
    );
}

const AMBIGUOUS: [&str; 8] = [
    "/a%2Fb",
    "/a%2fb",
    "/a%5Cb",
    "//a",
    "/a//../b",
    "/a/..;/b",
    "/a;x=1",
    "/a/%2f/?x",
];
const CLEAR: [&str; 4] = ["/a/../b", "/a?x=//;%2F", "/%252F", "/a%20b"];

#[tokio::test]
async fn strict_paths_reject_ambiguous_paths_with_400() {
    let backend = Backend::http1("web").await;
    let rule = to("web");
    let setup = Gateway::setup(&manifests("http", &backend, &rule));
    let gateway = setup.argument("--paths", "strict").start().await;
    for target in AMBIGUOUS {
        for response in [
            gateway.ask(get(target)).await,
            gateway.ask_http2(get(target)).await,
        ] {
            let got = (response.status, response.reason());
            assert_eq!(got, (400, Some("BadPath")), "{target}");
        }
    }
    assert_eq!(backend.count(), 0);
    for target in CLEAR {
        assert_eq!(gateway.ask(get(target)).await.status, 200, "{target}");
        assert_eq!(gateway.ask_http2(get(target)).await.status, 200, "{target}");
    }
    // As the Gateway API expects, they are served unless the operator sets `--paths strict`.
    let gateway = Gateway::of(&manifests("http", &backend, &rule)).await;
    for target in AMBIGUOUS.into_iter().chain(CLEAR) {
        assert_eq!(gateway.ask(get(target)).await.status, 200, "{target}");
        assert_eq!(gateway.ask_http2(get(target)).await.status, 200, "{target}");
    }
}

#[tokio::test]
async fn explain_agrees_on_methods_paths_and_names_with_underscores() {
    let backend = Backend::http1("web").await;
    let mut seen = 0;
    for (paths, rejected) in [("strict", 400), ("any", 200)] {
        let setup = Gateway::setup(&manifests("http", &backend, &edits("")));
        let gateway = setup.argument("--paths", paths).start().await;
        let explain = async |method: &str, target: &str| {
            let url = encoded(&format!("http://example.com:8080{target}"));
            let header = encoded("X_Set: client");
            let query = format!("/explain?method={method}&url={url}&header={header}");
            gateway.ask_admin(&query).await.json()
        };
        let mut cases = vec![("delete", "/", 400), ("purge", "/", 200)];
        cases.extend(AMBIGUOUS.map(|target| ("GET", target, rejected)));
        cases.extend(CLEAR.map(|target| ("GET", target, 200)));
        for (method, target, status) in cases {
            let ask = ask(method, target).header("X_Set", "client");
            assert_eq!(gateway.ask(ask).await.status, status, "{method} {target}");
            let explained = explain(method, target).await;
            let about = || format!("{paths}: {method} {target}: {explained:#}");
            if status == 200 {
                seen += 1;
                let saw = backend.saw(seen).await.remove(seen - 1);
                assert_eq!(explained["outcome"], "forward", "{}", about());
                let received = &explained["request"]["headers"];
                assert_eq!(received.get("x_set"), None, "{}", about());
                assert_eq!(received["x-set"], saw.all("x-set").concat(), "{}", about());
            } else {
                assert_eq!(explained["outcome"], "respond", "{}", about());
                assert_eq!(explained["status"], 400, "{}", about());
            }
        }
    }
}
