//! Tests that Kubernetes objects and universal documents are equivalent.

use pointsman_resources::kuma::{Filter, HeaderTest, TargetKind};
use pointsman_resources::{Kind, ObjectKey, Resource};

use super::{lines, read, read_valid, route};

const SPEC: &str = "spec:
  targetRef: {kind: MeshSubset, tags: {version: v1}, proxyTypes: [Sidecar]}
  to:
  - targetRef: {kind: MeshService, name: backend, sectionName: http}
    rules:
    - matches:
      - path: {type: PathPrefix, value: /v1}
        method: GET
        headers: [{name: a, value: b}, {type: Absent, name: c}, {type: Prefix, name: d, value: e}]
        queryParams: [{type: Exact, name: q, value: '1'}]
      default:
        filters: []
        backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v2}, weight: 90}]
";

#[test]
fn both_forms_of_a_policy_differ_only_in_their_identity() {
    let kubernetes = route(&format!(
        "apiVersion: kuma.io/v1alpha1\nkind: MeshHTTPRoute\n\
         metadata: {{name: a, namespace: shop, labels: {{kuma.io/mesh: demo}}}}\n{SPEC}"
    ));
    let universal = route(&format!(
        "type: MeshHTTPRoute\nname: a\nmesh: demo\nlabels: {{kuma.io/effect: shadow}}\n{SPEC}"
    ));
    assert_eq!(kubernetes.spec, universal.spec);
    assert_eq!((&*kubernetes.mesh, &*universal.mesh), ("demo", "demo"));
    assert_eq!(kubernetes.metadata.key().to_string(), "shop/a");
    assert_eq!(universal.metadata.key().to_string(), "mesh:demo/a");
    assert_eq!(
        universal.metadata.labels.get("kuma.io/effect"),
        Some("shadow")
    );
    let to = &universal.spec.to[0];
    assert_eq!(universal.spec.target_ref.kind, TargetKind::MeshSubset);
    assert_eq!(to.target_ref.section_name.as_deref(), Some("http"));
    let [rule] = &to.rules[..] else { panic!() };
    assert_eq!(rule.matches[0].headers[1].test, HeaderTest::Absent);
    assert_eq!(rule.default.filters, Some(Vec::<Filter>::new()));
    let backends = rule.default.backend_refs.as_deref().unwrap();
    assert_eq!((backends[0].weight, backends[0].port), (90, None));
}

#[test]
fn an_object_without_a_mesh_belongs_to_the_default_mesh() {
    let documents = read_valid(
        "{apiVersion: kuma.io/v1alpha1, kind: Dataplane, metadata: {name: a}, spec: {networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: a}}]}}}\n---\n\
         {type: Dataplane, name: a, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: a}}]}}\n---\n\
         {type: Dataplane, mesh: other, name: a, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: a}}]}}\n---\n\
         {type: Mesh, name: other}\n---\n{apiVersion: kuma.io/v1alpha1, kind: Mesh, metadata: {name: third}}\n",
    );
    let keys: Vec<String> = documents
        .iter()
        .map(Resource::key)
        .map(|key: ObjectKey| key.to_string())
        .collect();
    assert_eq!(
        keys,
        [
            "Dataplane default/a",
            "Dataplane mesh:default/a",
            "Dataplane mesh:other/a",
            "Mesh other",
            "Mesh third"
        ]
    );
    let [
        Resource::Dataplane(kubernetes),
        Resource::Dataplane(universal),
        ..,
    ] = &documents[..]
    else {
        panic!()
    };
    assert_eq!(
        (&*kubernetes.mesh, &*universal.mesh),
        ("default", "default")
    );
    assert_eq!(kubernetes.spec, universal.spec);
}

