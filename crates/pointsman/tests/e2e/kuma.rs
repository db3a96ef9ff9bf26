//! Kuma without Kubernetes: the outbounds of a Dataplane and the listeners of a MeshGateway, at the addresses of their Dataplanes.

use std::net::{IpAddr, SocketAddr};

use crate::support::backend::{Backend, Saw};
use crate::support::gateway::{Address, Gateway};
use crate::support::http1::Http1;
use crate::support::message::*;

/// A backend of a service, as a Dataplane.
fn dataplane(service: &str, protocol: &str, version: &str, backend: &Backend) -> String {
    let (ip, port) = (backend.address.ip(), backend.address.port());
    format!(
        "---\n{{type: Dataplane, mesh: default, name: {service}-{version}, networking: {{address: {ip}, inbound: [{{port: {port}, tags: {{kuma.io/service: {service}, kuma.io/protocol: {protocol}, version: {version}}}}}]}}}}\n"
    )
}

/// A client that calls `backend` at port 10001 and `db` at port 10002 of its address, and a gateway.
fn mesh(client: IpAddr, edge: IpAddr) -> String {
    format!(
        "---\n{{type: Mesh, name: default}}
---\n{{type: Dataplane, mesh: default, name: web, networking: {{address: {client}, inbound: [{{port: 1, tags: {{kuma.io/service: web}}}}], outbound: [{{address: {client}, port: 10001, tags: {{kuma.io/service: backend}}}}, {{address: {client}, port: 10002, tags: {{kuma.io/service: db}}}}]}}}}
---\n{{type: Dataplane, mesh: default, name: edge, networking: {{address: {edge}, gateway: {{type: BUILTIN, tags: {{kuma.io/service: edge}}}}}}}}
---\n{{type: MeshGateway, mesh: default, name: edge, selectors: [{{match: {{kuma.io/service: edge}}}}], conf: {{listeners: [{{port: 8080, protocol: HTTP}}, {{port: 9000, protocol: TCP}}]}}}}\n"
    )
}

fn policy(kind: &str, name: &str, spec: &str) -> String {
    format!("---\n{{type: {kind}, mesh: default, name: {name}, spec: {spec}}}\n")
}

/// Rules for calls to `backend`.
fn calls(name: &str, rules: &str) -> String {
    policy(
        "MeshHTTPRoute",
        name,
        &format!("{{to: [{{targetRef: {{kind: MeshService, name: backend}}, rules: {rules}}}]}}"),
    )
}

const TO_V2: &str = "[{kind: MeshServiceSubset, name: backend, tags: {version: v2}}]";

#[tokio::test]
async fn a_dataplanes_calls_follow_its_policies() {
    let (client, edge) = (Address::new(), Address::new());
    let (v1, v2) = (Backend::http1("v1").await, Backend::http1("v2").await);
    let base = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &v1)
        + &dataplane("backend", "http", "v2", &v2);
    let gateway = Gateway::of(&base).await;
    let at = SocketAddr::new(client.ip, 10001);
    // Without a policy traffic flows to all endpoints.
    let mut here = Http1::connect(at).await;
    assert_eq!(here.ask(&get("/")).await.status, 200);

    let rule = |path: &str, conf: &str| {
        format!("{{matches: [{{path: {{type: PathPrefix, value: {path}}}}}], default: {{{conf}}}}}")
    };
    let rules = [
        rule(
            "/v2",
            &format!(
                "backendRefs: {TO_V2}, filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: env, value: dev}}]}}}}, {{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-answer, value: changed}}]}}}}]"
            ),
        ),
        rule(
            "/old",
            &format!(
                "backendRefs: {TO_V2}, filters: [{{type: URLRewrite, urlRewrite: {{hostname: inner.example, path: {{type: ReplacePrefixMatch, replacePrefixMatch: /new}}}}}}]"
            ),
        ),
        rule(
            "/tea",
            "filters: [{type: DirectResponse, directResponse: {status: 418, body: {inlineString: short and stout}}}, {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: content-type, value: text/tea}]}}]",
        ),
        rule(
            "/moved",
            "filters: [{type: RequestRedirect, requestRedirect: {hostname: example.org, port: 81, statusCode: 308}}]",
        ),
        rule(
            "/nobody",
            "backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v9}}]",
        ),
        rule(
            "/unknown",
            "backendRefs: [{kind: MeshService, name: nobody}]",
        ),
        rule(
            "/file",
            "filters: [{type: DirectResponse, directResponse: {status: 200, body: {filename: /nonexistent/body}}}]",
        ),
    ];
    gateway.write(
        "policy.yaml",
        &calls("owner", &format!("[{}]", rules.join(", "))),
    );
    crate::support::eventually("the policy", || async {
        Http1::connect(at).await.ask(&get("/tea")).await.status == 418
    })
    .await;

    let before = v2.count();
    let mut here = Http1::connect(at).await;
    let answer = here.ask(&get("/v2/x")).await;
    assert_eq!(
        (answer.backend(), answer.header("x-answer")),
        (Some("v2"), Some("changed"))
    );
    assert_eq!(last(&v2, before + 1).await.header("env"), Some("dev"));
    here.ask(&get("/old/x")).await;
    let saw = last(&v2, before + 2).await;
    assert_eq!(
        (saw.target.as_str(), saw.header("host")),
        ("/new/x", Some("inner.example"))
    );
    let tea = here.ask(&get("/tea")).await;
    assert_eq!((tea.status, tea.text().as_str()), (418, "short and stout"));
    assert_eq!(tea.all("content-type"), ["text/tea"]);
    let moved = here.ask(&get("/moved")).await;
    assert_eq!(
        (moved.status, moved.header("location")),
        (308, Some("http://example.org:81/moved"))
    );
    for (path, status) in [
        ("/nobody", 503),
        ("/unknown", 500),
        ("/file", 500),
        ("/other", 404),
    ] {
        assert_eq!(here.ask(&get(path)).await.status, status, "{path}");
    }
}

