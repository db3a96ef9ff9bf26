//! Tests of reading manifests: findings as users see them, and the resulting resources.

use pointsman_resources::read::{ManifestReader, Manifests};
use pointsman_resources::{Kind, Severity};

fn read(files: &[(&str, &str)]) -> Manifests {
    let mut reader = ManifestReader::new();
    files
        .iter()
        .for_each(|(name, text)| reader.read(name, text.as_bytes()));
    reader.finish()
}

/// Formats each finding as a line.
fn lines(input: &Manifests) -> Vec<String> {
    input.findings.iter().map(ToString::to_string).collect()
}

const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: class}
spec: {controllerName: example.com/controller}
";

const ROUTE: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: route
spec:
  rules:
  - matches:
    - path: {type: Prefix, value: /}
    backendRefs:
    - name: cart
      prot: 80
";

#[test]
fn all_errors_of_all_documents_are_reported() {
    let broken = format!("{ROUTE}---\na: [\n---\n{CLASS}---\nkind: Gateway\n---\n- 1\n");
    let input = read(&[("a.yaml", &broken), ("b.yaml", "text")]);
    assert_eq!(
        lines(&input),
        [
            "error: a.yaml:8:20: spec.rules[0].matches[0].path.type: unsupported value `Prefix`; supported values: Exact, PathPrefix, RegularExpression",
            "error: a.yaml:10:7: spec.rules[0].backendRefs[0].port: `port` is required when kind is Service",
            "warning: a.yaml:11:7: spec.rules[0].backendRefs[0].prot: unknown field; did you mean `port`?",
            "error: a.yaml:14:1: while parsing a node, did not find expected node content",
            "error: a.yaml:20:1: apiVersion: required field is missing",
            "error: a.yaml:22:1: must be an object, found a list",
            "error: b.yaml:1:1: must be an object, found a string",
        ]
    );
    assert_eq!(input.documents.len(), 1);
    let document = &input.documents[0];
    assert_eq!(
        (document.resource.kind(), &*document.file, document.line),
        (Kind::GatewayClass, "a.yaml", 15)
    );
}

#[test]
fn unknown_fields_cause_warnings_and_are_kept_in_the_object() {
    let input = read(&[(
        "a.yaml",
        &CLASS.replace("spec: {", "spec: {Description: x, wholly: z, "),
    )]);
    assert_eq!(
        lines(&input),
        [
            "warning: a.yaml:4:8: spec.Description: unknown field; did you mean `description`?",
            "warning: a.yaml:4:24: spec.wholly: unknown field",
        ]
    );
    assert_eq!(input.documents[0].object()["spec"]["wholly"], "z");
}

#[test]
fn an_unsupported_version_is_an_error_that_lists_the_supported_versions() {
    let input = read(&[("a.yaml", &ROUTE.replace("k8s.io/v1", "k8s.io/v1alpha2"))]);
    assert_eq!(
        lines(&input),
        [
            "error: a.yaml:1:13: apiVersion: unsupported API version `gateway.networking.k8s.io/v1alpha2` of HTTPRoute; supported \
             versions: gateway.networking.k8s.io/v1, gateway.networking.k8s.io/v1beta1"
        ]
    );
}

#[test]
fn unsupported_kinds_are_ignored_and_counted() {
    let text = "{apiVersion: apps/v1, kind: Deployment}\n---\n{apiVersion: apps/v1, kind: Deployment}\n---\n\
                {apiVersion: gateway.networking.k8s.io/v1, kind: HttpRoute}\n---\n{apiVersion: v2, kind: Gateway}\n";
    let input = read(&[("a.yaml", text)]);
    let ignored: Vec<_> = input
        .ignored
        .iter()
        .map(|(kind, count)| (kind.as_str(), *count))
        .collect();
    assert_eq!(
        ignored,
        [
            ("apps/v1/Deployment", 2),
            ("gateway.networking.k8s.io/v1/HttpRoute", 1),
            ("v2/Gateway", 1)
        ]
    );
    assert_eq!(
        lines(&input),
        [
            "warning: a.yaml:5:50: kind: unknown kind `HttpRoute`: the object is ignored; did you mean `HTTPRoute`?",
            "warning: a.yaml:7:14: apiVersion: unknown kind Gateway in `v2`: the object is ignored; did you mean `gateway.networking.k8s.io/v1`?"
        ]
    );
}

