//! MeshGateways: listeners, hostnames, and the policies on them.

use pointsman_binding::bound::{FrontendId, Protocol, TlsModeKey};
use pointsman_binding::{Change, Observation};
use pointsman_resources::{Kind, Name, ObjectKey};
use pointsman_routing::explain::Query;

use crate::{MESH, World, fate, policies};

const SPECIFIC: &str = r#"
type: MeshHTTPRoute
mesh: default
name: specific-hostname
spec:
  targetRef:
    kind: MeshGateway
    name: edge-gateway
  to:
  - targetRef:
      kind: Mesh
    hostnames:
    - test.example.com
    rules:
    - matches:
      - path:
          type: PathPrefix
          value: /
      default:
        backendRefs:
        - kind: MeshServiceSubset
          name: backend
          tags:
            version: v1
"#;

fn wildcard(hostnames: &str) -> String {
    format!(
        "\n---\n{{type: MeshHTTPRoute, mesh: default, name: wildcard-hostname, spec: {{targetRef: {{kind: MeshGateway, name: edge-gateway}}, to: [{{targetRef: {{kind: Mesh}}, hostnames: {hostnames}, rules: [{{matches: [{{path: {{type: Exact, value: /v2}}}}], default: {{backendRefs: [{{kind: MeshServiceSubset, name: backend, tags: {{version: v2}}}}]}}}}]}}]}}}}"
    )
}

/// MADR 045, "Merging example", the first: "so that requests to `test.example.com/v2` are sent to `version: v1`!"
#[test]
fn hostnames_come_before_paths() {
    let world = World::with(&format!("{SPECIFIC}{}", wildcard("['*.example.com']")));
    assert_eq!(
        fate(&world.edge("http://test.example.com:8080/v2")),
        "backend[version=v1] 100"
    );
    assert_eq!(
        fate(&world.edge("http://other.example.com:8080/v2")),
        "backend[version=v2] 100"
    );
    assert_eq!(fate(&world.edge("http://other.example.com:8080/")), "404");
}

/// MADR 045, the second: "so that requests to `test.example.com/v2` are sent to `version: v2`!. In other words, merging between hostnames is
/// not semantic and doesn't take into account wildcards. It's based on an exact string match."
#[test]
fn hostnames_merge_by_exact_string() {
    let world = World::with(&format!(
        "{SPECIFIC}{}",
        wildcard("[test.example.com, '*.example.com']")
    ));
    assert_eq!(
        fate(&world.edge("http://test.example.com:8080/v2")),
        "backend[version=v2] 100"
    );
    assert_eq!(
        fate(&world.edge("http://test.example.com:8080/v1")),
        "backend[version=v1] 100"
    );
    assert_eq!(
        fate(&world.edge("http://a.b.example.com:8080/v2")),
        "backend[version=v2] 100"
    );
}

/// MADR 045, "Precedence": "Characters in a matching non-wildcard hostname", then "Characters in a matching hostname"; "Only if rules
/// can't be sorted according to this order does the order of policies come into play."
#[test]
fn precedence_follows_hostnames_then_policies() {
    let on = |name: &str, hostname: &str, version: &str| {
        format!(
            "\n---\n{{type: MeshHTTPRoute, mesh: default, name: {name}, spec: {{targetRef: {{kind: MeshGateway, name: edge-gateway}}, to: [{{targetRef: {{kind: Mesh}}, hostnames: ['{hostname}'], rules: [{{matches: [{{path: {{type: PathPrefix, value: /}}}}], default: {{backendRefs: [{{kind: MeshServiceSubset, name: backend, tags: {{version: {version}}}}}]}}}}]}}]}}}}"
        )
    };
    let world = World::with(&format!(
        "{}{}{}",
        on("a", "*.com", "v1"),
        on("b", "*.example.com", "v2"),
        on("c", "*", "v1")
    ));
    assert_eq!(
        fate(&world.edge("http://x.example.com:8080/")),
        "backend[version=v2] 100"
    );
    assert_eq!(
        fate(&world.edge("http://example.com:8080/")),
        "backend[version=v1] 100"
    );
    assert_eq!(
        fate(&world.edge("http://example.org:8080/")),
        "backend[version=v1] 100"
    );
    let world = World::with(&format!(
        "{}{}",
        on("b", "x.com", "v1"),
        on("a", "x.com", "v2")
    ));
    assert_eq!(
        fate(&world.edge("http://x.com:8080/")),
        "backend[version=v2] 100"
    );
}

