//! Kuma without Kubernetes: outbounds of Dataplanes and listeners of MeshGateways, at the addresses of their Dataplanes. Kuma on Kubernetes: requests of Pods
//! to the cluster IPs of Services.

use std::net::{IpAddr, SocketAddr};

use crate::mesh::{PORT, ask_from, connect_from, mesh_route, mesh_service, pod};
use crate::support::backend::{Backend, RecordedRequest};
use crate::support::certificates::{Authority, Handshake, TestCertificate, shown};
use crate::support::eventually;
use crate::support::gateway::{Address, Gateway};
use crate::support::http1::Http1;
use crate::support::message::*;

/// Returns a Dataplane for a backend of a service.
pub fn dataplane(service: &str, protocol: &str, version: &str, backend: &Backend) -> String {
    let (ip, port) = (backend.address.ip(), backend.address.port());
    format!(
        "---\n{{type: Dataplane, mesh: default, name: {service}-{version}, networking: {{address: {ip}, inbound: [{{port: {port}, tags: {{kuma.io/service: {service}, kuma.io/protocol: {protocol}, version: {version}}}}}]}}}}\n"
    )
}

/// Returns a client with outbounds to `backend` (port 10001) and `db` (port 10002) on its address, and a gateway.
pub fn mesh(client: IpAddr, edge: IpAddr) -> String {
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

/// Returns a policy with rules for requests to `backend`.
pub fn calls(name: &str, rules: &str) -> String {
    policy(
        "MeshHTTPRoute",
        name,
        &format!("{{to: [{{targetRef: {{kind: MeshService, name: backend}}, rules: {rules}}}]}}"),
    )
}

const TO_V2: &str = "[{kind: MeshServiceSubset, name: backend, tags: {version: v2}}]";

#[tokio::test]
async fn requests_of_a_dataplane_follow_its_policies() {
    let (client, edge) = (Address::new(), Address::new());
    let (v1, v2) = (Backend::http1("v1").await, Backend::http1("v2").await);
    let base = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &v1)
        + &dataplane("backend", "http", "v2", &v2);
    let gateway = Gateway::of(&base).await;
    let at = SocketAddr::new(client.ip, 10001);
    // Without a policy, traffic flows to all endpoints.
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

/// Waits for `count` requests and returns the last one.
async fn last(backend: &Backend, count: usize) -> RecordedRequest {
    backend.saw(count).await.pop().expect("a request")
}

/// MADR 011: "request mirroring (response is ignored)".
#[tokio::test]
async fn a_mirror_receives_a_copy() {
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

/// MADR 045's first example: `test.example.com/v2` is routed to v1.
#[tokio::test]
async fn a_mesh_gateway_routes_by_hostname() {
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

/// `resources.connectionLimit` limits concurrent connections. An idle connection makes room, one with a request in progress does not.
#[tokio::test]
async fn a_connection_limit_applies_to_its_port() {
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
    let mut second = Http1::connect(at).await;
    assert_eq!(second.ask(&get("/")).await.backend(), Some("v1"));
    // It was idle.
    first.ended().await;
    second.send("GET / HTTP/1.1\r\n").await;
    let third = Http1::connect(at).await.ask(&get("/")).await;
    assert_eq!(
        (third.status, third.reason()),
        (503, Some("TooManyConnections"))
    );
    second.send("host: x\r\n\r\n").await;
    assert_eq!(second.response().await.backend(), Some("v1"));
    // Another port has its own limit.
    let other = Http1::connect((client.ip, 10001).into())
        .await
        .ask(&get("/"))
        .await;
    assert_eq!(other.backend(), Some("v1"));
    drop(second);
    crate::support::eventually("a free place", || async {
        Http1::connect(at).await.ask(&get("/")).await.status == 200
    })
    .await;
}

/// Returns a policy in the system namespace for requests to the Service `shop`.
fn on_shop(kind: &str, rules: &str) -> String {
    format!(
        "---\n{{apiVersion: kuma.io/v1alpha1, kind: {kind}, metadata: {{name: shop, namespace: kuma-system}}, spec: {{to: [{{targetRef: {{kind: MeshService, name: shop, namespace: default}}, rules: {rules}}}]}}}}\n"
    )
}

/// Returns the namespace `checkout`, whose Pods are in the mesh, and its Pod `till`.
fn checkout(till: IpAddr) -> String {
    let namespace = "---\n{apiVersion: v1, kind: Namespace, metadata: {name: checkout, labels: {kuma.io/sidecar-injection: enabled}}}\n";
    namespace.to_owned() + &pod("till", "checkout", till)
}

const TO_POLICYS: &str =
    "backendRefs: [{kind: MeshService, name: policys, namespace: default, port: 8080}]";

/// "Kuma policy, consumer route and producer route for the same traffic: in this order".
#[tokio::test]
async fn policies_take_precedence_over_routes_for_requests_of_a_pod() {
    let (till, page, stranger) = (Address::new(), Address::new(), Address::new());
    let mut base = checkout(till.ip) + &pod("page", "default", page.ip);
    let names = ["shop", "producers", "consumers", "policys"];
    let (mut addresses, mut backends) = (Vec::new(), Vec::new());
    for name in names {
        let (address, backend) = (Address::new(), Backend::http1(name).await);
        base += &mesh_service(name, address.ip, &backend);
        addresses.push(address);
        backends.push(backend);
    }
    base += &mesh_route("producer", "default", "producers");
    base += &mesh_route("consumer", "checkout", "consumers");
    let gateway = Gateway::of(&base).await;
    let at = SocketAddr::new(addresses[0].ip, PORT);
    assert_eq!(ask_from(till.ip, at).await.backend(), Some("consumers"));

    let rules = format!(
        "[{{matches: [{{path: {{type: Exact, value: /}}}}], default: {{{TO_POLICYS}}}}}, {{matches: [{{path: {{type: Exact, value: /tea}}}}], default: {{filters: [{{type: DirectResponse, directResponse: {{status: 418}}}}]}}}}]"
    );
    gateway.write("policy.yaml", &on_shop("MeshHTTPRoute", &rules));
    crate::support::eventually("the policy", || async {
        ask_from(till.ip, at).await.backend() == Some("policys")
    })
    .await;
    // Neither client is a proxy of the mesh.
    for from in [&page, &stranger] {
        assert_eq!(ask_from(from.ip, at).await.backend(), Some("producers"));
    }
    let mut here = connect_from(till.ip, at).await;
    assert_eq!(here.ask(&get("/tea")).await.status, 418);
    assert_eq!(here.ask(&get("/other")).await.status, 404);
    // `explain` agrees, whether the URL has the Service's address or its name.
    for host in [at.to_string(), format!("shop.default:{PORT}")] {
        let ask = |from: &str, path: &str| {
            let question = format!("/explain?from={from}&url=http://{host}{path}");
            let gateway = &gateway;
            async move { gateway.ask_admin(&question).await.json() }
        };
        for (from, backend) in [("checkout/till", "policys"), ("default/page", "producers")] {
            let explained = ask(from, "/").await;
            assert_eq!(explained["backends"][0]["name"], backend, "{explained:#}");
        }
        for (path, status) in [("/tea", 418), ("/other", 404)] {
            let explained = ask("checkout/till", path).await;
            assert_eq!(explained["status"], status, "{explained:#}");
        }
    }

    gateway.remove("policy.yaml");
    crate::support::eventually("no policy", || async {
        ask_from(till.ip, at).await.backend() == Some("consumers")
    })
    .await;
}

/// A MeshTCPRoute applies to connections without HTTP, whose bytes are forwarded unchanged.
#[tokio::test]
async fn tcp_connections_of_a_pod_follow_tcp_routes() {
    let (till, shop, other) = (Address::new(), Address::new(), Address::new());
    let (own, policys) = (Backend::tcp("own").await, Backend::tcp("new").await);
    let services =
        mesh_service("shop", shop.ip, &own) + &mesh_service("policys", other.ip, &policys);
    let rules = format!("[{{default: {{{TO_POLICYS}}}}}]");
    let manifests = checkout(till.ip)
        + &services.replace("appProtocol: http", "appProtocol: tcp")
        + &on_shop("MeshTCPRoute", &rules);
    let _gateway = Gateway::of(&manifests).await;
    let at = SocketAddr::new(shop.ip, PORT);
    let mut here = connect_from(till.ip, at).await;
    assert_eq!(here.exactly(4).await.expect("a greeting"), b"new\n");
    let mut anybody = connect_from(shop.ip, at).await;
    assert_eq!(anybody.exactly(4).await.expect("a greeting"), b"own\n");
}

/// "RequestRedirect … Sidecar: unset port/path/query kept. Gateway: query stripped, unset port := listener port."
#[tokio::test]
async fn redirects_keep_unspecified_parts_of_the_url() {
    let (client, edge) = (Address::new(), Address::new());
    let v1 = Backend::http1("v1").await;
    let rules = "[{matches: [{path: {type: PathPrefix, value: /}}], default: {filters: [{type: RequestRedirect, requestRedirect: {path: /k}}]}}]";
    let manifests = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &v1)
        + &calls("own", rules)
        + &policy(
            "MeshHTTPRoute",
            "edge",
            &format!(
                "{{targetRef: {{kind: MeshGateway, name: edge}}, to: [{{targetRef: {{kind: Mesh}}, rules: {rules}}}]}}"
            ),
        );
    let _gateway = Gateway::of(&manifests).await;
    for (address, host, location) in [
        (
            (client.ip, 10001),
            "backend.mesh",
            "http://backend.mesh/k?q=1",
        ),
        (
            (client.ip, 10001),
            "backend.mesh:99",
            "http://backend.mesh:99/k?q=1",
        ),
        (
            (edge.ip, 8080),
            "shop.example",
            "http://shop.example:8080/k",
        ),
    ] {
        let answer = Http1::connect(address.into())
            .await
            .ask(&get("/x?q=1").host(host))
            .await;
        assert_eq!(answer.header("location"), Some(location), "{host}");
    }
}

/// "SNI ≠ Host on HTTPS => 404"; and a reload rereads certificates and bodies, and keeps the last valid content of those that can't be read.
#[tokio::test]
async fn a_reload_rereads_files_named_by_manifests() {
    let (client, edge) = (Address::new(), Address::new());
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let authority = Authority::new();
    let write = |identity: &TestCertificate| {
        let pem = format!("{}{}", identity.certificate, identity.key);
        std::fs::write(path("a.pem"), pem).expect("written");
    };
    let first = authority.issue(&["a.example"]);
    write(&first);
    std::fs::write(path("body"), "old").expect("written");
    let listeners = |more: &str| {
        let one = |host: &str| {
            format!(
                "{{port: 8443, protocol: HTTPS, hostname: {host}, tls: {{mode: TERMINATE, certificates: [{{file: {}}}]}}}}",
                path("a.pem").display()
            )
        };
        mesh(client.ip, edge.ip).replace(
            "{port: 8080, protocol: HTTP}",
            &format!(
                "{{port: 8080, protocol: HTTP{more}}}, {}, {}",
                one("a.example"),
                one("b.example")
            ),
        )
    };
    let tea = policy(
        "MeshHTTPRoute",
        "edge",
        &format!(
            "{{targetRef: {{kind: MeshGateway, name: edge}}, to: [{{targetRef: {{kind: Mesh}}, rules: [{{matches: [{{path: {{type: PathPrefix, value: /}}}}], default: {{filters: [{{type: DirectResponse, directResponse: {{status: 200, body: {{filename: {}}}}}}}]}}}}]}}]}}",
            path("body").display()
        ),
    );
    let gateway = Gateway::setup(&(listeners("") + &tea))
        .argument("--content-dir", &path("").to_string_lossy())
        .start()
        .await;
    let at = SocketAddr::new(edge.ip, 8443);
    assert_eq!(shown(at, "a.example").await, first.der().to_vec());
    let stream = Handshake::new(&authority, "a.example").connect(at).await;
    let mut here = Http1::over(stream);
    assert_eq!(here.ask(&get("/").host("a.example")).await.text(), "old");
    assert_eq!(here.ask(&get("/").host("b.example")).await.status, 404);

    let second = authority.issue(&["a.example"]);
    write(&second);
    std::fs::write(path("body"), "new").expect("written");
    gateway.signal("HUP");
    eventually("the new certificate", || async {
        shown(at, "a.example").await == second.der().to_vec()
    })
    .await;
    let plain = SocketAddr::new(edge.ip, 8080);
    let answer = Http1::connect(plain).await.ask(&get("/")).await;
    assert_eq!(answer.text(), "new");

    // A certificate that is half written or unreadable keeps its last valid content in effect.
    std::fs::write(path("a.pem"), &first.certificate[..200]).expect("written");
    gateway.signal("HUP");
    eventually("a word on it", || async {
        gateway
            .log()
            .contains("a section has no end; its last valid content stays in effect")
    })
    .await;
    assert_eq!(shown(at, "a.example").await, second.der().to_vec());
    std::fs::write(
        path("a.pem"),
        format!("{}{}", first.certificate, second.key),
    )
    .expect("written");
    gateway.signal("HUP");
    eventually("a word on it", || async {
        gateway.log().contains(
            "the private key does not belong to the certificate; its last valid content stays in effect",
        )
    })
    .await;
    assert_eq!(shown(at, "a.example").await, second.der().to_vec());
    std::fs::remove_file(path("a.pem")).expect("removed");
    gateway.write("main.yaml", &(listeners(", tags: {more: tags}") + &tea));
    eventually("a word on it", || async {
        gateway
            .log()
            .contains("its last valid content stays in effect")
    })
    .await;
    assert_eq!(shown(at, "a.example").await, second.der().to_vec());
}

/// The author of a direct response learns which file is missing; clients do not.
#[tokio::test]
async fn error_responses_do_not_contain_file_names() {
    let (client, edge) = (Address::new(), Address::new());
    let v1 = Backend::http1("v1").await;
    let manifests = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &v1)
        + &calls(
            "own",
            "[{matches: [{path: {type: PathPrefix, value: /}}], default: {filters: [{type: DirectResponse, directResponse: {status: 200, body: {filename: /nonexistent/secret}}}]}}]",
        );
    let gateway = Gateway::of(&manifests).await;
    let answer = Http1::connect((client.ip, 10001).into())
        .await
        .ask(&get("/"))
        .await;
    assert_eq!(answer.status, 500);
    assert!(!answer.text().contains("nonexistent"), "{}", answer.text());
    let status = gateway.ask_admin("/status").await.text();
    assert!(status.contains("/nonexistent/secret"), "{status}");
}
