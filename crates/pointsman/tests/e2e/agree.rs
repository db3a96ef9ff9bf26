//! `explain` and the proxy agree, for random routes and requests.

use std::collections::BTreeMap;

use crate::support::backend::Backend;
use crate::support::gateway::Gateway;
use crate::support::generated::{Rng, request, routes};
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;

pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Returns the target of `/explain` for a request.
fn question(ask: &TestRequest) -> String {
    let url = format!("http://{}:8080{}", ask.host, ask.target);
    let mut query = format!("/explain?method={}&url={}", ask.method, encoded(&url));
    for (name, value) in &ask.headers {
        query.push_str(&format!("&header={}", encoded(&format!("{name}: {value}"))));
    }
    query
}

/// Headers that the proxy adds to forwarded requests, and that `explain` does not show.
pub const OURS: [&str; 6] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
    "content-length",
    "host",
];

/// Returns fields by name in lower case, with joined values.
pub fn joined(fields: &Fields) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in fields {
        match all.get_mut(&name.to_lowercase()) {
            Some(values) => values.extend([",", value]),
            None => drop(all.insert(name.to_lowercase(), value.clone())),
        }
    }
    all
}

#[tokio::test]
async fn explain_and_the_proxy_agree_on_random_routes() {
    let backend = Backend::http1("web").await;
    let mut seen = 0;
    for seed in 0..6 {
        let mut dice = Rng::new(seed);
        let mut manifests = plain() + &service("web", &[&backend]);
        for route in routes(&mut dice, 12) {
            manifests.push_str(&route.manifest());
        }
        let gateway = Gateway::of(&manifests).await;
        let mut client = Http1::connect(gateway.at(8080)).await;
        for _ in 0..60 {
            let ask = request(&mut dice);
            let explained = gateway.ask_admin(&question(&ask)).await.json();
            let response = client.ask(&ask).await;
            let about = || format!("seed {seed}, {ask:?}\n{explained:#}\n{response:?}");
            match explained["outcome"].as_str() {
                Some("forward") => {
                    let rule = &explained["rule"];
                    let tag = format!(
                        "{}-{}",
                        rule["name"].as_str().unwrap_or_default(),
                        rule["rule"]
                    );
                    assert_eq!(response.header("x-rule"), Some(tag.as_str()), "{}", about());
                    seen += 1;
                    let saw = backend.saw(seen).await.remove(seen - 1);
                    let url = format!("http://{}{}", ask.host, saw.target);
                    let expected = explained["request"]["url"].as_str().unwrap_or_default();
                    assert_eq!(expected.replace(":8080", ""), url, "{}", about());
                    let headers = explained["request"]["headers"].clone();
                    let mut expected: BTreeMap<String, String> =
                        serde_json::from_value(headers).expect("header fields");
                    let mut got = joined(&saw.headers);
                    for headers in [&mut expected, &mut got] {
                        headers.retain(|name, _| !OURS.contains(&name.as_str()));
                    }
                    assert_eq!(got, expected, "{}", about());
                }
                Some("redirect") => {
                    assert_eq!(
                        explained["response"]["status"],
                        response.status,
                        "{}",
                        about()
                    );
                    let location = explained["response"]["headers"]["location"].as_str();
                    assert_eq!(location, response.header("location"), "{}", about());
                }
                Some("no-route") => assert_eq!(response.status, 404, "{}", about()),
                _ => assert_eq!(explained["status"], response.status, "{}", about()),
            }
        }
    }
    assert!(seen > 50, "{seen} requests were forwarded");
}
