//! Requests are routed to the backends of the rules that they match.

use crate::support::backend::Backend;
use crate::support::gateway::Gateway;
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;

#[tokio::test]
async fn a_request_reaches_the_backend_of_the_rule_that_it_matches() {
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    let manifests = [
        plain(),
        service("one", &[&one]),
        service("two", &[&two]),
        route(
            "web",
            &[&matching("{path: {value: /two}}", "two"), &to("one")],
        ),
    ]
    .concat();
    let gateway = Gateway::of(&manifests).await;
    assert_eq!(gateway.ask(get("/")).await.backend(), Some("one"));
    assert_eq!(gateway.ask(get("/two/x?y=z")).await.backend(), Some("two"));
    assert_eq!(gateway.ask(get("/twofold")).await.backend(), Some("one"));
    let saw = two.only().await;
    assert_eq!(
        (saw.method.as_str(), saw.target.as_str()),
        ("GET", "/two/x?y=z")
    );
    assert_eq!(saw.host, "example.com");
}

#[tokio::test]
async fn one_connection_carries_requests_for_many_hosts() {
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    let manifests = [
        plain(),
        service("one", &[&one]),
        service("two", &[&two]),
        route_for("one", "one.example", &[&to("one")]),
        route_for("two", "*.two.example", &[&to("two")]),
    ]
    .concat();
    let gateway = Gateway::of(&manifests).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    for (host, expected) in [
        ("one.example", Some("one")),
        ("a.two.example", Some("two")),
        ("two.example", None),
        ("ONE.example:8080", Some("one")),
        ("a.b.two.example", Some("two")),
        ("other.example", None),
    ] {
        let response = client.ask(&get("/").host(host)).await;
        assert_eq!(response.backend(), expected, "{host}");
        if expected.is_none() {
            assert_eq!(response.status, 404, "{host}");
            assert!(response.reason().is_some(), "{response:?}");
        }
    }
}
