//! Traffic of Kuma outbounds: the Host of external services, the order of matches, path rewrites, and the lines that `run` prints.

use std::net::SocketAddr;

use crate::kuma::{calls, dataplane, mesh};
use crate::support::backend::Backend;
use crate::support::eventually;
use crate::support::gateway::{Address, Gateway};
use crate::support::http1::Http1;
use crate::support::message::*;

/// Returns the Host of the first request for a path that a backend has received.
async fn host(backend: &Backend, path: &str) -> Option<String> {
    let saw = backend.saw(0).await;
    let found = saw.iter().find(|saw| saw.target == path)?;
    found.header("host").map(str::to_owned)
}

/// "Requests to a MeshExternalService carry its own hostname as Host (only the external share), unless a filter sets another."
#[tokio::test]
async fn requests_to_an_external_service_carry_its_hostname() {
    let (client, edge) = (Address::new(), Address::new());
    let (inside, outside) = (Backend::http1("in").await, Backend::http1("out").await);
    let external = format!(
        "---\n{{type: MeshExternalService, mesh: default, name: api, spec: {{match: {{type: HostnameGenerator, port: 80, protocol: http}}, endpoints: [{{address: localhost, port: {}}}]}}}}\n",
        outside.address.port()
    );
    let api = "{kind: MeshExternalService, name: api}";
    let prefix = |path: &str| format!("matches: [{{path: {{type: PathPrefix, value: {path}}}}}]");
    let rules = [
        format!(
            "{{{}, default: {{backendRefs: [{{kind: MeshService, name: backend}}, {api}]}}}}",
            prefix("/split")
        ),
        format!(
            "{{{}, default: {{backendRefs: [{api}], filters: [{{urlRewrite: {{hostname: other.example}}}}]}}}}",
            prefix("/set")
        ),
        format!(
            "{{{}, default: {{filters: [{{requestMirror: {{backendRef: {api}}}}}]}}}}",
            prefix("/copy")
        ),
    ];
    let manifests = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &inside)
        + &external
        + &calls("out", &format!("[{}]", rules.join(", ")));
    let gateway = Gateway::of(&manifests).await;
    let mut here = Http1::connect((client.ip, 10001).into()).await;
    eventually("the name is resolved", || async {
        let answer = Http1::connect((client.ip, 10001).into())
            .await
            .ask(&get("/set"))
            .await;
        answer.backend() == Some("out")
    })
    .await;
    for _ in 0..2 {
        assert_eq!(
            here.ask(&get("/split").host("backend.mesh")).await.status,
            200
        );
    }
    assert_eq!(
        host(&inside, "/split").await.as_deref(),
        Some("backend.mesh")
    );
    assert_eq!(host(&outside, "/split").await.as_deref(), Some("localhost"));
    assert_eq!(
        host(&outside, "/set").await.as_deref(),
        Some("other.example")
    );
    assert_eq!(
        here.ask(&get("/copy").host("backend.mesh")).await.status,
        200
    );
    assert_eq!(
        host(&inside, "/copy").await.as_deref(),
        Some("backend.mesh")
    );
    eventually("the copy", || async {
        host(&outside, "/copy").await.is_some()
    })
    .await;
    assert_eq!(host(&outside, "/copy").await.as_deref(), Some("localhost"));
    // `explain` agrees.
    let explained = gateway
        .ask_admin("/explain?from=dataplane/web&url=http://backend.mesh/split")
        .await
        .json();
    assert_eq!(
        explained["backends"][1]["request"]["headers"]["host"], "localhost",
        "{explained:#}"
    );
    assert_eq!(
        explained["request"]["headers"]["host"], "backend.mesh",
        "{explained:#}"
    );
}

/// "a match without a path comes after all"; and prefix `/` rewritten to `/a/b`: `/` becomes `/a/b`.
#[tokio::test]
async fn matches_without_a_path_come_last_and_the_root_is_rewritten_literally() {
    let (client, edge) = (Address::new(), Address::new());
    let backend = Backend::http1("v1").await;
    let rules = "[{matches: [{method: GET}], default: {filters: [{directResponse: {status: 418}}]}}, \
                 {matches: [{path: {type: RegularExpression, value: /r.*}}], default: {filters: [{directResponse: {status: 202}}]}}, \
                 {matches: [{path: {type: PathPrefix, value: /}, method: POST}], default: {filters: [{urlRewrite: {path: {replacePrefixMatch: /a/b}}}]}}]";
    let manifests = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &backend)
        + &calls("own", rules);
    let gateway = Gateway::of(&manifests).await;
    let at: SocketAddr = (client.ip, 10001).into();
    let mut here = Http1::connect(at).await;
    assert_eq!(here.ask(&get("/r")).await.status, 202);
    assert_eq!(here.ask(&get("/x")).await.status, 418);
    for path in ["/", "/x"] {
        assert_eq!(here.ask(&post(path, "")).await.status, 200);
    }
    let saw: Vec<String> = backend
        .saw(2)
        .await
        .into_iter()
        .map(|saw| saw.target)
        .collect();
    assert_eq!(saw, ["/a/b", "/a/b/x"]);
    for (path, status) in [("/r", 202), ("/x", 418)] {
        let explained = gateway
            .ask_admin(&format!(
                "/explain?from=dataplane/web&url=http://backend.mesh{path}"
            ))
            .await
            .json();
        assert_eq!(explained["status"], status, "{explained:#}");
    }
    // The printed protocol of an outbound is the application protocol, not the transport.
    let log = gateway.log();
    let line = |to: &str, protocol: &str, port: u16| {
        format!(
            "Dataplane mesh:default/web to MeshService mesh:default/{to}: {protocol} on {}:{port}",
            client.ip
        )
    };
    assert!(log.contains(&line("backend", "HTTP", 10001)), "{log}");
    assert!(log.contains(&line("db", "TCP", 10002)), "{log}");
}
