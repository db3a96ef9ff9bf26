//! Configuration changes under traffic: no request with a route is lost, and unaffected streams continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::support::backend::Backend;
use crate::support::certificates::{Authority, Handshake};
use crate::support::gateway::{Gateway, HTTPS};
use crate::support::http1::Http1;
use crate::support::http2::Http2;
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::within;

fn listeners(more: bool) -> String {
    let https = format!(
        "{{name: https, port: {HTTPS}, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}"
    );
    let mut all = vec!["{name: http, port: 8080, protocol: HTTP}", https.as_str()];
    if more {
        all.push("{name: more, port: 8081, protocol: HTTP}");
    }
    gateway(&all)
}

/// Returns a route with a rule for `/` and some other rules, in a varying order.
fn some_routes(number: usize, name: &str) -> String {
    let others: Vec<String> = (0..5)
        .map(|other| {
            matching(
                &format!("{{path: {{value: /{}}}}}", (other + number) % 7),
                "web",
            )
        })
        .collect();
    let mut rules: Vec<&str> = others.iter().map(String::as_str).collect();
    let main = to("web");
    rules.insert(number % (rules.len() + 1), &main);
    route(name, &rules)
}

/// Counters of the clients.
#[derive(Default)]
struct Count {
    well: AtomicUsize,
    lost: AtomicUsize,
    over: AtomicBool,
    first: std::sync::Mutex<Option<String>>,
}