// Universal documents have `type` and `name` instead of `apiVersion` and `kind`.
#[test]
fn unsupported_kinds_of_kuma_are_ignored_in_both_forms() {
    let text = "{apiVersion: kuma.io/v1alpha1, kind: MeshTimeout}\n---\n{type: MeshTimeout, name: a, mesh: default}\n---\n\
                {type: MeshHttpRoute, name: a}\n";
    let input = read(&[("a.yaml", text)]);
    let ignored: Vec<&str> = input.ignored.keys().map(String::as_str).collect();
    assert_eq!(
        ignored,
        [
            "MeshHttpRoute",
            "MeshTimeout",
            "kuma.io/v1alpha1/MeshTimeout"
        ]
    );
    assert_eq!(
        lines(&input),
        [
            "warning: a.yaml:5:8: type: unknown kind `MeshHttpRoute`: the object is ignored; did you mean `MeshHTTPRoute`?"
        ]
    );
}

#[test]
fn a_supported_kind_in_another_kubernetes_api_group_causes_a_warning() {
    let text = "{apiVersion: networking.k8s.io/v1, kind: HTTPRoute}\n---\n{apiVersion: networking.istio.io/v1, kind: Gateway}\n";
    assert_eq!(
        lines(&read(&[("a.yaml", text)])),
        [
            "warning: a.yaml:1:14: apiVersion: unknown kind HTTPRoute in `networking.k8s.io/v1`: the object is ignored; \
             did you mean `gateway.networking.k8s.io/v1`?"
        ]
    );
}

#[test]
fn the_items_of_lists_are_read() {
    let class = "{metadata: {name: b}, spec: {controllerName: example.com/c}}";
    let text = format!(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {{name: shop}}\n- {{apiVersion: v1}}\n\
         - apiVersion: v1\n  kind: List\n  items: [{{apiVersion: v1, kind: Namespace, metadata: {{name: UPPER}}}}]\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClassList\nmetadata: {{}}\nitems: [{class}]\n---\n\
         {{apiVersion: v1, kind: PodList, items: null}}\n---\n{{apiVersion: v1, kind: PodList, items: 5}}\n"
    );
    let input = read(&[("a.yaml", &text)]);
    let kinds: Vec<_> = input
        .documents
        .iter()
        .map(|document| document.resource.kind())
        .collect();
    assert_eq!(kinds, [Kind::Namespace, Kind::GatewayClass]);
    assert_eq!(input.documents[0].position("metadata.name"), (6, 20));
    let found = lines(&input);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(
        found[0].starts_with("error: a.yaml:7:3: items[1].kind: required field"),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with(
            "error: a.yaml:10:62: items[2].items[0].metadata.name: invalid value `UPPER`"
        ),
        "{found:#?}"
    );
    assert!(
        found[2].starts_with("error: a.yaml:19:40: items: must be a list, found an integer"),
        "{found:#?}"
    );
}

#[test]
fn a_duplicate_object_is_an_error_with_the_position_of_the_first() {
    let other = CLASS.replace("example.com/controller", "example.com/other");
    let input = read(&[("a.yaml", &format!("---\n{CLASS}")), ("b.yaml", &other)]);
    assert_eq!(
        lines(&input),
        ["error: b.yaml:3:18: metadata.name: GatewayClass class is already defined at a.yaml:2:1"]
    );
    assert_eq!(
        input.documents[0].object()["spec"]["controllerName"],
        "example.com/controller"
    );
    // Objects in different namespaces are different. The namespace defaults to `default`.
    let pod =
        |namespace| format!("{{apiVersion: v1, kind: Pod, metadata: {{name: a{namespace}}}}}");
    let input = read(&[
        ("a", &pod("")),
        ("b", &pod(", namespace: b")),
        ("c", &pod(", namespace: default")),
    ]);
    assert_eq!(
        lines(&input),
        ["error: c:1:46: metadata.name: Pod default/a is already defined at a:1:1"]
    );
}

#[test]
fn namespaces_are_defaulted_or_ignored_by_the_scope_of_the_kind() {
    let input = read(&[
        (
            "a",
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ''}}",
        ),
        (
            "b",
            &CLASS.replace("name: class", "name: class, namespace: shop"),
        ),
    ]);
    assert_eq!(
        lines(&input),
        [
            "warning: b:3:25: metadata.namespace: GatewayClass is cluster-scoped; the namespace is ignored"
        ]
    );
    let names: Vec<_> = input
        .documents
        .iter()
        .map(|document| document.resource.key().to_string())
        .collect();
    assert_eq!(names, ["Pod default/a", "GatewayClass class"]);
    assert!(
        input.documents[1].object()["metadata"]
            .get("namespace")
            .is_none()
    );
}