/// MADR 045, "`MeshTCPRoute` example".
#[test]
fn a_tcp_route_on_a_gateway_splits_streams() {
    let world = World::with(
        "\n---\n{type: MeshTCPRoute, mesh: default, name: edge-routes, spec: {targetRef: {kind: MeshGateway, name: edge-gateway}, to: [{targetRef: {kind: Mesh}, rules: [{default: {backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v1}, weight: 90}, {kind: MeshServiceSubset, name: backend, tags: {version: v2}, weight: 10}]}}]}]}}",
    );
    assert_eq!(
        fate(&world.edge("tcp://10.0.0.10:9000")),
        "backend[version=v1] 90, backend[version=v2] 10"
    );
    assert_eq!(
        fate(&world.edge("http://x:8080/")),
        "404",
        "HTTP listeners take MeshHTTPRoutes only"
    );
}

/// MADR 011: `MeshGatewayHTTPRoute` "attaches directly to a `MeshGateway` via `spec.targetRef`"; beside a MeshHTTPRoute "one order, merged
/// together".
#[test]
fn a_mesh_gateway_http_route_merges_with_mesh_http_routes() {
    let own = "\n---\n{type: MeshGatewayHTTPRoute, mesh: default, name: own, spec: {targetRef: {kind: MeshGateway, name: edge-gateway}, hostnames: [test.example.com], rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {filters: [{requestHeaderModifier: {set: [{name: x, value: z}]}}], backendRefs: [{kind: MeshService, name: backend}]}}]}}";
    let world = World::with(&format!("{SPECIFIC}{own}"));
    let found = world.edge("http://test.example.com:8080/");
    // `own` comes before `specific-hostname` by name.
    assert_eq!(fate(&found), "backend 100");
    assert_eq!(policies(&found), ["own"]);
}

/// "`tags` = only listeners whose merged tags contain them".
#[test]
fn listener_tags_are_selected() {
    let on = |tags: &str| {
        World::with(&SPECIFIC.replace(
            "name: edge-gateway",
            &format!("name: edge-gateway\n    tags: {tags}"),
        ))
    };
    let url = "http://test.example.com:8080/";
    assert_eq!(
        fate(&on("{port: http-8080}").edge(url)),
        "backend[version=v1] 100"
    );
    assert_eq!(
        fate(&on("{kuma.io/service: edge-gateway, port: http-8080}").edge(url)),
        "backend[version=v1] 100"
    );
    assert_eq!(fate(&on("{port: http-9090}").edge(url)), "404");
}

fn gateway(listeners: &str) -> String {
    let gateway = format!(
        "{{type: MeshGateway, mesh: default, name: edge-gateway, selectors: [{{match: {{kuma.io/service: edge-gateway}}}}], conf: {{listeners: {listeners}}}}}"
    );
    let mut parts: Vec<&str> = MESH.split("\n---\n").collect();
    parts.pop();
    format!("{}\n---\n{gateway}", parts.join("\n---\n"))
}

/// "Same port is collapsible: one protocol per port, distinct hostnames"; no other listener is tried after the selected one.
#[test]
fn listeners_of_one_port_share_it_by_hostname() {
    let mesh = gateway(
        "[{port: 8080, protocol: HTTP, hostname: a.example.com, tags: {l: a}, resources: {connectionLimit: 7}}, {port: 8080, protocol: HTTP, hostname: '*.example.com', tags: {l: all}, resources: {connectionLimit: 7}}]",
    );
    let on = |name: &str, tag: &str, version: &str| {
        format!(
            "\n---\n{{type: MeshHTTPRoute, mesh: default, name: {name}, spec: {{targetRef: {{kind: MeshGateway, name: edge-gateway, tags: {{l: {tag}}}}}, to: [{{targetRef: {{kind: Mesh}}, rules: [{{matches: [{{path: {{type: PathPrefix, value: /{version}}}}}], default: {{backendRefs: [{{kind: MeshServiceSubset, name: backend, tags: {{version: {version}}}}}]}}}}]}}]}}}}"
        )
    };
    let world = World::of(&format!(
        "{mesh}{}{}",
        on("a", "a", "v1"),
        on("b", "all", "v2")
    ));
    assert_eq!(
        fate(&world.edge("http://a.example.com:8080/v1")),
        "backend[version=v1] 100"
    );
    assert_eq!(fate(&world.edge("http://a.example.com:8080/v2")), "404");
    assert_eq!(
        fate(&world.edge("http://b.example.com:8080/v2")),
        "backend[version=v2] 100"
    );
    assert_eq!(fate(&world.edge("http://example.com:8080/v2")), "404");
    let limits: Vec<_> = world
        .tables
        .frontends()
        .map(|t| t.frontend())
        .filter(|f| f.port == 8080)
        .map(|f| f.connection_limit)
        .collect();
    assert_eq!(limits, [Some(7), Some(7)]);
}

