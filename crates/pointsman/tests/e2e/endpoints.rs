//! Endpoints: readiness, protocols and ejection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::backend::{BackendResponse, Backend, status};
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::manifests::*;
use crate::support::message::*;

#[tokio::test]
async fn app_protocol_selects_the_protocol() {
    let (one, two) = (
        Backend::http1("one").await,
        Backend::http2_with("two", |_| status(200)).await,
    );
    for (protocol, backend, version) in [
        ("http", &one, "HTTP/1.1"),
        ("kubernetes.io/ws", &one, "HTTP/1.1"),
        ("kubernetes.io/h2c", &two, "HTTP/2.0"),
        ("h2c", &two, "HTTP/2.0"),
        ("grpc", &two, "HTTP/2.0"),
    ] {
        let manifests = [
            plain(),
            service_as("web", protocol, &[backend]),
            route("web", &[&to("web")]),
        ];
        let gateway = Gateway::of(&manifests.concat()).await;
        let before = backend.count();
        assert_eq!(gateway.ask(get("/")).await.status, 200, "{protocol}");
        assert_eq!(
            backend.saw(before + 1).await[before].version,
            version,
            "{protocol}"
        );
    }
}

#[tokio::test]
async fn only_ready_endpoints_are_used_and_terminating_ones_as_a_last_resort() {
    let (ready, ending) = (
        Backend::http1("ready").await,
        Backend::http1("ending").await,
    );
    let unready = Backend::http1("unready").await;
    let slice = |name: &str, backend: &Backend, conditions: &str| {
        slices("web", &[backend.address])
            .replace("name: web-0", &format!("name: web-{name}"))
            .replace(
                "endpoints: [{",
                &format!("endpoints: [{{conditions: {{{conditions}}}, "),
            )
    };
    let ends = slice(
        "ending",
        &ending,
        "ready: false, serving: true, terminating: true",
    );
    let not = slice("unready", &unready, "ready: false, serving: false");
    let base = [
        plain(),
        service("web", &[]),
        route("web", &[&to("web")]),
        ends,
        not,
    ]
    .concat();
    let setup = Gateway::setup(&base).file("ready.yaml", &slice("ready", &ready, "ready: true"));
    let gateway = setup.start().await;
    for _ in 0..20 {
        assert_eq!(gateway.ask(get("/")).await.backend(), Some("ready"));
    }
    gateway.remove("ready.yaml");
    gateway
        .until("the one that ends", get("/"), |response| {
            response.backend() == Some("ending")
        })
        .await;
    assert_eq!(unready.count(), 0);
}

#[tokio::test]
async fn a_failing_endpoint_is_ejected_and_tried_again() {
    let broken = Arc::new(AtomicBool::new(true));
    let state = broken.clone();
    let sick = Backend::http1_with("sick", move |_| match state.load(Ordering::SeqCst) {
        true => BackendResponse::Cut,
        false => status(200),
    })
    .await;
    let well = Backend::http1("well").await;
    let rule = "{retry: {attempts: 3, backoff: 1ms}, backendRefs: [{name: web, port: 80}]}";
    let manifests = [
        plain(),
        service("web", &[&sick, &well]),
        route("web", &[rule]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for _ in 0..200 {
        assert_eq!(gateway.ask(get("/")).await.status, 200);
    }
    // Five consecutive failures, and possibly one or two probes on a slow machine.
    assert!(
        sick.count() < 40,
        "{} of 200 requests tried it",
        sick.count()
    );
    broken.store(false, Ordering::SeqCst);
    eventually("it is tried again", || async {
        gateway.ask(get("/")).await.backend() == Some("sick")
    })
    .await;
}

#[tokio::test]
async fn if_all_endpoints_are_ejected_all_are_used() {
    let broken = Arc::new(AtomicBool::new(true));
    let state = broken.clone();
    let only = Backend::http1_with("only", move |_| match state.load(Ordering::SeqCst) {
        true => BackendResponse::Cut,
        false => status(200),
    })
    .await;
    let manifests = [
        plain(),
        service("web", &[&only]),
        route("web", &[&to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for _ in 0..20 {
        assert_eq!(gateway.ask(get("/")).await.status, 502);
    }
    broken.store(false, Ordering::SeqCst);
    assert_eq!(gateway.ask(get("/")).await.status, 200, "there is no other");
}

#[tokio::test]
async fn an_external_hostname_is_resolved() {
    let backend = Backend::http1("outside").await;
    let external = format!(
        "---\napiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackend\nmetadata: {{name: outside, namespace: default}}\nspec:\n  type: ExternalHostname\n  \
         externalHostname: {{hostname: localhost.localdomain}}\n  port: {{number: {}}}\n",
        backend.address.port()
    );
    // `localhost` resolves everywhere, but is not a valid hostname of the API because it has no dot; `localhost.localdomain` does not resolve everywhere.
    let known = tokio::net::lookup_host("localhost.localdomain:80").await;
    if !known
        .is_ok_and(|mut all| all.any(|address| address.ip().is_loopback() && address.is_ipv4()))
    {
        return;
    }
    let rule =
        "{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: outside}]}";
    let gateway = Gateway::of(&[plain(), external, route("web", &[rule])].concat()).await;
    gateway
        .until("the name is known", get("/"), |response| {
            response.backend() == Some("outside")
        })
        .await;
}

#[tokio::test]
async fn endpoints_of_the_proxys_own_zone_are_preferred() {
    let (here, there) = (Backend::http1("here").await, Backend::http1("there").await);
    let slice = |name: &str, backend: &Backend, zone: &str| {
        let zone = format!("endpoints: [{{zone: {zone}, ");
        let slice = slices("web", &[backend.address]).replace("endpoints: [{", &zone);
        slice.replace("name: web-0", &format!("name: web-{name}"))
    };
    let preferring = service("web", &[]).replace(
        "clusterIP: None",
        "clusterIP: None, trafficDistribution: PreferSameZone",
    );
    let base = [plain(), preferring, route("web", &[&to("web")])].concat();
    let setup = Gateway::setup(&(base + &slice("there", &there, "b")));
    let setup = setup.file("here.yaml", &slice("here", &here, "a"));
    let gateway = setup.environment("NODE_ZONE", "a").start().await;
    for _ in 0..20 {
        assert_eq!(gateway.ask(get("/")).await.backend(), Some("here"));
    }
    gateway.remove("here.yaml");
    gateway
        .until("none is left in the zone", get("/"), |response| {
            response.backend() == Some("there")
        })
        .await;
    gateway.write("here.yaml", &slice("here", &here, "a"));
    gateway
        .until("the zone has one again", get("/"), |response| {
            response.backend() == Some("here")
        })
        .await;
    for _ in 0..20 {
        assert_eq!(gateway.ask(get("/")).await.backend(), Some("here"));
    }
}