#[test]
fn metadata_is_validated() {
    let long = "a".repeat(254);
    // (kind, metadata, field, message)
    let cases = [
        ("Pod", "{}", "metadata.name", "required field is missing"),
        (
            "Pod",
            "{generateName: a-}",
            "metadata.name",
            "`generateName` is not supported in files",
        ),
        ("Pod", "{name: ''}", "metadata.name", "must not be empty"),
        (
            "Pod",
            "{name: A}",
            "metadata.name",
            "invalid value `A`: must be an RFC 1123 subdomain",
        ),
        (
            "Pod",
            &format!("{{name: {long}}}"),
            "metadata.name",
            "at most 253",
        ),
        (
            "Pod",
            "{name: 5}",
            "metadata.name",
            "must be a string, found an integer; enclose the value in quotes",
        ),
        (
            "Namespace",
            "{name: a.b}",
            "metadata.name",
            "must be an RFC 1123 label",
        ),
        (
            "Namespace",
            &format!("{{name: {}}}", &long[..64]),
            "metadata.name",
            "at most 63",
        ),
        (
            "Pod",
            "{name: a, namespace: a.b}",
            "metadata.namespace",
            "must be an RFC 1123 label",
        ),
        (
            "Pod",
            "{name: a, labels: {a b: c}}",
            "metadata.labels[a b]",
            "invalid key `a b`: must be a qualified name",
        ),
        (
            "Pod",
            "{name: a, labels: {a: b c}}",
            "metadata.labels[a]",
            "must be a label value",
        ),
        (
            "Pod",
            "{name: a, labels: {a: yes}}",
            "metadata.labels[a]",
            "must be a string, found a boolean",
        ),
        (
            "Pod",
            "{name: a, annotations: {'': c}}",
            "metadata.annotations[]",
            "invalid key ``: must be a qualified name",
        ),
        (
            "Pod",
            "{name: a, annotations: []}",
            "metadata.annotations",
            "must be an object, found a list",
        ),
        (
            "Pod",
            "{name: a, creationTimestamp: yesterday}",
            "metadata.creationTimestamp",
            "must be an RFC 3339 time",
        ),
        (
            "Pod",
            "{name: a, generation: one}",
            "metadata.generation",
            "must be an integer, found a string",
        ),
        ("Pod", "[]", "metadata", "must be an object, found a list"),
        ("Pod", "~", "metadata", "required field is missing"),
    ];
    for (kind, metadata, field, message) in cases {
        let input = read(&[(
            "a",
            &format!("{{apiVersion: v1, kind: {kind}, metadata: {metadata}}}"),
        )]);
        let found = lines(&input);
        assert_eq!(found.len(), 1, "{metadata}: {found:#?}");
        assert_eq!(input.findings[0].field, field, "{metadata}");
        assert!(
            input.findings[0].message.contains(message),
            "{metadata}: {found:#?}"
        );
    }
    let valid = "{name: a.b, uid: x, managedFields: [5], ownerReferences: 7, creationTimestamp: null, labels: null, \
                annotations: {Example.com/X: ''}}";
    let input = read(&[(
        "a",
        &format!("{{apiVersion: v1, kind: Pod, metadata: {valid}}}"),
    )]);
    assert_eq!(lines(&input), Vec::<String>::new());
}

