//! `explain` and the proxy agree on the effect of rules: random rules with filters and failing backends, requests over plain
//! HTTP and over TLS with the SNI of any host, and gRPC calls. Some requests are rejected whatever the rules are: for their method, path, host or protocol.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;

use crate::agree::{OURS, encoded, joined};
use crate::kuma::{calls, dataplane, mesh};
use crate::support::backend::{Backend, status};
use crate::support::certificates::{Authority, Handshake};
use crate::support::gateway::{Address, Gateway, HTTP, HTTPS, SPLIT};
use crate::support::generated::Rng;
use crate::support::http1::Http1;
use crate::support::http2::{Http2, call, message};
use crate::support::manifests::*;
use crate::support::message::*;

const HOSTS: [&str; 3] = ["a.example.com", "b.example.com", "x.org"];
const SNIS: [&str; 2] = ["a.example.com", "b.example.com"];
/// Hosts of requests: also one that no route has, and one whose listener can't serve.
const REQUESTED: [&str; 5] = [
    "a.example.com",
    "b.example.com",
    "x.org",
    "y.org",
    "closed.example",
];
const PATHS: [&str; 4] = ["/", "/a", "/b", "/b/c"];
const METHODS: [&str; 3] = ["shop.Catalog/Get", "shop.Catalog/List", "shop.Cart/Get"];
/// Headers that filters edit: one that backends send, one that redirects have, and one that is never present.
const EDITED: [&str; 3] = ["x-out", "location", "x-fresh"];
/// Response headers that the transport or every backend of these tests adds, and that `explain` does not show.
const CARRIED: [&str; 5] = [
    "date",
    "content-length",
    "connection",
    "x-backend",
    "x-connection",
];

/// Paths that `--paths strict` rejects.
const AMBIGUOUS: [&str; 3] = ["//a", "/b/../a", "/b%2Fc"];
/// Headers of requests that may not reach the backend: specific to the connection, for the proxy, or ambiguous.
const TRANSFORMED: [(&str, &str); 14] = [
    ("connection", "x-listed, x-other, content-type"),
    ("x-listed", "1"),
    ("X-Other", "1"),
    ("content-type", "text/plain"),
    ("keep-alive", "timeout=5"),
    ("proxy-connection", "keep-alive"),
    ("te", "trailers"),
    ("trailer", "x-sum"),
    ("upgrade", "h2c"),
    ("http2-settings", "AAMAAABkAAQAAP__"),
    ("expect", "100-continue"),
    ("x-forwarded-for", "192.0.2.1"),
    ("x_rule", "client"),
    ("x-rule", "client"),
];
/// Headers of responses of backends.
const SENT: [(&str, &str); 2] = [("x-here", "backend"), ("x-out", "backend")];

/// Returns a filter that edits some headers of requests or responses.
fn modifier(dice: &mut Rng, kind: &str, tag: &str) -> String {
    let (mut set, mut add, mut remove) = (vec![("x-rule", tag.to_owned())], vec![], vec![]);
    for name in EDITED {
        match dice.number() % 6 {
            0 => set.push((name, format!("set-{tag}"))),
            1 => add.push((name, format!("added-{tag}"))),
            2 => remove.push(name),
            _ => {}
        }
    }
    let list = |pairs: &[(&str, String)]| {
        let pairs = pairs.iter();
        let all: Vec<String> = pairs
            .map(|(name, value)| format!("{{name: {name}, value: {value}}}"))
            .collect();
        all.join(", ")
    };
    let field = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
    format!(
        "{{type: {kind}, {field}: {{set: [{}], add: [{}], remove: [{}]}}}}",
        list(&set),
        list(&add),
        remove.join(", ")
    )
}

fn cors(dice: &mut Rng) -> String {
    let origins = dice.pick(&["'https://one.example'", "'*'", "'https://*.example'"]);
    let methods = dice.pick(&["GET, PUT", "'*'"]);
    let credentials = dice.one_in(2);
    format!(
        "{{type: CORS, cors: {{allowOrigins: [{origins}], allowMethods: [{methods}], allowHeaders: ['*'], exposeHeaders: [x-out], allowCredentials: {credentials}, maxAge: 60}}}}"
    )
}

