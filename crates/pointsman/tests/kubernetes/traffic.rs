//! From objects to traffic and statuses.

use crate::support::{Lab, Process, backend, condition, eventually, http_get, kubectl, parent};

/// The address that a proxy listens on for a Gateway.
pub fn address(proxy: &Process) -> std::net::SocketAddr {
    eventually("the proxy listens", || {
        let log = proxy.log();
        let line = log.lines().find(|line| line.contains("HTTP on "))?;
        line.rsplit(' ').next()?.parse().ok()
    })
}

#[test]
#[ignore = "needs a cluster"]
fn a_gateway_carries_traffic_and_every_object_has_its_status() {
    let lab = Lab::new("traffic");
    lab.gateway("edge", 80);
    lab.service("hello", backend("hello"));
    lab.route("hello", "edge", "hello.example");
    let controller = lab.controller("one");
    let token = lab.token(&lab.account("edge"), "pointsman");
    let proxy = lab.proxy("proxy", "edge", &token, &[&controller]);
    let address = address(&proxy);
    eventually("the route answers", || {
        let (status, body) = http_get(address, "hello.example", "/")?;
        (status == 200 && body == "hello").then_some(())
    });
    eventually("the Gateway is programmed, at the proxy's address", || {
        let gateway = lab.get("gateway", "edge");
        let status = &gateway["status"];
        let is_programmed = condition(status, "Programmed") == Some(("True", "Programmed"));
        let at = status["addresses"][0]["value"].as_str() == Some(&address.ip().to_string());
        let attached = status["listeners"][0]["attachedRoutes"] == 1;
        (is_programmed && at && attached).then_some(())
    });
    let route = lab.get("httproute", "hello");
    let own = parent(&route, &lab.controller_name).expect("an entry");
    assert_eq!(condition(own, "Accepted"), Some(("True", "Accepted")));
    assert_eq!(
        condition(own, "ResolvedRefs"),
        Some(("True", "ResolvedRefs"))
    );
    let class = lab.get("gatewayclass", &lab.namespace);
    let features = class["status"]["supportedFeatures"].as_array();
    let features = features.expect("features").iter();
    let features: Vec<&str> = features.filter_map(|one| one["name"].as_str()).collect();
    assert!(features.contains(&"HTTPRoute") && features.is_sorted());
    assert!(
        !features.iter().any(|feature| feature.starts_with("Mesh")),
        "the mesh is not captured on a cluster: {features:?}"
    );
    // A change takes effect.
    lab.service("other", backend("other"));
    let patch =
        r#"[{"op": "replace", "path": "/spec/rules/0/backendRefs/0/name", "value": "other"}]"#;
    let patched = [
        "patch",
        "httproute",
        "hello",
        "-n",
        &lab.namespace,
        "--type=json",
        "-p",
        patch,
    ];
    kubectl(&patched, "");
    eventually("the change takes effect", || {
        let (_, body) = http_get(address, "hello.example", "/")?;
        (body == "other").then_some(())
    });
}

// "One bad Gateway, route, certificate or regular expression affects nothing else."
#[test]
#[ignore = "needs a cluster"]
fn a_broken_object_affects_no_other() {
    let lab = Lab::new("broken");
    lab.gateway("edge", 80);
    lab.service("hello", backend("hello"));
    lab.route("hello", "edge", "hello.example");
    lab.apply(&format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: expression}},
          spec: {{parentRefs: [{{name: edge}}], hostnames: [hello.example], rules: [{{matches: [{{path: {{type: RegularExpression, value: '/a('}}}}]}}]}}}}
---
{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: backend}},
  spec: {{parentRefs: [{{name: edge}}], hostnames: [missing.example], rules: [{{backendRefs: [{{name: missing, port: 80}}]}}]}}}}
---
{{apiVersion: v1, kind: Secret, metadata: {{name: broken}}, type: Opaque, stringData: {{tls.crt: broken, tls.key: broken}}}}
---
{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: bad}},
  spec: {{gatewayClassName: {class}, addresses: [{{type: example.com/strange, value: x}}], listeners: [
    {{name: https, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: broken}}]}}}}]}}}}
",
        class = lab.namespace,
    ));
    let controller = lab.controller("one");
    let token = lab.token(&lab.account("edge"), "pointsman");
    let proxy = lab.proxy("proxy", "edge", &token, &[&controller]);
    let address = address(&proxy);
    eventually("the good route answers", || {
        let (_, body) = http_get(address, "hello.example", "/")?;
        (body == "hello").then_some(())
    });
    let (status, _) = http_get(address, "missing.example", "/").expect("an answer");
    assert_eq!(status, 500);
    let reason = |name: &str, kind: &str| {
        let route = lab.get("httproute", name);
        let own = parent(&route, &lab.controller_name)?;
        condition(own, kind).map(|(status, reason)| format!("{status} {reason}"))
    };
    for (name, kind, expected) in [
        ("hello", "Accepted", "True Accepted"),
        ("hello", "ResolvedRefs", "True ResolvedRefs"),
        ("expression", "Accepted", "False UnsupportedValue"),
        ("backend", "ResolvedRefs", "False BackendNotFound"),
    ] {
        eventually(&format!("{name}: {kind}={expected}"), || {
            (reason(name, kind)? == expected).then_some(())
        });
    }
    eventually("the listener without a certificate is reported", || {
        let gateway = lab.get("gateway", "bad");
        let listener = &gateway["status"]["listeners"][0];
        (condition(listener, "ResolvedRefs")? == ("False", "InvalidCertificateRef")).then_some(())
    });
    let listener = &lab.get("gateway", "edge")["status"]["listeners"][0];
    assert_eq!(
        condition(listener, "Programmed"),
        Some(("True", "Programmed"))
    );
}