#[test]
fn the_fields_in_use_of_core_kinds_are_validated() {
    let service = |spec: &str| {
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: a}}, spec: {spec}}}")
    };
    let slice = |rest: &str| {
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: a}}, {rest}}}"
        )
    };
    let secret =
        |rest: &str| format!("{{apiVersion: v1, kind: Secret, metadata: {{name: a}}, {rest}}}");
    let cases = [
        ("{apiVersion: v1, kind: Service, metadata: {name: 1a}, spec: {clusterIP: None}}".to_owned(), "metadata.name", "starting with a letter"),
        (service("{}"), "spec.ports", "at least one port is required"),
        (service("{ports: []}"), "spec.ports", "at least one port is required"),
        (service("{ports: [{port: 0}]}"), "spec.ports[0].port", "must be between 1 and 65535, found 0"),
        (service("{ports: [{port: 1, protocol: HTTP}]}"), "spec.ports[0].protocol", "supported values: TCP, UDP, SCTP"),
        (service("{ports: [{port: 1, name: a}, {port: 2}]}"), "spec.ports[1].name", "must name each of them"),
        (service("{ports: [{port: 1, name: a}, {port: 2, name: a}]}"), "spec.ports[1].name", "duplicate name `a`"),
        (service("{ports: [{port: 1, name: a}, {port: 1, name: b}]}"), "spec.ports[1]", "duplicate port 1 with protocol TCP"),
        (service("{ports: [{port: 1, name: A}]}"), "spec.ports[0].name", "must be an RFC 1123 label"),
        (service("{ports: [{port: 1, targetPort: 70000}]}"), "spec.ports[0].targetPort", "found 70000"),
        (service("{ports: [{port: 1, targetPort: '80'}]}"), "spec.ports[0].targetPort", "with at least one letter"),
        (service("{ports: [{port: 1, targetPort: true}]}"), "spec.ports[0].targetPort", "must be an integer or a string, found a boolean"),
        (service("{type: Cluster, ports: [{port: 1}]}"), "spec.type", "did you mean `ClusterIP`?"),
        (service("{clusterIP: a, ports: [{port: 1}]}"), "spec.clusterIP", "invalid value `a`: must be empty, `None` or an IP address"),
        (service("{type: ExternalName}"), "spec.externalName", "`externalName` is required"),
        (service("{type: ExternalName, externalName: A_B}"), "spec.externalName", "must be an RFC 1123 subdomain"),
        (service("{clusterIP: None, selector: {a: 5}}"), "spec.selector[a]", "must be a string"),
        (slice("endpoints: []"), "addressType", "required field is missing"),
        (slice("addressType: IPv4, endpoints: [{addresses: ['::1']}]"), "endpoints[0].addresses[0]", "must be an IPv4 address when addressType is IPv4"),
        (slice("addressType: IPv6, endpoints: [{addresses: [1.2.3.4]}]"), "endpoints[0].addresses[0]", "must be an IPv6 address when addressType is IPv6"),
        (slice("addressType: FQDN, endpoints: [{addresses: [A]}]"), "endpoints[0].addresses[0]", "must be a lowercase DNS name when addressType is FQDN"),
        (slice("addressType: IPv4, endpoints: [{addresses: []}]"), "endpoints[0].addresses", "must not be empty"),
        (slice("addressType: IPv4, ports: [{port: 65536}]"), "ports[0].port", "found 65536"),
        (slice("addressType: IPv4, ports: [{name: a}, {name: a}]"), "ports[1].name", "duplicate name `a`"),
        (secret("data: {a: 'not base64'}"), "data[a]", "must be base64-encoded data"),
        (secret("data: {a b: ''}"), "data[a b]", "invalid key `a b`: must be a key of letters"),
        (secret("type: kubernetes.io/tls, data: {tls.crt: ''}"), "data[tls.key]", "`tls.key` is required"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: 5}}".to_owned(), "data[a]", "must be a string"),
        ("{apiVersion: certificates.k8s.io/v1beta1, kind: ClusterTrustBundle, metadata: {name: a}, spec: {}}".to_owned(), "spec.trustBundle", "missing"),
        ("{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceImport, metadata: {name: a}, spec: {type: X}}".to_owned(), "spec.type", "supported values: ClusterSetIP, Headless"),
    ];
    for (text, field, message) in cases {
        let input = read(&[("a", &text)]);
        let found = lines(&input);
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        assert_eq!(input.findings[0].field, field, "{text}");
        assert!(
            input.findings[0].message.contains(message),
            "{text}: {found:#?}"
        );
    }
    let loopback =
        slice("addressType: IPv4, endpoints: [{addresses: [127.0.0.1], zone: x}], other: 1");
    assert_eq!(lines(&read(&[("a", &loopback)])), Vec::<String>::new());
}

#[test]
fn a_document_has_the_positions_of_its_fields() {
    let text = ROUTE
        .replace("Prefix", "PathPrefix")
        .replace("prot", "port")
        .replace("name: route", "name: route\n  labels: {example.com/a: b}");
    let input = read(&[("a.yaml", &format!("# comment\n---\n{text}"))]);
    assert_eq!(lines(&input), Vec::<String>::new());
    let document = &input.documents[0];
    for (field, position) in [
        ("", (3, 1)),
        ("kind", (4, 7)),
        ("metadata.labels[example.com/a]", (7, 27)),
        ("spec.rules[0]", (10, 5)),
        ("spec.rules[0].backendRefs[0].port", (14, 13)),
        // A default has the position of its parent. A missing field has the position of its nearest existing ancestor.
        ("spec.rules[0].backendRefs[0].weight", (13, 7)),
        ("spec.rules[0].backendRefs[1].name", (13, 7)),
        ("spec.rules[7].backendRefs[0]", (10, 5)),
        ("status.parents", (3, 1)),
    ] {
        assert_eq!(document.position(field), position, "{field}");
    }
}

#[test]
fn the_input_order_spans_all_files() {
    let pod = |name| format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}}}");
    let input = read(&[
        ("a", &format!("{}\n---\n{}", pod("a"), pod("b"))),
        ("b", &pod("c")),
    ]);
    let order: Vec<_> = input
        .documents
        .iter()
        .map(|document| document.resource.meta().input_order)
        .collect();
    assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
}

#[test]
fn severities_are_ordered_and_displayed() {
    assert!(Severity::Error < Severity::Warning);
    assert_eq!(
        format!("{} {}", Severity::Error, Severity::Warning),
        "error warning"
    );
}
