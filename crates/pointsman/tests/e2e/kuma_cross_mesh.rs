//! Kuma gateways for the proxies of all meshes (`crossMesh`), and the addresses of Kuma gateways.

use std::net::{IpAddr, SocketAddr};

use crate::support::backend::Backend;
use crate::support::certificates::{Authority, gullible};
use crate::support::eventually;
use crate::support::gateway::{Address, Gateway};
use crate::support::http1::Http1;
use crate::support::message::*;

const MTLS: &str = ", mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}";

/// Returns mesh `expose` with `echo` and a cross-mesh gateway on port 9080 (9090 for TCP), and a client of the gateway in each of the given meshes.
fn meshes(gateway: IpAddr, echo: &Backend, clients: &[(&str, &str, IpAddr)]) -> String {
    let (ip, port) = (echo.address.ip(), echo.address.port());
    let mut yaml = format!(
        "---\n{{type: Mesh, name: expose{MTLS}}}
---\n{{type: Dataplane, mesh: expose, name: echo, networking: {{address: {ip}, inbound: [{{port: {port}, tags: {{kuma.io/service: echo, kuma.io/protocol: http}}}}]}}}}
---\n{{type: Dataplane, mesh: expose, name: across-1, networking: {{address: {gateway}, gateway: {{type: BUILTIN, tags: {{kuma.io/service: across}}}}}}}}
---\n{{type: MeshGateway, mesh: expose, name: across, selectors: [{{match: {{kuma.io/service: across}}}}], conf: {{listeners: [{{port: 9080, protocol: HTTP, crossMesh: true, hostname: gateway.mesh, tags: {{kind: requests}}}}, {{port: 9090, protocol: TCP, crossMesh: true, tags: {{kind: streams}}}}]}}}}
---\n{{type: MeshHTTPRoute, mesh: expose, name: requests, spec: {{targetRef: {{kind: MeshGateway, name: across}}, to: [{{targetRef: {{kind: Mesh}}, rules: [{{matches: [{{path: {{type: PathPrefix, value: /}}}}], default: {{backendRefs: [{{kind: MeshService, name: echo}}]}}}}]}}]}}}}
---\n{{type: MeshTCPRoute, mesh: expose, name: streams, spec: {{targetRef: {{kind: MeshGateway, name: across}}, to: [{{targetRef: {{kind: Mesh}}, rules: [{{default: {{backendRefs: [{{kind: MeshService, name: echo}}]}}}}]}}]}}}}\n"
    );
    for (mesh, more, client) in clients {
        let outbound = |port: u16, kind: &str| {
            format!(
                "{{address: {client}, port: {port}, tags: {{kuma.io/service: across, kuma.io/mesh: expose, kind: {kind}}}}}"
            )
        };
        if *mesh != "expose" {
            yaml += &format!("---\n{{type: Mesh, name: {mesh}{more}}}\n");
        }
        yaml += &format!(
            "---\n{{type: Dataplane, mesh: {mesh}, name: client, networking: {{address: {client}, inbound: [{{port: 1, tags: {{kuma.io/service: client}}}}], outbound: [{}, {}, {{address: {client}, port: 7000, tags: {{kuma.io/service: echo, kuma.io/mesh: expose}}}}]}}}}\n",
            outbound(9080, "requests"),
            outbound(9090, "streams")
        );
    }
    yaml
}

/// "reachable from other meshes (and own) at `hostname:port`; refused from outside any mesh".
#[tokio::test]
async fn only_proxies_of_meshes_may_connect_to_a_cross_mesh_gateway() {
    let [gateway, own, other, plain] = [(); 4].map(|()| Address::new());
    let echo = Backend::http1("echo").await;
    let clients = [
        ("expose", "", own.ip),
        ("consume", MTLS, other.ip),
        ("plain", "", plain.ip),
    ];
    let _running = Gateway::of(&meshes(gateway.ip, &echo, &clients)).await;
    let ask = get("/x").host("gateway.mesh");
    for client in [own.ip, other.ip] {
        let mut here = Http1::connect((client, 9080).into()).await;
        for _ in 0..3 {
            let answer = here.ask(&ask).await;
            assert_eq!((answer.status, answer.backend()), (200, Some("echo")));
        }
        // TCP connections too. They carry HTTP requests here, which the listener does not parse.
        let mut here = Http1::connect((client, 9090).into()).await;
        assert_eq!(
            here.ask(&get("/").host("any")).await.backend(),
            Some("echo")
        );
        // A service that is not a gateway is reachable neither from another mesh, nor with its mesh's name from its own mesh.
        let nobody = Http1::connect((client, 7000).into())
            .await
            .try_ask(&ask)
            .await;
        assert!(nobody.is_err(), "{nobody:?}");
    }
    let seen = echo.saw(8).await.pop().expect("a request");
    assert!(
        seen.header("x-forwarded-proto")
            .is_none_or(|proto| proto == "http")
    );
    let mut here = Http1::connect((own.ip, 9080).into()).await;
    assert_eq!(here.ask(&get("/").host("else.where")).await.status, 404);

    // A proxy of a mesh without mutual TLS has no certificate.
    let away = Http1::connect((plain.ip, 9080).into())
        .await
        .ask(&ask)
        .await;
    assert_eq!((away.status, away.reason()), (503, Some("NoMutualTls")));
    // Clients outside of meshes have none either, in plaintext or with TLS.
    let open = Http1::connect((gateway.ip, 9080).into())
        .await
        .ask(&ask)
        .await;
    assert_eq!((open.status, open.reason()), (400, Some("NotTls")));
    let stranger = Authority::new().issue(&["gateway.mesh"]);
    for identity in [None, Some(&stranger)] {
        // In TLS 1.3, the client's handshake is complete before the server verifies its certificate.
        let stream = gullible((gateway.ip, 9080).into(), "gateway.mesh", identity).await;
        let answer = Http1::over(stream).try_ask(&ask).await;
        assert!(answer.is_err(), "{answer:?}");
    }
    assert_eq!(echo.count(), 8);
}