#[test]
fn both_forms_of_every_kind_are_equivalent() {
    // (kind, whether the universal form has `spec`, spec)
    let cases = [
        (
            Kind::Mesh,
            false,
            "mtls: {enabledBackend: ca-1, backends: [{name: ca-1}]}",
        ),
        (
            Kind::Dataplane,
            false,
            "networking: {address: 10.0.0.1, gateway: {type: BUILTIN, tags: {kuma.io/service: edge}}}",
        ),
        (
            Kind::MeshService,
            true,
            "selector: {dataplaneTags: {app: a}}, ports: [{port: 80, targetPort: 8080}]",
        ),
        (
            Kind::MeshExternalService,
            true,
            "match: {port: 80, protocol: http}, endpoints: [{address: example.com, port: 80}]",
        ),
        (
            Kind::MeshMultiZoneService,
            true,
            "selector: {meshService: {matchLabels: {app: a}}}, ports: [{port: 80}]",
        ),
        (
            Kind::MeshGateway,
            false,
            "selectors: [{match: {kuma.io/service: edge}}], conf: {listeners: [{port: 80, protocol: HTTP}]}",
        ),
        (Kind::MeshGatewayInstance, true, "replicas: 2"),
        (
            Kind::MeshHTTPRoute,
            true,
            "to: [{targetRef: {kind: MeshService, name: a}, rules: []}]",
        ),
        (
            Kind::MeshTCPRoute,
            true,
            "to: [{targetRef: {kind: MeshService, name: a}}]",
        ),
        (
            Kind::MeshGatewayHTTPRoute,
            true,
            "targetRef: {kind: MeshGateway, name: edge}, hostnames: [a.example.com], rules: []",
        ),
    ];
    for (kind, has_spec, spec) in cases {
        let kubernetes = format!(
            "{{apiVersion: kuma.io/v1alpha1, kind: {kind}, metadata: {{name: a}}, spec: {{{spec}}}}}"
        );
        let universal = match has_spec {
            true => format!("{{type: {kind}, name: a, spec: {{{spec}}}}}"),
            false => format!("{{type: {kind}, name: a, {spec}}}"),
        };
        let mut both = [
            read_valid(&kubernetes).remove(0),
            read_valid(&universal).remove(0),
        ];
        assert!(both.iter().all(|resource| resource.kind() == kind));
        // The forms differ only in the namespace.
        both.iter_mut()
            .for_each(|resource| resource.meta_mut().namespace = "".into());
        assert_eq!(both[0], both[1]);
    }
}

#[test]
fn a_universal_document_is_identified_by_its_mesh_and_name() {
    let text = "{type: Mesh, name: a}\n---\n{type: Mesh, name: a}\n---\n\
                {type: MeshGatewayInstance, name: a, spec: {}}\n---\n{type: MeshGatewayInstance, mesh: b, name: a, spec: {}}\n---\n\
                {type: MeshGatewayInstance, mesh: default, name: a, spec: {}}\n";
    assert_eq!(
        lines(&read(text)),
        [
            "error: a.yaml:3:20: name: Mesh a is already defined at a.yaml:1:1",
            "error: a.yaml:9:50: name: MeshGatewayInstance mesh:default/a is already defined at a.yaml:5:1",
        ]
    );
}

#[test]
fn errors_in_universal_documents_refer_to_their_own_fields() {
    let text = "type: MeshGateway
mesh: Default
labels: {a: b c}
selector: []
conf:
  listeners:
  - {port: 0, protocol: HTTP, hostnam: a}
---
type: MeshHTTPRoute
name: a
---
type: Dataplane
name: ''
networking: {}
";
    assert_eq!(
        lines(&read(text)),
        [
            "error: a.yaml:1:1: name: cannot be empty",
            "error: a.yaml:1:1: selectors: must have at least one element",
            "error: a.yaml:2:7: mesh: invalid characters: must consist of lower case alphanumeric characters, '-', '.' and '_'.",
            "error: a.yaml:3:13: labels[a]: invalid value `b c`: must be a label value: letters, digits, `-`, `_` and `.`, starting and \
             ending with a letter or digit",
            "warning: a.yaml:4:1: selector: unknown field; did you mean `selectors`?",
            "error: a.yaml:7:12: conf.listeners[0].port: port must be in the range [1, 65535]",
            "warning: a.yaml:7:31: conf.listeners[0].hostnam: unknown field; did you mean `hostname`?",
            "error: a.yaml:9:1: spec: required field is missing",
            "error: a.yaml:13:7: name: cannot be empty",
            "error: a.yaml:14:13: networking.address: address can't be empty",
        ]
    );
}