#[test]
fn tls_is_terminated_or_passed_through() {
    let made = rcgen::generate_simple_self_signed(vec!["a.example.com".to_owned()])
        .expect("a certificate");
    let pem = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
    let mesh = gateway(&format!(
        "[{{port: 8443, protocol: HTTPS, hostname: a.example.com, tls: {{mode: TERMINATE, certificates: [{{inlineString: {pem:?}}}]}}}}, {{port: 9443, protocol: TLS, hostname: b.example.com, tls: {{mode: PASSTHROUGH}}}}, {{port: 7443, protocol: HTTPS, tls: {{mode: TERMINATE, certificates: [{{secret: missing}}]}}}}]"
    ));
    let world = World::of(&format!(
        "{mesh}\n---\n{}",
        SPECIFIC.replace("test.example.com", "a.example.com")
    ));
    let found = world.edge("https://a.example.com:8443/");
    assert_eq!(fate(&found), "backend[version=v1] 100");
    assert_eq!(
        found.response.expect("a response").headers["strict-transport-security"],
        "max-age=31536000; includeSubDomains"
    );
    let protocols: Vec<_> = world
        .tables
        .frontends()
        .map(|t| t.frontend())
        .filter(|f| matches!(f.id, FrontendId::Listener { .. }))
        .map(|f| (f.port, f.protocol, f.tls.is_some()))
        .collect();
    assert_eq!(
        protocols,
        [
            (8443, Protocol::Https, true),
            (9443, Protocol::Tls(TlsModeKey::Passthrough), false)
        ]
    );
    let said = world.conditions(Kind::MeshGateway, "edge-gateway");
    assert!(
        said.iter()
            .any(|c| c.contains("InvalidCertificateRef: tls.certificates[0]: neither Secret mesh:default/missing nor Secret kuma-system/missing exists")),
        "{said:?}"
    );
}

/// "reachable from other meshes (and own) at `hostname:port`"; "refused from outside any mesh".
#[test]
fn a_cross_mesh_listener_is_for_proxies_of_all_meshes() {
    let mesh = gateway("[{port: 8080, protocol: HTTP, hostname: cross.internal, crossMesh: true}]")
        .replace("{type: Mesh, name: default}", "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}");
    let away = "\n---\n{type: Mesh, name: away}\n---\n{type: Dataplane, mesh: away, name: far-1, networking: {address: 10.9.0.1, inbound: [{port: 80, tags: {kuma.io/service: far}}]}}";
    let route = SPECIFIC.replace("test.example.com", "cross.internal");
    let world = World::of(&format!("{mesh}{away}\n---\n{route}"));
    let mut query = Query::new("http://cross.internal:8080/").expect("a URL");
    query.dataplane = Some(ObjectKey::new(Kind::Dataplane, "mesh:away", "far-1"));
    assert_eq!(fate(&world.ask(&query)), "backend[version=v1] 100");
    query.dataplane = None;
    assert!(fate(&world.ask(&query)).starts_with("NoFrontend"));
    // "generated hostname if unset"
    let unnamed = mesh.replace("hostname: cross.internal, ", "");
    let world = World::of(&format!(
        "{unnamed}{away}\n---\n{}",
        route.replace("cross.internal", "\"*\"")
    ));
    let url = "http://internal.edge-gateway.default.mesh:8080/";
    let mut query = Query::new(url).expect("a URL");
    query.dataplane = Some(ObjectKey::new(Kind::Dataplane, "mesh:away", "far-1"));
    assert_eq!(fate(&world.ask(&query)), "backend[version=v1] 100");
}

