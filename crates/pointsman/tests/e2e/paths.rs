//! Paths are normalized before they are matched, and forwarded in normalized form.

use crate::support::backend::Backend;
use crate::support::gateway::Gateway;
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;

#[tokio::test]
async fn paths_are_normalized_before_matching_and_forwarding() {
    let backend = Backend::http1("web").await;
    let manifests = [
        plain(),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let table = [
        ("/a/../b", "/b"),
        ("/a/./b/.", "/a/b/"),
        ("/../../a", "/a"),
        ("/a/%2e%2E/b", "/b"),
        ("/%61%7Eb", "/a~b"),
        ("/a%2Fb", "/a%2Fb"),
        ("/a%5Cb", "/a%5Cb"),
        ("/a%2F..%2Fb", "/a%2F..%2Fb"),
        ("/a//b", "/a//b"),
        ("/a%20b", "/a%20b"),
        ("/?x=%61/../b", "/?x=%61/../b"),
        ("/a/..", "/"),
    ];
    let mut client = Http1::connect(gateway.at(8080)).await;
    for (number, (asked, forwarded)) in table.into_iter().enumerate() {
        assert_eq!(client.ask(&get(asked)).await.status, 200, "{asked}");
        assert_eq!(
            backend.saw(number + 1).await[number].target,
            forwarded,
            "{asked}"
        );
    }
}

#[tokio::test]
async fn an_invalid_escape_or_a_nul_is_400() {
    let backend = Backend::http1("web").await;
    let manifests = [
        plain(),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for target in ["/%", "/%2", "/%zz", "/a%00b", "/%u0041"] {
        assert_eq!(gateway.ask(get(target)).await.status, 400, "{target}");
        assert_eq!(
            gateway.ask_http2(get(target)).await.status,
            400,
            "{target} over HTTP/2"
        );
    }
    assert_eq!(backend.count(), 0);
}

#[tokio::test]
async fn a_rule_cannot_be_bypassed_by_another_spelling_of_the_path() {
    let (open, guarded) = (
        Backend::http1("open").await,
        Backend::http1("guarded").await,
    );
    let manifests = [
        plain(),
        service("open", &[&open]),
        service("guarded", &[&guarded]),
        route(
            "web",
            &[&matching("{path: {value: /admin}}", "guarded"), &to("open")],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for target in [
        "/admin",
        "/x/../admin/a",
        "/%61dmin",
        "/./admin",
        "/x/%2e%2e/admin",
        "/admin?x",
        "/admin/../admin",
    ] {
        assert_eq!(
            gateway.ask(get(target)).await.backend(),
            Some("guarded"),
            "{target}"
        );
        assert_eq!(
            gateway.ask_http2(get(target)).await.backend(),
            Some("guarded"),
            "{target}"
        );
    }
    for target in [
        "/admin/..",
        "/Admin",
        "//admin",
        "/admin%2Fx",
        "/x%2F..%2Fadmin",
    ] {
        assert_eq!(
            gateway.ask(get(target)).await.backend(),
            Some("open"),
            "{target}"
        );
    }
}