#[test]
fn a_document_has_the_positions_of_its_fields_in_either_syntax() {
    let text = "type: MeshHTTPRoute
name: a
spec:
  to:
  - targetRef: {kind: MeshService, name: a}
    rules:
    - matches:
        path:
          prefix: /v1
      default:
        filters:
        - urlRewrite: {path: {replacePrefixMatch: /v2}}
";
    let input = read(text);
    let rule = "spec.to[0].rules[0]";
    for (field, position) in [
        (rule.to_owned(), (7, 7)),
        (format!("{rule}.matches[0].path.value"), (9, 19)),
        (format!("{rule}.default.filters[0].urlRewrite"), (12, 23)),
    ] {
        assert_eq!(input.documents[0].position(&field), position, "{field}");
    }
}

#[test]
fn unset_lists_are_distinguished_from_empty_lists() {
    let conf = |conf: &str| {
        let text = format!(
            "{{type: MeshHTTPRoute, name: a, spec: {{to: [{{targetRef: {{kind: MeshService, name: a}}, rules: [\
             {{matches: [{{method: GET}}], default: {{{conf}}}}}]}}]}}}}"
        );
        route(&text).spec.to[0].rules[0].default.clone()
    };
    assert_eq!(conf("").filters, None);
    assert_eq!(conf("filters: ~").filters, None);
    assert_eq!(conf("filters: []").filters, Some(Vec::<Filter>::new()));
    assert_eq!(conf("").backend_refs, None);
    assert_eq!(conf("backendRefs: []").backend_refs, Some(Vec::new()));
}

/// Reads resources and returns their keys.
fn keys(text: &str) -> Vec<String> {
    let all = read_valid(text);
    all.iter()
        .map(|resource| resource.key().to_string())
        .collect()
}

#[test]
fn a_small_mesh_is_read_in_either_form() {
    assert_eq!(
        keys(include_str!("universal.yaml")),
        [
            "Mesh default",
            "Dataplane mesh:default/backend-v2-1",
            "Dataplane mesh:default/web-1",
            "Dataplane mesh:default/edge-1",
            "MeshGateway mesh:default/edge-gateway",
            "MeshHTTPRoute mesh:default/edge-routes",
        ]
    );
    assert_eq!(
        keys(include_str!("kubernetes.yaml")),
        [
            "Service kuma-demo/backend",
            "MeshHTTPRoute kuma-demo/backend-canary",
            "MeshGateway edge-gateway",
            "MeshGatewayInstance kuma-demo/edge-gateway",
            "MeshHTTPRoute kuma-system/edge",
        ]
    );
}

#[test]
fn the_spec_of_a_mesh_gateway_instance_is_optional() {
    let kubernetes =
        "{apiVersion: kuma.io/v1alpha1, kind: MeshGatewayInstance, metadata: {name: a}}";
    for text in [kubernetes, "{type: MeshGatewayInstance, name: a}"] {
        let [Resource::MeshGatewayInstance(instance)] = &read_valid(text)[..] else {
            panic!()
        };
        assert_eq!(instance.spec.replicas, 1);
    }
}

#[test]
fn the_mesh_of_an_object_is_set_by_label_field_or_annotation() {
    let mesh = |rest: &str| {
        let text = format!(
            "{{apiVersion: kuma.io/v1alpha1, kind: Dataplane, {rest}, spec: {{networking: {{address: a, gateway: \
             {{tags: {{kuma.io/service: a}}}}}}}}}}"
        );
        match read_valid(&text).remove(0) {
            Resource::Dataplane(dataplane) => dataplane.mesh.to_string(),
            other => panic!("{other:?}"),
        }
    };
    for (rest, expected) in [
        ("metadata: {name: a}", "default"),
        ("metadata: {name: a, labels: {kuma.io/mesh: b}}", "b"),
        ("metadata: {name: a}, mesh: c", "c"),
        ("metadata: {name: a, annotations: {kuma.io/mesh: d}}", "d"),
    ] {
        assert_eq!(mesh(rest), expected, "{rest}");
    }
}