impl Count {
    fn add(&self, result: Result<Response, String>) -> bool {
        match result {
            Ok(response) if response.status == 200 => {
                self.well.fetch_add(1, Ordering::Relaxed);
                true
            }
            other => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                self.first
                    .lock()
                    .expect("no panic")
                    .get_or_insert(format!("{other:?}"));
                false
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Sends requests one after another, over one connection or over one connection each.
async fn http1_client(at: std::net::SocketAddr, keep: bool, count: Arc<Count>) {
    while !count.is_over() {
        let Ok(mut client) = Http1::try_connect(at).await else {
            count.add(Err("no connection".to_owned()));
            continue;
        };
        while !count.is_over() {
            let asked = client
                .try_ask(&post("/", "body"))
                .await
                .map_err(|error| error.to_string());
            if !count.add(asked) || !keep {
                break;
            }
        }
    }
}

async fn http2_client(at: std::net::SocketAddr, count: Arc<Count>) {
    let client = Http2::connect(at).await;
    while !count.is_over() {
        let asked = client
            .try_ask(&post("/", "body"))
            .await
            .map_err(|error| error.to_string());
        if !count.add(asked) {
            return;
        }
    }
}

async fn tls_client(at: std::net::SocketAddr, authority: Arc<Authority>, count: Arc<Count>) {
    while !count.is_over() {
        let asked = match Handshake::new(&authority, "example.com")
            .try_connect(at)
            .await
        {
            Ok(stream) => Http1::over(stream).try_ask(&get("/")).await,
            Err(error) => Err(error),
        };
        count.add(asked.map_err(|error| error.to_string()));
    }
}

/// Returns the duration of the load in seconds, which `scripts/soak` sets.
fn seconds() -> u64 {
    let set = std::env::var("SOAK_SECONDS").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(3)
}

fn resident(process: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.unwrap_or("VmRSS: ?")
        .split_whitespace()
        .skip(1)
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_no_request_is_lost_during_configuration_changes() {
    let authority = Arc::new(Authority::new());
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    one.forget();
    two.forget();
    let gateway = Gateway::setup(&listeners(false))
        .file(
            "cert.yaml",
            &authority.issue(&["example.com"]).secret("default/cert"),
        )
        .file("services.yaml", &service("web", &[&one, &two]))
        .file("routes.yaml", &some_routes(0, "web"))
        .argument("--workers", "2")
        .start()
        .await;
    println!("memory at the start: {}", resident(gateway.process()));
    let count = Arc::new(Count::default());
    let mut clients = tokio::task::JoinSet::new();
    for keep in [true, true, false] {
        clients.spawn(http1_client(gateway.at(8080), keep, count.clone()));
    }
    clients.spawn(http2_client(gateway.at(8080), count.clone()));
    clients.spawn(tls_client(
        gateway.at(HTTPS),
        authority.clone(),
        count.clone(),
    ));
    let changes = tokio::time::timeout(Duration::from_secs(seconds()), async {
        for number in 0.. {
            match number % 6 {
                0 => gateway.write("routes.yaml", &some_routes(number, "web")),
                1 => gateway.write("more.yaml", &some_routes(number, "more")),
                2 => gateway.write(
                    "services.yaml",
                    &service("web", &[[&one], [&two]][number / 6 % 2]),
                ),
                3 => gateway.write("main.yaml", &listeners(number / 6 % 2 == 0)),
                4 => gateway.write(
                    "cert.yaml",
                    &authority.issue(&["example.com"]).secret("default/cert"),
                ),
                _ => {
                    gateway.write("services.yaml", &service("web", &[&one, &two]));
                    gateway.remove("more.yaml");
                }
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    });
    assert!(
        changes.await.is_err(),
        "changes go on until the time is over"
    );
    count.over.store(true, Ordering::Relaxed);
    while let Some(ended) = within("the clients end", clients.join_next()).await {
        ended.expect("no panic");
    }
    let (well, lost) = (
        count.well.load(Ordering::Relaxed),
        count.lost.load(Ordering::Relaxed),
    );
    println!(
        "requests: {well}, lost: {lost}, memory at the end: {}",
        resident(gateway.process())
    );
    let first = count.first.lock().expect("no panic").clone();
    assert_eq!(lost, 0, "of {}: {first:?}", well + lost);
    assert!(well > 0);
}

#[tokio::test]
async fn a_websocket_survives_changes_of_its_route_and_endpoints() {
    let (talk, other) = (
        Backend::websocket("talk").await,
        Backend::http1("other").await,
    );
    let manifests = |to_other: bool| {
        let rule = matching("{path: {value: /new}}", "other");
        let main = to(if to_other { "other" } else { "talk" });
        [
            plain(),
            service("talk", &[&talk]),
            service("other", &[&other]),
            route("web", &[&main, &rule]),
        ]
        .concat()
    };
    let gateway = Gateway::of(&manifests(false)).await;
    let stream = TcpStream::connect(gateway.at(8080))
        .await
        .expect("a connection");
    let shaken = within(
        "a handshake",
        tokio_tungstenite::client_async("ws://example.com/", stream),
    )
    .await;
    let (mut socket, _) = shaken.expect("a WebSocket");
    gateway.write("main.yaml", &manifests(true));
    gateway
        .until("the new route", get("/"), |response| {
            response.backend() == Some("other")
        })
        .await;
    socket
        .send(Message::text("still here"))
        .await
        .expect("sent");
    let answer = within("a message", socket.next())
        .await
        .expect("open")
        .expect("a message");
    assert_eq!(answer.into_text().expect("text"), "still here");
}

#[tokio::test]
async fn adding_and_removing_a_listener_keeps_connections_of_others() {
    let backend = Backend::http1("web").await;
    let manifests = |more: bool| {
        let mut all = vec!["{name: http, port: 8080, protocol: HTTP}"];
        if more {
            all.push("{name: more, port: 8081, protocol: HTTP}");
        }
        [
            gateway(&all),
            service("web", &[&backend]),
            route("web", &[&to("web")]),
        ]
        .concat()
    };
    let gateway = Gateway::of(&manifests(false)).await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    assert_eq!(client.ask(&get("/")).await.status, 200);
    assert!(Http1::try_connect(gateway.at(8081)).await.is_err());
    for _ in 0..3 {
        gateway.write("main.yaml", &manifests(true));
        let at = gateway.at(8081);
        crate::support::eventually("the listener is there", || async {
            match Http1::try_connect(at).await {
                Ok(mut client) => client
                    .try_ask(&get("/"))
                    .await
                    .is_ok_and(|response| response.status == 200),
                Err(_) => false,
            }
        })
        .await;
        gateway.write("main.yaml", &manifests(false));
        crate::support::eventually("the listener is gone", || async {
            Http1::try_connect(at).await.is_err()
        })
        .await;
        assert_eq!(
            client.ask(&get("/")).await.status,
            200,
            "the connection is the same"
        );
    }
}

#[tokio::test]
async fn a_removed_endpoint_receives_no_more_requests() {
    let (one, two) = (Backend::http1("one").await, Backend::http1("two").await);
    let manifests = |backends: &[&Backend], marker: &str| {
        let marker = matching(
            &format!("{{path: {{value: {marker}}}, headers: [{{name: x-marker, value: 'yes'}}]}}"),
            "none",
        );
        [
            plain(),
            service("web", backends),
            route("web", &[&to("web"), &marker]),
        ]
        .concat()
    };
    let gateway = Gateway::of(&manifests(&[&one, &two], "/old")).await;
    gateway.write("main.yaml", &manifests(&[&two], "/new"));
    // The marker route has no backend: once it responds with 500, the change is in effect.
    let marker = get("/new").header("x-marker", "yes");
    gateway
        .until("the change", marker, |response| response.status == 500)
        .await;
    let before = one.count();
    for _ in 0..50 {
        assert_eq!(gateway.ask(get("/")).await.backend(), Some("two"));
    }
    assert_eq!(one.count(), before);
}

#[tokio::test]
async fn connections_to_an_unused_backend_are_closed() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::setup(&format!("{}{}", plain(), service("web", &[&backend])))
        .file("route.yaml", &route("web", &[&to("web")]))
        .start()
        .await;
    assert_eq!(gateway.ask(get("/")).await.status, 200);
    backend.open(1).await;
    gateway.remove("route.yaml");
    backend.open(0).await;
}
