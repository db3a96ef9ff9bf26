//! Objects of Kuma in several versions each, for random changes.

/// All objects: universal ones in the mesh `m`, and some on Kubernetes in the namespaces `a` and `b`.
pub fn objects() -> Vec<Vec<String>> {
    let mut all = vec![
        strings(["{type: Mesh, name: m}", "{type: Mesh, name: m, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}"]),
        strings(["{type: Mesh, name: o, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}", "{type: Mesh, name: o}"]),
        strings(["kuma.io/mesh: m", "kuma.io/mesh: m, l: one", "kuma.io/mesh: o"].map(|mesh| format!("{{type: Dataplane, mesh: o, name: far, networking: {{address: 10.5.0.9, inbound: [{{port: 1, tags: {{kuma.io/service: far}}}}], outbound: [{{port: 10009, tags: {{kuma.io/service: edge, {mesh}}}}}]}}}}"))),
        strings(["edge", "other"].map(|service| format!("{{apiVersion: kuma.io/v1alpha1, kind: MeshGatewayInstance, metadata: {{name: i, namespace: a, labels: {{kuma.io/mesh: m}}}}, spec: {{tags: {{kuma.io/service: {service}}}}}}}"))),
        gateways(),
        strings(["http", "tcp"].map(|protocol| universal("MeshService", "x", &format!("{{labels: {{app: x}}, spec: {{selector: {{dataplaneTags: {{kuma.io/service: x}}}}, ports: [{{port: 80, targetPort: 3001, appProtocol: {protocol}}}]}}}}")))),
        strings(["one.example", "10.3.0.1"].map(|address| universal("MeshExternalService", "out", &format!("{{spec: {{match: {{type: HostnameGenerator, port: 80, protocol: http}}, endpoints: [{{address: {address}, port: 80}}]}}}}")))),
    ];
    all.extend(["c1", "c2"].map(callers));
    all.extend(["s1", "s2"].map(offers));
    all.extend(["p", "q", "r"].map(http_policies));
    all.push(tcp_policies("t"));
    for namespace in ["a", "b"] {
        all.push(kubernetes_policies(namespace));
    }
    all
}

fn strings<const N: usize>(all: [impl Into<String>; N]) -> Vec<String> {
    all.map(Into::into).to_vec()
}

/// A universal document of the mesh `m` with further fields.
fn universal(kind: &str, name: &str, rest: &str) -> String {
    let rest = rest.strip_prefix('{').unwrap_or(rest);
    format!("{{type: {kind}, mesh: m, name: {name}, {rest}")
}

fn gateways() -> Vec<String> {
    let listeners = [
        "[{port: 80, protocol: HTTP, tags: {l: one}}]",
        "[{port: 80, protocol: HTTP, hostname: h.example}, {port: 80, protocol: HTTP, hostname: '*.example', tags: {l: one}}]",
        "[{port: 90, protocol: TCP, hostname: a.example}, {port: 90, protocol: TCP, hostname: b.example, tags: {l: one}}]",
        "[{port: 80, protocol: HTTP, crossMesh: true, tags: {l: one}}, {port: 91, protocol: HTTP}]",
        "[{port: 80, protocol: TCP, crossMesh: true}]",
    ];
    strings(listeners.map(|listeners| {
        universal("MeshGateway", "g", &format!("{{selectors: [{{match: {{kuma.io/service: edge}}}}], conf: {{listeners: {listeners}}}}}"))
    }))
}

fn callers(name: &str) -> Vec<String> {
    let networking = [
        "inbound: [{port: 1, tags: {kuma.io/service: c, team: one}}], outbound: [{port: 10001, tags: {kuma.io/service: x}}, {port: 10002, tags: {kuma.io/service: w}}]",
        "inbound: [{port: 1, tags: {kuma.io/service: d}}], outbound: [{port: 10001, tags: {kuma.io/service: x}}, {port: 10003, backendRef: {kind: MeshService, name: x, port: 80}}]",
        "gateway: {type: BUILTIN, tags: {kuma.io/service: edge}}",
    ];
    strings(networking.map(|rest| {
        universal(
            "Dataplane",
            name,
            &format!("{{networking: {{address: 10.5.0.1, {rest}}}}}"),
        )
    }))
}