#[test]
fn a_gateway_chooses_the_mesh_gateway_with_the_best_selector() {
    let more = "\n---\n{type: MeshGateway, mesh: default, name: closer, selectors: [{match: {kuma.io/service: edge-gateway, zone: one}}], conf: {listeners: [{port: 7000, protocol: HTTP}]}}";
    let mesh = MESH.replace(
        "tags: {kuma.io/service: edge-gateway}}}",
        "tags: {kuma.io/service: edge-gateway, zone: one}}}",
    );
    let world = World::of(&format!("{mesh}{more}"));
    assert!(
        world.conditions(Kind::MeshGateway, "closer")[0]
            .contains("served by Dataplane mesh:default/edge-1")
    );
    assert!(
        world.conditions(Kind::MeshGateway, "edge-gateway")[0].contains("not served by any proxy")
    );
}

/// `hostToBackendHostname`: Host is set to that of the selected backend.
#[test]
fn the_host_may_become_the_backends() {
    let world = World::with("
{type: MeshExternalService, mesh: default, name: httpbin, spec: {match: {type: HostnameGenerator, port: 80, protocol: http}, endpoints: [{address: httpbin.org, port: 80}]}}
---
{type: MeshHTTPRoute, mesh: default, name: r, spec: {targetRef: {kind: MeshGateway, name: edge-gateway}, to: [{targetRef: {kind: Mesh}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {filters: [{type: URLRewrite, urlRewrite: {hostToBackendHostname: true}}], backendRefs: [{kind: MeshExternalService, name: httpbin}, {kind: MeshService, name: backend}]}}]}]}}");
    let found = world.edge("http://shop.example:8080/");
    assert_eq!(
        found.backends[0].request.as_ref().expect("its own").headers["host"],
        "httpbin.org"
    );
    assert_eq!(found.backends[0].endpoints, ["httpbin.org:80"]);
    assert!(found.backends[1].request.is_none());
}

/// MADR 045: "It's based on an exact string match." A missing hostname and `*` match the same hosts but are not merged. Of equal matches, that of the policy
/// with the higher precedence is used.
#[test]
fn different_spellings_of_all_hosts_are_not_merged() {
    let policy = |name: &str, hostnames: &str, default: &str| {
        format!(
            "\n---\n{{type: MeshHTTPRoute, mesh: default, name: {name}, spec: {{targetRef: {{kind: MeshGateway, name: edge-gateway}}, to: [{{targetRef: {{kind: Mesh}}, hostnames: {hostnames}, rules: [{{matches: [{{path: {{type: PathPrefix, value: /m}}}}], default: {{backendRefs: [{{kind: MeshServiceSubset, name: backend, tags: {{version: {default}}}}}], filters: [{{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-by, value: {name}}}]}}}}]}}}}]}}]}}}}"
        )
    };
    for (first, second) in [
        ("[]", "['*']"),
        ("['*']", "[]"),
        ("[A.example]", "[a.example]"),
    ] {
        let world = World::with(&format!(
            "{}{}",
            policy("a", first, "v1"),
            policy("b", second, "v2")
        ));
        let found = world.edge("http://a.example:8080/m");
        assert_eq!(policies(&found), ["a"], "{first} {second}");
        assert_eq!(fate(&found), "backend[version=v1] 100");
        let headers = &found.response.as_ref().expect("a header").headers;
        assert_eq!(headers["x-by"], "a");
    }
}

/// A proxy's own tags are part of its listeners' tags, so different policies may apply to two proxies of one MeshGateway.
#[test]
fn the_merged_rules_of_a_proxy_are_its_own() {
    let mut yaml = MESH.replace(
        "tags: {kuma.io/service: edge-gateway}}}",
        "tags: {kuma.io/service: edge-gateway, region: eu}}}",
    );
    yaml += "\n---\n{type: Dataplane, mesh: default, name: edge-2, networking: {address: 10.0.0.20, gateway: {type: BUILTIN, tags: {kuma.io/service: edge-gateway, region: us}}}}";
    for region in ["eu", "us"] {
        yaml += &format!(
            "\n---\n{{type: MeshHTTPRoute, mesh: default, name: {region}, spec: {{targetRef: {{kind: MeshGateway, name: edge-gateway, tags: {{region: {region}}}}}, to: [{{targetRef: {{kind: Mesh}}, rules: [{{matches: [{{path: {{prefix: /}}}}], default: {{filters: [{{directResponse: {{status: 200}}}}]}}}}]}}]}}}}"
        );
    }
    let world = World::of(&yaml);
    for (proxy, region) in [("edge-1", "eu"), ("edge-2", "us")] {
        let key = ObjectKey::new(Kind::Dataplane, "mesh:default", proxy);
        let rules = world.binder.merged_rules(&key);
        let from: Vec<_> = rules[0].rules[0]
            .from
            .iter()
            .map(|source| source.policy_name())
            .collect();
        assert_eq!(from, [region], "{proxy}");
        let ports = world.binder.gateway_name_of(&key).expect("a gateway");
        let mut query = Query::new("http://shop.example:8080/").expect("a URL");
        query.gateway = Some((ports, None));
        assert_eq!(policies(&world.ask(&query)), [region], "{proxy}");
    }
}