fn redirect(dice: &mut Rng) -> String {
    let fields = dice.pick(&[
        "scheme: https, statusCode: 301",
        "hostname: moved.example",
        "port: 81, hostname: moved.example",
        "path: {type: ReplaceFullPath, replaceFullPath: /new}",
    ]);
    format!("{{type: RequestRedirect, requestRedirect: {{{fields}}}}}")
}

/// Returns backends with equal weights or weight 0, some of them unusable.
fn backends(dice: &mut Rng, tag: &str) -> String {
    let one = |name: &str, weight: u32, filters: &str| {
        format!("{{name: {name}, port: 80, weight: {weight}, filters: [{filters}]}}")
    };
    let own = match dice.number() % 4 {
        0 => modifier(dice, "ResponseHeaderModifier", &format!("{tag}-own")),
        1 => modifier(dice, "RequestHeaderModifier", &format!("{tag}-own")),
        _ => String::new(),
    };
    let all = match dice.number() % 6 {
        0 => vec![one("web", 1, &own), one("missing", 1, "")],
        1 => vec![one("empty", 1, ""), one("web", 1, &own)],
        2 => vec![one("empty", 1, ""), one("missing", 1, "")],
        3 => vec![one("web", 0, &own), one("empty", 0, "")],
        _ => vec![one("web", 1, &own)],
    };
    format!("backendRefs: [{}]", all.join(", "))
}

fn http_rule(dice: &mut Rng, tag: &str) -> String {
    let path = dice.pick(&PATHS);
    let mut filters = vec![modifier(dice, "ResponseHeaderModifier", tag)];
    if dice.one_in(2) {
        filters.push(modifier(dice, "RequestHeaderModifier", tag));
    }
    if dice.one_in(2) {
        filters.push(cors(dice));
    }
    let backends = match dice.one_in(3) {
        true => {
            let at = dice.number() as usize % (filters.len() + 1);
            filters.insert(at, redirect(dice));
            String::new()
        }
        false => format!(", {}", backends(dice, tag)),
    };
    let filters = filters.join(", ");
    format!(
        "{{matches: [{{path: {{type: PathPrefix, value: {path}}}}}], filters: [{filters}]{backends}}}"
    )
}

fn grpc_rule(dice: &mut Rng, tag: &str) -> String {
    let (service, method) = dice
        .pick(&METHODS)
        .split_once('/')
        .expect("a service and a method");
    let filters = modifier(dice, "ResponseHeaderModifier", tag);
    let backends = backends(dice, tag);
    format!(
        "{{matches: [{{method: {{service: {service}, method: {method}}}}}], filters: [{filters}], {backends}}}"
    )
}

fn http_request(dice: &mut Rng, http2: bool) -> TestRequest {
    let method = match dice.one_in(10) {
        true => "get",
        false => dice.pick(&["GET", "OPTIONS"]),
    };
    let path = match dice.one_in(6) {
        true => dice.pick(&AMBIGUOUS),
        false => dice.pick(&PATHS),
    };
    let mut request = ask(method, &format!("{path}?q=1"));
    for (name, value) in TRANSFORMED {
        // Over HTTP/2 those before `x-forwarded-for` are malformed.
        if dice.one_in(4) && (!http2 || name.starts_with('x')) {
            request = request.header(&name.to_lowercase(), value);
        }
    }
    if !dice.one_in(3) {
        let origin = dice.pick(&[
            "https://one.example",
            "https://two.example",
            "https://x.org",
        ]);
        request = request.header("origin", origin);
    }
    if dice.one_in(2) {
        request = request
            .header("access-control-request-method", "PUT")
            .header("access-control-request-headers", "x-a");
    }
    request
}