fn offers(name: &str) -> Vec<String> {
    let inbounds = [
        ("x", "http", "v1"),
        ("x", "http", "v2"),
        ("x", "tcp", "v2"),
        ("w", "tcp", "v1"),
    ];
    strings(inbounds.map(|(service, protocol, version)| {
        universal("Dataplane", name, &format!("{{networking: {{address: 10.6.0.1, inbound: [{{port: 3001, tags: {{kuma.io/service: {service}, kuma.io/protocol: {protocol}, version: {version}}}}}]}}}}"))
    }))
}

const RULES: [&str; 5] = [
    "[{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshServiceSubset, name: x, tags: {version: v1}}]}}]",
    "[{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [], filters: []}}, {matches: [{path: {type: RegularExpression, value: '/a('}}], default: {}}]",
    "[{matches: [{path: {type: PathPrefix, value: /}}], default: {filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: h, value: v}]}}]}}, {matches: [{path: {type: Exact, value: /e}}], default: {backendRefs: [{kind: MeshService, name: w}, {kind: MeshService, name: x, port: 80}]}}]",
    "[{matches: [{path: {type: PathPrefix, value: /}}], default: {filters: [{type: RequestRedirect, requestRedirect: {hostname: h.example}}]}}]",
    "[{matches: [{path: {type: Exact, value: /e}}], default: {backendRefs: [{kind: MeshExternalService, name: out, port: 80}]}}]",
];

fn http_policies(name: &str) -> Vec<String> {
    let targets = [
        "{kind: Mesh}",
        "{kind: MeshService, name: c}",
        "{kind: MeshSubset, tags: {team: one}}",
        "{kind: Dataplane, name: c2}",
    ];
    let destinations = [
        "{kind: MeshService, name: x}",
        "{kind: MeshService, name: w}",
        "{kind: MeshService, labels: {app: x}}",
    ];
    let mut all = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        for (which, to) in destinations.iter().enumerate() {
            let rules = RULES[(at + which + name.len()) % RULES.len()];
            all.push(universal(
                "MeshHTTPRoute",
                name,
                &format!(
                    "{{spec: {{targetRef: {target}, to: [{{targetRef: {to}, rules: {rules}}}]}}}}"
                ),
            ));
        }
    }
    for (hostnames, rules) in [
        "[h.example]",
        "['*.example', H.example]",
        "[]",
        "['*', nowhere.test]",
    ]
    .iter()
    .zip([RULES[0], RULES[3], RULES[4], RULES[0]])
    {
        all.push(universal("MeshHTTPRoute", name, &format!("{{spec: {{targetRef: {{kind: MeshGateway, name: g, tags: {{l: one}}}}, to: [{{targetRef: {{kind: Mesh}}, hostnames: {hostnames}, rules: {rules}}}]}}}}")));
    }
    all
}

fn tcp_policies(name: &str) -> Vec<String> {
    let rules = "[{default: {backendRefs: [{kind: MeshService, name: w, weight: 2}, {kind: MeshService, name: x}]}}]";
    let mut all: Vec<String> = ["x", "w"].map(|to| universal("MeshTCPRoute", name, &format!("{{spec: {{to: [{{targetRef: {{kind: MeshService, name: {to}}}, rules: {rules}}}]}}}}"))).to_vec();
    all.push(universal("MeshTCPRoute", name, &format!("{{spec: {{targetRef: {{kind: MeshGateway, name: g}}, to: [{{targetRef: {{kind: Mesh}}, rules: {rules}}}]}}}}")));
    all
}

/// Policies for calls to Services of both namespaces: a producer policy, a consumer policy, and one with the legacy service name.
fn kubernetes_policies(namespace: &str) -> Vec<String> {
    let targets = [
        "name: x",
        "name: x, namespace: a",
        "name: x, namespace: b",
        "name: x_a_svc_80",
    ];
    strings(targets.map(|to| {
        format!("{{apiVersion: kuma.io/v1alpha1, kind: MeshTCPRoute, metadata: {{name: k, namespace: {namespace}}}, spec: {{to: [{{targetRef: {{kind: MeshService, {to}}}, rules: [{{default: {{backendRefs: [{{kind: MeshServiceSubset, name: z_a_svc_80, tags: {{app: x}}}}]}}}}]}}]}}}}")
    }))
}