/// With a port offset, proxies connect to the gateway's actual address; and changes take effect while `run` is active.
#[tokio::test]
async fn proxies_connect_to_the_actual_address_of_the_gateway() {
    let [gateway, moved, client] = [(); 3].map(|()| Address::new());
    let echo = Backend::http1("echo").await;
    let clients = [("consume", MTLS, client.ip)];
    let running = Gateway::setup(&meshes(gateway.ip, &echo, &clients))
        .argument("--port-offset", "100")
        .start()
        .await;
    let at = SocketAddr::new(client.ip, 9180);
    let ask = get("/x").host("gateway.mesh");
    assert_eq!(
        Http1::connect(at).await.ask(&ask).await.backend(),
        Some("echo")
    );
    // Mutual TLS is disabled and enabled again.
    let without = meshes(moved.ip, &echo, &clients).replacen(MTLS, "", 1);
    running.write("main.yaml", &without);
    eventually("nobody listens", || async {
        Http1::connect(at).await.try_ask(&ask).await.is_err()
    })
    .await;
    running.write("main.yaml", &meshes(moved.ip, &echo, &clients));
    eventually("the gateway at its new address", || async {
        let answer = Http1::connect(at).await.try_ask(&ask).await;
        answer.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    assert!(Http1::try_connect((gateway.ip, 9180).into()).await.is_err());
    assert!(Http1::try_connect((moved.ip, 9180).into()).await.is_ok());
}

fn kubernetes(kind: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: kuma.io/v1alpha1, kind: {kind}, metadata: {{name: edge, namespace: demo, labels: {{kuma.io/mesh: default}}}}, spec: {spec}}}
---\n{{apiVersion: kuma.io/v1alpha1, kind: MeshGateway, mesh: default, metadata: {{name: edge}}, spec: {{selectors: [{{match: {{kuma.io/service: edge_demo_svc}}}}], conf: {{listeners: [{{port: 8080, protocol: HTTP}}]}}}}}}
---\n{{apiVersion: kuma.io/v1alpha1, kind: MeshHTTPRoute, metadata: {{name: tea, namespace: kuma-system}}, spec: {{targetRef: {{kind: MeshGateway, name: edge}}, to: [{{targetRef: {{kind: Mesh}}, rules: [{{matches: [{{path: {{type: PathPrefix, value: /}}}}], default: {{filters: [{{type: DirectResponse, directResponse: {{status: 418}}}}]}}}}]}}]}}}}\n"
    )
}

/// On Kubernetes, a builtin gateway is a Dataplane with an address, or a MeshGatewayInstance, which is assigned an address like a Gateway.
#[tokio::test]
async fn gateways_in_kubernetes_form_are_served() {
    let address = Address::new();
    let dataplane = kubernetes(
        "Dataplane",
        &format!(
            "{{networking: {{address: {}, gateway: {{type: BUILTIN, tags: {{kuma.io/service: edge_demo_svc}}}}}}}}",
            address.ip
        ),
    );
    let _running = Gateway::of(&dataplane).await;
    let answer = Http1::connect((address.ip, 8080).into())
        .await
        .ask(&get("/"))
        .await;
    assert_eq!(answer.status, 418);

    let instance = kubernetes(
        "MeshGatewayInstance",
        "{replicas: 1, serviceType: ClusterIP}",
    );
    let running = Gateway::of(&instance).await;
    let given = running.at(8080);
    assert_eq!(Http1::connect(given).await.ask(&get("/")).await.status, 418);
    let status = running.ask_admin("/status").await.text();
    assert!(
        status.contains(&format!("\"value\":\"{}\"", given.ip())),
        "{status}"
    );
}