/// The last of so many requests.
async fn last(backend: &Backend, count: usize) -> Saw {
    backend.saw(count).await.pop().expect("a request")
}

/// MADR 011: "request mirroring (response is ignored)".
#[tokio::test]
async fn a_copy_goes_to_the_mirror() {
    let (client, edge) = (Address::new(), Address::new());
    let (v1, v2) = (Backend::http1("v1").await, Backend::http1("v2").await);
    let rules = "[{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v1}}], filters: [{type: RequestMirror, requestMirror: {backendRef: {kind: MeshServiceSubset, name: backend, tags: {version: v2}}}}]}}]";
    let manifests = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &v1)
        + &dataplane("backend", "http", "v2", &v2)
        + &calls("r", rules);
    let _gateway = Gateway::of(&manifests).await;
    let mut here = Http1::connect((client.ip, 10001).into()).await;
    assert_eq!(here.ask(&get("/x")).await.backend(), Some("v1"));
    assert_eq!(v2.only().await.target, "/x");
}

/// MADR 045's first example, carried: `test.example.com/v2` goes to v1.
#[tokio::test]
async fn a_mesh_gateway_serves_by_hostname() {
    let (client, edge) = (Address::new(), Address::new());
    let (v1, v2) = (Backend::http1("v1").await, Backend::http1("v2").await);
    let on = |name: &str, hostname: &str, path: &str, version: &str| {
        policy(
            "MeshHTTPRoute",
            name,
            &format!(
                "{{targetRef: {{kind: MeshGateway, name: edge}}, to: [{{targetRef: {{kind: Mesh}}, hostnames: ['{hostname}'], rules: [{{matches: [{{path: {path}}}], default: {{backendRefs: [{{kind: MeshServiceSubset, name: backend, tags: {{version: {version}}}}}]}}}}]}}]}}"
            ),
        )
    };
    let manifests = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &v1)
        + &dataplane("backend", "http", "v2", &v2)
        + &on(
            "specific",
            "test.example.com",
            "{type: PathPrefix, value: /}",
            "v1",
        )
        + &on(
            "wildcard",
            "*.example.com",
            "{type: Exact, value: /v2}",
            "v2",
        );
    let _gateway = Gateway::of(&manifests).await;
    let mut here = Http1::connect((edge.ip, 8080).into()).await;
    let test = here.ask(&get("/v2").host("test.example.com")).await;
    assert_eq!(test.backend(), Some("v1"));
    let other = here.ask(&get("/v2").host("other.example.com:8080")).await;
    assert_eq!(other.backend(), Some("v2"));
    assert_eq!(
        here.ask(&get("/").host("other.example.com")).await.status,
        404
    );
}

#[tokio::test]
async fn streams_follow_tcp_routes() {
    let (client, edge) = (Address::new(), Address::new());
    let (db, other) = (Backend::tcp("db").await, Backend::tcp("other").await);
    let manifests = mesh(client.ip, edge.ip)
        + &dataplane("db", "tcp", "v1", &db)
        + &dataplane("other", "tcp", "v1", &other)
        + &policy(
            "MeshTCPRoute",
            "edge",
            "{targetRef: {kind: MeshGateway, name: edge}, to: [{targetRef: {kind: Mesh}, rules: [{default: {backendRefs: [{kind: MeshService, name: other}]}}]}]}",
        );
    let _gateway = Gateway::of(&manifests).await;
    let mut own = Http1::connect((client.ip, 10002).into()).await;
    assert_eq!(own.exactly(3).await.expect("a greeting"), b"db\n");
    let mut at_edge = Http1::connect((edge.ip, 9000).into()).await;
    assert_eq!(at_edge.exactly(6).await.expect("a greeting"), b"other\n");
}

/// `resources.connectionLimit`: so many connections at a time.
#[tokio::test]
async fn a_connection_limit_holds_for_its_port() {
    let (client, edge) = (Address::new(), Address::new());
    let v1 = Backend::http1("v1").await;
    let limited = mesh(client.ip, edge.ip).replace(
        "{port: 8080, protocol: HTTP}",
        "{port: 8080, protocol: HTTP, resources: {connectionLimit: 1}}",
    );
    let manifests = limited
        + &dataplane("backend", "http", "v1", &v1)
        + &policy(
            "MeshHTTPRoute",
            "edge",
            "{targetRef: {kind: MeshGateway, name: edge}, to: [{targetRef: {kind: Mesh}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshService, name: backend}]}}]}]}",
        );
    let _gateway = Gateway::of(&manifests).await;
    let at = SocketAddr::new(edge.ip, 8080);
    let mut first = Http1::connect(at).await;
    assert_eq!(first.ask(&get("/")).await.backend(), Some("v1"));
    let second = Http1::connect(at).await.ask(&get("/")).await;
    assert_eq!(
        (second.status, second.reason()),
        (503, Some("TooManyConnections"))
    );
    // Another port has room of its own.
    let other = Http1::connect((client.ip, 10001).into())
        .await
        .ask(&get("/"))
        .await;
    assert_eq!(other.backend(), Some("v1"));
    drop(first);
    crate::support::eventually("a free place", || async {
        Http1::connect(at).await.ask(&get("/")).await.status == 200
    })
    .await;
}