/// "mTLS must be enabled for crossMesh-enabled MeshGateways".
#[test]
fn a_cross_mesh_listener_needs_the_meshs_mtls() {
    let mesh = gateway("[{port: 8080, protocol: HTTP, crossMesh: true}]");
    let world = World::of(&mesh);
    let said = world.conditions(Kind::MeshGateway, "edge-gateway");
    assert!(
        said.iter().any(|c| c.starts_with("Accepted=false/UnsupportedValue: mTLS must be enabled for crossMesh-enabled MeshGateways")),
        "{said:?}"
    );
    assert!(fate(&world.edge("http://x:8080/")).starts_with("NoFrontend"));
}

/// "Without a limit" is 0, and the listeners of a port share theirs.
#[test]
fn a_connection_limit_is_that_of_the_port() {
    let listeners = |first: u32, second: u32| {
        gateway(&format!(
            "[{{port: 8080, protocol: HTTP, hostname: a.example, resources: {{connectionLimit: {first}}}}}, {{port: 8080, protocol: HTTP, hostname: b.example, resources: {{connectionLimit: {second}}}}}]"
        ))
    };
    for (first, second, wanted) in [(0, 0, None), (0, 7, Some(7)), (7, 0, Some(7))] {
        let world = World::of(&listeners(first, second));
        let limits: Vec<_> = world
            .tables
            .frontends()
            .map(|table| table.frontend())
            .filter(|f| f.port == 8080)
            .map(|f| f.connection_limit)
            .collect();
        assert_eq!(limits, [wanted, wanted], "{first} {second}");
    }
}

/// Reports of the proxies of a MeshGateway determine the status of its listeners: a listener that no proxy can serve is not programmed.
#[test]
fn observations_of_a_listener_are_reported_in_its_status() {
    let name = Name::new("mesh:default", "edge-1");
    let id = FrontendId::Listener {
        gateway: name.clone(),
        owner: ObjectKey::new(Kind::MeshGateway, "mesh:default", "edge-gateway"),
        listener: "8080".into(),
    };
    let address = [10, 0, 0, 10].into();
    let mut world = World::with("{type: Mesh, name: more}");
    let mut seen = Observation {
        addresses: vec![address],
        ..Observation::default()
    };
    world.apply([Change::Observe(name.clone(), Some(seen.clone()))]);
    let said = |world: &World| world.conditions(Kind::MeshGateway, "edge-gateway");
    assert!(
        said(&world).iter().all(|c| !c.contains("=false")),
        "{:?}",
        said(&world)
    );
    seen.unbound
        .insert(id.clone(), "another program listens there".to_owned());
    world.apply([Change::Observe(name.clone(), Some(seen.clone()))]);
    let wanted = "Programmed=false/PortUnavailable: Dataplane mesh:default/edge-1: another program listens there";
    assert!(
        said(&world).iter().any(|c| c == wanted),
        "{:?}",
        said(&world)
    );
    seen.unbound.clear();
    seen.faulty
        .insert(id, "Secret x: the key is another's".to_owned());
    world.apply([Change::Observe(name, Some(seen))]);
    let wanted = "ResolvedRefs=false/InvalidCertificateRef: Secret x: the key is another's";
    assert!(
        said(&world).iter().any(|c| c == wanted),
        "{:?}",
        said(&world)
    );
}

/// Meshes without Kubernetes store certificates in `type: Secret`.
#[test]
fn a_universal_secret_may_contain_a_certificate() {
    use base64::Engine;
    let made = rcgen::generate_simple_self_signed(vec!["a.example.com".to_owned()])
        .expect("a certificate");
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let data = base64::engine::general_purpose::STANDARD.encode(pem);
    let mesh = gateway(
        "[{port: 8443, protocol: HTTPS, tls: {mode: TERMINATE, certificates: [{secret: cert}]}}]",
    );
    for (of, resolved) in [("default", true), ("other", false)] {
        let secret = format!("\n---\n{{type: Secret, mesh: {of}, name: cert, data: {data}}}");
        let world = World::of(&format!("{mesh}{secret}"));
        let said = world.conditions(Kind::MeshGateway, "edge-gateway");
        assert_eq!(
            said.iter().all(|c| !c.contains("=false")),
            resolved,
            "{said:?}"
        );
    }
}