/// `--dataplane` selects the Dataplanes of one machine from manifests that all machines share.
#[tokio::test]
async fn the_dataplane_flag_selects_the_dataplanes_of_this_machine() {
    let [gateway, first, second] = [(); 3].map(|()| Address::new());
    let echo = Backend::http1("echo").await;
    let clients = [("consume", MTLS, first.ip), ("other", MTLS, second.ip)];
    let yaml = meshes(gateway.ip, &echo, &clients)
        .replace("mesh: other, name: client", "mesh: other, name: elsewhere");
    let _running = Gateway::setup(&yaml)
        .argument("--dataplane", "client")
        .argument("--dataplane", "across-1")
        .start()
        .await;
    let ask = get("/x").host("gateway.mesh");
    assert_eq!(
        Http1::connect((first.ip, 9080).into())
            .await
            .ask(&ask)
            .await
            .status,
        200
    );
    assert!(Http1::try_connect((second.ip, 9080).into()).await.is_err());
}

/// The certificate presented in the handshake counts: an existing plaintext connection is not accepted once its listener becomes `crossMesh`.
#[tokio::test]
async fn an_existing_connection_is_not_accepted_by_a_listener_that_becomes_cross_mesh() {
    let [gateway, client] = [(); 2].map(|()| Address::new());
    let echo = Backend::http1("echo").await;
    let clients = [("consume", MTLS, client.ip)];
    let guarded = meshes(gateway.ip, &echo, &clients);
    let open = guarded.replace("protocol: HTTP, crossMesh: true", "protocol: HTTP");
    let running = Gateway::of(&open).await;
    let ask = get("/x").host("gateway.mesh");
    let mut early = Http1::connect((gateway.ip, 9080).into()).await;
    assert_eq!(early.ask(&ask).await.backend(), Some("echo"));
    running.write("main.yaml", &guarded);
    let at = SocketAddr::new(client.ip, 9080);
    eventually("the guard", || async {
        let answer = Http1::connect(at).await.try_ask(&ask).await;
        answer.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    let late = early.ask(&ask).await;
    assert_eq!((late.status, late.backend()), (404, None));
}

/// A Dataplane keeps its address: a later one with the same address gets no listener, regardless of its name.
#[tokio::test]
async fn a_new_dataplane_does_not_take_an_address_in_use() {
    let own = Address::new();
    let (a, b) = (Backend::http1("a").await, Backend::http1("b").await);
    let client = |name: &str, service: &str| {
        format!(
            "---\n{{type: Dataplane, mesh: default, name: {name}, networking: {{address: {}, inbound: [{{port: 1, tags: {{kuma.io/service: {name}}}}}], outbound: [{{address: {0}, port: 9000, tags: {{kuma.io/service: {service}}}}}]}}}}\n",
            own.ip
        )
    };
    let offer = |name: &str, backend: &Backend| {
        format!(
            "---\n{{type: Dataplane, mesh: default, name: {name}, networking: {{address: {}, inbound: [{{port: {}, tags: {{kuma.io/service: {name}, kuma.io/protocol: http}}}}]}}}}\n",
            backend.address.ip(),
            backend.address.port()
        )
    };
    let base = offer("a", &a) + &offer("b", &b);
    let running = Gateway::of(&(base.clone() + &client("web-2", "a"))).await;
    let at = SocketAddr::new(own.ip, 9000);
    assert_eq!(
        Http1::connect(at).await.ask(&get("/")).await.backend(),
        Some("a")
    );
    running.write("earlier.yaml", &client("web-1", "b"));
    eventually("a word on it", || async {
        running.log().contains("is not bound")
    })
    .await;
    assert_eq!(
        Http1::connect(at).await.ask(&get("/")).await.backend(),
        Some("a")
    );
    // An outbound with another destination keeps the address.
    running.write(
        "main.yaml",
        &(base.clone()
            + &client("web-2", "a").replace("service: a}", "service: a, kuma.io/protocol: http}")),
    );
    eventually("the change", || async {
        let config = running.ask_admin("/config").await.text();
        config.contains("kuma.io/protocol")
    })
    .await;
    assert_eq!(
        Http1::connect(at).await.ask(&get("/")).await.backend(),
        Some("a")
    );
    running.write("main.yaml", &base);
    eventually("its turn", || async {
        let answer = match Http1::try_connect(at).await {
            Ok(mut here) => here.try_ask(&get("/")).await.ok(),
            Err(_) => None,
        };
        answer.is_some_and(|answer| answer.backend() == Some("b"))
    })
    .await;
}