/// Transport of a request to the gateway.
#[derive(Debug, Clone, Copy)]
enum ClientTransport {
    Plain,
    /// TLS with this SNI.
    Tls(&'static str),
    /// Plain HTTP to the port of the listeners with TLS.
    PlainToTls,
}

fn question(way: ClientTransport, ask: &TestRequest) -> String {
    let (url, sni) = match way {
        ClientTransport::Plain => (format!("http://{}:{HTTP}{}", ask.host, ask.target), None),
        ClientTransport::Tls(sni) => (format!("https://{sni}:{HTTPS}{}", ask.target), Some(sni)),
        ClientTransport::PlainToTls => (format!("http://{}:{HTTPS}{}", ask.host, ask.target), None),
    };
    let mut query = format!("/explain?method={}&url={}", ask.method, encoded(&url));
    if let Some(sni) = sni {
        query.push_str(&format!("&sni={sni}"));
    }
    let host = ("host".to_owned(), ask.host.clone());
    for (name, value) in ask.headers.iter().chain([&host]) {
        query.push_str(&format!("&header={}", encoded(&format!("{name}: {value}"))));
    }
    query
}

async fn send(
    gateway: &Gateway,
    authority: &Authority,
    way: ClientTransport,
    http2: bool,
    ask: &TestRequest,
) -> Response {
    let alpn: &[&str] = if http2 { &["h2"] } else { &["http/1.1"] };
    match (way, http2) {
        (ClientTransport::Plain, true) => Http2::connect(gateway.at(HTTP)).await.ask(ask).await,
        (ClientTransport::Plain, false) => Http1::connect(gateway.at(HTTP)).await.ask(ask).await,
        (ClientTransport::PlainToTls, _) => Http1::connect(gateway.at(HTTPS)).await.ask(ask).await,
        (ClientTransport::Tls(sni), _) => {
            let stream = Handshake::new(authority, sni).alpn(alpn);
            let stream = stream.connect(gateway.at(HTTPS)).await;
            match http2 {
                true => Http2::over(stream, "https").await.ask(ask).await,
                false => Http1::over(stream).ask(ask).await,
            }
        }
    }
}

/// Returns whether a response is the error that `explain` predicts, as an HTTP or gRPC status.
fn is_error(explained: &Value, response: &Response) -> bool {
    match explained["grpcStatus"].as_u64() {
        Some(code) => {
            response.status == 200 && response.header("grpc-status") == Some(&code.to_string())
        }
        None => explained["status"] == response.status,
    }
}

/// Checks the complete response of a filter.
fn check_reply(explained: &Value, response: &Response, about: &str) {
    assert_eq!(explained["status"], response.status, "{about}");
    let mut got = joined(&response.headers);
    got.retain(|name, _| !CARRIED.contains(&name.as_str()));
    let expected: BTreeMap<String, String> = match &explained["headers"] {
        Value::Null => BTreeMap::new(),
        headers => serde_json::from_value(headers.clone()).expect("header fields"),
    };
    assert_eq!(got, expected, "{about}");
    let body = String::from_utf8_lossy(&response.body);
    assert_eq!(
        explained["body"].as_str().unwrap_or_default(),
        body,
        "{about}"
    );
}

/// Checks that a response is the backend's with exactly these changes. `sent` are the backend's headers.
fn check_changes(
    explained: &Value,
    sent: &BTreeMap<String, String>,
    response: &Response,
    about: &str,
) {
    let mut got = joined(&response.headers);
    got.retain(|name, _| !CARRIED.contains(&name.as_str()));
    let mut expected = sent.clone();
    for name in explained["removed"].as_array().into_iter().flatten() {
        expected.remove(name.as_str().unwrap_or_default());
    }
    for (name, value) in explained["headers"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        // The explanation does not distinguish values that replace the backend's from those that follow it.
        let value = match sent.get(name) {
            Some(sent) if got.get(name) == Some(&format!("{sent},{value}")) => {
                format!("{sent},{value}")
            }
            _ => value.to_owned(),
        };
        expected.insert(name.clone(), value);
    }
    assert_eq!(got, expected, "{about}");
}

/// Checks that a backend received exactly this request.
fn check_request(explained: &Value, saw: &crate::support::backend::RecordedRequest, about: &str) {
    let url = explained["url"].as_str().unwrap_or_default();
    assert!(url.ends_with(&saw.target), "{}\n{about}", saw.target);
    assert_eq!(explained["method"], *saw.method, "{about}");
    assert_eq!(explained["headers"]["host"], *saw.host, "{about}");
    let mut expected: BTreeMap<String, String> =
        serde_json::from_value(explained["headers"].clone()).expect("header fields");
    let mut got = joined(&saw.headers);
    for headers in [&mut expected, &mut got] {
        headers.retain(|name, _| !OURS.contains(&name.as_str()));
    }
    // Sent to every backend over HTTP/2.
    if got.get("te").is_some_and(|value| value == "trailers") && saw.version == "HTTP/2.0" {
        got.remove("te");
    }
    assert_eq!(got, expected, "{about}");
}

/// Sends a request until each backend has received one, and compares the results with the explanation. Returns the checks that were made.
async fn check(
    explained: &Value,
    ask: &TestRequest,
    backend: &Backend,
    sent: &BTreeMap<String, String>,
    send: impl AsyncFn() -> Response,
) -> &'static str {
    let outcome = explained["outcome"].as_str().unwrap_or_default();
    let about = |response: &Response| format!("{ask:?}\n{explained:#}\n{response:?}");
    if outcome != "forward" {
        let response = send().await;
        return match &explained["response"] {
            Value::Null => {
                assert!(is_error(explained, &response), "{}", about(&response));
                "error"
            }
            reply => {
                check_reply(reply, &response, &about(&response));
                match response.status {
                    204 => "preflight",
                    300..400 => "redirect",
                    _ => "direct",
                }
            }
        };
    }
    let shares = explained["backends"].as_array().expect("a list");
    let mut left: Vec<&Value> = shares.iter().filter(|one| one["share"] != 0.0).collect();
    let several = left.len() > 1;
    while !left.is_empty() {
        let response = send().await;
        let about = about(&response);
        let used = response.header("x-here") == Some("backend");
        let fits = |share: &&Value| match used {
            true => share["name"] == "web",
            false => share["name"] != "web" && is_error(share, &response),
        };
        let at = left.iter().position(fits);
        let share = left.remove(at.unwrap_or_else(|| panic!("no share is left for it\n{about}")));
        if used {
            let own = |name: &str| match &share[name] {
                Value::Null => explained[name].clone(),
                own => own.clone(),
            };
            check_changes(&own("response"), sent, &response, &about);
            let count = backend.count();
            let saw = backend.saw(count).await.remove(count - 1);
            check_request(&own("request"), &saw, &about);
        }
    }
    if several { "shares" } else { "forward" }
}

