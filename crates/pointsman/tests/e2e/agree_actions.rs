//! `explain` and the proxy agree on the effect of rules: random rules with filters and failing backends, requests over plain
//! HTTP and over TLS with the SNI of any host, and gRPC calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;

use crate::agree::{OURS, encoded};
use crate::kuma::{calls, dataplane, mesh};
use crate::support::backend::{Backend, status};
use crate::support::certificates::{Authority, Handshake};
use crate::support::gateway::{Address, Gateway, HTTP, HTTPS};
use crate::support::generated::Rng;
use crate::support::http1::Http1;
use crate::support::http2::{Http2, call, message};
use crate::support::manifests::*;
use crate::support::message::*;

const HOSTS: [&str; 3] = ["a.example.com", "b.example.com", "x.org"];
const SNIS: [&str; 2] = ["a.example.com", "b.example.com"];
const PATHS: [&str; 4] = ["/", "/a", "/b", "/b/c"];
const METHODS: [&str; 3] = ["shop.Catalog/Get", "shop.Catalog/List", "shop.Cart/Get"];
/// Headers that filters edit: one that backends send, one that redirects have, and one that is never present.
const EDITED: [&str; 3] = ["x-out", "location", "x-fresh"];
/// Response headers that the transport adds, and that `explain` does not show.
const CARRIED: [&str; 3] = ["date", "content-length", "connection"];

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

fn http_request(dice: &mut Rng) -> TestRequest {
    let method = dice.pick(&["GET", "OPTIONS"]);
    let mut request = ask(method, &format!("{}?q=1", dice.pick(&PATHS)));
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
}

fn question(way: ClientTransport, ask: &TestRequest) -> String {
    let (url, sni) = match way {
        ClientTransport::Plain => (format!("http://{}:{HTTP}{}", ask.host, ask.target), None),
        ClientTransport::Tls(sni) => (format!("https://{sni}:{HTTPS}{}", ask.target), Some(sni)),
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

fn joined(response: &Response) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &response.headers {
        let values = all.entry(name.to_lowercase()).or_default();
        values.push_str(if values.is_empty() { "" } else { "," });
        values.push_str(value);
    }
    all
}

/// Checks the complete response of a filter.
fn check_reply(explained: &Value, response: &Response, about: &str) {
    assert_eq!(explained["status"], response.status, "{about}");
    let mut got = joined(response);
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

/// Checks the changes to a backend's response.
fn check_changes(explained: &Value, response: &Response, about: &str) {
    let got = joined(response);
    for (name, value) in explained["headers"].as_object().into_iter().flatten() {
        let (got, value) = (got.get(name), value.as_str().unwrap_or_default());
        let got = got.map_or("", String::as_str);
        // Added values follow those of the backend.
        let holds = got == value || got.ends_with(&format!(",{value}"));
        assert!(holds, "{name}: {got}\n{about}");
    }
    for name in explained["removed"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        assert!(!got.contains_key(name), "{name}\n{about}");
    }
}

/// Checks the request that a backend received.
fn check_request(explained: &Value, saw: &crate::support::backend::RecordedRequest, about: &str) {
    let url = explained["url"].as_str().unwrap_or_default();
    assert!(url.ends_with(&saw.target), "{}\n{about}", saw.target);
    for (name, value) in &saw.headers {
        let name = name.to_lowercase();
        if OURS.contains(&name.as_str()) || name == "te" {
            continue;
        }
        let expected = explained["headers"][&name].as_str().unwrap_or_default();
        let one_of = expected.split(',').any(|one| one == value);
        assert!(one_of || expected == value, "{name}: {value}\n{about}");
    }
}

/// Sends a request until each backend has received one, and compares the results with the explanation. Returns the checks that were made.
async fn check(
    explained: &Value,
    ask: &TestRequest,
    backend: &Backend,
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
            check_changes(&own("response"), &response, &about);
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
    ])
}

#[tokio::test]
async fn filters_and_failing_shares_behave_as_explained() {
    let authority = Authority::new();
    let certificate = authority.issue(&["a.example.com", "b.example.com"]);
    let http = Backend::http1_with("web", |_| {
        status(200)
            .header("x-here", "backend")
            .header("x-out", "backend")
    })
    .await;
    let grpc = Backend::http2_with("web", |_| {
        status(200)
            .header("x-here", "backend")
            .header("x-out", "backend")
            .header("content-type", "application/grpc")
            .body(message("pong"))
            .trailer("grpc-status", "0")
    })
    .await;
    let mut checked: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..8 {
        let mut dice = Rng::new(seed);
        let calls = seed % 2 == 1;
        let (kind, protocol, backend) = match calls {
            true => ("GRPCRoute", "kubernetes.io/h2c", &grpc),
            false => ("HTTPRoute", "http", &http),
        };
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
        let gateway = Gateway::of(&manifests).await;
        for _ in 0..30 {
            let way = match dice.one_in(3) {
                true => ClientTransport::Plain,
                false => ClientTransport::Tls(dice.pick(&SNIS)),
            };
            let host = match way {
                // Mostly the host of the connection.
                ClientTransport::Tls(sni) if !dice.one_in(3) => sni,
                _ => dice.pick(&HOSTS),
            };
            let ask = match calls {
                true => call(dice.pick(&METHODS)).host(host),
                false => http_request(&mut dice).host(host),
            };
            let http2 = calls || dice.one_in(2);
            let explained = gateway.ask_admin(&question(way, &ask)).await.json();
            let what = check(&explained, &ask, backend, async || {
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
        let what = check(&explained, &ask, &backend, async || {
            Http1::connect(at).await.ask(&ask).await
        })
        .await;
        *checked.entry(what).or_default() += 1;
    }
    for what in ["direct", "redirect", "error"] {
        assert!(checked.contains_key(what), "{what}: {checked:?}");
    }
}
