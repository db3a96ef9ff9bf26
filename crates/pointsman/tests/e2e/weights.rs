//! Weights are exact over any window, and an unusable backend affects only its own share.

use std::collections::BTreeMap;

use crate::support::backend::Backend;
use crate::support::gateway::Gateway;
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;

#[tokio::test]
async fn each_backend_gets_its_exact_share_of_every_window() {
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    let manifests = [
        plain(),
        service("one", &[&one]),
        service("two", &[&two]),
        route(
            "web",
            &["backendRefs: [{name: one, port: 80, weight: 9}, {name: two, port: 80, weight: 1}]"],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    let mut took = Vec::new();
    for _ in 0..200 {
        took.push(client.ask(&get("/")).await.backend() == Some("two"));
    }
    for window in took.chunks(10) {
        assert_eq!(window.iter().filter(|two| **two).count(), 1, "{took:?}");
    }
}

#[tokio::test]
async fn an_invalid_backend_answers_500_and_one_without_endpoints_503_for_their_shares() {
    let one = Backend::http1("one").await;
    let manifests = [
        plain(),
        service("one", &[&one]),
        service("empty", &[]),
        route(
            "web",
            &[
                "backendRefs: [{name: one, port: 80, weight: 2}, {name: empty, port: 80}, {name: missing, port: 80}]",
            ],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    let mut codes: BTreeMap<u16, usize> = BTreeMap::new();
    for _ in 0..40 {
        let response = client.ask(&get("/")).await;
        assert_eq!(
            response.reason().is_some(),
            response.status != 200,
            "{response:?}"
        );
        *codes.entry(response.status).or_default() += 1;
    }
    assert_eq!(codes, BTreeMap::from([(200, 20), (500, 10), (503, 10)]));
}

#[tokio::test]
async fn a_weight_of_zero_gets_no_traffic_and_all_zero_is_503() {
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    let manifests = [
        plain(),
        service("one", &[&one]),
        service("two", &[&two]),
        route(
            "web",
            &[
                "{matches: [{path: {value: /none}}], backendRefs: [{name: one, port: 80, weight: 0}]}",
                "backendRefs: [{name: one, port: 80, weight: 1}, {name: two, port: 80, weight: 0}]",
            ],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for _ in 0..10 {
        assert_eq!(gateway.ask(get("/")).await.backend(), Some("one"));
    }
    assert_eq!(gateway.ask(get("/none")).await.status, 503);
    assert_eq!(two.count(), 0);
}

#[tokio::test]
async fn the_endpoints_of_a_backend_share_its_requests() {
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    let manifests = [
        plain(),
        service("web", &[&one, &two]),
        route("web", &[&to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for _ in 0..64 {
        assert_eq!(gateway.ask(get("/")).await.status, 200);
    }
    // Endpoints are selected by load and latency; each of them gets some requests.
    assert!(
        one.count() > 0 && two.count() > 0,
        "{} {}",
        one.count(),
        two.count()
    );
    assert_eq!(one.count() + two.count(), 64);
}