fn listeners() -> String {
    let https = |name: &str, hostname: &str| {
        format!(
            "{{name: {name}, port: {HTTPS}, protocol: HTTPS, hostname: '{hostname}', tls: {{certificateRefs: [{{name: cert}}]}}}}"
        )
    };
    gateway(&[
        "{name: http, port: 8080, protocol: HTTP}",
        &https("one", "a.example.com"),
        &https("rest", "*.example.com"),
        "{name: closed, port: 8080, protocol: HTTP, hostname: closed.example, allowedRoutes: {kinds: [{kind: TCPRoute}]}}",
    ])
}

/// Returns the seeds to test: those of `POINTSMAN_SEEDS`, such as `100-200`, or a few.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("POINTSMAN_SEEDS").ok();
    let range = given.as_deref().and_then(|range| range.split_once('-'));
    let range = range.and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.unwrap_or(0..12)
}

#[tokio::test]
async fn filters_and_failing_shares_behave_as_explained() {
    let authority = Authority::new();
    let certificate = authority.issue(&["a.example.com", "b.example.com"]);
    let http = Backend::http1_with("web", |_| {
        let [one, two] = SENT;
        status(200).header(one.0, one.1).header(two.0, two.1)
    })
    .await;
    let grpc = Backend::http2_with("web", |_| {
        let [one, two] = SENT;
        status(200)
            .header(one.0, one.1)
            .header(two.0, two.1)
            .header("content-type", "application/grpc")
            .body(message("pong"))
            .trailer("grpc-status", "0")
    })
    .await;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut checked: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in seeds() {
        let mut dice = Rng::new(seed);
        let calls = seed % 2 == 1;
        let (kind, protocol, backend) = match calls {
            true => ("GRPCRoute", "kubernetes.io/h2c", &grpc),
            false => ("HTTPRoute", "http", &http),
        };
        let mut sent: BTreeMap<String, String> = SENT.map(owned).into();
        if calls {
            sent.extend([owned(("content-type", "application/grpc"))]);
        }
        let mut manifests = [
            listeners(),
            certificate.secret("default/cert"),
            service_as("web", protocol, &[backend]),
            service_as("empty", protocol, &[]),
        ]
        .concat();
        for number in 0..4 {
            let rules: Vec<String> = (0..3)
                .map(|rule| match calls {
                    true => grpc_rule(&mut dice, &format!("r{number}-{rule}")),
                    false => http_rule(&mut dice, &format!("r{number}-{rule}")),
                })
                .collect();
            let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
            let hostname = HOSTS
                .get(number)
                .map(|host| format!("  hostnames: ['{host}']\n"));
            let name = format!("route-{number}");
            manifests += &route_of(kind, &name, &hostname.unwrap_or_default(), &rules);
        }
        // A separate controller does not know the policy of its proxies.
        let policy = if seed % 3 == 2 && !SPLIT { "strict" } else { "any" };
        let setup = Gateway::setup(&manifests).argument("--paths", policy);
        let gateway = setup.start().await;
        for _ in 0..60 {
            let way = match dice.number() % 8 {
                0..3 => ClientTransport::Plain,
                3 if !calls => ClientTransport::PlainToTls,
                _ => ClientTransport::Tls(dice.pick(&SNIS)),
            };
            let host = match way {
                // Mostly the host of the connection.
                ClientTransport::Tls(sni) if !dice.one_in(3) => sni,
                _ => dice.pick(&REQUESTED),
            };
            let http2 = calls || dice.one_in(2) && !matches!(way, ClientTransport::PlainToTls);
            let mut ask = match calls {
                true => call(dice.pick(&METHODS)).host(host),
                false => http_request(&mut dice, http2).host(host),
            };
            if calls && dice.one_in(10) {
                ask.method = "post".to_owned();
            }
            if let ClientTransport::PlainToTls = way {
                // Bytes that are not recognized as HTTP get no response.
                ask.method = "GET".to_owned();
            }
            let explained = gateway.ask_admin(&question(way, &ask)).await.json();
            let what = check(&explained, &ask, backend, &sent, async || {
                send(&gateway, &authority, way, http2, &ask).await
            })
            .await;
            *checked.entry(what).or_default() += 1;
        }
    }
    for what in ["forward", "shares", "error", "redirect", "preflight"] {
        assert!(checked.get(what).copied() > Some(5), "{what}: {checked:?}");
    }
}