/// A certificate and its key may be in separate fields, with or without a final line break.
#[test]
fn a_certificate_and_its_key_are_read_apart() {
    let made = rcgen::generate_simple_self_signed(vec!["a.example.com".to_owned()])
        .expect("a certificate");
    let indent = |pem: String| pem.trim_end().replace('\n', "\n    ");
    let secret = format!(
        "\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: cert, namespace: kuma-system}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |-\n    {}\n  tls.key: |-\n    {}\n",
        indent(made.cert.pem()),
        indent(made.signing_key.serialize_pem())
    );
    let mesh = gateway(
        "[{port: 8443, protocol: HTTPS, tls: {mode: TERMINATE, certificates: [{secret: cert}]}}]",
    );
    let world = World::of(&format!("{mesh}{secret}"));
    let said = world.conditions(Kind::MeshGateway, "edge-gateway");
    assert!(said.iter().all(|c| !c.contains("=false")), "{said:?}");
}

/// "reachable from other meshes at `hostname:port`": by an outbound, never as a backend of a rule.
#[test]
fn a_mesh_tag_of_a_backend_does_not_lead_into_that_mesh() {
    let route = crate::route(
        "r",
        "{kind: Mesh}",
        "[{matches: [{path: {prefix: /}}], default: {backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {kuma.io/mesh: default}}]}}]",
    );
    let world = World::with(&route);
    assert_eq!(
        fate(&world.from("web-1", "http://127.0.0.1:10001/")),
        "backend[kuma.io/mesh=default] 100 (500)"
    );
    let said = world.conditions(Kind::MeshHTTPRoute, "r");
    assert!(
        said[1].contains("a crossMesh listener can't be a backend; call it through an outbound"),
        "{said:?}"
    );
}

/// Two meshes in one folder: a policy applies only to the services of its own mesh.
#[test]
fn a_policy_is_for_destinations_of_its_own_mesh() {
    let service = |mesh: &str| {
        format!(
            "\n---\n{{type: MeshService, mesh: {mesh}, name: shop, spec: {{selector: {{dataplaneTags: {{kuma.io/service: backend}}}}, ports: [{{port: 80, targetPort: 3001, appProtocol: http}}]}}}}"
        )
    };
    let caller = |mesh: &str| {
        format!(
            "\n---\n{{type: Dataplane, mesh: {mesh}, name: caller, networking: {{address: 10.0.0.77, inbound: [{{port: 1, tags: {{kuma.io/service: c}}}}], outbound: [{{port: 10001, backendRef: {{kind: MeshService, name: shop, port: 80}}}}]}}}}"
        )
    };
    let policy = |mesh: &str, status: u16| {
        format!(
            "\n---\n{{type: MeshHTTPRoute, mesh: {mesh}, name: p, spec: {{to: [{{targetRef: {{kind: MeshService, name: shop}}, rules: [{{matches: [{{path: {{prefix: /}}}}], default: {{filters: [{{directResponse: {{status: {status}}}}}]}}}}]}}]}}}}"
        )
    };
    let mut yaml = MESH.to_owned();
    for (mesh, status) in [("default", 201), ("away", 202)] {
        yaml += &(service(mesh) + &caller(mesh) + &policy(mesh, status));
    }
    let world = World::of(&yaml);
    for (mesh, status) in [("default", "201"), ("away", "202")] {
        let mut query = Query::new("http://127.0.0.1:10001/").expect("a URL");
        query.dataplane = Some(ObjectKey::new(
            Kind::Dataplane,
            format!("mesh:{mesh}"),
            "caller",
        ));
        assert_eq!(fate(&world.ask(&query)), status);
    }
    let key = ObjectKey::new(Kind::MeshHTTPRoute, "mesh:away", "p");
    let status = world
        .binder
        .status(&key)
        .expect("a status")
        .merge("", None, "now");
    let reached = status["reaches"].to_string();
    assert!(!reached.contains("mesh:default"), "{reached}");
}
