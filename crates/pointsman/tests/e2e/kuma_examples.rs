//! The Kuma examples under traffic, unchanged except for their addresses, which are unique to each test.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::mesh::connect_from;
use crate::support::backend::Backend;
use crate::support::gateway::{Address, Gateway};
use crate::support::http1::Http1;
use crate::support::message::*;

/// Returns the files of an example as one text, with other addresses.
fn example(name: &str, addresses: &[(&str, IpAddr)]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files: Vec<_> = std::fs::read_dir(folder.join(name))
        .expect("a folder")
        .collect();
    files.sort_by_key(|file| file.as_ref().map(|file| file.path()).ok());
    let texts = files.into_iter().map(|file| {
        let path = file.expect("a file").path();
        std::fs::read_to_string(path).expect("a text")
    });
    let mut text = texts.collect::<Vec<_>>().join("---\n");
    for (written, address) in addresses {
        assert!(text.contains(written), "{written}");
        text = text.replace(written, &address.to_string());
    }
    text
}

/// Replaces the default address of listeners and outbounds.
fn at_own(text: String, ip: IpAddr) -> String {
    text.replace(
        "  outbound:\n  - port:",
        &format!("  outbound:\n  - address: {ip}\n    port:"),
    )
}

#[tokio::test]
async fn kuma_universal_carries_traffic() {
    let own = Address::new();
    let v1 = Backend::http1_at("v1", SocketAddr::new(own.ip, 13001)).await;
    let v2 = Backend::http1_at("v2", SocketAddr::new(own.ip, 13002)).await;
    let text = at_own(example("kuma-universal", &[("127.0.0.1", own.ip)]), own.ip);
    let _running = Gateway::of(&text).await;
    let mut client = Http1::connect((own.ip, 10001).into()).await;
    assert_eq!(client.ask(&get("/v1/x")).await.backend(), Some("v1"));
    assert_eq!(client.ask(&get("/v2/x")).await.backend(), Some("v2"));
    assert_eq!(v2.only().await.header("env"), Some("dev"));
    assert_eq!(client.ask(&get("/other")).await.status, 200);
    let mut edge = Http1::connect((own.ip, 10080).into()).await;
    for (host, path, expected) in [
        ("test.example.com", "/v2", Some("v1")),
        ("other.example.com", "/v2", Some("v2")),
        ("other.example.com", "/x", None),
    ] {
        assert_eq!(
            edge.ask(&get(path).host(host)).await.backend(),
            expected,
            "{host}{path}"
        );
    }
    assert_eq!(
        edge.ask(&get("/healthz").host("a.example.com"))
            .await
            .text(),
        "well\n"
    );
    assert!(v1.count() >= 2);
}

#[tokio::test]
async fn kuma_kubernetes_carries_traffic() {
    let [service, first, second, web] = [(); 4].map(|()| Address::new());
    let v1 = Backend::http1_at("1.0", SocketAddr::new(first.ip, 3001)).await;
    let v2 = Backend::http1_at("2.0", SocketAddr::new(second.ip, 3001)).await;
    let text = example(
        "kuma-kubernetes",
        &[
            ("127.0.0.10", service.ip),
            ("127.0.0.11", first.ip),
            ("127.0.0.12", second.ip),
            ("127.0.0.13", web.ip),
        ],
    );
    let running = Gateway::of(&text).await;
    let mut client = connect_from(web.ip, (service.ip, 3001).into()).await;
    for _ in 0..10 {
        assert_eq!(client.ask(&get("/")).await.status, 200);
    }
    assert_eq!((v1.count(), v2.count()), (9, 1), "nine to one");
    let mut edge = Http1::connect(running.at(80)).await;
    assert_eq!(edge.ask(&get("/").host("example.com")).await.status, 200);
    assert_eq!(edge.ask(&get("/").host("other.example")).await.status, 404);
}

#[tokio::test]
async fn kuma_cross_mesh_carries_traffic() {
    let own = Address::new();
    let catalog = Backend::http1_at("catalog", SocketAddr::new(own.ip, 13003)).await;
    let text = at_own(example("kuma-cross-mesh", &[("127.0.0.1", own.ip)]), own.ip);
    let _running = Gateway::of(&text).await;
    let mut client = Http1::connect((own.ip, 10002).into()).await;
    let ask = |path: &str| get(path).host("catalog.mesh");
    assert_eq!(
        client.ask(&ask("/public/1")).await.backend(),
        Some("catalog")
    );
    assert_eq!(client.ask(&ask("/private")).await.status, 404);
    let outside = Http1::connect((own.ip, 10443).into())
        .await
        .ask(&ask("/public/1"))
        .await;
    assert_eq!(outside.status, 400);
    assert_eq!(catalog.count(), 1);
}

/// Dataplanes of Kuma 3.0 have no `kuma.io/service` tag.
#[tokio::test]
async fn kuma_labels_carries_traffic() {
    let own = Address::new();
    let v1 = Backend::http1_at("v1", SocketAddr::new(own.ip, 14001)).await;
    let v2 = Backend::http1_at("v2", SocketAddr::new(own.ip, 14002)).await;
    let text = at_own(example("kuma-labels", &[("127.0.0.1", own.ip)]), own.ip);
    assert!(!text.contains("kuma.io/service"));
    let _running = Gateway::of(&text).await;
    let mut client = Http1::connect((own.ip, 11001).into()).await;
    for _ in 0..4 {
        assert_eq!(client.ask(&get("/v2/x")).await.backend(), Some("v2"));
    }
    assert_eq!((v1.count(), v2.count()), (0, 4));
    for _ in 0..40 {
        assert_eq!(client.ask(&get("/other")).await.status, 200);
    }
    assert!(v1.count() > 0 && v2.count() > 4, "all others go to both");
}