/// Only Kuma's dialect has direct responses.
#[tokio::test]
async fn direct_responses_are_as_explained() {
    let (client, edge) = (Address::new(), Address::new());
    let backend = Backend::http1_with("backend", |_| status(200).header("x-here", "backend")).await;
    let mut checked: BTreeMap<&str, usize> = BTreeMap::new();
    let mut dice = Rng::new(7);
    let direct = |dice: &mut Rng| {
        let code = dice.pick(&["200", "418", "503"]);
        let body = dice.pick(&["", ", body: {inlineString: short and stout}"]);
        format!("{{type: DirectResponse, directResponse: {{status: {code}{body}}}}}")
    };
    let rules: Vec<String> = (0..12)
        .map(|number| {
            let mut filters = vec![modifier(&mut dice, "ResponseHeaderModifier", &format!("r{number}"))];
            if dice.one_in(3) {
                let value = "{set: [{name: content-type, value: text/tea}]}";
                filters.push(format!(
                    "{{type: ResponseHeaderModifier, responseHeaderModifier: {value}}}"
                ));
            }
            let replies = match dice.one_in(3) {
                true => redirect(&mut dice),
                false => direct(&mut dice),
            };
            filters.push(replies);
            format!(
                "{{matches: [{{path: {{type: PathPrefix, value: /p{number}}}}}], default: {{filters: [{}]}}}}",
                filters.join(", ")
            )
        })
        .collect();
    let manifests = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &backend)
        + &calls("owner", &format!("[{}]", rules.join(", ")));
    let gateway = Gateway::of(&manifests).await;
    let at = SocketAddr::new(client.ip, 10001);
    for number in 0..13 {
        let ask = get(&format!("/p{number}/x?q=1")).host(&at.to_string());
        let url = encoded(&format!("http://{at}{}", ask.target));
        let question = format!("/explain?from=dataplane/web&url={url}");
        let explained = gateway.ask_admin(&question).await.json();
        let what = check(&explained, &ask, &backend, &BTreeMap::new(), async || {
            Http1::connect(at).await.ask(&ask).await
        })
        .await;
        *checked.entry(what).or_default() += 1;
    }
    for what in ["direct", "redirect", "error"] {
        assert!(checked.contains_key(what), "{what}: {checked:?}");
    }
}
